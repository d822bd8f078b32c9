/* head.cu -- 1x1 convolutions with 1 to 8 output channels, in 16 bits: fprop,
 * and all gradients in one kernel.
 *
 * A product with 1 to 8 columns uses each element of x too rarely for tensor
 * cores. So x is read once forward and once backward, its deferred norm is
 * applied in registers, and everything derived from it stays in registers:
 *
 * - fprop: a group of lanes computes one position, each lane from 8 channels;
 *   y is a sum over the lanes.
 * - backward: the column reduction of col_reduce.cuh. A thread keeps its
 *   channels: dx is a sum over the output channels; dw, db and the gradient
 *   sums of dx (grad_sums.cuh) are sums over positions, one partial sum a
 *   block. The last block adds the partial sums.
 *
 * Bound by memory: x and y; backward x, dx and dy, in its stored type. */
#include "cuda/conv/head.cuh"
#include "cuda/lib/col_reduce.cuh"

namespace {

enum { CHANNELS = NARROW_CHANNELS }; // channels of a lane: 16 bytes

/* Limited by the number of registers: the channels of a thread in the backward
 * kernel, which has one sum for each pair of channel and output channel; the
 * positions whose loads are in flight. */
template <int RESULTS> constexpr int VEC_BWD = RESULTS > 2 ? 4 : CHANNELS;
template <int RESULTS> constexpr int ROWS_IN_FLIGHT = RESULTS > 4 ? 2 : 4;

struct ConvHead {
    Operand x;
    const void *w;
    const float *bias; // or NULL
    const void *dy;
    bool narrow_dy;
    Target y, dx;
    float *dw, *db; // NULL: not needed
    bool fresh_dw, fresh_db;
    GradSums grads; // over dx; its deferred norm is the norm of x
    // [part][dw, db, 2 sums over dx for each channel], without members that are
    // not needed
    double *parts;
    int size, part; // elements of dw and db; of all members
    GridReduce grid_reduce;
    unsigned *counters;
    int channels, results;
    int lanes; // lanes of a row, a power of two
    int64_t rows;
    ColReduce cols; // of the backward kernel
};

/* Loads w for channels c .. c+V-1, zeros past the last output channel. */
template <Dtype D, int B, int V>
__device__ __forceinline__ void load_weights(const ConvHead &p, int c,
                                             Vec<V> (&w)[B])
{
#pragma unroll
    for (int b = 0; b < B; b++) {
        w[b] = {};
        if (b < p.results)
            w[b] = load<V, D>((const Element<D> *)p.w + b * p.channels + c);
    }
}

/* Loads scale and shift of x's deferred norm for channels c .. c+V-1. */
template <int V>
__device__ __forceinline__ void load_norm(const ConvHead &p, int c,
                                          float2 (&by)[V])
{
#pragma unroll
    for (int v = 0; v < V; v++)
        by[v] = p.x.norm_on_load.table ? p.x.norm_on_load.table[c + v]
                                       : make_float2(1, 0);
}

/* Applies the deferred norm to V elements of x. */
template <Dtype D, int V>
__device__ __forceinline__ Vec<V> apply_norm(const ConvHead &p,
                                             const float2 (&by)[V],
                                             const Vec16<V> &line)
{
    Vec<V> x = values_of<V, D>(line);
    if (p.x.norm_on_load.table)
#pragma unroll
        for (int v = 0; v < V; v++)
            x.v[v] = norm_act_one<D>(p.x.norm_on_load.act, by[v], x.v[v]);
    return x;
}

template <Dtype D, int B>
__global__ void __launch_bounds__(BLOCK) conv_head_kernel(const ConvHead p)
{
    const int lane = (int)threadIdx.x & (p.lanes - 1), c = lane * CHANNELS;
    const int group_count = BLOCK / p.lanes, mine = (int)threadIdx.x / p.lanes;
    const bool in_range = c < p.channels;
    Vec<CHANNELS> w[B] = {};
    float2 by[CHANNELS] = {};
    float bias[B];

    if (in_range) {
        load_weights<D>(p, c, w);
        load_norm(p, c, by);
    }
    for (int b = 0; b < B; b++)
        bias[b] = p.bias && b < p.results ? p.bias[b] : 0;
    enum { ROWS = ROWS_IN_FLIGHT<B> };
    const int64_t tile = ROWS * (int64_t)group_count;

    // all threads of the block loop together: lanes add up
    for (int64_t at = blockIdx.x * tile; at < p.rows; at += gridDim.x * tile) {
        Vec16<CHANNELS> raw[ROWS];
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            const int64_t row = at + i * group_count + mine;
            raw[i] = {};
            if (in_range && row < p.rows)
                raw[i] = packed<CHANNELS>(p.x.data, row * p.channels + c);
        }
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            const int64_t row = at + i * group_count + mine;
            const auto x = apply_norm<D>(p, by, raw[i]);
#pragma unroll
            for (int b = 0; b < B; b++) {
                float sum = 0;
                for (int v = 0; v < CHANNELS; v++)
                    sum = fmaf(x.v[v], w[b].v[v], sum);
                sum = warp_sum(sum, p.lanes);
                // each lane stores every p.lanes-th output channel
                if (b < p.results && (b & (p.lanes - 1)) == lane &&
                    row < p.rows)
                    put_one(p.y, row * p.results + b, sum + bias[b]);
            }
        }
    }
}

