/* igemm_mma_tf32.cu -- igemm_mma.cuh in tf32; a file each, so that they compile
 * side by side. */
#include "cuda/conv/igemm_mma.cuh"

template bool corr_mma_product<PRECISION_tf32>(const Corr *r, Product *p,
                                               int classes, int positions);
template bool corr_mma_weights<PRECISION_tf32>(const Corr *r, const Weights *p,
                                               dim3 blocks);
