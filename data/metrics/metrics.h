/* metrics.h -- what a network made of a case against what is true, on the
 * prepared grid.
 *
 * One channel: predicted where the probability is above the threshold, true
 * where the truth is at least 1/2; it is class 0. Several: predicted is the
 * class of the largest probability, of equals the first; true is the class
 * number, or each channel at least 1/2. Voxels whose mask is 0 do not count,
 * nor do slices that are not used. Counts are those of the operator `overlap`
 * (ops.def). All sums run in the order of memory. */
#ifndef SEG_DATA_METRICS_METRICS_H
#define SEG_DATA_METRICS_METRICS_H
#include "data/metrics/dvh.h"
#include "data/metrics/surface.h"
#include "data/volume.h"

/* Volumes of one grid, F32. */
typedef struct Measured {
    const Volume *prediction; /* C channels                             */
    const Volume *truth;      /* 1 or C                                 */
    const Volume *mask;       /* 1 or C; NULL: everything counts        */
    const uint8_t *used;      /* of each slice across d; NULL: all      */
    double threshold;
} Measured;

/* Are the volumes what this page wants? Else ERR_USAGE with what differs. */
bool measure_check(const Measured *m);

/* count[3k + (0,1,2)] = #both, #predicted, #true of class k < C; returns how
 * many voxels of channel 0 were counted. */
int64_t measure_overlap(const Measured *m, int64_t *count);

/* count[t * K + p] = voxels of class t that were taken for p; K = C, or 2 of
 * one channel (0 no, 1 yes). The truth has one channel; a voxel whose truth is
 * no class does not count. */
void measure_confusion(const Measured *m, int64_t *count);

/* The surfaces of class k, predicted (A) and true (B); what does not count is
 * in neither. ERR_FAILURE without memory. */
bool measure_surface(const Measured *m, int k, double tolerance_mm,
                     Surface *out);

/* Area under the ROC curve of the probability of class k; NaN when it is
 * everywhere or nowhere. ERR_FAILURE without memory. */
bool measure_roc(const Measured *m, int k, double *area);

/* sum[c] = sum of |prediction - truth| of channel c, n[c] over how many. */
void measure_error(const Measured *m, double *sum, int64_t *n);

/* Points of the histogram of a dose (prediction, one channel) in channel
 * `channel` of the structures (truth, any number). Where the mask is 0 the dose
 * is 0. ERR_FAILURE without memory. */
bool measure_dvh(const Measured *m, int channel, Dvh *out);

/* The histogram of the same voxels at `points` doses (dvh_curve), whose number
 * is in *voxels. ERR_FAILURE without memory. */
bool measure_dvh_curve(const Measured *m, int channel, double first,
                       double step, int points, double *percent,
                       int64_t *voxels);

/* How sure the one channel is, and how often rightly: a voxel of probability p
 * belongs to bin floor(log(p / (1 - p)) / MEASURE_BIN) + MEASURE_BINS / 2, cut
 * to the first and last; yes[b] of those in bin b are true, no[b] are not. */
enum { MEASURE_BINS = 1600 };
#define MEASURE_BIN 0.02
void measure_reliability(const Measured *m, int64_t yes[MEASURE_BINS],
                         int64_t no[MEASURE_BINS]);

/* What the one channel gives at thresholds j / steps, 0 < j < steps:
 * both[j], predicted[j]; and *truth voxels are true. Each has `steps`
 * elements. */
void measure_thresholds(const Measured *m, int steps, int64_t *both,
                        int64_t *predicted, int64_t *truth);
#endif
