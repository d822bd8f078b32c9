/* upconv_head_tile.cuh -- the operands of a block of upconv_head_bwd.cu: blocks
 * of channels of x, boxes of positions, their halos of dy, and the matrix dy[p,
 * k] that is built from a halo. */
#ifndef SEG_CUDA_CONV_UPCONV_HEAD_TILE_H
#define SEG_CUDA_CONV_UPCONV_HEAD_TILE_H
#include "cuda/conv/igemm_tile_load.cuh"
#include "cuda/conv/upconv_head.cuh"

namespace {

enum {
    BLOCK_CHANNELS = 64, // channels of a block, at most
    COLUMNS = UPCONV_HEAD_COLUMNS,
    LINES = 8, // of 16 bytes in a row of x, w or dy[p, k]
    ROW = LINES * TILE_LINE,
    POSITIONS = 128, // of a box
    POSITION_BITS = 7,
    THREADS = 256,
    WARPS = THREADS / WARP,
    BLOCKS = 2,  // on a multiprocessor with enough shared memory (H100): 128
                 // registers a thread
    FILL = 256,  // blocks that fill any GPU
    MIN_RUN = 8, // boxes that are worth a part of dw
    HALO_MOST = 2560, // elements of dy in a halo, at most
    RESULTS = UPCONV_HEAD_Y_CHANNELS,
    UNIT = TILE_CHUNK, // channels of x are a multiple of it: a warp's channels
                       // for dx
    MAX_RUN = CHAIN * CHAIN / POSITIONS, // the second sum is a chain, too
    ROW_STEP = THREADS / LINES,          // rows that the block copies at a time
    QUARTER = POSITIONS / 4,             // positions of a warp, for dx
    TILES = 4,                           // of 8 columns, of an mma
    NO_TAP = 0xffff,
};
static_assert(ROW == BLOCK_CHANNELS * 2 && BLOCK_CHANNELS == COLUMNS,
              "rows of x, w and columns");
static_assert(WARPS * 16 * TILES * 8 == BLOCK_CHANNELS * COLUMNS,
              "warps of dw");

/* One axis: positions of x, and of y. */
struct UpconvAxis {
    int count, size; // positions of x; of y
    int step, lo;    // position p of x meets y from p*step - lo on
    int bits, reach; // log2 of a box; positions of its halo
    Divisor boxes;
};

/* One tensor of x, which may be an implicit concat of two. */
struct ConcatOperand {
    const void *x;
    NormOnLoad norm_on_load;
    Target dx;
    GradSums grads;
    int from, channels; // its first channel in x; its channels
    int channel_blocks; // channel blocks of the tensor before
};

/* An element of a halo: plane, line of the plane, element of the line. A thread
 * has every THREADS-th element. */
struct HaloElement {
    int d, h, e;
};

struct UpconvHead {
    const float *dy;
    const void *w;
    ConcatOperand side[2];
    int channels, results, columns;
    UpconvAxis axis[3];
    Divisor every, high, line; // channels of y; of a halo: lines of a plane,
                               // elements of a line
    int halo;                  // its elements
    HaloElement next;          // from one of a thread's elements to the next
    uint32_t tap[COLUMNS / 2]; // offsets in a halo of two columns
    ChannelSums sums;          // over dx, one part a block
    float *dw, *db;            // NULL: not needed
    float *parts;              // parts: (blocks, elements of dw)
    double *db_parts;          // (blocks, elements of db)
    bool fresh_dw, fresh_db;
    GridReduce grid_reduce; // over the parts
    unsigned *counters;
    int count, run; // boxes; boxes of a block
};

/* The operands of a box in shared memory; x before its deferred norm. */
struct Stage {
    unsigned char x[POSITIONS * ROW];
    float dy[HALO_MOST];
};

struct Shared {
    unsigned char w[BLOCK_CHANNELS * ROW], columns[POSITIONS * ROW];
    Stage stage[2];
    uint32_t tap[COLUMNS / 2];
    float4 grads[BLOCK_CHANNELS];
    float2 deferred_norm[BLOCK_CHANNELS];
    double sums[2][THREADS], db[RESULTS][WARPS];
    float dw[TILES * 4][THREADS]; // a thread's sums of finished chains
};
static_assert(sizeof(Shared) <= SHARED_MOST, "fits a block from 8.0 on");

/* The channels of a block: their tensor, the first channel in it, their number.
 */
struct ChannelBlock {
    const ConcatOperand &side;
    int c0, channels;
    bool reads_x; // is x needed?
};

__device__ __forceinline__ ChannelBlock channel_block(const UpconvHead &p)
{
    const ConcatOperand &side =
        p.side[(int)blockIdx.y >= p.side[1].channel_blocks];
    const int c0 = ((int)blockIdx.y - side.channel_blocks) * BLOCK_CHANNELS;
    return {side, c0, min((int)BLOCK_CHANNELS, side.channels - c0),
            p.dw || (side.grads.runs && side.grads.x)};
}

/* A box: its sample and first position. */
struct Box {
    int n, at[3];
};

__device__ __forceinline__ Box box_at(const UpconvHead &p, int i)
{
    uint32_t rest = (uint32_t)i;
    Box b;
#pragma unroll
    for (int a = 2; a >= 0; a--)
        b.at[a] = (int)split(&rest, p.axis[a].boxes) << p.axis[a].bits;
    b.n = (int)rest;
    return b;
}

/* Position m of a box along each axis. */
__device__ __forceinline__ void position_in_box(const UpconvHead &p, int m,
                                                int (&j)[3])
{
#pragma unroll
    for (int a = 2; a >= 0; a--) {
        j[a] = m & ((1 << p.axis[a].bits) - 1);
        m >>= p.axis[a].bits;
    }
}

/* The row of x for position m of a box; -1: outside. */
__device__ __forceinline__ int output_row(const UpconvHead &p, const Box &b,
                                          int m)
{
    int j[3], row = b.n;
    bool inside = true;
    position_in_box(p, m, j);
#pragma unroll
    for (int a = 0; a < 3; a++) {
        j[a] += b.at[a];
        inside = inside && j[a] < p.axis[a].count;
        row = row * p.axis[a].count + j[a];
    }
    return inside ? row : -1;
}

__device__ __forceinline__ HaloElement halo_element(const UpconvHead &p)
{
    uint32_t rest = threadIdx.x;
    HaloElement k;
    k.e = (int)split(&rest, p.line);
    k.h = (int)split(&rest, p.high);
    k.d = (int)rest;
    return k;
}

/* Advances to the thread's next element. */
__device__ __forceinline__ void halo_next(const UpconvHead &p, HaloElement *k)
{
    k->e += p.next.e;
    const bool line = k->e >= (int)p.line.by;
    k->e -= line ? (int)p.line.by : 0;
    k->h += p.next.h + line;
    const bool plane = k->h >= (int)p.high.by;
    k->h -= plane ? (int)p.high.by : 0;
    k->d += p.next.d + plane;
}

/* Issues the copies of a box. */
__device__ __forceinline__ void fill(const UpconvHead &p,
                                     const ChannelBlock &cb, const Box &b,
                                     Stage *to)
{
    const int t = (int)threadIdx.x, line = t % LINES;
#pragma unroll 1
    for (int m = t / LINES; m < POSITIONS && cb.reads_x; m += ROW_STEP) {
        const int row = output_row(p, b, m), c = line * 8;
        const bool there = row >= 0 && c < cb.channels;
        const int64_t at = (int64_t)(there ? row : 0) * cb.side.channels +
                           cb.c0 + (there ? c : 0);
        cp_async16(to->x + tile_place<LINES>(m, line),
                   (const uint16_t *)cb.side.x + at, there);
    }

    const UpconvAxis *s = p.axis;
    int from[3];
#pragma unroll
    for (int a = 0; a < 3; a++) from[a] = b.at[a] * s[a].step - s[a].lo;
    const uint32_t deep = (uint32_t)s[0].size, high = (uint32_t)s[1].size;
    const uint32_t wide = (uint32_t)(s[2].size * p.results);
    HaloElement k = halo_element(p);
#pragma unroll 1
    for (int i = t; i < p.halo; i += THREADS, halo_next(p, &k)) {
        const uint32_t d = (uint32_t)(from[0] + k.d);
        const uint32_t h = (uint32_t)(from[1] + k.h);
        const uint32_t e = (uint32_t)(from[2] * p.results + k.e);
        const bool there = d < deep && h < high && e < wide;
        const uint32_t row = ((uint32_t)b.n * deep + d) * high + h;
        cp_async4(&to->dy[i], p.dy + (there ? (uint64_t)row * wide + e : 0),
                  there);
    }
}

/* Adds the elements of dy that belong to this box to db. Over all boxes each
 * element of dy belongs to exactly one: the elements before the next box's halo
 * and, in the last box of an axis, all of its halo. */
__device__ __forceinline__ void sum_dy(const UpconvHead &p, const Box &b,
                                       const float *halo, Shared *s)
{
    int own[3];
#pragma unroll
    for (int a = 0; a < 3; a++) {
        const int box = 1 << p.axis[a].bits;
        own[a] = b.at[a] + box < p.axis[a].count ? box * p.axis[a].step
                                                 : p.axis[a].reach;
    }

    float sum[RESULTS] = {};
    HaloElement k = halo_element(p);
#pragma unroll 1
    for (int i = (int)threadIdx.x; i < p.halo; i += THREADS, halo_next(p, &k)) {
        if (k.d >= own[0] || k.h >= own[1] || k.e >= own[2] * p.results)
            continue;
        uint32_t which = (uint32_t)k.e;
        which = split(&which, p.every);
        const float v = halo[i];
#pragma unroll
        for (int r = 0; r < RESULTS; r++)
            if (r == (int)which) sum[r] += v;
    }

#pragma unroll
    for (int r = 0; r < RESULTS; r++) {
        if (r >= p.results) break;
        const float all = warp_sum(sum[r]);
        if (threadIdx.x % WARP == 0)
            s->db[r][threadIdx.x / WARP] += (double)all;
    }
}

/* Builds dy[p, k] of a box from the halo, rounded to 16 bits; zeros for
 * positions outside of x. */
template <Dtype D>
__device__ __forceinline__ void fill_columns(const UpconvHead &p, const Box &b,
                                             const float *halo, Shared *s)
{
    const int line = (int)threadIdx.x % LINES;
    const uint32_t *taps = &s->tap[line * 4];
#pragma unroll 1
    for (int m = (int)threadIdx.x / LINES; m < POSITIONS; m += ROW_STEP) {
        int j[3], first = 0;
        position_in_box(p, m, j);
#pragma unroll
        for (int a = 0; a < 3; a++)
            first = first * p.axis[a].reach + j[a] * p.axis[a].step;
        const float *from = halo + first * p.results;
        const bool inside = output_row(p, b, m) >= 0;
        auto one = [&](uint32_t at) {
            return inside && at != NO_TAP ? from[at] : 0;
        };
        uint4 all;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const uint32_t two = taps[i];
            (&all.x)[i] = Stored<D>::pack(one(two & 0xffff), one(two >> 16));
        }
        *(uint4 *)(s->columns + tile_place<LINES>(m, line)) = all;
    }
}

