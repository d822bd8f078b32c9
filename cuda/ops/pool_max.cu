/* pool_max.cu -- the maximum of each window; pool_grad_sums.cu has a backward
 * pass that also makes gradient sums.
 *
 * Each thread computes one vector of channels at one position: of the result in
 * the forward pass; in the backward pass of the operand's gradient, which it
 * sums over all results whose window contains the position. A vector has 16
 * bytes where the channels allow it. A thread loads AHEAD = 4 positions at a
 * time (a whole 2x2 window), in the backward pass one where windows do not
 * overlap and have at most 256 taps; the other work is integer arithmetic on
 * positions. No shared memory: elements of several windows come from the
 * caches. The tap of the maximum is saved for each result, in a byte if the
 * window has at most 256 taps, because the plan keeps that memory from the
 * forward to the backward pass.
 *
 * Bound by memory. Bytes per operand element, window 2x2: 4 + 5/4 in both
 * passes; in 16 bits 2 + 3/4. */
#include "cuda/ops/pool.cuh"

namespace {

enum { AHEAD = 4 }; // points that a thread loads at a time

/* Loads vectors of the next AHEAD taps, and the number of each; `none` where
 * the window has no more taps. Advances w. `corner` is the position of tap
 * (0,0,0). */
template <int V, Dtype D>
__device__ __forceinline__ void fetch_taps(const Pool &p, BoxIterator *w,
                                           Place corner, int c, float none,
                                           Vec<V> x[AHEAD], int number[AHEAD])
{
#pragma unroll
    for (int i = 0; i < AHEAD; i++) {
        number[i] = 0;
        for (int k = 0; k < V; k++) x[i].v[k] = none;
        if (w->left <= 0) continue;
        const int64_t row = row_at(p.xs, corner.n, corner.d + w->at[0],
                                   corner.h + w->at[1], corner.w + w->at[2]);
        number[i] = tap_number(p, w->at[0], w->at[1], w->at[2]);
        x[i] = norm_act<V, D>(
            p.norm_on_load, c,
            load<V, D>((const Element<D> *)p.x + row * p.xs.c + c));
        box_next(w);
    }
}

/* The position of tap (0,0,0) of the result at q. */
__device__ __forceinline__ Place corner_of(const Pool &p, Place q)
{
    return {q.n, first_of(p.axis[0], q.d), first_of(p.axis[1], q.h),
            first_of(p.axis[2], q.w)};
}

/* Of equal values the first tap wins. NaN (v != v), which loses all
 * comparisons, wins too, so that it is not hidden. Missing taps are -inf, which
 * never wins. */
template <int V, Dtype D, class T>
__global__ void __launch_bounds__(BLOCK)
    maxpool_fwd_kernel(const __grid_constant__ Pool p)
{
    EACH(i, p.vecs.count)
    {
        int c;
        const uint32_t row = row_of(p.vecs, i, &c);
        const Place q = place(p.grid, row);
        const Box box = taps_box(p, q);
        BoxIterator w = box_iterator(box);
        Vec<V> best, x[AHEAD];
        int tap[V], number[AHEAD];
        // a window with only -inf still has a winner: its first tap inside
        for (int k = 0; k < V; k++) {
            best.v[k] = -INFINITY;
            tap[k] = tap_number(p, box.from[0], box.from[1], box.from[2]);
        }
        while (w.left > 0) {
            fetch_taps<V, D>(p, &w, corner_of(p, q), c * V, -INFINITY, x,
                             number);
#pragma unroll
            for (int j = 0; j < AHEAD; j++) {
                for (int k = 0; k < V; k++) {
                    const float v = x[j].v[k];
                    const bool wins = (v > best.v[k]) | (v != v);
                    best.v[k] = wins ? v : best.v[k];
                    tap[k] = wins ? number[j] : tap[k];
                }
            }
        }
        WonTaps<V, T> won;
        for (int k = 0; k < V; k++) won.v[k] = (T)tap[k];
        store_vec<V, D>((Element<D> *)p.y + i * V, best, true);
        *(WonTaps<V, T> *)((T *)p.tap + i * V) = won;
    }
}

/* dx from the results whose windows contain an element: dy of each result that
 * the element won. N points at a time: 1 where windows do not overlap, as there
 * is at most one result then. */
template <int V, Dtype D, class T, int N>
__global__ void __launch_bounds__(BLOCK)
    maxpool_bwd_kernel(const __grid_constant__ Pool p)
{
    EACH(i, p.vecs.count)
    {
        int c;
        const uint32_t row = row_of(p.vecs, i, &c);
        const Place q = place(p.grid, row);
        Box b;
        results_reading(p.axis[0], q.d, &b.from[0], &b.to[0]);
        results_reading(p.axis[1], q.h, &b.from[1], &b.to[1]);
        results_reading(p.axis[2], q.w, &b.from[2], &b.to[2]);
        BoxIterator cols = box_iterator(b);
        VecChain<V> sum = {};
        while (cols.left > 0) {
            Vec<V> dy[N];
            WonTaps<V, T> won[N];
            int tap[N];
#pragma unroll
            for (int j = 0; j < N; j++) {
                dy[j] = {}, won[j] = {}, tap[j] = -1;
                if (cols.left <= 0) continue;
                const int d = cols.at[0], h = cols.at[1], w = cols.at[2];
                const int64_t at = row_at(p.ys, q.n, d, h, w) * p.ys.c + c * V;
                dy[j] = load<V, D>((const Element<D> *)p.y + at);
                won[j] = *(const WonTaps<V, T> *)((const T *)p.tap + at);
                tap[j] = tap_number(p, q.d - first_of(p.axis[0], d),
                                    q.h - first_of(p.axis[1], h),
                                    q.w - first_of(p.axis[2], w));
                box_next(&cols);
            }
#pragma unroll
            for (int j = 0; j < N; j++)
                for (int k = 0; k < V; k++)
                    sum.run[k] += (int)won[j].v[k] == tap[j] ? dy[j].v[k] : 0;
            chain_on(&sum, N);
        }
        store_vec<V, D>((Element<D> *)p.x + i * V, chain_end(sum), p.fresh);
    }
}

// -- launchers ---------------------------------------------------------------

#define START(kernel, p, c)                                                    \
    LAUNCH(kernel, blocks_for((p).vecs.count), BLOCK, 0, gpu_stream((c)->dev), \
           p)

template <int V, Dtype D> void start_fwd(const Call *c, const Pool &p)
{
    if (small_taps(c))
        START((maxpool_fwd_kernel<V, D, uint8_t>), p, c);
    else
        START((maxpool_fwd_kernel<V, D, int32_t>), p, c);
}

/* One point at a time where windows do not overlap, as there is only one. */
template <int V, Dtype D> void start_bwd(const Call *c, const Pool &p)
{
    if (!small_taps(c))
        START((maxpool_bwd_kernel<V, D, int32_t, AHEAD>), p, c);
    else if (windows_disjoint(c))
        START((maxpool_bwd_kernel<V, D, uint8_t, 1>), p, c);
    else
        START((maxpool_bwd_kernel<V, D, uint8_t, AHEAD>), p, c);
}

} // namespace

