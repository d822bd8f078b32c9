/* deferred_norm.cuh -- a DeferredNorm on the device: what a batch_norm and an
 * activation would have made of what is stored.
 *
 * Both are one multiplication and addition a channel, and a choice by the sign.
 * The factors are made once, when the statistics are: shift = beta - mean scale
 * in double. What it cancels where the mean is large against the spread is far
 * below the rounding of what is stored in 16 bits. The result is rounded to
 * that type, so that all who look at a number see the same. */
#ifndef SEG_CUDA_NORM_DEFERRED_NORM_H
#define SEG_CUDA_NORM_DEFERRED_NORM_H
#include "cuda/lib/act.cuh"
#include "cuda/norm/norm.cuh"

/* What a kernel reads one of its operands through. */
struct NormOnLoad {
    const float2 *table; // (C) scale, shift; NULL: it reads what is stored
    Act act;
};

/* Behind the statistics that a lazy call saves (C). */
static inline float2 *norm_on_load_table(const void *saved, int channels)
{
    return (float2 *)((ChannelStats *)saved + channels);
}

/* Bytes that a lazy call saves. */
static inline size_t norm_on_load_bytes(int channels)
{
    return (size_t)channels * (sizeof(ChannelStats) + sizeof(float2));
}

/* That of operand k. */
static inline NormOnLoad norm_on_load_of(const Call *c, int k)
{
    const DeferredNorm *deferred_norm = c->deferred_norm[k];
    NormOnLoad s = {};
    if (!deferred_norm) return s;
    s.table = norm_on_load_table(deferred_norm->saved, c->x[k]->dim.c);
    s.act = act_of(deferred_norm->act);
    return s;
}

template <Dtype D>
static __device__ __forceinline__ float normed_one(const Act &t, float2 by,
                                                   float x)
{
    return rounded<D>(act_value<F32>(t, fmaf(x, by.x, by.y)));
}

/* Channels c .. c+V-1 of a row. */
template <int V, Dtype D>
static __device__ __forceinline__ Vec<V> seen(const NormOnLoad &s, int c,
                                              Vec<V> x)
{
    if (!s.table) return x;
#pragma unroll
    for (int i = 0; i < V; i++)
        x.v[i] = normed_one<D>(s.act, s.table[c + i], x.v[i]);
    return x;
}

/* deferred_norm.cu: `to` = x as the lens shows it; queued. False with the
 * reason. */
bool norm_on_load_apply(const Call *c, const NormOnLoad &s, Dims x,
                        const void *data, Dtype type, void *to);
#endif
