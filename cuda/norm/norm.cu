/* norm.cu -- batch, instance, group and layer normalisation.
 *
 * All passes over rows use the layout of col_reduce.cuh: a block has a part of
 * the rows of a set, a thread keeps its channels. Forward: statistics
 * (norm_stats.cu), then y. Backward: sums of dy and dy x_hat by channel (summed
 * over the sets they are dbeta and dgamma), means over the channels of a group
 * if it has several, then dx.
 *
 * The activation after the norm (Call.act) needs no pass of its own: forward
 * stores y after it; backward multiplies dy by its derivative on load. The
 * derivative follows from the sign of the norm's result, which is computed
 * again from x.
 *
 * Bound by memory: 12 bytes an element forward, 20 backward (x twice; x and dy
 * twice), 6 and 10 in 16 bits. 16 KB of shared memory. Sets of one row
 * (layer_norm, samples of one position) run in norm_layer.cu. */
#include "cuda/norm/grad_sums.cuh"
#include "cuda/norm/norm_bwd_on_load.cuh"

namespace {

enum { BATCH = 4 }; // rows that a thread loads at a time

/* Statistics and parameters of the thread's channels; scale: rstd gamma. Each
 * loop of loads is without branches, so that they are in flight together. */
template <int V>
__device__ __forceinline__ void channel_params(const Norm &p,
                                               const ColPosition &s,
                                               ChannelStats (&stat)[V],
                                               float (&scale)[V],
                                               float (&beta)[V])
{
    const NormStatsOut &k = p.stats_out;
#pragma unroll
    for (int v = 0; v < V; v++) scale[v] = 1, beta[v] = 0;
    if (k.gamma)
#pragma unroll
        for (int v = 0; v < V; v++)
            scale[v] = k.gamma[s.c + v], beta[v] = k.beta[s.c + v];
    if (p.given)
#pragma unroll
        for (int v = 0; v < V; v++) stat[v] = running_stats_of(p, s.c + v);
    else
#pragma unroll
        for (int v = 0; v < V; v++)
            stat[v] =
                k.stat[s.set * p.count + quotient((uint32_t)(s.c + v), p.per)];
#pragma unroll
    for (int v = 0; v < V; v++) scale[v] *= stat[v].rstd;
}

/* The parameters of a channel: y = (x - mean) scale + beta, and dx = dy scale +
 * (x - mean) x_coef + offset. */
struct ChannelTerms {
    ChannelStats stat;
    float scale, beta, x_coef, offset;
};

/* The coefficients of dx for channel c of a set. Both are 0 for constant
 * statistics and on an idle rank. They are then set to 0, not computed, so that
 * non-finite sums have no effect. */
__device__ __forceinline__ void norm_bwd_sums_of(const Norm &p, int64_t set,
                                                 int c,
                                                 const ChannelStats &stat,
                                                 double *x_coef, double *offset)
{
    *x_coef = *offset = 0;
    if (p.given || p.stats_out.step->shard.idle) return;
    const double gamma = p.stats_out.gamma ? (double)p.stats_out.gamma[c] : 1;
    const double n =
        p.joined ? p.joined[2 * p.channels] : (double)p.rows * p.per.by;
    const double *total = p.total + set * 2 * p.channels + c;
    // norm_bwd_group_sums_kernel skips groups of one channel: the total lacks
    // gamma
    norm_bwd_terms(p.per.by == 1 ? gamma : 1, stat, n, total[0],
                   total[p.channels], x_coef, offset);
}

/* The terms of the thread's V channels. The block computes those of each
 * channel of its tile once, as divisions in double are slow on most GPUs. All
 * threads of the block must call it. */
template <int V, bool BWD>
__device__ __forceinline__ void tile_terms(const Norm &p, const ColPosition &s,
                                           ChannelTerms (&own)[V])
{
    SMEM(ChannelTerms, terms, [TILE_UNITS * V]);
    uint32_t block = blockIdx.x;
    const int first = (int)(split(&block, p.cols.tiles) * p.cols.width.by) * V;
    const int count = min((int)p.cols.width.by * V, p.channels - first);
    const NormStatsOut &k = p.stats_out;
    for (int i = (int)threadIdx.x; i < count; i += BLOCK) {
        const int c = first + i;
        ChannelTerms t = {};
        t.stat = p.given
                     ? running_stats_of(p, c)
                     : k.stat[s.set * p.count + quotient((uint32_t)c, p.per)];
        t.scale = scale_of(k, t.stat, c), t.beta = beta_of(k, c);
        if (BWD) {
            double x_coef, offset;
            norm_bwd_sums_of(p, s.set, c, t.stat, &x_coef, &offset);
            t.x_coef = (float)x_coef, t.offset = (float)offset;
        }
        terms[i] = t;
    }
    __syncthreads();
    if (!s.valid) return;
#pragma unroll
    for (int v = 0; v < V; v++) own[v] = terms[s.c - first + v];
}

/* The layout of a pass that sums nothing: as many blocks as fill a GPU, if each
 * thread has BATCH rows. */
ColReduce elementwise_layout(const Norm &p)
{
    return col_reduce_of(p.col_sets, p.cols.rows, p.channels, p.vec, BATCH);
}

// -- forward -----------------------------------------------------------------

/* y = (x - mean) scale + beta. */
template <int V, Dtype D>
__global__ void __launch_bounds__(BLOCK) norm_fwd_kernel(const Norm p)
{
    const ColPosition s = col_position<V>(p.cols);
    const Element<D> *from = (const Element<D> *)p.x;
    Element<D> *to = (Element<D> *)p.out;
    const int64_t base = col_base(p.cols, s), deep = p.cols.deep;
    ChannelTerms of[V] = {};
    tile_terms<V, false>(p, s, of);

    for (int64_t row = s.from; row < s.to; row += BATCH * deep) {
        Vec<V> x[BATCH];
#pragma unroll
        for (int i = 0; i < BATCH; i++)
            if (row + i * deep < s.to)
                x[i] = load<V, D>(from + base + (row + i * deep) * p.channels);
#pragma unroll
        for (int i = 0; i < BATCH; i++) {
            if (row + i * deep >= s.to) continue;
            for (int v = 0; v < V; v++) {
                x[i].v[v] =
                    normal(x[i].v[v], of[v].stat, of[v].scale, of[v].beta);
                // without an activation the slope is 1
                x[i].v[v] = act_value<D>(p.act, x[i].v[v]);
            }
            store_vec<V, D>(to + base + (row + i * deep) * p.channels, x[i],
                            true);
        }
    }
}

// -- backward ----------------------------------------------------------------

/* Completes sums of dy and dy x_hat: totals, dbeta and dgamma. All threads of
 * the block must call it. */
template <int V>
__device__ __forceinline__ void norm_bwd_totals(const Norm &p,
                                                const ColPosition &s,
                                                const ColSums<2, V> &sums)
{
    const ColTotal all = col_grid_sums(p.cols, s, sums, p.parts, p.counters);
    if (!all.sum) return;
    for (int i = (int)threadIdx.x; i < 2 * all.count; i += BLOCK) {
        const int k = i >= all.count, c = all.first + i - k * all.count;
        if (p.total) p.total[(s.set * 2 + k) * p.channels + c] = all.sum[i];
        store_norm_grad(p.put, k, c, all.sum[i]);
    }
}

/* The rows of a thread in turn, BATCH at a time. */
template <int V, Dtype D> struct NormRows {
    const Element<D> *x_at, *dy_at;
    int64_t step;
    int left; // rows
    Raw<V, D> x[BATCH], dy[BATCH];

    __device__ __forceinline__ void begin(const Norm &p, const ColPosition &s)
    {
        const int deep = p.cols.deep;
        const int64_t first =
            col_base(p.cols, s) + s.from * (int64_t)p.channels;
        x_at = (const Element<D> *)p.x + first;
        dy_at = (const Element<D> *)p.dy + first;
        step = (int64_t)deep * p.channels;
        left = s.from < s.to ? (int)((s.to - s.from + deep - 1) / deep) : 0;
    }

    /* Loads the next rows; zeros after the last. */
    __device__ __forceinline__ void fetch()
    {
#pragma unroll
        for (int i = 0; i < BATCH; i++) {
            x[i] = dy[i] = {};
            if (i >= left) continue;
            x[i] = *(const Raw<V, D> *)(x_at + i * step);
            dy[i] = *(const Raw<V, D> *)(dy_at + i * step);
        }
        x_at += BATCH * step, dy_at += BATCH * step;
        left -= BATCH;
    }
};

/* Sums of dy and dy x_hat. With 3 blocks on a multiprocessor 16-bit types spill
 * on GPUs of compute capability 7.5 and 8.0. */
template <int V, Dtype D>
__global__ void __launch_bounds__(BLOCK, D == F32 ? 3 : 2)
    norm_bwd_sums_kernel(const Norm p)
{
    const ColPosition s = col_position<V>(p.cols);
    ColSums<2, V> sums;
    NormRows<V, D> rows;
    ChannelStats stat[V] = {};
    float scale[V] = {}, beta[V] = {};
    if (s.valid) channel_params<V>(p, s, stat, scale, beta);

    sums.clear();
    rows.begin(p, s);
    while (rows.left > 0) {
        float run[2][V] = {};
#pragma unroll 1
        for (int n = 0; n < RUN; n += BATCH) {
            rows.fetch();
#pragma unroll
            for (int i = 0; i < BATCH; i++) {
                const Vec<V> x = values_of<V, D>(rows.x[i]),
                             dy = values_of<V, D>(rows.dy[i]);
                for (int v = 0; v < V; v++) {
                    const float off = centred(x.v[v], stat[v]);
                    // without an activation the slope is 1
                    const float grad = act_grad<D>(
                        p.act, fmaf(off, scale[v], beta[v]), dy.v[v]);
                    run[0][v] += grad;
                    run[1][v] += grad * off;
                }
            }
        }
        sums.add(run);
    }

    // x_hat is (x - mean) rstd; rstd is loaded again, so that the loop keeps
    // no register for it
    if (s.valid) channel_params<V>(p, s, stat, scale, beta);
    for (int v = 0; v < V; v++)
        sums.of[V + v][threadIdx.x] *= (double)stat[v].rstd;
    norm_bwd_totals<V>(p, s, sums);
}

/* The same where each row has its own statistics. */
template <int V, Dtype D>
__global__ void __launch_bounds__(BLOCK, 2)
    norm_bwd_row_sums_kernel(const Norm p)
{
    const ColPosition s = col_position<V>(p.cols);
    // one group for all V channels, see norm_of
    const ChannelStats *stat =
        p.stats_out.stat + s.from * p.count + quotient((uint32_t)s.c, p.per);
    const int64_t step = (int64_t)p.cols.deep * p.count;
    ColSums<2, V> sums;
    NormRows<V, D> rows;

    sums.clear();
    rows.begin(p, s);
    while (rows.left > 0) {
        float run[2][V] = {};
#pragma unroll 1
        for (int n = 0; n < RUN; n += BATCH) {
            ChannelStats own[BATCH];
#pragma unroll
            for (int i = 0; i < BATCH; i++) {
                own[i] = {};
                if (i < rows.left) own[i] = stat[i * step];
            }
            rows.fetch();
            stat += BATCH * step;
#pragma unroll
            for (int i = 0; i < BATCH; i++) {
                const Vec<V> x = values_of<V, D>(rows.x[i]),
                             dy = values_of<V, D>(rows.dy[i]);
                for (int v = 0; v < V; v++) {
                    run[0][v] += dy.v[v];
                    run[1][v] +=
                        dy.v[v] * (centred(x.v[v], own[i]) * own[i].rstd);
                }
            }
        }
        sums.add(run);
    }
    norm_bwd_totals<V>(p, s, sums);
}

/* dbeta and dgamma from the totals of several sets; one block a channel. */
__global__ void __launch_bounds__(BLOCK) norm_param_grads_kernel(const Norm p)
{
    const int c = (int)blockIdx.x;
    double sum[2];
    partial_sums(p.total + c, p.col_sets, 2 * (int64_t)p.channels, p.channels,
                 sum);
    for (int k = 0; k < 2 && !threadIdx.x; k++)
        store_norm_grad(p.put, k, c, sum[k]);
}

/* Multiplies the totals by gamma and adds over the channels of a group; each
 * channel gets the sum. One block for each set and group. */
__global__ void __launch_bounds__(BLOCK)
    norm_bwd_group_sums_kernel(const Norm p)
{
    uint32_t set = blockIdx.x;
    const uint32_t first = split(&set, p.groups) * p.per.by;
    double *total = p.total + (int64_t)set * 2 * p.channels + first;
    double sum[2] = {};

    for (uint32_t c = threadIdx.x; c < p.per.by; c += blockDim.x) {
        const double gamma =
            p.stats_out.gamma ? (double)p.stats_out.gamma[first + c] : 1;
        sum[0] += total[c] * gamma;
        sum[1] += total[p.channels + c] * gamma;
    }

    thread_group_sums(sum, (int)blockDim.x);
    for (uint32_t c = threadIdx.x; c < p.per.by; c += blockDim.x) {
        total[c] = sum[0];
        total[p.channels + c] = sum[1];
    }
}

/* Completes p.joined for the all-reduce of the ranks: appends the number of
 * rows to the totals of this rank. An idle rank contributes zeros. */
__global__ void __launch_bounds__(BLOCK) norm_bwd_rank_sums_kernel(const Norm p)
{
    const bool idle = p.stats_out.step->shard.idle;
    EACH(i, 2 * p.channels + 1)
    {
        if (i == 2 * p.channels)
            p.joined[i] = idle ? 0 : (double)p.rows;
        else if (idle)
            p.joined[i] = 0;
    }
}

/* dx = dy scale + (x - mean) x_coef + offset, after dy is taken back through
 * the activation. dx may be in the memory of dy. */
template <int V, Dtype D>
__global__ void __launch_bounds__(BLOCK) norm_bwd_dx_kernel(const Norm p)
{
    const ColPosition s = col_position<V>(p.cols);
    NormRows<V, D> rows;
    ChannelTerms of[V] = {};
    tile_terms<V, true>(p, s, of);

    rows.begin(p, s);
    Element<D> *to =
        (Element<D> *)p.out + (rows.dy_at - (const Element<D> *)p.dy);
    while (rows.left > 0) {
        const int count = rows.left;
        rows.fetch();
#pragma unroll
        for (int i = 0; i < BATCH; i++, to += rows.step) {
            if (i >= count) continue;
            const Vec<V> x = values_of<V, D>(rows.x[i]);
            Vec<V> dy = values_of<V, D>(rows.dy[i]);
#pragma unroll
            for (int v = 0; v < V; v++) {
                const float off = centred(x.v[v], of[v].stat);
                const float grad = act_grad<D>(
                    p.act, fmaf(off, of[v].scale, of[v].beta), dy.v[v]);
                dy.v[v] =
                    grad * of[v].scale + off * of[v].x_coef + of[v].offset;
            }
            store_vec<V, D>(to, dy, p.fresh);
        }
    }
}

/* The same coefficients by channel for norm backward on load, see
 * norm_bwd_on_load.cuh; and the gradients of the parameters, if another call
 * left their sums. One thread a channel. */
struct NormBwdParams {
    Norm norm;
    const float2 *deferred_norm;
    float4 *to;
    NormGrads put; // dbeta, dgamma
};

__global__ void __launch_bounds__(BLOCK)
    norm_bwd_table_kernel(const __grid_constant__ NormBwdParams p)
{
    EACH(c, p.norm.channels)
    {
        const ChannelStats s = p.norm.stats_out.stat[c];
        double x_coef, offset;
        norm_bwd_sums_of(p.norm, 0, (int)c, s, &x_coef, &offset);
        p.to[c] = norm_bwd_line(p.deferred_norm[c], s, x_coef, offset);
        const double *total = p.norm.total;
        store_norm_grad(p.put, 0, (int)c, total[c]);
        store_norm_grad(p.put, 1, (int)c, total[p.norm.channels + c]);
    }
}

// -- the call ----------------------------------------------------------------

/* Extents, operands and the layout of scratch: partial sums, then totals. The
 * totals and the number of rows after them are also the buffer of the
 * all-reduce. */
Norm norm_of(const Call *c)
{
    const Dims s = c->x[0]->dim;
    const Attr *a = c->attr;
    Norm p = {};

    p.sets = s.n, p.rows = positions(s), p.channels = p.count = s.c;
    switch (a->op) {
    case OP_batch_norm:
        p.sets = 1, p.rows = rows(s);
        p.stats_out.eps = a->batch_norm.eps,
        p.stats_out.momentum = a->batch_norm.momentum;
        p.given = !c->train;
        p.about = values(c->x[3]);
        p.stats_out.running_mean = values(c->x[3]),
        p.stats_out.running_var = values(c->x[4]);
        break;
    case OP_instance_norm:
        p.stats_out.eps = a->instance_norm.eps;
        break;
    case OP_group_norm:
        p.stats_out.eps = a->group_norm.eps, p.count = a->group_norm.groups;
        break;
    default:
        p.sets = rows(s), p.rows = 1, p.count = 1;
        p.stats_out.eps = a->layer_norm.eps;
    }

    const int per = p.channels / p.count;
    p.groups = divisor(p.count), p.per = divisor(per);
    p.single_row = p.rows == 1 && a->op != OP_batch_norm;
    p.vec = vec_width(p.single_row ? per : p.channels);

    // sets of one row: dbeta and dgamma sum over all rows at once
    p.col_sets = p.single_row ? 1 : p.sets;
    p.cols = col_reduce_of(p.col_sets, p.sets * p.rows / p.col_sets, p.channels,
                           p.vec);
    p.group_count = thread_groups_of(p.sets * p.count, per);
    p.stats_out.step = c->dev ? gpu_step(c->dev) : NULL;
    p.x = c->x[0]->data, p.type = c->x[0]->type;
    p.stats_out.gamma = values(c->x[1]), p.stats_out.beta = values(c->x[2]);
    p.stats_out.stat = (ChannelStats *)c->saved;
    p.parts = (double *)c->scratch;
    p.act = act_of(c->act);
    if (p.parts)
        p.total =
            p.parts + col_reduce_bytes(p.cols, p.col_sets, 2) / sizeof(double);
    return p;
}

/* Saved: mean and rstd. Scratch: partial sums of two sums, and for the backward
 * pass the totals of each set. */
Space norm_space(const Call *c)
{
    const Norm p = norm_of(c);
    const size_t parts = col_reduce_bytes(p.cols, p.col_sets, 2);
    Space s = {};

    s.saved = (size_t)(p.sets * p.count) * sizeof(ChannelStats);

    // the ranks are not known yet, only that batch_norm may share its batch
    const size_t total = (size_t)(p.sets * 2 * p.channels + 1) * sizeof(double);
    s.fwd = p.single_row || p.given ? 0 : parts;
    if (s.fwd && c->attr->op == OP_batch_norm) s.fwd += total;
    if (c->sums.dy) return s;
    s.bwd = parts;
    if (!p.single_row) s.bwd += total;
    return s;
}

/* Statistics and y; with constant statistics only y. */
bool norm_fwd(const Call *c)
{
    Norm p = norm_of(c);
    p.out = c->y->data;
    if (!countable(c, p.sets * p.rows)) return false;
    if (p.single_row) return norm_rows_fwd(c, p);
    // a recomputed batch norm uses the statistics that it saved
    if (!p.given && !(c->recomputed && c->attr->op == OP_batch_norm) &&
        !norm_measure(c, &p))
        return false;
    p.cols = elementwise_layout(p);
    moves(moved(c->x[0]) + moved(c->y));
    LAUNCH_STORED(p.type, p.vec, norm_fwd_kernel, p.cols.blocks, c, p);
    return gpu_launched("norm");
}

/* dbeta and dgamma. */
NormGrads norm_grads_of(const Call *c)
{
    return {{values(c->dx[2]), values(c->dx[1])},
            {is_fresh(c, 2), is_fresh(c, 1)}};
}

/* Sums of dy and dy x_hat: totals for dx, and dbeta and dgamma. */
bool grads(const Call *c, const Norm &norm)
{
    Norm p = norm;
    const NormGrads put = norm_grads_of(c);
    p.counters = gpu_counters(c->dev, col_reduce_counters(p.cols, p.col_sets));
    if (p.col_sets == 1) p.put = put;
    if (p.single_row) p.total = NULL;
    moves(moved(c->x[0]) + moved(c->dy));
    if (p.single_row)
        LAUNCH_STORED(p.type, p.vec, norm_bwd_row_sums_kernel, p.cols.blocks, c,
                      p);
    else
        LAUNCH_STORED(p.type, p.vec, norm_bwd_sums_kernel, p.cols.blocks, c, p);
    if (!gpu_launched("norm, gradient sums")) return false;
    if (p.col_sets == 1 || !(put.to[0] || put.to[1])) return true;
    p.put = put;
    LAUNCH(norm_param_grads_kernel, (unsigned)p.channels,
           sum_threads(p.col_sets), 0, gpu_stream(c->dev), p);
    return gpu_launched("norm, totals");
}

/* The gradient sums, of all ranks if the ranks share the batch. If the call
 * that stored dy has made the sums, dbeta and dgamma are still to be
 * written. */
bool norm_bwd_sums(const Call *c, Norm *p)
{
    cudaStream_t stream = gpu_stream(c->dev);
    if (c->sums.dy)
        p->total = (double *)c->sums.dy->data;
    else if (!grads(c, *p))
        return false;
    if (!p->out || p->single_row) return true;

    if (uses_sync_batch_norm(c, *p)) {
        p->joined = p->total;
        LAUNCH(norm_bwd_rank_sums_kernel, blocks_for(2 * p->channels + 1),
               BLOCK, 0, stream, *p);
        if (!gpu_launched("norm, own gradients") ||
            !gpu_allreduce(c->dev, p->joined, F64, 2 * (int64_t)p->channels + 1,
                           1))
            return false;
    }

    if (!p->given && p->per.by > 1) {
        LAUNCH(norm_bwd_group_sums_kernel, (unsigned)(p->sets * p->count),
               sum_threads(p->per.by), 0, stream, *p);
        if (!gpu_launched("norm, groups")) return false;
    }
    return true;
}

/* The gradient sums if any result needs them, the means over groups, then
 * dx. */
bool norm_bwd(const Call *c)
{
    Norm p = norm_of(c);
    const bool affine = c->dx[1] || c->dx[2],
               needs_means = !p.single_row && !p.given;
    p.dy = c->dy->data, p.out = values(c->dx[0]), p.fresh = is_fresh(c, 0);
    if (!countable(c, p.sets * p.rows)) return false;

    // before dx, which may be in the memory of dy
    if ((affine || (needs_means && p.out)) && !norm_bwd_sums(c, &p))
        return false;
    if (!p.out) return true;
    if (p.single_row) return norm_rows_bwd(c, p);
    p.cols = elementwise_layout(p);
    moves(moved(c->x[0]) + moved(c->dy) + moved(c->dx[0], is_fresh(c, 0)));
    LAUNCH_STORED(p.type, p.vec, norm_bwd_dx_kernel, p.cols.blocks, c, p);
    return gpu_launched("norm, gradient");
}

} // namespace

