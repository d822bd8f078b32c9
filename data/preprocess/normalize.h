/* normalize.h -- the step normalize of steps.def. */
#ifndef SEG_DATA_PREPROCESS_NORMALIZE_H
#define SEG_DATA_PREPROCESS_NORMALIZE_H
#include "data/steps/step.h"
#include "data/volume.h"

/* v (F32, finite) in place, each channel by itself or all together; unit NONE
 * afterwards. A channel of which no slice (per volume: which as a whole) has
 * two values left to tell apart is ERR_DATA with *channel its number from 0,
 * else -1: such an image is a fault of its file, and a network would be trained
 * on zeros. A slice without contrast among others is usual (air) and becomes 0.
 */
bool normalize_volume(const DataStep *step, Volume *v, int *channel);

#endif
