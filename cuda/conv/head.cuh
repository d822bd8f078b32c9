/* head.cuh -- a 1x1 convolution with few output channels, as in the last layer
 * of a U-Net; see head.cu. */
#ifndef SEG_CUDA_CONV_HEAD_H
#define SEG_CUDA_CONV_HEAD_H
#include "cuda/conv/conv.cuh"

enum {
    CONV_HEAD_COUT = 8,  // output channels, at most
    CONV_HEAD_CIN = 256, // input channels, at most: 8 a lane of a warp
};

/* Returns whether the kernels take this call of conv or linear. Depends on
 * extents, attributes and precision. They apply a deferred norm to x on load,
 * and read dy in its stored type. */
bool conv_head_takes(const ConvProblem *r);
/* Queues y = fprop(x, w) + bias. False with the reason, here and below. */
bool conv_head_fprop(const ConvProblem *r, const Operand &x, const void *w);
/* Queues the gradients that the call needs, dx with its gradient sums if the
 * call makes them. c->scratch: conv_head_bytes. */
bool conv_head_bwd(const ConvProblem *r, const Operand &x, const void *w);
size_t conv_head_bytes(const ConvProblem *r);
#endif
