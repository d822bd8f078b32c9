/* compare.h -- compares two arrays within an error bound.
 *
 * Four bounds, one per value of the column `bound` of ops.def; u = 2^-24, the
 * rounding of a float. A NaN on either side always fails, and so does an empty
 * comparison: it would be a mistake in the test. Infinities pass only if both
 * sides have the same one and the bound is exact or ulp. -0 equals 0. All
 * bounds except exact include 2^-149, the smallest positive float. */
#ifndef SEG_ENGINE_CHECK_COMPARE_H
#define SEG_ENGINE_CHECK_COMPARE_H
#include "engine/graph/op.h"

typedef struct Verdict {
    bool ok;
    double margin;          /* worst error / allowed error           */
    int64_t at;             /* its index; -1 if nothing was compared */
    double got, want, room; /* values and the allowed error there    */
} Verdict;

typedef struct Judge {
    Bound bound;
    /* dot: |got - want| <= (u (4 sqrt(chain) + 8) + operands) scale[i] + u
     * |want[i]|; operands: relative error of a product of operands rounded to
     * fewer bits, 0 in f32; chain: longest run of float additions, at most
     * 1024; scale[i]: sum of the absolute products. */
    const double *scale;
    double chain, operands;
    /* dot: relative error of a result that is rounded to a stored format, of at
     * least `least` for results near 0; 0: results are floats. Added to the
     * above: stored max(|want[i]|, least). */
    double stored, least;
    /* dot, if above 0: instead |got - want| <= blur x the largest |want|, plus
     * the rounding of operands, for algorithms that spread an error over the
     * results of a neighbourhood (Winograd). */
    double blur;
    /* ulp, nmse: an absolute error accepted everywhere, for results that are
     * zero up to rounding. Usually 0. */
    double floor;
    /* nmse: error of each element that is not counted, see condition.h. NULL:
     * none. */
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

/* Returns the distance from |v| to the next larger float, at least 2^-149. */
double float_spacing(double v);
#endif
