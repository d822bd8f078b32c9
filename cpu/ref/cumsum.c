/* cumsum.c -- running sums along an axis. The gradient of x[i] is the sum of dy
 * over all results that contain it: the running sum from the other end. */
#include "cpu/lib/plain.h"
#include "engine/graph/rearrange.h"

enum { BLOCK = 64 }; // adjacent sums of a task

typedef struct Job {
    const real *from;
    const Tensor *to;
    int64_t extent, step; // of the axis
    bool reverse, fresh;
} Job;

/* An item is up to BLOCK adjacent lines along the axis. */
static void sum_items(void *ctx, int64_t from, int64_t to)
{
    const Job *j = ctx;
    const int64_t blocks = ceil_div(j->step, BLOCK);
    for (int64_t item = from; item < to; item++) {
        double sum[BLOCK] = {0};
        const int64_t first = item % blocks * BLOCK;
        const int64_t base = item / blocks * j->extent * j->step + first;
        const int64_t count = least(BLOCK, j->step - first);
        for (int64_t k = 0; k < j->extent; k++) {
            const int64_t at =
                base + (j->reverse ? j->extent - 1 - k : k) * j->step;
            const real *x = j->from + at;
            real *y = values(j->to) + at;
            for (int64_t i = 0; i < count; i++)
                put(y + i, sum[i] += x[i], j->fresh);
        }
    }
}

static bool run(const Call *c, const Tensor *from, const Tensor *to, bool back)
{
    if (!to) return true;
    const Dims s = to->dim;
    const int axis = c->attr->cumsum.axis;
    Job j = {.from = values(from),
             .to = to,
             .extent = dims_axis(s, axis),
             .step = dims_step(s, axis),
             .reverse = c->attr->cumsum.reverse != back,
             .fresh = !back || is_fresh(c, 0)};
    const int64_t lines = numel(s) / j.extent / j.step;
    range_run(c, lines * ceil_div(j.step, BLOCK),
              j.extent * least(BLOCK, j.step), sum_items, &j);
    return true;
}

bool KERNEL(cumsum_fwd)(const Call *c)
{
    return run(c, c->x[0], c->y, false);
}

bool KERNEL(cumsum_bwd)(const Call *c)
{
    return run(c, c->dy, c->dx[0], true);
}