static Call norm_of_deferred(const Call *c)
{
    Call n = *c;
    n.attr = c->norm.attr, n.norm = {};
    n.x[0] = c->y, n.dx[0] = c->dy, n.fresh = 1;
    for (int k = 1; k < MAX_IN; k++) {
        n.x[k] = c->norm.x[k], n.dx[k] = c->norm.dx[k];
        n.fresh |= (c->fresh >> (NORM_FRESH + k) & 1) << k;
    }
    return n;
}

static size_t deferred_bytes(const Norm &p, int parts)
{
    return (size_t)parts * 2 * (size_t)p.channels * sizeof(double);
}

Space deferred_norm_space(const Call *c, int parts)
{
    const Call n = norm_of_deferred(c);
    const Norm p = norm_of(&n);
    Space s = norm_space(&n);
    // the totals follow the parts
    if (parts)
        s.fwd = deferred_bytes(p, parts) +
                (size_t)(2 * p.channels + 1) * sizeof(double);
    return s;
}

bool deferred_norm_keep(const Call *c, NormStatsOut *stats_out, double *rows)
{
    const Call n = norm_of_deferred(c);
    const Norm p = norm_of(&n);
    *stats_out = p.stats_out, *rows = (double)p.rows;
    stats_out->table = norm_on_load_table(c->saved, p.channels);
    return !uses_sync_batch_norm(&n, p);
}

