/* wgrad_tile.cuh -- wgrad on tensor cores with the halo in shared memory, for
 * filters in multiples of 8 and input channels in multiples of 8, or 1 to 15 in
 * one group (pad_channels.cuh). wgrad.cuh has the product, and the problems
 * that no other kernel takes.
 *
 * A block computes 64 filters by some channels of `input` for all taps of a tap
 * set, from a part of the boxes of output positions (split-K). For each box it
 * loads the rows of `output` and the halos of `input` once; then every tap
 * multiplies the same rows of `output` by the halo, shifted by the tap. The
 * sums of all taps stay in registers over all boxes. A second kernel,
 * wgrad_tile_fold_kernel, adds the parts in their order.
 *
 * A tap set is made of tap groups (tap_groups.cuh), each with a halo of its
 * own: a window of 2 with stride 2 has four groups of one tap in one set.
 * Groups of more taps than a set are cut into sets of neighbouring taps: 3x3x3
 * has three sets, one for each tap along d.
 *
 *     wgrad_tile.cu           choice of sets, boxes and split-K; launches
 *     wgrad_tile_kernel.cuh   the kernel, one precision a file */
#ifndef SEG_CUDA_CONV_WGRAD_TILE_H
#define SEG_CUDA_CONV_WGRAD_TILE_H
#include "cuda/conv/conv.cuh"

enum {
    WGRAD_TILE_THREADS = 256,
    WGRAD_TILE_WARPS = WGRAD_TILE_THREADS / WARP,
    WGRAD_TILE_FILTERS = 64, // of a block
    WGRAD_TILE_TAPS = 9,     // of a tap set, at most
    WGRAD_TILE_SETS = 16,    // of a launch, at most
    WGRAD_TILE_STEP = 16,    // positions of a box are a multiple of it
    WGRAD_TILE_LINE = 16,    // bytes of one cp.async
    WGRAD_TILE_BLOCK = 640,  // bytes of shared memory for a block's constants
};

/* The taps that a block computes. Halo position h of a box that begins at
 * position f, in the halo of group g, reads input position (f + h) * stride +
 * origin[g]. Tap i, number[i] of the filter, reads the halo row of a position
 * plus move[i]. */
struct TapSet {
    int16_t taps, groups;
    int16_t origin[WGRAD_TILE_TAPS][3];
    uint16_t move[WGRAD_TILE_TAPS], number[WGRAD_TILE_TAPS];
};

/* Arguments of a launch. blockIdx.x: tile of dw, which is (tap set, group,
 * channels of `input`, filters); y: part of the boxes. */
struct WgradTileParams {
    TapSet set[WGRAD_TILE_SETS];
    Source input, output;
    NormBwd norm_bwd; // of `output`; table NULL: none
    // with one part the block stores to dw, else the parts are added later
    float *dw, *parts; // parts: (parts, dw)
    bool fresh;        // dw is stored, else added to
    double *sqnorm;    // of one part: a partial sum of squares of dw for each
                       // warp, or NULL
    int64_t part_size;
    int input_c, output_c; // channels of all groups
    int cin, cout;         // channels of a group
    int cin_padded;        // a multiple of 8, of the tensor `input`
    int filter_taps;       // of the whole filter
    int samples;
    int size[3], count[3], step[3];   // extents of input and output; strides
    int box[3], log_samples;          // log2 of a box's extents
    int positions;                    // of a box
    Divisor halo[3];                  // extents of the halo of a sample
    int halo_rows;                    // rows of the halo of a tap group
    int rows;                         // rows of all halos of a set, at most
    Divisor boxes[3];                 // number of boxes along each axis
    int all_boxes;                    // over all samples
    Divisor m_tiles, n_tiles, groups; // of a tile
    int stages, stage_bytes;          // boxes in shared memory, 2 or 3
    int layers;                       // of rows of `output` in a stage: 2 with
                                      // norm backward on load
};

/* The run of wgrad_tile for a problem. */
struct WgradTileFit {
    bool takes;
    size_t workspace;
    int sqnorm_parts;
};
/* norm_bwd: `output` has a norm backward on load. */
WgradTileFit wgrad_tile_fit(const ConvProblem *r, bool norm_bwd);
/* Queues dw (+)= wgrad(input, output), with wgrad_tile_fit. `output` may have a
 * norm backward on load. workspace: of wgrad_tile_fit. False with the reason.
 */
bool wgrad_tile_run(const ConvProblem *r, const Source &input,
                    const Source &output, float *dw, bool fresh, double *sqnorm,
                    void *workspace);

/* The tile of dw that a block computes: WGRAD_TILE_FILTERS by `channels` of
 * `input`, for a set of at most `taps` taps. Eight warps: two along the
 * filters, at most four along the channels; if there are fewer, the others
 * share the positions of each box (wgrad_tile_k_warps) and sum them in parts of
 * their own. */
struct WgradTileShape {
    int taps, channels;
};

static constexpr WgradTileShape WGRAD_TILE_SHAPES[] = {
    {9, 32}, {4, 64}, {4, 32}, {9, 16}, {9, 8}};

static inline int wgrad_tile_k_warps(int channels)
{
    return channels < 32 ? 32 / channels : 1;
}

/* In wgrad_tile_bf16.cu, _f16.cu, _tf32.cu: queues the kernel for a tile of
 * WGRAD_TILE_SHAPES. */
template <Precision P>
bool wgrad_tile_launch(const ConvProblem *r, const WgradTileShape &tile,
                       const WgradTileParams &p, dim3 blocks, size_t shared);
#endif
