/* igemm_sm90_kernel.cuh -- the kernel of igemm_sm90.cuh and its launch. D:
 * BF16, F16, or F32 for tf32. */
#ifndef SEG_CUDA_CONV_IGEMM_SM90_KERNEL_H
#define SEG_CUDA_CONV_IGEMM_SM90_KERNEL_H
#include "cuda/conv/igemm_sm90.cuh"
#include "cuda/conv/sm90_norm.cuh"

template <Sm90Way WAY, Dtype D> struct Sm90Shape {
    enum {
        FILTERS = WAY == SM90_WIDE ? 2 : 1,
        SHARED = WAY == SM90_WIDE, // the warpgroups share a box
        PAIR = WAY == SM90_PAIR,
        // bytes of a row of a filter tile, products of a stage
        FILTER_ROW = PAIR ? 64 : SM90_ROW,
        PRODUCTS = PAIR ? 2 : 4,
        STAGE = FILTERS * 64 * FILTER_ROW, // bytes of a stage of filters
        // bytes to stage results; f32 is stored from registers
        ROOM = SHARED && D != F32 ? SM90_BOX * SM90_ROW : 0,
        READERS = SHARED ? 8 : 4, // warps that read a stage
        THREADS = 384,
    };
};

/* The tile of a block. */
struct Sm90Coord {
    int filter, slice, cls, box;
    Sm90Box at;
};

static __device__ __forceinline__ Sm90Coord sm90_coord(const IgemmSm90Params &p,
                                                       int tile)
{
    Sm90Coord s;
    uint32_t rest = (uint32_t)tile;
    s.filter = (int)split(&rest, p.filter_tiles);
    s.slice = (int)split(&rest, p.slices);
    s.cls = (int)split(&rest, p.classes);
    s.box = (int)rest;
    s.at = sm90_box_at(p.grid, rest);
    return s;
}

/* The halos of a tile: the chunks of each group of its class, or a slice of
 * them. */
struct Sm90Halos {
    int left, group, chunk;

    __device__ __forceinline__ void next(int chunks)
    {
        left--;
        if (++chunk == chunks) chunk = 0, group++;
    }
};

static __device__ __forceinline__ Sm90Halos sm90_halos(const IgemmSm90Params &p,
                                                       const Sm90Coord &s)
{
    const Sm90Class c = p.cls[s.cls];
    const uint32_t all = c.count * (uint32_t)p.from.chunks;
    const uint32_t first = quotient(all * (uint32_t)s.slice, p.slices);
    const uint32_t end = quotient(all * (uint32_t)(s.slice + 1), p.slices);
    const uint32_t group = quotient(first, p.chunks);
    return {(int)(end - first), c.first + (int)group,
            (int)(first - group * p.chunks.by)};
}

/* The 64 channels of the result that a warpgroup computes. */
template <class Shape>
static __device__ __forceinline__ int chunk_of(const Sm90Coord &at, int group)
{
    return at.filter * Shape::FILTERS + (Shape::FILTERS == 2 ? group : 0);
}

/* The thread that starts all copies: halos and filter stages, in the order in
 * which the multiplying warpgroups use them. Two rings, so it must sleep on
 * neither. */
