/* optim.cuh -- what the device can do with gradients beside the vtable's
 * update and sum_squares: the same, with nobody waiting, for a device_step. */
#ifndef SEG_CUDA_DEVICE_OPTIM_H
#define SEG_CUDA_DEVICE_OPTIM_H
#include "cuda/lib/kernel.cuh"

/* Of one step, on the device. */
struct Decision {
    int32_t applied;
    float blend; /* see blend_queue; of a step that is applied */
    float factors[MAX_GROUPS][FACTOR_COUNT]; /* rounded, by group */
};

enum { SQUARES = 2 * 512 };

/* Queue parts[0 .. *count - 1], at most SQUARES doubles on the device, whose
 * sum is that of s->left and of the squares of the rest of x: each in double,
 * in an order that depends on the numbers in `s` only. */
bool squares_queue(void *dev, const float *x, const SqnormPlaces *s,
                   double *parts, int *count);

/* Queue the update of all param_ranges, of `updated` elements, if `d` says so:
 * one launch. list (as long as spec says) and d are on the device. */
bool update_all_queue(void *dev, const DeviceStepSpec *spec,
                      const ParamRange *list, int64_t updated,
                      const Decision *d);
/* Queue y[i] += d->blend (x[i] - y[i]) for `count` floats, if `d` says so; d is
 * on the device. */
bool blend_queue(void *dev, float *y, const float *x, int64_t count,
                 const Decision *d);
#endif
