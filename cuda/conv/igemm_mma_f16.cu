/* igemm_mma_f16.cu -- igemm_mma.cuh in f16; a file each, so that they compile
 * side by side. */
#include "cuda/conv/igemm_mma.cuh"

template bool corr_mma_product<PRECISION_f16>(const Corr *r, Product *p,
                                              int classes, int positions);
template bool corr_mma_weights<PRECISION_f16>(const Corr *r, const Weights *p,
                                              dim3 blocks);
