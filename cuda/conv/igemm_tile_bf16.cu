/* igemm_tile_bf16.cu -- the kernels of igemm_tile_mainloop.cuh in bf16; one
 * file each, so that they compile in parallel. */
#include "cuda/conv/igemm_tile_mainloop.cuh"

template bool igemm_tile_launch<PRECISION_bf16>(const ConvProblem *r,
                                                const GemmTile &tile,
                                                const IgemmTileParams<false> &p,
                                                dim3 blocks, size_t shared);
template bool igemm_tile_launch<PRECISION_bf16>(const ConvProblem *r,
                                                const GemmTile &tile,
                                                const IgemmTileParams<true> &p,
                                                dim3 blocks, size_t shared);
