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

/* y[k] = or += x[k stride] for k < count; stride 1 is a loop of vectors. */
static void write_run(real *y, const real *x, int64_t stride, int64_t count,
                      bool fresh)
{
    if (stride == 1)
        for (int64_t k = 0; k < count; k++) put(y + k, x[k], fresh);
    else
        for (int64_t k = 0; k < count; k++) put(y + k, x[k * stride], fresh);
}

/* A row of channels, in runs that end where the axis that is read ends. */
static void write_row(const Job *j, const real *x, real *y, int64_t channels)
{
    const SourceAxis *ch = &j->r.axis[3];
    const int64_t stride = ch->sign * ch->step;
    int64_t i = ch->start, count;
    for (int64_t k = 0; k < channels; k += count) {
        count = least(channels - k, ch->sign > 0 ? ch->extent - i : i + 1);
        const real *at = x + i * ch->step;
        if (j->r.copies == 1) write_run(y + k, at, stride, count, j->fresh);
        for (int64_t q = 0; j->r.copies > 1 && q < count; q++)
            put(y + k + q, copies(&j->r, at + q * stride), j->fresh);
        i = ch->sign > 0 ? 0 : ch->extent - 1;
    }
}

static void write_rows(void *ctx, int64_t from, int64_t to)
{
    const Job *j = ctx;
    const SourceAxis *a = j->r.axis;
    const Dims s = j->to->dim;
    for (int64_t row = from; row < to; row++) {
        const Place p = place(s, row);
        const real *x = j->from + p.n * j->r.sample + source_at(&a[0], p.d) +
                        source_at(&a[1], p.h) + source_at(&a[2], p.w);
        write_row(j, x, values(j->to) + row * s.c, s.c);
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
