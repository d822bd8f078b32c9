/* igemm_mma.cuh -- fprop, dgrad and wgrad as products on tensor cores without a
 * halo; one precision a file: igemm_mma_tf32.cu, igemm_mma_bf16.cu,
 * igemm_mma_f16.cu. They run the problems in 16 bits and tf32 that no kernel
 * with a halo takes: igemm_tile.cuh, wgrad_tile.cuh, igemm_sm90.cuh,
 * wgrad_sm90.cuh.
 *
 * A block of 128 threads computes 64 x 64 results (128 x 16 if the result has
 * up to 16 channels), a warp 32 x 32 (32 x 16) of them: two by four (two)
 * fragments of 16 x 8, accumulated in f32 by m16n8k16 (tf32: m16n8k8). Chunks
 * of 64 bytes of the k axis go through two buffers in shared memory (each_chunk
 * of conv.cuh). Rows of a tile lie 80 bytes apart where they run along k, else
 * an odd number of 16-byte lines, so ldmatrix has no bank conflicts.
 *
 * Each tap loads its operand again: a 64 x 64 chunk in 16 bits reads 8 KB for
 * 262,144 FLOPs, 32 FLOP a byte, so loads are the bound.
 *
 * Additions are in the order of the instruction within an mma, then in chains
 * of CHAIN terms as in all kernels: an order that depends on extents only. */
#ifndef SEG_CUDA_CONV_IGEMM_MMA_H
#define SEG_CUDA_CONV_IGEMM_MMA_H
#include "cuda/conv/igemm_operands.cuh"
#include "cuda/conv/wgrad.cuh"

