/* igemm_tile_epilogue.cuh -- the epilogue of igemm_tile: accumulators to the
 * result.
 *
 * A warp transposes 16 rows at a time in shared memory of its own, so each
 * thread gets 8 neighbouring channels of a position and stores 16 bytes (two
 * stores in f32). A Store has put(row, channel, v), which adds the bias or sums
 * and stores. */
#ifndef SEG_CUDA_CONV_IGEMM_TILE_EPILOGUE_H
#define SEG_CUDA_CONV_IGEMM_TILE_EPILOGUE_H
#include "cuda/conv/igemm_tile_load.cuh"

/* A Store that adds the bias, rounds, and stores to one tensor or an implicit
 * concat. */
struct IgemmEpilogue {
    Target to, second;
    const float *bias;
    int border, channels; // of the first tensor; of a row of the result

    __device__ __forceinline__ void put(int64_t row, int64_t c,
                                        const Vec<8> &sum) const
    {
        Vec<8> v = sum;
        add_bias(bias, c, &v);
        store_second(to, second, border, channels, row, c, v);
    }
};

/* The row of the result for position m of a box; -1: outside. */
template <bool DGRAD>
static __device__ __forceinline__ int64_t
box_row(const IgemmTileParams<DGRAD> &p, const TileClassOf<DGRAD> &k,
        const BlockCoord &s, int m)
{
    int j[3];
    bool inside = true;
    for (int a = 2; a >= 0; a--) {
        j[a] = s.from[a] + (m & ((1 << p.box[a]) - 1));
        inside = inside && j[a] < k.axis[a].count;
        m >>= p.box[a];
    }

    const int n = s.sample + m;
    int64_t row = n;
    for (int a = 0; a < 3; a++)
        row = row * (&p.extent.d)[a] + j[a] * k.axis[a].out_step +
              k.axis[a].out_base;
    return inside && n < p.extent.n ? row : -1;
}

/* Writes 16 rows of a warp from mma fragments d to `transposed`, PITCH floats a
 * row, for the warp to read by rows. */
template <int PITCH, int COUNT>
static __device__ __forceinline__ void transpose_rows(
    const float (&d)[COUNT][4], float *transposed)
{
    const int lane = (int)threadIdx.x % WARP;
    __syncwarp(); // the previous rows have been read
#pragma unroll
    for (int j = 0; j < COUNT; j++)
#pragma unroll
        for (int h = 0; h < 2; h++)
            *(float2 *)&transposed[(lane / 4 + h * 8) * PITCH + j * 8 +
                                   lane % 4 * 2] =
                make_float2(d[j][2 * h], d[j][2 * h + 1]);
    __syncwarp();
}

/* Stores 16 rows by 32 columns of a warp from mma fragments d, beginning at
 * position m of the box and channel n of the group. transposed: TILE_TRANSPOSE
 * bytes of shared memory for each warp. */
template <bool DGRAD, class Store>
static __device__ __forceinline__ void store_fragment(
    const IgemmTileParams<DGRAD> &p, const TileClassOf<DGRAD> &k,
    const BlockCoord &s, int m, int n, const float (&d)[4][4],
    float *transposed, Store &store)
{
    const int lane = (int)threadIdx.x % WARP;
    transpose_rows<TILE_PITCH>(d, transposed);
    n += lane % 4 * TILE_CHANNELS;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const int r = lane / 4 + h * 8;
        const int64_t row = box_row(p, k, s, m + r);
        if (row < 0 || n >= p.gemm_n) continue;
        const float *from =
            &transposed[r * TILE_PITCH + lane % 4 * TILE_CHANNELS];
        store.put(row, s.group * p.gemm_n + n, *(const Vec<8> *)from);
    }
}
#endif
