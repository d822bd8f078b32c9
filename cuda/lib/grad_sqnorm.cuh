/* grad_sqnorm.cuh -- partial sums of squares for the gradient norm, written by
 * the kernel that writes the final gradient: Call.sums.sqnorm.
 *
 * Each thread squares the values that it stored, in double, where the square of
 * a float neither overflows nor is rounded. A block, or a warp, adds the
 * squares in the order of its threads and writes one number. The number of
 * blocks depends on the extents only, so the result has the same bits in every
 * run. */
#ifndef SEG_CUDA_LIB_GRAD_SQNORM_H
#define SEG_CUDA_LIB_GRAD_SQNORM_H
#include "cuda/lib/thread_group.cuh"

static __device__ __forceinline__ double square_of(float v)
{
    return (double)v * (double)v;
}

/* *to = the sum of `own` over the block. All threads must call it. */
static __device__ __forceinline__ void store_sqnorm(double own, double *to)
{
    double sum[1] = {own};
    thread_group_sums(sum, (int)blockDim.x);
    if (threadIdx.x == 0) *to = sum[0];
}

/* The same for a warp, for kernels without static shared memory. */
static __device__ __forceinline__ void store_warp_sqnorm(double own, double *to)
{
    double sum[1] = {own};
    thread_group_sums(sum, WARP);
    if (threadIdx.x % WARP == 0) *to = sum[0];
}
#endif