namespace {

enum {
    SKEW = 8,   // elements after a row that does not run along k
    BLOCKS = 4, // on a multiprocessor: 128 registers a thread
    // with m16n8k8 fprop takes three registers more
    BLOCKS_IGEMM = SM80 ? BLOCKS : BLOCKS - 1,
};

// -- fragments ---------------------------------------------------------------

/* Loads mma operands from shared memory; `at` is the first element of 16 rows
 * or columns and one k step. rows_: the rows of the tile run along k and lie
 * STRIDE elements apart. */
template <int STRIDE, class S>
__device__ __forceinline__ void rows_a(uint32_t (&a)[4], const S *at)
{
    const int l = (int)threadIdx.x % WARP;
    ldmatrix_x4(a, at + l % 16 * STRIDE + l / 16 * Line<S>::COUNT);
}

/* 16 columns of b: two fragments. */
template <int STRIDE, class S>
__device__ __forceinline__ void rows_b(uint32_t (&b0)[2], uint32_t (&b1)[2],
                                       const S *at)
{
    const int l = (int)threadIdx.x % WARP;
    uint32_t r[4];
    ldmatrix_x4(r, at + (l % 8 + l / 16 * 8) * STRIDE +
                       l / 8 % 2 * Line<S>::COUNT);
    b0[0] = r[0], b0[1] = r[1], b1[0] = r[2], b1[1] = r[3];
}

/* The same for tiles in which a row is one element of k. ldmatrix transposes
 * 16-bit elements; 32-bit elements are loaded one by one. */
template <int STRIDE>
__device__ __forceinline__ void columns_a(uint32_t (&a)[4], const uint16_t *at)
{
    const int l = (int)threadIdx.x % WARP;
    ldmatrix_x4_trans(a, at + (l % 8 + l / 16 * 8) * STRIDE + l / 8 % 2 * 8);
}

template <int STRIDE>
__device__ __forceinline__ void columns_a(uint32_t (&a)[4], const uint32_t *at)
{
    const int l = (int)threadIdx.x % WARP, g = l / 4, t = l % 4;
    for (int i = 0; i < 4; i++)
        a[i] = at[(t + i / 2 * 4) * STRIDE + g + i % 2 * 8];
}

template <int STRIDE>
__device__ __forceinline__ void columns_b(uint32_t (&b0)[2], uint32_t (&b1)[2],
                                          const uint16_t *at)
{
    const int l = (int)threadIdx.x % WARP;
    uint32_t r[4];
    ldmatrix_x4_trans(r, at + l % 16 * STRIDE + l / 16 * 8);
    b0[0] = r[0], b0[1] = r[1], b1[0] = r[2], b1[1] = r[3];
}

template <int STRIDE>
__device__ __forceinline__ void columns_b(uint32_t (&b0)[2], uint32_t (&b1)[2],
                                          const uint32_t *at)
{
    const int l = (int)threadIdx.x % WARP, g = l / 4, t = l % 4;
    for (int i = 0; i < 2; i++) {
        b0[i] = at[(t + i * 4) * STRIDE + g];
        b1[i] = at[(t + i * 4) * STRIDE + g + 8];
    }
}

/* The accumulators of a warp: 32 rows by 8 COLUMNS columns. */
template <Precision P, int COLUMNS> struct WarpTile {
    enum {
        STEP = 2 * Line<typename PrecisionTraits<P>::T>::COUNT
    }; // k of one mma
    float acc[2][COLUMNS][4] = {}, sum[2][COLUMNS][4] = {};

    __device__ __forceinline__ void multiply(const uint32_t (&a)[2][4],
                                             const uint32_t (&b)[COLUMNS][2])
    {
#pragma unroll
        for (int i = 0; i < 2; i++)
#pragma unroll
            for (int j = 0; j < COLUMNS; j++)
                PrecisionTraits<P>::multiply(acc[i][j], a[i], b[j]);
    }

    __device__ __forceinline__ void end_chain()
    {
#pragma unroll
        for (int i = 0; i < 8 * COLUMNS; i++) {
            float &v = acc[i / COLUMNS / 4][i / 4 % COLUMNS][i % 4];
            sum[i / COLUMNS / 4][i / 4 % COLUMNS][i % 4] += v, v = 0;
        }
    }
};

/* In a warp's results: the row that a thread has in the upper (h = 0) or lower
 * half of fragment f, and the column of its value i in fragment j. */
__device__ __forceinline__ int mma_row(int f, int h)
{
    return f * 16 + h * 8 + (int)threadIdx.x % WARP / 4;
}

__device__ __forceinline__ int mma_column(int j, int i)
{
    return j * 8 + (int)threadIdx.x % 4 * 2 + i;
}

/* Stores a line in its shared-memory format. */
template <Precision P, class S, class T>
__device__ __forceinline__ void to_shared(S *to, const Line<T> &from)
{
    Line<S> line;
#pragma unroll
    for (int i = 0; i < Line<T>::COUNT; i++)
        line.v[i] = PrecisionTraits<P>::shared(from.v[i]);
    *(Line<S> *)to = line;
}

// -- fprop and dgrad ---------------------------------------------------------

/* SOURCE, VEC: see IgemmLoad. */
template <Precision P, int BM, int BN, bool DGRAD, bool SOURCE, bool VEC>
__global__ void __launch_bounds__(CONV_THREADS, VEC ? BLOCKS_IGEMM : 0)
    igemm_mma_kernel(const __grid_constant__ IgemmParams p)
{
    typedef typename PrecisionTraits<P>::T T;
    typedef typename PrecisionTraits<P>::Shared S;
    typedef IgemmLoad<T, BM, BN, DGRAD> F;
    enum { BK = F::BK, ROW = BK + F::COUNT };

    // the filter tile has the order of its loads: along k in fprop, along
    // channels in dgrad
    enum { ROWS = DGRAD ? BK : BN, WIDE = DGRAD ? BN + SKEW : ROW };
    enum { ACROSS = BM / 32, WN = BN * ACROSS / 4, COLUMNS = WN / 8 };
    SMEM(S, source, [2][BM][ROW]);
    SMEM(S, weight, [2][ROWS][WIDE]);
    const ResidueClass &k = p.cls[blockIdx.z];
    const int t = (int)threadIdx.x, m0 = (int)blockIdx.x * BM;
    const int64_t group = blockIdx.y / p.tiles;
    const int n0 = (int)(blockIdx.y % p.tiles) * BN;
    if (m0 >= k.positions) return; // a smaller class: the whole block
    const int fk = t % CHUNK_LINES * F::COUNT, fm = t / CHUNK_LINES;
    const int wm = t / WARP % ACROSS * 32, wn = t / WARP / ACROSS * WN;
    RowOrigin o[F::MS];
    for (int i = 0; i < F::MS; i++) o[i] = origin_of(k, m0 + fm + i * F::STEP);

    typedef WarpTile<P, COLUMNS> Tile;
    Tile warp_tile;
    F f;
    auto fetch = [&](int at) {
        f.template fetch<SOURCE, VEC>(p, k, o, at, n0, group);
    };
    auto store = [&](int b) {
        if constexpr (SOURCE && P != PRECISION_tf32)
            norm_concat_lines<NARROW_TYPE<P>>(
                p.norm_on_load, p.second.norm_on_load, p.border,
                (int)group * p.k_channels + f.channel, f.s, f.inside);
#pragma unroll
        for (int i = 0; i < F::MS; i++)
            to_shared<P>(&source[b][fm + i * F::STEP][fk], f.s[i]);
#pragma unroll
        for (int i = 0; i < F::NS; i++) {
            int wk, n;
            if (!F::weights(i, &wk, &n)) break;
            to_shared<P>(&weight[b][DGRAD ? wk : n][DGRAD ? n : wk], f.w[i]);
        }
    };

    auto multiply = [&](int b) {
#pragma unroll
        for (int kk = 0; kk < BK; kk += Tile::STEP) {
            uint32_t x[2][4], y[COLUMNS][2];
            for (int i = 0; i < 2; i++)
                rows_a<ROW>(x[i], &source[b][wm + i * 16][kk]);
#pragma unroll
            for (int j = 0; j < COLUMNS; j += 2) {
                if constexpr (DGRAD)
                    columns_b<WIDE>(y[j], y[j + 1], &weight[b][kk][wn + j * 8]);
                else
                    rows_b<WIDE>(y[j], y[j + 1], &weight[b][wn + j * 8][kk]);
            }
            warp_tile.multiply(x, y);
        }
    };
    each_chunk<BK>(0, k.gemm_k, fetch, store, multiply,
                   [&] { warp_tile.end_chain(); });

#pragma unroll
    for (int h = 0; h < 4; h++) {
        int m = m0 + wm + mma_row(h / 2, h % 2);
        if (m >= k.positions) continue;
        int64_t row = result_row(p, k, m);
#pragma unroll
        for (int j = 0; j < 2 * COLUMNS; j++)
            put_result(p, row, group, n0 + wn + mma_column(j / 2, j % 2),
                       warp_tile.sum[h / 2][j / 2][h % 2 * 2 + j % 2]);
    }
}

template <Precision P, int BM, int BN>
bool launch_mma(const ConvProblem *r, IgemmParams *p, int classes,
                int positions)
{
    enum { COUNT = Line<typename PrecisionTraits<P>::T>::COUNT };
    p->tiles = (int)ceil_div(p->gemm_n, BN);
    dim3 launch_grid((unsigned)ceil_div(positions, BM),
                     (unsigned)(p->tiles * r->win.groups), (unsigned)classes);
    cudaStream_t stream = gpu_stream(r->c->dev);
    // in fprop w runs along the source's channels
    const bool source = p->k_channels % COUNT == 0;
    const bool vec = source && p->gemm_n % COUNT == 0;

    if (p->dgrad && vec)
        LAUNCH((igemm_mma_kernel<P, BM, BN, true, true, true>), launch_grid,
               CONV_THREADS, 0, stream, *p);
    else if (p->dgrad && source)
        LAUNCH((igemm_mma_kernel<P, BM, BN, true, true, false>), launch_grid,
               CONV_THREADS, 0, stream, *p);
    else if (p->dgrad)
        LAUNCH((igemm_mma_kernel<P, BM, BN, true, false, false>), launch_grid,
               CONV_THREADS, 0, stream, *p);
    else if (source)
        LAUNCH((igemm_mma_kernel<P, BM, BN, false, true, true>), launch_grid,
               CONV_THREADS, 0, stream, *p);
    else
        LAUNCH((igemm_mma_kernel<P, BM, BN, false, false, false>), launch_grid,
               CONV_THREADS, 0, stream, *p);
    return gpu_launched(p->dgrad ? "igemm_mma dgrad" : "igemm_mma fprop");
}

// -- wgrad -------------------------------------------------------------------

/* One tile of w of one group, from one part of the positions. Loads of single
 * elements take more registers; without launch bounds nvcc gives tf32 128
 * registers and spills. */
template <Precision P, bool OUTPUT, bool INPUT>
__global__ void __launch_bounds__(CONV_THREADS,
                                  OUTPUT + INPUT == 2 ? BLOCKS : BLOCKS / 2)
    wgrad_mma_kernel(const __grid_constant__ WgradParams p)
{
    typedef typename PrecisionTraits<P>::T T;
    typedef typename PrecisionTraits<P>::Shared S;
    typedef WgradLoad<T, OUTPUT, INPUT> F;
    typedef WarpTile<P, 4> Tile;
    enum { BK = F::BK, WIDE = WGRAD_TILE + SKEW };
    SMEM(S, output, [2][BK][WIDE]);
    SMEM(S, input, [2][BK][WIDE]);
    const WgradTile s = wgrad_tile_of(p);
    const int warp = (int)threadIdx.x / WARP;
    const int wm = warp % 2 * 32, wn = warp / 2 * 32;

    SMEM(Column, columns, [INPUT ? 1 : WGRAD_TILE]);
    F f(p, s, columns);
    Tile warp_tile;
    auto fetch = [&](int at) { f.fetch(p, s, at); };
    auto store = [&](int b) {
        if constexpr (P != PRECISION_tf32)
            norm_operands<NARROW_TYPE<P>>(p, s, &f);
#pragma unroll
        for (int i = 0; i < F::LOADS; i++) {
            to_shared<P>(&output[b][F::row() + i * F::STEP][F::first()],
                         f.g[i]);
            to_shared<P>(&input[b][F::row() + i * F::STEP][F::first()], f.x[i]);
        }
    };

    auto multiply = [&](int b) {
#pragma unroll
        for (int kk = 0; kk < BK; kk += Tile::STEP) {
            uint32_t x[2][4], y[4][2];
            for (int i = 0; i < 2; i++)
                columns_a<WIDE>(x[i], &output[b][kk][wm + i * 16]);
#pragma unroll
            for (int j = 0; j < 4; j += 2)
                columns_b<WIDE>(y[j], y[j + 1], &input[b][kk][wn + j * 8]);
            warp_tile.multiply(x, y);
        }
    };
    each_chunk<BK>(s.from, s.to, fetch, store, multiply,
                   [&] { warp_tile.end_chain(); });

    double own = 0;
#pragma unroll
    for (int h = 0; h < 4; h++)
#pragma unroll
        for (int j = 0; j < 8; j++)
            own += store_wgrad(p, s, wm + mma_row(h / 2, h % 2),
                               wn + mma_column(j / 2, j % 2),
                               warp_tile.sum[h / 2][j / 2][h % 2 * 2 + j % 2]);
    finish_wgrad(p, own);
}

} // namespace

