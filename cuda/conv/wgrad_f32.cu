/* wgrad_f32.cu -- wgrad in f32 on the FMA units; see wgrad.cuh for the product,
 * simt_tile.cuh for its main loop.
 *
 * Both operands are contiguous along the channels, the rows and columns of the
 * product: lines of 16 bytes go to shared memory as they are. A thread loads
 * the same lines of each chunk, for one position, which advances by SIMT_BK;
 * along a line of the image the addresses advance by a constant, and only a new
 * line of the image needs divisions.
 *
 * Bound by arithmetic from 32 channels on. The narrow tile is for first layers:
 * at most 16 (tap, channel). */
#include "cuda/conv/simt_tile.cuh"
#include "cuda/conv/wgrad.cuh"

namespace {

typedef Line<float> Line4; // of four channels

/* Which lines of a chunk a thread loads from rows of WIDE elements: those at
 * element at(i) of position row(), i < COUNT. */
template <class Tile, int WIDE> struct Lines {
    enum {
        ACROSS = Tile::THREADS / SIMT_BK, // threads of a position
        COUNT = WIDE / Line4::COUNT / ACROSS,
    };
    static_assert(COUNT * ACROSS * Line4::COUNT == WIDE, "whole lines");

    static __device__ __forceinline__ int row()
    {
        return (int)threadIdx.x / ACROSS;
    }
    static __device__ __forceinline__ int at(int i)
    {
        return ((int)threadIdx.x % ACROSS + i * ACROSS) * Line4::COUNT;
    }
    static __device__ __forceinline__ void store(float (&to)[SIMT_BK][WIDE],
                                                 const Line4 (&v)[COUNT])
    {
#pragma unroll
        for (int i = 0; i < COUNT; i++) *(Line4 *)&to[row()][at(i)] = v[i];
    }
};

/* The lines of `output`. VEC: each is one load. */
template <class Tile, bool VEC> struct OutputLines : Lines<Tile, Tile::BM> {
    typedef Lines<Tile, Tile::BM> L;
    Line4 v[L::COUNT];
    const float *from; // of the next position
    int channels;      // of the group, from the tile on

    __device__ __forceinline__ OutputLines(const WgradParams &p,
                                           const WgradTile &s)
    {
        from = (const float *)p.output +
               (int64_t)(s.from + L::row()) * p.output_c + s.group * p.cout +
               s.m0;
        channels = p.cout - s.m0;
    }

    /* inside: the position is in the part. */
    __device__ __forceinline__ void fetch(const WgradParams &p, bool inside)
    {
#pragma unroll
        for (int i = 0; i < L::COUNT; i++) {
            v[i] = {};
            if constexpr (VEC) {
                if (inside & (L::at(i) < channels))
                    v[i] = *(const Line4 *)(from + L::at(i));
            } else {
#pragma unroll
                for (int j = 0; j < Line4::COUNT; j++)
                    if (inside && L::at(i) + j < channels)
                        v[i].v[j] = from[L::at(i) + j];
            }
        }
        from += (int64_t)SIMT_BK * p.output_c;
    }
};

/* The lines of `input`. VEC: each is one load, from one tap. */
template <class Tile, bool VEC> struct InputLines : Lines<Tile, Tile::BN> {
    typedef Lines<Tile, Tile::BN> L;
    Line4 v[L::COUNT];
    const float *from[L::COUNT]; // of the next position, perhaps outside
    int w[L::COUNT];             // its position along w
    unsigned inside = 0;         // bit i: line i is inside along d and h
    int left = 0;                // positions of this line of the image

    /* Goes to output position m. */
    __device__ __forceinline__ void seek(const WgradParams &p,
                                         const WgradTile &s,
                                         const Column *columns, int m)
    {
        uint32_t rest = (uint32_t)m;
        int q[3];
        for (int a = 2; a >= 0; a--) q[a] = (int)split(&rest, p.axis[a]);
        left = (int)p.axis[2].by - q[2];
        inside = 0;
#pragma unroll
        for (int i = 0; i < L::COUNT; i++) {
            const Column c = columns[L::at(i)];
            const int d = q[0] * p.win.s[0] + c.off[0];
            const int h = q[1] * p.win.s[1] + c.off[1];
            w[i] = q[2] * p.win.s[2] + c.off[2];
            if (d >= 0 && d < p.size.d && h >= 0 && h < p.size.h)
                inside |= 1u << i;
            const int64_t row =
                (((int64_t)rest * p.size.d + d) * p.size.h + h) * p.size.w +
                w[i];
            from[i] = (const float *)p.input + row * p.size.c +
                      s.group * p.cin + c.channel;
        }
    }

    /* The lines of output position m, which advances by SIMT_BK. */
    __device__ __forceinline__ void fetch(const WgradParams &p,
                                          const WgradTile &s,
                                          const Column *columns, int m)
    {
        if constexpr (VEC) {
            if (left <= 0) seek(p, s, columns, m);
            left -= SIMT_BK;
            const int step = SIMT_BK * p.win.s[2];
#pragma unroll
            for (int i = 0; i < L::COUNT; i++) {
                v[i] = {};
                const bool along_w = (unsigned)w[i] < (unsigned)p.size.w;
                if ((m < s.to) & (inside >> i & 1) & along_w)
                    v[i] = *(const Line4 *)from[i];
                w[i] += step;
                from[i] += (int64_t)step * p.size.c;
            }
        } else {
#pragma unroll
            for (int i = 0; i < L::COUNT; i++)
#pragma unroll
                for (int j = 0; j < Line4::COUNT; j++) {
                    const float *x =
                        input_at<float>(p, m, columns[L::at(i) + j], s.group);
                    v[i].v[j] = m < s.to && x ? *x : 0;
                }
        }
    }
};

/* One tile of w of one group, from one part of the positions. OUTPUT, INPUT:
 * each line of that side is one load. */
template <class Tile, bool OUTPUT, bool INPUT>
__global__ void __launch_bounds__(Tile::THREADS, Tile::BLOCKS)
    wgrad_f32_kernel(const __grid_constant__ WgradParams p)
{
    enum { BM = Tile::BM, BN = Tile::BN };
    SMEM(float, output, [2][SIMT_BK][BM]);
    SMEM(float, input, [2][SIMT_BK][BN]);
    SMEM(Column, columns, [BN]);
    const WgradTile s = wgrad_tile_of<BM, BN>(p);
    for (int i = (int)threadIdx.x; i < BN; i += Tile::THREADS)
        columns[i] = column_of(p, s.n0 + i);
    __syncthreads();

    Tile tile;
    OutputLines<Tile, OUTPUT> g(p, s);
    InputLines<Tile, INPUT> x;
    int m = s.from + x.row();
    auto fetch = [&] {
        g.fetch(p, m < s.to);
        x.fetch(p, s, columns, m);
        m += SIMT_BK;
    };
    auto store = [&](int b) {
        g.store(output[b], g.v);
        x.store(input[b], x.v);
    };
    tile.main_loop((s.to - s.from + SIMT_BK - 1) / SIMT_BK, output, input,
                   fetch, store);

    double own = 0;
#pragma unroll
    for (int i = 0; i < Tile::TM; i++)
#pragma unroll
        for (int j = 0; j < Tile::TN; j++)
            own += store_wgrad<BM, BN>(p, s, tile.row_of(i), tile.column_of(j),
                                       tile.acc[i][j]);
    finish_wgrad<BM, BN>(p, own);
}

template <class Tile>
bool launch(const ConvProblem *r, const WgradParams *p, dim3 blocks)
{
    cudaStream_t stream = gpu_stream(r->c->dev);
    const bool output = r->cout % Line4::COUNT == 0;

    if (output && r->cin % Line4::COUNT == 0)
        LAUNCH((wgrad_f32_kernel<Tile, true, true>), blocks, Tile::THREADS, 0,
               stream, *p);
    else if (output)
        LAUNCH((wgrad_f32_kernel<Tile, true, false>), blocks, Tile::THREADS, 0,
               stream, *p);
    else if (r->cin % Line4::COUNT == 0)
        LAUNCH((wgrad_f32_kernel<Tile, false, true>), blocks, Tile::THREADS, 0,
               stream, *p);
    else
        LAUNCH((wgrad_f32_kernel<Tile, false, false>), blocks, Tile::THREADS, 0,
               stream, *p);
    return gpu_launched("wgrad_f32");
}

typedef SimtTile<64, 16, 4> Narrow;
typedef SimtTile<32, 128, 8> Flat;
typedef SimtTile<64, 128, 8> Wide;

template <class Tile> WgradTileSize size_of()
{
    // 12 warps on each of 170 multiprocessors, twice: the last blocks to run
    // leave little of a GPU idle
    enum { THREADS = 1 << 17 };
    return {Tile::BM, Tile::BN, THREADS / Tile::THREADS};
}

} // namespace

WgradTileSize wgrad_f32_tile(const ConvProblem *r)
{
    if (conv_taps(r) * r->cin <= Narrow::BN) return size_of<Narrow>();
    return r->cout <= Flat::BM ? size_of<Flat>() : size_of<Wide>();
}

bool wgrad_f32(const ConvProblem *r, const WgradParams *p, dim3 blocks)
{
    const WgradTileSize tile = wgrad_f32_tile(r);
    if (tile.n == Narrow::BN) return launch<Narrow>(r, p, blocks);
    return tile.m == Flat::BM ? launch<Flat>(r, p, blocks)
                              : launch<Wide>(r, p, blocks);
}
