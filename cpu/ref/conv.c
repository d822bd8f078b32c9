/* conv.c -- y[n,p,co] = b[co] + sum_{k,ci} x[n,q,ci] w[co,k,ci]
 *
 * with q = p*s - p0 + k*dil inside the image: the operand is the image of
 * conv_loops.h, the result its grid. linear uses it with a window of one. */
#include "cpu/ref/conv_loops.h"

static ConvProblem conv_problem(const Call *c)
{
    return conv_problem_of(c, op_window(c->attr, c->x[1]), c->x[0]->dim,
                           c->y->dim);
}

/* Scratch is for the gradient of the bias only; each other sum belongs to one
 * task. */
Space KERNEL(conv_space)(const Call *c)
{
    return (Space){.bwd = c->dx[2] ? conv_bias_grad_bytes(c->y->dim) : 0};
}

bool KERNEL(conv_fwd)(const Call *c)
{
    ConvProblem r = conv_problem(c);
    conv_fprop(&r, values(c->x[0]), values(c->x[1]), values(c->x[2]),
               values(c->y), true);
    return true;
}

/* dgrad, wgrad and the gradient of the bias. */
bool KERNEL(conv_bwd)(const Call *c)
{
    ConvProblem r = conv_problem(c);
    const real *x = values(c->x[0]), *w = values(c->x[1]), *dy = values(c->dy);
    if (c->dx[0]) conv_dgrad(&r, dy, w, NULL, values(c->dx[0]), is_fresh(c, 0));
    if (c->dx[1]) conv_wgrad(&r, x, dy, values(c->dx[1]), is_fresh(c, 1));
    if (c->dx[2])
        conv_bias_grad(c, c->y->dim, dy, values(c->dx[2]), is_fresh(c, 2));
    return true;
}