template <class Shape, bool DGRAD>
static __device__ __forceinline__ void sm90_produce(
    const IgemmSm90Params &p, char *halos, char *filters, uint64_t *full,
    uint64_t *empty, uint64_t *filter_full, uint64_t *filter_empty)
{
    Sm90Ring halo = {0, 1}, stage = {0, 1}; // all buffers are free
    int ht = (int)blockIdx.x, ft = ht;
    Sm90Coord hs = sm90_coord(p, ht), fs = hs;
    Sm90Halos h = sm90_halos(p, hs), f = h;
    int tap = p.group[f.group].first;

    while (ht < p.tiles || ft < p.tiles) {
        if (ht < p.tiles && mbarrier_test(empty + halo.at, halo.phase)) {
            uint64_t *bar = full + halo.at;
            const Sm90Group g = p.group[h.group];
            const Sm90Chunk c = sm90_chunk(p.from, h.chunk);
            mbarrier_expect(bar, (uint32_t)p.halo_bytes);
            tma_load(halos + halo.at * p.halo_room,
                     &p.map[c.tensor * p.source_maps + g.map], c.channel,
                     hs.at.w + g.w, hs.at.d + g.d, hs.at.n, hs.at.h + g.h, bar);
            halo.next(p.buffers);
            h.next(p.from.chunks);
            if (!h.left && (ht += (int)gridDim.x) < p.tiles)
                hs = sm90_coord(p, ht), h = sm90_halos(p, hs);
        }
        if (ft < p.tiles &&
            mbarrier_test(filter_empty + stage.at, stage.phase)) {
            uint64_t *bar = filter_full + stage.at;
            char *to = filters + stage.at * Shape::STAGE;
            const int k = sm90_chunk(p.from, f.chunk).all;
            const int m = fs.filter * Shape::FILTERS;
            const int at = p.tap[tap].filter;
            mbarrier_expect(bar, Shape::STAGE);
            if (Shape::PAIR) {
                const int c = sm90_chunk(p.to, m).all, j = p.tap[tap].w;
#pragma unroll
                for (int i = 0; i < 2; i++) { // the positions of a pair
                    if (DGRAD)
                        tma_load(to + i * Shape::STAGE / 2, &p.filter, c,
                                 2 - j + i, at, k, 0, bar);
                    else
                        tma_load(to + i * Shape::STAGE / 2, &p.filter, k, j - i,
                                 at, c, 0, bar);
                }
            } else if (DGRAD) {
#pragma unroll
                for (int i = 0; i < Shape::FILTERS; i++)
                    tma_load(to + i * SM90_TILE, &p.filter,
                             sm90_chunk(p.to, m + i).all, at, k, 0, 0, bar);
            } else { // one tensor: the chunks of a tile are neighbours
                tma_load(to, &p.filter, k, at, m * SM90_CHANNELS, 0, 0, bar);
            }
            stage.next(p.slots);
            if (++tap == p.group[f.group].first + p.group[f.group].count) {
                f.next(p.from.chunks);
                if (!f.left) {
                    ft = p.resident ? p.tiles : ft + (int)gridDim.x;
                    if (ft < p.tiles)
                        fs = sm90_coord(p, ft), f = sm90_halos(p, fs);
                }
                if (ft < p.tiles) tap = p.group[f.group].first;
            }
        }
    }
}

/* The warps that apply the deferred norm to each halo, or in tf32 round it. */
template <Dtype D>
static __device__ __forceinline__ void sm90_transform_halos(
    const IgemmSm90Params &p, char *halos, uint64_t *full, uint64_t *ready)
{
    Sm90Ring r = {0, 0};
    for (int t = (int)blockIdx.x; t < p.tiles; t += (int)gridDim.x) {
        const Sm90Coord s = sm90_coord(p, t);
        for (Sm90Halos h = sm90_halos(p, s); h.left;
             h.next(p.from.chunks), r.next(p.buffers)) {
            char *tile = halos + r.at * p.halo_room;
            if constexpr (D == F32) {
                mbarrier_wait(full + r.at, r.phase);
                sm90_round_tile(tile, (uint32_t)p.halo_bytes);
            } else {
                const Sm90Group g = p.group[h.group];
                const Sm90Halo halo = sm90_halo(
                    s.at, p.grid, g, p.extent[g.map], p.halo_h, p.pitch);
                const Sm90Chunk chunk = sm90_chunk(p.from, h.chunk);
                mbarrier_wait(full + r.at, r.phase);
                sm90_norm_tile<D>(tile, halo, p.norm[chunk.tensor],
                                  chunk.channel, p.from, chunk.tensor);
            }
            sm90_norm_done(ready + r.at);
        }
    }
}

/* The destination of the sums of a tile: rows of the tile are `size` channels
 * from `first` on, below `end`, of one part or of two neighbouring ones. */
struct Sm90Sums {
    double *parts;
    int channels, first, end, size;
};

/* Stores the sums of n values of a row and of their squares, from sums about
 * `about`. */
static __device__ __forceinline__ void sm90_store_sums(const Sm90Sums &to,
                                                       int row, int n,
                                                       float about, float sum,
                                                       float square)
{
    const int c = to.first + row % to.size;
    if (c >= to.end) return;
    double *at = to.parts + row / to.size * 2 * to.channels + c;
    const double a = (double)about, s = (double)sum;
    at[0] = s + n * a;
    at[to.channels] = (double)square + 2 * a * s + n * a * a;
}

