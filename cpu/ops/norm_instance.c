/* norm_instance.c -- instance and group normalisation, fast.
 *
 * As norm_batch.c, with statistics of each sample: its rows are cut into blocks
 * by shapes alone, each block gives mean and squared deviations of its channels
 * (simd/norm_batch.c), and these are merged in double, in the order of blocks:
 *
 *     mean = sum n_b mean_b / n,   m2 = sum m2_b + n_b (mean_b - mean)^2
 *
 * and in the same way over the channels of a group. instance_norm has groups of
 * one channel. Bound by memory: forward reads x twice and writes y, backward
 * reads x and dy twice and writes dx. A chain of f32 additions is at most the
 * rows of one block. A fused activation runs as in norm_batch.c.
 *
 * Saved: mean and rstd in double, (2, N, C); all channels of a group hold the
 * group's values. Backward, with u = dy gamma, x_hat = (x - mean) rstd and bars
 * for means over the group: dx = rstd (u - bar(u) - x_hat bar(u x_hat)). */
#include "cpu/lib/blocks.h"
#include "cpu/lib/kernels.h"
#include "cpu/lib/norm.h"
#include <math.h>
#include <string.h>

typedef struct Norm {
    const Call *c;
    const Simd *simd;
    int64_t sets, rows, channels, per; // N, D*H*W, C, channels of a group
    int64_t block, blocks;             // rows of a block; blocks of a sample
    double eps;
    double *first, *second; // (N, blocks, C): mean, m2; or sums of bwd
    double *sum, *dot;      // (N, C): over all blocks of a sample
    double *mean, *rstd;    // (N, C), in `saved`
    float *table;           // (N, NORM_TABLES, C)
} Norm;

/* Doubles of scratch before the tables. */
static int64_t wide_of(const Norm *m)
{
    return m->sets * (2 * m->blocks + 2) * m->channels;
}

static Norm norm_of(const Call *c)
{
    Dims s = c->x[0]->dim;
    const Attr *a = c->attr;
    bool grouped = call_op(c) == OP_group_norm;
    Norm m = {.c = c, .simd = simd(), .sets = s.n, .channels = s.c};

    m.rows = positions(s);
    m.per = grouped ? s.c / a->group_norm.groups : 1;
    m.eps = grouped ? a->group_norm.eps : a->instance_norm.eps;
    m.block = norm_block(m.channels);
    m.blocks = ceil_div(m.rows, m.block);
    if (!c->scratch) return m; // only extents are known yet
    int64_t all = m.sets * m.channels;
    m.first = c->scratch;
    m.second = m.first + m.blocks * all;
    m.sum = m.second + m.blocks * all;
    m.dot = m.sum + all;
    m.table = (float *)(m.first + wide_of(&m));
    m.mean = c->saved;
    m.rstd = m.mean + all;
    return m;
}

static Space space_of(const Call *c)
{
    Norm m = norm_of(c);
    size_t all = (size_t)(m.sets * m.channels);
    size_t scratch = (size_t)wide_of(&m) * sizeof(double) +
                     NORM_TABLES * all * sizeof(float);
    return (Space){
        .saved = 2 * all * sizeof(double), .fwd = scratch, .bwd = scratch};
}

// -- blocks -------------------------------------------------------------------

/* A block: its sample, its rows, and the index of its first element. */
typedef struct Part {
    int64_t set, rows, from;
} Part;

static Part part_of(const Norm *m, int64_t task)
{
    Part p = {.set = task / m->blocks};
    int64_t row = task % m->blocks * m->block;
    p.rows = least(m->block, m->rows - row);
    p.from = (p.set * m->rows + row) * m->channels;
    return p;
}

/* The tables of a sample. */
static float *tables_of(const Norm *m, int64_t set)
{
    return m->table + set * NORM_TABLES * m->channels;
}

static BnAffine affine_of(const Norm *m, Part p)
{
    return norm_affine(tables_of(m, p.set), m->channels, act_of(m->c));
}

/* Runs fn for every block of every sample. */
static void run(Norm *m, PoolFn *fn)
{
    // the pool's context is not const, but no task writes to it
    pool_run(m->c->dev, m->sets * m->blocks, fn, m);
}

