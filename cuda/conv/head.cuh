/* head.cuh -- a convolution with a window of one that has few results, as at
 * the end of a U-Net; see head.cu. */
#ifndef SEG_CUDA_CONV_HEAD_H
#define SEG_CUDA_CONV_HEAD_H
#include "cuda/conv/conv.cuh"

enum {
    FEW_RESULTS = 8,    // at most
    FEW_CHANNELS = 256, // a warp has 8 of each lane
};

/* Is this call of conv or linear one? Follows from extents, attributes and
 * precision; its operand is seen through a lens, and dy is wanted in no copy.
 */
bool few_takes(const Corr *r);
/* y, queued. False with the reason, here and below. */
bool few_forward(const Corr *r, const Operand &x, const void *w);
/* Each gradient that is wanted, dx with its sums where it closes it;
 * c->scratch: few_bytes. */
bool few_back(const Corr *r, const Operand &x, const void *w);
size_t few_bytes(const Corr *r);
#endif
