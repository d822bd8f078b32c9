/* softmax.c -- y_c = exp(x_c) / sum_k exp(x_k) over the channels of a row.
 *
 * y may be x's memory: an element is read for the last time when its own result
 * is written. The largest logit is subtracted first, so that no exponential
 * overflows; dx_c = y_c (dy_c - sum_k dy_k y_k). */
#include "cpu/lib/plain.h"

/* Three passes over a row: its maximum, the sum, the results. The exponential
 * is computed twice, because one kept in y would be rounded before the
 * division. */
static void softmax_rows(void *ctx, int64_t from, int64_t to)
{
    const Call *c = ctx;
    int64_t n = c->y->dim.c;
    for (int64_t row = from; row < to; row++) {
        const real *x = values(c->x[0]) + row * n;
        real *y = values(c->y) + row * n;
        double max = x[0], sum = 0;
        for (int64_t i = 1; i < n; i++) max = x[i] > max ? x[i] : max;
        for (int64_t i = 0; i < n; i++) sum += exp(x[i] - max);
        for (int64_t i = 0; i < n; i++) y[i] = (real)(exp(x[i] - max) / sum);
    }
}

bool KERNEL(softmax_fwd)(const Call *c)
{
    range_run(c, rows(c->y->dim), 32 * (int64_t)c->y->dim.c, softmax_rows,
              (void *)c);
    return true;
}

/* `mean` is the mean of dy with weights y. */
static void softmax_gradient(void *ctx, int64_t from, int64_t to)
{
    const Call *c = ctx;
    int64_t n = c->y->dim.c;
    bool fresh = is_fresh(c, 0);
    for (int64_t row = from; row < to; row++) {
        const real *y = values(c->y) + row * n, *dy = values(c->dy) + row * n;
        real *dx = values(c->dx[0]) + row * n;
        double mean = dot(y, dy, n);
        for (int64_t i = 0; i < n; i++)
            put(dx + i, y[i] * (dy[i] - mean), fresh);
    }
}

bool KERNEL(softmax_bwd)(const Call *c)
{
    if (c->dx[0])
        range_run(c, rows(c->y->dim), 2 * (int64_t)c->y->dim.c,
                  softmax_gradient, (void *)c);
    return true;
}
