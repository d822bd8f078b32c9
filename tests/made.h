/* made.h -- small made-up volumes and data sets for the tests of data/. */
#ifndef SEG_MADE_H
#define SEG_MADE_H
#include "pipeline.h"

/* F32 image with values that tell voxels and `seed` apart; whole numbers
 * when `whole`. Spacing 1 x 1 x 2 mm, axial LPS. */
Volume made_image(uint32_t seed, int d, int h, int w, bool whole);

/* U8 mask: a box of ones in the middle half of the slices. */
Volume made_mask(int d, int h, int w);

/* `cases` cases "case_00", ... of patients "p0", ..., `per` cases each, with
 * masks; whole intensities. */
Dataset *made_dataset(int cases, int per, int d, int h, int w);

/* Steps from text as steps_parse reads it; the test fails otherwise. */
Steps made_steps(const char *text);

/* An opened pipeline with everything kept in memory. */
Pipeline *made_pipeline(const Dataset *ds, const char *steps);

/* Mean and standard deviation of n values. */
void made_moments(const float *x, int64_t n, double *mean, double *std);

#endif
