/* relu.c -- y = max(x, 0), fast; NaN passes. */
#include "blocks.h"
#include "kernels.h"
#include "simd.h"

static void value(const Call *c, int64_t from, int64_t count)
{
    simd()->relu(floats(c->x[0], from), count, floats(c->y, from));
}

static void slope(const Call *c, int64_t from, int64_t count)
{
    simd()->relu_slope(floats(c->dy, from), floats(c->y, from), count,
                       floats(c->dx[0], from), !(c->fresh & 1));
}

bool cpu_relu_fwd(const Call *c)
{
    blocks_run(c, numel(c->y->dim), value);
    return true;
}

bool cpu_relu_bwd(const Call *c)
{
    if (c->dx[0]) blocks_run(c, numel(c->dy->dim), slope);
    return true;
}