/* Loads dy of a row in its stored type, zeros past the last output channel. */
template <Dtype D, int B>
__device__ __forceinline__ Vec<B> dy_of_row(const ConvHead &p, int64_t row)
{
    if constexpr (B == NARROW_CHANNELS)
        if (p.narrow_dy) return load<B, D>((const Element<D> *)p.dy + row * B);
    const float *at = (const float *)p.dy + row * p.results;
    if (p.results == B) return load<B>(at);
    Vec<B> y = {};
#pragma unroll
    for (int b = 0; b < B; b++)
        if (b < p.results) y.v[b] = at[b];
    return y;
}

/* Sums over the rows of a block: of the V channels of each thread, and of
 * `other`. put(v, sum) is called once for each of the sums, with v = V for
 * `other`. All threads of the block must call it. */
template <int V, class Put>
__device__ __forceinline__ void reduce_lanes(const ColReduce &w,
                                             const ColPosition &s,
                                             const Vec<V> &mine, float other,
                                             const Put &put)
{
    SMEM(double, partials, [V + 1][BLOCK]);
    const int t = (int)threadIdx.x;
    __syncthreads(); // the previous sums have been read
    for (int v = 0; v < V; v++) partials[v][t] = (double)mine.v[v];
    partials[V][t] = (double)other;
    block_tree_sum<V + 1>(w, s, partials);
    if (s.lane || !s.valid) return;
    for (int v = 0; v <= V; v++) put(v, partials[v][t]);
}

/* Stores or adds dx of a row at element i. With GRAD_SUMS_ON adds the stored
 * value to the gradient sums; x: the operand of the deferred norm. */
template <Dtype D, bool GRAD_SUMS_ON, int V>
__device__ __forceinline__ void put_dx(const ConvHead &p, int64_t i, Vec<V> dx,
                                       const Vec16<V> &x, const float2 (&by)[V],
                                       const float (&mean)[V], float leak,
                                       Vec<V> (&sum)[2])
{
    if constexpr (!GRAD_SUMS_ON) {
        if (p.dx.type == F32)
            store_vec<V>((float *)p.dx.data + i, dx, p.dx.fresh);
        else
            store_vec<V, D>((Element<D> *)p.dx.data + i, dx, p.dx.fresh);
    } else {
        Element<D> *to = (Element<D> *)p.dx.data + i;
        const auto norm_x = values_of<V, D>(x);
        if (!p.dx.fresh) {
            const auto old = load<V, D>(to);
            for (int v = 0; v < V; v++) dx.v[v] = old.v[v] + dx.v[v];
        }
        store_vec<V, D>(to, dx, true);
        for (int v = 0; v < V; v++)
            grad_sums_add(make_float4(by[v].x, by[v].y, mean[v], leak),
                          norm_x.v[v], rounded<D>(dx.v[v]), &sum[0].v[v],
                          &sum[1].v[v]);
    }
}

/* The reduction of the parts: the last block adds the parts of all blocks and
 * stores dw, db and the results of the gradient sums. There are few columns; a
 * thread adds one. */
static __device__ __attribute__((noinline)) void reduce_parts(const ConvHead &p)
{
    const int weights = p.dw ? p.channels * p.results : 0;
    const int items = p.size + (p.part - p.size) / 2;
    auto add = [&](int first, int step, int count, bool all) {
        double *at = p.parts + (int64_t)first * p.part;
        const int64_t stride = (int64_t)step * p.part;
        for (int i = (int)threadIdx.x; i < items; i += BLOCK) {
            const bool is_grad_sum = i >= p.size;
            const double one = strided_sum(at + i, stride, count);
            const double two =
                is_grad_sum ? strided_sum(at + i + p.channels, stride, count)
                            : 0;
            if (!all) {
                at[i] = one;
                if (is_grad_sum) at[i + p.channels] = two;
            } else if (is_grad_sum) {
                grad_sums_finish(p.grads, i - p.size, one, two);
            } else if (i < weights) {
                put(&p.dw[i], (float)one, p.fresh_dw);
            } else {
                put(&p.db[i - weights], (float)one, p.fresh_db);
            }
        }
    };
    grid_reduce(p.grid_reduce, (int)blockIdx.x, p.counters, add);
}

