/* upconv_head.cuh -- an upconv of few results, as at the end of a generator;
 * see upconv_head_fwd.cu and upconv_head_bwd.cu. */
#ifndef SEG_CUDA_CONV_UPCONV_HEAD_H
#define SEG_CUDA_CONV_UPCONV_HEAD_H
#include "cuda/conv/conv.cuh"

enum {
    UPCONV_HEAD_COUT = 4,     // at most
    UPCONV_HEAD_COLUMNS = 64, // taps by results
    UPCONV_HEAD_CIN = 256,    // of the operand
};

/* Is this call one, but for what its window wants of shared memory? Follows
 * from extents, attributes and precision; the operand is in two tensors from
 * channel `from` on, 0: it is in one. */
bool upconv_head_narrow(const ConvProblem *r, int border);
/* Can y be made so? Then queue it. */
bool upconv_head_fprop_takes(const ConvProblem *r, int border);
bool upconv_head_fprop(const ConvProblem *r, const Source &x, const void *w,
                       const float *bias, float *y);
/* Could what is wanted of its gradients be made so? dy is wanted in no copy. */
bool upconv_head_takes(const ConvProblem *r, int border);
/* Parts (parts, 2, channels) of sums over dx that it leaves. */
int upconv_head_sum_parts(const ConvProblem *r, int border);
/* Bytes that it needs for the parts of dw and db. */
size_t upconv_head_bytes(const ConvProblem *r, int border);
/* Queue what is wanted: dx, dw and db, which is NULL where another call made
 * it. parts: upconv_head_bytes. False with the reason. */
bool upconv_head_bwd(const ConvProblem *r, const Source &x, const void *w,
                     const Result &dx, float *dw, float *db, void *parts);
#endif
