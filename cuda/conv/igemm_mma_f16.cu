/* igemm_mma_f16.cu -- igemm_mma.cuh in f16; a file each, so that they compile
 * side by side. */
#include "cuda/conv/igemm_mma.cuh"

template bool igemm_mma<PRECISION_f16>(const ConvProblem *r, IgemmParams *p,
                                       int classes, int positions);
template bool wgrad_mma<PRECISION_f16>(const ConvProblem *r,
                                       const WgradParams *p, dim3 blocks);
