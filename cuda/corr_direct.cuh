/* corr_direct.cuh -- gather and spread for groups of few channels, as in a
 * depthwise convolution: one thread a result, no tiles. See corr.cuh. */
#ifndef SEG_CORR_DIRECT_CUH
#define SEG_CORR_DIRECT_CUH
#include "corr.cuh"

/* Would most of a tile be empty? */
static inline bool corr_is_small(const Corr *r)
{
    return r->win.groups > 1 && r->a < 8 && r->b < 8;
}

bool corr_direct_gather(const Corr *r, const void *image, const void *w,
                        const float *bias, Target grid);
bool corr_direct_spread(const Corr *r, const void *grid, const void *w,
                        const float *bias, Target image);
#endif
