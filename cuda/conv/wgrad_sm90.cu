/* wgrad_sm90.cu -- see wgrad_sm90.cuh. */
#include "cuda/conv/pad_channels.cuh"
#include "cuda/conv/sm90_host.cuh"
#include "cuda/conv/sm90_norm.cuh"
#include "cuda/conv/wgrad_fold.cuh"
#include "cuda/conv/wgrad_sm90.cuh"
#include "cuda/lib/grad_sqnorm.cuh"

namespace {

enum {
    FOLD_LOADS = 8, // of a thread, in flight
    MOST_BUFFERS = 4,
    THIN = 16,     // channels of a row of a thin operand
    FEW_LINES = 8, // of a box with many halos, or with 2 x 2 taps by 64
                   // filters, so that several boxes are in shared memory
};

/* Where the results of the tiles belong in dw. a is `output`, b is `input`: the
 * operands of the product. The tile of a block is (tap set, chunk of b, tile of
 * a). A tap set has rows x columns of taps: of a group with one halo, or of
 * groups of one tap. */
struct WgradTiles {
    float *dw;
    bool fresh;
    int64_t filter; // elements of one filter: taps x cin
    Divisor a_tiles, b_chunks;
    int a_chunks; // 64-channel chunks of a tile
    int rows, columns;
    Sm90Side a_side, b_side;
    int tap_at[SM90_TAPS]; // elements from a filter's start to its tap
};

struct WgradParams90 {
    TensorMap a[2], b[2 * SM90_CLASSES]; // [tensor], [tensor * classes + class]
    NormOnLoad a_norm[2], b_norm[2];
    Sm90Group group[SM90_GROUPS];
    Sm90Extent a_extent, b_extent[SM90_CLASSES];
    int b_classes;
    WgradTiles to;
    double *sqnorm; // if the tiles are stored to dw: a partial sum a warp
    float4 *parts;  // (splits, tiles, warpgroups, N / 8, 128); NULL: to dw
    int boxes, splits;
    int works; // (splits, tiles); a block takes every gridDim.x-th
    Divisor tiles;
    Sm90Grid grid;
    int halos; // of a block: of its groups, one behind the other
    int halo_h, pitch;
    int b_bytes, b_room, buffers;
    int b_offset;       // bytes, of pairs: to the first column
    int row;            // bytes between rows of taps
    uint32_t b_leading; // bytes between columns of taps
    uint32_t b_stride;  // bytes of a line of the halo
};

struct WgradTile {
    int taps, chunk, a; // set of taps, chunk of b, tile of a
};

__device__ __forceinline__ WgradTile tile_of(const WgradTiles &f, uint32_t tile)
{
    WgradTile t;
    t.a = (int)split(&tile, f.a_tiles);
    t.chunk = (int)split(&tile, f.b_chunks);
    t.taps = (int)tile;
    return t;
}

/* A part of the boxes of a tile: every p.splits-th from `first` on. */
struct WgradWork {
    uint32_t tile;
    int first; // box
};

__device__ __forceinline__ WgradWork work_of(const WgradParams90 &p,
                                             uint32_t work)
{
    WgradWork w;
    w.tile = split(&work, p.tiles);
    w.first = (int)work;
    return w;
}

/* The place of a result of a tile in dw, and the numbers of rows and columns
 * from it on that exist: beyond the channels of a tensor the products are of
 * padding. */
struct WgradPlace {
    float *filter; // the channel of the filter's first tap
    int tap;       // the first of the warpgroup's row of taps
    int rows, columns;
};

/* The place of row m of a warpgroup and a channel of its chunk. */
__device__ __forceinline__ WgradPlace place_of(const WgradTiles &f,
                                               uint32_t tile, int warpgroup,
                                               int m, int channel)
{
    const WgradTile t = tile_of(f, tile);
    const Sm90Chunk a =
        sm90_chunk(f.a_side, t.a * f.a_chunks + warpgroup / f.rows);
    const Sm90Chunk b = sm90_chunk(f.b_side, t.chunk);
    return {f.dw + (a.all + m) * f.filter + b.all + channel,
            (t.taps * f.rows + warpgroup % f.rows) * f.columns,
            f.a_side.channels[a.tensor] - a.channel - m,
            f.b_side.channels[b.tensor] - b.channel - channel};
}

/* Stores the results of a warpgroup in dw, or adds them. Returns the sum of the
 * squares of the thread's values. */
template <int N>
__device__ __forceinline__ double store_tile(const WgradTiles &f, uint32_t tile,
                                             int warpgroup,
                                             const float (&d)[N / 2])
{
    enum { BATCH = 4 }; // loads of dw in flight
    const int thread = opaque((int)threadIdx.x), lane = thread % WARP;
    const WgradPlace p = place_of(
        f, tile, warpgroup, thread % 128 / WARP * 16 + lane / 4, lane % 4 * 2);
    double squares = 0;
#pragma unroll
    for (int q = 0; q < N / 8; q += BATCH) {
        const int channel = q * 8 % SM90_CHANNELS;
        float *const at =
            p.filter + f.tap_at[p.tap + q * 8 / SM90_CHANNELS] + channel;
#pragma unroll
        for (int j = 0; j < 2; j++) {
            float2 *const to = (float2 *)(at + 8 * j * f.filter);
            float2 v[BATCH];
#pragma unroll
            for (int k = 0; k < BATCH; k++) {
                const bool inside =
                    8 * j < p.rows && channel + 8 * k < p.columns;
                v[k] = inside && !f.fresh ? to[4 * k] : make_float2(0, 0);
            }
#pragma unroll
            for (int k = 0; k < BATCH; k++) {
                if (8 * j >= p.rows || channel + 8 * k >= p.columns) continue;
                v[k].x += d[4 * (q + k) + 2 * j];
                v[k].y += d[4 * (q + k) + 2 * j + 1];
                to[4 * k] = v[k];
                squares += square_of(v[k].x) + square_of(v[k].y);
            }
        }
    }
    return squares;
}

/* The buffers in shared memory: a box of `output`, then its halos. */
struct WgradBuffers {
    uint64_t *full, *ready, *empty; // mbarriers of each buffer
    char *at;
    int a_room, room; // bytes: of `output` in a buffer; of a buffer
};

/* By one thread: loads the boxes of a part. */
template <int A_BYTES>
__device__ __forceinline__ void load_boxes(const WgradParams90 &p,
                                           const WgradWork &work,
                                           const WgradBuffers &to, Sm90Ring *r)
{
    const WgradTile t = tile_of(p.to, work.tile);
    const Sm90Group *const group = p.group + t.taps * p.halos;
    const Sm90Chunk b = sm90_chunk(p.to.b_side, t.chunk);
    for (int i = work.first; i < p.boxes; i += p.splits, r->next(p.buffers)) {
        const Sm90Box s = sm90_box_at(p.grid, (uint32_t)i);
        char *at = to.at + r->at * to.room;
        uint64_t *bar = to.full + r->at;
        mbarrier_wait(to.empty + r->at, r->phase);
        mbarrier_expect(bar, (uint32_t)(to.a_room + p.halos * p.b_bytes));
        for (int k = 0; k < p.to.a_chunks; k++, at += A_BYTES) {
            const Sm90Chunk a =
                sm90_chunk(p.to.a_side, t.a * p.to.a_chunks + k);
            tma_load(at, &p.a[a.tensor], a.channel, s.w, s.d, s.n, s.h, bar);
        }
        for (int k = 0; k < p.halos; k++, at += p.b_room) {
            const Sm90Group g = group[k];
            tma_load(at, &p.b[b.tensor * p.b_classes + g.map], b.channel,
                     s.w + g.w, s.d + g.d, s.n, s.h + g.h, bar);
        }
    }
}

/* By three warps: applies deferred norms to the boxes of a part. */
template <int A_BYTES, Dtype D>
__device__ __forceinline__ void norm_boxes(const WgradParams90 &p,
                                           const WgradWork &work,
                                           const WgradBuffers &in, Sm90Ring *r)
{
    const WgradTile t = tile_of(p.to, work.tile);
    const Sm90Group *const group = p.group + t.taps * p.halos;
    const Sm90Chunk b = sm90_chunk(p.to.b_side, t.chunk);
    for (int i = work.first; i < p.boxes; i += p.splits, r->next(p.buffers)) {
        const Sm90Box s = sm90_box_at(p.grid, (uint32_t)i);
        char *at = in.at + r->at * in.room;
        const Sm90Halo box =
            sm90_halo(s, p.grid, {}, p.a_extent, p.grid.box_h, SM90_BOX_W);
        mbarrier_wait(in.full + r->at, r->phase);
        for (int k = 0; k < p.to.a_chunks; k++, at += A_BYTES) {
            const Sm90Chunk a =
                sm90_chunk(p.to.a_side, t.a * p.to.a_chunks + k);
            sm90_norm_tile<D>(at, box, p.a_norm[a.tensor], a.channel,
                              p.to.a_side, a.tensor);
        }
        for (int k = 0; k < p.halos; k++, at += p.b_room) {
            const Sm90Halo halo =
                sm90_halo(s, p.grid, group[k], p.b_extent[group[k].map],
                          p.halo_h, p.pitch);
            sm90_norm_tile<D>(at, halo, p.b_norm[b.tensor], b.channel,
                              p.to.b_side, b.tensor);
        }
        sm90_norm_done(in.ready + r->at);
    }
}

/* By a warp that has read a buffer: the next load may overwrite it. */
__device__ __forceinline__ void give_back(uint64_t *empty)
{
    if (threadIdx.x % WARP == 0) mbarrier_arrive(empty, 1);
}

/* By a warpgroup: the products of all boxes of a part from `first` on, STEPS a
 * box. a, b: operands in buffer 0; seen: the mbarriers of filled buffers. */
template <int N, int STEPS, Dtype D>
__device__ __forceinline__ void multiply_boxes(const WgradParams90 &p,
                                               int first, const WgradBuffers &m,
                                               uint64_t *seen, uint64_t a,
                                               uint64_t b, Sm90Ring *r,
                                               float (&d)[N / 2])
{
    int last = -1; // the buffer that products in flight read
    bool adds = false;
    int i = first;
    do {
        // where loads take longer than products, the next load need not wait
        // for the next box
        if (last >= 0 &&
            !__any_sync(~0u, mbarrier_test(seen + r->at, r->phase))) {
            wgmma_wait<0>();
            give_back(m.empty + last);
            last = -1;
        }
        mbarrier_wait(seen + r->at, r->phase);
        const uint32_t buffer = (uint32_t)(r->at * m.room);
        uint64_t at_a = wgmma_advance(a, buffer),
                 at_b = wgmma_advance(b, buffer);
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < STEPS; k++) {
            WgmmaProduct<N, D, true, true>::issue(d, at_a, at_b,
                                                  adds | (k > 0));
            at_a = wgmma_advance(at_a, 16 * SM90_ROW);
            at_b = wgmma_advance(at_b, 2 * p.b_stride); // two lines on
        }
        wgmma_commit();
        wgmma_wait<1>();
        if (last >= 0) give_back(m.empty + last);
        last = r->at, adds = true;
        r->next(p.buffers);
    } while ((i += p.splits) < p.boxes);
    wgmma_wait<0>();
    give_back(m.empty + last);
}

