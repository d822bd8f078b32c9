/* dropout.cu -- elements, or whole channels of a sample, zeroed at random.
 *
 * Draws and counters are the same as in cpu/ref/dropout.c: element or channel
 * number `index` of a sample gets word index % 4 of block index / 4, and is
 * kept if the word, in [0, 1), is at least p. Nothing is saved; the backward
 * pass draws again. Seed and step count are read from device memory, so that a
 * captured step draws new numbers at each launch.
 *
 * Elements: a thread draws one block for 4 adjacent elements of a sample; a
 * thread block is a rectangle of such quads by samples, so that there is
 * nothing to divide. Channels: the layout of col_reduce.cuh, one draw for all
 * rows of a thread. `to` may be the memory of `from`.
 *
 * The activation epilogue is applied before the store; backward takes dy back
 * through it first, by y. Channels apply a deferred norm on load, if there is
 * one; in 16 bits backward can also make gradient sums: grad_sums_reduce.cuh.
 *
 * Elements: 8 bytes an element (4 in 16 bits), and 10 rounds of two wide
 * products for four elements, which take about as long. Channels: bound by
 * memory. Backward with an activation reads 4 (2) bytes more; with gradient
 * sums and a deferred norm also 4 (2), with an activation or without. */
#include "cuda/norm/grad_sums_reduce.cuh"
#include "engine/base/rng.h"

