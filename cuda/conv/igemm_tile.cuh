/* igemm_tile.cuh -- fprop and dgrad on tensor cores in 16 bits with the halo in
 * shared memory, for groups whose channels are a multiple of 8 (16 bytes) on
 * both sides. igemm_mma.cuh has the problems that no other kernel takes.
 *
 * A block computes a box of samples and positions of one residue class
 * (igemm_operands.cuh) by BN channels. The source positions that all taps of a
 * box read are its halo. With stride `step`, position j of an axis reads source
 * position j*step + base + i*tap through tap i: taps with the same (base +
 * i*tap) mod step read a box of the source, sampled at every step-th position.
 * Such taps form a tap group of the axis; the tap groups of a class are all
 * combinations over its three axes.
 *
 * The k axis of the product is (chunk of channels, tap group, tap, channel); a
 * chunk is 32 channels, 64 bytes of each position. For each chunk and tap group
 * the halo is loaded once; then each tap is a step of the main loop: the rows
 * of the halo, shifted by the tap, times a tile of the filter.
 *
 *     igemm_tile.cu            choice of tile, box and split-K; launches
 *     igemm_tile_load.cuh      global to shared memory
 *     igemm_tile_mainloop.cuh  the main loop and the kernel
 *     igemm_tile_epilogue.cuh  registers to the result
 *     igemm_tile_sums.cuh      sums over the result
 *
 * docs/gpu.md lists threads, shared memory and FLOP a byte of each tile. */
#ifndef SEG_CUDA_CONV_IGEMM_TILE_H
#define SEG_CUDA_CONV_IGEMM_TILE_H
#include "cuda/conv/tap_groups.cuh"

enum {
    TILE_ROW = 64,      // bytes of a position in shared memory: a row
    TILE_LINE = 16,     // bytes of one cp.async: a line
    TILE_LINES = 4,     // lines of a row
    TILE_CHUNK = 32,    // channels of a row
    TILE_CHANNELS = 8,  // channels of one store; a group has a multiple of it
    TILE_FRAGMENT = 16, // rows that a warp transposes at a time, in
    TILE_OWN = 1 << 30, // bit of a row number in a table: see IgemmTaps.own
    TILE_PITCH = 40,    // floats a row of 32: no bank conflicts
    TILE_TRANSPOSE = TILE_FRAGMENT * TILE_PITCH * 4, // bytes
};

template <int GROUPS> struct IgemmClass {
    IgemmAxis<GROUPS> axis[3];
    Divisor boxes[3]; // number of boxes along each axis
    int blocks;       // number of boxes over all samples
    int first;        // number of boxes of the preceding classes
    int taps, groups; // products over the axes
};

/* Arguments of a launch. blockIdx.x: box; y: group of channels and tile of its
 * channels; z: class and slice, with split-K. */
template <bool DGRAD> struct IgemmTileParams {
    enum { GROUPS = DGRAD ? 1 : TILE_GROUPS };
    IgemmClass<GROUPS> cls[DGRAD ? RESIDUE_CLASSES : 1];
    const void *source, *w;
    const float *bias;
    int border;              // channels of the source's first tensor
    int result_border;       // and of the result's first tensor
    int pitch[2];            // channels of a row of `source`, `second`
    Operand second;          // the source's second tensor
    Target second_result;    // the result's second tensor
    NormOnLoad norm_on_load; // of the source
    NormBwd norm_bwd;        // of the source; its x has halos of its own
    int layers;              // halos of a load: 2 with norm backward on load
    ChannelSums sums;        // one part a box: igemm_tile_sums.cuh
    Target result;           // or the partial sums of split-K, in f32
    int64_t part_stride;     // elements between parts; 0: no parts in memory
    int result_c;            // channels of all groups
    int k_channels, gemm_n;  // channels of a group: source, result
    int taps[3];             // of the whole filter
    int tiles;               // tiles along a group's channels
    int chunks, k_slices;    // chunks of channels; slices of them
    Dims extent;             // extents of the result
    int box[3], samples;     // log2 of a box's extents; its samples
    Divisor halo[3];         // extents of the halo of a sample
    int rows;                // rows of a halo, all samples
    int ahead, buffers;      // halo loads in flight; halos in shared memory
};

