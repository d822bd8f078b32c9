/* col_reduce.cuh -- column reduction: sums over rows, one result a channel.
 *
 * Rows come in sets of equal size: all rows are one set, or each sample is one.
 * A set is cut into parts and the channels of a row into tiles; each block
 * works on one part of one tile. Its threads form `deep` rows of `width` units.
 * A unit is V channels, up to 16 bytes: see vec_width and wide_vec. Adjacent
 * threads read adjacent memory, a thread has the same channels in all its rows,
 * and with C = 1 a block still reads 256 rows at a time. A few
 * threads are idle where `width` does not divide the block.
 *
 * The number of parts depends on the extents only, so the sums have one order.
 * Within a block the sums are added in shared memory, as a tree over `deep`;
 * the last block adds the parts of all blocks (grid_reduce.cuh). */
#ifndef SEG_CUDA_LIB_COL_REDUCE_H
#define SEG_CUDA_LIB_COL_REDUCE_H
#include "cuda/lib/grid_reduce.cuh"
#include "cuda/lib/vec.cuh"

enum {
    TILE_UNITS = 128,         // per row and block
    PART_ROWS = 2 * RUN,      // of a thread, that are worth partial sums
    COL_REDUCE_BLOCKS = 1024, // enough to fill any GPU
};

struct ColReduce {
    int64_t rows, part; // rows of a set, rows of a part
    int channels, deep; // deep: rows of threads in a block
    Divisor width, tiles, parts;
    GridReduce grid_reduce; // over the parts of one set and tile
    unsigned blocks;
};

/* A reduction over (sets, rows, channels) with units of `unit` channels; a
 * thread has at least part_rows rows. A pass that sums nothing may have the
 * same layout with shorter parts. */
static inline ColReduce col_reduce_of(int64_t sets, int64_t rows, int channels,
                                      int unit, int part_rows = PART_ROWS)
{
    int64_t units = channels / unit, tiles = ceil_div(units, TILE_UNITS);
    int64_t width = ceil_div(units, tiles), deep = BLOCK / width;
    int64_t parts = most(1, least(rows / (part_rows * deep),
                                  COL_REDUCE_BLOCKS / (sets * tiles)));
    ColReduce w = {};

    w.rows = rows, w.part = ceil_div(rows, parts);
    parts = ceil_div(rows, w.part); // rounding may leave the last part empty
    w.channels = channels, w.deep = (int)deep;
    w.width = divisor(width), w.tiles = divisor(tiles);
    w.parts = divisor(parts),
    w.grid_reduce = grid_reduce_of(parts, sets * tiles);
    w.blocks = (unsigned)(sets * parts * tiles);
    return w;
}

/* The same reduction for totals over all sets: col_grid_sums then counts the
 * parts of all sets as those of one, set after set. */
static inline ColReduce col_reduce_joined(ColReduce w, int64_t sets)
{
    const int64_t parts = sets * w.parts.by;
    w.parts = divisor(parts), w.grid_reduce = grid_reduce_of(parts, w.tiles.by);
    return w;
}

/* Bytes of the partial sums of K sums. */
static inline size_t col_reduce_bytes(const ColReduce &w, int64_t sets, int k)
{
    return (size_t)(sets * w.parts.by * w.channels * k) * sizeof(double);
}

/* Bytes that the partial sums of one set write and read. */
static inline double col_reduce_traffic(const ColReduce &w, int k)
{
    return 2.0 * (double)grid_reduce_traffic(w.grid_reduce) * w.channels * k *
           sizeof(double);
}

/* The number of counters that col_grid_sums needs. */
static inline int64_t col_reduce_counters(const ColReduce &w, int64_t sets)
{
    return sets * w.tiles.by * w.grid_reduce.counters;
}

/* The position of a thread: rows from, from + deep .. below `to` of set `set`,
 * and channels c .. c+V-1. Idle threads have no rows. */
struct ColPosition {
    int64_t set, from, to;
    int64_t part; // number of the part, counted over all sets
    int c, lane;  // lane: the thread's row of the `deep` rows of threads
    bool valid;
};

