/* norm_bwd_on_load.cuh -- norm backward on load: a convolution takes dz back
 * through the deferred norm of its output and the activation while it loads dz.
 *
 * x is the operand of the norm, which is the output of the convolution. The
 * norm and its activation make z of x; dz is the gradient of z, and dx is the
 * gradient of x, which the convolution needs as its dy:
 *
 *     x_hat = (x - mean) rstd
 *     z     = act(gamma x_hat + beta)
 *     u     = dz back through the activation: dz, or dz * leak
 *     dx    = scale (u - total[0] / n - x_hat total[1] / n)
 *           = scale u + x_coef x + offset
 *
 * with n rows, scale = gamma rstd and the sums of grad_sums.cuh, total[0] of u
 * and total[1] of u x_hat. The coefficients of a channel are known once its
 * sums are complete; the call that completes the sums stores the coefficients
 * (grad_sums.cuh). A call that made dx would read dz and x and write dx; so the
 * convolution reads dz and x itself, and stores dx once for the other readers.
 */
#ifndef SEG_CUDA_NORM_NORM_BWD_ON_LOAD_H
#define SEG_CUDA_NORM_NORM_BWD_ON_LOAD_H
#include "cuda/norm/deferred_norm.cuh"

struct NormBwd {
    const float4 *table; // (C) scale and shift of the norm, x_coef, offset
    const void *x;       // the norm's operand; dz has its extents and type
    void *to;            // stores dx here; NULL: no other reader
    float leak;          // slope of the activation at and below 0
};

/* The entry of a channel in the table. x_coef (of x - mean) and offset as in
 * dx = u scale + (x - mean) x_coef + offset. */
static __device__ __forceinline__ float4 norm_bwd_line(float2 deferred_norm,
                                                       const ChannelStats &s,
                                                       double x_coef,
                                                       double offset)
{
    const double mean = (double)s.hi + (double)s.lo;
    return make_float4(deferred_norm.x, deferred_norm.y, (float)x_coef,
                       (float)(offset - mean * x_coef));
}

/* dx of one element, rounded to the stored type. */
template <Dtype D>
static __device__ __forceinline__ float norm_bwd_loaded(float4 by, float leak,
                                                        float x, float dz)
{
    const float u = fmaf(x, by.x, by.y) <= 0 ? dz * leak : dz;
    return rounded<D>(fmaf(u, by.x, fmaf(x, by.z, by.w)));
}
#endif
