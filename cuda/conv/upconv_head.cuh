/* upconv_head.cuh -- an upconv (transposed convolution) with 1 to 4 output
 * channels, as in the last layer of a generator, on GPUs of compute capability
 * 8.0 and more (up to 99 KB of shared memory); see upconv_head_fwd.cu and
 * upconv_head_bwd.cu. In its ConvProblem y is `input` and x is `output`: r->cin
 * counts channels of y, r->cout channels of x, and y is a dgrad (conv.cuh). */
#ifndef SEG_CUDA_CONV_UPCONV_HEAD_H
#define SEG_CUDA_CONV_UPCONV_HEAD_H
#include "cuda/conv/conv.cuh"

enum {
    UPCONV_HEAD_Y_CHANNELS = 4,   // channels of y, at most
    UPCONV_HEAD_COLUMNS = 64,     // taps times channels of y, at most
    UPCONV_HEAD_X_CHANNELS = 256, // channels of x, at most
};

/* Returns whether the kernels take this call, except for the shared memory that
 * its window needs. Depends on extents, attributes and precision. border: the
 * first channel of x's second tensor; 0: one tensor. */
bool upconv_head_narrow(const ConvProblem *r, int border);
/* Returns whether the kernel of y takes this call; queues it. False with the
 * reason. */
bool upconv_head_fwd_takes(const ConvProblem *r, int border);
bool upconv_head_fwd(const ConvProblem *r, const Source &x, const void *w,
                     const float *bias, float *y);
/* Returns whether the kernel of all gradients takes this call. It reads dy in
 * f32, not a copy. */
bool upconv_head_takes(const ConvProblem *r, int border);
/* Partial sums (parts, 2, channels) over dx that it writes. */
int upconv_head_sum_parts(const ConvProblem *r, int border);
/* Bytes of workspace: the parts of dw and db. */
size_t upconv_head_bytes(const ConvProblem *r, int border);
/* Queues the gradients that the call needs: dx, dw and db; db is NULL if
 * another call wrote it. parts: upconv_head_bytes. False with the reason. */
bool upconv_head_bwd(const ConvProblem *r, const Source &x, const void *w,
                     const Result &dx, float *dw, float *db, void *parts);

/* norm_act_one of the two channels in a register, for operands of products: no
 * branch. A relu gives -0 where norm_act_one gives 0. by: scale and shift of
 * both; leak: of the activation. */
template <Dtype D>
static __device__ __forceinline__ uint32_t norm_act_pair(float leak, float4 by,
                                                         uint32_t both)
{
    float2 v = Stored<D>::unpack(both);
    v.x = fmaf(v.x, by.x, by.y), v.y = fmaf(v.y, by.z, by.w);
    if (v.x <= 0) v.x *= leak;
    if (v.y <= 0) v.y *= leak;
    return Stored<D>::pack(v.x, v.y);
}

#endif