/* WARPGROUPS multiply; they share the ROWS of a set of taps and the 64-channel
 * chunks of `output`. B_ROW: bytes of a position of a halo, 128 or 32. LINES:
 * of a box. */
template <int N, int WARPGROUPS, int ROWS, int B_ROW, int LINES, Dtype D>
__global__ void __launch_bounds__(128 + WARPGROUPS * 128, 1)
    wgrad_sm90_kernel(const __grid_constant__ WgradParams90 p)
{
    enum {
        POSITIONS = LINES * SM90_BOX_W,
        A_BYTES = POSITIONS * SM90_ROW, // of 64 channels of `output`
    };
    DYN_SMEM_1024(uint64_t, full);
    const int a_room = p.to.a_chunks * A_BYTES;
    const WgradBuffers m = {full,
                            full + MOST_BUFFERS,
                            full + 2 * MOST_BUFFERS,
                            (char *)full + SM90_BARRIERS,
                            a_room,
                            a_room + p.halos * p.b_room};

    if (threadIdx.x == 0) {
        for (int i = 0; i < p.buffers; i++) {
            mbarrier_init(m.full + i, 1);
            mbarrier_init(m.ready + i, SM90_NORM_WARPS);
            mbarrier_init(m.empty + i, 4 * WARPGROUPS);
        }
        fence_async_shared();
    }
    grid_dependency_wait();
    __syncthreads();

    const uint32_t works = (uint32_t)p.works;
    const bool norms = p.a_norm[0].table || p.a_norm[1].table ||
                       p.b_norm[0].table || p.b_norm[1].table;
    const int warpgroup = (int)threadIdx.x / 128 - 1;

    if (warpgroup < 0) {
        if (threadIdx.x == 0) {
            Sm90Ring r = {0, 1};
            for (uint32_t w = blockIdx.x; w < works; w += gridDim.x)
                load_boxes<A_BYTES>(p, work_of(p, w), m, &r);
        } else if (norms && threadIdx.x >= WARP) {
            Sm90Ring r = {0, 0};
            for (uint32_t w = blockIdx.x; w < works; w += gridDim.x)
                norm_boxes<A_BYTES, D>(p, work_of(p, w), m, &r);
        }
        return;
    }

    uint64_t *seen = norms ? m.ready : m.full;
    Sm90Ring r = {0, 0};
#pragma unroll 1
    for (uint32_t w = blockIdx.x; w < works; w += gridDim.x) {
        const int self = opaque(warpgroup);
        const int row = self % ROWS; // the warpgroup's row of taps
        const uint64_t a = wgmma_descriptor(m.at + self / ROWS * A_BYTES,
                                            A_BYTES, 1024, SWIZZLE_128);
        const uint64_t b = wgmma_descriptor(
            m.at + m.a_room + row * p.row + p.b_offset, p.b_leading, p.b_stride,
            B_ROW == 32 ? SWIZZLE_32 : SWIZZLE_128);
        float d[N / 2];
        multiply_boxes<N, POSITIONS / 16, D>(p, work_of(p, w).first, m, seen, a,
                                             b, &r, d);
        const uint32_t part = w * WARPGROUPS + (uint32_t)warpgroup;
        if constexpr (B_ROW == SM90_ROW)
            if (!p.parts) {
                const double squares = store_tile<N>(p.to, w, warpgroup, d);
                if (p.sqnorm)
                    store_warp_sqnorm(squares, p.sqnorm + part * 4 +
                                                   threadIdx.x % 128 / WARP);
                continue;
            }
        float4 *to =
            p.parts + (int64_t)part * (N / 8) * 128 + threadIdx.x % 128;
#pragma unroll
        for (int q = 0; q < N / 8; q++)
            to[q * 128] =
                make_float4(d[4 * q], d[4 * q + 1], d[4 * q + 2], d[4 * q + 3]);
    }
}