/* The tile and the slices of a problem; depends on extents and precision. */
struct GemmTile {
    int bm, bn;
    int k_slices; // of the chunks: each is a sum of its own, added in order
    bool split_k; // one block for each slice; else one block for all
};

/* Returns whether igemm_tile takes the precision and channels of a problem. */
bool igemm_tile_takes(const ConvProblem *r);
/* Bytes of Call.scratch that the pass needs, with igemm_tile_takes. */
size_t igemm_tile_bytes(const ConvProblem *r, bool dgrad);
/* Queues the residue classes of a pass; with split-K they must be all classes
 * of the call. *done false: nothing was queued, as the halo does not fit in
 * shared memory or no tile is as requested. Otherwise returns false with the
 * reason if a launch failed. */
bool igemm_tile_run(const ConvProblem *r, const IgemmParams *p, int classes,
                    bool *done);
/* The run of igemm_tile for some residue classes of a problem. */
struct IgemmTileFit {
    int number;    // of its tile; 0: igemm_tile_run would queue nothing
    int sum_parts; // partial sums over the result that it can write if these
                   // are all classes of the call; 0: none
};
IgemmTileFit igemm_tile_fit(const ConvProblem *r, const IgemmParams *p,
                            int classes);

/* Stores or adds v to elements i .. i+7 of a tensor. */
static __device__ __forceinline__ void put_channels(const Target &t, int64_t i,
                                                    const Vec<8> &v)
{
    if (is_bf16(t))
        store_vec<8, BF16>((uint16_t *)t.data + i, v, t.fresh);
    else if (t.type == F16)
        store_vec<8, F16>((uint16_t *)t.data + i, v, t.fresh);
    else
        store_vec<8>((float *)t.data + i, v, t.fresh);
}

/* The same for channels c .. c+7 of a row of an implicit concat: `own` has
 * channels below `border`, `second` the others. A tensor with NULL data is
 * ignored. */
static __device__ __forceinline__ void store_second(const Target &own,
                                                    const Target &second,
                                                    int border, int channels,
                                                    int64_t row, int64_t c,
                                                    const Vec<8> &v)
{
    if (c >= border) {
        if (second.data)
            put_channels(second, row * (channels - border) + c - border, v);
    } else if (own.data) {
        put_channels(own, row * border + c, v);
    }
}

static __device__ __forceinline__ void add_bias(const float *bias, int64_t c,
                                                Vec<8> *v)
{
    if (!bias) return;
#pragma unroll
    for (int i = 0; i < TILE_CHANNELS; i++) v->v[i] += bias[c + i];
}

/* Rows of a warp's part of a tile; the part has 32 columns. */
static constexpr int tile_warp_rows(int bm, int bn)
{
    return bm * bn == 128 * 128 ? 64 : 32;
}

/* Shared memory after the main loop: to transpose fragments, and for sums. */
static constexpr size_t tile_transpose_bytes(int bm, int bn)
{
    return (size_t)(bm / tile_warp_rows(bm, bn) * (bn / 32) * TILE_TRANSPOSE);
}

static constexpr size_t tile_sum_bytes(int bm, int bn)
{
    return (size_t)(bm / tile_warp_rows(bm, bn) * bn) * 2 * sizeof(double) +
           (size_t)bn * sizeof(float4);
}

/* In igemm_tile_bf16.cu and igemm_tile_f16.cu: queues the kernel. */
template <Precision P, bool DGRAD>
bool igemm_tile_launch(const ConvProblem *r, const GemmTile &tile,
                       const IgemmTileParams<DGRAD> &p, dim3 blocks,
                       size_t shared);
#endif
