/* everywhere.h -- functions that the host and kernels of a GPU both run.
 *
 * EVERYWHERE marks a function of a header whose results must not depend on
 * where it runs: random draws, what an optimiser multiplies by. Outside nvcc
 * it is a plain inline function. */
#ifndef SEG_EVERYWHERE_H
#define SEG_EVERYWHERE_H
#ifdef __CUDACC__
#define EVERYWHERE static inline __host__ __device__
#else
#define EVERYWHERE static inline
#endif
#endif
