/* norm_batch.c -- batch normalisation, fast.
 *
 * The N*P rows are cut into blocks that fit a near cache, by shapes alone. Each
 * block gives mean and squared deviations of its channels, which are merged in
 * double, in the order of blocks:
 *
 *     mean = sum n_b mean_b / n,   m2 = sum m2_b + n_b (mean_b - mean)^2
 *
 * so x is read from memory once, and never as E[x^2] - mean^2. Bound by memory:
 * forward reads x twice and writes y, backward reads x and dy twice and writes
 * dx. Only the two passes over a block of x share a cache. A chain of f32
 * additions is at most the rows of one block.
 *
 * A fused activation (Call.act) needs no pass of its own: it runs on each
 * result before the store. Backward, its derivative is applied to dy on
 * load; the sign of its operand is computed again from x, bit-identically to
 * the forward run.
 *
 * Saved: mean and rstd in double, (2, C). Backward, with x_hat = (x - mean)
 * rstd:
 *
 *     dx = rstd gamma (dy - sum dy / n - x_hat sum (dy x_hat) / n)
 *
 * and in evaluation, where mean and variance are constants, its first term. */
#include "cpu/lib/kernels.h"
#include "cpu/lib/norm.h"
#include "cpu/lib/thread_pool.h"
#include <math.h>

typedef struct Norm {
    const Call *c;
    const Simd *simd;
    int64_t rows, channels; // N*D*H*W, C
    int64_t block, blocks;  // rows of a block; number of blocks
    double *first, *second; // (blocks, C) each: mean, m2; or sums of bwd
    double *mean, *rstd;    // (C)
    double *sums;           // (2C + 1): over all blocks, and rows
    double all;             // rows at all ranks
    float *table;           // (NORM_TABLES, C): tables of `affine`
    BnAffine affine;
} Norm;

/* Extents, and the layout of scratch: first, second (blocks, C), mean, rstd
 * (C), sums (2C + 1) in double, then the tables; see cpu_batch_norm_space. */
static Norm norm_of(const Call *c)
{
    Dims s = c->x[0]->dim;
    Norm m = {.c = c, .simd = simd(), .channels = s.c};
    m.rows = s.n * positions(s);
    m.block = norm_block(m.channels);
    m.blocks = ceil_div(m.rows, m.block);
    if (!c->scratch) return m; // only extents are known yet
    m.first = c->scratch;
    m.second = m.first + m.blocks * m.channels;
    m.mean = m.second + m.blocks * m.channels;
    m.rstd = m.mean + m.channels;
    m.sums = m.rstd + m.channels;
    m.all = (double)m.rows;
    m.table = (float *)(m.sums + 2 * m.channels + 1);
    m.affine = norm_affine(m.table, m.channels, act_of(c));
    return m;
}

Space cpu_batch_norm_space(const Call *c)
{
    Norm m = norm_of(c);
    size_t wide =
        (size_t)((2 * m.blocks + 4) * m.channels + 1) * sizeof(double);
    size_t tables = (size_t)(NORM_TABLES * m.channels) * sizeof(float);
    return (Space){.saved = (size_t)(2 * m.channels) * sizeof(double),
                   .fwd = wide + tables,
                   .bwd = wide + tables};
}

/* Rows of a block: the last one may be short. */
static int64_t rows_of(const Norm *m, int64_t block)
{
    return least(m->block, m->rows - block * m->block);
}

/* Forward, training: mean and m2 of one block. */
static void stats_task(void *ctx, int64_t task, int thread)
{
    const Norm *m = ctx;
    (void)thread;
    const float *x = m->c->x[0]->data;
    m->simd->bn_stats(x + task * m->block * m->channels, rows_of(m, task),
                      m->channels, m->first + task * m->channels,
                      m->second + task * m->channels);
}

/* Adds `count` sums in m->sums and the number of rows, m->all, over all ranks,
 * if the statistics are over all ranks. */
static bool all_ranks(Norm *m, int64_t count)
{
    if (!m->c->train || !m->c->step->shard.sync_batch_norm) return true;
    m->sums[count] = (double)m->rows;
    if (!sum_ranks(m->c, m->sums, count + 1)) return false;
    m->all = m->sums[count];
    return true;
}

/* Computes mean and rstd of the operand and updates the running statistics,
 * except on an idle rank (without a sample of the batch: Shard in op.h) whose
 * statistics are not all-reduced. */
static bool measure(Norm *m)
{
    const Call *c = m->c;
    double step = c->attr->batch_norm.momentum;
    bool moves = !is_idle(c) || c->step->shard.sync_batch_norm;
    float *running = c->x[3]->data, *spread = c->x[4]->data;
    double *saved = c->saved;

    // the pool's context is not const, but no task writes to it
    pool_run(c->dev, m->blocks, stats_task, m);

    // one pass over the blocks for the mean, one for the squared deviations
    for (int64_t i = 0; i < m->channels; i++) {
        double mean = 0;
        for (int64_t b = 0; b < m->blocks; b++)
            mean += (double)rows_of(m, b) * m->first[b * m->channels + i];
        m->sums[i] = mean;
    }

    if (!all_ranks(m, m->channels)) return false;
    for (int64_t i = 0; i < m->channels; i++) {
        double mean = m->sums[i] / m->all, m2 = 0;
        for (int64_t b = 0; b < m->blocks; b++) {
            double off = m->first[b * m->channels + i] - mean;
            m2 += m->second[b * m->channels + i] +
                  (double)rows_of(m, b) * off * off;
        }
        m->mean[i] = mean;
        m->sums[i] = m2;
    }

    if (!all_ranks(m, m->channels)) return false;

    // a single value has no unbiased variance
    double n = m->all, unbias = n > 1 ? n / (n - 1) : 1;

    for (int64_t i = 0; i < m->channels; i++) {
        double mean = m->mean[i], var = m->sums[i] / n;
        if (moves) {
            running[i] = (float)((1 - step) * running[i] + step * mean);
            spread[i] = (float)((1 - step) * spread[i] + step * unbias * var);
        }
        saved[i] = mean;
        m->rstd[i] = saved[m->channels + i] =
            1 / sqrt(var + (double)c->attr->batch_norm.eps);
    }
    return true;
}