/* The positions of a box that are inside of the result, along each axis. */
static __device__ __forceinline__ Sm90Extent
sm90_inside(const Sm90Grid &g, const Sm90Extent &result, const Sm90Box &at)
{
    return {min(result.w - at.w, SM90_BOX_W), min(result.h - at.h, g.box_h),
            min(result.d - at.d, g.box_d), min(result.n - at.n, g.box_n)};
}

/* The sums of a box that is not all inside of the result, from the staged
 * values; by 128 threads. sums: 128 floats of shared memory. */
template <Dtype D>
static __device__ __forceinline__ void sm90_box_sums(
    const char *staged, const Sm90Grid &g, const Sm90Extent &inside, int count,
    int own, int barrier, float *sums, const Sm90Sums &to)
{
    const int row = own % 64, odd = own / 64;
    auto value = [&](int i) {
        const uint32_t at = (uint32_t)i * SM90_ROW + (uint32_t)row * 2;
        return unpack_pair<D>(*(const uint16_t *)(staged + swizzled_128(at))).x;
    };
    const float about = value(0);
    float sum = 0, square = 0;
#pragma unroll 4
    for (int i = odd; i < SM90_BOX; i += 2) {
        const Sm90Line l = sm90_line(g, i / SM90_BOX_W);
        if (i % SM90_BOX_W >= inside.w || l.h >= inside.h || l.d >= inside.d ||
            l.n >= inside.n)
            continue;
        const float x = value(i) - about;
        sum += x, square = fmaf(x, x, square);
    }
    if (odd) sums[row] = sum, sums[64 + row] = square;
    named_barrier(barrier, 128);
    if (!odd)
        sm90_store_sums(to, row, count, about, sum + sums[row],
                        square + sums[64 + row]);
}

/* Sets the accumulators of positions outside of the result to zero, so that
 * they add nothing to sums. */
static __device__ __forceinline__ void sm90_clear_outside(
    const Sm90Grid &g, const Sm90Extent &inside, float (&d)[SM90_BOX / 2],
    int own)
{
    static_assert((int)SM90_LINES == (int)WARP, "a lane for each line");
    const Sm90Line l = sm90_line(g, own % WARP);
    const uint32_t lines =
        __ballot_sync(~0u, l.h < inside.h && l.d < inside.d && l.n < inside.n);
    const int w = inside.w - own % 4 * 2; // positions of the thread and right
#pragma unroll
    for (int i = 0; i < SM90_LINES; i++) {
        const bool line = lines >> i & 1;
#pragma unroll
        for (int k = 0; k < 4; k++)
            if (!line || w <= k % 2) d[4 * i + k] = 0;
    }
}

/* By one thread: starts the copy of the operand of a deferred norm, the
 * positions and channels of a warpgroup's results, to `room`, which an earlier
 * store may still read. Returns without a copy if the sums need none. */
template <class Shape>
static __device__ __forceinline__ void sm90_load_norm_x(
    const IgemmSm90Params &p, int tile, int group, char *room, uint64_t *loaded)
{
    const Sm90Coord t = sm90_coord(p, opaque(tile));
    const Sm90Chunk c = sm90_chunk(p.to, chunk_of<Shape>(t, group));
    if (!p.grads[c.tensor].x) return;
    tma_store_wait_read<0>();
    mbarrier_expect(loaded, SM90_BOX * SM90_ROW);
    tma_load(room, &p.map[p.norm_map + c.tensor * p.result_maps + t.cls],
             c.channel, t.at.w, t.at.d, t.at.n, t.at.h, loaded);
}

/* Calls put(at, d[i], r) for the accumulators d of a warpgroup whose position
 * is inside of the result, r = 0 or 1 the row of D, of two, that a thread
 * holds. `to` is the thread's channel of position 0 of an f32 tensor of
 * `channels` channels, of which `left` begin there. A put of a warp stores 8
 * neighbouring channels, a sector, of four positions. */
