/* act.cuh -- an activation that a kernel runs before it stores: Call.act. */
#ifndef SEG_CUDA_LIB_ACT_H
#define SEG_CUDA_LIB_ACT_H
#include "cuda/lib/vec.cuh"

/* Without one `runs` is false, and all of this the identity. */
struct Act {
    bool runs, zero; // zero: relu
    float leak;      // slope at and below 0
};

static inline Act act_of(const Attr *act)
{
    if (!act) return {false, false, 1};
    if (act->op == OP_relu) return {true, true, 0};
    return {true, false, act->leaky_relu.slope};
}

/* A number as it would be read again, had it been stored. */
template <Dtype D> static __device__ __forceinline__ float rounded(float x)
{
    if constexpr (D == F32)
        return x;
    else
        return Stored<D>::apart(Stored<D>::pair(x, 0)).x;
}

/* Of x, and dy back through it: what activation.cu computes of a value that
 * was stored as D, and of its gradient. */
template <Dtype D>
static __device__ __forceinline__ float act_value(const Act &t, float x)
{
    x = rounded<D>(x);
    return x <= 0 ? (t.zero ? 0 : x * t.leak) : x;
}

template <Dtype D>
static __device__ __forceinline__ float act_grad(const Act &t, float x,
                                                 float dy)
{
    return rounded<D>(dy * (rounded<D>(x) <= 0 ? t.leak : 1));
}
#endif
