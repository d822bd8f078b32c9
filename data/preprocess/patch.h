/* patch.h -- the SLICE steps: which boxes of a prepared volume are samples.
 *
 * A sample is the whole volume, a slice across d, or a patch. Parts of a case
 * count from 0; extents and boxes are those of the prepared volume. */
#ifndef SEG_DATA_PREPROCESS_PATCH_H
#define SEG_DATA_PREPROCESS_PATCH_H
#include "data/preprocess/pack.h"
#include "data/steps/step.h"
#include "engine/base/rng.h"

/* Extents of a sample of a volume of extents n: channels stay. The volume is
 * at least as large as a patch, prepare_case pads it. */
Dims part_dims(const Steps *steps, Dims n);

/* The rank of samples of a field of `rank` 0 .. 3. */
int part_rank(const Steps *steps, int rank);

/* How many parts such a volume has: of slices all d. */
int32_t part_count(const Steps *steps, Dims n);

/* Are parts drawn, by part_draw, and not where part_box says? */
bool part_drawn(const Steps *steps);

/* Where part number `part` of a volume of extents n lies. */
Box part_box(const Steps *steps, Dims n, int32_t part);

/* How often each class of a case stands in each slice; all zero: none does. */
typedef struct PatchClassCounts {
    int32_t classes; /* that the case has, without 0     */
    uint8_t *label;  /* (classes), ascending             */
    uint32_t *count; /* (classes, d)                     */
} PatchClassCounts;

/* Do draws need a census? */
bool patch_wants_class_counts(const Steps *steps);

/* Fails without memory. */
bool patch_class_counts(const Pack *label, PatchClassCounts *out);
void patch_class_counts_free(PatchClassCounts *c); /* c is zero again */

/* Where a patch of a volume of extents n lies, by draws 0 .. 4 of `draw`.
 * census: that of `label`, a volume of these extents; NULL: none is wanted.
 * Fails without memory. */
bool part_draw(const Steps *steps, Dims n, const PatchClassCounts *class_counts,
               const Pack *label, const Rng *draw, Box *out);

/* planes += sample (d, h, w, c) in the box of part `part` of a grid of patches,
 * weighted along each axis by g(x) / sum of g(x) over the patches that have the
 * voxel, g a normal curve about the middle of the patch whose standard
 * deviation is 1/8 of its extent, as nnU-Net weighs them: all parts together
 * make a mean. n: extents and channels of the whole, of which planes (F32)
 * begins with slice `first` and has those of the box; zero before the first
 * part. Fails without memory. */
bool part_blend(const Steps *steps, Dims n, int32_t part, const float *sample,
                int32_t first, float *planes);
#endif
