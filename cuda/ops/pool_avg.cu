/* pool_avg.cu -- the mean of each window, and its activation.
 *
 * Both passes are sums over a box of terms: the elements of a window, or the
 * shares of an element in the dy of all results that read it. A thread computes
 * a vector of channels of one sum or, where windows overlap along h, of several
 * neighbouring ones. It adds the terms of one h, along d and w, once, and adds
 * the result to the sums of all windows that contain this h: 8 results of 3x3x3
 * taps with stride 1 add 11.25 terms each instead of 27. Three terms along w,
 * of single channels also along d, are loaded at a time, at constant steps,
 * without a division of positions for each. No shared memory: neighbouring
 * windows come from the caches. The backward pass multiplies dy by the
 * derivative of the activation, computed from y, when it loads dy.
 *
 * Bound by memory: each element of x and y once; with an activation y once more
 * backward. With 3x3x3 taps, stride 1 and one channel bound by instructions:
 * about 190 an element forward, 270 backward (counted). */
#include "cuda/ops/pool.cuh"

namespace {

enum {
    BLOCKS = 2,        // on a multiprocessor: 128 registers a thread
    SUMS = 8,          // of a thread: along h, times channels
    WIDE = 3,          // terms along w that are loaded at a time
    LINES = CHAIN / 8, // h between two chain_on
};

/* Planes of terms that are loaded at a time: 3 of single channels, 1 of vectors
 * of 4, because a thread has too few registers for more. */
template <int V> constexpr int DEEP = V == 1 ? 3 : 1;

struct AvgPool {
    Pool pool;
    Act act;            // applied to the result
    const void *result; // backward with an activation: y; else NULL
    Steps into, terms;  // of the written tensor; of the one that is summed
    int step;           // of `terms` along w
    bool count_all;
};

/* Elements of the window of the result at (d,h,w) inside the image. */
__device__ __forceinline__ float inside(const AvgPool &p, int d, int h, int w)
{
    const Box b = taps_box(p.pool, {0, d, h, w});
    return (float)(b.to[0] - b.from[0]) * (float)(b.to[1] - b.from[1]) *
           (float)(b.to[2] - b.from[2]);
}

__device__ __forceinline__ float all_taps(const AvgPool &p)
{
    return (float)p.pool.axis[0].k * (float)p.pool.axis[1].k *
           (float)p.pool.axis[2].k;
}

/* Positions from .. to-1 of one axis. */
struct Range {
    int from, to;
};

/* The terms of the sum at position q: the elements of a window or, in the
 * backward pass, the results that read an element. */
template <bool BWD>
__device__ __forceinline__ Range terms_at(const Axis &a, int q)
{
    Range r;
    if (BWD) {
        results_reading(a, q, &r.from, &r.to);
    } else {
        const int first = first_of(a, q);
        taps_inside(a, q, &r.from, &r.to);
        r.from += first, r.to += first;
    }
    return r;
}

/* The tap by which a sum at position q takes the term at `term`; it takes it if
 * the tap is 0 .. k-1. */
template <bool BWD>
__device__ __forceinline__ int tap_at(const Axis &a, int q, int term)
{
    return BWD ? q - first_of(a, term) : term - first_of(a, q);
}

/* Some terms of a thread's sums: the elements at h, in planes d to d+DEEP-1
 * and at positions w to w+WIDE-1, of which deep x wide exist. */
struct Terms {
    int d, h, w, deep, wide;
};

/* Loads terms, from `from` on; 0 where none exists. */
template <int V, Dtype D>
__device__ __forceinline__ void load_terms(const AvgPool &p, const Terms &t,
                                           const Element<D> *from,
                                           Vec<V> (&x)[DEEP<V>][WIDE])
{
#pragma unroll
    for (int i = 0; i < DEEP<V>; i++, from += p.terms.d)
#pragma unroll
        for (int j = 0; j < WIDE; j++) {
            x[i][j] = {};
            if (i < t.deep && j < t.wide)
                x[i][j] = load<V, D>(from + j * p.step);
        }
}

/* The sum of terms: of x after its norm or, in the backward pass, of the shares
 * in dy, which is first taken back through the activation of y. `first` is the
 * element of x or dy at (t.d, t.h, t.w). */
template <int V, Dtype D, bool BWD>
__device__ __forceinline__ Vec<V> sum_terms(const AvgPool &p, const Terms &t,
                                            int64_t first, int c)
{
    Vec<V> x[DEEP<V>][WIDE], y[DEEP<V>][WIDE], sum = {};
    load_terms<V, D>(
        p, t, (const Element<D> *)(BWD ? p.pool.y : p.pool.x) + first, x);
    if (BWD && p.result) {
        load_terms<V, D>(p, t, (const Element<D> *)p.result + first, y);
        for (int i = 0; i < DEEP<V> * WIDE; i++)
            for (int k = 0; k < V; k++) {
                float &dy = x[i / WIDE][i % WIDE].v[k];
                dy = act_grad<D>(p.act, y[i / WIDE][i % WIDE].v[k], dy);
            }
    }
    if (BWD ? !p.count_all : p.pool.norm_on_load.table != NULL)
        for (int i = 0; i < DEEP<V>; i++)
            for (int j = 0; j < WIDE; j++) {
                if (i >= t.deep || j >= t.wide) continue;
                if (!BWD) {
                    x[i][j] = norm_act<V, D>(p.pool.norm_on_load, c, x[i][j]);
                    continue;
                }
                const float share = 1 / inside(p, t.d + i, t.h, t.w + j);
                for (int k = 0; k < V; k++) x[i][j].v[k] *= share;
            }
#pragma unroll
    for (int i = 0; i < DEEP<V>; i++)
        for (int k = 0; k < V; k++)
            sum.v[k] += x[i][0].v[k] + x[i][1].v[k] + x[i][2].v[k];
    return sum;
}

/* The sums of R neighbouring positions along h. Padding counts as 0. Sums past
 * the end of the axis are not used. */
template <int V, Dtype D, int R, bool BWD>
__device__ __forceinline__ Vec<V * R> sums_at(const AvgPool &p, const Place &q,
                                              int c)
{
    const Axis &a = p.pool.axis[1];
    const Range d = terms_at<BWD>(p.pool.axis[0], q.d);
    const Range w = terms_at<BWD>(p.pool.axis[2], q.w);
    const int last = min(q.h + R, BWD ? a.size : a.count) - 1;
    const Range h = {terms_at<BWD>(a, q.h).from, terms_at<BWD>(a, last).to};
    VecChain<V *R> sum = {};
    Terms t;

    for (t.w = w.from; t.w < w.to; t.w += WIDE)
        for (t.d = d.from; t.d < d.to; t.d += DEEP<V>)
            for (int from = h.from; from < h.to; from += LINES) {
                t.deep = d.to - t.d, t.wide = w.to - t.w;
                int64_t first = offset(p.terms, {q.n, t.d, from, t.w}, 0) + c;
                for (t.h = from; t.h < min(h.to, from + LINES); t.h++) {
                    const Vec<V> x = sum_terms<V, D, BWD>(p, t, first, c);
                    first += p.terms.h;
#pragma unroll
                    for (int j = 0; j < R; j++) {
                        const int tap = tap_at<BWD>(a, q.h + j, t.h);
                        for (int k = 0; k < V; k++)
                            sum.run[j * V + k] +=
                                (uint32_t)tap < (uint32_t)a.k ? x.v[k] : 0;
                    }
                }
                chain_on(&sum, LINES);
            }
    return chain_end(sum);
}

template <int V, Dtype D, int R>
__global__ void __launch_bounds__(BLOCK, BLOCKS)
    avgpool_fwd_kernel(const __grid_constant__ AvgPool p)
{
    EACH(i, p.pool.vecs.count)
    {
        int c;
        Place q = place(p.pool.grid, row_of(p.pool.vecs, i, &c));
        q.h *= R;
        const Vec<V *R> sum = sums_at<V, D, R, false>(p, q, c * V);
        Element<D> *to = (Element<D> *)p.pool.y + offset(p.into, q, 0) + c * V;
        float by = all_taps(p);
#pragma unroll
        for (int j = 0; j < R; j++, to += p.into.h) {
            if (q.h + j >= p.pool.ys.h) break;
            if (!p.count_all) by = inside(p, q.d, q.h + j, q.w);
            Vec<V> y;
            for (int k = 0; k < V; k++) {
                y.v[k] = sum.v[j * V + k] / by;
                if (p.act.runs) y.v[k] = act_value<D>(p.act, y.v[k]);
            }
            store_vec<V, D>(to, y, true);
        }
    }
}

template <int V, Dtype D, int R>
__global__ void __launch_bounds__(BLOCK, BLOCKS)
    avgpool_bwd_kernel(const __grid_constant__ AvgPool p)
{
    EACH(i, p.pool.vecs.count)
    {
        int c;
        Place q = place(p.pool.grid, row_of(p.pool.vecs, i, &c));
        q.h *= R;
        const Vec<V *R> sum = sums_at<V, D, R, true>(p, q, c * V);
        const float by = p.count_all ? all_taps(p) : 1;
        Element<D> *to = (Element<D> *)p.pool.x + offset(p.into, q, 0) + c * V;
#pragma unroll
        for (int j = 0; j < R; j++, to += p.into.h) {
            if (q.h + j >= p.pool.xs.h) break;
            Vec<V> dx;
            for (int k = 0; k < V; k++) dx.v[k] = sum.v[j * V + k] / by;
            store_vec<V, D>(to, dx, p.pool.fresh);
        }
    }
}

// -- launchers ---------------------------------------------------------------

#define START(kernel, p, c)                                   \
    LAUNCH(kernel, blocks_for((p).pool.vecs.count), BLOCK, 0, \
           gpu_stream((c)->dev), p)

/* Do neighbours along h have terms in common? */
bool shares_terms(const Call *c)
{
    const Window g = op_window(c->attr, NULL);
    return g.k[1] > g.s[1];
}

/* The parameters of a pass that writes a tensor of extents `into`, from sums
 * over one of extents `terms`. */
bool avgpool_of(const Call *c, Dims into, Dims terms, int v, AvgPool *p)
{
    *p = {};
    if (!pool_of(c, into, v, &p->pool)) return false;
    p->act = act_of(c->act), p->count_all = c->attr->avgpool.count_all;
    p->into = steps_of(into), p->terms = steps_of(terms);
    p->step = (int)p->terms.w;
    if (shares_terms(c)) into.h = (int32_t)ceil_div(into.h, SUMS / v);
    p->pool.vecs = vecs_of(into, v), p->pool.grid = grid_of(into);
    return true;
}

template <int V, Dtype D> void start_fwd(const Call *c, const AvgPool &p)
{
    if (shares_terms(c))
        START((avgpool_fwd_kernel<V, D, SUMS / V>), p, c);
    else
        START((avgpool_fwd_kernel<V, D, 1>), p, c);
}

template <int V, Dtype D> void start_bwd(const Call *c, const AvgPool &p)
{
    if (shares_terms(c))
        START((avgpool_bwd_kernel<V, D, SUMS / V>), p, c);
    else
        START((avgpool_bwd_kernel<V, D, 1>), p, c);
}

} // namespace

extern "C" {

bool cuda_avgpool_fwd(const Call *c)
{
    AvgPool p;
    const int v = vec_width(c->y->dim.c);
    if (!avgpool_of(c, c->y->dim, c->x[0]->dim, v, &p)) return false;
    p.pool.x = c->x[0]->data, p.pool.y = c->y->data;
    p.pool.norm_on_load = norm_on_load_of(c, 0);
    CALL_STORED(c->y->type, v, start_fwd, c, p);
    return gpu_launched("avgpool");
}

/* No two threads write to one element of dx. */
bool cuda_avgpool_bwd(const Call *c)
{
    AvgPool p;
    const int v = vec_width(c->y->dim.c);
    if (!c->dx[0]) return true;
    if (!avgpool_of(c, c->x[0]->dim, c->y->dim, v, &p)) return false;
    p.pool.x = c->dx[0]->data, p.pool.y = c->dy->data;
    p.pool.fresh = is_fresh(c, 0), p.result = c->act ? c->y->data : NULL;
    CALL_STORED(c->dy->type, v, start_bwd, c, p);
    return gpu_launched("avgpool");
}
}
