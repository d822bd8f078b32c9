/* amax.c -- the largest element over axes.
 *
 * NaN is the largest. The gradient goes in equal parts to all elements that are
 * equal to the result, as PyTorch's amax has it; forward saves their number. */
#include "cpu/ref/view.h"

/* Adds x to the largest so far, *most, and to the number of its equals, *count;
 * 0: none yet. */
static void take(double x, double *most, int64_t *count)
{
    if (!*count || x > *most || (isnan(x) && !isnan(*most))) {
        *most = x, *count = 1;
        return;
    }
    *count += x == *most || (isnan(x) && isnan(*most));
}

static void amax_results(void *ctx, int64_t from, int64_t to)
{
    const Call *c = ctx;
    const Dims all = c->x[0]->dim, own = op_reduced_dims(c->attr, all);
    const real *x = values(c->x[0]);
    real *y = values(c->y), *counts = c->saved;
    for (int64_t item = from; item < to; item++) {
        const Place p = place(own, item / own.c);
        const Span d = span(own.d, all.d, p.d), h = span(own.h, all.h, p.h);
        const Span w = span(own.w, all.w, p.w);
        const Span ch = span(own.c, all.c, (int32_t)(item % own.c));
        double most = 0;
        int64_t count = 0;
        for (int32_t id = d.from; id < d.to; id++)
            for (int32_t ih = h.from; ih < h.to; ih++)
                for (int32_t iw = w.from; iw < w.to; iw++)
                    for (int32_t ic = ch.from; ic < ch.to; ic++)
                        take(x[at(all, p.n, id, ih, iw) + ic], &most, &count);
        y[item] = (real)most;
        counts[item] = (real)count;
    }
}

Space KERNEL(amax_space)(const Call *c)
{
    return (Space){.saved = (size_t)numel(c->y->dim) * sizeof(real)};
}

bool KERNEL(amax_fwd)(const Call *c)
{
    const int64_t results = numel(c->y->dim);
    range_run(c, results, numel(c->x[0]->dim) / results, amax_results,
              (void *)c);
    return true;
}

static void amax_grads(void *ctx, int64_t from, int64_t to)
{
    const Call *c = ctx;
    const Dims all = c->x[0]->dim;
    Tensor y = *c->y, dy = *c->dy, count = *c->y;
    y.dim = dy.dim = count.dim = op_reduced_dims(c->attr, all);
    count.data = c->saved;
    const View ys = view_of(&y, all), dys = view_of(&dy, all);
    const View counts = view_of(&count, all);
    for (int64_t row = from; row < to; row++) {
        const real *x = values(c->x[0]) + row * all.c;
        const real *most = view_row(&ys, row), *g = view_row(&dys, row);
        const real *n = view_row(&counts, row);
        real *dx = values(c->dx[0]) + row * all.c;
        for (int64_t i = 0; i < all.c; i++) {
            const int64_t k = i * ys.step;
            // 0 times g, so that NaN stays
            const double share = x[i] == most[k] ? 1 / (double)n[k] : 0;
            put(dx + i, share * g[k], is_fresh(c, 0));
        }
    }
}

bool KERNEL(amax_bwd)(const Call *c)
{
    const Dims s = c->x[0]->dim;
    if (c->dx[0])
        range_run(c, rows(s), 2 * (int64_t)s.c, amax_grads, (void *)c);
    return true;
}
