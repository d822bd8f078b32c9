/* norm.c -- batch, instance, group and layer normalisation.
 *
 * y = (x - mean) * rstd * gamma + beta, rstd = 1 / sqrt(var + eps), with the
 * mean and the biased variance of x over one set and one group:
 *
 *                sets             rows of a set    groups of channels
 *     batch      1                N*P              C
 *     instance   N                P                C
 *     group      N                P                groups
 *     layer      N*P              1                1
 *
 * Mean first, then squared deviations from it: never E[x^2] - mean^2. In
 * training batch_norm moves its running statistics towards those of the batch.
 * In evaluation it uses the running statistics, and its backward run treats
 * them as constants. Saved: mean and rstd, each (sets, groups).
 *
 * Backward, with u = dy * gamma, x_hat = (x - mean) * rstd and bars for means
 * over a set and group: dx = rstd * (u - bar(u) - x_hat bar(u x_hat)); dgamma
 * and dbeta are the sums of dy x_hat and dy. With given statistics dx = rstd *
 * u.
 *
 * Every sum is in double over chunks of rows (sum_run), for either `real`.
 * layer_norm has one set a row: its sets are cheap and many. */
#include "cpu/lib/plain.h"

/* One call. Statistics are expanded to (sets, C) doubles in scratch, so that
 * inner loops run over channels; the sums of sum_run follow them there. */
typedef struct Norm {
    const Call *c;
    int64_t sets, rows, groups, channels; // rows: of a set
    double all;                           // rows of a set at all ranks
    double eps;
    bool given;          // constant statistics (evaluation)
    double *mean, *rstd; // (sets, channels)
    double *sums;        // of sum_run
    double *bwd_sums;    // bwd: (sets, 2, channels): bar(u), bar(u x_hat)
} Norm;

/* The row of the table above for this call, and the layout of scratch: mean,
 * rstd (sets, C), then the sums. */
static Norm norm_of(const Call *c)
{
    Dims s = c->x[0]->dim;
    const Attr *a = c->attr;
    Norm m = {.c = c, .sets = s.n, .rows = positions(s), .channels = s.c};

    m.groups = s.c;
    switch (call_op(c)) {
    case OP_batch_norm:
        m.sets = 1, m.rows = rows(s);
        m.eps = a->batch_norm.eps;
        m.given = !c->train;
        break;
    case OP_instance_norm:
        m.eps = a->instance_norm.eps;
        break;
    case OP_group_norm:
        m.eps = a->group_norm.eps;
        m.groups = a->group_norm.groups;
        break;
    default:
        m.sets = rows(s), m.rows = 1, m.groups = 1;
        m.eps = a->layer_norm.eps;
    }

    m.all = (double)m.rows;
    m.mean = c->scratch;
    if (!m.mean) return m; // only extents are known yet
    m.rstd = m.mean + m.sets * m.channels;
    m.sums = m.rstd + m.sets * m.channels;
    return m;
}

/* sum_run overwrites `sums` each time; sums that are needed later are
 * copied. */
static Space space_of(const Call *c)
{
    Norm m = norm_of(c);
    size_t stats = (size_t)(2 * m.sets * m.channels) * sizeof(double);
    Space s = {
        .saved = (size_t)(2 * m.sets * m.groups) * sizeof(real),
        // one sum more for all_ranks
        .fwd = stats + sum_bytes(m.sets, m.rows, m.channels) + sizeof(double),
        .bwd =
            stats + sum_bytes(m.sets, m.rows, 2 * m.channels) + sizeof(double),
    };
    return s;
}

/* Row `row` of set `set` of a tensor with the operand's extents. */
static const real *row_of(const Norm *m, const Tensor *t, int64_t set,
                          int64_t row)
{
    return values(t) + (set * m->rows + row) * m->channels;
}

// -- statistics --------------------------------------------------------------

/* Adds sums, and m->all, the number of rows, over all ranks if a batch norm has
 * statistics over all ranks. sums has room for one more after `count`. */
static bool all_ranks(Norm *m, double *sums, int64_t count)
{
    const Call *c = m->c;
    if (call_op(c) != OP_batch_norm || m->given ||
        !c->step->shard.sync_batch_norm)
        return true;
    sums[count] = (double)m->rows;
    if (!sum_ranks(c, sums, count + 1)) return false;
    m->all = sums[count];
    return true;
}

/* SumFn: x. */
static void add_values(void *ctx, int64_t set, int64_t from, int64_t to,
                       double *sum)
{
    const Norm *m = ctx;
    for (int64_t i = from; i < to; i++)
        axpy(sum, 1, row_of(m, m->c->x[0], set, i), m->channels);
}