struct WgradFold {
    WgradTiles to;
    const float4 *parts;
    double *sqnorm;     // a partial sum for each block, or NULL
    int splits, shares; // shares: threads that share the splits of a result
    int count;          // float4 of all tiles
    Divisor columns, warpgroups;
    bool pairs; // the sums of both positions of a pair are added
    bool even;  // rows of dw begin at a multiple of 8 bytes
};

/* The sum of result i over a share of the splits. Several loads are in flight,
 * in short shares too. */
__device__ __forceinline__ Sum4 share_sum(const WgradFold &f, int i, int share)
{
    // row m and column n of the first position of a pair, and row m + 32 and
    // column n + 32 of the second, are the same element of dw
    enum { SECOND = 64 + 4 * 128 };
    const int two = f.pairs;
    const int from = f.splits * share / f.shares;
    const int to = f.splits * (share + 1) / f.shares;
    const int count = (to - from) << two;
    const float4 *const at = f.parts + i + (int64_t)from * f.count;
    Sum4 s = {};
#pragma unroll 1
    for (int k = 0; k < count; k += FOLD_LOADS) {
        float4 v[FOLD_LOADS];
#pragma unroll
        for (int j = 0; j < FOLD_LOADS; j++)
            if (k + j < count)
                v[j] =
                    at[((k + j) >> two) * f.count + ((k + j) & two) * SECOND];
#pragma unroll
        for (int j = 0; j < FOLD_LOADS; j++)
            if (k + j < count) add(&s, v[j]);
    }
    return s;
}

