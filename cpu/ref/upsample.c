/* upsample.c -- more positions, from the nearest or between the two nearest.
 *
 * nearest: y[p] = x[floor(p / f)]. linear: along each axis result p looks at
 * the source coordinate (p + 1/2) / f - 1/2, clamped to the image, or with
 * `align` at p (X-1)/(Y-1), and mixes the positions on its two sides. The
 * backward runs gather: each operand position asks which results it had a
 * share in, so nothing is added to twice. Coordinates are computed in double
 * by the same function in both directions. */
#include "plain.h"

enum { BLOCK = 64 }; // channels summed at a time, on the stack

typedef struct Job {
    const Call *c;
    Dims x, y;    // extents of operand and result
    int64_t f[3]; // factors of d, h, w: y = x f
    bool linear, align;
} Job;

/* The two rows begin with the same three factors. */
static Job job_of(const Call *c)
{
    Job j = {.c = c, .x = c->x[0]->dim, .y = c->y->dim};
    for (int i = 0; i < 3; i++) j.f[i] = c->attr->word[1 + i];
    j.linear = call_op(c) == OP_upsample_linear;
    j.align = j.linear && c->attr->upsample_linear.align;
    return j;
}

/* The positions of one axis that a result is made of; weights add up to 1. */
typedef struct Mix {
    int64_t i[2];
    double w[2];
} Mix;

/* What result p of an axis is made of. The second index is clamped, where its
 * weight is 0 or the image ends. */
static Mix mix_at(const Job *j, int axis, int64_t p)
{
    int64_t size = (&j->x.d)[axis], count = (&j->y.d)[axis], f = j->f[axis];
    if (!j->linear) return (Mix){{p / f, p / f}, {1, 0}};
    double at = ((double)p + 0.5) / (double)f - 0.5;
    if (j->align)
        at = count > 1 ? (double)(p * (size - 1)) / (double)(count - 1) : 0;
    at = fmin(fmax(at, 0), (double)(size - 1));
    int64_t i = (int64_t)at;
    return (Mix){{i, least(i + 1, size - 1)},
                 {1 - (at - (double)i), at - (double)i}};
}

/* Share of operand position q in result p of an axis. */
static double share(const Job *j, int axis, int64_t p, int64_t q)
{
    Mix m = mix_at(j, axis, p);
    return (m.i[0] == q ? m.w[0] : 0) + (m.i[1] == q ? m.w[1] : 0);
}

/* Results from .. to-1 of an axis are all in which q can have a share: those
 * whose source coordinate is less than 1 away from q, rounded outwards;
 * share() has the last word. */
static void reach(const Job *j, int axis, int64_t q, int64_t *from, int64_t *to)
{
    int64_t size = (&j->x.d)[axis], count = (&j->y.d)[axis], f = j->f[axis];
    *from = q * f, *to = (q + 1) * f;
    if (j->linear) *from -= f, *to += f;
    if (j->align && size > 1) {
        *from = (q - 1) * (count - 1) / (size - 1);
        *to = (q + 1) * (count - 1) / (size - 1) + 2;
    }
    *from = most(0, *from), *to = least(count, *to);
}

/* Results (n,d,h,w). */
static void fwd_rows(void *ctx, int64_t from, int64_t to)
{
    const Job *j = ctx;
    for (int64_t row = from; row < to; row++) {
        Place p = place(j->y, row);
        Mix d = mix_at(j, 0, p.d), h = mix_at(j, 1, p.h), w = mix_at(j, 2, p.w);
        real *y = values(j->c->y) + row * j->y.c;
        for (int64_t c0 = 0; c0 < j->y.c; c0 += BLOCK) {
            int64_t nc = least(BLOCK, j->y.c - c0);
            double sum[BLOCK] = {0};
            // the corners of a cell; nearest has one of weight 1
            for (int k = 0; k < 8; k++) {
                int a = k >> 2, b = k >> 1 & 1, e = k & 1;
                double weight = d.w[a] * h.w[b] * w.w[e];
                // no share: not even of an infinity
                if (weight == 0) continue;
                axpy(sum, weight,
                     values(j->c->x[0]) +
                         at(j->x, p.n, d.i[a], h.i[b], w.i[e]) + c0,
                     nc);
            }
            for (int64_t c = 0; c < nc; c++) y[c0 + c] = (real)sum[c];
        }
    }
}

/* Sum of what channels c0 .. of operand position q gave to each result. */
static void given(const Job *j, Place q, int64_t c0, int64_t nc, double *sum)
{
    int64_t d0, d1, h0, h1, w0, w1;
    reach(j, 0, q.d, &d0, &d1);
    reach(j, 1, q.h, &h0, &h1);
    reach(j, 2, q.w, &w0, &w1);
    for (int64_t d = d0; d < d1; d++) {
        double wd = share(j, 0, d, q.d);
        for (int64_t h = h0; wd > 0 && h < h1; h++) {
            double wh = wd * share(j, 1, h, q.h);
            for (int64_t w = w0; wh > 0 && w < w1; w++) {
                double ww = wh * share(j, 2, w, q.w);
                if (ww > 0)
                    axpy(sum, ww,
                         values(j->c->dy) + at(j->y, q.n, d, h, w) + c0, nc);
            }
        }
    }
}

/* Operand elements (n,d,h,w). */
static void bwd_rows(void *ctx, int64_t from, int64_t to)
{
    const Job *j = ctx;
    for (int64_t row = from; row < to; row++) {
        Place q = place(j->x, row);
        real *dx = values(j->c->dx[0]) + row * j->x.c;
        for (int64_t c0 = 0; c0 < j->x.c; c0 += BLOCK) {
            int64_t nc = least(BLOCK, j->x.c - c0);
            double sum[BLOCK] = {0};
            given(j, q, c0, nc, sum);
            for (int64_t c = 0; c < nc; c++)
                put(&dx[c0 + c], sum[c], is_fresh(j->c, 0));
        }
    }
}

bool KERNEL(upsample_nearest_fwd)(const Call *c)
{
    Job j = job_of(c);
    range_run(c, rows(j.y), 8 * j.y.c, fwd_rows, &j);
    return true;
}

bool KERNEL(upsample_nearest_bwd)(const Call *c)
{
    Job j = job_of(c);
    if (c->dx[0])
        range_run(c, rows(j.x), 8 * j.f[0] * j.f[1] * j.f[2] * j.x.c, bwd_rows,
                  &j);
    return true;
}

bool KERNEL(upsample_linear_fwd)(const Call *c)
{
    return KERNEL(upsample_nearest_fwd)(c);
}

bool KERNEL(upsample_linear_bwd)(const Call *c)
{
    return KERNEL(upsample_nearest_bwd)(c);
}