namespace {

// DRAWS: of a block of draws; BATCH: rows that a thread loads at a time
enum { DRAWS = 4, BATCH = 4 };

struct Drop {
    const void *from;
    void *to;
    const Step *step; // in device memory
    float p, factor;
    int node, samples;
    int64_t size, fours; // elements of a sample; its blocks of draws
    bool all, fresh;     // all: evaluation, nothing is dropped
    Act act;
    const void *y;           // backward with an activation: y; else NULL
    NormOnLoad norm_on_load; // forward, of channels
};

/* The factors of the four draws of a block. */
__device__ __forceinline__ void draw(const Drop &p, uint32_t sample,
                                     uint32_t block, float (&factor)[DRAWS])
{
    Rng r;
    uint32_t word[DRAWS];
    r.seed = p.step->seed, r.stream = RNG_DROPOUT, r.op = (uint16_t)p.node;
    r.epoch = (uint32_t)p.step->count;
    r.sample = sample + (uint32_t)p.step->shard.first;
    rng_block(&r, block, word);
    for (int i = 0; i < DRAWS; i++)
        factor[i] = p.all ? 1 : rng_unit(word[i]) >= p.p ? p.factor : 0;
}

/* A dropped element becomes 0, even if it is not finite. */
__device__ __forceinline__ float scaled(float x, float factor)
{
    return factor == 0 ? 0 : x * factor;
}

/* x through dropout and activation; if p.y is set, x is dy and goes back
 * through both. */
template <Dtype D>
__device__ __forceinline__ float passed(const Drop &p, float x, float y,
                                        float factor)
{
    if (p.y) return scaled(act_grad<D>(p.act, y, x), factor);
    x = scaled(x, factor);
    return p.act.runs ? act_value<D>(p.act, x) : x;
}

/* V = 4: samples begin at multiples of 4 elements. */
template <int V, Dtype D>
__global__ void __launch_bounds__(BLOCK) dropout_kernel(const Drop p)
{
    const Element<D> *from = (const Element<D> *)p.from,
                     *y = (const Element<D> *)p.y;
    Element<D> *to = (Element<D> *)p.to;

    for (int64_t n = (int64_t)blockIdx.y * blockDim.y + threadIdx.y;
         n < p.samples; n += (int64_t)gridDim.y * blockDim.y)
        EACH(i, p.fours)
        {
            const int64_t left = p.size - i * DRAWS;
            const int64_t at = n * p.size + i * DRAWS;
            float factor[DRAWS];
            draw(p, (uint32_t)n, (uint32_t)i, factor);
            if constexpr (V == DRAWS) {
                Vec<4> x = load<4, D>(from + at), by = {};
                if (y) by = load<4, D>(y + at);
                for (int k = 0; k < DRAWS; k++)
                    x.v[k] = passed<D>(p, x.v[k], by.v[k], factor[k]);
                store_vec<4, D>(to + at, x, p.fresh);
            } else {
                for (int k = 0; k < DRAWS && k < left; k++) {
                    const float x = load<1, D>(from + at + k).v[0];
                    const float by = y ? load<1, D>(y + at + k).v[0] : 0;
                    store_vec<1, D>(to + at + k,
                                    {passed<D>(p, x, by, factor[k])}, p.fresh);
                }
            }
        }
}

template <int V, Dtype D>
__global__ void __launch_bounds__(BLOCK)
    channel_dropout_kernel(const Drop p, const ColReduce w)
{
    const Element<D> *from = (const Element<D> *)p.from,
                     *y = (const Element<D> *)p.y;
    Element<D> *to = (Element<D> *)p.to;
    const ColPosition s = col_position<V>(w);
    const int64_t base = col_base(w, s), deep = w.deep;

    static_assert(V == DRAWS || V == 1, "a pack has the draws of a block");
    float drawn[DRAWS], factor[V];
    if (!s.valid) return;
    draw(p, (uint32_t)s.set, (uint32_t)s.c / DRAWS, drawn);
    factor[0] = drawn[0];
    for (int i = 1; i < DRAWS; i++)
        if (V == DRAWS)
            factor[i % V] = drawn[i];
        else if (s.c % DRAWS == i)
            factor[0] = drawn[i];

    for (int64_t row = s.from; row < s.to; row += BATCH * deep) {
        Vec<V> x[BATCH], by[BATCH] = {};
#pragma unroll
        for (int i = 0; i < BATCH; i++) {
            const int64_t at = base + (row + i * deep) * w.channels;
            if (row + i * deep >= s.to) continue;
            x[i] = load<V, D>(from + at);
            if (y) by[i] = load<V, D>(y + at);
        }
#pragma unroll
        for (int i = 0; i < BATCH; i++) {
            if (row + i * deep >= s.to) continue;
            if constexpr (D != F32)
                x[i] = norm_act<V, D>(p.norm_on_load, s.c, x[i]);
            for (int v = 0; v < V; v++)
                x[i].v[v] = passed<D>(p, x[i].v[v], by[i].v[v], factor[v]);
            store_vec<V, D>(to + base + (row + i * deep) * w.channels, x[i],
                            p.fresh);
        }
    }
}

struct DropGradSums {
    Drop drop;
    GradSums grads;
    const void *sign_source; // x if it has a deferred norm, else y, or NULL
    ColReduce cols, joined;
    double *parts; // (parts, 2, C)
    unsigned *counters;
};

/* Stores BATCH rows of dx from `row` on and adds them to the sums. With a
 * deferred norm the sums read x, which also gives the sign of y for the
 * activation, so y is not read. */
template <Dtype D>
__device__ __forceinline__ void grad_sums_rows(const DropGradSums &p,
                                               const ColPosition &s,
                                               int64_t row,
                                               const float (&factor)[DRAWS],
                                               const float4 (&by)[DRAWS],
                                               float (&run)[2][DRAWS])
{
    const Drop &q = p.drop;
    const int64_t base = col_base(p.cols, s), deep = p.cols.deep;
    Vec16<DRAWS> was[BATCH], dy[BATCH], x[BATCH];

#pragma unroll
    for (int i = 0; i < BATCH; i++) {
        const int64_t at = base + (row + i * deep) * p.cols.channels;
        was[i] = dy[i] = x[i] = {};
        if (row + i * deep >= s.to) continue;
        dy[i] = packed<DRAWS>(q.from, at);
        if (p.sign_source) x[i] = packed<DRAWS>(p.sign_source, at);
        if (!q.fresh) was[i] = packed<DRAWS>(q.to, at);
    }
#pragma unroll
    for (int i = 0; i < BATCH; i++) {
        if (row + i * deep >= s.to) continue;
        const Vec<DRAWS> signs = values_of<DRAWS, D>(x[i]),
                         grad = values_of<DRAWS, D>(dy[i]);
        Vec<DRAWS> dx = values_of<DRAWS, D>(was[i]);
        for (int v = 0; v < DRAWS; v++) {
            float y = signs.v[v];
            if (p.grads.x)
                y = norm_act_one<D>(p.grads.norm_on_load.act,
                                    make_float2(by[v].x, by[v].y), y);
            dx.v[v] += passed<D>(q, grad.v[v], y, factor[v]);
        }
        store_vec<DRAWS, D>((Element<D> *)q.to + base +
                                (row + i * deep) * p.cols.channels,
                            dx, true);
        // the value as stored
        for (int v = 0; v < DRAWS; v++)
            grad_sums_add(by[v], signs.v[v], rounded<D>(dx.v[v]), &run[0][v],
                          &run[1][v]);
    }
}

template <Dtype D>
__global__ void __launch_bounds__(BLOCK)
    channel_dropout_grad_sums_kernel(const __grid_constant__ DropGradSums p)
{
    const ColPosition s = col_position<DRAWS>(p.cols);
    float factor[DRAWS] = {};
    if (s.valid) draw(p.drop, (uint32_t)s.set, (uint32_t)s.c / DRAWS, factor);
    grad_sums_reduce<DRAWS, BATCH>(
        p.grads, p.cols, p.joined, s, p.parts, p.counters,
        [&](int64_t row, const float4(&by)[DRAWS], float(&run)[2][DRAWS]) {
            grad_sums_rows<D>(p, s, row, factor, by, run);
        });
}

/* Quads by samples: as wide as a sample has quads, up to a block. */
template <int V, Dtype D> void start_elements(const Call *c, const Drop &p)
{
    unsigned wide = 1;
    while (wide < BLOCK && wide < p.fours) wide *= 2;
    const unsigned high = BLOCK / wide;
    const dim3 grid((unsigned)least(ceil_div(p.fours, wide), 1 << 16),
                    (unsigned)least(ceil_div(p.samples, high), 65535));
    LAUNCH((dropout_kernel<V, D>), grid, dim3(wide, high), 0,
           gpu_stream(c->dev), p);
}

bool drop_elements(const Call *c, const Drop &p)
{
    const int v = p.size % DRAWS == 0 ? DRAWS : 1;
    CALL_STORED(c->y->type, v, start_elements, c, p);
    return gpu_launched("dropout");
}

ColReduce channel_cols(Dims s)
{
    return col_reduce_of(s.n, positions(s), s.c, vec_width(s.c));
}

/* Backward, with gradient sums of dx. */
bool drop_grad_sums(const Call *c, const Drop &drop)
{
    const Dims s = c->y->dim;
    DropGradSums p = {};
    p.drop = drop, p.grads = grad_sums_of(c, 0);
    p.sign_source = p.grads.x ? p.grads.x : drop.y;
    p.cols = channel_cols(s), p.joined = col_reduce_joined(p.cols, s.n);
    p.parts = (double *)c->scratch;
    p.counters = gpu_counters(c->dev, col_reduce_counters(p.joined, 1));
    moves(moved(c->dx[0], drop.fresh) + moved(c->dy) +
          (p.sign_source ? moved(c->y) : 0) + col_reduce_traffic(p.joined, 2));

    if (c->dx[0]->type == BF16)
        LAUNCH(channel_dropout_grad_sums_kernel<BF16>, p.cols.blocks, BLOCK, 0,
               gpu_stream(c->dev), p);
    else
        LAUNCH(channel_dropout_grad_sums_kernel<F16>, p.cols.blocks, BLOCK, 0,
               gpu_stream(c->dev), p);
    return gpu_launched("spatial dropout, gradient sums");
}

bool drop_channels(const Call *c, const Drop &p)
{
    const Dims s = c->y->dim;
    const ColReduce w = channel_cols(s);
    LAUNCH_STORED(c->y->type, vec_width(s.c), channel_dropout_kernel, w.blocks,
                  c, p, w);
    return gpu_launched("spatial dropout");
}

/* Forward: from x to y. Backward: from dy to dx[0]. */
bool drop(const Call *c, const Tensor *from, const Tensor *to, bool fresh)
{
    const Dims s = c->y->dim;
    const bool spatial = c->attr->op == OP_spatial_dropout;
    Drop p = {};

    if (!to) return true;
    p.from = from->data, p.to = to->data, p.fresh = fresh;
    p.step = gpu_step(c->dev), p.node = c->node, p.all = !c->train;
    p.act = act_of(c->act);
    if (from == c->x[0]) p.norm_on_load = norm_on_load_of(c, 0);
    if (from == c->dy && c->act) p.y = c->y->data;
    p.p = spatial ? c->attr->spatial_dropout.p : c->attr->dropout.p;

    // for p = 1 nothing is kept, and the infinite factor is not used
    p.factor = (float)(1 / (1 - (double)p.p));
    p.samples = s.n, p.size = positions(s) * s.c;
    p.fours = ceil_div(p.size, DRAWS);
    if (!countable(c, rows(s))) return false;
    if (from == c->dy && c->sums.dx[0]) return drop_grad_sums(c, p);
    return spatial ? drop_channels(c, p) : drop_elements(c, p);
}

} // namespace

#define ROW(name)                                        \
    bool cuda_##name##_fwd(const Call *c)                \
    {                                                    \
        return drop(c, c->x[0], c->y, true);             \
    }                                                    \
    bool cuda_##name##_bwd(const Call *c)                \
    {                                                    \
        return drop(c, c->dy, c->dx[0], is_fresh(c, 0)); \
    }
extern "C" {
ROW(dropout)
ROW(spatial_dropout)

Space cuda_spatial_dropout_space(const Call *c)
{
    const Dims s = c->y->dim;
    Space space = {};
    if (c->sums.dx[0])
        space.bwd =
            col_reduce_bytes(col_reduce_joined(channel_cols(s), s.n), 1, 2);
    return space;
}

bool cuda_spatial_dropout_sums_grads(const Call *c)
{
    return c->dx[0] && dtype_bytes(c->dx[0]->type) == 2;
}
}
