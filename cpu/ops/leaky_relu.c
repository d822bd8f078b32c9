/* leaky_relu.c -- y = x, or slope * x where x <= 0, fast; NaN passes.
 *
 * Bound by memory, as relu.c. The slope is above 0, so y has the sign of x: y
 * may be x's memory, and dx may be dy's. */
#include "cpu/lib/blocks.h"
#include "cpu/lib/kernels.h"
#include "cpu/lib/simd.h"

/* BlockFn of the forward run. */
static void value(const Call *c, int64_t from, int64_t count)
{
    simd()->leaky_relu(floats(c->x[0], from), count, c->attr->leaky_relu.slope,
                       floats(c->y, from));
}

/* BlockFn of the backward run: dx = dy where y > 0 or NaN, else slope * dy. */
static void grad(const Call *c, int64_t from, int64_t count)
{
    simd()->leaky_grad(floats(c->dy, from), floats(c->y, from), count,
                       c->attr->leaky_relu.slope, floats(c->dx[0], from),
                       !(c->fresh & 1));
}

bool cpu_leaky_relu_fwd(const Call *c)
{
    blocks_run(c, numel(c->y->dim), value);
    return true;
}

bool cpu_leaky_relu_bwd(const Call *c)
{
    if (c->dx[0]) blocks_run(c, numel(c->dy->dim), grad);
    return true;
}
