/* normalize.h -- the step normalize of steps.def. */
#ifndef SEG_DATA_PREPROCESS_NORMALIZE_H
#define SEG_DATA_PREPROCESS_NORMALIZE_H
#include "data/steps/step.h"
#include "data/volume.h"

/* Normalises the intensities of v (F32, finite) in place, each channel alone or
 * all together, and sets the unit of v to NONE. Fails with ERR_DATA if the
 * selected values of a channel are constant after clipping in every slice (per
 * volume: as a whole): the file is probably faulty, and the network would be
 * trained on zeros. *channel is then the number of that channel, from 0, else
 * -1. A single constant slice is common (air) and becomes 0. */
bool normalize_volume(const DataStep *step, Volume *v, int *channel);

#endif
