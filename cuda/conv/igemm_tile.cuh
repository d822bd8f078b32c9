/* igemm_tile.cuh -- gather and spread on tensor cores, for channels of a group
 * that divide by 8 (16 bytes); igemm_mma.cuh has the rest.
 *
 * A block makes a BOX of samples and positions of one class
 * (igemm_operands.cuh) by BN channels. What all taps see of the source around a
 * box is its HALO, dense again where a stride is sorted out: of axis position j
 * of the result tap i sees source position j*step + base + i*tap, so taps whose
 * base + i*tap leave the same remainder by `step` see a box of the source
 * taken every `step` positions. Such taps are a group of the axis; groups of
 * three axes make the groups of a class.
 *
 * The k axis of the product is (chunk of channels, group, tap, channel): a
 * chunk is 64 bytes of each position. For each chunk and group the halo is
 * filled once, then each tap is a STEP: rows of the halo, moved by the tap, by
 * a tile of weights.
 *
 *     igemm_tile_load.cuh     global memory to shared memory
 *     igemm_tile_mainloop.cuh  the steps
 *     igemm_tile_epilogue.cuh    registers to the result
 *     igemm_tile_sums.cuh     sums over the result */
#ifndef SEG_CUDA_CONV_IGEMM_TILE_H
#define SEG_CUDA_CONV_IGEMM_TILE_H
#include "cuda/conv/igemm_operands.cuh"

enum {
    TILE_ROW = 64,      // bytes of a position in shared memory
    TILE_LINE = 16,     // bytes of one copy
    TILE_LINES = 4,     // of a row
    TILE_CHUNK = 32,    // channels of it
    TILE_CHANNELS = 8,  // stored at a time; those of a group divide by it
    TILE_STAGES = 4,    // tiles of weights, one of them in use
    TILE_GROUPS = 4,    // of one axis
    TILE_FRAGMENT = 16, // rows that a warp turns around at a time, in
    TILE_OWN = 1 << 30, // bit of a row in a table: the box's own, see IgemmTaps
    TILE_PITCH = 40,    // floats a row of 32: writes meet no bank twice;
    TILE_TRANSPOSE = TILE_FRAGMENT * TILE_PITCH * 4, // bytes
};

/* One group of an axis: kernel taps first + i*every, i < count, see halo
 * position at + i*step of what the box's first position sees there; halo
 * position 0 of a box at 0 is source position `origin`. Halo positions `own`
 * and on, as many as the box has, are the box's own: of all boxes of a class,
 * in all groups, they are each position of the source once. */
struct IgemmTaps {
    int first, every, count, at, step, reach, origin; // reach: the farthest
    int own;
};

template <int GROUPS> struct IgemmAxis {
    int count, size, step, out_step, out_base; // as in ConvAxis
    int groups;
    IgemmTaps group[GROUPS];
};

template <int GROUPS> struct IgemmClass {
    IgemmAxis<GROUPS> axis[3];
    Divisor boxes[3]; // along each axis
    int blocks;       // boxes of all samples
    int first;        // boxes of the classes before
    int taps, groups; // of all axes
};

/* Arguments of a launch; blockIdx: box, tile of channels and group of
 * channels, class and part of the chunks. */
template <bool DGRAD> struct IgemmTileParams {
    enum { GROUPS = DGRAD ? 1 : TILE_GROUPS };
    IgemmClass<GROUPS> cls[DGRAD ? RESIDUE_CLASSES : 1];
    const void *source, *w;
    const float *bias;
    int border;              // channels before those of `beside`
    int result_border;       // and of second_result
    int pitch[2];            // channels of a row of `source`, `beside`
    Operand second;          // the source's other tensor
    Target second_result;    // the result's
    NormOnLoad norm_on_load; // of the source
    NormBwd norm_bwd;        // of the source; its x has halos behind the others
    int layers;              // halos of a fill: 2 with a slant
    ChannelSums sums;        // a part a box: igemm_tile_sums.cuh
    Target result;           // or parts of it, in f32
    int64_t part_stride;     // elements between parts; 0: there are none
    int result_c;            // channels of all groups
    int depth, width;        // channels of a group: source, result
    int taps[3];             // of the whole kernel
    int tiles;               // of the channels of one group
    int chunks, split_k;     // of channels; sums of their own
    Dims extent;             // of the result
    int box[3], samples;     // log2 of its extents; samples of one
    Divisor halo[3];         // extents of it
    int rows;                // of all of its samples
    int ahead, buffers;      // fills under way; halos in shared memory
};

/* Which tile and how many sums: follows from extents and precision. */
struct GemmTile {
    int bm, bn;
    int split_k; // of the chunks: each a sum of its own, added in order
    bool split;  // a block makes one segment, not all
};

/* Could a tile be made of this call's channels? */
bool igemm_tile_takes(const ConvProblem *r);
/* Bytes of Call.scratch that gather or spread need. */
size_t igemm_tile_bytes(const ConvProblem *r, bool dgrad);
/* Queue gather or spread of classes, all of a call where it is split. False
 * with *done set: a device failed; with *done not set: nothing was queued, the
 * halo is too large. */
bool igemm_tile_run(const ConvProblem *r, const IgemmParams *p, int classes,
                    bool *done);
/* Would it be queued? */
bool igemm_tile_fits(const ConvProblem *r, const IgemmParams *p, int classes);
/* Parts of sums of each channel that these classes, all of a call, can make of
 * the result as they store it; 0: they cannot. */
int igemm_tile_sum_parts(const ConvProblem *r, const IgemmParams *p,
                         int classes);

/* Channels i .. i+7 of a target: v stored, or added to what is there. */
static __device__ __forceinline__ void put_channels(const Target &t, int64_t i,
                                                    const Vec<8> &v)
{
    if (t.type == BF16)
        store_vec<8, BF16>((uint16_t *)t.data + i, v, t.fresh);
    else if (t.type == F16)
        store_vec<8, F16>((uint16_t *)t.data + i, v, t.fresh);
    else
        store_vec<8>((float *)t.data + i, v, t.fresh);
}

/* Likewise of a row of `channels` that two tensors share, the first up to the
 * border; one that is not there is not wanted. */
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

/* Rows of a warp's part of a tile, which has 32 columns. */
static constexpr int tile_warp_rows(int bm, int bn)
{
    return bm * bn == 128 * 128 ? 64 : 32;
}

/* Shared memory behind the steps: what warps turn around, and their sums. */
static constexpr size_t tile_transpose_bytes(int bm, int bn)
{
    return (size_t)(bm / tile_warp_rows(bm, bn) * (bn / 32) * TILE_TRANSPOSE);
}

static constexpr size_t tile_sum_bytes(int bm, int bn)
{
    return (size_t)(bm / tile_warp_rows(bm, bn) * bn) * 2 * sizeof(double) +
           (size_t)bn * sizeof(float4);
}

/* What igemm_tile_bf16.cu and its like have. */
template <Precision P, bool DGRAD>
bool igemm_tile_launch(const ConvProblem *r, const GemmTile &tile,
                       const IgemmTileParams<DGRAD> &p, dim3 blocks,
                       size_t shared);
#endif
