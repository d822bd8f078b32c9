/* optim.cuh -- what the device can do with gradients beside the vtable's
 * update and sum_squares: the same, with nobody waiting, for a trainer. */
#ifndef SEG_OPTIM_CUH
#define SEG_OPTIM_CUH
#include "kernel.cuh"

/* Of one step, on the device. */
struct Decision {
    int32_t applied;
    float factors[2][FACTOR_COUNT]; /* rounded: without, with weight decay */
};

/* Queue out = sum of x[i]^2 over `count` floats, summed in double in an order
 * that depends on count only. out is on the device. May be recorded, as
 * gpu_scratch stays where it is once this has run. */
bool sum_squares_queue(void *dev, const float *x, int64_t count, double *out);

/* Queue the update of all stretches, if `d` says so: one launch. list (as long
 * as spec says) and d are on the device. */
bool update_all_queue(void *dev, const TrainerSpec *spec, const Stretch *list,
                      const Decision *d);
#endif
