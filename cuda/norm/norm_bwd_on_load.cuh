/* norm_bwd_on_load.cuh -- a gradient that a product reads through the norm and
 * the activation that nobody ran.
 *
 * What a lens shows of x is then(norm(x)); dz is the gradient of that. Of x it
 * is, with n rows and the sums of grad_sums.cuh,
 *
 *     dx = scale (u - total[0] / n - z total[1] / n)
 *        = scale u + tilt x + shift,   u = dz back through `then`
 *
 * one line a channel once the sums are there, as the lens is: who completes
 * them makes the lines (grad_sums.cuh). A pass that made
 * dx would read dz and x and write dx; so a product reads dz and x itself, and
 * stores dx once for the others that want it. */
#ifndef SEG_CUDA_NORM_NORM_BWD_ON_LOAD_H
#define SEG_CUDA_NORM_NORM_BWD_ON_LOAD_H
#include "cuda/norm/deferred_norm.cuh"

struct NormBwd {
    const float4 *table; // (C) scale and shift of the lens, tilt, shift
    const void *x;       // of the gradient's extents and type
    void *to;            // dx goes there; NULL: nobody else wants it
    float leak;          // slope of `then` at and below 0
};

/* The line of a channel: tilt (of x - mean) and shift as in dx = dy scale + (x
 * - mean) tilt + shift. */
static __device__ __forceinline__ float4 norm_bwd_line(float2 deferred_norm,
                                                       const ChannelStats &s,
                                                       double tilt,
                                                       double shift)
{
    const double mean = (double)s.hi + (double)s.lo;
    return make_float4(deferred_norm.x, deferred_norm.y, (float)tilt,
                       (float)(shift - mean * tilt));
}

/* dx of one element, as it will be read. */
template <Dtype D>
static __device__ __forceinline__ float norm_bwd_loaded(float4 by, float leak,
                                                        float x, float dz)
{
    const float u = fmaf(x, by.x, by.y) <= 0 ? dz * leak : dz;
    return rounded<D>(fmaf(u, by.x, fmaf(x, by.z, by.w)));
}
#endif
