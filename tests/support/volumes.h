/* volumes.h -- small synthetic volumes and data sets for the tests of data/. */
#ifndef SEG_TESTS_SUPPORT_VOLUMES_H
#define SEG_TESTS_SUPPORT_VOLUMES_H
#include "data/preprocess/pipeline.h"

/* The grid of axis code 0 .. 47 (an order of the patient axes and three signs),
 * voxels of mm[0] x mm[1] x mm[2] along w, h, d, rotated by `turn` radians
 * about an oblique direction. */
enum { MADE_CODES = 48 };
void made_affine(int code, double turn, const double mm[3], double out[4][4]);

/* F32 image with different values for every voxel and `seed`; whole numbers
 * when `whole`. Spacing 1 x 1 x 2 mm, axial LPS. */
Volume made_image(uint32_t seed, int d, int h, int w, bool whole);

/* U8 mask: a box of ones in the middle half of the slices. */
Volume made_mask(int d, int h, int w);

/* `cases` cases "case_00", ... of patients "p0", ..., `per` cases each, with
 * masks; whole intensities. */
Dataset *made_dataset(int cases, int per, int d, int h, int w);

/* Steps parsed by steps_parse; the test fails otherwise. */
Steps made_steps(const char *text);

/* An opened pipeline with all cases kept in memory. */
Pipeline *made_pipeline(const Dataset *ds, const char *steps);

/* Mean and standard deviation of n values. */
void made_moments(const float *x, int64_t n, double *mean, double *std);

#endif
