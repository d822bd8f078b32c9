/* optim.cuh -- what the device can do with gradients beside the vtable's
 * update and sum_squares. */
#ifndef SEG_OPTIM_CUH
#define SEG_OPTIM_CUH
#include "kernel.cuh"

/* Queue out = sum of x[i]^2 over `count` floats, summed in double in an order
 * that depends on count only. out is on the device, and nothing waits: for a
 * captured run, on condition that gpu_scratch stays where it is. */
bool sum_squares_queue(void *dev, const float *x, int64_t count, double *out);
#endif
