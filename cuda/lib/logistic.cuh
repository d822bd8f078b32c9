/* logistic.cuh -- the logistic function and its relatives, safe for any x.
 *
 * Nothing overflows or loses digits: the exponential is only taken of numbers
 * <= 0, and 1 - logistic(x) is logistic(-x). One exponential gives the values
 * at both signs. NaN gives NaN. */
#ifndef SEG_CUDA_LIB_LOGISTIC_H
#define SEG_CUDA_LIB_LOGISTIC_H
#include "cuda/lib/kernel.cuh"

/* A function at x and at -x. */
struct Both {
    float pos, neg;
};

/* 1 / (1 + exp(-x)). */
static __device__ __forceinline__ Both logistic(float x)
{
    float e = expf(-fabsf(x)), big = 1 / (1 + e), small = e * big;
    return x < 0 ? Both{small, big} : Both{big, small};
}

/* logistic(x).pos, with one rounding less. */
static __device__ __forceinline__ float logistic_of(float x)
{
    float e = expf(-fabsf(x));
    // NaN gives NaN in either case
    return (x <= 0 ? e : 1.0f) / (1.0f + e);
}

/* log(1 + exp(x)) = -log(logistic(-x)). */
static __device__ __forceinline__ Both softplus(float x)
{
    float l = log1pf(expf(-fabsf(x)));
    return {(x > 0 ? x : 0) + l, (x < 0 ? -x : 0) + l};
}

/* Sigmoid cross entropy with a weight for positive targets, and its gradient:
 * no term of either sum cancels another for any x. */
static __device__ __forceinline__ float cross_value(float pos_weight, float x,
                                                    float t)
{
    Both l = softplus(x);
    return pos_weight * t * l.neg + (1 - t) * l.pos;
}

static __device__ __forceinline__ float cross_grad(float pos_weight, float x,
                                                   float t)
{
    Both s = logistic(x);
    return (1 - t) * s.pos - pos_weight * t * s.neg;
}
#endif
