/* wgrad_tile_kernel.cuh -- the kernel of wgrad_tile.cuh.
 *
 * Eight warps: two along the 64 filters, up to four along the channels of
 * `input`; for 16 or 8 channels two or four warps share the positions of a box
 * (wgrad_tile_k_warps). A warp has 32 filters by 8 (of 64: 16) channels of
 * every tap of the set. Boxes go
 * through a ring of two or three stages in shared memory, filled by cp.async,
 * with one barrier a box. A stage has the rows of `output` (64 filters a
 * position), with norm backward on load the same rows of the norm's x, and the
 * halos of `input`.
 *
 * In 16 bits both operands of a product come by ldmatrix.trans, as a row of
 * shared memory is one element of k, the position. ldmatrix cannot transpose
 * 32-bit elements, so tf32 loads them one by one. The place of a 16-byte line
 * in its row is swizzled by the row number: eight rows of an ldmatrix, and the
 * four rows by eight columns of a tf32 load, are in different banks wherever
 * they begin.
 *
 * Counted for 3x3 in 16 bits: a warp reads 185 bytes of shared memory for each
 * mma. From L2 a box of 8x16 loads 28 KB for 4.7 MFLOP, 169 FLOP a byte.
 *
 * An accumulator adds one product of 16 (tf32: 8) positions an mma; a part has
 * at most CHAIN of them, and the fold adds parts in double. */
#ifndef SEG_CUDA_CONV_WGRAD_TILE_KERNEL_H
#define SEG_CUDA_CONV_WGRAD_TILE_KERNEL_H
#include "cuda/conv/wgrad_tile.cuh"
#include "cuda/lib/grad_sqnorm.cuh"
#include "cuda/lib/precision_traits.cuh"

