/* dice.c -- dice_loss, bce_dice and tversky, fast without weight, for one
 * channel without a mask, or for few channels without cross entropy and with no
 * mask or one mask for all channels. The plain loops take the other calls.
 *
 * Each sample is cut into blocks. A block gives partial sums (simd/dice.c, for
 * several channels simd/classes.c), which are added in the order of blocks, in
 * double; dice.h computes the loss from the sums. Backward, once the
 * coefficients are known, positions are independent. Bound by the exponential
 * and the logarithm, as bce.c; the relative error of the sums is below 1e-6. */
#include "cpu/lib/dice.h"
#include "cpu/lib/blocks.h"
#include "cpu/lib/kernels.h"
#include "cpu/lib/simd.h"
#include "cpu/ops/classes.h"

typedef struct Job {
    const Call *c;
    RegionLoss region;
    int64_t size, block; /* positions of a sample; of a block */
    int64_t blocks;      /* of a sample */
    double *parts;       /* (N, blocks, sums_width), forward */
    const Coef *coef;    /* (N,C), then the factor of bce, backward */
} Job;

/* Space and kernels of a call all test this function, so they agree. */
static bool is_fast(const Call *c)
{
    const Dims x = c->x[0]->dim, t = c->x[1]->dim;
    if (c->x[3] || !(dims_equal(x, t) || is_row(x, t))) return false;
    if (x.c == 1) return !c->x[2];
    return has_few_classes(c) && region_of(c->attr).bce == 0;
}

static Job job_of(const Call *c)
{
    int64_t size = positions(c->x[0]->dim);
    int64_t block = c->x[0]->dim.c == 1 ? BLOCK : CLASS_ROWS;
    return (Job){.c = c,
                 .region = region_of(c->attr),
                 .size = size,
                 .block = block,
                 .blocks = ceil_div(size, block)};
}

/* Scratch: sums (N, sums_width), then the partial sums of blocks. */
static Space space_of(const Call *c)
{
    Dims x = c->x[0]->dim;
    int64_t wide = sums_width(x) * (1 + job_of(c).blocks);
    return (Space){.saved = region_saved(x),
                   .fwd = (size_t)(x.n * wide) * sizeof(double)};
}

/* Returns the first position of block `task` and sets its number of
 * positions. */
static int64_t block_of(const Job *j, int64_t task, int64_t *count)
{
    int64_t from = task % j->blocks * j->block;
    *count = least(j->block, j->size - from);
    return task / j->blocks * j->size + from;
}

static void sums_task(void *ctx, int64_t task, int thread)
{
    const Job *j = ctx;
    const Dims x = j->c->x[0]->dim;
    int64_t count, from = block_of(j, task, &count);
    double *part = j->parts + task * sums_width(x);
    double *bce = part + SUMS * x.c, *mask = bce + 1;
    (void)thread;

    if (x.c > 1) {
        const Classes r = classes_at(j->c, from, count);
        simd()->class_region_sums(&r, part);
        *mask = *bce * x.c; // one mask value for all x.c channels
        *bce = 0;
    } else {
        simd()->region_sums(floats(j->c->x[0], from), floats(j->c->x[1], from),
                            count, (float)j->region.pos_weight,
                            j->region.bce != 0, part);
        *mask = (double)count; // an absent mask is 1
    }
}

static bool region_fwd(const Call *c)
{
    Job j = job_of(c);
    Dims x = c->x[0]->dim;
    double loss, *sums = c->scratch;
    int64_t width = sums_width(x);

    j.parts = sums + x.n * width;
    pool_run(c->dev, x.n * j.blocks, sums_task, &j);

    for (int64_t n = 0; n < x.n; n++)
        for (int64_t i = 0; i < width; i++) {
            double *sum = sums + n * width + i;
            *sum = 0;
            for (int64_t b = 0; b < j.blocks; b++)
                *sum += j.parts[(n * j.blocks + b) * width + i];
        }

    if (!region_finish(c, sums, &loss)) return false;
    *floats(c->y, 0) = (float)loss;
    return true;
}

/* The gradient of several channels: the coefficients of a sample, times dy. */
static void grad_classes(const Job *j, const Coef *coef, int64_t from,
                         int64_t count)
{
    const Classes r = classes_at(j->c, from, count);
    double dy = *floats(j->c->dy, 0);
    float ab[2 * CLASSES_MAX];
    for (int i = 0; i < r.classes; i++) {
        ab[i] = (float)(dy * coef[i].a);
        ab[r.classes + i] = (float)(dy * coef[i].b);
    }
    simd()->class_region_grad(&r, ab, floats(j->c->dx[0], from * r.classes),
                              !(j->c->fresh & 1));
}

static void grad_task(void *ctx, int64_t task, int thread)
{
    const Job *j = ctx;
    const Call *c = j->c;
    const Dims x = c->x[0]->dim;
    int64_t count, from = block_of(j, task, &count);
    const Coef *coef = j->coef + task / j->blocks * x.c;
    double dy = *floats(c->dy, 0), bce;

    (void)thread;
    if (x.c > 1) {
        grad_classes(j, coef, from, count);
        return;
    }
    memcpy(&bce, j->coef + x.n, sizeof bce);
    const RegionGrad r = {.a = (float)(dy * coef->a),
                          .b = (float)(dy * coef->b),
                          .bce = (float)(dy * bce),
                          .weight = (float)j->region.pos_weight};
    simd()->region_grad(floats(c->x[0], from), floats(c->x[1], from), count, &r,
                        floats(c->dx[0], from), !(c->fresh & 1));
}

static bool region_bwd(const Call *c)
{
    Job j = job_of(c);
    // a target is a constant for the planner: its gradient is never wanted
    for (int i = 1; i < MAX_IN; i++) CHECK(!c->dx[i]);
    j.coef = c->saved;
    if (c->dx[0]) pool_run(c->dev, j.blocks * c->x[0]->dim.n, grad_task, &j);
    return true;
}

/* The three operators; region_of() selects the loss. */
FAST_OR_PLAIN(dice_loss, region)
FAST_OR_PLAIN(bce_dice, region)
FAST_OR_PLAIN(tversky, region)