template <class Put>
static __device__ __forceinline__ void sm90_each_result(
    const IgemmSm90Params &p, float (&d)[SM90_BOX / 2], const Sm90Coord &t,
    int own, float *to, int channels, int left, const Put &put)
{
    const int *s = p.stride, *rest = p.residue[t.cls];
    const Sm90Extent &all = p.result;
    const Sm90Extent inside = sm90_inside(p.grid, all, t.at);
    const int64_t pitch = (int64_t)channels * s[2];
#pragma unroll
    for (int i = 0; i < SM90_LINES; i++) {
        const Sm90Line l = sm90_line(p.grid, i);
        if (l.h >= inside.h || l.d >= inside.d || l.n >= inside.n) continue;
        const int plane =
            (t.at.n + l.n) * all.d * s[0] + (t.at.d + l.d) * s[0] + rest[0];
        const int row = plane * all.h * s[1] + (t.at.h + l.h) * s[1] + rest[1];
#pragma unroll
        for (int k = 0; k < 2; k++) {
            const int w = own % 4 * 2 + k;
            if (w >= inside.w) continue;
            float *at = to + (int64_t)row * all.w * pitch +
                        (t.at.w + w) * pitch + (int64_t)rest[2] * channels;
            if (left > 0) put(at, d[4 * i + k], 0);
            if (left > 8) put(at + 8, d[4 * i + 2 + k], 1);
        }
    }
}

/* Stores the accumulators of a warpgroup in f32: as partial sums of split-K, or
 * as the result, with the bias, perhaps added to its content. */
template <Dtype D>
static __device__ __forceinline__ void sm90_store_f32(const IgemmSm90Params &p,
                                                      float (&d)[SM90_BOX / 2],
                                                      const Sm90Coord &t,
                                                      int chunk, int own)
{
    const Sm90Chunk to = sm90_chunk(p.to, chunk);
    const int line = own / WARP * 16 + own % WARP / 4; // and + 8: channels
    const int left = p.to.channels[to.tensor] - to.channel - line;
    float bias[2] = {};
    int channels = p.channels;
    float *first;
    if (D == F32 && !p.parts) {
        if (p.skips[to.tensor]) return;
        channels = p.to.channels[to.tensor];
        first = p.y[to.tensor] + to.channel + line;
        if (p.bias)
#pragma unroll
            for (int r = 0; r < 2; r++)
                if (left > 8 * r)
                    bias[r] = p.bias[(to.all + line + 8 * r) % p.channels];
        if (p.adds[to.tensor]) // all loads before the first store
            sm90_each_result(p, d, t, own, first, channels, left,
                             [](float *at, float &x, int) { x += *at; });
    } else {
        const int *s = p.stride;
        const Sm90Extent &all = p.result;
        first = p.parts + to.all + line +
                (int64_t)t.slice * all.n * all.d * s[0] * all.h * s[1] * all.w *
                    s[2] * channels;
    }
    sm90_each_result(
        p, d, t, own, first, channels, left,
        [&](float *at, float &x, int r) { *at = D == F32 ? x + bias[r] : x; });
}

/* Stores or adds the results of tile t by TMA from `room`, in 16 bits. The
 * accumulators d take the registers, so coordinates and addresses are computed
 * anew. box_sums: 128 floats of the warpgroup; loaded: the barrier of its norm
 * operand, of which *loads were loaded. */
template <class Shape, Dtype D, Sm90SumsOf SUMS>
static __device__ __forceinline__ void sm90_store_16(
    const IgemmSm90Params &p, float (&d)[SM90_BOX / 2], int t, int group,
    int own, char *room, float *box_sums, uint64_t *loaded, uint32_t *loads)
{
    enum { GRADS = SUMS == SM90_GRAD_SUMS };
    const int warp = own / WARP, lane = own % WARP;
    char *row = room + (lane / 16 * 8 + lane % 8) * SM90_ROW +
                ((warp * 2 + lane / 8 % 2) ^ lane % 8) * 16;
    const int line = warp * 16 + lane / 4; // and + 8: channels
    float bias[2] = {};
    if (!GRADS && p.bias) {
        const int chunk = chunk_of<Shape>(sm90_coord(p, opaque(t)), group);
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const int channel = chunk * p.to.size + (line + 8 * r) % p.to.size;
            if (channel < p.channels) bias[r] = p.bias[channel];
        }
    }

    // sums of the stored values about the first one, or gradient sums
    float first[2] = {}, sum[2] = {}, square[2] = {};
    if (SUMS == SM90_Y_SUMS)
