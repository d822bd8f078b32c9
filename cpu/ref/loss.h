/* loss.h -- weighted means over elements, the common frame of the losses.
 *
 * A loss of this kind is the sum of l(x, t) over the elements of x, each times
 * its mask m and its weight q, divided by M = sum m; ops.def has the formulas.
 * An operator adds l and its derivative by x.
 *
 * Operands 0..3 are x, target, mask, weight. Gradients flow to x only; the
 * planner takes the others as constants, so a wanted gradient of one is a bug
 * (CHECK). An element with m q = 0 is not read: its x and target, NaN included,
 * cannot reach the loss or a gradient. */
#ifndef SEG_CPU_REF_LOSS_H
#define SEG_CPU_REF_LOSS_H
#include "cpu/ref/logistic.h"
#include "cpu/ref/view.h"

/* l or dl/dx of one element. */
typedef double ElementFn(const Attr *a, double x, double t);

/* Target, mask and weight, each broadcast to x. */
typedef struct LossViews {
    View t, m, q;
    Dims x;
} LossViews;

/* Views of operands 1..3; an absent mask or weight is 1. */
static inline LossViews loss_views(const Call *c)
{
    Dims x = c->x[0]->dim;
    return (LossViews){view_of(c->x[1], x), view_of(c->x[2], x),
                       view_of(c->x[3], x), x};
}

/* The factor of all gradients: dy of a scalar. */
static inline double loss_seed(const Call *c)
{
    for (int i = 1; i < MAX_IN; i++) CHECK(!c->dx[i]);
    return *values(c->dy);
}

/* Sigmoid cross entropy with weighted positive targets: no term of either sum
 * cancels another, for any x. */
static inline double cross_value(double pos_weight, double x, double t)
{
    return pos_weight * t * softplus(-x) + (1 - t) * softplus(x);
}

static inline double cross_grad(double pos_weight, double x, double t)
{
    return (1 - t) * logistic(x) - pos_weight * t * logistic(-x);
}

// -- the sum of the mask -----------------------------------------------------

/* SumFn. */
static inline void mask_chunk(void *ctx, int64_t set, int64_t from, int64_t to,
                              double *sum)
{
    const real *m = ctx;
    (void)set;
    for (int64_t i = from; i < to; i++) *sum += m[i];
}

/* Bytes of scratch of mask_sum. */
static inline size_t mask_bytes(const Call *c)
{
    return c->x[2] ? sum_bytes(1, numel(c->x[2]->dim), 1) : 0;
}

/* M: each element of the mask counts once for every element of x that it is
 * broadcast to. */
static inline double mask_sum(const Call *c, void *scratch)
{
    const Tensor *m = c->x[2];
    int64_t all = numel(c->x[0]->dim);
    if (!m) return (double)all;
    int64_t own = numel(m->dim);
    double *sum = sum_run(c, 1, own, 1, mask_chunk, m->data, scratch);
    return *sum * (double)(all / own);
}

// -- the mean and its gradient -----------------------------------------------

typedef struct MeanJob {
    const Call *c;
    ElementFn *fn; /* the value forward, the derivative backward */
    LossViews views;
    double factor; /* dy / M */
} MeanJob;

/* A chunk of sum m q l. */
static inline void mean_chunk(void *ctx, int64_t set, int64_t from, int64_t to,
                              double *sum)
{
    const MeanJob *j = ctx;
    const LossViews *s = &j->views;
    (void)set;

    for (int64_t row = from; row < to; row++) {
        const real *x = values(j->c->x[0]) + row * s->x.c;
        const real *t = view_row(&s->t, row), *m = view_row(&s->m, row);
        const real *q = view_row(&s->q, row);
        for (int64_t i = 0; i < s->x.c; i++) {
            double w = (double)m[i * s->m.step] * q[i * s->q.step];
            if (w != 0) *sum += w * j->fn(j->c->attr, x[i], t[i * s->t.step]);
        }
    }
}

/* Over all ranks: y = sum m q l / M, and 0 if M is 0. */
static inline bool mean_fwd(const Call *c, ElementFn *value)
{
    MeanJob j = {.c = c, .fn = value, .views = loss_views(c)};
    // M is read from scratch before the next sum goes in
    double sum[2] = {0, mask_sum(c, c->scratch)};
    *sum = *sum_run(c, 1, rows(j.views.x), 1, mean_chunk, &j, c->scratch);
    if (!sum_ranks(c, sum, 2)) return false;
    put(values(c->y), sum[1] != 0 ? sum[0] / sum[1] : 0, true);
    return true;
}

/* dx = dy / M m q dl/dx. */
static inline void mean_rows(void *ctx, int64_t from, int64_t to)
{
    const MeanJob *j = ctx;
    const LossViews *s = &j->views;
    bool fresh = is_fresh(j->c, 0);

    for (int64_t row = from; row < to; row++) {
        const real *x = values(j->c->x[0]) + row * s->x.c;
        real *dx = values(j->c->dx[0]) + row * s->x.c;
        const real *t = view_row(&s->t, row), *m = view_row(&s->m, row);
        const real *q = view_row(&s->q, row);
        for (int64_t i = 0; i < s->x.c; i++) {
            double w = (double)m[i * s->m.step] * q[i * s->q.step], grad = 0;
            if (w != 0) grad = j->fn(j->c->attr, x[i], t[i * s->t.step]);
            put(dx + i, j->factor * w * grad, fresh);
        }
    }
}

/* M is summed again: the forward run saves nothing. */
static inline bool mean_bwd(const Call *c, ElementFn *grad)
{
    double dy = loss_seed(c);
    if (!c->dx[0]) return true;
    MeanJob j = {.c = c, .fn = grad, .views = loss_views(c)};
    double total = mask_sum(c, c->scratch);
    if (!sum_ranks(c, &total, 1)) return false;
    j.factor = total != 0 ? dy / total : 0;
    range_run(c, rows(j.views.x), 8 * (int64_t)j.views.x.c, mean_rows, &j);
    return true;
}

/* The two sums of fwd use the same scratch, one after the other. */
static inline Space mean_space(const Call *c)
{
    size_t mask = mask_bytes(c), sum = sum_bytes(1, rows(c->x[0]->dim), 1);
    return (Space){.fwd = mask > sum ? mask : sum, .bwd = mask};
}

/* The three kernels of a loss with l and dl/dx in name_value, name_grad. */
#define MEAN_LOSS(name)                       \
    Space KERNEL(name##_space)(const Call *c) \
    {                                         \
        return mean_space(c);                 \
    }                                         \
    bool KERNEL(name##_fwd)(const Call *c)    \
    {                                         \
        return mean_fwd(c, name##_value);     \
    }                                         \
    bool KERNEL(name##_bwd)(const Call *c)    \
    {                                         \
        return mean_bwd(c, name##_grad);      \
    }
#endif