/* SumFn: squared deviations from the mean, which is known. */
static void add_squares(void *ctx, int64_t set, int64_t from, int64_t to,
                        double *sum)
{
    const Norm *m = ctx;
    const double *mean = m->mean + set * m->channels;
    for (int64_t i = from; i < to; i++) {
        const real *x = row_of(m, m->c->x[0], set, i);
        for (int64_t c = 0; c < m->channels; c++)
            sum[c] += (x[c] - mean[c]) * (x[c] - mean[c]);
    }
}

/* In each of `sets` rows of v (channels contiguous, rows `stride` apart),
 * replaces sums over rows by means over the group, for every channel. */
static void group_means(const Norm *m, double *v, int64_t stride)
{
    int64_t per = m->channels / m->groups;
    // channels of a group are contiguous
    for (int64_t i = 0; i < m->sets * m->groups; i++) {
        double *g = v + i / m->groups * stride + i % m->groups * per, sum = 0;
        for (int64_t c = 0; c < per; c++) sum += g[c];
        for (int64_t c = 0; c < per; c++) g[c] = sum / ((double)per * m->all);
    }
}

/* running <- (1 - momentum) running + momentum (mean, unbiased var). */
static void move_running(const Norm *m, const double *var)
{
    const Call *c = m->c;
    double step = c->attr->batch_norm.momentum, n = m->all;
    // an idle rank with statistics of its own has no data
    if (is_idle(c) && !c->step->shard.sync_batch_norm) return;
    // a single value has no unbiased variance
    double unbias = n > 1 ? n / (n - 1) : 1;
    real *mean = values(c->x[3]), *spread = values(c->x[4]);
    for (int64_t i = 0; i < m->channels; i++) {
        mean[i] = (real)((1 - step) * mean[i] + step * m->mean[i]);
        spread[i] = (real)((1 - step) * spread[i] + step * unbias * var[i]);
    }
}

/* Computes mean and rstd of the operand and saves them. */
static bool measure(Norm *m)
{
    const Call *c = m->c;
    // per: channels of a group, which share their statistics
    int64_t all = m->sets * m->channels, per = m->channels / m->groups;
    double *sums =
        sum_run(c, m->sets, m->rows, m->channels, add_values, m, m->sums);

    if (!all_ranks(m, sums, m->channels)) return false;
    memcpy(m->mean, sums, (size_t)all * sizeof *sums);
    group_means(m, m->mean, m->channels);
    sums = sum_run(c, m->sets, m->rows, m->channels, add_squares, m, m->sums);
    if (!all_ranks(m, sums, m->channels)) return false;

    // rstd holds the variance until the end
    memcpy(m->rstd, sums, (size_t)all * sizeof *sums);
    group_means(m, m->rstd, m->channels);
    if (call_op(c) == OP_batch_norm) move_running(m, m->rstd);
    for (int64_t i = 0; i < all; i++)
        m->rstd[i] = 1 / sqrt(m->rstd[i] + m->eps);
    real *mean = c->saved, *rstd = mean + m->sets * m->groups;
    for (int64_t i = 0; i < m->sets * m->groups; i++) {
        mean[i] = (real)m->mean[i * per];
        rstd[i] = (real)m->rstd[i * per];
    }
    return true;
}

/* Expands the saved mean and rstd to channels again. They were rounded to
 * `real`, so the backward run in float has the statistics of a float kernel. */
static void recall(const Norm *m)
{
    int64_t per = m->channels / m->groups;
    const real *mean = m->c->saved, *rstd = mean + m->sets * m->groups;
    for (int64_t i = 0; i < m->sets * m->channels; i++) {
        m->mean[i] = mean[i / per];
        m->rstd[i] = rstd[i / per];
    }
}

/* Takes mean and rstd from the running statistics: evaluation, one set. */
static void adopt(const Norm *m)
{
    const real *mean = values(m->c->x[3]), *var = values(m->c->x[4]);
    for (int64_t i = 0; i < m->channels; i++) {
        m->mean[i] = mean[i];
        m->rstd[i] = 1 / sqrt(var[i] + m->eps);
    }
}

// -- forward -----------------------------------------------------------------

/* Rows of all sets, one after the other. gamma and beta are both present or
 * both absent. */
static void fwd_rows(void *ctx, int64_t from, int64_t to)
{
    const Norm *m = ctx;
    const real *gamma = values(m->c->x[1]), *beta = values(m->c->x[2]);

    for (int64_t i = from; i < to; i++) {
        const double *mean = m->mean + i / m->rows * m->channels;
        const double *rstd = m->rstd + i / m->rows * m->channels;
        const real *x = row_of(m, m->c->x[0], 0, i);
        real *y = values(m->c->y) + i * m->channels;
        if (gamma)
            for (int64_t c = 0; c < m->channels; c++)
                y[c] = (real)((x[c] - mean[c]) * rstd[c] * gamma[c] + beta[c]);
        else
            for (int64_t c = 0; c < m->channels; c++)
                y[c] = (real)((x[c] - mean[c]) * rstd[c]);
    }
}

