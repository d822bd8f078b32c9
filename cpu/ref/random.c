/* random.c -- normal and uniform: new random numbers in every training step.
 *
 * Element i = position * C + channel of a sample gets draw i % 4 of block i / 4
 * of its sample; the counters are those of dropout with another stream. All
 * arithmetic is in float, for ref too, so every backend makes the same bits. In
 * evaluation every element is the mean of the distribution. */
#include "cpu/lib/plain.h"
#include "engine/base/normal.h"

enum { DRAWS = 4 }; /* in a block of the generator */

typedef struct Job {
    const Call *c;
    int64_t elements, blocks; /* of a sample */
} Job;

/* An item is a block of draws. */
static void draw_blocks(void *ctx, int64_t from, int64_t to)
{
    const Job *j = ctx;
    const Attr *a = j->c->attr;
    for (int64_t item = from; item < to; item++) {
        const int64_t n = item / j->blocks, block = item % j->blocks;
        const Rng r = {.seed = j->c->step->seed,
                       .stream = RNG_NOISE,
                       .op = (uint16_t)j->c->node,
                       .epoch = (uint32_t)j->c->step->count,
                       .sample = (uint32_t)sample_number(j->c, n)};
        float drawn[DRAWS];
        if (a->op == OP_normal)
            normal_four(&r, (uint32_t)block, a->normal.mean, a->normal.std,
                        drawn);
        else
            rng_range4(&r, (uint32_t)block, a->uniform.low, a->uniform.high,
                       drawn);
        const int64_t left = j->elements - block * DRAWS;
        real *y = values(j->c->y) + n * j->elements + block * DRAWS;
        for (int64_t i = 0; i < least(DRAWS, left); i++) y[i] = drawn[i];
    }
}

/* `mean`: of the distribution. */
static bool draw(const Call *c, float mean)
{
    const Dims s = c->y->dim;
    Job j = {.c = c, .elements = numel(s) / s.n};
    j.blocks = ceil_div(j.elements, DRAWS);
    if (c->train) {
        range_run(c, s.n * j.blocks, 64, draw_blocks, &j);
        return true;
    }
    real *y = values(c->y);
    for (int64_t i = 0; i < numel(s); i++) y[i] = mean;
    return true;
}

bool KERNEL(normal_fwd)(const Call *c)
{
    return draw(c, c->attr->normal.mean);
}

bool KERNEL(uniform_fwd)(const Call *c)
{
    return draw(c, uniform_mean(c->attr->uniform.low, c->attr->uniform.high));
}
