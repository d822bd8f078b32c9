/* dice.c -- losses of overlapping regions: dice_loss, bce_dice, tversky.
 *
 * All three are one formula. With I, P, T the sums of m q s t, m q s, m q t
 * over a class (of a sample or of the batch), its score is
 *
 *     S = (r I + eps) / ((r - alpha - beta) I + alpha P + beta T + eps)
 *
 * with r = 2, alpha = beta = 1 for dice and r = 1 for tversky, and the loss is
 * 1 - mean S over the classes that count. S is linear over linear in I and P,
 * so all that a gradient needs of the sums are two numbers a class,
 *
 *     dL/ds = m q (A t + B),   A = -dS/dI / count,   B = -dS/dP / count,
 *
 * which the forward run saves. A class with nothing at all and eps = 0 scores
 * 1: the limit of small eps. bce_dice adds its cross entropy in the same pass.
 */
#include "loss.h"

/* The attributes of the three rows in one form. */
typedef struct Region {
    bool per_sample, skip_empty, background;
    double r, alpha, beta, eps;
    double dice, bce, pos_weight; /* weights of the two parts */
} Region;

static Region region_of(const Attr *a)
{
#define OVERLAP(row)                                                  \
    .per_sample = a->row.per_sample, .skip_empty = a->row.skip_empty, \
    .background = a->row.background, .eps = a->row.eps
    switch (a->op) {
    case OP_tversky:
        return (Region){OVERLAP(tversky), .r = 1, .alpha = a->tversky.alpha,
                        .beta = a->tversky.beta, .dice = 1};
    case OP_bce_dice:
        return (Region){OVERLAP(bce_dice),
                        .r = 2,
                        .alpha = 1,
                        .beta = 1,
                        .dice = a->bce_dice.dice,
                        .bce = a->bce_dice.bce,
                        .pos_weight = a->bce_dice.pos_weight};
    default:
        return (Region){OVERLAP(dice_loss), .r = 2, .alpha = 1, .beta = 1,
                        .dice = 1};
    }
#undef OVERLAP
}

/* What fwd leaves for bwd: (N,C) coefficients and one factor. Two numbers a
 * class instead of its sums: the backward run need not know the formula. */
typedef struct Coef {
    double a, b; /* dL/ds = m q (a t + b) */
} Coef;

typedef struct Job {
    const Call *c;
    LossViews views;
    Region region;
    bool numbers;   /* the target holds class numbers */
    double dy, bce; /* bce: its weight / M           */
    const Coef *coef;
} Job;

/* One target channel against several logits holds numbers; against one logit
 * it is that channel. */
static Job job_of(const Call *c)
{
    Job j = {.c = c, .views = loss_views(c), .region = region_of(c->attr)};
    j.numbers = j.views.x.c > 1 && c->x[1]->dim.c == 1;
    return j;
}

/* One row of channels with everything that belongs to it. */
typedef struct Row {
    const real *x, *t, *m, *q;
    double max, sum; /* of the softmax */
} Row;

