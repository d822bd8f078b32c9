/* dice.c -- dice_loss, bce_dice, tversky: the sums over elements, and the
 * gradient through sigmoid or softmax. dice.h computes loss and coefficients
 * from the sums. */
#include "cpu/lib/dice.h"
#include "cpu/ref/loss.h"

typedef struct Job {
    const Call *c;
    LossViews views;
    RegionLoss region;
    bool numbers;   /* the target holds class numbers */
    double dy, bce; /* bce: its weight / M */
    const Coef *coef;
} Job;

/* One target channel with several logits holds class numbers; with one logit it
 * is that channel's probability. */
static Job job_of(const Call *c)
{
    Job j = {.c = c, .views = loss_views(c), .region = region_of(c->attr)};
    j.numbers = j.views.x.c > 1 && c->x[1]->dim.c == 1;
    return j;
}

/* One row of channels with target, mask and weight. */
typedef struct Row {
    const real *x, *t, *m, *q;
    double max, sum; /* of the softmax */
} Row;

/* Sets *r to row `row`; returns false if no channel of it counts (m q = 0 for
 * all of them). */
static bool row_open(const Job *j, int64_t row, Row *r)
{
    const LossViews *s = &j->views;
    r->x = values(j->c->x[0]) + row * s->x.c;
    r->t = view_row(&s->t, row);
    r->m = view_row(&s->m, row);
    r->q = view_row(&s->q, row);

    // the largest logit is searched before it is known that the row counts; a
    // NaN in it shows up in exp
    r->max = r->x[0], r->sum = 0;
    bool counts = false;
    for (int i = 0; i < s->x.c; i++) {
        if (r->m[i * s->m.step] != 0 && r->q[i * s->q.step] != 0) counts = true;
        if (r->x[i] > r->max) r->max = r->x[i];
    }

    // exp only for a row that counts
    if (counts && s->x.c > 1)
        for (int i = 0; i < s->x.c; i++) r->sum += exp(r->x[i] - r->max);
    return counts;
}

/* s: sigmoid of one channel, softmax of several. */
static double row_prob(const Job *j, const Row *r, int i)
{
    if (j->views.x.c == 1) return logistic(r->x[0]);
    return exp(r->x[i] - r->max) / r->sum;
}

/* t: the channel of the target, or 1 for the class with its number. */
static double row_target(const Job *j, const Row *r, int i)
{
    return j->numbers ? r->t[0] == i : r->t[i];
}

/* m q of a channel. */
static double row_weight(const Job *j, const Row *r, int i)
{
    const LossViews *s = &j->views;
    return (double)r->m[i * s->m.step] * r->q[i * s->q.step];
}

/* SumFn: a set is a sample, an item a position. */
static void sums_chunk(void *ctx, int64_t n, int64_t from, int64_t to,
                       double *sum)
{
    const Job *j = ctx;
    Dims dim = j->views.x;
    double *bce = sum + SUMS * (int64_t)dim.c, *mask = bce + 1;

    for (int64_t p = from; p < to; p++) {
        Row r;
        if (!row_open(j, n * positions(dim) + p, &r)) {
            // a weight of 0 removes an element from the sum, not from M
            for (int i = 0; i < dim.c; i++) *mask += r.m[i * j->views.m.step];
            continue;
        }
        for (int i = 0; i < dim.c; i++) {
            double w = row_weight(j, &r, i);
            *mask += r.m[i * j->views.m.step];
            if (w == 0) continue;
            double s = row_prob(j, &r, i), t = row_target(j, &r, i);
            double *class = sum + SUMS * i;
            class[SUM_I] += w * s * t;
            class[SUM_P] += w * s;
            class[SUM_T] += w * t;
            if (j->region.bce != 0)
                *bce += w * cross_value(j->region.pos_weight, r.x[i], t);
        }
    }
}

static Space region_space(const Call *c)
{
    Dims x = c->x[0]->dim;
    return (Space){
        .saved = region_saved(x),
        .fwd = sum_bytes(x.n, positions(x), sums_width(x)),
    };
}

static bool region_fwd(const Call *c)
{
    Job j = job_of(c);
    Dims x = j.views.x;
    double loss, *sums = sum_run(c, x.n, positions(x), sums_width(x),
                                 sums_chunk, &j, c->scratch);
    if (!region_finish(c, sums, &loss)) return false;
    put(values(c->y), loss, true);
    return true;
}

/* dL/ds from the saved coefficients, back through sigmoid or softmax, plus
 * bce. */
static void gradient_rows(void *ctx, int64_t from, int64_t to)
{
    const Job *j = ctx;
    Dims dim = j->views.x;
    bool fresh = is_fresh(j->c, 0);

    for (int64_t row = from; row < to; row++) {
        const Coef *coef = j->coef + row / positions(dim) * dim.c;
        real *dx = values(j->c->dx[0]) + row * dim.c;
        Row r;
        bool counts = row_open(j, row, &r);
        // sigmoid: dx = g s (1 - s); softmax: dx_i = s_i (g_i - sum_k g_k s_k),
        // g = dL/ds
        double mean = 0;
        for (int i = 0; counts && dim.c > 1 && i < dim.c; i++) {
            double w = row_weight(j, &r, i), t = row_target(j, &r, i);
            if (w != 0)
                mean += w * (coef[i].a * t + coef[i].b) * row_prob(j, &r, i);
        }
        for (int i = 0; i < dim.c; i++) {
            double w = counts ? row_weight(j, &r, i) : 0, g = 0, t = 0;
            if (w != 0) {
                t = row_target(j, &r, i);
                g = w * (coef[i].a * t + coef[i].b);
            }
            if (counts && dim.c == 1) g *= logistic(r.x[0]) * logistic(-r.x[0]);
            if (counts && dim.c > 1) g = (g - mean) * row_prob(j, &r, i);
            if (w != 0 && j->bce != 0)
                g += j->bce * w * cross_grad(j->region.pos_weight, r.x[i], t);
            put(dx + i, j->dy * g, fresh);
        }
    }
}

/* One pass over x: the coefficients are saved. */
static bool region_bwd(const Call *c)
{
    double dy = loss_seed(c);
    if (!c->dx[0]) return true;
    Job j = job_of(c);
    Dims x = j.views.x;
    j.dy = dy, j.coef = c->saved;
    memcpy(&j.bce, j.coef + x.n * (int64_t)x.c, sizeof j.bce);
    range_run(c, rows(x), 16 * (int64_t)x.c, gradient_rows, &j);
    return true;
}

/* The three kernels of an operator; region_of() selects the loss. */
#define REGION_LOSS(name)                     \
    Space KERNEL(name##_space)(const Call *c) \
    {                                         \
        return region_space(c);               \
    }                                         \
    bool KERNEL(name##_fwd)(const Call *c)    \
    {                                         \
        return region_fwd(c);                 \
    }                                         \
    bool KERNEL(name##_bwd)(const Call *c)    \
    {                                         \
        return region_bwd(c);                 \
    }

REGION_LOSS(dice_loss)
REGION_LOSS(bce_dice)
REGION_LOSS(tversky)