namespace {

/* The place of a 16-byte line in shared memory: `at` is the offset of the line
 * in rows of LINES lines of T that begin at a multiple of 1024 bytes. */
template <class T, int LINES>
__device__ __forceinline__ uint32_t wgrad_place(uint32_t at)
{
    enum {
        ROW = LINES * WGRAD_TILE_LINE,
        UNIT = sizeof(T) == 4 ? 2 : 1, // lines that change places together
        PLACES = LINES / UNIT < 8 / UNIT ? LINES / UNIT : 8 / UNIT,
    };
    const uint32_t row = at / (ROW < 128 ? 128 : ROW) % PLACES;
    return at ^ row * (UNIT * WGRAD_TILE_LINE);
}

__device__ __forceinline__ uint32_t wgrad_lane()
{
    return threadIdx.x % WARP;
}

/* How a warp loads the operands of 16 positions, one or two products along k.
 * The tile of `output` has A_LINES lines a row. */
template <Precision P> struct WgradFragments {
    typedef uint16_t T;
    enum { PRODUCTS = 1, BASES = 1, A_LINES = WGRAD_TILE_FILTERS / 8 };

    /* The halo rows that this lane reads for the positions from q on; base: the
     * halo row of each position of a box. */
    static __device__ __forceinline__ void rows(const uint16_t *base,
                                                uint32_t q,
                                                uint32_t (&row)[BASES])
    {
        row[0] = base[q + wgrad_lane() % 16];
    }

    /* The 32 filters from line `line` on; at: the offset of the first row. */
    static __device__ __forceinline__ void load_a(const unsigned char *shared,
                                                  uint32_t at, uint32_t line,
                                                  uint32_t (&a)[PRODUCTS][2][4])
    {
        const uint32_t l = wgrad_lane();
        const uint32_t own = wgrad_place<T, A_LINES>(
            ((l % 8 + l / 16 * 8) * A_LINES + line + l / 8 % 2) *
            WGRAD_TILE_LINE);
#pragma unroll
        for (uint32_t m = 0; m < 2; m++) // two lines on: bit 1 of the line
            ldmatrix_x4_trans(a[0][m],
                              shared + at + (own ^ m * 2 * WGRAD_TILE_LINE));
    }

    /* 8 channels of a tap. at: the offset of their line in the first row of the
     * halo, shifted by the tap. */
    template <int LINES>
    static __device__ __forceinline__ void load_b(const unsigned char *shared,
                                                  uint32_t at,
                                                  const uint32_t (&row)[BASES],
                                                  uint32_t (&b)[PRODUCTS][2])
    {
        ldmatrix_x2_trans(b[0],
                          shared + wgrad_place<T, LINES>(
                                       at + row[0] * LINES * WGRAD_TILE_LINE));
    }
};

template <> struct WgradFragments<PRECISION_tf32> {
    typedef float T;
    enum { PRODUCTS = 2, BASES = 4, A_LINES = WGRAD_TILE_FILTERS / 4 };

    static __device__ __forceinline__ void rows(const uint16_t *base,
                                                uint32_t q,
                                                uint32_t (&row)[BASES])
    {
#pragma unroll
        for (uint32_t i = 0; i < BASES; i++)
            row[i] = base[q + wgrad_lane() % 4 + i * 4];
    }

    /* Lane l reads column l / 4 of 8: a quarter of line l / 16 of 2. */
    static __device__ __forceinline__ uint32_t
    element(const unsigned char *line)
    {
        return to_tf32(((const float *)line)[wgrad_lane() / 4 % 4]);
    }

    static __device__ __forceinline__ void load_a(const unsigned char *shared,
                                                  uint32_t at, uint32_t line,
                                                  uint32_t (&a)[PRODUCTS][2][4])
    {
        enum { ROW = A_LINES * WGRAD_TILE_LINE };
        const uint32_t l = wgrad_lane();
        const uint32_t own = wgrad_place<T, A_LINES>(
            l % 4 * ROW + (line + l / 16) * WGRAD_TILE_LINE);
#pragma unroll
        for (uint32_t i = 0; i < 16; i++) // bits 1 and 2 of the line
            a[i / 8][i / 4 % 2][i % 4] =
                element(shared + at + (i / 8 * 8 + i % 4 / 2 * 4) * ROW +
                        (own ^ (i / 4 % 2 * 4 + i % 2 * 2) * WGRAD_TILE_LINE));
    }

    template <int LINES>
    static __device__ __forceinline__ void load_b(const unsigned char *shared,
                                                  uint32_t at,
                                                  const uint32_t (&row)[BASES],
                                                  uint32_t (&b)[PRODUCTS][2])
    {
#pragma unroll
        for (uint32_t i = 0; i < BASES; i++)
            b[i / 2][i % 2] =
                element(shared + wgrad_place<T, LINES>(
                                     at + (row[i] * LINES + wgrad_lane() / 16) *
                                              WGRAD_TILE_LINE));
    }
};

/* A line of an operand: 16 bytes of neighbouring channels in each row. */
template <class T> struct alignas(16) WgradLine {
    const T *at; // the line in row 0 of its tensor
    int pitch;   // channels of a row of the tensor
    int channel; // of the line, in its tensor, with SECOND for the second
                 // tensor of an implicit concat; < 0: past the group's channels
    static constexpr int SECOND = 1 << 30;
};

/* The lines of an operand. A thread copies one line of every STEP-th row. They
 * are in shared memory, as the main loop has no registers for them. */
template <class T, int COUNT> struct WgradLines {
    enum {
        STEP = WGRAD_TILE_THREADS / COUNT,
        EVERY = WGRAD_TILE_THREADS * WGRAD_TILE_LINE, // bytes between its rows
    };
    WgradLine<T> lines[COUNT];

    static __device__ __forceinline__ int line()
    {
        return (int)(threadIdx.x % COUNT);
    }

    static __device__ __forceinline__ int first_row()
    {
        return (int)(threadIdx.x / COUNT);
    }

    /* The offset of this thread's line in its first row. STEP is a multiple of
     * 8, so the swizzle is the same in all its rows. */
    static __device__ __forceinline__ uint32_t place()
    {
        return wgrad_place<T, COUNT>(threadIdx.x * WGRAD_TILE_LINE);
    }

    /* c: the block's first channel in the group. */
    __device__ __forceinline__ void begin(const Source &s, int all_c,
                                          int group_c, int group, int c)
    {
        if ((int)threadIdx.x >= COUNT) return;
        c += line() * Line<T>::COUNT;
        const bool inside = c < group_c;
        c += group * group_c;
        const int border = s.border ? s.border : all_c;
        const bool second = inside && c >= border;
        if (second) c -= border;
        lines[line()] = {(const T *)(second ? s.second.data : s.first.data) +
                             (inside ? c : 0),
                         second ? all_c - border : border,
                         inside ? c | (second ? WgradLine<T>::SECOND : 0) : -1};
    }

    /* Issues the copies of `count` rows, `offset` elements on; table: their
     * rows in memory, -1 for zeros. */
    __device__ __forceinline__ void copy(int64_t offset, const int *table,
                                         int count, unsigned char *to) const
    {
        const WgradLine<T> own = lines[line()];
        const T *from = own.at + offset;
        to += place();
#pragma unroll 2
        for (int r = first_row(); r < count; r += STEP, to += EVERY) {
            const bool valid = own.channel >= 0 && table[r] >= 0;
            cp_async16(to, from + (int64_t)(valid ? table[r] : 0) * own.pitch,
                       valid);
        }
    }

    /* Applies the deferred norm to the lines that this thread copied. Rows
     * outside of the tensor stay zero. */
    template <Dtype D>
    __device__ __forceinline__ void norm(const Source &s, const int *table,
                                         int count, unsigned char *at) const
    {
        enum { HALF = 4 };
        if (!s.first.norm_on_load.table && !s.second.norm_on_load.table) return;
        int channel = lines[line()].channel;
        if (channel < 0) return;
        const NormOnLoad norm = channel & WgradLine<T>::SECOND
                                    ? s.second.norm_on_load
                                    : s.first.norm_on_load;
        if (!norm.table) return;
        channel &= WgradLine<T>::SECOND - 1;
        // half a line at a time, to save registers
#pragma unroll 1
        for (int half = 0; half < 2; half++) {
            float2 by[HALF];
#pragma unroll
            for (int i = 0; i < HALF; i++)
                by[i] = norm.table[channel + half * HALF + i];
            unsigned char *line_at = at + place() + half * HALF * sizeof(T);
#pragma unroll 1
            for (int r = first_row(); r < count; r += STEP, line_at += EVERY) {
                if (table[r] < 0) continue;
                T *to = (T *)line_at;
                auto v = load<HALF, D>(to);
#pragma unroll
                for (int i = 0; i < HALF; i++)
                    v.v[i] = norm_act_one<D>(norm.act, by[i], v.v[i]);
                store_vec<HALF, D>(to, v, true);
            }
        }
    }

    /* Applies norm backward in the same way; the lines of the norm's operand
     * are x bytes on. */
    template <Dtype D>
    __device__ __forceinline__ void norm_bwd(const NormBwd &s, const int *table,
                                             int count, unsigned char *at,
                                             int x) const
    {
        enum { PAIR = 2 };
        const int channel = lines[line()].channel;
        if (channel < 0) return;
#pragma unroll 1
        for (int c = 0; c < Line<T>::COUNT; c += PAIR) {
            float4 by[PAIR];
#pragma unroll
            for (int i = 0; i < PAIR; i++) by[i] = s.table[channel + c + i];
            unsigned char *line_at = at + place() + c * sizeof(T);
#pragma unroll 1
            for (int r = first_row(); r < count; r += STEP, line_at += EVERY) {
                if (table[r] < 0) continue;
                T *to = (T *)line_at;
                auto v = load<PAIR, D>(to);
                const auto norm_x = load<PAIR, D>((const T *)(line_at + x));
#pragma unroll
                for (int i = 0; i < PAIR; i++)
                    v.v[i] =
                        norm_bwd_loaded<D>(by[i], s.leak, norm_x.v[i], v.v[i]);
                store_vec<PAIR, D>(to, v, true);
            }
        }
    }
};

/* Fills the table of a box: for each of its positions the row of `output`, and
 * for each row of its halos the row of `input`; -1 outside. */
__device__ __forceinline__ void wgrad_table(const WgradTileParams &p,
                                            const TapSet &set, int box,
                                            int *table)
{
    int from[3];
    uint32_t rest = (uint32_t)box;
    for (int a = 2; a >= 0; a--)
        from[a] = (int)split(&rest, p.boxes[a]) << p.box[a];
    const int sample = (int)rest << p.log_samples;
    const int count = p.positions + set.groups * p.halo_rows;

#pragma unroll 1
    for (int i = (int)threadIdx.x; i < count; i += WGRAD_TILE_THREADS) {
        const bool own = i < p.positions;
        rest = (uint32_t)(own ? i : i - p.positions);
        int at[3];
        for (int a = 2; a >= 0; a--) {
            if (own) {
                at[a] = (int)rest & ((1 << p.box[a]) - 1);
                rest >>= p.box[a];
            } else {
                at[a] = (int)split(&rest, p.halo[a]);
            }
        }

        const int group = (int)rest >> p.log_samples;
        int row = sample + ((int)rest & ((1 << p.log_samples) - 1));
        bool inside = row < p.samples;
        for (int a = 0; a < 3; a++) {
            const int size = own ? p.count[a] : p.size[a];
            const int q =
                own ? from[a] + at[a]
                    : (from[a] + at[a]) * p.step[a] + set.origin[group][a];
            inside = inside && q >= 0 && q < size;
            row = row * size + q;
        }
        table[i] = inside ? row : -1;
    }
}

/* Fills base[position of a box] with its row in the halo of the first group. */
__device__ __forceinline__ void wgrad_bases(const WgradTileParams &p,
                                            uint16_t *base)
{
    for (int i = (int)threadIdx.x; i < p.positions; i += WGRAD_TILE_THREADS) {
        int rest = i, at[3];
        for (int a = 2; a >= 0; a--) {
            at[a] = rest & ((1 << p.box[a]) - 1);
            rest >>= p.box[a];
        }
        for (int a = 0; a < 3; a++) rest = rest * (int)p.halo[a].by + at[a];
        base[i] = (uint16_t)rest;
    }
}

/* The coordinates of a block. */
struct WgradCoord {
    int m0, n0, group, set; // first filter and channel in the group
    int from, boxes;        // of the block's part
};

template <int CHANNELS>
__device__ __forceinline__ WgradCoord wgrad_coord(const WgradTileParams &p)
{
    WgradCoord s;
    uint32_t rest = blockIdx.x;
    s.m0 = (int)split(&rest, p.m_tiles) * WGRAD_TILE_FILTERS;
    s.n0 = (int)split(&rest, p.n_tiles) * CHANNELS;
    s.group = (int)split(&rest, p.groups);
    s.set = (int)rest;
    const int64_t boxes = p.all_boxes;
    s.from = (int)(boxes * blockIdx.y / gridDim.y);
    s.boxes = (int)(boxes * (blockIdx.y + 1) / gridDim.y) - s.from;
    return s;
}

/* Stores the sums of a warp, filters wm .. +31 and channels wn .. of the tile:
 * to dw if the block has all boxes, else to the block's part of dw. Returns
 * the sum of the squares of this thread's values in dw. */
template <int WARPS_K, int TAPS, int OWN>
__device__ __forceinline__ double store_sums(
    const WgradTileParams &p, const WgradCoord &s, int wm, int wn, int wk,
    const float (&sum)[2][TAPS][OWN][4])
{
    const int lane = (int)wgrad_lane();
    const TapSet &set = p.set[s.set];
    const bool whole = gridDim.y * WARPS_K == 1;
    const bool fresh = p.fresh || !whole;
    float *dw =
        whole ? p.dw
              : p.parts + (int64_t)(blockIdx.y * WARPS_K + wk) * p.part_size;
    double squares = 0;
#pragma unroll
    for (int h = 0; h < 4; h++) {
        const int filter = s.m0 + wm + h * 8 + lane / 4;
        if (filter >= p.cout) continue;
        float *row =
            dw + (int64_t)(s.group * p.cout + filter) * p.filter_taps * p.cin;
#pragma unroll
        for (int t = 0; t < TAPS; t++) {
            if (t >= set.taps) break;
#pragma unroll
            for (int j = 0; j < OWN; j++) {
                const int c = s.n0 + wn + j * 8 + lane % 4 * 2;
                float *to = row + (int64_t)set.number[t] * p.cin + c;
#pragma unroll
                for (int k = 0; k < 2; k++) {
                    if (c + k >= p.cin) continue;
                    const float v = sum[h / 2][t][j][h % 2 * 2 + k];
                    const float now = fresh ? v : to[k] + v;
                    to[k] = now;
                    if (p.sqnorm) squares += square_of(now);
                }
            }
        }
    }
    return squares;
}

/* The constants of a block, in shared memory. */
template <class T, int A_LINES, int B_LINES> struct WgradBlock {
    WgradLines<T, A_LINES> a;
    WgradLines<T, B_LINES> b;
    WgradCoord at;
};

template <Precision P, int TAPS, int CHANNELS>
__global__ void __launch_bounds__(WGRAD_TILE_THREADS, 2)
    wgrad_tile_kernel(const __grid_constant__ WgradTileParams p)
{
    typedef typename PrecisionTraits<P>::T T;
    typedef WgradFragments<P> Fragments;
    enum {
        OWN = CHANNELS > 32 ? CHANNELS / 32 : 1, // of a warp, in eights
        WARPS_N = CHANNELS / 8 / OWN,
        WARPS_K = 4 / WARPS_N,
        COUNT = Line<T>::COUNT,
        A_LINES = WGRAD_TILE_FILTERS / COUNT,
        B_LINES = CHANNELS / COUNT,
    };
    typedef WgradBlock<T, A_LINES, B_LINES> Block;
    static_assert(sizeof(Block) <= WGRAD_TILE_BLOCK, "in shared memory");
    DYN_SMEM(unsigned char, shared);
    Block *const block = (Block *)shared;
    shared += WGRAD_TILE_BLOCK;
    const WgradCoord s = wgrad_coord<CHANNELS>(p);
    if (threadIdx.x == 0) block->at = s;
    block->a.begin(p.output, p.output_c, p.cout, s.group, s.m0);
    block->b.begin(p.input, p.input_c, p.cin_padded, s.group, s.n0);

    const TapSet &set = p.set[s.set];
    const int a_bytes = p.positions * A_LINES * WGRAD_TILE_LINE;
    const int table_size = p.positions + p.rows;
    int *const tables = (int *)(shared + p.stages * p.stage_bytes);
    uint16_t *const base = (uint16_t *)(tables + (p.stages + 1) * table_size);
    const int boxes = s.boxes;

    auto tabulate = [&](int i, int *table) {
        if (i < boxes) wgrad_table(p, set, block->at.from + i, table);
    };
    auto fill = [&](int i, const int *table, unsigned char *to) {
        if (i >= 0 && i < boxes) {
            block->a.copy(0, table, p.positions, to);
            if (p.layers > 1)
                block->a.copy((const T *)p.norm_bwd.x -
                                  (const T *)p.output.first.data,
                              table, p.positions, to + a_bytes);
            block->b.copy(0, table + p.positions, set.groups * p.halo_rows,
                          to + p.layers * a_bytes);
        }
        cp_async_commit();
    };
    // Each thread norms the lines that it copied.
    auto norm = [&](const int *table, unsigned char *at) {
        if constexpr (P != PRECISION_tf32) {
            constexpr Dtype D = NARROW_TYPE<P>;
            if (p.layers > 1)
                block->a.template norm_bwd<D>(p.norm_bwd, table, p.positions,
                                              at, a_bytes);
            else
                block->a.template norm<D>(p.output, table, p.positions, at);
            block->b.template norm<D>(p.input, table + p.positions,
                                      set.groups * p.halo_rows,
                                      at + p.layers * a_bytes);
        }
    };

    wgrad_bases(p, base);
    const uint32_t warp = threadIdx.x / WARP;
    const uint32_t wm = warp % 2 * 32, wn = warp / 2 % WARPS_N * OWN * 8;
    const uint32_t wk = warp / 2 / WARPS_N;
    float sum[2][TAPS][OWN][4] = {};

    // The table of a box is made a step before its copies are issued, and these
    // p.stages - 1 steps before its products.
    int stage = 0, table = 1; // of box i; in rings of p.stages, p.stages + 1
    for (int i = -p.stages; i < boxes; i++) {
        // all but the copies of the next p.stages - 2 boxes have arrived
        if (p.stages > 2)
            cp_async_wait<1>();
        else
            cp_async_wait<0>();
        if (i >= 0)
            norm(tables + table * table_size, shared + stage * p.stage_bytes);
        __syncthreads();
        const int before = table ? table - 1 : p.stages;
        const int filled = before ? before - 1 : p.stages;
        fill(i + p.stages - 1, tables + filled * table_size,
             shared + (stage ? stage - 1 : p.stages - 1) * p.stage_bytes);
        tabulate(i + p.stages, tables + before * table_size);

        const uint32_t at = (uint32_t)(stage * p.stage_bytes);
        if (++stage == p.stages) stage = 0;
        if (++table > p.stages) table = 0;
        if (i < 0) continue;
        const uint32_t halo =
            at + (uint32_t)(p.layers * a_bytes) + wn / COUNT * WGRAD_TILE_LINE;
#pragma unroll 1
        for (uint32_t q = wk * WGRAD_TILE_STEP; q < (uint32_t)p.positions;
             q += WARPS_K * WGRAD_TILE_STEP) {
            uint32_t a[Fragments::PRODUCTS][2][4];
            uint32_t row[Fragments::BASES];
            Fragments::rows(base, q, row);
            Fragments::load_a(shared, at + q * A_LINES * WGRAD_TILE_LINE,
                              wm / COUNT, a);
#pragma unroll
            for (int t = 0; t < TAPS; t++)
#pragma unroll
                for (int j = 0; j < OWN; j++) {
                    uint32_t b[Fragments::PRODUCTS][2];
                    const uint32_t line = set.move[t] * B_LINES + j * 8 / COUNT;
                    Fragments::template load_b<B_LINES>(
                        shared, halo + line * WGRAD_TILE_LINE, row, b);
#pragma unroll
                    for (int k = 0; k < Fragments::PRODUCTS; k++)
#pragma unroll
                        for (int m = 0; m < 2; m++)
                            PrecisionTraits<P>::multiply(sum[m][t][j], a[k][m],
                                                         b[k]);
                }
        }
    }
    cp_async_wait<0>();
    const double squares =
        store_sums<WARPS_K>(p, block->at, (int)wm, (int)wn, (int)wk, sum);
    if (p.sqnorm)
        store_warp_sqnorm(squares, p.sqnorm + blockIdx.x * WGRAD_TILE_WARPS +
                                       threadIdx.x / WARP);
}

} // namespace

