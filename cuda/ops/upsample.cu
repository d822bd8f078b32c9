/* upsample.cu -- upsampling, nearest or linear.
 *
 *     nearest  y[p] = x[floor(p / f)]
 *     linear   y[p] = (1 - t) x[i] + t x[i+1] along each axis, i + t the
 *              source coordinate of p
 *
 * The source coordinate of p is the fraction (p num + off) / den of integers,
 * clamped to 0 .. X-1, so the forward and the backward pass get the same
 * weights, exact to one rounding, without doubles. For a factor f: num = 2, off
 * = 1 - f, den = 2 f (voxel centres). With aligned corners: num = X-1, off = 0,
 * den = Y-1, where X and Y are the extents of the operand and of the result
 * along the axis (den = 1 if Y is 1).
 *
 * Each thread computes one vector of channels at one position. Forward: of the
 * result, from one operand position or the 8 corners of its cell, with all
 * loads in flight together. Backward: of the operand's gradient, summed over
 * the results in which the position has a weight. Elements that several threads
 * read come from the caches, so no shared memory. Bound by memory: at least 4
 * (1 + 1/(fd fh fw)) bytes per element of the result (2 in 16 bits) in both
 * passes; linear in 3-D does not reach this, as each dy is read 8 times. */
#include "cuda/lib/window.cuh"

