/* norm_layer.c -- layer normalisation, fast.
 *
 * Every row of channels has its own mean and variance. Rows are cut into blocks
 * by shapes alone, and tasks are independent: simd/norm_layer.c computes the
 * statistics of some rows and applies them while the rows are in L1. Bound by
 * memory: forward reads x once and writes y, backward reads x and dy once and
 * writes dx.
 *
 * The gradients of gamma and beta are sums over all rows: each block has
 * partial sums, chains of f32 additions over at most its rows, which are added
 * in double, in the order of blocks.
 *
 * Saved: the mean of each row, as the sum of two floats that keeps the digits
 * of x - mean, and its rstd. */
#include "cpu/lib/blocks.h"
#include "cpu/lib/kernels.h"
#include "cpu/lib/norm.h"

enum { SLICE = 256 }; // channels of one task of join_task

typedef struct Norm {
    const Call *c;
    RowNorm all;           // over all rows
    int64_t block, blocks; // rows of a block; number of blocks
    float *parts;          // (blocks, 2, C): of dgamma and dbeta; or NULL
} Norm;

static Norm norm_of(const Call *c)
{
    Dims s = c->x[0]->dim;
    Norm m = {.c = c};
    RowNorm *all = &m.all;

    all->rows = s.n * positions(s), all->channels = s.c;
    all->eps = c->attr->layer_norm.eps;
    m.block = norm_block(s.c);
    m.blocks = ceil_div(all->rows, m.block);
    if (!c->saved) return m; // only extents are known yet
    all->x = floats(c->x[0], 0);
    if (c->x[1]) all->gamma = floats(c->x[1], 0);
    if (c->x[2]) all->beta = floats(c->x[2], 0);
    all->hi = c->saved;
    all->lo = all->hi + all->rows;
    all->rstd = all->lo + all->rows;
    if (c->dx[1] || c->dx[2]) m.parts = c->scratch;
    return m;
}

Space cpu_layer_norm_space(const Call *c)
{
    Norm m = norm_of(c);
    Space s = {.saved = (size_t)(3 * m.all.rows) * sizeof(float)};
    if (c->dx[1] || c->dx[2])
        s.bwd = (size_t)(2 * m.blocks * m.all.channels) * sizeof(float);
    return s;
}

/* Returns the rows of one block; *from: index of its first element. */
static RowNorm rows_of(const Norm *m, int64_t task, int64_t *from)
{
    RowNorm r = m->all;
    int64_t row = task * m->block;
    *from = row * r.channels;
    r.x += *from;
    r.hi += row, r.lo += row, r.rstd += row;
    r.rows = least(m->block, r.rows - row);
    return r;
}

static void value_task(void *ctx, int64_t task, int thread)
{
    const Norm *m = ctx;
    int64_t from;
    RowNorm r = rows_of(m, task, &from);
    (void)thread;
    simd()->row_norm(&r, floats(m->c->y, from));
}

bool cpu_layer_norm_fwd(const Call *c)
{
    Norm m = norm_of(c);
    pool_run(c->dev, m.blocks, value_task, &m);
    return true;
}

/* dx of one block, and its partial sums. */
static void grad_task(void *ctx, int64_t task, int thread)
{
    const Norm *m = ctx;
    const Call *c = m->c;
    int64_t from;
    RowNorm r = rows_of(m, task, &from);
    RowGrad p = {.dy = floats(c->dy, from), .add = !(c->fresh & 1)};

    (void)thread;
    if (c->dx[0]) p.dx = floats(c->dx[0], from);
    if (m->parts) {
        p.dgamma = m->parts + 2 * task * r.channels;
        p.dbeta = p.dgamma + r.channels;
    }
    simd()->row_norm_grad(&r, &p);
}

/* dgamma and dbeta of a slice of channels. */
static void join_task(void *ctx, int64_t task, int thread)
{
    const Norm *m = ctx;
    int64_t c0 = task * SLICE, wide = m->all.channels;
    int64_t count = least(SLICE, wide - c0);
    (void)thread;

    for (int k = 1; k <= 2; k++) {
        if (!m->c->dx[k]) continue;
        const float *part = m->parts + (k - 1) * wide + c0;
        float *to = floats(m->c->dx[k], c0);
        double sum[SLICE] = {0};
        for (int64_t b = 0; b < m->blocks; b++)
            for (int64_t i = 0; i < count; i++)
                sum[i] += part[2 * b * wide + i];
        for (int64_t i = 0; i < count; i++)
            to[i] = (float)(m->c->fresh >> k & 1 ? sum[i] : to[i] + sum[i]);
    }
}

bool cpu_layer_norm_bwd(const Call *c)
{
    Norm m = norm_of(c);
    if (!c->dx[0] && !m.parts) return true;
    pool_run(c->dev, m.blocks, grad_task, &m);
    if (m.parts)
        pool_run(c->dev, ceil_div(m.all.channels, SLICE), join_task, &m);
    return true;
}
