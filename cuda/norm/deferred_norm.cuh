/* deferred_norm.cuh -- a DeferredNorm on the device: a batch norm and its
 * activation, which each reader applies to the stored operand as it loads it.
 *
 * Both are one multiply-add per channel and a selection by the sign. The
 * factors are computed once, with the statistics: shift = beta - mean scale, in
 * double. The error by cancellation, where the mean is large compared with the
 * standard deviation, is far below the rounding of the stored 16-bit values.
 * The result is rounded to the stored type, so that all readers get the same
 * value. */
#ifndef SEG_CUDA_NORM_DEFERRED_NORM_H
#define SEG_CUDA_NORM_DEFERRED_NORM_H
#include "cuda/lib/act.cuh"
#include "cuda/norm/norm.cuh"

/* The deferred norm that a kernel applies to one of its operands. */
struct NormOnLoad {
    const float2 *table; // (C) scale, shift; NULL: no norm
    Act act;
};

/* The table in Call.saved of a call with a deferred norm, after its statistics
 * (C). */
static inline float2 *norm_on_load_table(const void *saved, int channels)
{
    return (float2 *)((ChannelStats *)saved + channels);
}

/* Bytes of Call.saved for a deferred norm. */
static inline size_t norm_on_load_bytes(int channels)
{
    return (size_t)channels * (sizeof(ChannelStats) + sizeof(float2));
}

/* The deferred norm of operand k. */
static inline NormOnLoad norm_on_load_of(const Call *c, int k)
{
    const DeferredNorm *deferred_norm = c->x_norm[k];
    NormOnLoad s = {};
    if (!deferred_norm) return s;
    s.table = norm_on_load_table(deferred_norm->saved, c->x[k]->dim.c);
    s.act = act_of(deferred_norm->act);
    return s;
}

template <Dtype D>
static __device__ __forceinline__ float norm_act_one(const Act &t, float2 by,
                                                     float x)
{
    return rounded<D>(act_value<F32>(t, fmaf(x, by.x, by.y)));
}

/* Applies the norm to channels c .. c+V-1 of a row. */
template <int V, Dtype D>
static __device__ __forceinline__ Vec<V> norm_act(const NormOnLoad &s, int c,
                                                  Vec<V> x)
{
    if (!s.table) return x;
#pragma unroll
    for (int i = 0; i < V; i++)
        x.v[i] = norm_act_one<D>(s.act, s.table[c + i], x.v[i]);
    return x;
}

/* In deferred_norm.cu: queues `to` = the norm and activation of x. False with
 * the reason. */
bool norm_on_load_apply(const Call *c, const NormOnLoad &s, Dims x,
                        const void *data, Dtype type, void *to);
#endif
