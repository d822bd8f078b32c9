/* grad_sqnorm.cuh -- squares of a gradient, left by who stores the last of it:
 * Call.grad_sqnorm.
 *
 * A thread squares what it has put into memory, each in double, where a float's
 * square neither overflows nor is rounded; a block adds them up in the order of
 * its threads and writes one number. How many blocks there are depends on
 * extents only, so the squares have the same bits always. */
#ifndef SEG_CUDA_LIB_GRAD_SQNORM_H
#define SEG_CUDA_LIB_GRAD_SQNORM_H
#include "cuda/lib/warp_group.cuh"

static __device__ __forceinline__ double square_of(float v)
{
    return (double)v * (double)v;
}

/* *to = the sum of what the threads of a block have each; all of them call. */
static __device__ __forceinline__ void square_leave(double own, double *to)
{
    double sum[1] = {own};
    warp_group_sums(sum, (int)blockDim.x);
    if (threadIdx.x == 0) *to = sum[0];
}
#endif
