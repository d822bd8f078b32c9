/* igemm.cuh -- fprop and dgrad as an implicit GEMM: the host functions.
 *
 * igemm.cu sorts the positions of a dgrad into residue classes
 * (igemm_operands.cuh) and launches one of three kernels: igemm_tile (16 bits,
 * tensor cores, a halo in shared memory), igemm_mma (tensor cores), igemm_f32
 * (FMA units). */
#ifndef SEG_CUDA_CONV_IGEMM_H
#define SEG_CUDA_CONV_IGEMM_H
#include "cuda/conv/igemm_operands.cuh"

/* The fusions of igemm_tile for one pass of a problem. */
struct IgemmFusion {
    bool loads_norm_bwd; // applies norm backward on load to its operand
    int sum_parts;       // partial sums (parts, 2, channels) over its result
};

/* The fusions of igemm_tile for a problem with igemm_tile_takes. norm_bwd: the
 * operand needs norm backward; if loads_norm_bwd is false, a separate call does
 * it first. */
IgemmFusion igemm_tile_fusion(const ConvProblem *r, bool dgrad, bool norm_bwd);

/* The number of the tile of igemm_tile for a problem with igemm_tile_takes (of
 * its first launch); 0: its halo does not fit in shared memory. */
int igemm_tile_of(const ConvProblem *r, bool dgrad, bool loads_norm_bwd);

/* result = fprop or dgrad of source and w, plus bias (of the result's channels;
 * NULL: none). tile: use igemm_tile, except in launches whose halo does not fit
 * in shared memory. False with the reason. */
bool igemm_run(const ConvProblem *r, bool dgrad, bool tile,
               const Source &source, const void *w, const float *bias,
               const Result &result);

/* igemm_f32.cu: queues one launch. positions: of the largest class. */
bool igemm_f32(const ConvProblem *r, IgemmParams *p, int classes,
               int positions);
#endif