/* Stores result i in dw, or adds it. Returns the sum of the squares of its
 * values. */
__device__ __forceinline__ double store_sum(const WgradFold &f, int i,
                                            const Sum4 &s)
{
    const int lane = i % 128;
    uint32_t rest = (uint32_t)i / 128;
    const int q = (int)split(&rest, f.columns);
    const int warpgroup = (int)split(&rest, f.warpgroups);
    const int n = q * 8 + lane % 4 * 2, size = f.to.b_side.size;
    const WgradPlace p = place_of(f.to, rest, warpgroup,
                                  lane / 32 * 16 + lane % 32 / 4, n % size);
    float *const first = p.filter + f.to.tap_at[p.tap + n / size];
    double squares = 0;
#pragma unroll
    for (int j = 0; j < 2; j++) {
        float *const at = first + 8 * j * f.to.filter;
        const float x = (float)s.v[2 * j], y = (float)s.v[2 * j + 1];
        if (8 * j >= p.rows || p.columns < 1) continue;
        if (f.even) {
            float2 v = make_float2(x, y);
            if (!f.to.fresh) {
                const float2 old = *(const float2 *)at;
                v.x += old.x, v.y += old.y;
            }
            *(float2 *)at = v;
            squares += square_of(v.x) + square_of(v.y);
        } else {
            put(at, x, f.to.fresh);
            squares += square_of(at[0]);
            if (p.columns < 2) continue;
            put(at + 1, y, f.to.fresh);
            squares += square_of(at[1]);
        }
    }
    return squares;
}

