/* global_pool.c -- mean or maximum over all positions within the length.
 *
 * y[n,c] over x[n,p,c], p below the sample's length; 0 if the length is 0. The
 * position of the maximum (int64, the first of equal ones; the last NaN wins
 * over everything) is saved for the backward run. An item is a block of
 * channels of a sample and sums in the order of positions: no partial sums, and
 * no more threads than there are items. */
#include "cpu/lib/plain.h"
#include "engine/graph/length.h"

enum { BLOCK = 64 }; // channels of a task, summed on the stack

/* Positions of sample n within its length. */
static int64_t own(const Call *c, int64_t n)
{
    return length_of(c->x[1], n, positions(c->x[0]->dim));
}

/* Item i is a block of channels of one sample: returns its first channel and
 * sets the sample and the number of channels. */
static int64_t block_of(Dims x, int64_t i, int64_t *n, int64_t *nc)
{
    int64_t blocks = ceil_div(x.c, BLOCK), c0 = i % blocks * BLOCK;
    *n = i / blocks;
    *nc = least(BLOCK, x.c - c0);
    return c0;
}

/* Runs fn over all (sample, block of channels). */
static void run_blocks(const Call *c, RangeFn *fn)
{
    Dims x = c->x[0]->dim;
    range_run(c, x.n * ceil_div(x.c, BLOCK), positions(x) * least(x.c, BLOCK),
              fn, (void *)c);
}

/* Forward: y = sum / number of positions. */
static void mean_blocks(void *ctx, int64_t from, int64_t to)
{
    const Call *c = ctx;
    Dims s = c->x[0]->dim;

    for (int64_t i = from; i < to; i++) {
        int64_t n, nc, c0 = block_of(s, i, &n, &nc);
        double sum[BLOCK] = {0};
        int64_t count = own(c, n);
        for (int64_t p = 0; p < count; p++)
            axpy(sum, 1, values(c->x[0]) + (n * positions(s) + p) * s.c + c0,
                 nc);
        for (int64_t k = 0; k < nc; k++)
            values(c->y)[n * s.c + c0 + k] =
                (real)(sum[k] / (double)most(1, count));
    }
}

/* Forward: the maximum and its position; `where` is Space.saved. */
static void max_blocks(void *ctx, int64_t from, int64_t to)
{
    const Call *c = ctx;
    Dims s = c->x[0]->dim;

    for (int64_t i = from; i < to; i++) {
        int64_t n, nc, c0 = block_of(s, i, &n, &nc);
        const real *x = values(c->x[0]) + n * positions(s) * s.c + c0;
        real *y = values(c->y) + n * s.c + c0;
        int64_t *where = (int64_t *)c->saved + n * s.c + c0;
        int64_t count = own(c, n);
        for (int64_t k = 0; k < nc; k++)
            y[k] = count ? x[k] : 0, where[k] = count ? 0 : -1;
        for (int64_t p = 1; p < count; p++) {
            // without branches, for vectors; v != v is NaN
            for (int64_t k = 0; k < nc; k++) {
                real v = x[p * s.c + k];
                bool wins = v > y[k] || v != v;
                y[k] = wins ? v : y[k];
                where[k] = wins ? p : where[k];
            }
        }
    }
}

/* Rows (n,p) of dx: the same for all positions within the length. */
static void mean_bwd(void *ctx, int64_t from, int64_t to)
{
    const Call *c = ctx;
    Dims s = c->x[0]->dim;
    for (int64_t i = from; i < to; i++) {
        int64_t n = i / positions(s), count = own(c, n);
        double share = i % positions(s) < count ? 1 / (double)count : 0;
        const real *dy = values(c->dy) + n * s.c;
        real *dx = values(c->dx[0]) + i * s.c;
        for (int64_t k = 0; k < s.c; k++)
            put(&dx[k], share ? dy[k] * share : 0, is_fresh(c, 0));
    }
}

/* Rows (n,p) of dx: dy at the position of the maximum, else 0. */
static void max_bwd(void *ctx, int64_t from, int64_t to)
{
    const Call *c = ctx;
    Dims s = c->x[0]->dim;
    for (int64_t i = from; i < to; i++) {
        int64_t n = i / positions(s), p = i % positions(s);
        const int64_t *where = (const int64_t *)c->saved + n * s.c;
        const real *dy = values(c->dy) + n * s.c;
        real *dx = values(c->dx[0]) + i * s.c;
        for (int64_t k = 0; k < s.c; k++)
            put(&dx[k], where[k] == p ? dy[k] : 0, is_fresh(c, 0));
    }
}

/* The mean needs no space here; other backends have partial sums. */
Space KERNEL(global_avgpool_space)(const Call *c)
{
    (void)c;
    return (Space){0};
}

bool KERNEL(global_avgpool_fwd)(const Call *c)
{
    run_blocks(c, mean_blocks);
    return true;
}

/* Backward runs are cut by rows: each task writes its own. */
bool KERNEL(global_avgpool_bwd)(const Call *c)
{
    Dims s = c->x[0]->dim;
    if (c->dx[0]) range_run(c, rows(s), s.c, mean_bwd, (void *)c);
    return true;
}

/* A position may be beyond 2^31: int64. */
Space KERNEL(global_maxpool_space)(const Call *c)
{
    return (Space){.saved = (size_t)numel(c->y->dim) * sizeof(int64_t)};
}

bool KERNEL(global_maxpool_fwd)(const Call *c)
{
    run_blocks(c, max_blocks);
    return true;
}

bool KERNEL(global_maxpool_bwd)(const Call *c)
{
    Dims s = c->x[0]->dim;
    if (c->dx[0]) range_run(c, rows(s), s.c, max_bwd, (void *)c);
    return true;
}
