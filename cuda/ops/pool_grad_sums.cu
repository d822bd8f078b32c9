/* pool_grad_sums.cu -- back through a maxpool whose windows do not overlap,
 * with sums over the gradient that it completes: see grad_sums.cuh.
 *
 * The walk of grad_sums_reduce.cuh: a thread keeps four channels. Bound by
 * memory: in 16 bits 4 bytes an element of dx (6 where it adds) and (2 + 1) a
 * window. */
#include "cuda/norm/grad_sums_reduce.cuh"
#include "cuda/ops/pool.cuh"

namespace {

enum {
    V = 4,     // what is narrow goes by packs of four
    BATCH = 4, // rows whose loads a thread has under way
};

struct PoolClose {
    Pool pool;
    Closing close;
    Walk walk;
    double *parts; // (parts, 2, C)
    unsigned *words;
};

/* Of the element at `row`: the number of its window's result, and of the tap
 * that it is there; -1 of one that no window has. */
__device__ __forceinline__ int64_t window_of(const Pool &p, int64_t row,
                                             int *tap)
{
    const Place q = place(p.grid, (uint32_t)row);
    int at[3], end[3];
    normed_from(p.axis[0], q.d, &at[0], &end[0]);
    normed_from(p.axis[1], q.h, &at[1], &end[1]);
    normed_from(p.axis[2], q.w, &at[2], &end[2]);
    if (at[0] >= end[0] || at[1] >= end[1] || at[2] >= end[2]) return -1;
    *tap = tap_number(p, q.d - first_of(p.axis[0], at[0]),
                      q.h - first_of(p.axis[1], at[1]),
                      q.w - first_of(p.axis[2], at[2]));
    return row_at(p.ys, q.n, at[0], at[1], at[2]);
}

/* BATCH rows from `row` on: stored, and added to the sums. */
template <Dtype D>
__device__ __forceinline__ void close_rows(const PoolClose &p, const Spot &s,
                                           int64_t row, const float4 (&by)[V],
                                           float (&run)[2][V])
{
    const Pool &q = p.pool;
    const int64_t deep = p.walk.deep;
    Pairs16<V> was[BATCH], x[BATCH], dy[BATCH];
    Won<V, uint8_t> won[BATCH];
    int tap[BATCH];
#pragma unroll
    for (int i = 0; i < BATCH; i++) {
        const int64_t at = row + i * deep, here = at * q.xs.c + s.c;
        was[i] = x[i] = dy[i] = {}, won[i] = {}, tap[i] = -1;
        if (at >= s.to) continue;
        const int64_t window = window_of(q, at, &tap[i]) * q.ys.c + s.c;
        if (!q.fresh) was[i] = packed<V>(q.x, here);
        if (p.close.x) x[i] = packed<V>(p.close.x, here);
        if (tap[i] < 0) continue;
        dy[i] = packed<V>(q.y, window);
        won[i] = *(const Won<V, uint8_t> *)((const uint8_t *)q.tap + window);
    }
#pragma unroll
    for (int i = 0; i < BATCH; i++) {
        const int64_t at = row + i * deep;
        if (at >= s.to) continue;
        const auto seen = unpacked<V, D>(x[i]), slope = unpacked<V, D>(dy[i]);
        auto dx = unpacked<V, D>(was[i]);
        for (int v = 0; v < V; v++)
            dx.v[v] += (int)won[i].v[v] == tap[i] ? slope.v[v] : 0;
        put_pack<V, D>((Cell<D> *)q.x + at * q.xs.c + s.c, dx, true);
        // what it is in memory
        for (int v = 0; v < V; v++)
            close_one(by[v], seen.v[v], rounded<D>(dx.v[v]), &run[0][v],
                      &run[1][v]);
    }
}

template <Dtype D>
__global__ void __launch_bounds__(BLOCK)
    pool_close_kernel(const __grid_constant__ PoolClose p)
{
    const Spot s = spot<V>(p.walk);
    close_walk<V, BATCH>(
        p.close, p.walk, p.walk, s, p.parts, p.words,
        [&](int64_t row, const float4(&by)[V], float(&run)[2][V]) {
            close_rows<D>(p, s, row, by, run);
        });
}

Walk walk_back(const Call *c)
{
    return walk_of(1, rows(c->x[0]->dim), c->x[0]->dim.c, V);
}

} // namespace

size_t pool_close_bytes(const Call *c)
{
    return walk_bytes(walk_back(c), 1, 2);
}

bool pool_close(const Call *c)
{
    const Tensor *dx = c->dx[0];
    PoolClose p = {};
    if (!pool_of(c, dx->dim, V, &p.pool)) return false;
    p.pool.x = dx->data, p.pool.y = c->dy->data, p.pool.fresh = is_fresh(c, 0);
    p.close = closing_of(c, 0);
    p.walk = walk_back(c), p.parts = (double *)c->scratch;
    p.words = gpu_words(c->dev, walk_words(p.walk, 1));
    moves(moved(dx, p.pool.fresh) + (p.close.x ? moved(c->x[0]) : 0) +
          moved(c->dy) + (double)numel(c->dy->dim) + walk_moves(p.walk, 2));
    if (dx->type == BF16)
        LAUNCH(pool_close_kernel<BF16>, p.walk.blocks, BLOCK, 0,
               gpu_stream(c->dev), p);
    else
        LAUNCH(pool_close_kernel<F16>, p.walk.blocks, BLOCK, 0,
               gpu_stream(c->dev), p);
    return gpu_launched("maxpool, closed");
}
