/* dice.c -- dice_loss, bce_dice and tversky of one channel, fast without mask
 * and weight; the plain loops serve the rest.
 *
 * Each sample is cut into blocks; a block gives its sums (simd/region.c), which
 * are added in the order of blocks, in double, and made a loss by region.h.
 * Backward every element is alone once the coefficients are known. Bound by the
 * exponential and the logarithm, as bce.c; errors of the sums stay below 1e-6
 * of them. */
#include "blocks.h"
#include "kernels.h"
#include "region.h"
#include "simd.h"

enum { TERMS = 4 }; /* of region_sums: I, P, T, cross entropy */

typedef struct Job {
    const Call *c;
    Overlap region;
    int64_t size, blocks; /* elements and blocks of a sample        */
    double *parts;        /* (N, blocks, TERMS), forward            */
    const Coef *coef;     /* (N), then the factor of bce, backward  */
} Job;

/* The kernels and the space of a call must decide alike. */
static bool is_fast(const Call *c)
{
    return c->x[0]->dim.c == 1 && !c->x[2] && !c->x[3] &&
           dims_equal(c->x[0]->dim, c->x[1]->dim);
}

static Job job_of(const Call *c)
{
    int64_t size = positions(c->x[0]->dim);
    return (Job){.c = c,
                 .region = region_of(c->attr),
                 .size = size,
                 .blocks = ceil_div(size, BLOCK)};
}

/* Scratch: sums (N, sums_width), then the parts they are made of. */
static Space space_of(const Call *c)
{
    Dims x = c->x[0]->dim;
    int64_t wide = sums_width(x) + job_of(c).blocks * TERMS;
    return (Space){.saved = region_saved(x),
                   .fwd = (size_t)(x.n * wide) * sizeof(double)};
}

/* Where block `task` begins, and how long it is. */
static int64_t block_of(const Job *j, int64_t task, int64_t *count)
{
    int64_t from = task % j->blocks * BLOCK;
    *count = least(BLOCK, j->size - from);
    return task / j->blocks * j->size + from;
}

static void sums_task(void *ctx, int64_t task, int thread)
{
    const Job *j = ctx;
    int64_t count, from = block_of(j, task, &count);
    (void)thread;
    simd()->region_sums(floats(j->c->x[0], from), floats(j->c->x[1], from),
                        count, (float)j->region.pos_weight, j->region.bce != 0,
                        j->parts + task * TERMS);
}

static bool region_fwd(const Call *c)
{
    Job j = job_of(c);
    Dims x = c->x[0]->dim;
    double loss, *sums = c->scratch;
    int64_t width = sums_width(x);
    j.parts = sums + x.n * width;
    pool_run(c->dev, x.n * j.blocks, sums_task, &j);
    for (int64_t n = 0; n < x.n; n++) {
        double *sum = sums + n * width;
        for (int i = 0; i < TERMS; i++) {
            sum[i] = 0;
            for (int64_t b = 0; b < j.blocks; b++)
                sum[i] += j.parts[(n * j.blocks + b) * TERMS + i];
        }
        sum[TERMS] = (double)j.size; // an absent mask is 1
    }
    if (!region_finish(c, sums, &loss)) return false;
    *floats(c->y, 0) = (float)loss;
    return true;
}

static void slope_task(void *ctx, int64_t task, int thread)
{
    const Job *j = ctx;
    const Call *c = j->c;
    int64_t count, from = block_of(j, task, &count);
    const Coef *coef = j->coef + task / j->blocks;
    double dy = *floats(c->dy, 0), bce;
    (void)thread;
    memcpy(&bce, j->coef + c->x[0]->dim.n, sizeof bce);
    const RegionSlope r = {.a = (float)(dy * coef->a),
                           .b = (float)(dy * coef->b),
                           .bce = (float)(dy * bce),
                           .weight = (float)j->region.pos_weight};
    simd()->region_slope(floats(c->x[0], from), floats(c->x[1], from), count,
                         &r, floats(c->dx[0], from), !(c->fresh & 1));
}

static bool region_bwd(const Call *c)
{
    Job j = job_of(c);
    // a target is a constant to the planner: nobody may want its gradient
    for (int i = 1; i < MAX_IN; i++) CHECK(!c->dx[i]);
    j.coef = c->saved;
    if (c->dx[0]) pool_run(c->dev, j.blocks * c->x[0]->dim.n, slope_task, &j);
    return true;
}

/* The three kernels of a row; region_of() tells the rows apart. */
#define REGION_LOSS(name)                                          \
    Space cpu_##name##_space(const Call *c)                        \
    {                                                              \
        return is_fast(c) ? space_of(c) : plain_##name##_space(c); \
    }                                                              \
    bool cpu_##name##_fwd(const Call *c)                           \
    {                                                              \
        return is_fast(c) ? region_fwd(c) : plain_##name##_fwd(c); \
    }                                                              \
    bool cpu_##name##_bwd(const Call *c)                           \
    {                                                              \
        return is_fast(c) ? region_bwd(c) : plain_##name##_bwd(c); \
    }

REGION_LOSS(dice_loss)
REGION_LOSS(bce_dice)
REGION_LOSS(tversky)
