/* corr_f16.cu -- corr_mma.cuh in f16; a file each, so that they compile side by
 * side. */
#include "corr_mma.cuh"

template bool corr_mma_product<PRECISION_f16>(const Corr *r, Product *p,
                                              int classes, int positions);
template bool corr_mma_weights<PRECISION_f16>(const Corr *r, const Weights *p,
                                              dim3 blocks);