/* Sets the parts of shared memory that stay the same for all boxes. */
template <Dtype D>
__device__ __forceinline__ void set_up(const UpconvHead &p,
                                       const ChannelBlock &cb, Shared *s)
{
    const int t = (int)threadIdx.x;
    const uint16_t *w =
        (const uint16_t *)p.w + (int64_t)(cb.side.from + cb.c0) * p.columns;

    for (int i = t; i < BLOCK_CHANNELS * COLUMNS && cb.side.dx.data;
         i += THREADS) {
        const int c = i / COLUMNS, k = i % COLUMNS;
        const bool there = c < cb.channels && k < p.columns;
        *(uint16_t *)(s->w + tile_place<LINES>(c, k / 8) + k % 8 * 2) =
            there ? w[c * p.columns + k] : (uint16_t)0;
    }

    for (int i = 0; i < 2; i++) s->sums[i][t] = 0;
    for (int i = 0; i < TILES * 4; i++) s->dw[i][t] = 0;
    if (t < RESULTS * WARPS) s->db[t / WARPS][t % WARPS] = 0;
    if (t < COLUMNS / 2) s->tap[t] = p.tap[t];
    if (t < cb.channels && cb.side.grads.runs)
        s->grads[t] = grad_sums_channel(cb.side.grads, cb.c0 + t);
    if (t < BLOCK_CHANNELS && cb.side.norm_on_load.table)
        s->deferred_norm[t] = t < cb.channels
                                  ? cb.side.norm_on_load.table[cb.c0 + t]
                                  : make_float2(0, 0);
}

} // namespace
#endif
