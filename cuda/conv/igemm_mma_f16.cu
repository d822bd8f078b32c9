/* igemm_mma_f16.cu -- the kernels of igemm_mma.cuh in f16; one file each, so
 * that they compile in parallel. */
#include "cuda/conv/igemm_mma.cuh"

template bool igemm_mma<PRECISION_f16>(const ConvProblem *r, IgemmParams *p,
                                       int classes, int positions);
template bool wgrad_mma<PRECISION_f16>(const ConvProblem *r,
                                       const WgradParams *p, dim3 blocks);