// -- forward ------------------------------------------------------------------

/* Mean and m2 of the channels of one block. */
static void stats_task(void *ctx, int64_t task, int thread)
{
    const Norm *m = ctx;
    Part p = part_of(m, task);
    (void)thread;
    m->simd->bn_stats(floats(m->c->x[0], p.from), p.rows, m->channels,
                      m->first + task * m->channels,
                      m->second + task * m->channels);
}

/* Merges the blocks of a sample: mean and m2 (in `rstd`) of each channel. */
static void join_blocks(const Norm *m, int64_t set, double *mean, double *m2)
{
    const double *first = m->first + set * m->blocks * m->channels;
    const double *second = m->second + set * m->blocks * m->channels;
    memset(mean, 0, (size_t)m->channels * sizeof *mean);
    memset(m2, 0, (size_t)m->channels * sizeof *m2);
    for (int64_t b = 0; b < m->blocks; b++) {
        double rows = (double)part_of(m, b).rows;
        for (int64_t i = 0; i < m->channels; i++)
            mean[i] += rows * first[b * m->channels + i];
    }

    for (int64_t i = 0; i < m->channels; i++) mean[i] /= (double)m->rows;
    for (int64_t b = 0; b < m->blocks; b++) {
        double rows = (double)part_of(m, b).rows;
        for (int64_t i = 0; i < m->channels; i++) {
            double off = first[b * m->channels + i] - mean[i];
            m2[i] += second[b * m->channels + i] + rows * off * off;
        }
    }
}

/* Merges the channels of a group: mean and rstd from mean and m2. */
static void join_group(const Norm *m, double *mean, double *m2)
{
    double all = (double)m->rows, per = (double)m->per, sum = 0, squares = 0;
    for (int64_t i = 0; i < m->per; i++) sum += mean[i];
    sum /= per;
    for (int64_t i = 0; i < m->per; i++)
        squares += m2[i] + all * (mean[i] - sum) * (mean[i] - sum);
    double rstd = 1 / sqrt(squares / (all * per) + m->eps);
    for (int64_t i = 0; i < m->per; i++) mean[i] = sum, m2[i] = rstd;
}

/* Fills the tables of the forward run of a sample from mean and rstd. */
static void make_tables(const Norm *m, int64_t set)
{
    const double *mean = m->mean + set * m->channels;
    const double *rstd = m->rstd + set * m->channels;
    for (int64_t i = 0; i < m->channels; i++)
        norm_channel(tables_of(m, set), m->channels, i, mean[i], rstd[i],
                     m->c->x[1], m->c->x[2]);
}

/* y of one block. */
static void apply_task(void *ctx, int64_t task, int thread)
{
    const Norm *m = ctx;
    Part p = part_of(m, task);
    const BnAffine a = affine_of(m, p);
    (void)thread;
    m->simd->bn_apply(floats(m->c->x[0], p.from), p.rows, m->channels, &a,
                      floats(m->c->y, p.from));
}

static bool norm_fwd(const Call *c)
{
    Norm m = norm_of(c);
    run(&m, stats_task);
    for (int64_t n = 0; n < m.sets; n++) {
        double *mean = m.mean + n * m.channels, *rstd = m.rstd + n * m.channels;
        join_blocks(&m, n, mean, rstd);
        for (int64_t i = 0; i < m.channels; i += m.per)
            join_group(&m, mean + i, rstd + i);
        make_tables(&m, n);
    }
    run(&m, apply_task);
    return true;
}

// -- backward -----------------------------------------------------------------

/* Sums of dy and of dy (x - mean) of one block. */
static void sums_task(void *ctx, int64_t task, int thread)
{
    const Norm *m = ctx;
    Part p = part_of(m, task);
    const BnAffine a = affine_of(m, p);
    (void)thread;
    m->simd->bn_sums(floats(m->c->dy, p.from), floats(m->c->x[0], p.from),
                     p.rows, m->channels, &a, m->first + task * m->channels,
                     m->second + task * m->channels);
}

