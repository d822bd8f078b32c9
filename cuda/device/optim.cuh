/* optim.cuh -- the optimiser update and the sum of squares for a device step:
 * as Backend.update and Backend.sum_squares, but queued, so the host does not
 * wait. */
#ifndef SEG_CUDA_DEVICE_OPTIM_H
#define SEG_CUDA_DEVICE_OPTIM_H
#include "cuda/lib/kernel.cuh"

/* The decision of one step, in device memory. */
struct Decision {
    int32_t applied;
    float blend; /* see blend_queue; set if the step is applied */
    float factors[MAX_GROUPS][FACTOR_COUNT]; /* rounded, by group */
};

enum { SQNORM_PARTS = 2 * 512 };

/* Queues the computation of parts[0 .. *count - 1], at most SQNORM_PARTS
 * doubles in device memory. Their sum is that of s->left and of the squares of
 * the other elements of x, each squared in double, in an order that depends on
 * the numbers in `s` only. */
bool sqnorm_queue(void *dev, const float *x, const SqnormPlaces *s,
                  double *parts, int *count);

/* Queues the update of all param_ranges, `updated` elements together, in one
 * launch; it does nothing unless d->applied. list (of spec->param_ranges) and d
 * are in device memory. */
bool update_all_queue(void *dev, const DeviceStepSpec *spec,
                      const ParamRange *list, int64_t updated,
                      const Decision *d);
/* Queues y[i] += d->blend (x[i] - y[i]) for `count` floats; it does nothing
 * unless d->applied. d is in device memory. */
bool blend_queue(void *dev, float *y, const float *x, int64_t count,
                 const Decision *d);
#endif
