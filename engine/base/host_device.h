/* host_device.h -- functions that run on the host and in GPU kernels.
 *
 * HOST_DEVICE marks a function in a header that is the single definition for
 * both: random draws, factors of an optimiser. Integer results are equal on
 * both sides; results of logf, pow or a fused multiply-add differ by some ulps.
 * Outside nvcc it is a plain inline function. */
#ifndef SEG_ENGINE_BASE_HOST_DEVICE_H
#define SEG_ENGINE_BASE_HOST_DEVICE_H
#ifdef __CUDACC__
#define HOST_DEVICE static inline __host__ __device__
#else
#define HOST_DEVICE static inline
#endif
#endif
