/* dice.h -- the region losses: dice_loss, bce_dice, tversky.
 *
 * All three have one formula. With I, P, T the sums of m q s t, m q s, m q t
 * over a class (of a sample or of the batch), the score of the class is
 *
 *     S = (r I + eps) / ((r - alpha - beta) I + alpha P + beta T + eps)
 *
 * with r = 2, alpha = beta = 1 for dice and r = 1 for tversky. The loss is 1 -
 * mean S over the classes that count. S is a quotient of two linear functions
 * of I and P, so a gradient needs only two coefficients a class:
 *
 *     dL/ds = m q (A t + B),   A = -dS/dI / count,   B = -dS/dP / count.
 *
 * The forward run saves them. A class without a predicted and without a true
 * element, with eps = 0, scores 1: the limit for small eps. bce_dice adds the
 * cross entropy.
 *
 * This header computes coefficients and loss from the sums, in double, for the
 * plain and for the fast kernels. The two differ only in how they compute the
 * sums. */
#ifndef SEG_CPU_LIB_DICE_H
#define SEG_CPU_LIB_DICE_H
#include "cpu/lib/kernels.h"
#include <string.h>

/* The attributes of the three operators in one form. */
typedef struct RegionLoss {
    bool per_sample, skip_empty, background;
    double r, alpha, beta, eps;
    double dice, bce, pos_weight; /* weights of the two terms */
} RegionLoss;

static inline RegionLoss region_of(const Attr *a)
{
#define REGION(row)                                                   \
    .per_sample = a->row.per_sample, .skip_empty = a->row.skip_empty, \
    .background = a->row.background, .eps = a->row.eps
    switch (a->op) {
    case OP_tversky:
        return (RegionLoss){REGION(tversky), .r = 1, .alpha = a->tversky.alpha,
                            .beta = a->tversky.beta, .dice = 1};
    case OP_bce_dice:
        return (RegionLoss){REGION(bce_dice),
                            .r = 2,
                            .alpha = 1,
                            .beta = 1,
                            .dice = a->bce_dice.dice,
                            .bce = a->bce_dice.bce,
                            .pos_weight = a->bce_dice.pos_weight};
    default:
        return (RegionLoss){REGION(dice_loss), .r = 2, .alpha = 1, .beta = 1,
                            .dice = 1};
    }
#undef REGION
}

/* Saved by fwd for bwd: coefficients (N,C), then the factor of bce. With two
 * coefficients a class instead of its sums, the backward run needs no
 * formula. */
typedef struct Coef {
    double a, b; /* dL/ds = m q (a t + b) */
} Coef;

/* The sums of a sample: I, P, T of each class, then those of bce and of the
 * mask. */
enum { SUM_I, SUM_P, SUM_T, SUMS };

/* Number of sums of one sample: SUMS a class, then bce and the mask. */
static inline int64_t sums_width(Dims x)
{
    return SUMS * (int64_t)x.c + 2;
}

/* Returns the score of one class, top / bottom, and its derivatives by I and P:
 * dS = (d top - S d bottom) / bottom. */
static inline double score(const RegionLoss *g, const double *sum, Coef *grad)
{
    double rest = g->r - g->alpha - g->beta;
    double top = g->r * sum[SUM_I] + g->eps;
    double bottom = rest * sum[SUM_I] + g->alpha * sum[SUM_P] +
                    g->beta * sum[SUM_T] + g->eps;
    *grad = (Coef){0};
    // no predicted and no true element, and eps = 0: score 1, gradient 0
    if (bottom == 0) return 1;
    grad->a = (g->r - top / bottom * rest) / bottom;
    grad->b = -top / bottom * g->alpha / bottom;
    return top / bottom;
}

/* Adds the scores to total[0] and their number to total[1], and writes the
 * derivatives of the scores by I and P to coef (groups,C). `groups` is the
 * number of samples, or 1 for sums over the batch. Classes that do not count
 * (background; empty classes with skip_empty) get coefficients 0. */
static inline void region_scores(const RegionLoss *g, const double *sums,
                                 int64_t groups, Dims x, Coef *coef,
                                 double total[2])
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

/* Returns dice times 1 - mean score and turns `count` coefficients of scores
 * into coefficients of the loss. Returns 0 where no class counts. */
static inline double region_loss(const RegionLoss *g, const double total[2],
                                 Coef *coef, int64_t count)
{
    if (total[1] == 0) return 0;
    double share = -g->dice / total[1];
    for (int64_t k = 0; k < count; k++) coef[k].a *= share, coef[k].b *= share;
    return g->dice * (1 - total[0] / total[1]);
}

/* Bytes of the saved coefficients (N,C) and the factor of bce. */
static inline size_t region_saved(Dims x)
{
    return (size_t)(x.n * (int64_t)x.c) * sizeof(Coef) + sizeof(double);
}

/* Computes the loss from the sums (N, sums_width) of samples, which it
 * overwrites, and fills c->saved: coefficients of each sample, equal in all
 * samples when classes are scored over the batch. Fails if the sum over ranks
 * fails. */
static inline bool region_finish(const Call *c, double *sums, double *loss)
{
    const RegionLoss g = region_of(c->attr);
    const Dims x = c->x[0]->dim;
    int64_t width = sums_width(x), groups = x.n;
    // cross entropy and the sum of the mask are always over the batch
    double bce = 0, mask = 0, total[4] = {0};

    for (int64_t n = 0; n < x.n; n++) {
        bce += sums[n * width + width - 2];
        mask += sums[n * width + width - 1];
    }

    if (!g.per_sample) {
        groups = 1; // all samples are added to the first
        for (int64_t n = 1; n < x.n; n++)
            for (int64_t i = 0; i < width; i++) sums[i] += sums[n * width + i];
        if (!sum_ranks(c, sums, width)) return false;
        bce = sums[width - 2], mask = sums[width - 1];
    }

    Coef *coef = c->saved;
    region_scores(&g, sums, groups, x, coef, total);
    if (g.per_sample) { // else `sums` are over all ranks already
        total[2] = bce, total[3] = mask;
        if (!sum_ranks(c, total, 4)) return false;
        bce = total[2], mask = total[3];
    }

    double y = region_loss(&g, total, coef, groups * x.c);
    for (int64_t n = groups; n < x.n; n++)
        memcpy(coef + n * x.c, coef, (size_t)x.c * sizeof *coef);
    double factor = mask != 0 ? g.bce / mask : 0;
    memcpy(coef + x.n * (int64_t)x.c, &factor, sizeof factor);
    *loss = y + factor * bce;
    return true;
}
#endif
