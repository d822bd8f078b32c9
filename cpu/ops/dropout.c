/* dropout.c -- dropout and spatial_dropout in training, with the draws and the
 * bits of the plain loops; cpu/ref/dropout.c says which draw belongs to which
 * element.
 *
 * A task draws some words of the generator, which stay in L1, and applies them
 * to their elements (simd/random.c). Evaluation, without draws, is left to the
 * plain loops. */
#include "cpu/lib/blocks.h"
#include "cpu/lib/kernels.h"
#include "cpu/lib/simd.h"

/* Draws that a task holds at a time, whole blocks of 4. */
enum { WORDS = 1024 };

typedef struct Job {
    const Call *c;
    const float *from;
    float *to;
    bool add;
    int32_t least; /* the least 24 bits of a draw that keeps an element */
    double factor; /* factor of kept elements */
    int64_t rows;  /* rows of a sample with the same draws: positions, or 1 */
    int64_t draws; /* draws of a row */
    int64_t high, wide, tasks; /* rows and draws of a task; tasks of a sample */
} Job;

/* A task with a draw per channel: `high` positions of a sample, which use the
 * same draws. A task with a draw per element, where a sample is one row: `wide`
 * elements. */
static void drop_task(void *ctx, int64_t task, int thread)
{
    const Job *j = ctx;
    int64_t n = task / j->tasks, part = task % j->tasks;
    int64_t row = j->rows > 1 ? part * j->high : 0;
    int64_t from = j->rows > 1 ? 0 : part * j->wide;
    int64_t to = least(from + j->wide, j->draws);
    int64_t rows = least(j->high, j->rows - row);
    const Rng r = {.seed = j->c->step->seed,
                   .stream = RNG_DROPOUT,
                   .op = (uint16_t)j->c->node,
                   .epoch = (uint32_t)j->c->step->count,
                   .sample = (uint32_t)sample_number(j->c, n)};
    uint32_t word[WORDS];
    (void)thread;

    for (; from < to; from += WORDS) {
        int64_t count = least(WORDS, to - from);
        int64_t at = (n * j->rows + row) * j->draws + from;
        simd()->random_words(&r, (uint32_t)(from / 4), ceil_div(count, 4),
                             word);
        simd()->drop(word, j->least, j->factor, j->from + at, rows, count,
                     j->draws, j->to + at, j->add);
    }
}

/* Forward: from x to y. Backward: from dy to dx[0]. */
static bool drop(const Call *c, const Tensor *from, const Tensor *to, bool add)
{
    const Dims s = c->y->dim;
    const bool spatial = call_op(c) == OP_spatial_dropout;
    const double p = spatial ? c->attr->spatial_dropout.p : c->attr->dropout.p;
    Job j = {.c = c,
             .from = floats(from, 0),
             .to = floats(to, 0),
             .add = add,
             // a draw is a multiple of 2^-24, so this is draw >= p
             .least = (int32_t)ceil(p * 16777216),
             // with p = 1 nothing is kept
             .factor = p < 1 ? 1 / (1 - p) : 0,
             .rows = spatial ? positions(s) : 1,
             .draws = spatial ? s.c : positions(s) * s.c};

    j.wide = j.rows > 1 ? j.draws : BLOCK;
    j.high = most(1, BLOCK / j.draws);
    j.tasks = j.rows > 1 ? ceil_div(j.rows, j.high) : ceil_div(j.draws, BLOCK);
    pool_run(c->dev, s.n * j.tasks, drop_task, &j);
    return true;
}

bool cpu_dropout_fwd(const Call *c)
{
    if (!c->train) return plain_dropout_fwd(c);
    return drop(c, c->x[0], c->y, false);
}

bool cpu_dropout_bwd(const Call *c)
{
    if (!c->train) return plain_dropout_bwd(c);
    return !c->dx[0] || drop(c, c->dy, c->dx[0], !(c->fresh & 1));
}

bool cpu_spatial_dropout_fwd(const Call *c)
{
    if (!c->train) return plain_spatial_dropout_fwd(c);
    return drop(c, c->x[0], c->y, false);
}

bool cpu_spatial_dropout_bwd(const Call *c)
{
    if (!c->train) return plain_spatial_dropout_bwd(c);
    return !c->dx[0] || drop(c, c->dy, c->dx[0], !(c->fresh & 1));
}
