/* relu.c -- y = max(x, 0), fast; NaN passes.
 *
 * Bound by memory: one load and one store an element forward, two loads
 * backward. The derivative is a function of y, not of x, so y may be x's memory
 * and the planner may drop x; dx may be dy's memory for the same reason. */
#include "cpu/lib/blocks.h"
#include "cpu/lib/kernels.h"
#include "cpu/lib/simd.h"

/* BlockFn of the forward run. */
static void value(const Call *c, int64_t from, int64_t count)
{
    simd()->relu(floats(c->x[0], from), count, floats(c->y, from));
}

/* BlockFn of the backward run: dx = dy where y > 0 or NaN, else 0. */
static void grad(const Call *c, int64_t from, int64_t count)
{
    simd()->relu_grad(floats(c->dy, from), floats(c->y, from), count,
                      floats(c->dx[0], from), !(c->fresh & 1));
}

bool cpu_relu_fwd(const Call *c)
{
    blocks_run(c, numel(c->y->dim), value);
    return true;
}

bool cpu_relu_bwd(const Call *c)
{
    if (c->dx[0]) blocks_run(c, numel(c->dy->dim), grad);
    return true;
}