__global__ void __launch_bounds__(FOLD_THREADS)
    wgrad_sm90_fold_kernel(const __grid_constant__ WgradFold f)
{
    SMEM(Sum4, sums, [FOLD_THREADS]);
    const int wide = FOLD_THREADS / f.shares;
    const int share = (int)threadIdx.x / wide;
    const int i = (int)blockIdx.x * wide + (int)threadIdx.x % wide;
    // of pairs the second positions and the columns of no tap are left out
    const bool inside =
        i < f.count &&
        (!f.pairs ||
         (i % 128 < 64 && (uint32_t)i / 128 % (128 / 8) < 3 * 32 / 8));
    double squares = 0;
    Sum4 s = {};
    grid_dependency_wait();
    if (inside) s = share_sum(f, i, share);
    add_shares(&s, f.shares, sums);
    if (inside && !share) squares = store_sum(f, i, s);
    if (f.sqnorm) store_sqnorm(squares, f.sqnorm + blockIdx.x);
}

/* The extents of a run. */
struct Shape90 {
    Sm90Boxes boxes;
    bool pairs, thin;
    bool stores;         // the tiles go to dw, without a sum over splits
    size_t padded_bytes; // of a thin operand's copy
    int gemm_n;          // columns of a product
    int lines, sets, halos, rows, columns, a_chunks, warpgroups;
    int tiles, a_tiles, splits, shares, fold_blocks, count;
};

struct Sides {
    Sm90Side a, b;
};

Sides sides_of(const ConvProblem *r, const Shape90 &s)
{
    const int size = s.pairs ? 32 : SM90_CHANNELS;
    return {sm90_side(sm90_border(r, false), r->cout, size),
            s.thin ? sm90_side(0, r->cin, THIN)
                   : sm90_side(sm90_border(r, true), r->cin, size)};
}

/* Sets the shape of a set of taps, 3 x 3 or 2 x 2, and the halos that have
 * them. False: the taps do not fill sets. */