#pragma unroll
        for (int r = 0; r < 2; r++)
            first[r] = __shfl_sync(0xffffffffu, rounded<D>(d[2 * r] + bias[r]),
                                   lane & ~3);
    if (Shape::SHARED && own == 0) tma_store_wait_read<0>();
    named_barrier(1 + group, 128);

    bool norm_x = false; // `room` has the norm's operand
    float4 by[2] = {};
    if (GRADS) {
        if (!Shape::SHARED && own == 0)
            sm90_load_norm_x<Shape>(p, t, group, room, loaded);
        const Sm90Coord tile = sm90_coord(p, opaque(t));
        const Sm90Chunk of = sm90_chunk(p.to, chunk_of<Shape>(tile, group));
        const GradSums &grads = p.grads[of.tensor];
        const Sm90Extent inside = sm90_inside(p.grid, p.result, tile.at);
        norm_x = grads.x;
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const int c = of.channel + (line + 8 * r) % p.to.size;
            if (c < p.to.channels[of.tensor])
                by[r] = grad_sums_channel(grads, c);
        }
        if (inside.w * inside.h * inside.d * inside.n < SM90_BOX)
            sm90_clear_outside(p.grid, inside, d, own);
        if (norm_x) mbarrier_wait(loaded, (*loads)++ & 1);
    }
#pragma unroll
    for (int i = 0; i < SM90_BOX / 16; i++) {
        // channels lane / 4 and + 8, of two lines: of the norm's operand, then
        // of the result
        uint32_t v[4] = {};
        if (norm_x) ldmatrix_x4_trans(v, row + i * 16 * SM90_ROW);
#pragma unroll
        for (int k = 0; k < 4; k++) {
            const float2 operand = unpack_pair<D>(v[k]);
            const float *from = d + i * 8 + k * 2, b = bias[k % 2];
            v[k] = GRADS ? pack_pair<D>(from[0], from[1]) // no bias
                         : pack_pair<D>(from[0] + b, from[1] + b);
            if (SUMS == SM90_NO_SUMS) continue;
            const float2 x = unpack_pair<D>(v[k]);
            if (GRADS) {
                float *s = sum + k % 2, *sx = square + k % 2;
                grad_sums_add(by[k % 2], operand.x, x.x, s, sx);
                grad_sums_add(by[k % 2], operand.y, x.y, s, sx);
                continue;
            }
            const float x0 = x.x - first[k % 2], x1 = x.y - first[k % 2];
            sum[k % 2] += x0 + x1;
            square[k % 2] = fmaf(x0, x0, square[k % 2]);
            square[k % 2] = fmaf(x1, x1, square[k % 2]);
        }
        stmatrix_x4_trans(row + i * 16 * SM90_ROW, v);
    }
    fence_async_shared();
    named_barrier(1 + group, 128);

    const Sm90Coord tile = sm90_coord(p, opaque(t));
    const int chunk = chunk_of<Shape>(tile, group);
    const Sm90Chunk into = sm90_chunk(p.to, chunk);
    if (own == 0 && !p.skips[into.tensor]) {
        const TensorMap *map =
            &p.map[p.result_map + into.tensor * p.result_maps + tile.cls];
        if (p.adds[into.tensor])
            tma_reduce_add(map, room, into.channel, tile.at.w, tile.at.d,
                           tile.at.n, tile.at.h);
        else
            tma_store(map, room, into.channel, tile.at.w, tile.at.d, tile.at.n,
                      tile.at.h);
        tma_store_commit();
    }
    if (SUMS != SM90_NO_SUMS) {
        const Sm90Extent inside = sm90_inside(p.grid, p.result, tile.at);
        const int count = inside.w * inside.h * inside.d * inside.n;
        // a box of pairs has a part for either position of a pair
        const int part =
            (tile.box * (int)p.classes.by + tile.cls) * (Shape::PAIR ? 2 : 1);
        const Sm90Sums to = {
            p.sums + (int64_t)part * 2 * p.channels, p.channels, into.all,
            into.tensor ? p.channels : p.to.channels[0], p.to.size};
        if (!GRADS && count < SM90_BOX)
            sm90_box_sums<D>(room, p.grid, inside, count, own, 1 + group,
                             box_sums, to);
        else
#pragma unroll
            for (int r = 0; r < 2; r++) {
                const float s = quad_sum(sum[r]), q = quad_sum(square[r]);
                if (lane % 4 == 0)
                    sm90_store_sums(to, line + 8 * r, SM90_BOX, first[r], s, q);
            }
    }
}

