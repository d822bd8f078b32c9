/* reshape.c -- the elements of a sample with other extents.
 *
 * Element u of a sample in user order (c d h w), at channel u / P and position
 * u % P of P positions, stays element u. In memory the channels are last, so
 * the elements move unless the channels, or the orders, are the same. */
#include "cpu/lib/plain.h"

typedef struct Job {
    const Tensor *from, *to;
    bool fresh;
} Job;

/* Is the order in memory that of the elements of the sample? */
static bool is_flat(Dims s)
{
    return s.c == 1 || positions(s) == 1;
}

static void copy_range(void *ctx, int64_t from, int64_t to)
{
    const Job *j = ctx;
    for (int64_t i = from; i < to; i++)
        put(values(j->to) + i, values(j->from)[i], j->fresh);
}

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

static bool run(const Call *c, const Tensor *from, const Tensor *to, bool fresh)
{
    if (!to) return true;
    Job j = {from, to, fresh};
    const Dims s = to->dim, t = from->dim;
    if (c->attr->reshape.channels_last || s.c == t.c ||
        (is_flat(s) && is_flat(t)))
        range_run(c, numel(s), 1, copy_range, &j);
    else
        range_run(c, rows(s), 4 * (int64_t)s.c, write_rows, &j);
    return true;
}

bool KERNEL(reshape_fwd)(const Call *c)
{
    return run(c, c->x[0], c->y, true);
}

bool KERNEL(reshape_bwd)(const Call *c)
{
    return run(c, c->dy, c->dx[0], is_fresh(c, 0));
}
