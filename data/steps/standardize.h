/* standardize.h -- the step standardize of steps.def: statistics of the
 * training cases, applied to all cases.
 *
 * A recipe describes the step; its numbers are found on the training cases
 * (statistics.h) and are then stored in the step, and so in the text of a
 * checkpoint: validation, test and prediction use the numbers of training. */
#ifndef SEG_DATA_STEPS_STANDARDIZE_H
#define SEG_DATA_STEPS_STANDARDIZE_H
#include "data/dataset/dataset.h"
#include "data/steps/step.h"

/* Checks that the attributes do not contradict one another (ERR_USAGE). */
bool standardize_settle(const DataStep *s);

/* The field of the step, for messages: its name, or "the first field". */
const char *standardize_what(const DataStep *s, char text[STEP_NAME]);

/* The index of its field, -1 if `ds` has no field of that name. */
int standardize_field(const DataStep *s, const Dataset *ds);

/* Standardises the intensities of v (F32) in place and sets the unit of v to
 * NONE. Fails with ERR_USAGE if the numbers of the step are not yet found on
 * the training cases, or are for another number of channels. */
bool standardize_volume(const DataStep *s, Volume *v);

/* The standardised value of 0 for each number of the first field of numbers, in
 * zero[MAX_STEP_REALS]; NULL if no step standardizes that field. */
const float *standardize_zero(const Steps *steps, const Dataset *ds,
                              float *zero);

/* False for a standardize step without its numbers. */
bool steps_fitted(const DataStep *s);

/* Copies the numbers of the standardize steps of `from` into the steps of `to`,
 * in their order. Fails (ERR_USAGE) if `from` has fewer such steps, a different
 * description or no numbers, or if `to` has other numbers. */
bool steps_take(const Steps *from, Steps *to);

#endif