namespace {

enum { AHEAD = 4 }; // loads of a gather in flight together

/* One axis: the source of its results. */
struct Source {
    int size, count;   // operand, result
    Divisor f;         // nearest: the factor
    int num, off, den; // linear
    Divisor by_den, by_num;
    float inv;   // 1 / den
    bool narrow; // 32 bits are enough
};

struct Up {
    void *x, *y; // operand and result, or their gradients
    Source axis[3];
    Vecs vecs; // of the written tensor
    Grid grid; // of the written tensor
    Dims xs, ys;
    bool fresh; // backward
};

Source source_of(const Call *c, int i)
{
    Source a = {};
    const int f = c->attr->word[1 + i]; // both operators begin with the factors
    a.size = (&c->x[0]->dim.d)[i], a.count = (&c->y->dim.d)[i];
    a.f = divisor(f);
    if (c->attr->op == OP_upsample_nearest) return a;
    a.num = 2, a.off = 1 - f;
    int64_t den = (int64_t)2 * f;
    if (c->attr->upsample_linear.align)
        a.num = a.size - 1, a.off = 0, den = most(1, a.count - 1);
    a.den = (int)den;
    a.inv = 1.0f / (float)den;
    a.by_den = divisor(den);
    a.by_num = divisor(most(1, a.num));
    a.narrow = (a.size + (int64_t)1) * den < INT32_MAX;
    return a;
}

bool up_of(const Call *c, Dims into, int v, Up *p)
{
    *p = {};
    p->xs = c->x[0]->dim, p->ys = c->y->dim;

    for (int i = 0; i < 3; i++) {
        const int f = c->attr->word[1 + i];
        if (f > INT32_MAX / 4) // the largest value is den plus an offset
            return fail_device("%s: a factor of %d; the GPU kernels take up "
                               "to %d",
                               op_info[c->attr->op].name, f, INT32_MAX / 4);
        p->axis[i] = source_of(c, i);
    }

    p->vecs = vecs_of(into, v);
    p->grid = grid_of(into);
    return countable(c, rows(p->xs)) && countable(c, rows(p->ys));
}

// -- nearest -----------------------------------------------------------------

template <int V, Dtype D>
__global__ void __launch_bounds__(BLOCK)
    upsample_nearest_fwd_kernel(const __grid_constant__ Up p)
{
    EACH(i, p.vecs.count)
    {
        int c;
        const Place q = place(p.grid, row_of(p.vecs, i, &c));
        const int64_t row =
            row_at(p.xs, q.n, quotient(q.d, p.axis[0].f),
                   quotient(q.h, p.axis[1].f), quotient(q.w, p.axis[2].f));
        const Element<D> *x = (const Element<D> *)p.x + row * p.xs.c + c * V;
        store_vec<V, D>((Element<D> *)p.y + i * V, load<V, D>(x), true);
    }
}

/* The results of q along an axis are q f .. q f + f-1. */
__device__ __forceinline__ void repeats(const Source &a, int q, int *from,
                                        int *to)
{
    *from = q * (int)a.f.by;
    *to = *from + (int)a.f.by;
}

template <int V, Dtype D>
__global__ void __launch_bounds__(BLOCK)
    upsample_nearest_bwd_kernel(const __grid_constant__ Up p)
{
    EACH(i, p.vecs.count)
    {
        int c;
        const Place q = place(p.grid, row_of(p.vecs, i, &c));
        Box b;
        repeats(p.axis[0], q.d, &b.from[0], &b.to[0]);
        repeats(p.axis[1], q.h, &b.from[1], &b.to[1]);
        repeats(p.axis[2], q.w, &b.from[2], &b.to[2]);
        BoxIterator cols = box_iterator(b);
        VecChain<V> sum = {};
        while (cols.left > 0) {
            Vec<V> dy[AHEAD];
#pragma unroll
            for (int j = 0; j < AHEAD; j++) {
                dy[j] = {};
                if (cols.left <= 0) continue;
                const int64_t row =
                    row_at(p.ys, q.n, cols.at[0], cols.at[1], cols.at[2]);
                dy[j] =
                    load<V, D>((const Element<D> *)p.y + row * p.ys.c + c * V);
                box_next(&cols);
            }
            for (int k = 0; k < V; k++)
                sum.run[k] +=
                    (dy[0].v[k] + dy[1].v[k]) + (dy[2].v[k] + dy[3].v[k]);
            chain_on(&sum, AHEAD);
        }
        store_vec<V, D>((Element<D> *)p.x + i * V, chain_end(sum), p.fresh);
    }
}

// -- linear ------------------------------------------------------------------

/* n / d where n may need more than 32 bits. */
__device__ __forceinline__ int64_t whole(const Source &a, int64_t n, Divisor d)
{
    return a.narrow ? quotient((uint32_t)n, d) : n / d.by;
}

/* Operand positions i, i + step, and their weights in a result. */
struct Mix {
    int i, step;
    float w[2];
};

__device__ __forceinline__ Mix mix_at(const Source &a, int p)
{
    int64_t at = (int64_t)p * a.num + a.off;
    const int64_t last = (int64_t)(a.size - 1) * a.den;
    at = at < 0 ? 0 : at < last ? at : last;
    const int i = (int)whole(a, at, a.by_den);
    const int rest = (int)(at - (int64_t)i * a.den);
    // den * inv may not be 1, and a copy must be exact
    return {i,
            rest > 0,
            {rest ? (float)(a.den - rest) * a.inv : 1, (float)rest * a.inv}};
}

/* Weight of operand position q in result p, from the same integers. */
__device__ __forceinline__ float share(const Source &a, int p, int q)
{
    int64_t at = (int64_t)p * a.num + a.off - (int64_t)q * a.den;
    if (at < 0)
        at = q > 0 ? -at : 0;
    else if (q == a.size - 1)
        at = 0; // clamped
    if (at == 0) return 1;
    return at < a.den ? (float)(a.den - (int)at) * a.inv : 0.0f;
}

/* Results from .. to-1 are the results with a weight of q: their source
 * coordinates are less than 1 away, or clamped to the ends. */
__device__ __forceinline__ void reach(const Source &a, int q, int *from,
                                      int *to)
{
    *from = 0, *to = a.count;
    if (!a.num) return; // one position, aligned
    // off <= 0
    const int64_t below = (int64_t)(q - 1) * a.den - a.off;
    const int64_t above = (int64_t)(q + 1) * a.den - a.off;
    if (q > 0) *from = (int)whole(a, below, a.by_num) + 1;
    if (q < a.size - 1) *to = (int)whole(a, above + a.num - 1, a.by_num);
}

template <int V, Dtype D>
__global__ void __launch_bounds__(BLOCK)
    upsample_linear_fwd_kernel(const __grid_constant__ Up p)
{
    EACH(i, p.vecs.count)
    {
        int c;
        const Place q = place(p.grid, row_of(p.vecs, i, &c));
        const Mix d = mix_at(p.axis[0], q.d), h = mix_at(p.axis[1], q.h);
        const Mix w = mix_at(p.axis[2], q.w);
        Vec<V> x[8], y = {};
        float weight[8];
#pragma unroll
        for (int k = 0; k < 8; k++) {
            weight[k] = d.w[k >> 2] * h.w[k >> 1 & 1] * w.w[k & 1];
            x[k] = {};
            if (weight[k] == 0) continue; // else infinity would give NaN
            const int64_t row =
                row_at(p.xs, q.n, d.i + (k >> 2) * d.step,
                       h.i + (k >> 1 & 1) * h.step, w.i + (k & 1) * w.step);
            x[k] = load<V, D>((const Element<D> *)p.x + row * p.xs.c + c * V);
        }
#pragma unroll
        for (int k = 0; k < 8; k++)
            for (int j = 0; j < V; j++)
                y.v[j] = fmaf(weight[k], x[k].v[j], y.v[j]);
        store_vec<V, D>((Element<D> *)p.y + i * V, y, true);
    }
}

template <int V, Dtype D>
__global__ void __launch_bounds__(BLOCK)
    upsample_linear_bwd_kernel(const __grid_constant__ Up p)
{
    EACH(i, p.vecs.count)
    {
        int c, d0, d1, h0, h1, w0, w1;
        const Place q = place(p.grid, row_of(p.vecs, i, &c));
        reach(p.axis[0], q.d, &d0, &d1);
        reach(p.axis[1], q.h, &h0, &h1);
        reach(p.axis[2], q.w, &w0, &w1);
        VecChain<V> sum = {};
        for (int d = d0; d < d1; d++) {
            const float wd = share(p.axis[0], d, q.d);
            for (int h = h0; h < h1; h++) {
                const float wh = wd * share(p.axis[1], h, q.h);
                const Element<D> *dy = (const Element<D> *)p.y +
                                       row_at(p.ys, q.n, d, h, 0) * p.ys.c +
                                       c * V;
                for (int w = w0; w < w1; w += AHEAD) {
                    Vec<V> x[AHEAD];
                    float weight[AHEAD];
#pragma unroll
                    for (int j = 0; j < AHEAD; j++) {
                        x[j] = {}, weight[j] = 0;
                        if (w + j >= w1) continue;
                        weight[j] = wh * share(p.axis[2], w + j, q.w);
                        x[j] = load<V, D>(dy + (int64_t)(w + j) * p.ys.c);
                    }
#pragma unroll
                    for (int j = 0; j < AHEAD; j++)
                        for (int k = 0; k < V; k++)
                            sum.run[k] = fmaf(weight[j], x[j].v[k], sum.run[k]);
                    chain_on(&sum, AHEAD);
                }
            }
        }
        store_vec<V, D>((Element<D> *)p.x + i * V, chain_end(sum), p.fresh);
    }
}

// -- launchers ---------------------------------------------------------------

/* One thread for each vector of the result. */
bool up_fwd(const Call *c)
{
    Up p;
    const int v = vec_width(c->y->dim.c);
    if (!up_of(c, c->y->dim, v, &p)) return false;
    p.x = c->x[0]->data, p.y = c->y->data;
    const Dtype type = c->y->type;
    const unsigned blocks = blocks_for(p.vecs.count);
    if (c->attr->op == OP_upsample_nearest)
        LAUNCH_STORED(type, v, upsample_nearest_fwd_kernel, blocks, c, p);
    else
        LAUNCH_STORED(type, v, upsample_linear_fwd_kernel, blocks, c, p);
    return gpu_launched(op_info[c->attr->op].name);
}

/* One thread for each vector of dx: no two write to one element. */
bool up_bwd(const Call *c)
{
    Up p;
    const int v = vec_width(c->y->dim.c);
    if (!c->dx[0]) return true;
    if (!up_of(c, c->x[0]->dim, v, &p)) return false;
    p.x = c->dx[0]->data, p.y = c->dy->data, p.fresh = is_fresh(c, 0);
    const Dtype type = c->dy->type;
    const unsigned blocks = blocks_for(p.vecs.count);
    if (c->attr->op == OP_upsample_nearest)
        LAUNCH_STORED(type, v, upsample_nearest_bwd_kernel, blocks, c, p);
    else
        LAUNCH_STORED(type, v, upsample_linear_bwd_kernel, blocks, c, p);
    return gpu_launched(op_info[c->attr->op].name);
}

} // namespace

#define ROW(name)                         \
    bool cuda_##name##_fwd(const Call *c) \
    {                                     \
        return up_fwd(c);                 \
    }                                     \
    bool cuda_##name##_bwd(const Call *c) \
    {                                     \
        return up_bwd(c);                 \
    }
extern "C" {
ROW(upsample_nearest)
ROW(upsample_linear)
}
