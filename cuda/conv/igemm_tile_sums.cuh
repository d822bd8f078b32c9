/* igemm_tile_sums.cuh -- sums by channel over the results that a block of
 * igemm_tile stores: statistics of y for the norm that follows, or gradient
 * sums of dx (grad_sums.cuh).
 *
 * A warp sums its rows, at most 64, in float; warps are added in double, in
 * their order; channel_sums.cuh adds the boxes. */
#ifndef SEG_CUDA_CONV_IGEMM_TILE_SUMS_H
#define SEG_CUDA_CONV_IGEMM_TILE_SUMS_H
#include "cuda/conv/igemm_tile_epilogue.cuh"

/* Adds the sums of the warps, partials[2][ACROSS][BN], in their order to the
 * partial sums of the box; the last block of the launch finishes them.
 * `partials` must not overlap memory in use. All threads of the block must call
 * it. */
template <class Shape, bool DGRAD>
static __device__ __forceinline__ void tile_sums(
    const IgemmTileParams<DGRAD> &p, const TileClassOf<DGRAD> &k,
    const BlockCoord &s, double *partials)
{
    enum { BN = Shape::WN * Shape::DOWN };
    const int part = k.first + (int)blockIdx.x;
    const int first = (int)s.group * p.gemm_n + s.n0;
    __syncthreads();

    for (int i = (int)threadIdx.x; i < 2 * BN; i += Shape::THREADS) {
        const int at = i % BN, which = i / BN;
        if (s.n0 + at >= p.gemm_n) continue;
        double sum = 0;
        for (int w = 0; w < Shape::ACROSS; w++)
            sum += partials[(which * Shape::ACROSS + w) * BN + at];
        p.sums.parts[((int64_t)part * 2 + which) * p.result_c + first + at] =
            sum;
    }

    channel_sums_finish(p.sums, part, (int)blockIdx.y, first,
                        min(BN, p.gemm_n - s.n0), partials);
}

/* Sums of v and v^2 over the stored values v, for the statistics of y. A warp
 * sums about the mean of its own rows. */
template <Dtype D, class Shape, bool DGRAD, class WarpTile>
static __device__ __forceinline__ void tile_y_sums(
    const IgemmTileParams<DGRAD> &p, const TileClassOf<DGRAD> &k,
    const BlockCoord &s, int wm, int wn, const WarpTile &warp_tile,
    const IgemmEpilogue &store, double *partials)
{
    enum { MF = Shape::FRAGMENTS, NF = Shape::COLUMNS, ROWS = 2 * MF };
    enum { BN = Shape::WN * Shape::DOWN };
    const int lane = (int)threadIdx.x % WARP;
    bool valid[ROWS];
    int n = 0;
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
        valid[i] = box_row(p, k, s, wm + i * 8 + lane / 4) >= 0;
        n += valid[i];
    }
    n = warp_sum_strided(n, 4);
    const float each = n ? 1 / (float)n : 0;
#pragma unroll
    for (int j = 0; j < 2 * NF; j++) {
        const int at = wn + j / 2 * 8 + lane % 4 * 2 + j % 2;
        const int channel = s.n0 + at;
        const float bias = store.bias && channel < p.gemm_n
                               ? store.bias[s.group * p.gemm_n + channel]
                               : 0;
        float v[ROWS], mean = 0, m2 = 0;
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            v[i] = rounded<D>(warp_tile.of(i / 2)[j / 2][i % 2 * 2 + j % 2] +
                              bias);
            mean += valid[i] ? v[i] : 0;
        }
        mean = warp_sum_strided(mean, 4) * each;
#pragma unroll
        for (int i = 0; i < ROWS; i++)
            m2 += valid[i] ? (v[i] - mean) * (v[i] - mean) : 0;
        m2 = warp_sum_strided(m2, 4);
        if (lane >= 4) continue;
        double *to = partials + wm / Shape::WM * BN + at;
        to[0] = (double)mean * n;
        to[Shape::ACROSS * BN] = (double)m2 + (double)mean * mean * n;
    }
    tile_sums<Shape>(p, k, s, partials);
}

