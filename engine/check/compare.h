/* compare.h -- the one judge of "these two arrays are the same enough".
 *
 * Four bounds, one per column value of ops.def; u = 2^-24, the rounding of a
 * float. A NaN on either side never passes, nor does an empty comparison: a
 * test that looks at nothing is a mistake. Infinities pass only where both
 * sides have the same one and the bound is exact or ulp. -0 equals 0. The least
 * float, 2^-149, is in all bounds but exact: there is none between it and 0. */
#ifndef SEG_ENGINE_CHECK_COMPARE_H
#define SEG_ENGINE_CHECK_COMPARE_H
#include "engine/graph/op.h"

typedef struct Verdict {
    bool ok;
    double margin;          /* worst error / what is allowed there      */
    int64_t at;             /* where that is; -1 when nothing compared  */
    double got, want, room; /* values and what is allowed there         */
} Verdict;

typedef struct Judge {
    Bound bound;
    /* dot: |got - want| <= (u (4 sqrt(chain) + 8) + operands) scale[i] +
     * u |want[i]|; operands: relative error of a product whose operands are
     * rounded to fewer bits, 0 in f32; chain is the longest run of float
     * additions, taken as 1024 at most, scale[i] the sum of the absolute
     * products. */
    const double *scale;
    double chain, operands;
    /* dot, above 0: instead |got - want| <= blur x the largest |want|, beside
     * what operands were rounded by, for algorithms whose error spreads over
     * all results of a neighbourhood. */
    double blur;
    /* ulp, nmse: an error that is accepted everywhere, for results that are
     * zero but for rounding. Usually 0. */
    double floor;
    /* nmse: what each element may be off by before its error counts, see
     * condition.h. NULL: nothing. */
    const double *room;
} Judge;

/* got: float results as doubles; want: the reference in double.
 * exact: got equals want rounded to float.
 * ulp:   |got - want| <= 4 spacings of floats at |want|, + floor.
 * nmse:  sum max(|got - want| - room[i], 0)^2 <= 1e-10 sum want^2 + count
 *        floor^2.
 * dot:   as above. */
Verdict compare_arrays(const Judge *j, const double *got, const double *want,
                       int64_t count);

/* Distance from |v| to the next float above, at least 2^-149. */
double float_spacing(double v);
#endif
