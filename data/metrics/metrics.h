/* metrics.h -- compares the prediction of a case with its ground truth, on the
 * prepared grid.
 *
 * One channel: predicted where the probability is above the threshold, true
 * where the ground truth is at least 1/2; this is class 0. Several channels:
 * the predicted class is the channel with the largest probability, of equal
 * ones the first; the true class is the class number, or each channel that is
 * at least 1/2. Voxels with mask 0 and slices that are not `used` are ignored.
 * Counts are defined as for the operator `overlap` (ops.def). All sums run in
 * the order of memory. */
#ifndef SEG_DATA_METRICS_METRICS_H
#define SEG_DATA_METRICS_METRICS_H
#include "data/metrics/dvh.h"
#include "data/metrics/surface.h"
#include "data/volume.h"

/* Volumes on one grid, F32. */
typedef struct Measured {
    const Volume *prediction; /* C channels                             */
    const Volume *truth;      /* ground truth, 1 or C channels */
    const Volume *mask;       /* 1 or C; NULL: every voxel counts */
    const uint8_t *used;      /* one flag per slice across d; NULL: all */
    double threshold;
} Measured;

/* Returns true if the volumes meet the conditions above; else ERR_USAGE with
 * the difference. */
bool measure_check(const Measured *m);

/* Sets count[3k + (0,1,2)] to #both, #predicted, #true of class k < C; returns
 * the number of voxels counted in channel 0. */
int64_t measure_overlap(const Measured *m, int64_t *count);

/* Sets count[t * K + p] to the number of voxels of class t that were predicted
 * as p; K = C, or 2 for one channel (0 no, 1 yes). The ground truth has one
 * channel; a voxel whose ground truth is no class number is ignored. */
void measure_confusion(const Measured *m, int64_t *count);

/* Compares the surfaces of class k, predicted (A) and true (B); ignored voxels
 * are in neither. ERR_FAILURE without memory. */
bool measure_surface(const Measured *m, int k, double tolerance_mm,
                     Surface *out);

/* Computes the area under the ROC curve of the probability of class k; NaN when
 * the class is everywhere or nowhere. ERR_FAILURE without memory. */
bool measure_roc(const Measured *m, int k, double *area);

/* Sets sum[c] to the sum of |prediction - truth| of channel c over n[c]
 * voxels. */
void measure_error(const Measured *m, double *sum, int64_t *n);

/* Computes the points of the dose-volume histogram of a dose (prediction, one
 * channel) in channel `channel` of the structures (truth, any number of
 * channels). Where the mask is 0 the dose is 0. ERR_FAILURE without memory. */
bool measure_dvh(const Measured *m, int channel, Dvh *out);

/* Computes the histogram of the same voxels at `points` doses (dvh_curve) and
 * sets *voxels to their number. ERR_FAILURE without memory. */
bool measure_dvh_curve(const Measured *m, int channel, double first,
                       double step, int points, double *percent,
                       int64_t *voxels);

/* Counts for a reliability diagram of one channel: a voxel of probability p
 * belongs to bin floor(log(p / (1 - p)) / MEASURE_BIN) + MEASURE_BINS / 2,
 * clamped to the first and last bin; of the voxels in bin b, yes[b] are true
 * and no[b] are not. */
enum { MEASURE_BINS = 1600 };
#define MEASURE_BIN 0.02
void measure_reliability(const Measured *m, int64_t yes[MEASURE_BINS],
                         int64_t no[MEASURE_BINS]);

/* Counts one channel at thresholds j / steps, 0 < j < steps: both[j] and
 * predicted[j]; *truth is the number of true voxels. Each array has `steps`
 * elements. */
void measure_thresholds(const Measured *m, int steps, int64_t *both,
                        int64_t *predicted, int64_t *truth);
#endif
