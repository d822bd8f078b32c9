/* bce.c -- sigmoid cross entropy of logits, fast without mask and weight; the
 * plain loops take the other calls.
 *
 * Bound by the exponential and the logarithm: some 40 operations an element in
 * vectors (simd/bce.c), where the plain loops call exp and log1p in double.
 * Sums over 64 vectors are in float, sums of these in double; blocks are added
 * in order. The error is below 1e-6 of the loss. */
#include "cpu/lib/blocks.h"
#include "cpu/lib/kernels.h"
#include "cpu/lib/simd.h"

/* The mean is over all elements: no mask, no weight, target not broadcast.
 * Space and kernels all test this function, so they agree. */
static bool is_fast(const Call *c)
{
    return !c->x[2] && !c->x[3] && dims_equal(c->x[0]->dim, c->x[1]->dim);
}

Space cpu_bce_space(const Call *c)
{
    if (!is_fast(c)) return plain_bce_space(c);
    int64_t blocks = ceil_div(numel(c->x[0]->dim), BLOCK);
    return (Space){.fwd = (size_t)blocks * sizeof(double),
                   .bwd = sizeof(double)};
}

/* Sums one block into its own slot of scratch; cpu_bce_fwd adds the slots in
 * order. */
static void sum_block(const Call *c, int64_t from, int64_t count)
{
    double *sum = (double *)c->scratch + from / BLOCK;
    *sum = simd()->bce_sum(floats(c->x[0], from), floats(c->x[1], from), count,
                           c->attr->bce.pos_weight);
}

bool cpu_bce_fwd(const Call *c)
{
    if (!is_fast(c)) return plain_bce_fwd(c);
    int64_t count = numel(c->x[0]->dim);
    blocks_run(c, count, sum_block);
    double sum[2] = {blocks_sum(c->scratch, ceil_div(count, BLOCK)),
                     (double)count};
    if (!sum_ranks(c, sum, 2)) return false;
    *floats(c->y, 0) = (float)(sum[0] / sum[1]);
    return true;
}

/* dx = dy / count, which is in scratch, times the derivative of each
 * element. */
static void grad_block(const Call *c, int64_t from, int64_t count)
{
    float factor = *(const float *)c->scratch;
    simd()->bce_grad(floats(c->x[0], from), floats(c->x[1], from), count,
                     c->attr->bce.pos_weight, factor, floats(c->dx[0], from),
                     !(c->fresh & 1));
}

bool cpu_bce_bwd(const Call *c)
{
    if (!is_fast(c)) return plain_bce_bwd(c);
    // a target is a constant for the planner: its gradient is never wanted
    for (int i = 1; i < MAX_IN; i++) CHECK(!c->dx[i]);
    if (!c->dx[0]) return true;
    double count = (double)numel(c->x[0]->dim);
    if (!sum_ranks(c, &count, 1)) return false;
    *(float *)c->scratch = *floats(c->dy, 0) / (float)count;
    blocks_run(c, numel(c->x[0]->dim), grad_block);
    return true;
}
