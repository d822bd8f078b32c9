/* normalize.h -- the step normalize of steps.def. */
#ifndef SEG_NORMALIZE_H
#define SEG_NORMALIZE_H
#include "step.h"
#include "volume.h"

/* v (F32, finite) in place, each channel by itself; unit NONE afterwards. */
bool normalize_volume(const DataStep *step, Volume *v);

#endif
