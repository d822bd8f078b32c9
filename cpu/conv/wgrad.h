/* wgrad.h -- the gradient of weights of convolution, transposed convolution
 * and linear:
 *
 *     dw[r, t, c] = sum over n, o of a[n, o, r] * x[n, o*s - lo + t*dil, c]
 *
 * a is dy and x the operand (convolution, linear), or the reverse
 * (transposed convolution): rows r are the slow axis of w.
 *
 * Pixels are cut into regions of at most CHAIN and regions into parts, by
 * shapes alone. A part sums its regions into a block of its own and blocks
 * are added in their order: same bits for any number of threads, and no
 * chain of f32 additions longer than CHAIN, regions of a part, or parts. The
 * batch is part of the shapes: these are sums over it.
 *
 * Where every channel is alone, depthwise.h does the work, and winograd.h that
 * of most windows of 3x3. */
#ifndef SEG_CPU_CONV_WGRAD_H
#define SEG_CPU_CONV_WGRAD_H
#include "cpu/lib/thread_pool.h"
#include "cpu/lib/window.h"

typedef struct Wgrad {
    Window window;
    Dims in, out; /* of x and of a                               */
    const float *x, *a;
    ConcatInput beside; /* of x; as of a FpropDgrad */
    float *dw;          /* (out.c, taps, in.c / groups)                */
    bool add;           /* add to dw                                   */
    bool no_winograd;   /* see Call.no_winograd                       */
    bool half;          /* x and a are bf16: see bf16.h                */
    int threads;
} Wgrad;

/* Bytes of scratch; addresses need not be set. The sums of parts are the
 * larger share of it, 32 MiB at most. */
size_t wgrad_bytes(const Wgrad *g);
void wgrad_run(const Wgrad *g, Pool *pool, void *scratch);

/* dw = the sums of `parts` parts, (parts, count), in their order. */
void wgrad_combine(const Wgrad *g, Pool *pool, const float *sums, int64_t parts,
                   int64_t count);

/* db[c] = sum of dy over all else, added when `add`; scratch as said. */
size_t bias_grad_bytes(Dims dy);
void bias_grad_run(const float *dy, Dims dim, float *db, bool add, Pool *pool,
                   void *scratch);
#endif
