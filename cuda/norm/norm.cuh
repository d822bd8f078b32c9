/* norm.cuh -- one call of a normalisation, for norm.cu, norm_stats.cu and
 * norm_layer.cu.
 *
 *     y = (x - mean) * rstd * gamma + beta
 *     dx = rstd * (u - bar(u) - z bar(u z)), u = dy * gamma,
 *     z = (x - mean) * rstd, bars: means over a set and a group of channels
 *
 * with the sets, rows and groups of cpu/ref/norm.c. */
#ifndef SEG_CUDA_NORM_NORM_H
#define SEG_CUDA_NORM_NORM_H
#include "cuda/lib/act.cuh"
#include "cuda/lib/col_reduce.cuh"
#include "cuda/lib/warp_group.cuh"

/* The mean as hi + lo: subtracted one after the other they keep the digits of
 * x - mean where the mean is large against the spread. */
struct ChannelStats {
    float hi, lo, rstd;
};

static __device__ __forceinline__ float centred(float x, const ChannelStats &s)
{
    return x - s.hi - s.lo;
}

/* y of x: one rounding, so that it is the same in every kernel. */
static __device__ __forceinline__ float normal(float x, const ChannelStats &s,
                                               float scale, float shift)
{
    return fmaf(centred(x, s), scale, shift);
}

/* Where statistics are kept, what they move, and what is made of them. */
struct NormStatsOut {
    ChannelStats *stat; // (sets, groups): saved
    float2 *table;      // of a lazy call (deferred_norm.cuh), or NULL
    const float *gamma, *beta;
    float *running, *spread; // mean and variance; batch_norm, or NULL
    const Step *step;        // on the device: is this rank idle?
    float eps;
    double momentum;
};

/* Of channel c with these statistics. */
static __device__ __forceinline__ float scale_of(const NormStatsOut &k,
                                                 const ChannelStats &s, int c)
{
    return k.gamma ? s.rstd * k.gamma[c] : s.rstd;
}

static __device__ __forceinline__ float beta_of(const NormStatsOut &k, int c)
{
    return k.gamma ? k.beta[c] : 0;
}

/* NormStatsOut the statistics of a set and group of n values, which is number
 * `at`; the running ones of a batch_norm, whose groups are channels, move. */
static __device__ __forceinline__ void store_stats(const NormStatsOut &k,
                                                   int64_t at, double n,
                                                   double mean, double var,
                                                   bool moves)
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
    if (!k.running || !moves) return;
    // of a single value there is no unbiased variance
    const double unbias = n > 1 ? n / (n - 1) : 1, stay = 1 - k.momentum;
    float *move = k.running + at, *spread = k.spread + at;
    *move = (float)(stay * (double)*move + k.momentum * mean);
    *spread = (float)(stay * (double)*spread + k.momentum * unbias * var);
}

/* Mean and variance of n values, from sums of them and of their squares. */
static __device__ __forceinline__ void moments_by(double n, double sum,
                                                  double square, double *mean,
                                                  double *var)
{
    *mean = sum / n;
    *var = square / n - *mean * *mean;
    if (*var < 0) *var = 0;
}

/* Those of channel c from its sums of x and x^2 over n rows. An idle rank that
 * is on its own has none to move by. */
static __device__ __forceinline__ void store_channel_stats(
    const NormStatsOut &k, int c, double n, double sum, double square)
{
    double mean, var;
    moments_by(n, sum, square, &mean, &var);
    store_stats(k, c, n, mean, var, !k.step->share.idle);
}

/* What dx is made of beside dy, of n values whose sums of u and of u z are
 * these: of x - mean, and of nothing. */
static __device__ __forceinline__ void norm_bwd_terms(
    double gamma, const ChannelStats &s, double n, double sum, double sum_z,
    double *tilt, double *shift)
{
    const double share = gamma * -(double)s.rstd / n;
    *shift = share * sum;
    *tilt = share * sum_z * (double)s.rstd;
}

struct NormBwd; // norm_bwd_on_load.cuh

/* Where sums 0 and 1 of a channel are gradients of parameters; NULL: not
 * wanted. */
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
    bool about_0;        // parts are sums of x and x^2
    double *parts;       // of sums, (sets, parts, 2, C)
    double *total;       // bwd: their totals, (sets, 2, C); or NULL
    unsigned *counters;  // of the walk; NULL: parts are only left
    NormGrads put;       // bwd: dbeta, dgamma, where the walk has one set
    int64_t sets, rows;  // rows: of a set
    int64_t walked;      // sets of the walk: 1 when alone
    int channels, count; // count: groups of channels
    Divisor groups, per; // how many; channels of each
    bool given;          // statistics come from outside (evaluation)
    Act act;             // behind y, before dy
    // of several ranks: sums of all, (2, C) and their rows; NULL: this one's
    double *joined;
    const float *about;     // (C) what the moments of a rank are taken about
    bool alone;             // one row a set: norm_layer.cu
    int vec;                // channels that are worked on at a time: 4 or 1
    ColReduce cols;         // alone: over all rows as one set
    WarpGroups group_count; // alone: one for each set and group
};

/* Statistics of channel c of a set: measured, or the running ones. */
static __device__ __forceinline__ ChannelStats channel_stats_of(const Norm &p,
                                                                int64_t set,
                                                                int c)
{
    const NormStatsOut &k = p.stats_out;
    if (!p.given) return k.stat[set * p.count + quotient((uint32_t)c, p.per)];
    return {k.running[c], 0,
            (float)(1 / sqrt((double)k.spread[c] + (double)k.eps))};
}

/* Are the statistics those of the batch of all ranks? */
static inline bool norm_is_joined(const Call *c, const Norm &p)
{
    return c->attr->op == OP_batch_norm && !p.given && is_shared(c) &&
           c->step->share.norms;
}

/* norm.cu: a batch_norm that a lazy convolution c leaves to its readers, as a
 * call of its own on what c stored; its statistics and the table of
 * deferred_norm.cuh, and the way back, in dy's memory. parts: of sums of y and
 * y^2 of each channel that the scratch begins with; 0: none. */
Space deferred_norm_space(const Call *c, int parts);
bool deferred_norm_fwd(const Call *c, int parts);
/* Where such sums are all that its statistics take: where they are kept, and of
 * how many rows they are. Not where ranks join theirs. */
bool deferred_norm_keep(const Call *c, NormStatsOut *stats_out, double *rows);
bool deferred_norm_bwd(const Call *c);
/* Not taken back but described, for a product that does it: *s but s->to; the
 * gradients of the norm's parameters are made. table: room for C lines, where
 * the call that closed dy has made none. */
bool deferred_norm_bwd_on_load(const Call *c, float4 *table, NormBwd *s);
/* norm_stats.cu: p->keep.stat of the rows of x, of all ranks where they share
 * it; the running ones move. False with the reason. */
bool norm_measure(const Call *c, Norm *p);

/* norm_layer.cu: sets of one row. Forward: statistics and y. Backward: dx. */
bool norm_rows_fwd(const Call *c, const Norm &p);
bool norm_rows_bwd(const Call *c, const Norm &p);
#endif
