/* rearrange.c -- flip, roll, repeats and permute: see rearrange.h.
 *
 * A task writes rows of channels and reads elements wherever they are. */
#include "engine/graph/rearrange.h"
#include "cpu/lib/plain.h"

typedef struct Job {
    Rearrange r;
    const real *from;
    const Tensor *to;
    bool fresh;
} Job;

/* The sum of the copies that begin at x. */
static double copies(const Rearrange *r, const real *x)
{
    const SourceAxis *a = r->axis;
    double sum = 0;
    for (int32_t d = 0; d < a[0].times; d++)
        for (int32_t h = 0; h < a[1].times; h++)
            for (int32_t w = 0; w < a[2].times; w++)
                for (int32_t c = 0; c < a[3].times; c++)
                    sum += x[d * a[0].again + h * a[1].again + w * a[2].again +
                             c * a[3].again];
    return sum;
}

static void write_rows(void *ctx, int64_t from, int64_t to)
{
    const Job *j = ctx;
    const Rearrange *r = &j->r;
    const Dims s = j->to->dim;
    const SourceAxis ch = r->axis[3];

    for (int64_t row = from; row < to; row++) {
        const Place p = place(s, row);
        const real *x =
            j->from + p.n * r->sample + source_at(&r->axis[0], p.d) +
            source_at(&r->axis[1], p.h) + source_at(&r->axis[2], p.w);
        real *y = values(j->to) + row * s.c;
        int64_t i = ch.start;
        for (int64_t k = 0; k < s.c; k++) {
            const real *at = x + i * ch.step;
            put(y + k, r->copies > 1 ? copies(r, at) : (double)*at, j->fresh);
            i += ch.sign;
            if (i == ch.extent) i = 0;
        }
    }
}

/* Forward, or back: writes `to`, which is NULL for a gradient that is not
 * wanted. */
static bool run(const Call *c, const Tensor *from, const Tensor *to, bool back)
{
    if (!to) return true;
    Job j = {.r = rearrange_of(c->attr, from->dim, to->dim, back),
             .from = values(from),
             .to = to,
             .fresh = !back || is_fresh(c, 0)};
    range_run(c, rows(to->dim), to->dim.c * j.r.copies, write_rows, &j);
    return true;
}

#define ROW(name)                             \
    bool KERNEL(name##_fwd)(const Call *c)    \
    {                                         \
        return run(c, c->x[0], c->y, false);  \
    }                                         \
    bool KERNEL(name##_bwd)(const Call *c)    \
    {                                         \
        return run(c, c->dy, c->dx[0], true); \
    }
ROW(flip)
ROW(roll)
ROW(repeats)
ROW(permute)
