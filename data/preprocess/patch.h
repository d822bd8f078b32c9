/* patch.h -- the SLICE steps: which boxes of a prepared volume are samples.
 *
 * A sample is the whole volume, a slice across d, or a patch; the samples of a
 * case are its parts, numbered from 0. Extents and boxes are those of the
 * prepared volume. */
#ifndef SEG_DATA_PREPROCESS_PATCH_H
#define SEG_DATA_PREPROCESS_PATCH_H
#include "data/preprocess/pack.h"
#include "data/steps/step.h"
#include "engine/base/rng.h"

/* Extents of a sample of a volume of extents n; channels are kept. The volume
 * is at least as large as a patch, because prepare_case pads it. */
Dims part_dims(const Steps *steps, Dims n);

/* The rank of samples of a field of rank 0 .. 3. */
int part_rank(const Steps *steps, int rank);

/* Number of parts of such a volume; for slices all d, before `keep` and
 * `range`. */
int32_t part_count(const Steps *steps, Dims n);

/* Are parts drawn at random (part_draw), or at fixed places (part_box)? */
bool part_drawn(const Steps *steps);

/* The box of part number `part` of a volume of extents n. */
Box part_box(const Steps *steps, Dims n, int32_t part);

/* The number of voxels of each class in each slice; all zero: not counted. */
typedef struct PatchClassCounts {
    int32_t classes; /* in the case, without 0           */
    uint8_t *label;  /* (classes), ascending             */
    uint32_t *count; /* (classes, d)                     */
} PatchClassCounts;

/* Does part_draw need class counts? */
bool patch_wants_class_counts(const Steps *steps);

/* Counts the classes. Fails only when memory runs out. */
bool patch_class_counts(const Pack *label, PatchClassCounts *out);
void patch_class_counts_free(PatchClassCounts *c); /* zeroes c        */

/* Draws the box of a patch in a volume of extents n, from draws 0 .. 4 of
 * `draw`. class_counts: the counts of `label`, a volume of these extents; NULL
 * if not needed. Fails only when memory runs out. */
bool part_draw(const Steps *steps, Dims n, const PatchClassCounts *class_counts,
               const Pack *label, const Rng *draw, Box *out);

/* planes += sample (d, h, w, c) in the box of part `part` of a grid of patches,
 * weighted along each axis by g(x) / (sum of g(x) over all patches that contain
 * the voxel), where g is a Gaussian centred on the patch with a standard
 * deviation of 1/8 of its extent, as in nnU-Net: all parts together make a
 * weighted mean. n: extents and channels of the whole volume; planes (F32)
 * begins with its slice `first` and has as many slices as the box; zero before
 * the first part. Fails only when memory runs out. */
bool part_blend(const Steps *steps, Dims n, int32_t part, const float *sample,
                int32_t first, float *planes);
#endif
