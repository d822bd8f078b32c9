/* igemm_sm90.cuh -- fprop and dgrad as an implicit GEMM on Hopper GPUs.
 *
 * A block computes tiles of 64 or 128 channels of the result by 256 positions:
 * a box of 32 lines of 8 positions, of one plane (along h and w) or of several,
 * neighbours along d or n. The lines of a box are in the order h, n, d: line h
 * of all planes precedes line h + 1. For each 64 channels of the source TMA
 * loads the halo of the box into shared memory: a row of 128 bytes for each
 * position, swizzled, zero outside of the tensor. wgmma reads such a tile from
 * any row on, and lines lie at one distance, so one halo serves all taps along
 * h and w: the B operand of a tap is the halo from the tap's offset on. The A
 * operand is the filter of this tap, 64 result channels by 64 source channels;
 * TMA loads it from the filter as it is stored: fprop reads it K-major, dgrad
 * MN-major.
 *
 * Warpgroup 0 produces: thread 0 starts the copies, its other three warps apply
 * the deferred norm of the operand to halos in shared memory. Warpgroups 1 and
 * 2 multiply and store. A stride divides taps and positions into residue
 * classes, as in igemm.cuh: the source of fprop and the result of dgrad are
 * then tensor maps of every s-th position.
 *
 * Gradient sums (grad_sums.cuh): TMA loads the operand of the deferred norm,
 * the box and channels of a warpgroup's results, into the memory that stages
 * the results; each thread reads the values at the places of its accumulators
 * and then overwrites them. Partial sums of gradients and of y are one a box
 * and residue class; of pairs one for each position of a pair.
 *
 * Split-K: where one sample has too few tiles for a GPU, a tile's halos are
 * divided into slices with a block each. The blocks store f32 partial sums,
 * which split_k_sum adds in their order. The number of slices follows from the
 * extents of one sample, so a sample's result does not depend on the batch.
 *
 * tf32: tensors are f32, so a row of a halo is 32 channels of one position, and
 * operands of 32 bits are K-major only. The norm's warps round each halo, and a
 * copy of the filter, made before, is rounded and for dgrad transposed: then
 * dgrad is an fprop with other taps. Results are stored from registers. One
 * tensor on either side, no deferred norms, no sums. A result of 32 channels is
 * computed as one of 64 channels of half as many positions along w, with the
 * stride 2 and the filter of pairs, see below.
 *
 * Pairs: tensors of 32 channels are seen as rows of 64, two neighbouring
 * positions along w. A tile has 2 x 32 rows, (position of the pair, channel),
 * by 256 pairs. The 3 taps along w of the first position of a pair are source
 * positions 0, 1, 2 of the four around the pair, those of the second 1, 2, 3:
 * the filter tile of source position j has the tap j for the first 32 rows, j -
 * 1 for the others, and TMA fills taps that do not exist with zeros. So 3 of 4
 * products count, where padding to 64 channels would use 1 of 4. */
#ifndef SEG_CUDA_CONV_IGEMM_SM90_H
#define SEG_CUDA_CONV_IGEMM_SM90_H
#include "cuda/conv/conv.cuh"
#include "cuda/lib/tensor_map.cuh"

enum {
    SM90_CHANNELS = 64, // of a row of shared memory: 128 bytes
    SM90_CHANNELS_F32 = 32,
    SM90_ROW = 128,            // bytes
    SM90_TILE = 64 * SM90_ROW, // bytes of a filter tile: 64 x 64
    SM90_BOX = 256,            // positions of a box
    SM90_BOX_W = 8,            // positions of a line of a box
    SM90_LINES = SM90_BOX / SM90_BOX_W,
    SM90_CLASSES = 8, // residue classes of a stride of 2 in 3-D
    SM90_MAPS = 20,   // 2 tensors by class, and 4
    SM90_TAPS = 64,
    SM90_GROUPS = 32,
    SM90_NORM_WARPS = 3,
    SM90_MOST_PITCH = 12, // positions of a line of a halo: see sm90_norm_tile
    SM90_BARRIERS = 1024, // bytes before the tiles, for mbarriers
    SM90_BOX_SUMS = 1024, // bytes after them: 128 floats for each warpgroup
    SM90_BUFFERS = 4,     // most halos, and most stages of filters
    SM90_SLOTS = 24,
};

/* The channels of one side, in one tensor or two (an implicit concat): chunks
 * of 64 channels (of the source in tf32: 32) of either, the last one padded
 * with zeros. For pairs a chunk is a tensor of 32 channels. */
