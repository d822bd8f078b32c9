/* wgrad_tile_tf32.cu -- the kernel of wgrad_tile_kernel.cuh in tf32; one file
 * each, so that they compile in parallel. */
#include "cuda/conv/wgrad_tile_kernel.cuh"

template bool wgrad_tile_launch<PRECISION_tf32>(const ConvProblem *r,
                                                const WgradTileShape &tile,
                                                const WgradTileParams &p,
                                                dim3 blocks, size_t shared);
