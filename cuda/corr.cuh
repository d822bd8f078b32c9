/* corr.cuh -- the correlation that conv, upconv and linear share.
 *
 * An `image` and a `grid` look at each other through a window: position p of
 * the grid sees image position p*s - lo + k*dil through tap k. With weights
 * w (B,kd,kh,kw,A), A and B the channels of one group of image and grid:
 *
 *     gather   grid[n,p,b]  = sum_{k,a}   image[n,q,a] w[b,k,a]
 *     spread   image[n,q,a] = sum_{p,k,b} grid[n,p,b]  w[b,k,a]
 *     weights  w[b,k,a]     = sum_{n,p}   image[n,q,a] grid[n,p,b]
 *
 * The forward run and the two gradients of conv; of upconv, whose operand is
 * the grid, in another order. cpu/ref/corr.h has the same three as loops. */
#ifndef SEG_CORR_CUH
#define SEG_CORR_CUH
#include "kernel.cuh"

struct Corr {
    const Call *c;
    Window win;
    Dims image, grid;
    int a, b; /* channels of one group of the image and of the grid */
};

static inline Corr corr_of(const Call *c, Window win, Dims image, Dims grid)
{
    return {c, win, image, grid, image.c / win.groups, grid.c / win.groups};
}

/* Stored when `fresh`, else added; bias, of the channels of the result, may
 * be NULL. False with the reason. */
bool corr_gather(const Corr *r, const float *image, const float *w,
                 const float *bias, float *grid, bool fresh);
bool corr_spread(const Corr *r, const float *grid, const float *w,
                 const float *bias, float *image, bool fresh);
/* scratch: corr_weights_bytes. */
bool corr_weights(const Corr *r, const float *image, const float *grid,
                  float *w, bool fresh, void *scratch);
size_t corr_weights_bytes(const Corr *r);
#endif
