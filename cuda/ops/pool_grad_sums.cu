/* pool_grad_sums.cu -- backward of a maxpool with windows that do not overlap,
 * with gradient sums of the dx that it writes: see grad_sums.cuh.
 *
 * The column reduction of grad_sums_reduce.cuh: each thread has four channels.
 * Bound by memory: in 16 bits 4 bytes an element of dx (6 where it adds) and (2
 * + 1) a window. */
#include "cuda/norm/grad_sums_reduce.cuh"
#include "cuda/ops/pool.cuh"

namespace {

enum {
    V = 4,     // channels of a thread
    BATCH = 4, // rows that a thread loads at a time
};

struct PoolGradSums {
    Pool pool;
    GradSums grads;
    ColReduce cols;
    double *parts; // (parts, 2, C)
    unsigned *counters;
};

/* The number of the result whose window contains the element at `row`, and the
 * element's tap in it; -1 if no window contains it. */
__device__ __forceinline__ int64_t window_of(const Pool &p, int64_t row,
                                             int *tap)
{
    const Place q = place(p.grid, (uint32_t)row);
    int at[3], end[3];
    results_reading(p.axis[0], q.d, &at[0], &end[0]);
    results_reading(p.axis[1], q.h, &at[1], &end[1]);
    results_reading(p.axis[2], q.w, &at[2], &end[2]);
    if (at[0] >= end[0] || at[1] >= end[1] || at[2] >= end[2]) return -1;
    *tap = tap_number(p, q.d - first_of(p.axis[0], at[0]),
                      q.h - first_of(p.axis[1], at[1]),
                      q.w - first_of(p.axis[2], at[2]));
    return row_at(p.ys, q.n, at[0], at[1], at[2]);
}

/* Stores BATCH rows from `row` on and adds them to the sums. */
template <Dtype D>
__device__ __forceinline__ void grad_sums_rows(const PoolGradSums &p,
                                               const ColPosition &s,
                                               int64_t row,
                                               const float4 (&by)[V],
                                               float (&run)[2][V])
{
    const Pool &q = p.pool;
    const int64_t deep = p.cols.deep;
    Vec16<V> was[BATCH], x[BATCH], dy[BATCH];
    WonTaps<V, uint8_t> won[BATCH];
    int tap[BATCH];

#pragma unroll
    for (int i = 0; i < BATCH; i++) {
        const int64_t at = row + i * deep, here = at * q.xs.c + s.c;
        was[i] = x[i] = dy[i] = {}, won[i] = {}, tap[i] = -1;
        if (at >= s.to) continue;
        const int64_t window = window_of(q, at, &tap[i]) * q.ys.c + s.c;
        if (!q.fresh) was[i] = packed<V>(q.x, here);
        if (p.grads.x) x[i] = packed<V>(p.grads.x, here);
        if (tap[i] < 0) continue;
        dy[i] = packed<V>(q.y, window);
        won[i] =
            *(const WonTaps<V, uint8_t> *)((const uint8_t *)q.tap + window);
    }
#pragma unroll
    for (int i = 0; i < BATCH; i++) {
        const int64_t at = row + i * deep;
        if (at >= s.to) continue;
        const auto norm_x = values_of<V, D>(x[i]),
                   grad = values_of<V, D>(dy[i]);
        auto dx = values_of<V, D>(was[i]);
        for (int v = 0; v < V; v++)
            dx.v[v] += (int)won[i].v[v] == tap[i] ? grad.v[v] : 0;
        store_vec<V, D>((Element<D> *)q.x + at * q.xs.c + s.c, dx, true);
        // the value as stored
        for (int v = 0; v < V; v++)
            grad_sums_add(by[v], norm_x.v[v], rounded<D>(dx.v[v]), &run[0][v],
                          &run[1][v]);
    }
}

template <Dtype D>
__global__ void __launch_bounds__(BLOCK)
    pool_grad_sums_kernel(const __grid_constant__ PoolGradSums p)
{
    const ColPosition s = col_position<V>(p.cols);
    grad_sums_reduce<V, BATCH>(
        p.grads, p.cols, p.cols, s, p.parts, p.counters,
        [&](int64_t row, const float4(&by)[V], float(&run)[2][V]) {
            grad_sums_rows<D>(p, s, row, by, run);
        });
}

ColReduce bwd_cols(const Call *c)
{
    return col_reduce_of(1, rows(c->x[0]->dim), c->x[0]->dim.c, V);
}

} // namespace

size_t pool_grad_sums_bytes(const Call *c)
{
    return col_reduce_bytes(bwd_cols(c), 1, 2);
}

bool pool_grad_sums(const Call *c)
{
    const Tensor *dx = c->dx[0];
    PoolGradSums p = {};
    if (!pool_of(c, dx->dim, V, &p.pool)) return false;
    p.pool.x = dx->data, p.pool.y = c->dy->data, p.pool.fresh = is_fresh(c, 0);
    p.grads = grad_sums_of(c, 0);
    p.cols = bwd_cols(c), p.parts = (double *)c->scratch;
    p.counters = gpu_counters(c->dev, col_reduce_counters(p.cols, 1));
    moves(moved(dx, p.pool.fresh) + (p.grads.x ? moved(c->x[0]) : 0) +
          moved(c->dy) + (double)numel(c->dy->dim) +
          col_reduce_traffic(p.cols, 2));

    if (dx->type == BF16)
        LAUNCH(pool_grad_sums_kernel<BF16>, p.cols.blocks, BLOCK, 0,
               gpu_stream(c->dev), p);
    else
        LAUNCH(pool_grad_sums_kernel<F16>, p.cols.blocks, BLOCK, 0,
               gpu_stream(c->dev), p);
    return gpu_launched("maxpool, gradient sums");
}
