/* igemm_tile_f16.cu -- igemm_tile_mainloop.cuh in f16; a file each, so that
 * they compile side by side. */
#include "cuda/conv/igemm_tile_mainloop.cuh"

template bool igemm_tile_launch<PRECISION_f16>(const ConvProblem *r,
                                               const GemmTile &tile,
                                               const IgemmTileParams<false> &p,
                                               dim3 blocks, size_t shared);
template bool igemm_tile_launch<PRECISION_f16>(const ConvProblem *r,
                                               const GemmTile &tile,
                                               const IgemmTileParams<true> &p,
                                               dim3 blocks, size_t shared);
