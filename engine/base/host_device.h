/* host_device.h -- functions that the host and kernels of a GPU both run.
 *
 * EVERYWHERE marks a function of a header that is the one definition for both:
 * random draws, what an optimiser multiplies by. Integers come out the same in
 * both places; what takes logf, pow or a fused multiply-add differs by some
 * ulps. Outside nvcc it is a plain inline function. */
#ifndef SEG_ENGINE_BASE_HOST_DEVICE_H
#define SEG_ENGINE_BASE_HOST_DEVICE_H
#ifdef __CUDACC__
#define EVERYWHERE static inline __host__ __device__
#else
#define EVERYWHERE static inline
#endif
#endif
