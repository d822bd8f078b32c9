/* igemm_mma_tf32.cu -- the kernels of igemm_mma.cuh in tf32; one file each, so
 * that they compile in parallel. */
#include "cuda/conv/igemm_mma.cuh"

template bool igemm_mma<PRECISION_tf32>(const ConvProblem *r, IgemmParams *p,
                                        int classes, int positions);
template bool wgrad_mma<PRECISION_tf32>(const ConvProblem *r,
                                        const WgradParams *p, dim3 blocks);