template <Precision P, int TAPS, int CHANNELS>
static bool wgrad_tile_queue(const ConvProblem *r, const WgradTileParams &p,
                             dim3 blocks, size_t shared)
{
    if (!gpu_allows(wgrad_tile_kernel<P, TAPS, CHANNELS>, shared)) return false;
    LAUNCH((wgrad_tile_kernel<P, TAPS, CHANNELS>), blocks, WGRAD_TILE_THREADS,
           shared, gpu_stream(r->c->dev), p);
    return gpu_launched("wgrad_tile");
}

template <Precision P>
bool wgrad_tile_launch(const ConvProblem *r, const WgradTileShape &tile,
                       const WgradTileParams &p, dim3 blocks, size_t shared)
{
    switch (tile.channels) {
    case 64:
        return wgrad_tile_queue<P, 4, 64>(r, p, blocks, shared);
    case 32:
        if (tile.taps == 4)
            return wgrad_tile_queue<P, 4, 32>(r, p, blocks, shared);
        return wgrad_tile_queue<P, 9, 32>(r, p, blocks, shared);
    case 16:
        return wgrad_tile_queue<P, 9, 16>(r, p, blocks, shared);
    default:
        return wgrad_tile_queue<P, 9, 8>(r, p, blocks, shared);
    }
}
#endif
