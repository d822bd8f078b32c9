/* igemm_tile_load.cuh -- igemm_tile: source and filter from global to shared
 * memory, and the norms that are applied to a halo.
 *
 * All copies are cp.async of 16 bytes (a line), with zeros outside of the
 * source and past its channels. The place of a line in its row is swizzled by
 * the row number, so the eight rows of an ldmatrix are in different banks: rows
 * of 64 bytes lie two to 128 bytes, wider rows have 128 bytes of their own.
 *
 * At its start a block makes two tables, so that no step divides: for each row
 * of each tap group's halo its row of the source, and for each tap its shift in
 * the halo and its number in the filter. */
#ifndef SEG_CUDA_CONV_IGEMM_TILE_LOAD_H
#define SEG_CUDA_CONV_IGEMM_TILE_LOAD_H
#include "cuda/conv/igemm_tile.cuh"

namespace {

/* The offset in bytes of a line in rows of LINES lines. */
template <int LINES>
__device__ __forceinline__ int tile_place(int row, int line)
{
    const int swizzle = LINES == TILE_LINES ? row >> 1 & 3 : row & 7;
    return (row * LINES + (line ^ swizzle)) * TILE_LINE;
}

/* An entry of the tap table: the shift in rows of the halo and the number of
 * the tap in the filter. Bit FIRST of `number`: the first tap of its group. */
struct TapEntry {
    uint16_t move, number;
    static constexpr int FIRST = 1 << 15;
};
static_assert(sizeof(TapEntry) == 4, "one word of shared memory");

/* The coordinates of a block. */
struct BlockCoord {
    int64_t group;       // group of channels
    int n0, part;        // first channel in the group; slice of split-K
    int sample, from[3]; // of the box's first position
};

template <bool DGRAD>
using TileClassOf = IgemmClass<IgemmTileParams<DGRAD>::GROUPS>;

template <int BN, bool DGRAD>
__device__ __forceinline__ BlockCoord
block_coord(const IgemmTileParams<DGRAD> &p, const TileClassOf<DGRAD> &k)
{
    BlockCoord s;
    uint32_t rest = blockIdx.x;
    for (int i = 2; i >= 0; i--)
        s.from[i] = (int)split(&rest, k.boxes[i]) << p.box[i];
    s.sample = (int)rest * p.samples;
    s.group = blockIdx.y / p.tiles;
    s.n0 = (int)(blockIdx.y % p.tiles) * BN;
    s.part = p.part_stride ? (int)blockIdx.z % p.k_slices : 0;
    return s;
}

/* The tap groups of the three axes for tap group g of the class. */
template <int GROUPS>
__device__ __forceinline__ void axis_groups(const IgemmClass<GROUPS> &k, int g,
                                            int (&of)[3])
{
    for (int i = 2; i >= 0; i--) {
        of[i] = g % k.axis[i].groups;
        g /= k.axis[i].groups;
    }
}

/* Fills the table rows[tap group][halo row] with rows of the source; -1 outside
 * of it and where no tap reads. With norm backward on load, bit TILE_OWN marks
 * the rows that this block stores: its own rows, if it computes the first
 * channels of the first class. */
template <bool DGRAD>
__device__ __forceinline__ void row_table(const IgemmTileParams<DGRAD> &p,
                                          const TileClassOf<DGRAD> &k,
                                          const BlockCoord &s, int *rows)
{
    const bool stores = p.norm_bwd.table && s.n0 == 0 && &k == p.cls;
    for (int i = (int)threadIdx.x; i < k.groups * p.rows;
         i += (int)blockDim.x) {
        int of[3];
        axis_groups(k, i / p.rows, of);
        uint32_t rest = (uint32_t)(i % p.rows);
        int at[3];
        for (int a = 2; a >= 0; a--) at[a] = (int)split(&rest, p.halo[a]);
        int row = s.sample + (int)rest;
        bool inside = row < p.extent.n, own = stores;
        for (int a = 0; a < 3; a++) {
            const auto &x = k.axis[a];
            const IgemmTaps &t = x.group[of[a]];
            const int q = (s.from[a] + at[a]) * x.step + t.origin;
            inside = inside && q >= 0 && q < x.size &&
                     at[a] < (1 << p.box[a]) + t.reach;
            own = own && at[a] >= t.own && at[a] < t.own + (1 << p.box[a]);
            row = row * x.size + q;
        }
        rows[i] = inside ? row | (own ? TILE_OWN : 0) : -1;
    }
}

/* Fills the table of taps in the order of the steps: tap group by tap group. */
template <bool DGRAD>
__device__ __forceinline__ void tap_table(const IgemmTileParams<DGRAD> &p,
                                          const TileClassOf<DGRAD> &k,
                                          TapEntry *taps)
{
    for (int i = (int)threadIdx.x; i < k.taps; i += (int)blockDim.x) {
        int of[3], rest = i, count[3];
        for (int g = 0;; g++) {
            axis_groups(k, g, of);
            for (int a = 0; a < 3; a++) count[a] = k.axis[a].group[of[a]].count;
            const int all = count[0] * count[1] * count[2];
            if (rest < all) break;
            rest -= all;
        }
        const bool first = rest == 0;
        const int t[3] = {rest / count[2] / count[1],
                          rest / count[2] % count[1], rest % count[2]};
        int move = 0, number = 0;
        for (int a = 0; a < 3; a++) {
            const IgemmTaps &x = k.axis[a].group[of[a]];
            move = move * (int)p.halo[a].by + x.at + t[a] * x.step;
            number = number * p.taps[a] + x.first + t[a] * x.every;
        }
        taps[i] = {(uint16_t)move,
                   (uint16_t)(number | (first ? TapEntry::FIRST : 0))};
    }
}

/* Issues the copies of a halo, for the chunk that begins at `channel` of the
 * group. `source` is the group's first channel in row 0 of the first tensor; a
 * chunk is in one tensor. */
template <class T, int THREADS, bool DGRAD>
__device__ __forceinline__ void fill_halo(const IgemmTileParams<DGRAD> &p,
                                          const int *rows, const T *source,
                                          int channel, unsigned char *to)
{
    enum { STEP = THREADS / TILE_LINES };
    const int line = (int)threadIdx.x % TILE_LINES;
    int pitch = p.pitch[0], k_channels = p.k_channels;
    if (channel >= p.border) {
        source = (const T *)p.second.data, pitch = p.pitch[1];
        channel -= p.border, k_channels -= p.border;
    }
    channel += line * Line<T>::COUNT;
    const bool wanted = channel < k_channels;
    source += wanted ? channel : 0;
    int r = (int)threadIdx.x / TILE_LINES;

    // STEP is a multiple of 8: the swizzle of a line stays the same
    to += tile_place<TILE_LINES>(r, line);

    if (p.norm_bwd.table) {
        // dz and, in the second layer of halos, the norm's x
        const int64_t x_offset = (const T *)p.norm_bwd.x - (const T *)p.source;
        for (; r < p.rows; r += STEP, to += STEP * TILE_ROW) {
            const bool valid = wanted && rows[r] >= 0;
            const int row = valid ? rows[r] & (TILE_OWN - 1) : 0;
            const T *from = source + (int64_t)row * pitch;
            cp_async16(to, from, valid);
            cp_async16(to + p.buffers * p.rows * TILE_ROW, from + x_offset,
                       valid);
        }
        return;
    }

    for (; r < p.rows; r += STEP, to += STEP * TILE_ROW) {
        const int row = rows[r];
        const bool valid = wanted && row >= 0;
        cp_async16(to, source + (int64_t)(valid ? row : 0) * pitch, valid);
    }
}

/* Applies the deferred norm to a halo: each thread to the lines that it copied,
 * once they have arrived. Rows outside of the source stay zero, as padding
 * comes after the norm. */
template <Dtype D, int THREADS, bool DGRAD>
__device__ __forceinline__ void norm_halo(const IgemmTileParams<DGRAD> &p,
                                          const int *rows, int64_t channel,
                                          int k_channels, unsigned char *at)
{
    NormOnLoad norm_on_load = p.norm_on_load;
    if (channel >= p.border)
        norm_on_load = p.second.norm_on_load, channel -= p.border;
    if (!norm_on_load.table) return;
    enum { STEP = THREADS / TILE_LINES, COUNT = TILE_CHANNELS, HALF = 4 };
    const int line = (int)threadIdx.x % TILE_LINES;
    if (line * COUNT >= k_channels) return; // past the channels: zeros
    int r = (int)threadIdx.x / TILE_LINES;
    at += tile_place<TILE_LINES>(r, line);

    // half a line at a time, to save registers
#pragma unroll 1
    for (int half = 0; half < 2; half++, at += HALF * sizeof(Element<D>)) {
        float2 by[HALF];
#pragma unroll
        for (int i = 0; i < HALF; i++)
            by[i] =
                norm_on_load.table[channel + line * COUNT + half * HALF + i];
        unsigned char *to = at;
        for (int q = r; q < p.rows; q += STEP, to += STEP * TILE_ROW) {
            if (rows[q] < 0) continue;
            auto v = load<HALF, D>((const Element<D> *)to);
#pragma unroll
            for (int i = 0; i < HALF; i++)
                v.v[i] = norm_act_one<D>(norm_on_load.act, by[i], v.v[i]);
            store_vec<HALF, D>((Element<D> *)to, v, true);
        }
    }
}

/* Applies norm backward to a halo of gradients in the same way, and stores the
 * block's own rows. `channel` counts the channels of all groups. */
template <Dtype D, int THREADS, bool DGRAD>
__device__ __forceinline__ void norm_bwd_halo(const IgemmTileParams<DGRAD> &p,
                                              const int *rows, int64_t channel,
                                              int k_channels, unsigned char *at)
{
    enum { STEP = THREADS / TILE_LINES, COUNT = TILE_CHANNELS, PAIR = 2 };
    const int line = (int)threadIdx.x % TILE_LINES;
    const int x_offset = p.buffers * p.rows * TILE_ROW;
    if (line * COUNT >= k_channels) return; // past the channels: zeros
    channel += line * COUNT;
    int r = (int)threadIdx.x / TILE_LINES;
    at += tile_place<TILE_LINES>(r, line);
#pragma unroll 1
    for (int c = 0; c < COUNT; c += PAIR) {
        float4 by[PAIR];
#pragma unroll
        for (int i = 0; i < PAIR; i++)
            by[i] = p.norm_bwd.table[channel + c + i];
        unsigned char *to = at + c * sizeof(Element<D>);
        for (int q = r; q < p.rows; q += STEP, to += STEP * TILE_ROW) {
            if (rows[q] < 0) continue;
            auto v = load<PAIR, D>((const Element<D> *)to);
            const auto x = load<PAIR, D>((const Element<D> *)(to + x_offset));
#pragma unroll
            for (int i = 0; i < PAIR; i++)
                v.v[i] =
                    norm_bwd_loaded<D>(by[i], p.norm_bwd.leak, x.v[i], v.v[i]);
            store_vec<PAIR, D>((Element<D> *)to, v, true);
        }
    }

    Element<D> *to = (Element<D> *)p.norm_bwd.to + channel;
#pragma unroll 1
    for (; r < p.rows; r += STEP, at += STEP * TILE_ROW) {
        const int row = rows[r];
        if (row >= 0 && row & TILE_OWN)
            *(Line<Element<D>> *)(to + (int64_t)(row & (TILE_OWN - 1)) *
                                           p.pitch[0]) =
                *(const Line<Element<D>> *)at;
    }
}

/* The copies of a thread for a filter tile of one tap and chunk. w is (output
 * channels, taps, cin). The tile of fprop has BN rows that run along the
 * channels of the chunk; the tile of dgrad has the chunk's channels as rows
 * that run along BN. */
template <class T, int BN, int THREADS, bool DGRAD> struct FilterLoad {
    enum {
        COUNT = Line<T>::COUNT,
        CHUNK = TILE_ROW / sizeof(T),
        LINES = DGRAD ? BN / COUNT : TILE_LINES, // of a row
        ROWS = DGRAD ? CHUNK : BN,
        STEP = THREADS / LINES, // rows that the block copies at a time
        BYTES = BN * TILE_ROW,
    };
    static_assert(THREADS % LINES == 0 && ROWS % STEP == 0, "all copy alike");
    const T *at;        // the thread's first line, for tap 0 and chunk 0
    int64_t row, chunk; // elements to the next row, the next chunk
    int n, k;           // first column, first channel of the chunk

    __device__ __forceinline__ FilterLoad(const IgemmTileParams<DGRAD> &p,
                                          const BlockCoord &s)
    {
        const int line = (int)threadIdx.x % LINES;
        const int64_t taps = p.taps[0] * p.taps[1] * p.taps[2];
        k = DGRAD ? (int)threadIdx.x / LINES : line * COUNT;
        n = s.n0 + (DGRAD ? line * COUNT : (int)threadIdx.x / LINES);
        row = taps * (DGRAD ? p.gemm_n : p.k_channels);
        chunk = CHUNK * (DGRAD ? row : 1);
        at = (const T *)p.w + (DGRAD ? (s.group * p.k_channels + k) * row + n
                                     : (s.group * p.gemm_n + n) * row + k);
        row *= STEP;
    }

    /* Issues the copies for a tap and chunk. */
    __device__ __forceinline__ void fill(const IgemmTileParams<DGRAD> &p,
                                         int tap, int c,
                                         unsigned char *to) const
    {
        const T *from =
            at + c * chunk + tap * (DGRAD ? p.gemm_n : p.k_channels);
        // here, too, the swizzle stays the same
        to += tile_place<LINES>((int)threadIdx.x / LINES,
                                (int)threadIdx.x % LINES);
#pragma unroll
        for (int i = 0; i < ROWS / STEP; i++) {
            const int rows = i * STEP;
            const bool valid =
                (DGRAD ? n : n + rows) < p.gemm_n &&
                c * CHUNK + (DGRAD ? k + rows : k) < p.k_channels;
            cp_async16(to + rows * LINES * TILE_LINE,
                       valid ? from + i * row : (const T *)p.w, valid);
        }
    }
};

} // namespace
#endif
