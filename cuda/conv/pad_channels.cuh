/* pad_channels.cuh -- a copy of a first layer's input with more channels, the
 * last ones zero, so that wgrad loads 16 bytes at a time. */
#ifndef SEG_CUDA_CONV_PAD_CHANNELS_H
#define SEG_CUDA_CONV_PAD_CHANNELS_H
#include "cuda/conv/conv.cuh"

/* Queues the copy of the problem's input, one tensor or two, to rows of
 * `channels`, 8 or 16. False with the reason. */
bool pad_channels(const ConvProblem *r, const Source &input, int channels,
                  void *to);
#endif
