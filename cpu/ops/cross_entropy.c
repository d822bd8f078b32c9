/* cross_entropy.c -- cross entropy, fast for few classes without weight, with
 * no mask or one of the target's extents; the plain loops take the other calls.
 *
 * Bound by the exponential (simd/classes.c). Blocks of rows are summed in
 * vectors, in double, and added in order. The error is below 1e-6 of the
 * loss. */
#include "cpu/lib/kernels.h"
#include "cpu/ops/classes.h"
#include <math.h>

/* A float represents every integer up to this one. */
enum { WHOLE_MAX = 1 << 24 };

/* Space and kernels of a call all test this function, so they agree. */
static bool is_fast(const Call *c)
{
    const int ignore = c->attr->cross_entropy.ignore;
    return !c->x[3] && has_few_classes(c) &&
           is_row(c->x[0]->dim, c->x[1]->dim) && ignore >= -WHOLE_MAX &&
           ignore <= WHOLE_MAX;
}

static int64_t rows_of(const Call *c)
{
    return c->x[0]->dim.n * positions(c->x[0]->dim);
}

static int64_t tasks_of(const Call *c)
{
    return ceil_div(rows_of(c), CLASS_ROWS);
}

/* Scratch forward: sums of loss and mask of each block. Backward: sums of the
 * mask, then the factor of the gradient in place of the first. */
Space cpu_cross_entropy_space(const Call *c)
{
    if (!is_fast(c)) return plain_cross_entropy_space(c);
    size_t blocks = (size_t)tasks_of(c);
    return (Space){.fwd = 2 * blocks * sizeof(double),
                   .bwd = blocks * sizeof(double)};
}

/* The arguments for the rows of a task. */
static Classes block_of(const Call *c, int64_t task)
{
    int64_t from = task * CLASS_ROWS;
    Classes r = classes_at(c, from, least(CLASS_ROWS, rows_of(c) - from));
    r.ignore = (float)c->attr->cross_entropy.ignore;
    return r;
}

static void sums_task(void *ctx, int64_t task, int thread)
{
    const Call *c = ctx;
    const Classes r = block_of(c, task);
    (void)thread;
    simd()->class_sums(&r, (double *)c->scratch + 2 * task);
}

bool cpu_cross_entropy_fwd(const Call *c)
{
    if (!is_fast(c)) return plain_cross_entropy_fwd(c);
    const double *part = c->scratch;
    double sum[2] = {0};
    pool_run(c->dev, tasks_of(c), sums_task, (void *)c);
    for (int64_t i = 0; i < 2 * tasks_of(c); i++) sum[i % 2] += part[i];
    bool bad = isnan(sum[0]); // a wrong target of this rank, not of another
    if (!sum_ranks(c, sum, 2)) return false;
    *floats(c->y, 0) = (float)(sum[1] != 0 ? sum[0] / sum[1] : 0);
    return !bad || plain_cross_entropy_check(c);
}

/* Sums the mask alone: fwd saves nothing. */
static void count_task(void *ctx, int64_t task, int thread)
{
    const Call *c = ctx;
    const Classes r = block_of(c, task);
    (void)thread;
    ((double *)c->scratch)[task] = simd()->class_count(&r);
}

static void grad_task(void *ctx, int64_t task, int thread)
{
    const Call *c = ctx;
    const Classes r = block_of(c, task);
    int64_t at = task * CLASS_ROWS * r.classes;
    (void)thread;
    simd()->class_grad(&r, *(const float *)c->scratch, floats(c->dx[0], at),
                       !(c->fresh & 1));
}

bool cpu_cross_entropy_bwd(const Call *c)
{
    if (!is_fast(c)) return plain_cross_entropy_bwd(c);
    // a target is a constant for the planner: its gradient is never wanted
    for (int i = 1; i < MAX_IN; i++) CHECK(!c->dx[i]);
    if (!c->dx[0]) return true;
    pool_run(c->dev, tasks_of(c), count_task, (void *)c);
    double total = blocks_sum(c->scratch, tasks_of(c));
    if (!sum_ranks(c, &total, 1)) return false;
    *(float *)c->scratch = (float)(total != 0 ? *floats(c->dy, 0) / total : 0);
    pool_run(c->dev, tasks_of(c), grad_task, (void *)c);
    return true;
}