/* Sums of dy and of dy x_hat of each channel of a sample. */
static void join_sums(const Norm *m, int64_t set)
{
    double *sum = m->sum + set * m->channels, *dot = m->dot + set * m->channels;
    const double *rstd = m->rstd + set * m->channels;
    const double *first = m->first + set * m->blocks * m->channels;
    const double *second = m->second + set * m->blocks * m->channels;

    memset(sum, 0, (size_t)m->channels * sizeof *sum);
    memset(dot, 0, (size_t)m->channels * sizeof *dot);
    for (int64_t b = 0; b < m->blocks; b++)
        for (int64_t i = 0; i < m->channels; i++) {
            sum[i] += first[b * m->channels + i];
            dot[i] += second[b * m->channels + i];
        }
    for (int64_t i = 0; i < m->channels; i++) dot[i] *= rstd[i];
}

/* dgamma and dbeta: the sums over samples. */
static void put_affine(const Norm *m)
{
    const double *of[3] = {NULL, m->dot, m->sum};
    for (int k = 1; k <= 2; k++) {
        if (!m->c->dx[k]) continue;
        float *at = floats(m->c->dx[k], 0);
        for (int64_t i = 0; i < m->channels; i++) {
            double all = 0;
            for (int64_t n = 0; n < m->sets; n++)
                all += of[k][n * m->channels + i];
            at[i] = (float)(m->c->fresh >> k & 1 ? all : at[i] + all);
        }
    }
}

/* Fills shift and tilt of a sample such that dx = dy scale + (x - mean) tilt +
 * shift: the formula of the file comment with u and x_hat substituted. */
static void grad_tables(const Norm *m, int64_t set)
{
    const float *gamma = m->c->x[1] ? m->c->x[1]->data : NULL;
    const double *sum = m->sum + set * m->channels;
    const double *dot = m->dot + set * m->channels;
    const double *rstd = m->rstd + set * m->channels;
    float *shift = tables_of(m, set) + 4 * m->channels;
    float *tilt = shift + m->channels;
    // a constant 0, not a product with 0, so that a sum that is not finite does
    // not spread
    bool shares = !is_idle(m->c);

    for (int64_t i = 0; i < m->channels; i += m->per) {
        double bar = 0, bar_x_hat = 0;
        for (int64_t k = i; k < i + m->per && shares; k++) {
            bar += (gamma ? gamma[k] : 1) * sum[k];
            bar_x_hat += (gamma ? gamma[k] : 1) * dot[k];
        }
        bar /= (double)(m->rows * m->per),
            bar_x_hat /= (double)(m->rows * m->per);
        for (int64_t k = i; k < i + m->per; k++) {
            shift[k] = (float)(-rstd[k] * bar);
            tilt[k] = (float)(-rstd[k] * rstd[k] * bar_x_hat);
        }
    }
}

/* dx of one block. */
static void grad_task(void *ctx, int64_t task, int thread)
{
    const Norm *m = ctx;
    Part p = part_of(m, task);
    const BnAffine a = affine_of(m, p);
    (void)thread;
    m->simd->bn_grad(floats(m->c->dy, p.from), floats(m->c->x[0], p.from),
                     p.rows, m->channels, &a, floats(m->c->dx[0], p.from),
                     !(m->c->fresh & 1));
}

static bool norm_bwd(const Call *c)
{
    Norm m = norm_of(c);
    for (int64_t n = 0; n < m.sets; n++) make_tables(&m, n);
    run(&m, sums_task);
    for (int64_t n = 0; n < m.sets; n++) join_sums(&m, n);
    put_affine(&m);
    if (!c->dx[0]) return true;
    for (int64_t n = 0; n < m.sets; n++) grad_tables(&m, n);
    run(&m, grad_task);
    return true;
}

/* The three kernels of an operator; norm_of() selects the norm. */
#define NORM(name)                          \
    Space cpu_##name##_space(const Call *c) \
    {                                       \
        return space_of(c);                 \
    }                                       \
    bool cpu_##name##_fwd(const Call *c)    \
    {                                       \
        return norm_fwd(c);                 \
    }                                       \
    bool cpu_##name##_bwd(const Call *c)    \
    {                                       \
        return norm_bwd(c);                 \
    }

NORM(instance_norm)
NORM(group_norm)