bool set_taps(const Sm90Taps *taps, Shape90 *s)
{
    s->rows = taps->span_h + 1, s->columns = s->pairs ? 3 : taps->span_w + 1;
    s->sets = taps->groups, s->halos = 1;
    bool fills = s->rows == s->columns && (s->rows == 2 || s->rows == 3);
    for (int i = 0; i < taps->groups; i++)
        fills = fills &&
                taps->group[i].count == s->rows * (s->pairs ? 1 : s->columns);
    if (fills || s->pairs) return fills;

    // of other groups a halo has one tap
    s->rows = s->columns = taps->taps % 9 == 0 ? 3 : 2;
    s->halos = s->rows * s->columns, s->sets = taps->taps / s->halos;
    return taps->taps % s->halos == 0 && taps->taps <= SM90_GROUPS;
}

/* Gives each tap a group and a halo of its own. */
void halo_each_tap(Sm90Boxes *boxes)
{
    Sm90Taps *taps = &boxes->taps;
    Sm90Group group[SM90_GROUPS];
    for (int i = 0; i < taps->groups; i++) {
        const Sm90Group &g = taps->group[i];
        for (int k = g.first; k < g.first + g.count; k++) {
            group[k] = g;
            group[k].w = (int8_t)(g.w + taps->tap[k].w);
            group[k].h = (int8_t)(g.h + taps->tap[k].h);
            group[k].first = (uint8_t)k, group[k].count = 1;
        }
    }
    memcpy(taps->group, group, sizeof group);
    taps->groups = taps->taps, taps->span_h = taps->span_w = 0;
    boxes->halo_h = boxes->grid.box_h, boxes->pitch = SM90_BOX_W;
}

/* False: the family does not take the problem. */
bool shape_of(const ConvProblem *r, Shape90 *s)
{
    *s = {};
    s->pairs = sm90_takes_pairs(r), s->thin = sm90_takes_thin(r);
    if (!(s->pairs || s->thin || sm90_takes(r)) ||
        !sm90_boxes_of(r, false, s->pairs, SM90_LINES, &s->boxes) ||
        !set_taps(&s->boxes.taps, s))
        return false;
    const Sides sides = sides_of(r, *s);
    const Sm90Side out = sides.a, in = sides.b;
    s->a_chunks = s->rows == 2 && !s->thin && out.chunks % 2 == 0 ? 2 : 1;
    s->lines = SM90_LINES;
    if (!s->thin && (s->halos > 1 || (s->rows == 2 && s->a_chunks == 1)))
        s->lines = FEW_LINES;
    if (s->lines < SM90_LINES &&
        !sm90_boxes_of(r, false, s->pairs, s->lines, &s->boxes))
        return false;
    if (s->halos > 1) halo_each_tap(&s->boxes);
    // the four positions around a pair, of 32 channels each
    s->gemm_n = s->pairs ? 128 : s->columns * in.size;
    s->warpgroups = s->rows * s->a_chunks;
    if (s->thin) s->padded_bytes = (size_t)rows(r->input) * 2 * THIN;
    s->a_tiles = out.chunks / s->a_chunks;
    s->tiles = s->a_tiles * in.chunks * s->sets;
    s->splits = (int)most(1, least(H100_PROCESSORS / s->tiles, s->boxes.count));
    s->stores = s->splits == 1 && !s->pairs && !s->thin;
    s->count = s->tiles * s->warpgroups * s->gemm_n / 8 * 128;
    s->shares = fold_shares(s->splits);
    s->fold_blocks = (int)ceil_div(s->count, FOLD_THREADS / s->shares);
    return true;
}

template <int N, int WARPGROUPS, int ROWS, int B_ROW, int LINES, Dtype D>
bool launch_as(const ConvProblem *r, const WgradParams90 &p, int blocks,
               size_t shared)
{
    const auto kernel = wgrad_sm90_kernel<N, WARPGROUPS, ROWS, B_ROW, LINES, D>;
    if (!gpu_allows(kernel, SM90_SHARED_MOST)) return false;
    LAUNCH_DEPENDENT((wgrad_sm90_kernel<N, WARPGROUPS, ROWS, B_ROW, LINES, D>),
                     (unsigned)blocks, 128 + WARPGROUPS * 128, shared,
                     gpu_stream(r->c->dev), p);
    return gpu_launched("wgrad_sm90");
}

