/* upsample.c -- nearest and linear upsampling.
 *
 * upsample_weights.h has the weights. The backward runs are gathers: each
 * operand position sums over the results that use it, so no two tasks add to
 * one element. */
#include "cpu/lib/plain.h"
#include "cpu/lib/upsample_weights.h"

enum { BLOCK = 64 }; // channels summed at a time, on the stack

typedef struct Job {
    const Call *c;
    Dims x, y;       // extents of operand and result
    MixAxis axis[3]; // d, h, w
} Job;

static Job job_of(const Call *c)
{
    Job j = {.c = c, .x = c->x[0]->dim, .y = c->y->dim};
    for (int i = 0; i < 3; i++) j.axis[i] = mix_axis(c, i, j.x, j.y);
    return j;
}

/* Results (n,d,h,w). */
static void fwd_rows(void *ctx, int64_t from, int64_t to)
{
    const Job *j = ctx;
    for (int64_t row = from; row < to; row++) {
        Place p = place(j->y, row);
        Mix d = mix_at(j->axis[0], p.d), h = mix_at(j->axis[1], p.h);
        Mix w = mix_at(j->axis[2], p.w);
        real *y = values(j->c->y) + row * j->y.c;
        for (int64_t c0 = 0; c0 < j->y.c; c0 += BLOCK) {
            int64_t nc = least(BLOCK, j->y.c - c0);
            double sum[BLOCK] = {0};
            // the corners of a cell; nearest has one, with weight 1
            for (int k = 0; k < 8; k++) {
                int a = k >> 2, b = k >> 1 & 1, e = k & 1;
                double weight = d.w[a] * h.w[b] * w.w[e];
                // with weight 0 even an infinity adds nothing
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

/* Sums dy over the results that use channels c0 .. of operand position q, times
 * their weights. */
static void position_grad(const Job *j, Place q, int64_t c0, int64_t nc,
                          double *sum)
{
    int64_t d0, d1, h0, h1, w0, w1;
    mix_range(j->axis[0], q.d, &d0, &d1);
    mix_range(j->axis[1], q.h, &h0, &h1);
    mix_range(j->axis[2], q.w, &w0, &w1);

    for (int64_t d = d0; d < d1; d++) {
        double wd = mix_weight(j->axis[0], d, q.d);
        for (int64_t h = h0; wd > 0 && h < h1; h++) {
            double wh = wd * mix_weight(j->axis[1], h, q.h);
            for (int64_t w = w0; wh > 0 && w < w1; w++) {
                double ww = wh * mix_weight(j->axis[2], w, q.w);
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
            position_grad(j, q, c0, nc, sum);
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
        range_run(c, rows(j.x), 8 * positions(j.y) / positions(j.x) * j.x.c,
                  bwd_rows, &j);
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
