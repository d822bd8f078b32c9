/* optim.c -- the optimisers, a moving average of parameters and the sum of
 * squares of a tensor, fast.
 *
 * The same operations as in cpu/ref/optim.c, with the same bits, in vectors
 * (simd/optim.c). Bound by memory: adamw moves 28 bytes a parameter, a sum of
 * squares reads 4. No number is used twice, so a task is a contiguous range
 * that is long enough for the hardware prefetcher. */
#include "cpu/lib/kernels.h"
#include "cpu/lib/simd.h"
#include "cpu/lib/thread_pool.h"
#include "cpu/lib/window.h"

enum {
    GRAIN = 65536,     // numbers of a task: 1 MB of a step of adam
    SUM_LEAST = 16384, // of a partial sum, as in the plain loops
    PARTS = 256,       // partial sums at most, as there
};

// -- update -------------------------------------------------------------------

typedef struct Job {
    const Update *u;
    float factor[FACTOR_COUNT]; /* rounded once, as PyTorch rounds a number */
} Job;

static void update_task(void *ctx, int64_t task, int thread)
{
    const Job *j = ctx;
    const Update *u = j->u;
    int64_t from = task * GRAIN, count = least(GRAIN, u->count - from);
    const float *grad = (const float *)u->grad + from;
    float *p = (float *)u->value + from, *m = (float *)u->m + from;
    (void)thread;
    if (u->optim->kind == OPTIM_sgd)
        simd()->sgd(grad, count, j->factor, p, m);
    else
        simd()->adam(grad, count, j->factor, p, m, (float *)u->v + from);
}

bool cpu_update(void *dev, const Update *u)
{
    Job j = {.u = u};
    double exact[FACTOR_COUNT];
    CHECK(u->step >= 1);
    update_factors(u, exact);
    for (int i = 0; i < FACTOR_COUNT; i++) j.factor[i] = (float)exact[i];
    pool_run(dev, ceil_div(u->count, GRAIN), update_task, &j);
    return true;
}

// -- moving average of parameters --------------------------------------------

typedef struct BlendJob {
    float *y;
    const float *x;
    int64_t count;
    float by;
} BlendJob;

static void blend_task(void *ctx, int64_t task, int thread)
{
    const BlendJob *j = ctx;
    int64_t from = task * GRAIN;
    (void)thread;
    simd()->blend(j->x + from, least(GRAIN, j->count - from), j->by,
                  j->y + from);
}

bool cpu_blend(void *dev, void *y, const void *x, int64_t count, double by)
{
    BlendJob j = {y, x, count, (float)by};
    pool_run(dev, ceil_div(count, GRAIN), blend_task, &j);
    return true;
}

// -- sum of squares -----------------------------------------------------------

/* Partial sums, cut by `count` alone, so that any number of threads adds the
 * same numbers in the same order. */
typedef struct SquareJob {
    const float *x;
    int64_t count, grain;
    double sum[PARTS];
} SquareJob;

static void square_task(void *ctx, int64_t task, int thread)
{
    SquareJob *j = ctx;
    int64_t from = task * j->grain;
    (void)thread;
    j->sum[task] =
        simd()->sum_squares(j->x + from, least(j->grain, j->count - from));
}

/* In double, because squares of floats overflow long before their root does. */
bool cpu_sum_squares(void *dev, const void *x, int64_t count, double *out)
{
    SquareJob j = {.x = x, .count = count};
    j.grain = most(SUM_LEAST, ceil_div(count, PARTS));
    int64_t parts = ceil_div(count, j.grain);
    pool_run(dev, parts, square_task, &j);
    *out = 0;
    for (int64_t i = 0; i < parts; i++) *out += j.sum[i];
    return true;
}
