/* optim.cuh -- what the device can do with gradients beside the vtable's
 * update and sum_squares: the same, with nobody waiting, for a trainer. */
#ifndef SEG_OPTIM_CUH
#define SEG_OPTIM_CUH
#include "kernel.cuh"

/* Of one step, on the device. */
struct Decision {
    int32_t applied;
    float blend; /* see blend_queue; of a step that is applied */
    float factors[MAX_GROUPS][FACTOR_COUNT]; /* rounded, by group */
};

enum { SQUARES = 1 + 512 };

/* Queue room[0] = sum of x[i]^2 over `count` floats, summed in double in an
 * order that depends on count only. room, SQUARES doubles, is on the device. */
bool sum_squares_queue(void *dev, const float *x, int64_t count, double *room);

/* Queue the update of all stretches, if `d` says so: one launch. list (as long
 * as spec says) and d are on the device. */
bool update_all_queue(void *dev, const TrainerSpec *spec, const Stretch *list,
                      const Decision *d);
/* Queue y[i] += d->blend (x[i] - y[i]) for `count` floats, if `d` says so; d is
 * on the device. */
bool blend_queue(void *dev, float *y, const float *x, int64_t count,
                 const Decision *d);
#endif
