/* normalize.h -- the step normalize of steps.def. */
#ifndef SEG_DATA_PREPROCESS_NORMALIZE_H
#define SEG_DATA_PREPROCESS_NORMALIZE_H
#include "data/steps/step.h"
#include "data/volume.h"

/* Normalises v (F32, finite) in place, each channel alone or all together; unit
 * NONE afterwards. ERR_DATA if no slice of a channel (per volume: the channel
 * as a whole) has two different values left, with *channel its number from 0,
 * else -1: such an image means a faulty file, and a network would be trained on
 * zeros. A single slice without contrast is common (air) and becomes 0. */
bool normalize_volume(const DataStep *step, Volume *v, int *channel);

#endif
