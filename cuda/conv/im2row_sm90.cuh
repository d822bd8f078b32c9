/* im2row_sm90.cuh -- fprop of a convolution with few input channels on Hopper
 * GPUs, as in a first layer; see im2row_sm90.cu. */
#ifndef SEG_CUDA_CONV_IM2ROW_SM90_H
#define SEG_CUDA_CONV_IM2ROW_SM90_H
#include "cuda/conv/igemm_sm90.cuh"

/* The choice for a call of conv, forward. The operand may be an implicit concat
 * of any channels, without a deferred norm. Depends on extents, attributes,
 * precision and GPU. */
IgemmSm90Fit im2row_sm90_fit(const ConvProblem *r);
/* Queues y = fprop(x, w) + bias, with the partial sums of `to`. workspace: of
 * the fit, aligned to 256 bytes. False with the reason. */
bool im2row_sm90_run(const ConvProblem *r, const Source &x, const void *w,
                     const float *bias, const Result &to, void *workspace);
#endif