template <Dtype D>
bool launch(const ConvProblem *r, const Shape90 &s, const WgradParams90 &p,
            int blocks, size_t shared)
{
    if (s.thin && s.rows == 3)
        return launch_as<48, 3, 3, 32, 32, D>(r, p, blocks, shared);
    if (s.thin) return launch_as<32, 2, 2, 32, 32, D>(r, p, blocks, shared);
    if (s.pairs) return launch_as<128, 3, 3, 128, 32, D>(r, p, blocks, shared);
    if (s.rows == 3 && s.lines == FEW_LINES)
        return launch_as<192, 3, 3, 128, FEW_LINES, D>(r, p, blocks, shared);
    if (s.rows == 3)
        return launch_as<192, 3, 3, 128, 32, D>(r, p, blocks, shared);
    if (s.a_chunks == 1)
        return launch_as<128, 2, 2, 128, FEW_LINES, D>(r, p, blocks, shared);
    if (s.lines == FEW_LINES)
        return launch_as<128, 4, 2, 128, FEW_LINES, D>(r, p, blocks, shared);
    return launch_as<128, 4, 2, 128, 32, D>(r, p, blocks, shared);
}

/* Queues the sum of the parts. */
bool fold(const ConvProblem *r, const Shape90 &s, const WgradParams90 &p,
          double *sqnorm)
{
    WgradFold f = {};
    f.to = p.to, f.parts = p.parts, f.sqnorm = sqnorm;
    f.splits = s.splits, f.shares = s.shares, f.count = s.count;
    f.columns = divisor(s.gemm_n / 8), f.warpgroups = divisor(s.warpgroups);
    f.pairs = s.pairs, f.even = r->cin % 2 == 0;
    moves((double)s.splits * s.count * sizeof(float4) +
          (double)conv_filter_size(r) * sizeof(float) * (p.to.fresh ? 1 : 2));
    LAUNCH_DEPENDENT(wgrad_sm90_fold_kernel, (unsigned)s.fold_blocks,
                     FOLD_THREADS, 0, gpu_stream(r->c->dev), f);
    return gpu_launched("wgrad_sm90, sum of split-K");
}

} // namespace

WgradSm90Fit wgrad_sm90_fit(const ConvProblem *r)
{
    Shape90 s;
    WgradSm90Fit f = {};
    f.takes = shape_of(r, &s);
    if (!f.takes) return f;
    f.workspace = s.padded_bytes;
    if (!s.stores)
        f.workspace += (size_t)s.splits * (size_t)s.count * sizeof(float4);
    f.sqnorm_parts = s.stores ? s.tiles * s.warpgroups * 4 : s.fold_blocks;
    return f;
}

/* The tiles of the problem in dw. */
static WgradTiles tiles_of(const ConvProblem *r, const Shape90 &s, float *dw,
                           bool fresh)
{
    const Window *g = &r->win;
    const Sm90Taps &taps = s.boxes.taps;
    const Sides sides = sides_of(r, s);
    WgradTiles to = {};
    to.dw = dw, to.fresh = fresh;
    to.filter = conv_taps(r) * r->cin;
    to.a_tiles = divisor(s.a_tiles), to.b_chunks = divisor(sides.b.chunks);
    to.a_chunks = s.a_chunks, to.rows = s.rows, to.columns = s.columns;
    to.a_side = sides.a, to.b_side = sides.b;
    const int wide = s.pairs ? g->k[2] : 1; // taps of a tap of pairs
    for (int i = 0; i < taps.taps * wide; i++)
        to.tap_at[i] = (taps.tap[i / wide].filter * wide + i % wide) * r->cin;
    return to;
}

/* Sets boxes, halos and their rooms in shared memory; row: bytes of a row of a
 * halo. */
