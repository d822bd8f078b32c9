/* wgrad_tile_f16.cu -- the kernel of wgrad_tile_kernel.cuh in f16; one file
 * each, so that they compile in parallel. */
#include "cuda/conv/wgrad_tile_kernel.cuh"

template bool wgrad_tile_launch<PRECISION_f16>(const ConvProblem *r,
                                               const WgradTileShape &tile,
                                               const WgradTileParams &p,
                                               dim3 blocks, size_t shared);
