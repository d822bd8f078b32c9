/* first.cuh -- a convolution of few channels, as at the beginning of a
 * U-Net; see first.cu. */
#ifndef SEG_CUDA_CONV_FIRST_H
#define SEG_CUDA_CONV_FIRST_H
#include "cuda/conv/conv.cuh"

enum {
    CONV_FIRST_CIN = 4,    // at most
    CONV_FIRST_DEPTH = 64, // taps times channels
    CONV_FIRST_FILTERS = 64,
};

/* Is this call of conv one, forward? Follows from extents, attributes and
 * precision; its operand is read as it stands. */
bool conv_first_takes(const ConvProblem *r);
/* Parts of sums of y that conv_first_fprop makes: channel_sums.cuh. */
int conv_first_sum_parts(const ConvProblem *r);
/* y, queued. False with the reason. */
bool conv_first_fprop(const ConvProblem *r, const void *w, const float *bias,
                      const ChannelSums &sums);
#endif
