/* dvh.h -- points of a dose-volume histogram as defined by the OpenKBP
 * challenge. */
#ifndef SEG_DATA_METRICS_DVH_H
#define SEG_DATA_METRICS_DVH_H
#include "engine/graph/tensor.h"

/* Points of the doses in the voxels of one structure, in the unit of the dose
 * (Gy). D_x is the minimum dose of the hottest x of the structure; percentiles
 * are linear between two ranks, as numpy's (Babier and others, OpenKBP, Medical
 * Physics 2021, and the challenge's program). */
typedef struct Dvh {
    int64_t voxels; /* of the structure; 0: all members below are NaN */
    /* 0.1 cm^3: percentile 100 - 100 n / voxels with n = max(1, 100 mm^3 in
     * whole voxels, halves to even); for a smaller structure, its minimum
     * dose */
    double d_01cc;
    double mean;
    double d_99, d_95, d_1; /* of 99, 95 and 1 %: percentiles 1, 5, 99 */
} Dvh;

/* dose, inside: count elements; the structure is where inside is at least 1/2.
 * voxel_mm3: volume of a voxel. Fails without memory. */
bool dvh_points(const float *dose, const float *inside, int64_t count,
                double voxel_mm3, Dvh *out);

/* Computes the cumulative histogram: percent[k] of the structure, 0 .. 100,
 * receives at least first + k step, k < points; step > 0. Returns the number of
 * voxels of the structure; if it is 0 every percent is NaN. */
int64_t dvh_curve(const float *dose, const float *inside, int64_t count,
                  double first, double step, int points, double *percent);
#endif
