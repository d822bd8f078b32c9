/* small_cin.cuh -- a convolution of 5 to 15 channels, as at the beginning of a
 * 3-D network; see small_cin.cu. */
#ifndef SEG_CUDA_CONV_SMALL_CIN_H
#define SEG_CUDA_CONV_SMALL_CIN_H
#include "cuda/conv/conv.cuh"

enum {
    GATEWAY_LEAST = 5,     // channels; fewer are for first.cu
    GATEWAY_CHANNELS = 16, // that a position is filled up to
};

/* Is this call of conv one, forward? Its operand may be in two parts of any
 * channels, and is seen through no lens. Follows from extents, attributes and
 * precision. */
bool gateway_takes(const Corr *r);
/* Parts of sums of y that gateway_forward makes: channel_sums.cuh. */
int gateway_parts(const Corr *r);
/* Bytes of room that it takes. */
size_t gateway_bytes(const Corr *r);
/* y, queued. False with the reason. */
bool gateway_forward(const Corr *r, const Source &x, const void *w,
                     const float *bias, const Target &y, const Sums &sums,
                     void *room);
#endif
