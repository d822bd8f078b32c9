/* igemm_f32.cu -- fprop and dgrad in f32: an implicit GEMM on the FMA units;
 * see igemm_operands.cuh for the product, simt_tile.cuh for its main loop.
 *
 * A thread loads 16 bytes along the k axis of each of its rows of the source.
 * Neighbouring chunks are neighbouring channels of one tap, so an address
 * advances by a constant; the tap's offset and bounds are computed once for all
 * channels of the tap, from the origins of the rows in shared memory. The
 * filter of fprop is contiguous along k, that of dgrad along the channels of
 * the result.
 *
 * With the 128 x 64 tile a chunk reads (BM + BN) BK floats for BM BN BK
 * multiply-adds, 21 FLOP a byte; neighbouring taps read nearly the same rows,
 * most of them from L1. The kernel is bound by arithmetic. */
#include "cuda/conv/igemm.cuh"
#include "cuda/conv/simt_tile.cuh"

namespace {

enum { VEC_K = Line<float>::COUNT, LINES_K = SIMT_BK / VEC_K };

/* The rows of the source of a thread: one line of each chunk, at element
 * offset() of the chunk, for rows first(), first() + STEP, .. of the tile. */
template <class Tile, bool VEC> struct SourceLines {
    enum { STEP = Tile::THREADS / LINES_K, COUNT = Tile::BM / STEP };
    Line<float> v[COUNT];
    const float *from[COUNT]; // the next line
    unsigned inside = 0;      // bit i: line i is inside of the source
    int left = 0;             // channels of the tap from here on

    static __device__ __forceinline__ int offset()
    {
        return (int)threadIdx.x % LINES_K * VEC_K;
    }
    static __device__ __forceinline__ int first()
    {
        return (int)threadIdx.x / LINES_K;
    }

    /* Goes to the tap of element `at`. */
    __device__ __forceinline__ void seek(const IgemmParams &p,
                                         const ResidueClass &k,
                                         const RowOrigin *rows, int at,
                                         int64_t group)
    {
        const Tap tap = tap_of(p, k, at);
        left = p.k_channels - tap.channel;
        inside = 0;
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            from[i] = source_at<false, float>(p, k, rows[first() + i * STEP],
                                              tap, group);
            if (from[i] && at < k.gemm_k) inside |= 1u << i;
        }
    }

    /* Loads the lines at element `at`, which begins at offset() and advances by
     * SIMT_BK. */
    __device__ __forceinline__ void fetch(const IgemmParams &p,
                                          const ResidueClass &k,
                                          const RowOrigin *rows, int at,
                                          int64_t group)
    {
        if constexpr (VEC) {
            if (left <= 0) seek(p, k, rows, at, group);
            left -= SIMT_BK;
#pragma unroll
            for (int i = 0; i < COUNT; i++) {
                v[i] = {};
                if (inside >> i & 1) v[i] = *(const Line<float> *)from[i];
                from[i] += SIMT_BK;
            }
        } else {
#pragma unroll
            for (int j = 0; j < VEC_K; j++) {
                const Tap tap = tap_of(p, k, at + j);
#pragma unroll
                for (int i = 0; i < COUNT; i++) {
                    const float *s = source_at<false, float>(
                        p, k, rows[first() + i * STEP], tap, group);
                    v[i].v[j] = s && at + j < k.gemm_k ? *s : 0;
                }
            }
        }
    }

    /* Stores the lines transposed. */
    template <int WIDE>
    __device__ __forceinline__ void store(float (&to)[SIMT_BK][WIDE]) const
    {
#pragma unroll
        for (int i = 0; i < COUNT; i++)
#pragma unroll
            for (int j = 0; j < VEC_K; j++)
                to[offset() + j][first() + i * STEP] = v[i].v[j];
    }
};

/* The line of the filter of a thread, at element offset() of each chunk and
 * channel `channel()` of the tile: along k in fprop, along channels in dgrad.
 * Threads past the last line have none. */
