/* split_k.cuh -- the sum of split-K: blocks that compute slices of the k axis
 * leave f32 partial results, which a second launch adds. */
#ifndef SEG_CUDA_CONV_SPLIT_K_H
#define SEG_CUDA_CONV_SPLIT_K_H
#include "cuda/conv/conv.cuh"

/* Queues to (+)= the sum of `count` partial results, in their order, + bias
 * (NULL: none). parts: (count, rows, channels) of a result of extents s, whose
 * channels are a multiple of 8. False with the reason. */
bool split_k_sum(const Call *c, const float *parts, int count, Dims s,
                 const float *bias, const Result &to);
#endif