struct Sm90Side {
    int chunks, border; // of both tensors; of the first
    int channels[2];
    int size; // channels of a chunk: 64, 32 or 16
};

/* Positions of one residue class: extents of its tensor map. */
struct Sm90Extent {
    int w, h, d, n;
};

/* The boxes of a result: their number along each axis, their extents; w: 8. */
struct Sm90Grid {
    Divisor boxes_w, boxes_h, boxes_d;
    int box_h, box_d, box_n; // powers of two; their product: lines of a box
    int log_d, log_n;        // of box_d and box_n
};

/* The planes of a box. */
static inline __host__ __device__ int sm90_planes(const Sm90Grid &g)
{
    return 1 << (g.log_d + g.log_n);
}

/* The taps that read the same halo. */
struct Sm90Group {
    int8_t w, h, d;       // the halo's first position, from the box's
    uint8_t map;          // residue class of the source
    uint8_t first, count; // taps
};

struct Sm90Tap {
    uint16_t offset; // from the halo's start, in units of 16 bytes
    uint8_t filter;  // the tap of the filter; of pairs the one along d and h,
    uint8_t w;       // and the source position, 0 to 3 of those around the pair
};

/* A residue class of the result: its groups of taps. */
struct Sm90Class {
    uint8_t first, count;
};

struct IgemmSm90Params {
    TensorMap map[SM90_MAPS];
    TensorMap filter;
    // map[tensor * source_maps + class] of the source,
    // map[result_map + tensor * result_maps + class] of the result,
    // map[norm_map + the same] of GradSums.x
    int source_maps, result_map, result_maps, norm_map;
    Sm90Class cls[SM90_CLASSES];
    Sm90Group group[SM90_GROUPS];
    Sm90Tap tap[SM90_TAPS];
    Sm90Extent extent[SM90_CLASSES]; // of the source's classes
    Sm90Extent result;               // of a class of the result
    Sm90Side from, to;
    bool skips[2]; // tensors of the result not computed
    bool adds[2];  // stores add to the content
    NormOnLoad norm[2];
    const float *bias;
    float *y[2];  // in tf32: the tensors of the result
    double *sums; // (parts, 2, channels): of y and y^2, or gradient sums of
                  // the two tensors of dx; NULL: none
    GradSums grads[2];
    float *parts; // of split-K: (slices, positions of the result, channels)
    int channels; // of the result, all tensors
    Sm90Grid grid;
    int tiles;
    Divisor filter_tiles, slices, classes, chunks;
    int stride[3],
        residue[SM90_CLASSES][3]; // (d, h, w) of the result's classes
    int halo_h, pitch;            // positions of a halo
    int halo_bytes, halo_room, buffers;
    int slots;     // filter tiles in shared memory, by stages
    bool resident; // they hold all stages and are loaded once
};

/* The work of the two multiplying warpgroups: SM90_WIDE, 64 channels each of
 * the same box; else a box each by turns, of 64 channels or of pairs. */
enum Sm90Way { SM90_WIDE, SM90_NARROW, SM90_PAIR };

/* The sums over the stored results. */
enum Sm90SumsOf { SM90_NO_SUMS, SM90_Y_SUMS, SM90_GRAD_SUMS };

/* Does the family take the pass? Extents, precision and attributes decide. */
struct IgemmSm90Fit {
    bool takes;
    int sum_parts;    // partial sums over the result; 0: none
    bool grad_sums;   // can write gradient sums
    size_t workspace; // bytes of Call.scratch
};
IgemmSm90Fit igemm_sm90_fit(const ConvProblem *r, bool dgrad);
/* igemm_sm90_tf32.cu: igemm_sm90_tf32 queues the kernel,
 * igemm_sm90_round_filter before it the copy of the filter: rounded to tf32,
 * (result channels, taps, source channels); of pairs (position of the pair,
 * result channel) and one tap more along w. False with the reason. */
bool igemm_sm90_tf32(const ConvProblem *r, Sm90Way way,
                     const IgemmSm90Params &p, int blocks);
bool igemm_sm90_round_filter(const ConvProblem *r, bool dgrad, bool pairs,
                             const float *w, float *to);
/* Queues the pass. False with the reason. */
bool igemm_sm90_run(const ConvProblem *r, bool dgrad, const Source &from,
                    const void *w, const float *bias, const Result &to,
                    void *workspace);
#endif