template <class Tile, bool DGRAD, bool VEC> struct FilterLine {
    enum { LINES = Tile::BN / VEC_K, ALL = LINES * SIMT_BK };
    static_assert((int)ALL <= (int)Tile::THREADS, "a thread has one line");
    Line<float> v;
    const float *from; // the next line
    int end;           // fprop: of the k axis; dgrad: of the channels; 0 if the
                       // line is outside of the filter
    int left = 0;      // dgrad: channels of the tap from here on
    int64_t step;      // elements of w from one element of k to the next

    static __device__ __forceinline__ int offset()
    {
        const int t = (int)threadIdx.x;
        return DGRAD ? t / LINES : t % LINES_K * VEC_K;
    }
    static __device__ __forceinline__ int channel()
    {
        const int t = (int)threadIdx.x;
        return DGRAD ? t % LINES * VEC_K : t / LINES_K;
    }
    static __device__ __forceinline__ bool has_line()
    {
        return (int)threadIdx.x < ALL;
    }

    /* n: channel() in the group. */
    __device__ __forceinline__ FilterLine(const IgemmParams &p,
                                          const ResidueClass &k, int64_t group,
                                          int n)
    {
        const bool inside = has_line() && n < p.gemm_n;
        // fprop has one class, and its k axis is the k axis of the filter
        from = (const float *)p.w +
               (DGRAD ? 0 : (group * p.gemm_n + n) * k.gemm_k + offset());
        end = !inside ? 0 : DGRAD ? p.gemm_n : k.gemm_k;
        step =
            DGRAD ? (int64_t)p.taps[0] * p.taps[1] * p.taps[2] * p.gemm_n : 1;
    }

    /* Loads the line at element `at`, which begins at offset() and advances by
     * SIMT_BK, and channel n. */
    __device__ __forceinline__ void fetch(const IgemmParams &p,
                                          const ResidueClass &k, int at,
                                          int64_t group, int n)
    {
        if (DGRAD && left <= 0) {
            const Tap tap = tap_of(p, k, at);
            left = p.k_channels - tap.channel;
            from = weight_at<true, float>(p, tap, group, n);
            if (at >= k.gemm_k) end = 0;
        }
        const int first = DGRAD ? n : at;
        v = {};
        if constexpr (VEC) {
            if (first < end) v = *(const Line<float> *)from;
        } else {
#pragma unroll
            for (int j = 0; j < VEC_K; j++)
                if (first + j < end) v.v[j] = from[j];
        }
        left -= SIMT_BK;
        from += SIMT_BK * step;
    }

    /* Stores the line, transposed in fprop. */
    template <int WIDE>
    __device__ __forceinline__ void store(float (&to)[SIMT_BK][WIDE]) const
    {
        if (!has_line()) return;
        if constexpr (DGRAD) {
            *(Line<float> *)&to[offset()][channel()] = v;
        } else {
#pragma unroll
            for (int j = 0; j < VEC_K; j++)
                to[offset() + j][channel()] = v.v[j];
        }
    }
};

/* Stores or adds four neighbouring channels n .. of a row, plus the bias. In
 * f32 a result is one f32 tensor. */
__device__ __forceinline__ void put_quad(const IgemmParams &p, int64_t row,
                                         int64_t group, int n, const float *v)
{
    const int64_t c = group * p.gemm_n + n;
    float *to = (float *)p.result.data + row * p.result_c + c;
    Line<float> x;
    for (int j = 0; j < VEC_K; j++)
        x.v[j] = p.bias && n + j < p.gemm_n ? v[j] + p.bias[c + j] : v[j];
    if (p.gemm_n % VEC_K == 0) {
        if (n >= p.gemm_n) return;
        if (!p.result.fresh) {
            const Line<float> old = *(const Line<float> *)to;
            for (int j = 0; j < VEC_K; j++) x.v[j] += old.v[j];
        }
        *(Line<float> *)to = x;
    } else {
        for (int j = 0; j < VEC_K; j++)
            if (n + j < p.gemm_n) put(to + j, x.v[j], p.result.fresh);
    }
}

