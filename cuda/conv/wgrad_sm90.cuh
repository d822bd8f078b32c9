/* wgrad_sm90.cuh -- wgrad on Hopper GPUs, for windows of 4 n or 9 n taps.
 *
 * The GEMM of a block: rows are 64 (or 2 x 64) channels of `output`, columns
 * are taps x 64 channels of `input` (16 of a first layer), and the k axis runs
 * over the positions of boxes of 256 or 64. Both operands lie in shared memory
 * with a row of 64 channels for each position, as TMA loads them, and wgmma
 * reads both MN-major. The columns of neighbouring taps along w are the same
 * rows of the halo, moved by one position, so one product has 3 (or 2) taps x
 * 64 columns. A warpgroup has one tap along h and 64 rows; the block one (tap
 * along d, residue class). This serves windows of 3 positions with stride 1 and
 * of 4 with stride 2 along height and width. Of other windows a halo serves one
 * tap, and a block has the halos of 3 x 3 or 2 x 2 taps one behind the other.
 *
 * A block sums boxes of a tile in registers. With split-K, and for pairs and
 * first layers, the sums go to the workspace, and a second kernel adds them in
 * their order; else they go to dw, and a block takes several tiles in turns. */
#ifndef SEG_CUDA_CONV_WGRAD_SM90_H
#define SEG_CUDA_CONV_WGRAD_SM90_H
#include "cuda/conv/igemm_sm90.cuh"

/* Does the family take the problem? With its memory. */
struct WgradSm90Fit {
    bool takes;
    size_t workspace;
    int sqnorm_parts;
};
WgradSm90Fit wgrad_sm90_fit(const ConvProblem *r);
/* Queues dw (+)= wgrad(input, output). False with the reason. */
bool wgrad_sm90_run(const ConvProblem *r, const Source &input,
                    const Source &output, float *dw, bool fresh, double *sqnorm,
                    void *workspace);
#endif