/* Chains of float additions, gradient sums included, are as long as bwd_cols
 * allows. */
template <Dtype D, int B, bool GRAD_SUMS_ON>
__global__ void __launch_bounds__(BLOCK, 2)
    conv_head_bwd_kernel(const __grid_constant__ ConvHead p)
{
    // gradient sums take the registers of half the rows
    enum {
        V = VEC_BWD<B>,
        ROWS = ROWS_IN_FLIGHT<B> / (GRAD_SUMS_ON && B > 1 ? 2 : 1)
    };
    const ColPosition s = col_position<V>(p.cols);
    const int64_t deep = p.cols.deep;
    Vec<V> w[B] = {}, dw[B] = {};
    float2 by[V] = {};
    float db[B] = {}, mean[V] = {};
    Vec<V> sum[2] = {};
    const bool reads_x = p.dw || (GRAD_SUMS_ON && p.grads.x);
    const float leak =
        GRAD_SUMS_ON && p.grads.x ? p.grads.norm_on_load.act.leak : 1;
    if (s.valid && p.dx.data) load_weights<D>(p, s.c, w);
    if (s.valid && reads_x) load_norm(p, s.c, by);
    for (int v = 0; v < V && GRAD_SUMS_ON && p.grads.x && s.valid; v++)
        mean[v] = p.grads.stat[s.c + v].hi;

    for (int64_t row = s.from; row < s.to; row += ROWS * deep) {
        Vec16<V> raw[ROWS];
        Vec<B> dy[ROWS];
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            const int64_t at = row + i * deep;
            raw[i] = {}, dy[i] = {};
            if (at >= s.to) continue;
            dy[i] = dy_of_row<D, B>(p, at);
            if (reads_x) raw[i] = packed<V>(p.x.data, at * p.channels + s.c);
        }
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            const int64_t at = row + i * deep;
            if (at >= s.to) continue;
            const auto x = apply_norm<D>(p, by, raw[i]);
            Vec<V> dx = {};
#pragma unroll
            for (int b = 0; b < B; b++) {
                db[b] += dy[i].v[b];
                for (int v = 0; v < V; v++) {
                    dw[b].v[v] = fmaf(dy[i].v[b], x.v[v], dw[b].v[v]);
                    dx.v[v] = fmaf(dy[i].v[b], w[b].v[v], dx.v[v]);
                }
            }
            if (p.dx.data)
                put_dx<D, GRAD_SUMS_ON>(p, at * p.channels + s.c, dx, raw[i],
                                        by, mean, leak, sum);
        }
    }

    double *own = p.parts + s.part * p.part;
    if constexpr (GRAD_SUMS_ON)
#pragma unroll
        for (int k = 0; k < 2; k++)
            reduce_lanes(p.cols, s, sum[k], 0, [&](int v, double all) {
                if (v < V) own[p.size + k * p.channels + s.c + v] = all;
            });
#pragma unroll
    for (int b = 0; b < B; b++) {
        if (b >= p.results || !p.size) continue;
        reduce_lanes(p.cols, s, dw[b], db[b], [&](int v, double all) {
            if (v < V && p.dw) own[b * p.channels + s.c + v] = all;
            if (v == V && p.db && s.c == 0) own[p.size - p.results + b] = all;
        });
    }
    if (p.part) reduce_parts(p);
}

// -- launching ---------------------------------------------------------------

/* The column reduction of the backward kernel, in which no thread adds more
 * rows than a chain has terms. */
ColReduce bwd_cols(const ConvProblem *r)
{
    const int64_t all = rows(r->output);
    ColReduce w =
        col_reduce_of(1, all, r->cin, r->cout > 2 ? VEC_BWD<8> : VEC_BWD<2>);
    w.part = least(w.part, CHAIN * (int64_t)w.deep);
    w.parts = divisor(ceil_div(all, w.part));
    w.blocks = w.parts.by * w.tiles.by;
    return w;
}

ConvHead conv_head_params(const ConvProblem *r, const Operand &x, const void *w)
{
    const Call *c = r->c;
    ConvHead p = {};
    p.x = x, p.w = w;
    p.channels = r->cin, p.results = r->cout;

    // the planner asks for sizes before there are addresses
    const bool db = c->dx[2] && !c->sums.written;
    p.dw = values(c->dx[1]), p.fresh_dw = is_fresh(c, 1);
    if (db) p.db = values(c->dx[2]), p.fresh_db = is_fresh(c, 2);
    p.grads = grad_sums_of(c, 0);
    p.size = (c->dx[1] ? r->cin * r->cout : 0) + (db ? r->cout : 0);
    p.part = p.size + (p.grads.runs ? GRAD_SUMS * r->cin : 0);
    p.rows = rows(r->output);
    for (p.lanes = 1; p.lanes * CHANNELS < r->cin;) p.lanes *= 2;
    p.cols = bwd_cols(r), p.grid_reduce = grid_reduce_of(p.cols.parts.by, 1);
    return p;
}