/* A Store of gradients with gradient sums, for 8 channels of one tensor. The
 * sums are over the values in memory after the store. */
template <Dtype D> struct IgemmGradSums {
    Target to;
    const void *x;      // the operand of the deferred norm, or NULL
    int from, channels; // channels before this tensor's; its own
    const float4 *by;   // (8) in shared memory, see grad_sums_channel
    bool runs;
    Vec<8> sum[2];

    __device__ __forceinline__ void put(int64_t row, int64_t c,
                                        const Vec<8> &given)
    {
        if (!to.data) return;
        const int64_t i = row * channels + c - from;
        Element<D> *at = (Element<D> *)to.data + i;
        Vec<8> v = given;
        if (!to.fresh) {
            const auto old = load<8, D>(at);
#pragma unroll
            for (int j = 0; j < 8; j++) v.v[j] = old.v[j] + v.v[j];
        }
        store_vec<8, D>(at, v, true);
        if (!runs) return;
            // half of it at a time, to save registers
#pragma unroll
        for (int h = 0; h < 8; h += 4) {
            Vec<4> norm_x = {};
            if (x) norm_x = load<4, D>((const Element<D> *)x + i + h);
#pragma unroll
            for (int j = 0; j < 4; j++) // of the stored value
                grad_sums_add(by[h + j], norm_x.v[j], rounded<D>(v.v[h + j]),
                              &sum[0].v[h + j], &sum[1].v[h + j]);
        }
    }
};

/* Stores the gradients of a warp and sums them. partials: as for tile_sums,
 * followed by room for BN float4 constants. All threads of the block must call
 * it. */
template <Dtype D, class Shape, bool DGRAD, class WarpTile>
static __device__ __forceinline__ void tile_grad_sums(
    const IgemmTileParams<DGRAD> &p, const TileClassOf<DGRAD> &k,
    const BlockCoord &s, int wm, int wn, const WarpTile &warp_tile,
    float *transposed, double *partials)
{
    enum { BN = Shape::WN * Shape::DOWN };
    const int border = p.result_border;
    float4 *by = (float4 *)(partials + 2 * Shape::ACROSS * BN);

    for (int i = (int)threadIdx.x; i < BN && s.n0 + i < p.gemm_n;
         i += Shape::THREADS) {
        const int c = (int)s.group * p.gemm_n + s.n0 + i;
        by[i] = c < border ? grad_sums_channel(p.sums.grads, c)
                           : grad_sums_channel(p.sums.second, c - border);
    }

    __syncthreads();

    // a warp's columns belong to one tensor, see conv_fuses_concat
    const int first = (int)threadIdx.x % 4 * TILE_CHANNELS;
    const bool far = s.group * p.gemm_n + s.n0 + wn >= border;
    const GradSums &mine = far ? p.sums.second : p.sums.grads;
    IgemmGradSums<D> store = {far ? p.second_result : p.result,
                              mine.x,
                              far ? border : 0,
                              far ? p.result_c - border : border,
                              by + wn + first,
                              mine.runs,
                              {}};
#pragma unroll
    for (int i = 0; i < Shape::FRAGMENTS; i++)
        store_fragment(p, k, s, wm + i * TILE_FRAGMENT, s.n0 + wn,
                       warp_tile.of(i), transposed, store);
#pragma unroll
    for (int i = 0; i < 2 * 8; i++) {
        const float sum = warp_sum_strided(store.sum[i / 8].v[i % 8], 4);
        if ((int)threadIdx.x % WARP < 4)
            partials[(i / 8 * Shape::ACROSS + wm / Shape::WM) * BN + wn +
                     first + i % 8] = (double)sum;
    }
    tile_sums<Shape>(p, k, s, partials);
}
#endif
