/* gather.c -- elements of fibres, chosen by index.
 *
 * Forward: a task copies CHUNK elements of a fibre. Backward: a task owns one
 * fibre of dx, or those of some neighbouring channels, and adds the elements of
 * dy in memory order, so the order of a sum does not depend on the number of
 * threads. Its sums are doubles in scratch memory. */
#include "cpu/ref/fibres.h"
#include "cpu/ref/view.h"

enum {
    CHUNK = 64,
    CHANNELS = 16,      // fibres of dx that a task adds up together ..
    SHORT_FIBRE = 4096, // .. if they are not longer
};

typedef struct Job {
    const Call *c;
    Fibres x, index, y;
    int64_t chunks; // forward: of a fibre of y
    int64_t width;  // backward: channels of a task
    double *sums;   // backward: of each thread, width fibres of x
} Job;

/* An index rounded to a whole number; -1 for NaN and outside the fibre. */
static int64_t number_of(real index, int64_t length)
{
    const double whole = rint((double)index);
    return whole >= 0 && whole < (double)length ? (int64_t)whole : -1;
}

static void copy_chunks(void *ctx, int64_t from, int64_t to)
{
    const Job *j = ctx;
    for (int64_t chunk = from; chunk < to; chunk++) {
        const int64_t fibre = chunk / j->chunks;
        const int64_t first = chunk % j->chunks * CHUNK;
        const Place p = place(j->y.own, fibre / j->y.own.c);
        const int64_t ch = fibre % j->y.own.c;
        const real *x = values(j->c->x[0]) + fibre_at(&j->x, p, ch);
        const real *index = values(j->c->x[1]) + fibre_at(&j->index, p, ch);
        real *y = values(j->c->y) + fibre_at(&j->y, p, ch);
        const int64_t end = least(first + CHUNK, j->y.length);
        for (int64_t k = first; k < end; k++) {
            const int64_t i =
                number_of(index[fibre_step(&j->index, k)], j->x.length);
            y[fibre_step(&j->y, k)] =
                i < 0 ? (real)NAN : x[fibre_step(&j->x, i)];
        }
    }
}

static Job job_of(const Call *c)
{
    Job j = {.c = c,
             .x = fibres_of(c->attr, c->x[0]->dim),
             .index = fibres_of(c->attr, c->x[1]->dim),
             .y = fibres_of(c->attr, c->y->dim)};
    j.chunks = ceil_div(j.y.length, CHUNK);
    j.width = j.x.length <= SHORT_FIBRE ? least(CHANNELS, j.x.own.c) : 1;
    return j;
}

bool KERNEL(gather_fwd)(const Call *c)
{
    Job j = job_of(c);
    range_run(c, j.y.count * j.chunks, 8 * CHUNK, copy_chunks, &j);
    return true;
}

/* Adds the fibres of dy at place q, channels from .. to-1, to sum (elements of
 * a fibre, width); `together`: all of them to one fibre. */
static void add_fibres(const Job *j, Place q, int64_t from, int64_t to,
                       bool together, int64_t width, double *sum)
{
    const real *dy = values(j->c->dy) + fibre_at(&j->y, q, 0);
    const real *index = values(j->c->x[1]) + fibre_at(&j->index, q, 0);
    const bool each = j->index.own.c > 1;
    for (int64_t k = 0; k < j->y.length; k++) {
        const real *g = dy + fibre_step(&j->y, k);
        const real *n = index + fibre_step(&j->index, k);
        for (int64_t ch = from; ch < to; ch++) {
            const int64_t i = number_of(n[each ? ch : 0], j->x.length);
            if (i >= 0) sum[i * width + (together ? 0 : ch - from)] += g[ch];
        }
    }
}

static void grad_task(void *ctx, int64_t task, int thread)
{
    const Job *j = ctx;
    const Dims own = j->x.own, all = j->y.own;
    const int64_t blocks = ceil_div(own.c, j->width);
    const int64_t first = task % blocks * j->width;
    const int64_t width = least(j->width, own.c - first);
    const bool together = own.c != all.c;
    double *sum = j->sums + thread * j->x.length * j->width;
    memset(sum, 0, (size_t)(j->x.length * width) * sizeof *sum);

    const Place p = place(own, task / blocks);
    const Span n = span(own.n, all.n, p.n), d = span(own.d, all.d, p.d);
    const Span h = span(own.h, all.h, p.h), w = span(own.w, all.w, p.w);
    for (int32_t in = n.from; in < n.to; in++)
        for (int32_t id = d.from; id < d.to; id++)
            for (int32_t ih = h.from; ih < h.to; ih++)
                for (int32_t iw = w.from; iw < w.to; iw++)
                    add_fibres(j, (Place){in, id, ih, iw}, together ? 0 : first,
                               together ? all.c : first + width, together,
                               width, sum);

    real *dx = values(j->c->dx[0]) + fibre_at(&j->x, p, first);
    for (int64_t k = 0; k < j->x.length; k++)
        for (int64_t i = 0; i < width; i++)
            put(dx + fibre_step(&j->x, k) + i, sum[k * width + i],
                is_fresh(j->c, 0));
}

Space KERNEL(gather_space)(const Call *c)
{
    const Job j = job_of(c);
    return (Space){.bwd = (size_t)(most(1, c->threads) * j.x.length * j.width) *
                          sizeof(double)};
}

bool KERNEL(gather_bwd)(const Call *c)
{
    Job j = job_of(c);
    if (!c->dx[0]) return true;
    j.sums = c->scratch;
    const int64_t blocks = ceil_div(j.x.own.c, j.width);
    pool_run(c->dev, j.x.count / j.x.own.c * blocks, grad_task, &j);
    return true;
}
