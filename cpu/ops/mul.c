/* mul.c -- y = a * b, fast for equal extents; the plain loops broadcast.
 *
 * Bound by memory: two loads and a store an element forward; backward each
 * gradient is dy times the other operand. The bits are those of the plain
 * loops, because a product of two floats is exact in double. */
#include "cpu/lib/blocks.h"
#include "cpu/lib/kernels.h"
#include "cpu/lib/simd.h"

/* Neither operand is broadcast. */
static bool is_fast(const Call *c)
{
    const Dims s = c->y->dim;
    return dims_equal(c->x[0]->dim, s) && dims_equal(c->x[1]->dim, s);
}

/* BlockFn of the forward run. */
static void value(const Call *c, int64_t from, int64_t count)
{
    simd()->mul2(floats(c->x[0], from), floats(c->x[1], from), count,
                 floats(c->y, from), false);
}

/* One operand after the other: both gradients may be the same memory. */
static void grad(const Call *c, int64_t from, int64_t count)
{
    for (int i = 0; i < 2; i++)
        if (c->dx[i])
            simd()->mul2(floats(c->dy, from), floats(c->x[1 - i], from), count,
                         floats(c->dx[i], from), !(c->fresh >> i & 1));
}

bool cpu_mul_fwd(const Call *c)
{
    if (!is_fast(c)) return plain_mul_fwd(c);
    blocks_run(c, numel(c->y->dim), value);
    return true;
}

bool cpu_mul_bwd(const Call *c)
{
    if (!is_fast(c)) return plain_mul_bwd(c);
    blocks_run(c, numel(c->dy->dim), grad);
    return true;
}
