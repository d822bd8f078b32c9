/* norm.cuh -- a call of a normalisation, for norm.cu, norm_stats.cu and
 * norm_layer.cu.
 *
 *     y = (x - mean) * rstd * gamma + beta
 *     dx = rstd * (u - bar(u) - x_hat bar(u x_hat)), u = dy * gamma,
 *     x_hat = (x - mean) * rstd, bars: means over a set and a group of channels
 *
 * with the sets, rows and groups of cpu/ref/norm.c. */
#ifndef SEG_CUDA_NORM_NORM_H
#define SEG_CUDA_NORM_NORM_H
#include "cuda/lib/act.cuh"
#include "cuda/lib/col_reduce.cuh"
#include "cuda/lib/thread_group.cuh"

/* The mean as hi + lo: subtracting both in turn keeps the digits of x - mean
 * where the mean is large compared with the standard deviation. */
struct ChannelStats {
    float hi, lo, rstd;
};

static __device__ __forceinline__ float centred(float x, const ChannelStats &s)
{
    return x - s.hi - s.lo;
}

/* The norm of x: one rounding, so that all kernels get the same value. */
static __device__ __forceinline__ float normal(float x, const ChannelStats &s,
                                               float scale, float shift)
{
    return fmaf(centred(x, s), scale, shift);
}

/* The destination of statistics, and the parameters for values computed from
 * the statistics. */
struct NormStatsOut {
    ChannelStats *stat; // (sets, groups): saved
    float2 *table;      // of a deferred norm (deferred_norm.cuh), or NULL
    const float *gamma, *beta;
    float *running_mean, *running_var; // of batch_norm, or NULL
    const Step *step;                  // in device memory: is this rank idle?
    float eps;
    double momentum;
};

/* The factor of channel c with statistics s. */
static __device__ __forceinline__ float scale_of(const NormStatsOut &k,
                                                 const ChannelStats &s, int c)
{
    return k.gamma ? s.rstd * k.gamma[c] : s.rstd;
}

static __device__ __forceinline__ float beta_of(const NormStatsOut &k, int c)
{
    return k.gamma ? k.beta[c] : 0;
}

/* Stores the statistics of a set and group of n values; `at` is its number. If
 * `update_running`, also updates the running statistics of a batch_norm, where
 * each group is one channel. */
static __device__ __forceinline__ void store_stats(const NormStatsOut &k,
                                                   int64_t at, double n,
                                                   double mean, double var,
                                                   bool update_running)
{
    ChannelStats s;
    s.hi = (float)mean;
    s.lo = (float)(mean - (double)s.hi);
    s.rstd = (float)(1 / sqrt(var + (double)k.eps));
    k.stat[at] = s;
    if (k.table) {
        const float scale = scale_of(k, s, (int)at);
        const double beta = (double)beta_of(k, (int)at);
        k.table[at] = {scale, (float)(beta - mean * (double)scale)};
    }

    if (!k.running_mean || !update_running) return;

    // a single value has no unbiased variance
    const double unbias = n > 1 ? n / (n - 1) : 1, stay = 1 - k.momentum;
    float *run_mean = k.running_mean + at, *running_var = k.running_var + at;
    *run_mean = (float)(stay * (double)*run_mean + k.momentum * mean);
    *running_var =
        (float)(stay * (double)*running_var + k.momentum * unbias * var);
}

/* Mean and variance of n values, from the sums of the values and of their
 * squares. */
static __device__ __forceinline__ void moments_by(double n, double sum,
                                                  double square, double *mean,
                                                  double *var)
{
    *mean = sum / n;
    *var = square / n - *mean * *mean;
    if (*var < 0) *var = 0;
}

/* Stores mean and reciprocal standard deviation of channel c, computed from the
 * sums of x and x^2 over n rows, and updates the running mean and variance,
 * except on an idle rank (without a sample of the batch: Shard in op.h). */
static __device__ __forceinline__ void store_channel_stats(
    const NormStatsOut &k, int c, double n, double sum, double square)
{
    double mean, var;
    moments_by(n, sum, square, &mean, &var);
    store_stats(k, c, n, mean, var, !k.step->shard.idle);
}

/* The coefficients of dx besides that of dy, for n values with these sums of u
 * and of u x_hat: *x_coef of x - mean, and the constant *offset. */
