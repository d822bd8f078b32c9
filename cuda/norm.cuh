/* norm.cuh -- one call of a normalisation, for norm.cu and norm_rows.cu.
 *
 *     y = (x - mean) * rstd * gamma + beta
 *     dx = rstd * (u - bar(u) - z bar(u z)), u = dy * gamma,
 *     z = (x - mean) * rstd, bars: means over a set and a group of channels
 *
 * with the sets, rows and groups of cpu/ref/norm.c. */
#ifndef SEG_NORM_CUH
#define SEG_NORM_CUH
#include "team.cuh"
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

struct Norm {
    const void *x, *dy;
    void *out;  // y or dx[0]
    Dtype type; // of x, dy and out
    const float *gamma, *beta;
    bool fresh;              // of dx[0]
    float *running, *spread; // mean and variance; batch_norm, or NULL
    Stat *stat;              // (sets, groups): saved
    double *parts;           // of sums, (sets, parts, 2, C)
    double *total;           // bwd: their totals, (sets, 2, C)
    int64_t sets, rows;      // rows: of a set
    int64_t walked;          // sets of the walk: 1 when alone
    int channels, count;     // count: groups of channels
    float eps;
    double momentum;
    Divisor groups, per; // how many; channels of each
    bool given;          // statistics come from outside (evaluation)
    // of several ranks: sums of all, (2, C) and their rows; NULL: this one's
    double *joined;
    const float *about; // (C) what the moments of a rank are taken about
    const Step *step;   // on the device: is this rank idle?
    bool alone;         // one row a set: norm_rows.cu
    int pack;           // channels that are worked on at a time: 4 or 1
    Walk walk;          // alone: over all rows as one set
    Teams teams;        // alone: one for each set and group
};

/* norm_rows.cu: sets of one row. Forward: statistics and y. Backward: dx. */
bool norm_rows_fwd(const Call *c, const Norm &p);
bool norm_rows_bwd(const Call *c, const Norm &p);
#endif