/* VEC: each line of the source and of the filter is one load; single elements
 * take more registers. */
template <class Tile, bool DGRAD, bool VEC>
__global__ void __launch_bounds__(Tile::THREADS,
                                  VEC ? Tile::BLOCKS : Tile::BLOCKS * 2 / 3)
    igemm_f32_kernel(const __grid_constant__ IgemmParams p)
{
    enum { BM = Tile::BM, BN = Tile::BN };
    SMEM(float, source, [2][SIMT_BK][BM + SIMT_PAD]);
    SMEM(float, filter, [2][SIMT_BK][BN + SIMT_PAD]);
    SMEM(RowOrigin, rows, [BM]);
    const ResidueClass &k = p.cls[blockIdx.z];
    const int m0 = (int)blockIdx.x * BM;
    const int64_t group = blockIdx.y / p.tiles;
    const int n0 = (int)(blockIdx.y % p.tiles) * BN;
    if (m0 >= k.positions) return; // a smaller class: the whole block
    for (int i = (int)threadIdx.x; i < BM; i += Tile::THREADS)
        rows[i] = origin_of(k, m0 + i);
    __syncthreads();

    Tile tile;
    SourceLines<Tile, VEC> s;
    const int n = n0 + FilterLine<Tile, DGRAD, VEC>::channel();
    FilterLine<Tile, DGRAD, VEC> w(p, k, group, n);
    int at = 0;
    auto fetch = [&] {
        s.fetch(p, k, rows, at + s.offset(), group);
        w.fetch(p, k, at + w.offset(), group, n);
        at += SIMT_BK;
    };
    auto store = [&](int b) {
        s.store(source[b]);
        w.store(filter[b]);
    };
    tile.main_loop((k.gemm_k + SIMT_BK - 1) / SIMT_BK, source, filter, fetch,
                   store);

#pragma unroll
    for (int i = 0; i < Tile::TM; i++) {
        const int m = m0 + tile.row_of(i);
        if (m >= k.positions) continue;
        const int64_t row = result_row(p, k, m);
#pragma unroll
        for (int j = 0; j < Tile::TN; j += Tile::QUAD)
            put_quad(p, row, group, n0 + tile.column_of(j), &tile.acc[i][j]);
    }
}

template <class Tile>
bool launch_simt(const ConvProblem *r, IgemmParams *p, int classes,
                 int positions)
{
    p->tiles = (int)ceil_div(p->gemm_n, Tile::BN);
    dim3 launch_grid((unsigned)ceil_div(positions, Tile::BM),
                     (unsigned)(p->tiles * r->win.groups), (unsigned)classes);
    cudaStream_t stream = gpu_stream(r->c->dev);
    bool vec = p->k_channels % 4 == 0 && (!p->dgrad || p->gemm_n % 4 == 0);

    if (p->dgrad && vec)
        LAUNCH((igemm_f32_kernel<Tile, true, true>), launch_grid, Tile::THREADS,
               0, stream, *p);
    else if (p->dgrad)
        LAUNCH((igemm_f32_kernel<Tile, true, false>), launch_grid,
               Tile::THREADS, 0, stream, *p);
    else if (vec)
        LAUNCH((igemm_f32_kernel<Tile, false, true>), launch_grid,
               Tile::THREADS, 0, stream, *p);
    else
        LAUNCH((igemm_f32_kernel<Tile, false, false>), launch_grid,
               Tile::THREADS, 0, stream, *p);
    return gpu_launched(p->dgrad ? "igemm_f32 dgrad" : "igemm_f32 fprop");
}

} // namespace

bool igemm_f32(const ConvProblem *r, IgemmParams *p, int classes, int positions)
{
    if (p->gemm_n <= 16)
        return launch_simt<SimtTile<128, 16, 4>>(r, p, classes, positions);
    if (p->gemm_n <= 32)
        return launch_simt<SimtTile<256, 32, 8>>(r, p, classes, positions);
    return launch_simt<SimtTile<128, 64, 8>>(r, p, classes, positions);
}
