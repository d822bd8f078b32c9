/* direct.cuh -- gather, spread and weights for groups of few channels, as
 * in a depthwise convolution: no tiles, no tensor cores. See conv.cuh. */
#ifndef SEG_CUDA_CONV_DIRECT_H
#define SEG_CUDA_CONV_DIRECT_H
#include "cuda/conv/conv.cuh"

/* Would most of a tile be empty? */
static inline bool direct_takes(const ConvProblem *r)
{
    return r->win.groups > 1 && r->cin < 8 && r->cout < 8;
}

bool direct_fprop(const ConvProblem *r, const void *input, const void *w,
                  const float *bias, Target output);
bool direct_dgrad(const ConvProblem *r, const void *output, const void *w,
                  const float *bias, Target input);

/* As conv_wgrad and its like, of operands that nothing is seen through. */
size_t direct_wgrad_bytes(const ConvProblem *r);
int direct_wgrad_sqnorm_parts(const ConvProblem *r);
bool direct_wgrad(const ConvProblem *r, const void *input, const void *output,
                  float *w, bool fresh, double *square, void *scratch);
#endif
