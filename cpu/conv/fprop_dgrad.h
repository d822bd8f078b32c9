/* fprop_dgrad.h -- the sum over taps and channels that convolution, its
 * gradient in x, transposed convolution and linear share:
 *
 *     y[n, o, co] = bias[co] + sum over t, ci of
 *                   x[n, p(o, t), ci] * w(t, ci, co)
 *
 * with positions p as window.h says. Weights are packed into panels on every
 * call, because they change on every step. Channels are summed in chunks, so
 * that no chain of f32 additions is longer than CHAIN (where one tap of one
 * channel per plane allows) and so that a chunk's panel stays in cache.
 * A convolution in which every channel is alone goes to depthwise.h, most of
 * those with windows of 3x3 to winograd.h.
 *
 * Every result belongs to one task and its chain depends on kernel and
 * channels only: same bits for any number of threads and any batch. */
#ifndef SEG_CPU_CONV_FPROP_DGRAD_H
#define SEG_CPU_CONV_FPROP_DGRAD_H
#include "cpu/conv/epilogue.h"
#include "cpu/lib/thread_pool.h"
#include "cpu/lib/window.h"

/* Multiply-adds in a row in f32: the error of a chain grows with its length,
 * and partial sums of chunks add it up more slowly. wgrad.c keeps to it, too.
 */
enum { CHAIN = 1024 };

typedef struct FpropDgrad {
    Window window;
    bool transposed;  /* x is the convolution's result, y its image    */
    bool add;         /* add to y; bias must be NULL                   */
    bool no_winograd; /* see Call.no_winograd                         */
    bool half;        /* x and w are bf16: bf16.h does the rest, and .. */
    int64_t paired;   /* .. comes back with the channels of a group of w,
                       * which is bf16, where x has pairs and in.c counts
                       * these; else 0                                 */
    bool half_x;      /* x alone is bf16: of what goes by Winograd     */
    Dims in, out;     /* of x and y                                    */
    const float *x;
    const float *w; /* (out.c, taps, in.c / groups), but transposed: */
                    /* (in.c, taps, out.c / groups)                  */
    const float *bias;
    float *y;
    ConcatInput beside; /* of the convolution's image: x, if transposed y; of
                         * what goes by Winograd only */
    Epilogue
        epilogue; /* of one that is neither transposed nor added; one group */
    int threads;  /* of the pool: each has a buffer of its own */
} FpropDgrad;

/* Bytes of scratch; addresses need not be set. */
size_t fprop_dgrad_bytes(const FpropDgrad *c);
/* `scratch` is fprop_dgrad_bytes() large and 64-byte aligned; garbage before
 * and after. `pool` has c->threads threads, or is NULL with 1. */
void fprop_dgrad_run(const FpropDgrad *c, Pool *pool, void *scratch);
#endif
