/* conv_loops.h -- fprop, dgrad and wgrad as loops, for conv, upconv and linear.
 *
 * An `image` and a `grid` are related through a window: position p of the grid
 * reads the image at p*s - lo + k*dil for each tap k. With weights w (B,
 * kd,kh,kw, A/groups), A and B the channels of image and grid, there are three
 * passes, each linear in two of {image, grid, w}:
 *
 *     fprop   grid[n,p,b]   = sum_{k,a}   image[n,q,a] w[b,k,a]
 *     dgrad   image[n,q,a]  = sum_{p,k,b} grid[n,p,b]  w[b,k,a]
 *     wgrad   w[b,k,a]      = sum_{n,p}   image[n,q,a] grid[n,p,b]
 *
 * with q = p*s - lo + k*dil inside the image and a, b of one group. These are
 * the forward run and the two gradients of conv. The operand of upconv is the
 * grid, so its forward run is dgrad and its gradient in x fprop. Padding after
 * the image is never read: the extents of the grid already say how far it
 * reaches, so the negative padding of upconv (more result than the window
 * reaches) needs no case of its own. */
#ifndef SEG_CPU_REF_CONV_LOOPS_H
#define SEG_CPU_REF_CONV_LOOPS_H
#include "cpu/lib/plain.h"

typedef struct ConvProblem {
    const Call *c; /* for its pool */
    Window win;
    Dims image, grid;
    int32_t a, b; /* channels of one group of the image and of the grid */
} ConvProblem;

/* The problem of a call; shape rules have checked the extents. */
static inline ConvProblem conv_problem_of(const Call *c, Window win, Dims image,
                                          Dims grid)
{
    return (ConvProblem){.c = c,
                         .win = win,
                         .image = image,
                         .grid = grid,
                         .a = image.c / win.groups,
                         .b = grid.c / win.groups};
}

// the functions exist once for each `real`
#define conv_fprop     KERNEL(conv_fprop)
#define conv_dgrad     KERNEL(conv_dgrad)
#define conv_wgrad     KERNEL(conv_wgrad)
#define conv_bias_grad KERNEL(conv_bias_grad)

/* The three passes: stored if `fresh`, else added. bias, one value for each
 * channel of the result, may be NULL. */
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
