/* wgrad.h -- the gradient of the weights of convolution, transposed convolution
 * and linear:
 *
 *     dw[r, t, c] = sum over n, o of a[n, o, r] * x[n, o*s - lo + t*dil, c]
 *
 * a is dy and x the operand (convolution, linear), or the reverse (transposed
 * convolution). The rows r are the slow axis of w.
 *
 * Pixels are cut into regions of at most CHAIN pixels, and regions are grouped
 * into parts, by shapes alone. A part sums its regions into a block of its own,
 * and the blocks are added in order: the bits are the same for any number of
 * threads, and no chain of f32 additions is longer than CHAIN, the regions of a
 * part, or the parts. The batch is one of the shapes: the sums are over it.
 *
 * Depthwise convolutions go to depthwise.h, most windows of 3x3 to
 * winograd.h. */
#ifndef SEG_CPU_CONV_WGRAD_H
#define SEG_CPU_CONV_WGRAD_H
#include "cpu/lib/thread_pool.h"
#include "cpu/lib/window.h"

typedef struct Wgrad {
    Window window;
    Dims in, out; /* of x and of a */
    const float *x, *a;
    ConcatInput second; /* second input of x, as in FpropDgrad */
    float *dw;          /* (out.c, taps, in.c / groups) */
    bool add;           /* add to dw */
    bool no_winograd;   /* see Call.no_winograd */
    bool half;          /* x and a are bf16: see bf16.h */
    int threads;
} Wgrad;

/* Bytes of scratch; addresses need not be set. The sums of the parts are most
 * of it, 32 MiB at most. */
size_t wgrad_bytes(const Wgrad *g);
void wgrad_run(const Wgrad *g, Pool *pool, void *scratch);

/* dw = or += the sum of `parts` partial sums (parts, count), in order. */
void wgrad_combine(const Wgrad *g, Pool *pool, const float *sums, int64_t parts,
                   int64_t count);

/* db[c] = sum of dy over all other axes, added if `add`; scratch has
 * bias_grad_bytes() bytes. */
size_t bias_grad_bytes(Dims dy);
void bias_grad_run(const float *dy, Dims dim, float *db, bool add, Pool *pool,
                   void *scratch);
#endif
