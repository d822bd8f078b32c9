/* first.cuh -- fprop of a convolution with 1 to 4 input channels, as in the
 * first layer of a U-Net; see first.cu. */
#ifndef SEG_CUDA_CONV_FIRST_H
#define SEG_CUDA_CONV_FIRST_H
#include "cuda/conv/conv.cuh"

enum {
    CONV_FIRST_CIN = 4,     // input channels, at most
    CONV_FIRST_GEMM_K = 64, // taps times input channels, at most
    CONV_FIRST_FILTERS = 64,
};

/* Returns whether the kernel takes this call of conv, forward. Depends on
 * extents, attributes and precision. x is read in its stored type, without a
 * 16-bit copy. */
bool conv_first_takes(const ConvProblem *r);
/* Partial sums over y that conv_first_fprop writes: channel_sums.cuh. */
int conv_first_sum_parts(const ConvProblem *r);
/* Queues y = fprop(x, w) + bias. False with the reason. */
bool conv_first_fprop(const ConvProblem *r, const void *w, const float *bias,
                      const ChannelSums &sums);
#endif
