/* igemm_tile_bf16.cu -- igemm_tile_mainloop.cuh in bf16; a file each, so that
 * they compile side by side. */
#include "cuda/conv/igemm_tile_mainloop.cuh"

template bool tile_launch<PRECISION_bf16>(const Corr *r, const TileCut &cut,
                                          const Tiled<false> &p, dim3 blocks,
                                          size_t shared);
template bool tile_launch<PRECISION_bf16>(const Corr *r, const TileCut &cut,
                                          const Tiled<true> &p, dim3 blocks,
                                          size_t shared);
