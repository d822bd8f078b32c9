/* correlate.h -- the sum over taps and channels that convolution, its
 * gradient in x, transposed convolution and linear share:
 *
 *     y[n, o, co] = bias[co] + sum over t, ci of
 *                   x[n, p(o, t), ci] * w(t, ci, co)
 *
 * with positions p as strip.h says. Weights are packed into panels on every
 * call, because they change on every step. Channels are summed in chunks, so
 * that no chain of f32 additions is longer than CHAIN (where one tap of one
 * channel per plane allows) and so that a chunk's panel stays in cache.
 *
 * Every result belongs to one task and its chain depends on kernel and
 * channels only: same bits for any number of threads and any batch. */
#ifndef SEG_CORRELATE_H
#define SEG_CORRELATE_H
#include "pool.h"
#include "strip.h"

enum { CHAIN = 1024 };

typedef struct Correlate {
    Window window;
    bool transposed; /* x is the convolution's result, y its image    */
    bool add;        /* add to y; bias must be NULL                   */
    Dims in, out;    /* of x and y                                    */
    const float *x;
    const float *w; /* (out.c, taps, in.c / groups), but transposed: */
                    /* (in.c, taps, out.c / groups)                  */
    const float *bias;
    float *y;
    int threads;
} Correlate;

/* Bytes of scratch; addresses need not be set. */
size_t correlate_bytes(const Correlate *c);
void correlate_run(const Correlate *c, Pool *pool, void *scratch);
#endif
