/* conv_loops.h -- the correlation that conv, upconv and linear share.
 *
 * Two tensors look at each other through a window: an `image` and a `grid`
 * whose position p sees the image at p*s - lo + k*dil for each tap k. With
 * weights w (B, kd,kh,kw, A/groups), A and B the channels of image and grid,
 * there are three products, each linear in two of {image, grid, w}:
 *
 *     gather   grid[n,p,b]   = sum_{k,a}   image[n,q,a] w[b,k,a]
 *     spread   image[n,q,a]  = sum_{p,k,b} grid[n,p,b]  w[b,k,a]
 *     weights  w[b,k,a]      = sum_{n,p}   image[n,q,a] grid[n,p,b]
 *
 * with q = p*s - lo + k*dil inside the image and a, b of one group. They are
 * the forward run and the two gradients of conv; of upconv, whose operand is
 * the grid, too, in another order. Padding after the image is never looked
 * at: the extents of the grid already say how far it reaches, which is why
 * the negative padding of upconv (more result than the window reaches) needs
 * no case of its own. */
#ifndef SEG_CPU_REF_CONV_LOOPS_H
#define SEG_CPU_REF_CONV_LOOPS_H
#include "cpu/lib/plain.h"

typedef struct ConvProblem {
    const Call *c; /* for its pool */
    Window win;
    Dims image, grid;
    int32_t a, b; /* channels of one group of the image and of the grid */
} ConvProblem;

/* Extents are those that the rule for shapes has checked. */
static inline ConvProblem corr_make(const Call *c, Window win, Dims image,
                                    Dims grid)
{
    return (ConvProblem){.c = c,
                         .win = win,
                         .image = image,
                         .grid = grid,
                         .a = image.c / win.groups,
                         .b = grid.c / win.groups};
}

// functions of two files: each number type has its own
#define conv_fprop     KERNEL(conv_fprop)
#define conv_dgrad     KERNEL(conv_dgrad)
#define conv_wgrad     KERNEL(conv_wgrad)
#define conv_bias_grad KERNEL(conv_bias_grad)

/* The products, stored when `fresh`, else added to what is there; bias, of
 * the channels of the result, may be NULL. */
void conv_fprop(const ConvProblem *r, const real *image, const real *w,
                const real *bias, real *grid, bool fresh);
void conv_dgrad(const ConvProblem *r, const real *grid, const real *w,
                const real *bias, real *image, bool fresh);
void conv_wgrad(const ConvProblem *r, const real *image, const real *grid,
                real *w, bool fresh);

/* db[c] = sum over rows of dy (rows, c); scratch: conv_bias_grad_bytes. */
void conv_bias_grad(const Call *c, Dims s, const real *dy, real *db,
                    bool fresh);
static inline size_t conv_bias_grad_bytes(Dims s)
{
    return sum_bytes(1, rows(s), s.c);
}
#endif
