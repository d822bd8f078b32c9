/* reshape.c -- the elements of a sample with other extents; flatten, with one
 * axis of channels alone.
 *
 * Element u of a sample in user order (c d h w), at channel u / P and position
 * u % P of P positions, stays element u, so that weights of a layer after
 * PyTorch's view or flatten fit. In memory the channels are last, so elements
 * move unless the channels, or both orders, are the same. */
#include "cpu/lib/plain.h"

typedef struct Job {
    const Tensor *from, *to;
    bool fresh;
} Job;

/* Is the order in memory user order? */
static bool is_user_order(Dims s)
{
    return s.c == 1 || positions(s) == 1;
}

static void copy_range(void *ctx, int64_t from, int64_t to)
{
    const Job *j = ctx;
    const real *x = values(j->from);
    real *y = values(j->to);
    for (int64_t i = from; i < to; i++) put(y + i, x[i], j->fresh);
}

/* An item is one channel of one sample of `from`: y is written in order, x read
 * with a stride of C. */
static void to_user_order(void *ctx, int64_t from, int64_t to)
{
    const Job *j = ctx;
    const Dims s = j->from->dim;
    const int64_t count = positions(s);
    for (int64_t item = from; item < to; item++) {
        const real *x = values(j->from) + item / s.c * count * s.c + item % s.c;
        real *y = values(j->to) + item * count;
        for (int64_t p = 0; p < count; p++) put(y + p, x[p * s.c], j->fresh);
    }
}

/* An item is one channel of one sample of `to`. */
static void from_user_order(void *ctx, int64_t from, int64_t to)
{
    const Job *j = ctx;
    const Dims s = j->to->dim;
    const int64_t count = positions(s);
    for (int64_t item = from; item < to; item++) {
        const real *x = values(j->from) + item * count;
        real *y = values(j->to) + item / s.c * count * s.c + item % s.c;
        for (int64_t p = 0; p < count; p++) put(y + p * s.c, x[p], j->fresh);
    }
}

/* Neither is in user order: rows of `to`, each element from its place. */
static void write_rows(void *ctx, int64_t from, int64_t to)
{
    const Job *j = ctx;
    const Dims s = j->to->dim, t = j->from->dim;
    const int64_t own = positions(s), other = positions(t);
    for (int64_t row = from; row < to; row++) {
        const real *x = values(j->from) + row / own * own * s.c;
        real *y = values(j->to) + row * s.c;
        for (int64_t k = 0; k < s.c; k++) {
            const int64_t u = k * own + row % own;
            put(y + k, x[u % other * t.c + u / other], j->fresh);
        }
    }
}

/* to = from, or to += from; last: in the order of memory. `to` is NULL for a
 * gradient that is not wanted. */
static bool run(const Call *c, const Tensor *from, const Tensor *to, bool fresh,
                bool last)
{
    if (!to) return true;
    Job j = {from, to, fresh};
    const Dims s = to->dim, t = from->dim;
    if (last || s.c == t.c || (is_user_order(s) && is_user_order(t)))
        range_run(c, numel(s), 1, copy_range, &j);
    else if (is_user_order(s))
        range_run(c, (int64_t)t.n * t.c, positions(t), to_user_order, &j);
    else if (is_user_order(t))
        range_run(c, (int64_t)s.n * s.c, positions(s), from_user_order, &j);
    else
        range_run(c, rows(s), 4 * (int64_t)s.c, write_rows, &j);
    return true;
}

bool KERNEL(reshape_fwd)(const Call *c)
{
    return run(c, c->x[0], c->y, true, c->attr->reshape.channels_last);
}

bool KERNEL(reshape_bwd)(const Call *c)
{
    return run(c, c->dy, c->dx[0], is_fresh(c, 0),
               c->attr->reshape.channels_last);
}

bool KERNEL(flatten_fwd)(const Call *c)
{
    return run(c, c->x[0], c->y, true, false);
}

bool KERNEL(flatten_bwd)(const Call *c)
{
    return run(c, c->dy, c->dx[0], is_fresh(c, 0), false);
}