template <int V>
static __device__ __forceinline__ ColPosition col_position(const ColReduce &w)
{
    uint32_t block = blockIdx.x, thread = threadIdx.x;
    ColPosition s;
    uint32_t unit = split(&thread, w.width);

    s.c = (int)(split(&block, w.tiles) * w.width.by + unit) * V;
    s.part = block;
    s.lane = (int)thread;
    s.valid = s.lane < w.deep && s.c < w.channels;
    s.from = split(&block, w.parts) * w.part + s.lane;
    s.to = s.from - s.lane + w.part;
    if (s.to > w.rows) s.to = w.rows;
    if (!s.valid) s.to = s.from;
    s.set = block;
    return s;
}

/* Flat index of the thread's first channel in row 0 of its set. */
static __device__ __forceinline__ int64_t col_base(const ColReduce &w,
                                                   const ColPosition &s)
{
    return s.set * w.rows * w.channels + s.c;
}

/* For each thread t of lane 0 and each j < N, partials[j][t] becomes the sum
 * over all lanes of the same channels. All threads of the block must call it.
 */
template <int N>
static __device__ void block_tree_sum(const ColReduce &w, const ColPosition &s,
                                      double (*partials)[BLOCK])
{
    const int t = (int)threadIdx.x;
    __syncthreads(); // partials is complete
    for (int n = w.deep; n > 1;) {
        const int rest = (n + 1) / 2;
        if (s.lane + rest < n)
            for (int j = 0; j < N; j++)
                partials[j][t] += partials[j][t + rest * (int)w.width.by];
        n = rest;
        __syncthreads();
    }
}

/* Sums of a thread in shared memory, where they take no registers: sum k of
 * channel v is of[k * V + v][threadIdx.x]. One in a kernel. */
template <int K, int V> struct ColSums {
    double (*of)[BLOCK];

    __device__ __forceinline__ void clear()
    {
        SMEM(double, partials, [K * V][BLOCK]);
        of = partials;
        for (int i = 0; i < K * V; i++) of[i][threadIdx.x] = 0;
    }

    /* Adds a run of float sums. */
    __device__ __forceinline__ void add(const float (&run)[K][V])
    {
#pragma unroll
        for (int i = 0; i < K * V; i++)
            of[i][threadIdx.x] += (double)run[i / V][i % V];
    }
};

/* parts[part][k][c] = the sum of the threads' sums over the block's rows of
 * threads. All threads of the block must call it. Returns the shared memory of
 * the sums, K V BLOCK doubles, which the caller may reuse after a barrier. */
template <int K, int V>
static __device__ __forceinline__ double *col_block_sums(
    const ColReduce &w, const ColPosition &s, const ColSums<K, V> &sums,
    double *parts)
{
    double(*partials)[BLOCK] = sums.of;
    const int t = (int)threadIdx.x;
    block_tree_sum<K * V>(w, s, partials);
    for (int k = 0; k < K && !s.lane && s.valid; k++)
        for (int v = 0; v < V; v++)
            parts[(s.part * K + k) * w.channels + s.c + v] =
                partials[k * V + v][t];
    return partials[0];
}

/* The totals of a set for `count` channels of a tile, from channel `first` on:
 * sum[k * count + i]. `sum` is NULL in all blocks but the last one. */
struct ColTotal {
    const double *sum;
    int first, count;
};

/* The sums over all blocks, which the last block of each set and tile gets.
 * `counters`: col_reduce_counters of them; NULL: no totals, the partial sums
 * stay in `parts`. With counters the parts are overwritten. */
template <int K, int V>
static __device__ __forceinline__ ColTotal
col_grid_sums(const ColReduce &w, const ColPosition &s,
              const ColSums<K, V> &sums, double *parts, unsigned *counters)
{
    uint32_t set = blockIdx.x;
    const uint32_t tile = split(&set, w.tiles), part = split(&set, w.parts);
    const int row = K * w.channels;
    ColTotal total = {NULL, (int)(tile * w.width.by) * V, 0};

    total.count = min((int)w.width.by * V, w.channels - total.first);
    double *partials = col_block_sums<K, V>(w, s, sums, parts);
    if (!counters) return total;
    counters += ((int64_t)set * w.tiles.by + tile) * w.grid_reduce.counters;
    if (grid_reduce_sums<K>(w.grid_reduce, (int)part, counters,
                            parts + (int64_t)set * w.parts.by * row +
                                total.first,
                            row, w.channels, total.count, partials))
        total.sum = partials;
    return total;
}
#endif
