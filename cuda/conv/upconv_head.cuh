/* upconv_head.cuh -- an upconv of few results, as at the end of a generator;
 * see upconv_head_fwd.cu and upconv_head_bwd.cu. */
#ifndef SEG_CUDA_CONV_UPCONV_HEAD_H
#define SEG_CUDA_CONV_UPCONV_HEAD_H
#include "cuda/conv/conv.cuh"

enum {
    EXIT_RESULTS = 4,    // at most
    EXIT_COLUMNS = 64,   // taps by results
    EXIT_CHANNELS = 256, // of the operand
};

/* Is this call one, but for what its window wants of shared memory? Follows
 * from extents, attributes and precision; the operand is in two tensors from
 * channel `from` on, 0: it is in one. */
bool exit_few(const Corr *r, int from);
/* Can y be made so? Then queue it. */
bool exit_makes(const Corr *r, int from);
bool exit_forward(const Corr *r, const Source &x, const void *w,
                  const float *bias, float *y);
/* Could what is wanted of its gradients be made so? dy is wanted in no copy. */
bool exit_takes(const Corr *r, int from);
/* Parts (parts, 2, channels) of sums over dx that it leaves. */
int exit_parts(const Corr *r, int from);
/* Bytes that it needs for the parts of dw and db. */
size_t exit_bytes(const Corr *r, int from);
/* Queue what is wanted: dx, dw and db, which is NULL where another call made
 * it. parts: exit_bytes. False with the reason. */
bool exit_back(const Corr *r, const Source &x, const void *w, const Result &dx,
               float *dw, float *db, void *parts);
#endif