template <Precision P>
bool igemm_mma(const ConvProblem *r, IgemmParams *p, int classes, int positions)
{
    return p->gemm_n > 16 ? launch_mma<P, 64, 64>(r, p, classes, positions)
                          : launch_mma<P, 128, 16>(r, p, classes, positions);
}

template <Precision P>
bool wgrad_mma(const ConvProblem *r, const WgradParams *p, dim3 blocks)
{
    enum { COUNT = Line<typename PrecisionTraits<P>::T>::COUNT };
    cudaStream_t stream = gpu_stream(r->c->dev);
    const bool lines = r->cout % COUNT == 0;

    if (lines && r->cin % COUNT == 0)
        LAUNCH((wgrad_mma_kernel<P, true, true>), blocks, CONV_THREADS, 0,
               stream, *p);
    else if (lines)
        LAUNCH((wgrad_mma_kernel<P, true, false>), blocks, CONV_THREADS, 0,
               stream, *p);
    else if (r->cin % COUNT == 0)
        LAUNCH((wgrad_mma_kernel<P, false, true>), blocks, CONV_THREADS, 0,
               stream, *p);
    else
        LAUNCH((wgrad_mma_kernel<P, false, false>), blocks, CONV_THREADS, 0,
               stream, *p);
    return gpu_launched("wgrad_mma");
}
#endif
