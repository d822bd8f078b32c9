/* small_cin.cuh -- a convolution of 5 to 15 channels, as at the beginning of a
 * 3-D network; see small_cin.cu. */
#ifndef SEG_CUDA_CONV_SMALL_CIN_H
#define SEG_CUDA_CONV_SMALL_CIN_H
#include "cuda/conv/conv.cuh"

enum {
    SMALL_CIN_MIN = 5,  // channels; fewer are for first.cu
    SMALL_CIN_MAX = 16, // that a position is filled up to
};

/* Is this call of conv one, forward? Its operand may be in two parts of any
 * channels, and is seen through no lens. Follows from extents, attributes and
 * precision. */
bool small_cin_takes(const ConvProblem *r);
/* Parts of sums of y that small_cin_fprop makes: channel_sums.cuh. */
int small_cin_sum_parts(const ConvProblem *r);
/* Bytes of room that it takes. */
size_t small_cin_bytes(const ConvProblem *r);
/* y, queued. False with the reason. */
bool small_cin_fprop(const ConvProblem *r, const Source &x, const void *w,
                     const float *bias, const Target &y,
                     const ChannelSums &sums, void *workspace);
#endif
