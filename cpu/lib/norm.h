/* norm.h -- what the normalisations share: how rows are cut into blocks, and
 * the tables of BnAffine that turn the statistics of a channel into y. */
#ifndef SEG_CPU_LIB_NORM_H
#define SEG_CPU_LIB_NORM_H
#include "cpu/lib/act.h"
#include "cpu/lib/window.h"

enum { NORM_TABLES = 6 }; // of BnAffine, the last two of backward alone

/* Rows of one block of rows of `channels` floats: by shapes alone, as a block
 * is one chain of f32 additions. */
static inline int64_t norm_block(int64_t channels)
{
    enum {
        BYTES = 128 << 10, // of x: fits the second cache beside dy
        ROWS = 1024,       // the longest chain
        ROWS_LEAST = 32,   // else the sums of blocks outweigh the blocks
    };
    int64_t rows = BYTES / (int64_t)sizeof(float) / channels;
    return most(ROWS_LEAST, least(ROWS, rows));
}

/* Channel i of the tables of forward: y = (x - hi - lo) scale + beta. The mean
 * is two floats, subtracted one after the other: they keep the digits of
 * x - mean where the mean is large against the spread. gamma and beta
 * (channels) may be NULL: 1 and 0. */
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

/* The tables (NORM_TABLES, channels) as kernels take them. */
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
