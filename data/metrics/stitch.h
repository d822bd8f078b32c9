/* stitch.h -- stitches the predictions of the samples of a case and resamples
 * the result to the grid of the input, in memory that does not grow with the
 * case.
 *
 * Samples arrive in order, so that slices across d are completed one after the
 * other. A slab of class scores, one slice deeper than a sample, accumulates
 * the samples. As soon as no later sample touches a slice, the voxels of the
 * input's grid that depend on it get their results, and its memory is used for
 * the next slice. Class scores of a whole case are in memory only if a sample
 * is a whole case, or if they are requested.
 *
 * The results are functions of the case and the samples alone: the same bytes
 * for any number of threads, and for any batching of the samples. */
#ifndef SEG_DATA_METRICS_STITCH_H
#define SEG_DATA_METRICS_STITCH_H
#include "data/preprocess/pipeline.h"

typedef struct Stitch Stitch;

/* Results computed from the scores p of a voxel: the blended scores
 * (part_blend) of the samples that cover it, linearly interpolated between the
 * voxels of the prepared case. */
typedef struct StitchOptions {
    int32_t channels; /* of a sample */
    int32_t classes;  /* the first `classes` channels are scores; the others go
                       * into `values` only */
    /* U8 class numbers: for one class 1 where p > threshold; for several the
     * class with the largest score, of equal ones the first, from 0. At most
     * 256 classes. */
    bool labels;
    double threshold;
    bool values; /* F32, all channels: the size of the input times channels */
    /* F32: -sum p log p over the classes, for one class over p and 1 - p; p
     * below 0 counts as 0. Natural logarithm. */
    bool entropy;
    bool prepared; /* results on the grid of the prepared case, not of the
                    * input */
} StitchOptions;

/* Volumes on the grid; volumes that were not requested are zero-initialised.
 * Voxels are 0 where the prepared grid does not reach. */
typedef struct StitchResult {
    Volume labels, values, entropy;
} StitchResult;
void stitch_result_free(StitchResult *r); /* r is zero again */

/* Bytes of a Stitch: the slab with the memory for one slice of the grid, and
 * the results. */
typedef struct StitchBytes {
    size_t slab, results;
    int64_t voxels; /* of the grid */
} StitchBytes;

/* Makes a Stitch of case `item` of p; both stay in use until it is freed.
 * ERR_USAGE where samples are drawn at random: they do not cover a case. */
bool stitch_new(Pipeline *p, int item, const StitchOptions *o, Stitch **out);
void stitch_free(Stitch *m); /* NULL is fine */
StitchBytes stitch_bytes(const Stitch *m);

/* Adds the prediction of sample `number` of the case, (d, h, w) of
 * pipeline_dims_of and the channels. Numbers increase; slices that are left out
 * stay 0. ERR_DIVERGED, naming the case, where a value is not finite: a
 * threshold would turn it into background. */
bool stitch_put(Stitch *m, int32_t number, const float *sample);

/* Ends the samples and returns the results, which the caller frees. Called
 * once. */
bool stitch_finish(Stitch *m, StitchResult *out);
#endif