template <Sm90Way WAY, Dtype D, bool DGRAD, Sm90SumsOf SUMS>
__global__ void __launch_bounds__(384, 1)
    igemm_sm90_kernel(const __grid_constant__ IgemmSm90Params p)
{
    typedef Sm90Shape<WAY, D> Shape;
    enum { SHARED = Shape::SHARED, GRADS = SUMS == SM90_GRAD_SUMS };
    DYN_SMEM_1024(uint64_t, full);
    uint64_t *ready = full + SM90_BUFFERS, *empty = ready + SM90_BUFFERS;
    uint64_t *filter_full = empty + SM90_BUFFERS,
             *filter_empty = filter_full + SM90_SLOTS,
             *multiplied = filter_empty + SM90_SLOTS, // by each warpgroup
                 *loaded = multiplied + 2;            // norm operand of each
    float *box_sums = (float *)((char *)full + SM90_BARRIERS);
    char *staging = (char *)full + SM90_BARRIERS + SM90_BOX_SUMS;
    char *halos = staging + 2 * Shape::ROOM;
    char *filters = halos + p.buffers * p.halo_room;
    // gradients have no deferred norm
    const bool transforms =
        D == F32 || (!GRADS && (p.norm[0].table || p.norm[1].table));

    if (threadIdx.x == 0) {
        for (int i = 0; i < p.buffers; i++) {
            mbarrier_init(full + i, 1);
            mbarrier_init(ready + i, SM90_NORM_WARPS);
            mbarrier_init(empty + i, Shape::READERS);
        }
        for (int i = 0; i < p.slots; i++) {
            mbarrier_init(filter_full + i, 1);
            mbarrier_init(filter_empty + i, Shape::READERS);
        }
        for (int i = 0; i < 2; i++) {
            mbarrier_init(multiplied + i, 4);
            mbarrier_init(loaded + i, 1);
        }
        fence_async_shared();
    }
    grid_dependency_wait();
    __syncthreads();

    const int group = (int)(threadIdx.x / 128) - 1;
    const int own = (int)(threadIdx.x % 128);
    if (group < 0) {
        setmaxnreg_dec<GRADS ? 56 : 80>();
        if (threadIdx.x == 0)
            sm90_produce<Shape, DGRAD>(p, halos, filters, full, empty,
                                       filter_full, filter_empty);
        else if (transforms && threadIdx.x >= WARP)
            sm90_transform_halos<D>(p, halos, full, ready);
        return;
    }

    setmaxnreg_inc<GRADS ? 224 : 208>();
    uint64_t *seen = transforms ? ready : full;
    // in a filter tile of pairs, MN-major, the second 32 rows begin after 32
    // rows of 64 bytes; K-major they follow
    const uint64_t a0 = wgmma_descriptor(
        filters + (Shape::FILTERS == 2 ? group * SM90_TILE : 0),
        Shape::STAGE / 2, 8 * Shape::FILTER_ROW,
        Shape::PAIR ? SWIZZLE_64 : SWIZZLE_128);
    const uint64_t b0 =
        wgmma_descriptor(halos, 16, (uint32_t)p.pitch * SM90_ROW, SWIZZLE_128);
    Sm90Ring halo = {0, 0}, stage = {0, 0};
    uint32_t loads = 0; // norm operands loaded
    // taking turns: a warpgroup multiplies once the other has multiplied its
    // box. Else it could wait for a phase of a ring before the phase ahead of
    // it has ended, which a wait by parity takes for the end of its own
    for (int turn = 0;; turn++) { // boxes of this block
        const int t = (int)blockIdx.x + turn * (int)gridDim.x;
        if (t >= p.tiles) break;
        Sm90Halos h = sm90_halos(p, sm90_coord(p, t));
        if (!SHARED && turn % 2 != group) { // the other warpgroup's box
            for (; h.left; h.next(p.from.chunks)) {
                halo.next(p.buffers);
                for (int s = 0; s < p.group[h.group].count; s++)
                    stage.next(p.slots);
            }
            mbarrier_wait(multiplied + !group, (uint32_t)turn / 2 % 2);
            continue;
        }

        float d[SM90_BOX / 2];
        int last_halo = -1, last_stage = -1; // read by products in flight
        for (; h.left; h.next(p.from.chunks), halo.next(p.buffers)) {
            const int first = p.group[h.group].first;
            const int taps = p.group[h.group].count;
            mbarrier_wait(seen + halo.at, halo.phase);
            const uint64_t b1 =
                wgmma_advance(b0, (uint32_t)(halo.at * p.halo_room));
            for (int s = 0; s < taps; s++, stage.next(p.slots)) {
                mbarrier_wait(filter_full + stage.at,
                              p.resident ? 0 : stage.phase);
                const uint64_t a =
                    wgmma_advance(a0, (uint32_t)(stage.at * Shape::STAGE));
                const uint64_t b = b1 + p.tap[first + s].offset;
                wgmma_fence();
#pragma unroll
                for (int q = 0; q < Shape::PRODUCTS; q++)
                    WgmmaProduct<SM90_BOX, D, DGRAD, false>::issue(
                        d,
                        wgmma_advance(
                            a, q * (DGRAD ? 16 * Shape::FILTER_ROW : 32)),
                        wgmma_advance(b, q * 32), (last_stage >= 0) | (q > 0));
                wgmma_commit();
                if (GRADS && SHARED && own == 0 && last_stage < 0)
                    sm90_load_norm_x<Shape>(p, t, group,
                                            staging + group * Shape::ROOM,
                                            loaded + group);
                wgmma_wait<1>();
                if (own % WARP == 0) {
                    if (last_stage >= 0 && !p.resident)
                        mbarrier_arrive(filter_empty + last_stage, 1);
                    if (last_halo >= 0 && s == 0)
                        mbarrier_arrive(empty + last_halo, 1);
                }
                last_stage = stage.at;
            }
            last_halo = halo.at;
        }
        wgmma_wait<0>();
        // from registers to memory; else by TMA from shared memory
        const bool direct = D == F32 || (SUMS == SM90_NO_SUMS && !Shape::PAIR &&
                                         p.parts != NULL);
        if (own % WARP == 0) {
            if (!p.resident) mbarrier_arrive(filter_empty + last_stage, 1);
            if (SHARED || direct) mbarrier_arrive(empty + last_halo, 1);
            if (!SHARED) mbarrier_arrive(multiplied + group, 1);
        }

        if (direct) {
            const Sm90Coord tile = sm90_coord(p, opaque(t));
            const int chunk = chunk_of<Shape>(tile, group);
            sm90_store_f32<D>(p, d, tile, chunk, own);
            continue;
        }
        // results are staged in the last halo if there is no staging memory
        if constexpr (D != F32) {
            char *room = SHARED ? staging + group * Shape::ROOM
                                : halos + last_halo * p.halo_room;
            sm90_store_16<Shape, D, SUMS>(p, d, t, group, own, room,
                                          box_sums + group * 128,
                                          loaded + group, &loads);
        }
        if (!SHARED && own == 0) {
            tma_store_wait_read<0>();
            mbarrier_arrive(empty + last_halo, Shape::READERS);
        }
    }
    if (own == 0) tma_store_wait<0>();
}
template <Sm90Way WAY, Dtype D, bool DGRAD, Sm90SumsOf SUMS>
static bool igemm_sm90_queue(const ConvProblem *r, const IgemmSm90Params &p,
                             int blocks)
{
    typedef Sm90Shape<WAY, D> Shape;
    const size_t shared =
        (size_t)(SM90_BARRIERS + SM90_BOX_SUMS + 2 * Shape::ROOM +
                 p.buffers * p.halo_room + p.slots * Shape::STAGE);
    const auto kernel = igemm_sm90_kernel<WAY, D, DGRAD, SUMS>;
    if (!gpu_allows(kernel, SM90_SHARED_MOST)) return false;
    LAUNCH_DEPENDENT((igemm_sm90_kernel<WAY, D, DGRAD, SUMS>), (unsigned)blocks,
                     Shape::THREADS, shared, gpu_stream(r->c->dev), p);
    return gpu_launched("igemm_sm90");
}
#endif
