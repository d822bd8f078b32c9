/* small_cin.cuh -- fprop of a convolution with 5 to 15 input channels, as in
 * the first layer of a 3-D network; see small_cin.cu. */
#ifndef SEG_CUDA_CONV_SMALL_CIN_H
#define SEG_CUDA_CONV_SMALL_CIN_H
#include "cuda/conv/conv.cuh"

enum {
    SMALL_CIN_MIN = 5,  // input channels; fewer are for first.cu
    SMALL_CIN_MAX = 16, // to which a position is padded
};

/* Returns whether the kernel takes this call of conv, forward. The operand may
 * be an implicit concat of any channels, without a deferred norm. Depends on
 * extents, attributes and precision. */
bool small_cin_takes(const ConvProblem *r);
/* Partial sums over y that small_cin_fprop writes: channel_sums.cuh. */
int small_cin_sum_parts(const ConvProblem *r);
/* Bytes of workspace, for the repacked filter. */
size_t small_cin_bytes(const ConvProblem *r);
/* Queues y = fprop(x, w) + bias. False with the reason. */
bool small_cin_fprop(const ConvProblem *r, const Source &x, const void *w,
                     const float *bias, const Target &y,
                     const ChannelSums &sums, void *workspace);
#endif
