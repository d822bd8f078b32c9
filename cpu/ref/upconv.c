/* upconv.c -- y[n, p*s - p0 + k*dil, co] += x[n,p,ci] w[ci,k,co], plus b[co]
 *
 * The transpose of conv: the operand is the grid of conv_loops.h and the result
 * its image, so each pass is one of conv's with roles exchanged. */
#include "cpu/ref/conv_loops.h"

static ConvProblem conv_problem(const Call *c)
{
    return conv_problem_of(c, op_window(c->attr, c->x[1]), c->y->dim,
                           c->x[0]->dim);
}

/* Scratch is for the gradient of the bias only; each other sum belongs to one
 * task. */
Space KERNEL(upconv_space)(const Call *c)
{
    return (Space){.bwd = c->dx[2] ? conv_bias_grad_bytes(c->y->dim) : 0};
}

bool KERNEL(upconv_fwd)(const Call *c)
{
    ConvProblem r = conv_problem(c);
    conv_dgrad(&r, values(c->x[0]), values(c->x[1]), values(c->x[2]),
               values(c->y), true);
    return true;
}

/* dx is an fprop, wgrad exchanges x and dy. */
bool KERNEL(upconv_bwd)(const Call *c)
{
    ConvProblem r = conv_problem(c);
    const real *x = values(c->x[0]), *w = values(c->x[1]), *dy = values(c->dy);
    if (c->dx[0]) conv_fprop(&r, dy, w, NULL, values(c->dx[0]), is_fresh(c, 0));
    if (c->dx[1]) conv_wgrad(&r, dy, x, values(c->dx[1]), is_fresh(c, 1));
    if (c->dx[2])
        conv_bias_grad(c, c->y->dim, dy, values(c->dx[2]), is_fresh(c, 2));
    return true;
}
