/* head.cuh -- a convolution with a window of one that has few results, as at
 * the end of a U-Net; see head.cu. */
#ifndef SEG_CUDA_CONV_HEAD_H
#define SEG_CUDA_CONV_HEAD_H
#include "cuda/conv/conv.cuh"

enum {
    CONV_HEAD_COUT = 8,  // at most
    CONV_HEAD_CIN = 256, // a warp has 8 of each lane
};

/* Is this call of conv or linear one? Follows from extents, attributes and
 * precision; its operand is seen through a lens, and dy is wanted in no copy.
 */
bool conv_head_takes(const ConvProblem *r);
/* y, queued. False with the reason, here and below. */
bool conv_head_fprop(const ConvProblem *r, const Operand &x, const void *w);
/* Each gradient that is wanted, dx with its sums where it closes it;
 * c->scratch: conv_head_bytes. */
bool conv_head_bwd(const ConvProblem *r, const Operand &x, const void *w);
size_t conv_head_bytes(const ConvProblem *r);
#endif