// a recomputed convolution stores the same y and saved the same statistics
bool deferred_norm_fwd(const Call *c, int parts)
{
    const Call n = norm_of_deferred(c);
    Norm p = norm_of(&n);
    p.stats_out.table = norm_on_load_table(c->saved, p.channels);
    if (parts) {
        p.about_0 = true;
        p.cols.parts = divisor(parts);
        p.total = (double *)((char *)c->scratch + deferred_bytes(p, parts));
    }
    return c->recomputed || norm_measure(&n, &p);
}

bool deferred_norm_bwd(const Call *c)
{
    const Call n = norm_of_deferred(c);
    // before the ranks all-reduce the sums in place
    return (!c->sums.dy || c->sums.written || grad_sums_store(c)) &&
           norm_bwd(&n);
}

bool deferred_norm_bwd_on_load(const Call *c, float4 *table, NormBwd *s)
{
    const Call n = norm_of_deferred(c);
    NormBwdParams p = {};
    p.norm = norm_of(&n);
    const bool joined = uses_sync_batch_norm(&n, p.norm);
    const bool puts = c->sums.dy && !c->sums.written;
    s->x = c->y->data, s->leak = act_of(c->act).leak;
    s->table = table;
    if (c->sums.written && !joined) {
        s->table = grad_sums_lines(c->sums.dy, p.norm.channels);
        return true;
    }
    p.deferred_norm = norm_on_load_table(c->saved, c->y->dim.c), p.to = table;
    p.norm.dy = n.dy->data, p.norm.out = n.dy->data;

    // the ranks all-reduce the sums in place, so this rank's are stored before
    if (puts && joined && !grad_sums_store(c)) return false;
    if (puts && !joined) p.put = norm_grads_of_dy(c);
    if (!norm_bwd_sums(&n, &p.norm)) return false;
    moves(4.0 * p.norm.channels * sizeof(float4));
    LAUNCH(norm_bwd_table_kernel, blocks_for(p.norm.channels), BLOCK, 0,
           gpu_stream(c->dev), p);
    return gpu_launched("norm, backward on load");
}

#define ROW(name)                            \
    Space cuda_##name##_space(const Call *c) \
    {                                        \
        return norm_space(c);                \
    }                                        \
    bool cuda_##name##_fwd(const Call *c)    \
    {                                        \
        return norm_fwd(c);                  \
    }                                        \
    bool cuda_##name##_bwd(const Call *c)    \
    {                                        \
        return norm_bwd(c);                  \
    }
extern "C" {
ROW(batch_norm)
ROW(instance_norm)
ROW(group_norm)
ROW(layer_norm)
}