extern "C" {

Space cuda_maxpool_space(const Call *c)
{
    Space s = {};
    s.saved = (size_t)numel(c->y->dim) *
              (small_taps(c) ? sizeof(uint8_t) : sizeof(int32_t));
    if (c->sums.dx[0]) s.bwd = pool_grad_sums_bytes(c);
    return s;
}

bool cuda_maxpool_sums_grads(const Call *c)
{
    return c->dx[0] && dtype_bytes(c->dx[0]->type) == 2 && small_taps(c) &&
           windows_disjoint(c);
}

/* One thread for each vector of the result. */
bool cuda_maxpool_fwd(const Call *c)
{
    Pool p;
    const int v = wide_vec(c->y->type, c->y->dim.c);
    if (!pool_of(c, c->y->dim, v, &p)) return false;
    p.x = c->x[0]->data, p.y = c->y->data;
    p.norm_on_load = norm_on_load_of(c, 0);
    CALL_WIDE(c->y->type, v, start_fwd, c, p);
    return gpu_launched("maxpool");
}

/* One thread for each vector of dx: no two write to one element. */
bool cuda_maxpool_bwd(const Call *c)
{
    Pool p;
    const int v = wide_vec(c->y->type, c->y->dim.c);
    if (!c->dx[0]) return true;
    if (c->sums.dx[0]) return pool_grad_sums(c);
    if (!pool_of(c, c->x[0]->dim, v, &p)) return false;
    p.x = c->dx[0]->data, p.y = c->dy->data, p.fresh = is_fresh(c, 0);
    CALL_WIDE(c->dy->type, v, start_bwd, c, p);
    return gpu_launched("maxpool");
}
}
