/* attention.cu -- attention by tiles; see ops.def.
 *
 * The scores of all pairs of positions are never in memory. A block of 256
 * threads has 64 positions of one head and loops over tiles of 64 other
 * positions: a tile of scores as a product over channels, the online softmax
 * (maximum and sum of each row; earlier results are rescaled when the maximum
 * changes), a product with up to 64 channels of the values. A head with more
 * channels has several blocks, each of which computes the scores again.
 * Backward computes the scores again from the saved logarithms, once for the
 * rows of dq and once for the rows of dk and dv, so that no two blocks add to
 * one element.
 *
 * A thread has 4 x 4 elements of a tile in registers: two loads of 16 bytes
 * from shared memory for 16 multiply-adds. Shared memory: 16 KB for the
 * operands of a product, 17 KB for scores. Bound by arithmetic, 4 P^2 E
 * multiply-adds forward and 10 backward; all in f32.
 *
 * A chain of additions covers one tile; then the sums of tiles are added. */
#include "cuda/lib/thread_group.cuh"
#include "cuda/ops/length.cuh"
extern "C" {
#include "engine/graph/attention_dropout.h"
}

namespace {

enum {
    TILE = 64,  // positions, and channels of a result
    DEEP = 32,  // channels of a product in shared memory at a time
    PITCH = 68, // floats between rows of scores: no bank conflicts, aligned
    SIDE = 4,   // of the part of a tile that a thread has
    LANES = TILE / SIDE, // threads along a side: half a warp
};

struct Attend {
    const float *x, *y, *dy, *lengths;
    float *out, *logs, *means; // out: y; backward dx
    const Step *step;
    int positions, width, heads, depth, node; // P, E, D = E / heads
    int tiles, slices;                        // of positions, of channels
    float scale, p, factor;
    bool drops, fresh;
};

/* The work of a block. */
struct Slot {
    int64_t n;
    int head, count;             // count: valid positions
    int first, slice;            // its first position and first channel
    const float *q, *k, *v, *dy; // rows are 3 E apart, for dy E
    int64_t line;                // of position 0 in logs and means
    Rng rng;
};

__device__ __forceinline__ Slot slot_of(const Attend &p)
{
    Slot b;
    unsigned i = blockIdx.x;
    b.slice = (int)(i % (unsigned)p.slices) * TILE, i /= (unsigned)p.slices;
    b.first = (int)(i % (unsigned)p.tiles) * TILE, i /= (unsigned)p.tiles;
    b.head = (int)(i % (unsigned)p.heads), b.n = i / (unsigned)p.heads;
    b.count = own_count(p.lengths, b.n, p.positions);
    b.q = p.x + b.n * p.positions * 3 * p.width + b.head * p.depth;
    b.k = b.q + p.width, b.v = b.k + p.width;
    b.dy = p.dy + b.n * p.positions * p.width + b.head * p.depth;
    b.line = (b.n * p.heads + b.head) * p.positions;
    b.rng = attend_rng(p.step->seed, p.step->count, p.node,
                       b.n + p.step->shard.first, p.heads, b.head);
    return b;
}

/* Rows of x from `first` on; rows at or beyond `end` are 0. */
struct Rows {
    const float *x;
    int64_t ld;
    int first, end;
};

/* to[channel][row], DEEP by TILE: for products over channels. */
__device__ __forceinline__ void fetch_transposed(const Rows &r, int from,
                                                 int depth, float (*to)[TILE])
{
    for (int i = (int)threadIdx.x; i < DEEP * TILE; i += BLOCK) {
        const int d = i % DEEP, row = i / DEEP;
        const bool has = r.first + row < r.end && from + d < depth;
        to[d][row] = has ? r.x[(r.first + row) * r.ld + from + d] : 0;
    }
}

/* to[row][channel], TILE by TILE: for products over rows. */
__device__ __forceinline__ void fetch_plain(const Rows &r, int from, int depth,
                                            float (*to)[TILE])
{
    for (int i = (int)threadIdx.x; i < TILE * TILE; i += BLOCK) {
        const int d = i % TILE, row = i / TILE;
        const bool has = r.first + row < r.end && from + d < depth;
        to[row][d] = has ? r.x[(r.first + row) * r.ld + from + d] : 0;
    }
}

/* acc[i][j] += u[i] v[j]. */
__device__ __forceinline__ void outer(const float *u, const float *v,
                                      float (&acc)[SIDE][SIDE])
{
    const float4 a = *(const float4 *)u, b = *(const float4 *)v;
    const float x[SIDE] = {a.x, a.y, a.z, a.w}, y[SIDE] = {b.x, b.y, b.z, b.w};
#pragma unroll
    for (int i = 0; i < SIDE; i++)
#pragma unroll
        for (int j = 0; j < SIDE; j++) acc[i][j] = fmaf(x[i], y[j], acc[i][j]);
}

/* The position of the thread in a tile. */
__device__ __forceinline__ int row_at()
{
    return (int)threadIdx.x / LANES * SIDE;
}

__device__ __forceinline__ int column_at()
{
    return (int)threadIdx.x % LANES * SIDE;
}

/* acc[i][j] = the dot product of row i of a and row j of b over all channels of
 * the head. room: 2 DEEP by TILE floats of shared memory, for use during the
 * call only. */
__device__ __forceinline__ void scores(const Rows &a, const Rows &b, int depth,
                                       float (*room)[TILE],
                                       float (&acc)[SIDE][SIDE])
{
    for (int i = 0; i < SIDE; i++)
        for (int j = 0; j < SIDE; j++) acc[i][j] = 0;

    for (int from = 0; from < depth; from += DEEP) {
        __syncthreads();
        fetch_transposed(a, from, depth, room);
        fetch_transposed(b, from, depth, room + DEEP);
        __syncthreads();
        const int deep = min((int)DEEP, depth - from);
        for (int d = 0; d < deep; d++)
            outer(&room[d][row_at()], &room[DEEP + d][column_at()], acc);
    }
    __syncthreads();
}

/* to[j][i] = v[i][j]: transposed, so that a product over j reads rows. */
__device__ __forceinline__ void keep(const float (&v)[SIDE][SIDE],
                                     float (*to)[PITCH])
{
    for (int j = 0; j < SIDE; j++)
        *(float4 *)&to[column_at() + j][row_at()] =
            make_float4(v[0][j], v[1][j], v[2][j], v[3][j]);
}

/* sum[i][j] += sum over rows r of the tile of kept[r][i] values[r][j]. */
__device__ __forceinline__ void weigh(const float (*kept)[PITCH],
                                      const float (*values)[TILE],
                                      float (&sum)[SIDE][SIDE])
{
    float acc[SIDE][SIDE] = {};
#pragma unroll 8
    for (int r = 0; r < TILE; r++)
        outer(&kept[r][row_at()], &values[r][column_at()], acc);
    for (int i = 0; i < SIDE; i++)
        for (int j = 0; j < SIDE; j++) sum[i][j] += acc[i][j];
}

/* The dropout factors of query p and keys j .. j+3, j a multiple of 4. */
__device__ __forceinline__ void factors(const Attend &p, const Slot &b,
                                        int query, int key, float (&m)[SIDE])
{
    static_assert((int)SIDE == (int)ATTEND_DRAWS, "a thread has whole draws");
    float draw[ATTEND_DRAWS];
    attend_draw(&b.rng, (uint32_t)query, (uint32_t)key / ATTEND_DRAWS, draw);
    for (int i = 0; i < SIDE; i++) m[i] = draw[i] >= p.p ? p.factor : 0;
}

/* Sum and maximum over the half warp that has a row. */
__device__ __forceinline__ float row_sum(float v)
{
    for (int by = LANES / 2; by > 0; by /= 2) v += __shfl_xor_sync(~0u, v, by);
    return v;
}

__device__ __forceinline__ float row_max(float v)
{
    for (int by = LANES / 2; by > 0; by /= 2)
        v = fmaxf(v, __shfl_xor_sync(~0u, v, by));
    return v;
}

/* Stores the block's rows of a result, channels of its slice: to + row * ld.
 * Rows beyond the sample's length are 0. */
__device__ __forceinline__ void store(const Attend &p, const Slot &b,
                                      const float (&v)[SIDE][SIDE], float *to,
                                      int64_t ld, bool fresh)
{
    for (int i = 0; i < SIDE; i++) {
        const int row = b.first + row_at() + i;
        for (int j = 0; j < SIDE && row < p.positions; j++) {
            const int d = b.slice + column_at() + j;
            if (d < p.depth)
                put(&to[row * ld + d], row < b.count ? v[i][j] : 0, fresh);
        }
    }
}

__global__ void __launch_bounds__(BLOCK)
    attention_fwd_kernel(const __grid_constant__ Attend p)
{
    SMEM(float, room, [TILE][TILE]);
    SMEM(float, kept, [TILE][PITCH]);
    const Slot b = slot_of(p);
    const int64_t ld = 3 * p.width;
    float sum[SIDE][SIDE] = {}, most[SIDE], all[SIDE] = {};
    for (int i = 0; i < SIDE; i++) most[i] = -INFINITY;
    const int end = b.first < b.count ? b.count : 0;

    for (int j0 = 0; j0 < end; j0 += TILE) {
        float s[SIDE][SIDE];
        scores({b.q, ld, b.first, b.count}, {b.k, ld, j0, b.count}, p.depth,
               room, s);
        for (int i = 0; i < SIDE; i++) {
            float peak = -INFINITY, total = 0;
            for (int j = 0; j < SIDE; j++) {
                const bool has = j0 + column_at() + j < b.count;
                s[i][j] = has ? s[i][j] * p.scale : -INFINITY;
                peak = fmaxf(peak, s[i][j]);
            }
            peak = fmaxf(most[i], row_max(peak));
            for (int j = 0; j < SIDE; j++) {
                s[i][j] = expf(s[i][j] - peak);
                total += s[i][j];
            }
            const float factor = expf(most[i] - peak);
            all[i] = all[i] * factor + row_sum(total);
            most[i] = peak;
            for (int j = 0; j < SIDE; j++) sum[i][j] *= factor;
            if (!p.drops) continue;
            float m[SIDE];
            factors(p, b, b.first + row_at() + i, j0 + column_at(), m);
            for (int j = 0; j < SIDE; j++) s[i][j] *= m[j];
        }
        keep(s, kept);
        fetch_plain({b.v, ld, j0, b.count}, b.slice, p.depth, room);
        __syncthreads();
        weigh(kept, room, sum);
        __syncthreads();
    }

    for (int i = 0; i < SIDE; i++) {
        const int row = b.first + row_at() + i;
        for (int j = 0; j < SIDE; j++) sum[i][j] /= all[i];
        if (p.logs && row < b.count && b.slice == 0 && column_at() == 0)
            p.logs[b.line + row] = most[i] + logf(all[i]);
    }

    store(p, b, sum, p.out + b.n * p.positions * p.width + b.head * p.depth,
          p.width, true);
}

/* means[n][head][p] = dy[p] y[p]: one warp each. */
__global__ void __launch_bounds__(BLOCK)
    attention_bwd_dots_kernel(const __grid_constant__ Attend p, int64_t lines)
{
    const int lane = (int)threadIdx.x % WARP;
    const int64_t warps = (int64_t)gridDim.x * (BLOCK / WARP);

    for (int64_t i = blockIdx.x * (int64_t)(BLOCK / WARP) + threadIdx.x / WARP;
         i < lines; i += warps) {
        const int64_t row = i % p.positions, head = i / p.positions;
        const int64_t at = (head / p.heads * p.positions + row) * p.width +
                           head % p.heads * p.depth;
        Chain sum = {};
        for (int d = lane; d < p.depth; d += WARP)
            chain_add(&sum, p.y[at + d] * p.dy[at + d]);
        const float all = warp_sum(chain_total(sum));
        if (lane == 0) p.means[i] = all;
    }
}

/* For 4 by 4 pairs of query and key: the scores s become the weights a, and da,
 * the gradients of the weights, become ds, the gradients of the scores.
 * Logarithm and mean belong to the query: row i, or column j if `keys`. Pairs
 * with a position beyond the length become 0. */
__device__ __forceinline__ void grads(const Attend &p, const Slot &b, int row,
                                      int column, bool keys,
                                      float (&s)[SIDE][SIDE],
                                      float (&da)[SIDE][SIDE])
{
    for (int i = 0; i < SIDE; i++)
        for (int j = 0; j < SIDE; j++) {
            const int query = keys ? column + j : row + i;
            if (row + i >= b.count || column + j >= b.count) {
                s[i][j] = da[i][j] = 0;
                continue;
            }
            const float a = expf(s[i][j] * p.scale - p.logs[b.line + query]);
            da[i][j] = a * (da[i][j] - p.means[b.line + query]) * p.scale;
            s[i][j] = a;
        }
}

/* Backward: dq of the block's positions. */
__global__ void __launch_bounds__(BLOCK)
    attention_bwd_dq_kernel(const __grid_constant__ Attend p)
{
    SMEM(float, room, [TILE][TILE]);
    SMEM(float, kept, [TILE][PITCH]);
    const Slot b = slot_of(p);
    const int64_t ld = 3 * p.width;
    float sum[SIDE][SIDE] = {};
    const int end = b.first < b.count ? b.count : 0;

    for (int j0 = 0; j0 < end; j0 += TILE) {
        float s[SIDE][SIDE], da[SIDE][SIDE];
        scores({b.q, ld, b.first, b.count}, {b.k, ld, j0, b.count}, p.depth,
               room, s);
        scores({b.dy, p.width, b.first, b.count}, {b.v, ld, j0, b.count},
               p.depth, room, da);
        for (int i = 0; p.drops && i < SIDE; i++) {
            float m[SIDE];
            factors(p, b, b.first + row_at() + i, j0 + column_at(), m);
            for (int j = 0; j < SIDE; j++) da[i][j] *= m[j];
        }
        grads(p, b, b.first + row_at(), j0 + column_at(), false, s, da);
        keep(da, kept);
        fetch_plain({b.k, ld, j0, b.count}, b.slice, p.depth, room);
        __syncthreads();
        weigh(kept, room, sum);
        __syncthreads();
    }

    store(p, b, sum, p.out + b.n * p.positions * ld + b.head * p.depth, ld,
          p.fresh);
}

/* Backward: dk and dv of the block's positions; the tiles are of queries. */
__global__ void __launch_bounds__(BLOCK)
    attention_bwd_dk_dv_kernel(const __grid_constant__ Attend p)
{
    SMEM(float, room, [TILE][TILE]);
    SMEM(float, kept, [TILE][PITCH]);
    const Slot b = slot_of(p);
    const int64_t ld = 3 * p.width;
    float dk[SIDE][SIDE] = {}, dv[SIDE][SIDE] = {};
    const int end = b.first < b.count ? b.count : 0;

    for (int j0 = 0; j0 < end; j0 += TILE) {
        float s[SIDE][SIDE], da[SIDE][SIDE], m[SIDE][SIDE];
        scores({b.k, ld, b.first, b.count}, {b.q, ld, j0, b.count}, p.depth,
               room, s);
        scores({b.v, ld, b.first, b.count}, {b.dy, p.width, j0, b.count},
               p.depth, room, da);
        // rows are four keys that share their draws, columns are queries
        for (int j = 0; p.drops && j < SIDE; j++) {
            factors(p, b, j0 + column_at() + j, b.first + row_at(), m[j]);
            for (int i = 0; i < SIDE; i++) da[i][j] *= m[j][i];
        }
        grads(p, b, b.first + row_at(), j0 + column_at(), true, s, da);
        for (int j = 0; p.drops && j < SIDE; j++)
            for (int i = 0; i < SIDE; i++) s[i][j] *= m[j][i];
        keep(da, kept);
        fetch_plain({b.q, ld, j0, b.count}, b.slice, p.depth, room);
        __syncthreads();
        weigh(kept, room, dk);
        __syncthreads();
        keep(s, kept);
        fetch_plain({b.dy, p.width, j0, b.count}, b.slice, p.depth, room);
        __syncthreads();
        weigh(kept, room, dv);
        __syncthreads();
    }

    float *to = p.out + b.n * p.positions * ld + b.head * p.depth;
    store(p, b, dk, to + p.width, ld, p.fresh);
    store(p, b, dv, to + 2 * p.width, ld, p.fresh);
}

int64_t lines_of(const Call *c)
{
    const Dims s = c->y->dim;
    return (int64_t)s.n * c->attr->attention.heads * positions(s);
}

Attend attend_of(const Call *c)
{
    const Dims s = c->y->dim;
    Attend p = {};
    p.x = values(c->x[0]), p.y = values(c->y), p.dy = values(c->dy);
    p.lengths = values(c->x[1]);
    p.logs = (float *)c->saved, p.means = (float *)c->scratch;
    p.step = gpu_step(c->dev), p.node = c->node;
    p.positions = (int)positions(s), p.width = s.c;
    p.heads = c->attr->attention.heads, p.depth = s.c / p.heads;
    p.tiles = (int)ceil_div(p.positions, TILE);
    p.slices = (int)ceil_div(p.depth, TILE);
    p.scale = (float)(1 / sqrt((double)p.depth));
    p.p = c->attr->attention.p;
    p.factor = p.p < 1 ? (float)(1 / (1 - (double)p.p)) : 0;
    p.drops = c->train && p.p > 0;
    p.fresh = is_fresh(c, 0);
    return p;
}

int64_t blocks_of(const Call *c, const Attend &p)
{
    return (int64_t)c->y->dim.n * p.heads * p.tiles * p.slices;
}

} // namespace

