/* dropout.c -- elements, or whole channels of a sample, zeroed at random.
 *
 * Whether an element is kept is a pure function of seed, optimiser step, node,
 * sample and index; it is drawn again in the backward run, and nothing is
 * stored. index = position * C + channel in a sample's memory, or the channel
 * number for spatial_dropout. An element is kept if its draw, in [0, 1), is at
 * least p: p = 0 keeps all and p = 1 nothing. dx = dy with the same zeros and
 * factor, so one loop serves both directions; `to` may be the memory of
 * `from`. */
#include "cpu/lib/plain.h"
#include "engine/base/rng.h"

enum { DRAWS = 4 }; /* in a block of the generator */

typedef struct Job {
    const Call *c;
    const real *from;
    real *to;
    bool fresh;
    float p;
    double factor;
    int64_t draws, blocks; /* of a sample: elements or channels; blocks of
                            * DRAWS */
} Job;

/* Draws block number `item` and sets factor[0 .. DRAWS-1], by which its
 * elements are multiplied. The counters of the generator are those of the
 * header, so any thread may draw any block, in any order, twice. */
static void draw(const Job *j, int64_t item, double factor[DRAWS])
{
    Rng r = {.seed = j->c->step->seed,
             .stream = RNG_DROPOUT,
             .op = (uint16_t)j->c->node,
             .epoch = (uint32_t)j->c->step->count,
             .sample = (uint32_t)sample_number(j->c, item / j->blocks)};
    uint32_t word[DRAWS];
    rng_block(&r, (uint32_t)(item % j->blocks), word);
    for (int i = 0; i < DRAWS; i++)
        factor[i] = rng_unit(word[i]) >= j->p ? j->factor : 0;
}

/* Writes one element, in either direction. */
static void apply(const Job *j, int64_t i, double factor)
{
    // a dropped element is 0 even if it is not finite
    put(j->to + i, factor == 0 ? 0 : j->from[i] * factor, j->fresh);
}

/* An item is DRAWS neighbours in a sample's memory. */
static void drop_elements(void *ctx, int64_t from, int64_t to)
{
    const Job *j = ctx;
    for (int64_t item = from; item < to; item++) {
        double factor[DRAWS];
        draw(j, item, factor);
        int64_t index = item % j->blocks * DRAWS;
        int64_t base = item / j->blocks * j->draws + index;
        int64_t count = least(DRAWS, j->draws - index);
        for (int64_t i = 0; i < count; i++) apply(j, base + i, factor[i]);
    }
}

/* An item is DRAWS channels of a sample, at all its positions. */
static void drop_channels(void *ctx, int64_t from, int64_t to)
{
    const Job *j = ctx;
    int64_t p = positions(j->c->y->dim);

    for (int64_t item = from; item < to; item++) {
        double factor[DRAWS];
        draw(j, item, factor);
        int64_t index = item % j->blocks * DRAWS;
        int64_t base = item / j->blocks * j->draws * p + index;
        int64_t count = least(DRAWS, j->draws - index);
        for (int64_t row = 0; row < p; row++)
            for (int64_t i = 0; i < count; i++)
                apply(j, base + row * j->draws + i, factor[i]);
    }
}

/* Evaluation: nothing is dropped or scaled. */
static void copy(void *ctx, int64_t from, int64_t to)
{
    const Job *j = ctx;
    for (int64_t i = from; i < to; i++) apply(j, i, 1);
}

/* Forward: from x to y. Backward: from dy to dx[0]. */
static bool drop(const Call *c, const Tensor *from, const Tensor *to,
                 bool fresh)
{
    Dims s = c->y->dim;
    bool spatial = c->attr->op == OP_spatial_dropout;
    Job j = {.c = c, .from = values(from), .to = values(to), .fresh = fresh};

    if (!to) return true;
    if (!c->train) {
        range_run(c, numel(s), 1, copy, &j);
        return true;
    }
    j.p = spatial ? c->attr->spatial_dropout.p : c->attr->dropout.p;

    // infinite for p = 1, but then it is never used
    j.factor = 1 / (1 - (double)j.p);
    j.draws = spatial ? s.c : positions(s) * s.c;
    j.blocks = ceil_div(j.draws, DRAWS);
    if (spatial)
        range_run(c, s.n * j.blocks, DRAWS * positions(s), drop_channels, &j);
    else
        range_run(c, s.n * j.blocks, 32, drop_elements, &j);
    return true;
}

bool KERNEL(dropout_fwd)(const Call *c)
{
    return drop(c, c->x[0], c->y, true);
}

bool KERNEL(dropout_bwd)(const Call *c)
{
    return drop(c, c->dy, c->dx[0], is_fresh(c, 0));
}

bool KERNEL(spatial_dropout_fwd)(const Call *c)
{
    return drop(c, c->x[0], c->y, true);
}

bool KERNEL(spatial_dropout_bwd)(const Call *c)
{
    return drop(c, c->dy, c->dx[0], is_fresh(c, 0));
}
