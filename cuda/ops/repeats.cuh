/* repeats.cuh -- how often the elements of a broadcast operand are repeated, or
 * of how many elements a result over axes is made. */
#ifndef SEG_CUDA_OPS_REPEATS_H
#define SEG_CUDA_OPS_REPEATS_H
#include "cuda/lib/kernel.cuh"

enum { LOOP_REPEATS = 64 }; // at most, for which one thread loops

static inline int32_t repeats_along(int32_t own, int32_t all)
{
    return own == all ? 1 : all;
}

/* The repeats along each axis: own times repeats is `all`. */
static inline Dims repeats_of(Dims own, Dims all)
{
    return {repeats_along(own.n, all.n), repeats_along(own.d, all.d),
            repeats_along(own.h, all.h), repeats_along(own.w, all.w),
            repeats_along(own.c, all.c)};
}
#endif