template <Dtype D, int B>
void launch_fprop(const ConvProblem *r, const ConvHead &p)
{
    const int64_t tile = ROWS_IN_FLIGHT<B> * (BLOCK / p.lanes);
    const unsigned blocks =
        (unsigned)least(ceil_div(p.rows, tile), COL_REDUCE_BLOCKS);
    LAUNCH((conv_head_kernel<D, B>), blocks, BLOCK, 0, gpu_stream(r->c->dev),
           p);
}

template <Dtype D, int B>
void launch_bwd(const ConvProblem *r, const ConvHead &p)
{
    cudaStream_t stream = gpu_stream(r->c->dev);
    if (p.grads.runs)
        LAUNCH((conv_head_bwd_kernel<D, B, true>), p.cols.blocks, BLOCK, 0,
               stream, p);
    else
        LAUNCH((conv_head_bwd_kernel<D, B, false>), p.cols.blocks, BLOCK, 0,
               stream, p);
}

size_t parts_bytes(const ConvHead &p)
{
    return (size_t)p.cols.parts.by * (size_t)p.part * sizeof(double);
}

/* start<D, B>(r, p), with B the power of two that holds the output channels. */
#define CALL_CONV_HEAD_OF(D, launch_fprop, r, p)  \
    ((p).results > 4   ? launch_fprop<D, 8>(r, p) \
     : (p).results > 2 ? launch_fprop<D, 4>(r, p) \
     : (p).results > 1 ? launch_fprop<D, 2>(r, p) \
                       : launch_fprop<D, 1>(r, p))

#define CALL_CONV_HEAD(launch_fprop, r, p)             \
    ((r)->c->precision == PRECISION_bf16               \
         ? CALL_CONV_HEAD_OF(BF16, launch_fprop, r, p) \
         : CALL_CONV_HEAD_OF(F16, launch_fprop, r, p))

} // namespace

// not with a deferred norm of y: it needs statistics, which this kernel does
// not write
bool conv_head_takes(const ConvProblem *r)
{
    const Window *g = &r->win;
    bool one = g->groups == 1;
    for (int i = 0; i < 3; i++)
        one = one && g->k[i] == 1 && g->s[i] == 1 && !g->lo[i] && !g->hi[i];
    return one && call_op(r->c) != OP_upconv && !r->c->norm.deferred &&
           !r->c->x[X2] && r->cout <= CONV_HEAD_COUT &&
           r->cin <= CONV_HEAD_CIN && r->cin % NARROW_CHANNELS == 0 &&
           precision_copy(r->c->precision) != F32;
}

bool conv_head_fprop(const ConvProblem *r, const Operand &x, const void *w)
{
    const Call *c = r->c;
    ConvHead p = conv_head_params(r, x, w);
    p.bias = values(c->x[2]), p.y = target_of(c->y, true);
    if (!countable(c, p.rows)) return false;
    moves(conv_operand_bytes(r, numel(r->input) + conv_filter_size(r)) +
              moved(c->y),
          conv_flops(r));
    CALL_CONV_HEAD(launch_fprop, r, p);
    return gpu_launched("conv_head fprop");
}

size_t conv_head_bytes(const ConvProblem *r)
{
    return parts_bytes(conv_head_params(r, {}, NULL));
}

bool conv_head_bwd(const ConvProblem *r, const Operand &x, const void *w)
{
    const Call *c = r->c;
    ConvHead p = conv_head_params(r, x, w);
    p.dy = c->dy->data, p.narrow_dy = c->dy->type != F32;
    if (c->dx[0]) p.dx = target_of(c->dx[0], is_fresh(c, 0));
    p.parts = (double *)c->scratch;
    p.counters = gpu_counters(c->dev, p.grid_reduce.counters);
    if (!countable(c, p.rows)) return false;
    const double flops = conv_flops(r);
    moves((p.dw || p.grads.x ? conv_operand_bytes(r, numel(r->input)) : 0) +
              moved(c->dy) +
              (c->dx[0] ? conv_operand_bytes(r, conv_filter_size(r)) : 0) +
              moved(c->dx[0], is_fresh(c, 0)) +
              2.0 * (double)grid_reduce_traffic(p.grid_reduce) * p.part *
                  sizeof(double) +
              moved(c->dx[1], p.fresh_dw),
          (p.dw ? flops : 0) + (c->dx[0] ? flops : 0));
    CALL_CONV_HEAD(launch_bwd, r, p);
    return gpu_launched("conv_head bwd");
}