extern "C" {

Space cuda_attention_space(const Call *c)
{
    Space s = {};
    s.bwd = (size_t)lines_of(c) * sizeof(float);
    if (c->dy) s.saved = s.bwd;
    return s;
}

bool cuda_attention_fwd(const Call *c)
{
    Attend p = attend_of(c);
    p.out = values(c->y);
    if (!countable(c, rows(c->y->dim)) || !countable(c, blocks_of(c, p)))
        return false;
    LAUNCH(attention_fwd_kernel, (unsigned)blocks_of(c, p), BLOCK, 0,
           gpu_stream(c->dev), p);
    return gpu_launched("attention");
}

bool cuda_attention_bwd(const Call *c)
{
    Attend p = attend_of(c);
    const unsigned blocks = (unsigned)blocks_of(c, p);
    const int64_t lines = lines_of(c);
    cudaStream_t stream = gpu_stream(c->dev);

    p.out = values(c->dx[0]);
    if (!p.out) return true;
    if (!countable(c, rows(c->y->dim)) || !countable(c, blocks_of(c, p)))
        return false;
    LAUNCH(attention_bwd_dots_kernel, blocks_for(lines * WARP), BLOCK, 0,
           stream, p, lines);
    if (!gpu_launched("attention, means")) return false;
    LAUNCH(attention_bwd_dq_kernel, blocks, BLOCK, 0, stream, p);
    if (!gpu_launched("attention, dq")) return false;
    LAUNCH(attention_bwd_dk_dv_kernel, blocks, BLOCK, 0, stream, p);
    return gpu_launched("attention, dk and dv");
}
}
