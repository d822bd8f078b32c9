/* direct.cuh -- gather, spread and weights for groups of few channels, as
 * in a depthwise convolution: no tiles, no tensor cores. See conv.cuh. */
#ifndef SEG_CUDA_CONV_DIRECT_H
#define SEG_CUDA_CONV_DIRECT_H
#include "cuda/conv/conv.cuh"

/* Would most of a tile be empty? */
static inline bool corr_is_small(const Corr *r)
{
    return r->win.groups > 1 && r->a < 8 && r->b < 8;
}

bool corr_direct_gather(const Corr *r, const void *image, const void *w,
                        const float *bias, Target grid);
bool corr_direct_spread(const Corr *r, const void *grid, const void *w,
                        const float *bias, Target image);

/* As corr_weights and its like, of operands that nothing is seen through. */
size_t corr_direct_weights_bytes(const Corr *r);
int corr_direct_weights_squares(const Corr *r);
bool corr_direct_weights(const Corr *r, const void *image, const void *grid,
                         float *w, bool fresh, double *square, void *scratch);
#endif
