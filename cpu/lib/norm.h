/* norm.h -- shared by the fast normalisations: the size of a block of rows, and
 * the tables of BnAffine, which hold the constants of a channel. */
#ifndef SEG_CPU_LIB_NORM_H
#define SEG_CPU_LIB_NORM_H
#include "cpu/lib/act.h"
#include "cpu/lib/window.h"

enum { NORM_TABLES = 6 }; // of BnAffine; the last two only in bwd

/* Returns the number of rows in a block, for rows of `channels` floats. It
 * depends on shapes alone, because the sums of a block are chains of f32
 * additions over its rows. */
static inline int64_t norm_block(int64_t channels)
{
    enum {
        BYTES = 128 << 10, // of x: fits L2 together with dy
        ROWS = 1024,       // the longest chain
        ROWS_LEAST = 32,   // fewer: partial sums outweigh x
    };
    int64_t rows = BYTES / (int64_t)sizeof(float) / channels;
    return most(ROWS_LEAST, least(ROWS, rows));
}

/* Fills channel i of the tables of the forward run: y = (x - hi - lo) scale +
 * beta. The mean is the sum of two floats, which are subtracted one after the
 * other: so x - mean keeps its digits where the mean is large against the
 * standard deviation. gamma and beta (channels) may be NULL: 1 and 0. */
static inline void norm_channel(float *table, int64_t channels, int64_t i,
                                double mean, double rstd, const Tensor *gamma,
                                const Tensor *beta)
{
    float *at = table + i, hi = (float)mean;
    at[0] = hi;
    at[channels] = (float)(mean - (double)hi);
    at[2 * channels] =
        (float)(rstd * (gamma ? ((const float *)gamma->data)[i] : 1));
    at[3 * channels] = beta ? ((const float *)beta->data)[i] : 0;
}

/* The tables (NORM_TABLES, channels) as a BnAffine. */
static inline BnAffine norm_affine(const float *table, int64_t channels,
                                   Act act)
{
    return (BnAffine){.hi = table,
                      .lo = table + channels,
                      .scale = table + 2 * channels,
                      .beta = table + 3 * channels,
                      .shift = table + 4 * channels,
                      .tilt = table + 5 * channels,
                      .act = act};
}
#endif