/* False when no channel of the row counts (m q = 0 for all of them). */
static bool row_open(const Job *j, int64_t row, Row *r)
{
    const LossViews *s = &j->views;
    r->x = values(j->c->x[0]) + row * s->x.c;
    r->t = view_row(&s->t, row);
    r->m = view_row(&s->m, row);
    r->q = view_row(&s->q, row);
    // the largest logit is taken along, and is NaN-safe: exp shows the NaN
    r->max = r->x[0], r->sum = 0;
    bool counts = false;
    for (int i = 0; i < s->x.c; i++) {
        if (r->m[i * s->m.step] != 0 && r->q[i * s->q.step] != 0) counts = true;
        if (r->x[i] > r->max) r->max = r->x[i];
    }
    // a row that does not count is not looked at any further
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

/* t: by channel, or 1 for the class with this number. */
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

/* Sums of a sample: I, P, T of each class, then those of bce and the mask. */
enum { SUM_I, SUM_P, SUM_T, SUMS };

/* Sums of one sample: SUMS a class, then bce and the mask. */
static int64_t sums_width(Dims x)
{
    return SUMS * (int64_t)x.c + 2;
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
            // a weight of 0 takes an element out of the sum, not out of M
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

/* Score of one class and its derivatives by I and P, from top / bottom:
 * dS = (d top - S d bottom) / bottom. */
static double score(const Region *g, const double *sum, Coef *slope)
{
    double rest = g->r - g->alpha - g->beta;
    double top = g->r * sum[SUM_I] + g->eps;
    double bottom = rest * sum[SUM_I] + g->alpha * sum[SUM_P] +
                    g->beta * sum[SUM_T] + g->eps;
    *slope = (Coef){0};
    // nothing predicted, nothing true, no eps: as right as can be, and flat
    if (bottom == 0) return 1;
    slope->a = (g->r - top / bottom * rest) / bottom;
    slope->b = -top / bottom * g->alpha / bottom;
    return top / bottom;
}

/* total[0] += scores, total[1] += how many; coef (groups,C) becomes their
 * slopes by I and P. `groups` is the number of samples, or 1 when sums are over
 * the batch. Classes that do not count (background; empty ones when skipped)
 * have coefficients 0. */
static void overlap_scores(const Region *g, const double *sums, int64_t groups,
                           Dims x, Coef *coef, double total[2])
{
    int first = x.c > 1 && !g->background; // class 0 is the background
    for (int64_t k = 0; k < groups; k++) {
        for (int i = 0; i < x.c; i++) {
            const double *sum = sums + k * sums_width(x) + SUMS * i;
            Coef *to = &coef[k * x.c + i];
            *to = (Coef){0};
            if (i < first || (g->skip_empty && sum[SUM_T] == 0)) continue;
            total[0] += score(g, sum, to);
            total[1]++;
        }
    }
}

/* 1 - mean score, the slopes of `count` scores made those of it; 0 where none
 * counts. */
static double overlap_loss(const Region *g, const double total[2], Coef *coef,
                           int64_t count)
{
    if (total[1] == 0) return 0;
    double share = -g->dice / total[1];
    for (int64_t k = 0; k < count; k++) coef[k].a *= share, coef[k].b *= share;
    return g->dice * (1 - total[0] / total[1]);
}

/* Saved: Coef (N,C), then the factor of bce. */
static Space region_space(const Call *c)
{
    Dims x = c->x[0]->dim;
    return (Space){
        .saved = (size_t)(x.n * (int64_t)x.c) * sizeof(Coef) + sizeof(double),
        .fwd = sum_bytes(x.n, positions(x), sums_width(x)),
    };
}

/* Sums, score, loss; coefficients saved for each sample, equal ones when the
 * classes are scored over the batch. */
static bool region_fwd(const Call *c)
{
    Job j = job_of(c);
    Dims x = j.views.x;
    int64_t width = sums_width(x), groups = x.n;
    double *sums =
        sum_run(c, x.n, positions(x), width, sums_chunk, &j, c->scratch);
    // cross entropy and its mask are over the batch in any case
    double bce = 0, mask = 0, total[4] = {0};
    for (int64_t n = 0; n < x.n; n++) {
        bce += sums[n * width + width - 2];
        mask += sums[n * width + width - 1];
    }
    if (!j.region.per_sample) {
        groups = 1; // samples are added up into the first one's sums
        for (int64_t n = 1; n < x.n; n++)
            for (int64_t i = 0; i < width; i++) sums[i] += sums[n * width + i];
        if (!sum_ranks(c, sums, width)) return false;
        bce = sums[width - 2], mask = sums[width - 1];
    }
    Coef *coef = c->saved;
    overlap_scores(&j.region, sums, groups, x, coef, total);
    if (j.region.per_sample) { // else they are of all ranks already
        total[2] = bce, total[3] = mask;
        if (!sum_ranks(c, total, 4)) return false;
        bce = total[2], mask = total[3];
    }
    double y = overlap_loss(&j.region, total, coef, groups * x.c);
    for (int64_t n = groups; n < x.n; n++)
        memcpy(coef + n * x.c, coef, (size_t)x.c * sizeof *coef);
    double factor = mask != 0 ? j.region.bce / mask : 0;
    memcpy(coef + x.n * (int64_t)x.c, &factor, sizeof factor);
    put(values(c->y), y + factor * bce, true);
    return true;
}

/* dL/ds by the saved coefficients, through sigmoid or softmax, plus bce. */
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
        // sigmoid: dx = g s (1 - s);
        // softmax: dx_i = s_i (g_i - sum_k g_k s_k), g = dL/ds
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
                g += j->bce * w * cross_slope(j->region.pos_weight, r.x[i], t);
            put(dx + i, j->dy * g, fresh);
        }
    }
}

/* One walk over x: all it needs of the sums has been saved. */
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

/* The three kernels of a row; region_of() tells the rows apart. */
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
