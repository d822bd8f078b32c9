/* fprop_dgrad.h -- the sum over taps and channels of fprop and dgrad of
 * convolution, transposed convolution and linear:
 *
 *     y[n, o, co] = bias[co] + sum over t, ci of
 *                   x[n, p(o, t), ci] * w(t, ci, co)
 *
 * with positions p as in window.h. Weights are packed into panels on every
 * call, because they change on every step. Channels are summed in chunks, so
 * that no chain of f32 additions is longer than CHAIN (except where one channel
 * has more taps than that) and so that the panel of a chunk stays in cache.
 * Depthwise convolutions go to depthwise.h, most convolutions with windows of
 * 3x3 to winograd.h.
 *
 * Every result belongs to one task, and the order of its sum depends on kernel
 * and channels only: the bits are the same for any number of threads and any
 * batch. */
#ifndef SEG_CPU_CONV_FPROP_DGRAD_H
#define SEG_CPU_CONV_FPROP_DGRAD_H
#include "cpu/conv/epilogue.h"
#include "cpu/lib/thread_pool.h"
#include "cpu/lib/window.h"

/* Longest chain of multiply-adds in f32: the rounding error grows with the
 * length of a chain, and more slowly if chunks are summed first and then their
 * sums. wgrad.c keeps to it, too. */
enum { CHAIN = 1024 };

typedef struct FpropDgrad {
    Window window;
    bool transposed;  /* x is the convolution's result, y its image */
    bool add;         /* add to y; bias must be NULL */
    bool no_winograd; /* see Call.no_winograd */
    bool half;        /* x and w are bf16: bf16.h converts the job */
    int64_t paired;   /* Channels of a group of w, which is bf16, if x consists
                       * of pairs and in.c counts pairs; else 0 */
    bool half_x;      /* only x is bf16: for Winograd */
    Dims in, out;     /* of x and y */
    const float *x;
    const float *w; /* (out.c, taps, in.c / groups); if transposed */
                    /* (in.c, taps, out.c / groups) */
    const float *bias;
    float *y;
    ConcatInput second; /* second input of the convolution's image: x, or y if
                         * transposed; only for Winograd */
    Epilogue epilogue; /* only if neither transposed nor added, and one group */
    int threads;       /* of the pool: each has a buffer of its own */
} FpropDgrad;

/* Bytes of scratch; addresses need not be set. */
size_t fprop_dgrad_bytes(const FpropDgrad *c);
/* Runs the job. `scratch` has fprop_dgrad_bytes() bytes and is 64-byte aligned;
 * its contents are undefined before and after. `pool` has c->threads threads,
 * or is NULL with 1. */
void fprop_dgrad_run(const FpropDgrad *c, Pool *pool, void *scratch);
#endif
