/* standardize.h -- the step standardize of steps.def: numbers of the training
 * cases, used on all.
 *
 * A recipe describes the step; its numbers are found on the training cases
 * (statistics.h) and from then on stand in the step itself, and so in the text
 * of a checkpoint: validation, test and prediction run what training ran. */
#ifndef SEG_DATA_STEPS_STANDARDIZE_H
#define SEG_DATA_STEPS_STANDARDIZE_H
#include "data/dataset/dataset.h"
#include "data/steps/step.h"

/* Whether attributes contradict one another (ERR_USAGE). */
bool standardize_settle(const DataStep *s);

/* What the step is about, as a text for messages: the name of its field, or
 * "the first field". */
const char *standardize_what(const DataStep *s, char text[STEP_NAME]);

/* The place of its field, -1 where `ds` has none of that name. */
int standardize_field(const DataStep *s, const Dataset *ds);

/* v (F32) in place; unit NONE afterwards. ERR_USAGE when the numbers were not
 * found yet, or are those of another number of channels. */
bool standardize_volume(const DataStep *s, Volume *v);

/* What 0 has become in the first field of numbers, in zero[MAX_STEP_REALS], one
 * for each number; NULL when no step standardizes that field. */
const float *standardize_zero(const Steps *steps, const Dataset *ds,
                              float *zero);

/* False for a standardize step whose numbers were not found yet. */
bool steps_fitted(const DataStep *s);

/* The numbers of the standardize steps of `from` into those of `to`, in their
 * order. Fails (ERR_USAGE) when there are fewer of them, when they were
 * described in other words, have no numbers in `from`, or others in `to`. */
bool steps_take(const Steps *from, Steps *to);

#endif
