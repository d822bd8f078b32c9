/* pool_max.c -- largest element of each window.
 *
 * Padding never wins, ties go to the first tap in (d,h,w) order, and a NaN wins
 * over everything, so that it is not hidden. Saved: the winning tap of each
 * result (int32); the backward run reads nothing else. */
#include "cpu/ref/window.h"

enum { BLOCK = 64 }; // channels summed at a time, on the stack

typedef struct Job {
    const Call *c;
    Window win;
    Dims x, y; // extents of operand and result
} Job;

/* Only the extents of operand 0 are used: backward its data may be gone. */
static Job job_of(const Call *c)
{
    return (Job){c, op_window(c->attr, NULL), c->x[0]->dim, c->y->dim};
}

/* Compares one more tap: y, tap (C) with x (C). x[c] != x[c] is NaN, for which
 * every comparison is false; without branches, for vectors. */
static void compare_tap(real *y, int32_t *tap, const real *x, int32_t k,
                        int64_t channels)
{
    for (int64_t c = 0; c < channels; c++) {
        bool wins = x[c] > y[c] || x[c] != x[c];
        y[c] = wins ? x[c] : y[c];
        tap[c] = wins ? k : tap[c];
    }
}

/* Results (n,d,h,w). */
static void fwd_rows(void *ctx, int64_t from, int64_t to)
{
    const Job *j = ctx;
    const int32_t *k = j->win.k;
    int64_t channels = j->x.c;

    for (int64_t row = from; row < to; row++) {
        Place p = place(j->y, row);
        Taps td = taps_inside(&j->win, 0, p.d, j->x.d);
        Taps th = taps_inside(&j->win, 1, p.h, j->x.h);
        Taps tw = taps_inside(&j->win, 2, p.w, j->x.w);
        real *y = values(j->c->y) + row * channels;
        int32_t *tap = (int32_t *)j->c->saved + row * channels;
        for (int64_t c = 0; c < channels; c++) y[c] = (real)-INFINITY;
        // a window of -inf only also has a winner: its first tap inside
        for (int64_t c = 0; c < channels; c++)
            tap[c] = (int32_t)((td.from * k[1] + th.from) * k[2] + tw.from);
        for (int64_t kd = td.from; kd < td.to; kd++)
            for (int64_t kh = th.from; kh < th.to; kh++)
                for (int64_t kw = tw.from; kw < tw.to; kw++)
                    compare_tap(
                        y, tap,
                        values(j->c->x[0]) + at(j->x, p.n, td.first + kd,
                                                th.first + kh, tw.first + kw),
                        (int32_t)((kd * k[1] + kh) * k[2] + kw), channels);
    }
}

/* Operand elements (n,d,h,w): the sum of dy over the results that each has won.
 * Windows may overlap, so an element tests every window that contains it. */
static void bwd_rows(void *ctx, int64_t from, int64_t to)
{
    const Job *j = ctx;
    const real *dy = values(j->c->dy);
    const int32_t *tap = j->c->saved;

    for (int64_t row = from; row < to; row++) {
        Place p = place(j->x, row);
        real *dx = values(j->c->dx[0]) + row * j->x.c;
        for (int64_t c0 = 0; c0 < j->x.c; c0 += BLOCK) {
            int64_t nc = least(BLOCK, j->x.c - c0);
            double sum[BLOCK] = {0};
            for (int64_t k = 0; k < window_taps(&j->win); k++) {
                int64_t i = result_row_at(&j->win, j->y, p, k);
                if (i < 0) continue;
                for (int64_t c = 0; c < nc; c++)
                    sum[c] += tap[i + c0 + c] == k ? dy[i + c0 + c] : 0;
            }
            for (int64_t c = 0; c < nc; c++)
                put(&dx[c0 + c], sum[c], is_fresh(j->c, 0));
        }
    }
}

Space KERNEL(maxpool_space)(const Call *c)
{
    return (Space){.saved = (size_t)numel(c->y->dim) * sizeof(int32_t)};
}

bool KERNEL(maxpool_fwd)(const Call *c)
{
    Job j = job_of(c);
    range_run(c, rows(j.y), window_taps(&j.win) * j.y.c, fwd_rows, &j);
    return true;
}

bool KERNEL(maxpool_bwd)(const Call *c)
{
    Job j = job_of(c);
    if (c->dx[0])
        range_run(c, rows(j.x), window_taps(&j.win) * j.x.c, bwd_rows, &j);
    return true;
}
