/* direct.cuh -- fprop, dgrad and wgrad for groups of few channels, as in a
 * depthwise convolution, without tiles and tensor cores; see conv.cuh for the
 * passes. */
#ifndef SEG_CUDA_CONV_DIRECT_H
#define SEG_CUDA_CONV_DIRECT_H
#include "cuda/conv/conv.cuh"

/* Takes groups of fewer than 8 channels on both sides: most of a GEMM tile
 * would be empty. */
static inline bool direct_takes(const ConvProblem *r)
{
    return r->win.groups > 1 && r->cin < 8 && r->cout < 8;
}

/* result = fprop or dgrad of source and w, plus bias (NULL: none). The
 * functions of this header do not apply a deferred norm. False with the reason.
 */
bool direct_run(const ConvProblem *r, bool dgrad, const void *source,
                const void *w, const float *bias, const Target &result);

/* As conv_wgrad, conv_wgrad_bytes and conv_wgrad_sqnorm_parts. */
bool direct_wgrad(const ConvProblem *r, const void *input, const void *output,
                  float *w, bool fresh, double *square, void *scratch);
size_t direct_wgrad_bytes(const ConvProblem *r);
int direct_wgrad_sqnorm_parts(const ConvProblem *r);
#endif