/* Takes mean and rstd from the running statistics (evaluation) or from the
 * saved ones (training). */
static void recall(const Norm *m)
{
    const Call *c = m->c;
    const double *saved = c->saved;
    for (int64_t i = 0; i < m->channels; i++)
        if (c->train) {
            m->mean[i] = saved[i];
            m->rstd[i] = saved[m->channels + i];
        } else {
            m->mean[i] = ((const float *)c->x[3]->data)[i];
            m->rstd[i] = 1 / sqrt(((const float *)c->x[4]->data)[i] +
                                  (double)c->attr->batch_norm.eps);
        }
}

/* Forward: y of one block. */
static void apply_task(void *ctx, int64_t task, int thread)
{
    const Norm *m = ctx;
    (void)thread;
    int64_t from = task * m->block * m->channels;
    m->simd->bn_apply((const float *)m->c->x[0]->data + from, rows_of(m, task),
                      m->channels, &m->affine, (float *)m->c->y->data + from);
}

/* Fills the tables of the forward run from mean and rstd. */
static void make_tables(const Norm *m)
{
    for (int64_t i = 0; i < m->channels; i++)
        norm_channel(m->table, m->channels, i, m->mean[i], m->rstd[i],
                     m->c->x[1], m->c->x[2]);
}

bool cpu_batch_norm_fwd(const Call *c)
{
    Norm m = norm_of(c);
    // computed again, y is the same: the statistics are still there
    if (!c->train || c->recomputed)
        recall(&m);
    else if (!measure(&m))
        return false;
    make_tables(&m);
    pool_run(c->dev, m.blocks, apply_task, &m);
    return true;
}

/* Backward: sums of dy and of dy (x - mean) of one block. */
static void sums_task(void *ctx, int64_t task, int thread)
{
    const Norm *m = ctx;
    (void)thread;
    int64_t from = task * m->block * m->channels;
    m->simd->bn_sums((const float *)m->c->dy->data + from,
                     (const float *)m->c->x[0]->data + from, rows_of(m, task),
                     m->channels, &m->affine, m->first + task * m->channels,
                     m->second + task * m->channels);
}

/* Backward: dx of one block, from the tables below. */
static void grad_task(void *ctx, int64_t task, int thread)
{
    const Norm *m = ctx;
    (void)thread;
    int64_t from = task * m->block * m->channels;
    m->simd->bn_grad((const float *)m->c->dy->data + from,
                     (const float *)m->c->x[0]->data + from, rows_of(m, task),
                     m->channels, &m->affine, (float *)m->c->dx[0]->data + from,
                     !(m->c->fresh & 1));
}

bool cpu_batch_norm_bwd(const Call *c)
{
    Norm m = norm_of(c);
    const float *gamma = c->x[1] ? c->x[1]->data : NULL;
    recall(&m);
    make_tables(&m);
    pool_run(c->dev, m.blocks, sums_task, &m);

    for (int64_t i = 0; i < m.channels; i++) {
        double sum = 0, dot = 0;
        for (int64_t b = 0; b < m.blocks; b++) {
            sum += m.first[b * m.channels + i];
            dot += m.second[b * m.channels + i];
        }
        m.sums[i] = sum;
        m.sums[m.channels + i] = dot *= m.rstd[i]; // now the sum of dy x_hat
        // total[1] is dgamma, total[2] dbeta, over this rank's rows: gradients
        // of parameters are summed over ranks later
        const double total[3] = {0, dot, sum};
        for (int k = 1; k <= 2; k++) {
            if (!c->dx[k]) continue;
            float *at = (float *)c->dx[k]->data + i;
            *at = (float)(c->fresh >> k & 1 ? total[k] : *at + total[k]);
        }
    }

    if (!all_ranks(&m, 2 * m.channels)) return false;
    float *shift = m.table + 4 * m.channels, *tilt = shift + m.channels;

    for (int64_t i = 0; i < m.channels; i++) {
        double sum = m.sums[i], dot = m.sums[m.channels + i];
        // dx = dy scale + (x - mean) tilt + shift: the formula of the file
        // comment with x_hat substituted; in evaluation tilt and shift are 0
        double share = m.rstd[i] * (gamma ? gamma[i] : 1) / m.all;
        // a constant 0, not a product with 0, so that a sum that is not finite
        // does not spread
        bool shares = c->train && !is_idle(c);
        shift[i] = shares ? (float)(-share * sum) : 0;
        tilt[i] = shares ? (float)(-share * dot * m.rstd[i]) : 0;
    }

    if (c->dx[0]) pool_run(c->dev, m.blocks, grad_task, &m);
    return true;
}
