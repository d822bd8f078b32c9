/* flatten.c -- a sample in user order, (C,D,H,W), as one axis of channels: y[n,
 * c P + p] = x[n, p, c] with P positions, so that weights of a layer after
 * PyTorch's flatten fit. One item is one channel of one sample.
 *
 * It is the only operator with a result in user order instead of memory order.
 * With one position or one channel both orders are the same. */
#include "cpu/lib/plain.h"

/* Forward: y is written in order, x read with a stride of C. */
static void gather(void *ctx, int64_t from, int64_t to)
{
    const Call *c = ctx;
    Dims s = c->x[0]->dim;
    int64_t count = positions(s);
    for (int64_t item = from; item < to; item++) {
        const real *x = values(c->x[0]) + item / s.c * count * s.c + item % s.c;
        real *y = values(c->y) + item * count;
        for (int64_t p = 0; p < count; p++) y[p] = x[p * s.c];
    }
}

bool KERNEL(flatten_fwd)(const Call *c)
{
    Dims s = c->x[0]->dim;
    range_run(c, (int64_t)s.n * s.c, positions(s), gather, (void *)c);
    return true;
}

/* Backward: a permutation, so each dx gets one dy. */
static void scatter(void *ctx, int64_t from, int64_t to)
{
    const Call *c = ctx;
    Dims s = c->dx[0]->dim;
    int64_t count = positions(s);
    bool fresh = is_fresh(c, 0);
    for (int64_t item = from; item < to; item++) {
        real *dx = values(c->dx[0]) + item / s.c * count * s.c + item % s.c;
        const real *dy = values(c->dy) + item * count;
        for (int64_t p = 0; p < count; p++) put(dx + p * s.c, dy[p], fresh);
    }
}

bool KERNEL(flatten_bwd)(const Call *c)
{
    if (!c->dx[0]) return true;
    Dims s = c->dx[0]->dim;
    range_run(c, (int64_t)s.n * s.c, positions(s), scatter, (void *)c);
    return true;
}
