/* pool_avg.c -- mean of each window.
 *
 * The divisor is the size of the window, or (count_all 0) the number of its
 * elements inside the image: PyTorch's count_include_pad. Padding counts as 0
 * in the sum either way. */
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

/* The divisor of the window of result p. */
static double divisor(const Job *j, Place p)
{
    if (j->c->attr->avgpool.count_all) return (double)window_taps(&j->win);
    Taps td = taps_inside(&j->win, 0, p.d, j->x.d);
    Taps th = taps_inside(&j->win, 1, p.h, j->x.h);
    Taps tw = taps_inside(&j->win, 2, p.w, j->x.w);
    return (double)((td.to - td.from) * (th.to - th.from) * (tw.to - tw.from));
}

/* Sums channels c0 .. c0+nc-1 of the window of result p. */
static void window_sum(const Job *j, Place p, int64_t c0, int64_t nc,
                       double *sum)
{
    Taps td = taps_inside(&j->win, 0, p.d, j->x.d);
    Taps th = taps_inside(&j->win, 1, p.h, j->x.h);
    Taps tw = taps_inside(&j->win, 2, p.w, j->x.w);

    for (int64_t kd = td.from; kd < td.to; kd++)
        for (int64_t kh = th.from; kh < th.to; kh++)
            for (int64_t kw = tw.from; kw < tw.to; kw++)
                axpy(sum, 1,
                     values(j->c->x[0]) +
                         at(j->x, p.n, td.first + kd, th.first + kh,
                            tw.first + kw) +
                         c0,
                     nc);
}

/* Results (n,d,h,w). */
static void fwd_rows(void *ctx, int64_t from, int64_t to)
{
    const Job *j = ctx;
    for (int64_t row = from; row < to; row++) {
        Place p = place(j->y, row);
        real *y = values(j->c->y) + row * j->y.c;
        double count = divisor(j, p); // >= 1: padding is below the kernel
        for (int64_t c0 = 0; c0 < j->y.c; c0 += BLOCK) {
            int64_t nc = least(BLOCK, j->y.c - c0);
            double sum[BLOCK] = {0};
            window_sum(j, p, c0, nc, sum);
            for (int64_t c = 0; c < nc; c++) y[c0 + c] = (real)(sum[c] / count);
        }
    }
}

/* Operand elements (n,d,h,w): the sum over the windows that contain each. The
 * divisor is that of the window's result, found again for each tap. */
static void bwd_rows(void *ctx, int64_t from, int64_t to)
{
    const Job *j = ctx;
    for (int64_t row = from; row < to; row++) {
        Place p = place(j->x, row);
        real *dx = values(j->c->dx[0]) + row * j->x.c;
        for (int64_t c0 = 0; c0 < j->x.c; c0 += BLOCK) {
            int64_t nc = least(BLOCK, j->x.c - c0);
            double sum[BLOCK] = {0};
            for (int64_t k = 0; k < window_taps(&j->win); k++) {
                int64_t i = result_row_at(&j->win, j->y, p, k);
                if (i < 0) continue;
                axpy(sum, 1 / divisor(j, place(j->y, i / j->y.c)),
                     values(j->c->dy) + i + c0, nc);
            }
            for (int64_t c = 0; c < nc; c++)
                put(&dx[c0 + c], sum[c], is_fresh(j->c, 0));
        }
    }
}

bool KERNEL(avgpool_fwd)(const Call *c)
{
    Job j = job_of(c);
    range_run(c, rows(j.y), window_taps(&j.win) * j.y.c, fwd_rows, &j);
    return true;
}

bool KERNEL(avgpool_bwd)(const Call *c)
{
    Job j = job_of(c);
    if (c->dx[0])
        range_run(c, rows(j.x), window_taps(&j.win) * j.x.c, bwd_rows, &j);
    return true;
}
