/* dvh.c -- the sigmoids of all bins of a dose-volume histogram, voxel by voxel:
 * see cpu/ops/dvh.c.
 *
 * In double, as the sums are, and because e^(steep b) exceeds the range of
 * floats. Bound by the division of each bin. */
#include "cpu/simd/vec.h"

/* LANES_D doubles in memory. */
typedef double Du
    __attribute__((vector_size(VEC_BYTES), aligned(8), may_alias));

INLINE D load(const double *p)
{
    return *(const Du *)p;
}

/* a, but 1e150 at most, so that a product of two stays finite; a sigmoid of
 * 1e-150 counts as 0. NaN stays. */
INLINE D below(D a)
{
    const D most = d_set(1e150);
    return d_select(a > most, most, a);
}

void ISA_NAME(dose_diff)(double x, double t, const double *rise, int64_t bins,
                         double *diff);
void ISA_NAME(dose_diff)(double x, double t, const double *rise, int64_t bins,
                         double *diff)
{
    // one division for two sigmoids: 1/(1 + a) - 1/(1 + c) is
    // (c - a) / ((1 + a) (1 + c)), where a and c keep their digits
    for (int64_t b = 0; b < bins; b += LANES_D) {
        D r = load(rise + b), one = d_set(1);
        D a = below(d_set(x) * r), c = below(d_set(t) * r);
        *(Du *)(diff + b) = (c - a) / ((one + a) * (one + c));
    }
}

void ISA_NAME(dose_add)(const double *x, double by, int64_t bins, double *sum);
void ISA_NAME(dose_add)(const double *x, double by, int64_t bins, double *sum)
{
    for (int64_t b = 0; b < bins; b += LANES_D)
        *(Du *)(sum + b) = load(sum + b) + d_set(by) * load(x + b);
}

double ISA_NAME(dose_grad)(double x, const double *rise, const double *g,
                           int64_t bins);
double ISA_NAME(dose_grad)(double x, const double *rise, const double *g,
                           int64_t bins)
{
    D sum = {0};
    double all = 0;
    for (int64_t b = 0; b < bins; b += LANES_D) {
        D a = d_set(x) * load(rise + b), v = d_set(1) / (d_set(1) + a);
        sum += load(g + b) * v * (a * v);
    }
    for (int i = 0; i < LANES_D; i++) all += sum[i];
    return all;
}