static void place_boxes(const Shape90 &s, int row, WgradParams90 *p)
{
    const Sm90Boxes &boxes = s.boxes;
    p->boxes = boxes.count, p->splits = s.splits, p->grid = boxes.grid;
    p->works = s.tiles * s.splits, p->tiles = divisor(s.tiles);
    p->halos = s.halos, p->halo_h = boxes.halo_h, p->pitch = boxes.pitch;
    p->b_bytes = sm90_halo_bytes(&boxes, row);
    p->b_room = (int)ceil_div(p->b_bytes, 1024) * 1024;
    p->b_stride = (uint32_t)(p->pitch * row);
    p->b_leading = (uint32_t)row;
    p->row = (int)p->b_stride * sm90_planes(p->grid);
    if (s.halos > 1)
        p->b_leading = (uint32_t)p->b_room, p->row = s.columns * p->b_room;
    p->b_offset = s.pairs ? SM90_ROW / 2 : 0;
    memcpy(p->group, boxes.taps.group, sizeof p->group);
    p->b_classes = boxes.taps.source_classes;
}

bool wgrad_sm90_run(const ConvProblem *r, const Source &input,
                    const Source &output, float *dw, bool fresh, double *sqnorm,
                    void *workspace)
{
    Shape90 s;
    WgradParams90 p = {};
    const Dtype type = precision_copy(r->c->precision);
    if (!countable(r->c, rows(r->output))) return false;
    CHECK(shape_of(r, &s));
    const int row = s.thin ? 2 * THIN : SM90_ROW; // bytes of a row of the halo
    Source from = input;
    if (s.thin) {
        if (!pad_channels(r, input, THIN, workspace)) return false;
        from = {}, from.first.data = workspace;
        workspace = (char *)workspace + s.padded_bytes;
    }

    p.to = tiles_of(r, s, dw, fresh);
    if (s.stores)
        p.sqnorm = sqnorm;
    else
        p.parts = (float4 *)workspace;
    place_boxes(s, row, &p);
    const int room =
        s.a_chunks * s.lines * SM90_BOX_W * SM90_ROW + s.halos * p.b_room;
    p.buffers =
        (int)least(MOST_BUFFERS, (SM90_SHARED_MOST - SM90_BARRIERS) / room);
    const size_t shared = (size_t)(SM90_BARRIERS + p.buffers * room);

    p.a_norm[0] = output.first.norm_on_load;
    p.a_norm[1] = output.second.norm_on_load;
    p.b_norm[0] = from.first.norm_on_load;
    p.b_norm[1] = from.second.norm_on_load;
    const int one[3] = {1, 1, 1}, none[3] = {};
    for (int t = 0; t < 2; t++) {
        const Operand &a = t ? output.second : output.first;
        const Operand &b = t ? from.second : from.first;
        if (a.data &&
            !sm90_map(a.data, type, sm90_part(p.to.a_side, r->output, t), one,
                      none, p.grid, SM90_BOX_W, p.grid.box_h, &p.a[t],
                      &p.a_extent))
            return false;
        for (int k = 0; b.data && k < p.b_classes; k++) {
            Dims part = sm90_part(p.to.b_side, r->input, t);
            if (s.thin) part.c = THIN;
            if (!sm90_map(b.data, type, part, r->win.s, s.boxes.taps.residue[k],
                          p.grid, p.pitch, p.halo_h, &p.b[t * p.b_classes + k],
                          &p.b_extent[k], row / 2))
                return false;
        }
    }

    const double stored =
        s.stores ? (double)conv_filter_size(r) * sizeof(float) * (fresh ? 1 : 2)
                 : (double)s.splits * s.count * sizeof(float4);
    moves(conv_operand_bytes(r, numel(r->output) + numel(r->input)) + stored,
          conv_flops(r));
    const int blocks = (int)least(p.works, sm90_processors(r));
    const bool ok = type == BF16 ? launch<BF16>(r, s, p, blocks, shared)
                                 : launch<F16>(r, s, p, blocks, shared);
    return ok && (s.stores || fold(r, s, p, sqnorm));
}
