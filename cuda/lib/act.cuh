/* act.cuh -- the activation that a kernel applies in its epilogue, before it
 * stores: Call.act. */
#ifndef SEG_CUDA_LIB_ACT_H
#define SEG_CUDA_LIB_ACT_H
#include "cuda/lib/vec.cuh"

/* Without an activation `runs` is false, and both functions are the
 * identity. */
struct Act {
    bool runs, zero; // zero: relu
    float leak;      // slope of leaky_relu at and below 0
};

static inline Act act_of(const Attr *act)
{
    if (!act) return {false, false, 1};
    if (act->op == OP_relu) return {true, true, 0};
    return {true, false, act->leaky_relu.slope};
}

/* x after a store as D and a load. */
template <Dtype D> static __device__ __forceinline__ float rounded(float x)
{
    if constexpr (D == F32)
        return x;
    else
        return Stored<D>::unpack(Stored<D>::pack(x, 0)).x;
}

/* The activation of x, and its gradient: the results of activation.cu for a
 * tensor stored as D and for the gradient of it. */
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
