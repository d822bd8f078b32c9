/* igemm.cuh -- fprop and dgrad as an implicit GEMM: the host's side.
 *
 * igemm.cu sorts the positions of a dgrad into residue classes and launches one
 * of three kernels: igemm_tile (16 bits, tensor cores, a halo in shared
 * memory), igemm_mma (tensor cores), igemm_f32 (arithmetic units). */
#ifndef SEG_CUDA_CONV_IGEMM_H
#define SEG_CUDA_CONV_IGEMM_H
#include "cuda/conv/igemm_operands.cuh"

/* What igemm_tile can do for one direction of a problem besides the product. */
struct IgemmFusion {
    bool loads_norm_bwd; // takes its operand back through a norm as it loads it
    int sum_parts;       // partial sums (parts, 2, channels) over its result
};

/* The fusions of igemm_tile, which takes this problem. norm_bwd: the operand is
 * to be taken back through a deferred norm; without igemm_tile being able to,
 * another call does so before. */
IgemmFusion igemm_tile_fusion(const ConvProblem *r, bool dgrad, bool norm_bwd);

/* result = fprop (dgrad: dgrad) of source and w, plus bias (of the channels of
 * the result; may be NULL). tile: by igemm_tile, but for launches whose halo
 * does not fit shared memory. False with the reason. */
bool igemm_run(const ConvProblem *r, bool dgrad, bool tile,
               const Source &source, const void *w, const float *bias,
               const Result &result);

/* igemm_f32.cu: queue one launch. positions: of the largest class. */
bool igemm_f32(const ConvProblem *r, IgemmParams *p, int classes,
               int positions);
#endif
