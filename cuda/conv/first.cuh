/* first.cuh -- a convolution of few channels, as at the beginning of a
 * U-Net; see first.cu. */
#ifndef SEG_CUDA_CONV_FIRST_H
#define SEG_CUDA_CONV_FIRST_H
#include "cuda/conv/conv.cuh"

enum {
    ENTRANCE_CHANNELS = 4, // at most
    ENTRANCE_DEPTH = 64,   // taps times channels
    ENTRANCE_FILTERS = 64,
};

/* Is this call of conv one, forward? Follows from extents, attributes and
 * precision; its operand is read as it stands. */
bool entrance_takes(const Corr *r);
/* Parts of sums of y that entrance_forward makes: channel_sums.cuh. */
int entrance_parts(const Corr *r);
/* y, queued. False with the reason. */
bool entrance_forward(const Corr *r, const void *w, const float *bias,
                      const Sums &sums);
#endif
