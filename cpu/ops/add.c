/* add.c -- y = a + b, fast for equal extents; the plain loops broadcast.
 *
 * Bound by memory: two loads and a store an element forward.
 *
 * The operands of a residual connection have equal extents, so its add never
 * broadcasts. The backward run of add copies dy to each wanted gradient, or
 * adds it. A fused relu finds the sum in a near cache; its backward run takes
 * the derivative from y. */
#include "cpu/lib/blocks.h"
#include "cpu/lib/kernels.h"
#include "cpu/lib/simd.h"

/* BlockFn of the forward run. */
static void add_value(const Call *c, int64_t from, int64_t count)
{
    float *y = floats(c->y, from);
    simd()->sum2(floats(c->x[0], from), floats(c->x[1], from), count, y);
    if (c->act) simd()->relu(y, count, y);
}

/* One operand after the other: both gradients may be the same memory. */
static void add_grad(const Call *c, int64_t from, int64_t count)
{
    const float *dy = floats(c->dy, from);
    for (int i = 0; i < 2; i++) {
        if (!c->dx[i]) continue;
        float *dx = floats(c->dx[i], from);
        bool add = !(c->fresh >> i & 1);
        if (c->act)
            simd()->relu_grad(dy, floats(c->y, from), count, dx, add);
        else
            simd()->copy(dy, count, dx, add);
    }
}

bool cpu_add_fwd(const Call *c)
{
    Dims s = c->y->dim;
    if (!dims_equal(c->x[0]->dim, s) || !dims_equal(c->x[1]->dim, s))
        return plain_add_fwd(c);
    blocks_run(c, numel(s), add_value);
    return true;
}

bool cpu_add_bwd(const Call *c)
{
    Dims s = c->dy->dim;
    for (int i = 0; i < 2; i++)
        if (c->dx[i] && !dims_equal(c->dx[i]->dim, s)) return plain_add_bwd(c);
    blocks_run(c, numel(s), add_grad);
    return true;
}