static bool norm_fwd(const Call *c)
{
    Norm m = norm_of(c);
    // computed again, y is the same: the statistics of batch_norm are still
    // there
    if (m.given)
        adopt(&m);
    else if (c->recomputed && call_op(c) == OP_batch_norm)
        recall(&m);
    else if (!measure(&m))
        return false;
    range_run(c, m.sets * m.rows, m.channels, fwd_rows, &m);
    return true;
}

// -- backward ----------------------------------------------------------------

/* SumFn: sum[0 .. C-1] of dy, sum[C .. 2C-1] of dy x_hat. */
static void add_gradients(void *ctx, int64_t set, int64_t from, int64_t to,
                          double *sum)
{
    const Norm *m = ctx;
    const double *mean = m->mean + set * m->channels;
    const double *rstd = m->rstd + set * m->channels;

    for (int64_t i = from; i < to; i++) {
        const real *x = row_of(m, m->c->x[0], set, i);
        const real *dy = row_of(m, m->c->dy, set, i);
        double *with_x_hat = sum + m->channels;
        for (int64_t c = 0; c < m->channels; c++) {
            sum[c] += dy[c];
            with_x_hat[c] += dy[c] * ((x[c] - mean[c]) * rstd[c]);
        }
    }
}

/* dgamma and dbeta: the sums over sets. */
static void put_affine(const Norm *m, const double *sums)
{
    const Call *c = m->c;
    for (int k = 1; k <= 2; k++) {
        if (!c->dx[k]) continue;
        const double *part = sums + (k == 1 ? m->channels : 0);
        for (int64_t i = 0; i < m->channels; i++) {
            double sum = 0;
            for (int64_t s = 0; s < m->sets; s++)
                sum += part[s * 2 * m->channels + i];
            put(&values(c->dx[k])[i], sum, is_fresh(c, k));
        }
    }
}

/* dx of rows of all sets. */
static void bwd_rows(void *ctx, int64_t from, int64_t to)
{
    const Norm *m = ctx;
    const real *gamma = values(m->c->x[1]);
    bool fresh = is_fresh(m->c, 0);

    for (int64_t i = from; i < to; i++) {
        int64_t set = i / m->rows;
        const double *mean = m->mean + set * m->channels;
        const double *rstd = m->rstd + set * m->channels;
        const double *bar = m->bwd_sums + set * 2 * m->channels;
        const double *bar_x_hat = bar + m->channels;
        const real *x = row_of(m, m->c->x[0], 0, i);
        const real *dy = row_of(m, m->c->dy, 0, i);
        real *dx = values(m->c->dx[0]) + i * m->channels;
        for (int64_t c = 0; c < m->channels; c++) {
            double x_hat = (x[c] - mean[c]) * rstd[c];
            double u = gamma ? (double)dy[c] * gamma[c] : dy[c];
            put(&dx[c], rstd[c] * (u - bar[c] - x_hat * bar_x_hat[c]), fresh);
        }
    }
}

static bool norm_bwd(const Call *c)
{
    Norm m = norm_of(c);
    if (m.given)
        adopt(&m);
    else
        recall(&m);
    m.bwd_sums =
        sum_run(c, m.sets, m.rows, 2 * m.channels, add_gradients, &m, m.sums);

    // of this rank's rows: gradients of parameters are summed over ranks later
    put_affine(&m, m.bwd_sums);
    if (!all_ranks(&m, m.bwd_sums, 2 * m.channels)) return false;
    if (!c->dx[0]) return true;
    const real *gamma = values(c->x[1]);

    // given statistics are constants: their terms are set to 0 and not
    // multiplied by it, so that a sum that is not finite does not spread
    for (int64_t i = 0; i < m.sets * 2 * m.channels; i++)
        if (m.given || is_idle(c))
            m.bwd_sums[i] = 0;
        else if (gamma)
            m.bwd_sums[i] *= gamma[i % m.channels];
    group_means(&m, m.bwd_sums, 2 * m.channels);
    group_means(&m, m.bwd_sums + m.channels, 2 * m.channels);
    range_run(c, m.sets * m.rows, m.channels, bwd_rows, &m);
    return true;
}

// -- the operators of the table ----------------------------------------------

#define NORM(name)                            \
    Space KERNEL(name##_space)(const Call *c) \
    {                                         \
        return space_of(c);                   \
    }                                         \
    bool KERNEL(name##_fwd)(const Call *c)    \
    {                                         \
        return norm_fwd(c);                   \
    }                                         \
    bool KERNEL(name##_bwd)(const Call *c)    \
    {                                         \
        return norm_bwd(c);                   \
    }
NORM(batch_norm)
NORM(instance_norm)
NORM(group_norm)
NORM(layer_norm)
