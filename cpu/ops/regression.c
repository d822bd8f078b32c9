/* regression.c -- mae, mse, huber and mean, fast where mask and weight are
 * absent or have the extents of x; the plain loops take the other calls.
 *
 * Bound by memory: a few operations an element, in vectors (simd/regression.c),
 * where the plain loops read mask and weight one number at a time. Sums are in
 * double, and blocks are added in order; a gradient has the bits of the plain
 * loop. */
#include "cpu/lib/blocks.h"
#include "cpu/lib/kernels.h"
#include "cpu/lib/simd.h"

/* Target, mask and weight are not broadcast. Space and kernels all test this
 * function, so they agree. */
static bool is_fast(const Call *c)
{
    for (int i = 1; i < MAX_IN; i++)
        if (c->x[i] && !dims_equal(c->x[0]->dim, c->x[i]->dim)) return false;
    return true;
}

/* Scratch: forward the sums of blocks of m q l, then those of the mask.
 * Backward the sums of blocks of the mask; the factor of the gradient takes the
 * place of the first. */
static Space space_of(const Call *c)
{
    size_t blocks = (size_t)ceil_div(numel(c->x[0]->dim), BLOCK);
    size_t mask = c->x[2] ? blocks : 1;
    return (Space){.fwd = (blocks + mask) * sizeof(double),
                   .bwd = mask * sizeof(double)};
}

/* The operands from element `from` on. */
static Errors errors_of(const Call *c, int64_t from)
{
    Errors e = {.x = floats(c->x[0], from),
                .t = floats(c->x[1], from),
                .m = c->x[2] ? floats(c->x[2], from) : NULL,
                .q = c->x[3] ? floats(c->x[3], from) : NULL};

    switch (call_op(c)) {
    case OP_mae:
        e.kind = ERROR_MAE;
        break;
    case OP_mse:
        e.kind = ERROR_MSE;
        break;
    case OP_mean:
        e.kind = ERROR_MEAN;
        break;
    default:
        e.kind = ERROR_HUBER, e.delta = c->attr->huber.delta;
    }
    return e;
}

/* Computes both sums of one block, each into its own slot of scratch. */
static void sum_block(const Call *c, int64_t from, int64_t count)
{
    int64_t blocks = ceil_div(numel(c->x[0]->dim), BLOCK);
    double *sum = (double *)c->scratch + from / BLOCK;
    const Errors e = errors_of(c, from);
    sum[0] = simd()->error_sum(&e, count);
    if (e.m) sum[blocks] = simd()->sum(e.m, count);
}

static bool regression_fwd(const Call *c)
{
    int64_t count = numel(c->x[0]->dim), blocks = ceil_div(count, BLOCK);
    const double *part = c->scratch;
    blocks_run(c, count, sum_block);
    double sum[2] = {blocks_sum(part, blocks), (double)count};
    if (c->x[2]) sum[1] = blocks_sum(part + blocks, blocks);
    if (!sum_ranks(c, sum, 2)) return false;
    *floats(c->y, 0) = (float)(sum[1] != 0 ? sum[0] / sum[1] : 0);
    return true;
}

static void mask_block(const Call *c, int64_t from, int64_t count)
{
    double *sum = (double *)c->scratch + from / BLOCK;
    *sum = simd()->sum(floats(c->x[2], from), count);
}

static void grad_block(const Call *c, int64_t from, int64_t count)
{
    const Errors e = errors_of(c, from);
    simd()->error_grad(&e, count, *(const double *)c->scratch,
                       floats(c->dx[0], from), !(c->fresh & 1));
}

/* The mask is summed again: the forward run saves nothing. */
static bool regression_bwd(const Call *c)
{
    // a target is a constant for the planner: its gradient is never wanted
    for (int i = 1; i < MAX_IN; i++) CHECK(!c->dx[i]);
    if (!c->dx[0]) return true;
    int64_t count = numel(c->x[0]->dim);
    double total = (double)count;
    if (c->x[2]) {
        blocks_run(c, count, mask_block);
        total = blocks_sum(c->scratch, ceil_div(count, BLOCK));
    }
    if (!sum_ranks(c, &total, 1)) return false;
    *(double *)c->scratch = total != 0 ? *floats(c->dy, 0) / total : 0;
    blocks_run(c, count, grad_block);
    return true;
}

/* The operators; errors_of() selects the loss. */
FAST_OR_PLAIN(mae, regression)
FAST_OR_PLAIN(mse, regression)
FAST_OR_PLAIN(huber, regression)
FAST_OR_PLAIN(mean, regression)
