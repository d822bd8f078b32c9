/* wgrad_fold.cuh -- what the kernels that add the parts of dw (split-K) share:
 * a thread has four neighbouring numbers, and several threads share the parts
 * of the same four, where there are many. Sums are in double, in the order of
 * the parts. */
#ifndef SEG_CUDA_CONV_WGRAD_FOLD_H
#define SEG_CUDA_CONV_WGRAD_FOLD_H
#include "cuda/lib/kernel.cuh"

enum { FOLD_THREADS = 256 }; // of a block

/* The threads that share the parts of four numbers. */
static inline int fold_shares(int parts)
{
    return parts >= 32 ? 8 : parts >= 8 ? 4 : 1;
}

struct Sum4 {
    double v[4];
};

static __device__ __forceinline__ void add(Sum4 *s, float4 v)
{
    s->v[0] += (double)v.x, s->v[1] += (double)v.y;
    s->v[2] += (double)v.z, s->v[3] += (double)v.w;
}

/* Adds to the sum s of each thread of the first share those of its `shares` - 1
 * fellows, FOLD_THREADS / shares threads apart. All threads of the block must
 * call it. sums: shared memory. */
static __device__ __forceinline__ void add_shares(Sum4 *s, int shares,
                                                  Sum4 (&sums)[FOLD_THREADS])
{
    const int wide = FOLD_THREADS / shares, own = (int)threadIdx.x;
    if (shares == 1) return;
    sums[own] = *s;
    __syncthreads();
    for (int k = 1; k < shares && own < wide; k++)
        for (int j = 0; j < 4; j++) s->v[j] += sums[k * wide + own].v[j];
}
#endif