static __device__ __forceinline__ void norm_bwd_terms(
    double gamma, const ChannelStats &s, double n, double sum, double sum_x_hat,
    double *x_coef, double *offset)
{
    const double share = gamma * -(double)s.rstd / n;
    *offset = share * sum;
    *x_coef = share * sum_x_hat * (double)s.rstd;
}

struct NormBwd; // norm_bwd_on_load.cuh

/* The parameter gradients that are sums 0 and 1 of a channel; NULL: no such
 * gradient. */
struct NormGrads {
    float *to[2];
    bool fresh[2];
};

static __device__ __forceinline__ void store_norm_grad(const NormGrads &p,
                                                       int which, int c,
                                                       double sum)
{
    if (p.to[which]) put(&p.to[which][c], (float)sum, p.fresh[which]);
}

struct Norm {
    const void *x, *dy;
    void *out;  // y or dx[0]
    Dtype type; // of x, dy and out
    NormStatsOut stats_out;
    bool fresh;          // of dx[0]
    bool about_0;        // the partial sums are of x and x^2
    double *parts;       // partial sums (sets, parts, 2, C)
    double *total;       // bwd: totals (sets, 2, C); or NULL
    unsigned *counters;  // of `cols`; NULL: no totals, only partial sums
    NormGrads put;       // bwd: dbeta, dgamma, if `cols` has one set
    int64_t sets, rows;  // rows: of a set
    int64_t col_sets;    // sets of `cols`: 1 if single_row
    int channels, count; // count: groups of channels
    Divisor groups, per; // number of groups; channels of a group
    bool given;          // constant statistics (evaluation)
    Act act;             // applied to y; dy is taken back through it
    // batch shared by ranks: sums of all ranks (2, C), then the number of rows;
    // NULL: this rank only
    double *joined;
    const float *about;       // (C) the point about which a rank takes its
                              // moments
    bool single_row;          // one row a set: norm_layer.cu
    int vec;                  // channels per vector: 4 or 1
    ColReduce cols;           // single_row: over all rows as one set
    ThreadGroups group_count; // single_row: one for each set and group
};

/* The running statistics of channel c. */
static __device__ __forceinline__ ChannelStats running_stats_of(const Norm &p,
                                                                int c)
{
    const NormStatsOut &k = p.stats_out;
    return {k.running_mean[c], 0,
            (float)(1 / sqrt((double)k.running_var[c] + (double)k.eps))};
}

/* Are the statistics taken over the batch of all ranks? */
static inline bool uses_sync_batch_norm(const Call *c, const Norm &p)
{
    return c->attr->op == OP_batch_norm && !p.given && is_sharded(c) &&
           c->step->shard.sync_batch_norm;
}

/* In norm.cu: the deferred batch_norm of a call c as a call of its own on the y
 * that c stored. fwd makes its statistics and the table of deferred_norm.cuh;
 * bwd takes dy back in place. parts: the number of partial sums of y and y^2 by
 * channel that scratch begins with; 0: none. */
Space deferred_norm_space(const Call *c, int parts);
bool deferred_norm_fwd(const Call *c, int parts);
/* Sets *stats_out and *rows for a kernel that stores the statistics from such
 * sums itself. Returns false where ranks all-reduce the statistics. */
bool deferred_norm_keep(const Call *c, NormStatsOut *stats_out, double *rows);
bool deferred_norm_bwd(const Call *c);
/* Instead of deferred_norm_bwd, for a convolution that applies the norm's
 * backward on load: sets *s except s->to, and writes the gradients of the
 * norm's parameters. table: room for the coefficients of C channels, used if
 * the call that made the gradient sums has not stored them. */
bool deferred_norm_bwd_on_load(const Call *c, float4 *table, NormBwd *s);
/* In norm_stats.cu: computes p->stats_out.stat from the rows of x, of all ranks
 * if the ranks share the statistics, and updates the running ones. False with
 * the reason. */
bool norm_measure(const Call *c, Norm *p);

/* In norm_layer.cu: sets of one row. Forward: statistics and y. Backward:
 * dx. */
bool norm_rows_fwd(const Call *c, const Norm &p);
bool norm_rows_bwd(const Call *c, const Norm &p);
#endif
