/* norm.cuh -- one call of a normalisation, for norm.cu, norm_stat.cu and
 * norm_rows.cu.
 *
 *     y = (x - mean) * rstd * gamma + beta
 *     dx = rstd * (u - bar(u) - z bar(u z)), u = dy * gamma,
 *     z = (x - mean) * rstd, bars: means over a set and a group of channels
 *
 * with the sets, rows and groups of cpu/ref/norm.c. */
#ifndef SEG_NORM_CUH
#define SEG_NORM_CUH
#include "team.cuh"
#include "then.cuh"
#include "walk.cuh"

/* The mean as hi + lo: subtracted one after the other they keep the digits of
 * x - mean where the mean is large against the spread. */
struct Stat {
    float hi, lo, rstd;
};

static __device__ __forceinline__ float centred(float x, const Stat &s)
{
    return x - s.hi - s.lo;
}

/* y of x: one rounding, so that it is the same in every kernel. */
static __device__ __forceinline__ float normal(float x, const Stat &s,
                                               float scale, float shift)
{
    return fmaf(centred(x, s), scale, shift);
}

struct Slant; // slant.cuh

/* Where sums 0 and 1 of a channel are gradients of parameters; NULL: not
 * wanted. */
struct Puts {
    float *to[2];
    bool fresh[2];
};

static __device__ __forceinline__ void put_total(const Puts &p, int which,
                                                 int c, double sum)
{
    if (p.to[which]) put(&p.to[which][c], (float)sum, p.fresh[which]);
}

struct Norm {
    const void *x, *dy;
    void *out;  // y or dx[0]
    Dtype type; // of x, dy and out
    const float *gamma, *beta;
    bool fresh;              // of dx[0]
    float *running, *spread; // mean and variance; batch_norm, or NULL
    bool about_0;            // parts are sums of x and x^2
    Stat *stat;              // (sets, groups): saved
    float2 *table;           // of a lazy call (lens.cuh), or NULL
    double *parts;           // of sums, (sets, parts, 2, C)
    double *total;           // bwd: their totals, (sets, 2, C); or NULL
    unsigned *words;         // of the walk; NULL: parts are only left
    Puts put;                // bwd: dbeta, dgamma, where the walk has one set
    int64_t sets, rows;      // rows: of a set
    int64_t walked;          // sets of the walk: 1 when alone
    int channels, count;     // count: groups of channels
    float eps;
    double momentum;
    Divisor groups, per; // how many; channels of each
    bool given;          // statistics come from outside (evaluation)
    Then then;           // behind y, before dy
    // of several ranks: sums of all, (2, C) and their rows; NULL: this one's
    double *joined;
    const float *about; // (C) what the moments of a rank are taken about
    const Step *step;   // on the device: is this rank idle?
    bool alone;         // one row a set: norm_rows.cu
    int pack;           // channels that are worked on at a time: 4 or 1
    Walk walk;          // alone: over all rows as one set
    Teams teams;        // alone: one for each set and group
};

/* Statistics of channel c of a set: measured, or the running ones. */
static __device__ __forceinline__ Stat stat_of(const Norm &p, int64_t set,
                                               int c)
{
    if (!p.given) return p.stat[set * p.count + quotient((uint32_t)c, p.per)];
    return {p.running[c], 0,
            (float)(1 / sqrt((double)p.spread[c] + (double)p.eps))};
}

/* Of channel c with these statistics. */
static __device__ __forceinline__ float scale_of(const Norm &p, const Stat &s,
                                                 int c)
{
    return p.gamma ? s.rstd * p.gamma[c] : s.rstd;
}

static __device__ __forceinline__ float beta_of(const Norm &p, int c)
{
    return p.gamma ? p.beta[c] : 0;
}

/* Are the statistics those of the batch of all ranks? */
static inline bool norm_is_joined(const Call *c, const Norm &p)
{
    return c->attr->op == OP_batch_norm && !p.given && is_shared(c) &&
           c->step->share.norms;
}

/* norm.cu: a batch_norm that a lazy convolution c leaves to its readers, as a
 * call of its own on what c stored; its statistics and the table of lens.cuh,
 * and the way back, in dy's memory. parts: of sums of y and y^2 of each channel
 * that the scratch begins with; 0: none. */
Space norm_lazy_space(const Call *c, int parts);
bool norm_lazy(const Call *c, int parts);
bool norm_lazy_back(const Call *c);
/* Not taken back but described, for a product that does it: *s but s->to; the
 * gradients of the norm's parameters are made. table: of C channels. */
bool norm_lazy_slant(const Call *c, float4 *table, Slant *s);
/* norm_stat.cu: p->stat of the rows of x, of all ranks where they share it; the
 * running ones move. False with the reason. */
bool norm_measure(const Call *c, Norm *p);

/* norm_rows.cu: sets of one row. Forward: statistics and y. Backward: dx. */
bool norm_rows_fwd(const Call *c, const Norm &p);
bool norm_rows_bwd(const Call *c, const Norm &p);
#endif
