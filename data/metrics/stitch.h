/* stitch.h -- what a network makes of the parts of a case, put together and
 * brought to the grid of the input, in memory that does not grow with it.
 *
 * Parts come in their order, so that slices across d are finished one after the
 * other: a slab of class scores, as deep as a part and one slice more, takes
 * the parts in, and as soon as no part to come touches a slice, the voxels of
 * the input's grid that are made of it get their results, and its memory takes
 * the next. Never are there class scores of a whole case, unless a part is one,
 * or they are asked for.
 *
 * The results are functions of the case and the samples alone: the same bytes
 * for any number of threads, and however the parts were run through the
 * network.
 */
#ifndef SEG_DATA_METRICS_STITCH_H
#define SEG_DATA_METRICS_STITCH_H
#include "data/preprocess/pipeline.h"

typedef struct Stitch Stitch;

/* What is made of the scores p of a voxel, which are those of the parts there,
 * blended (part_blend), and linear between the voxels of the prepared case. */
typedef struct StitchOptions {
    int32_t channels; /* of a sample                                         */
    int32_t classes;  /* of them the first so many are scores; others go into
                       * `values` only                                     */
    /* U8 class numbers: of one class 1 where p > threshold; of several the
     * largest, of equals the first, from 0. At most 256 classes. */
    bool labels;
    double threshold;
    bool values; /* F32, all channels: as large as the input times channels */
    /* F32: -sum p log p over the classes, of one class over p and 1 - p; p
     * below 0 counts as 0. Natural logarithm. */
    bool entropy;
    bool prepared; /* on the grid of the prepared case, not of the input */
} StitchOptions;

/* Volumes on the grid; those that were not asked for are zero. 0 where the
 * prepared grid does not reach. */
typedef struct StitchResult {
    Volume labels, values, entropy;
} StitchResult;
void stitch_result_free(StitchResult *r); /* r is zero again */

/* Bytes of a mosaic: what takes the parts in, with what one slice of the grid
 * needs on its way, and the results. */
typedef struct StitchBytes {
    size_t slab, results;
    int64_t voxels; /* of the grid */
} StitchBytes;

/* A mosaic of case `item` of p; both are held until it is freed. ERR_USAGE
 * where parts are drawn at random: they do not cover a case. */
bool stitch_new(Pipeline *p, int item, const StitchOptions *o, Stitch **out);
void stitch_free(Stitch *m); /* NULL is fine */
StitchBytes stitch_bytes(const Stitch *m);

/* Take in what the network makes of sample `number` of the case, (d, h, w) of
 * pipeline_dims_of and the channels. Numbers go up; slices that are left out
 * stay 0. ERR_DIVERGED, naming the case, where a value is not finite: a
 * threshold would make background of it. */
bool stitch_put(Stitch *m, int32_t number, const float *sample);

/* There are no more parts: the results, which the caller frees. Once. */
bool stitch_finish(Stitch *m, StitchResult *out);
#endif
