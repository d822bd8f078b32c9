/* length.cuh -- the number of valid positions of a sample, on the device. */
#ifndef SEG_CUDA_OPS_LENGTH_H
#define SEG_CUDA_OPS_LENGTH_H
#include "cuda/lib/kernel.cuh"
extern "C" {
#include "engine/graph/length.h"
}

/* Positions p = 0 .. count-1 of sample n with p < lengths[n]; NULL: all. */
static __device__ __forceinline__ int own_count(const float *lengths, int64_t n,
                                                int count)
{
    return lengths ? (int)length_count((double)lengths[n], count) : count;
}
#endif
