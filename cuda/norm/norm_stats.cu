/* norm_stats.cu -- the statistics of a normalisation: mean and rstd of each set
 * and group.
 *
 * Sums by channel are a column reduction (col_reduce.cuh), and its last blocks
 * compute the statistics. The sums are of d = x - pivot and d^2, where pivot is
 * the first element of the set and group, so the difference d^2 - (sum d)^2 / n
 * stays far above the rounding of double. A thread sums RUN rows in float about
 * their own mean and continues in double.
 *
 * Bound by memory: 4 bytes an element, 2 in 16 bits. 16 KB of shared memory. */
#include "cuda/norm/norm.cuh"

namespace {

/* Adds RUN numbers, v[0 .. n-1] and zeros, to the sums of d and d^2, d = v -
 * pivot. */
template <int V>
__device__ __forceinline__ void add_run(const Vec<V> (&x)[RUN], int v, int n,
                                        double pivot, double *sum,
                                        double *square)
{
    const float share = n == RUN ? 1.0f / RUN : 1.0f / (float)n;
    float mean = 0, off = 0, m2 = 0;
#pragma unroll
    for (int i = 0; i < RUN; i++) mean += x[i].v[v];
    mean *= share;
#pragma unroll
    for (int i = 0; i < RUN; i++) {
        const float e = i < n ? x[i].v[v] - mean : 0;
        off += e; // the rounding error of the mean
        m2 += e * e;
    }

    off *= share;
    const double d = (double)mean - pivot + (double)off;
    *sum += n * d;
    *square += n * d * d + (double)(m2 - (float)n * off * off);
}

/* Element i of x. Its callers read single elements and are not instantiated by
 * type. */
__device__ __forceinline__ float element(const Norm &p, int64_t i)
{
    if (p.type == BF16)
        return load<1, BF16>((const Element<BF16> *)p.x + i).v[0];
    if (p.type == F16) return load<1, F16>((const Element<F16> *)p.x + i).v[0];
    return ((const float *)p.x)[i];
}

/* Mean and variance of a set and group from its sums. */
__device__ __forceinline__ void moments(const Norm &p, int64_t set,
                                        uint32_t group, const double (&sum)[2],
                                        double *mean, double *var)
{
    moments_by((double)p.rows * p.per.by, sum[0], sum[1], mean, var);
    if (!p.about_0)
        *mean += (double)element(p, set * p.rows * p.channels +
                                        (int64_t)group * p.per.by);
}

/* Mean and variance of the block's set and group from partial sums; valid on
 * thread 0. */
__device__ __forceinline__ void moments(const Norm &p, double *mean,
                                        double *var)
{
    uint32_t set = blockIdx.x;
    const uint32_t group = split(&set, p.groups), first = group * p.per.by;
    const uint32_t items = p.cols.parts.by * p.per.by;
    double sum[2] = {};

    for (uint32_t i = threadIdx.x; i < items; i += blockDim.x) {
        uint32_t part = i;
        const uint32_t c = first + split(&part, p.per);
        const double *at =
            p.parts + ((int64_t)set * p.cols.parts.by + part) * 2 * p.channels;
        sum[0] += at[c];
        sum[1] += at[p.channels + c];
    }

    thread_group_sums(sum, (int)blockDim.x);
    moments(p, set, group, sum, mean, var);
}

/* Stores the statistics of the groups of a tile, computed from its totals, and
 * updates the running statistics, except on an idle rank (without a sample of
 * the batch: Shard in op.h). */
__device__ __forceinline__ void store_all_stats(const Norm &p, int64_t set,
                                                const ColTotal &all)
{
    const int per = (int)p.per.by, end = all.sum ? all.count / per : 0;
    for (int g = (int)threadIdx.x; g < end; g += BLOCK) {
        const uint32_t group = quotient((uint32_t)all.first, p.per) + g;
        double mean, var, sum[2] = {};
        for (int c = g * per; c < (g + 1) * per; c++) {
            sum[0] += all.sum[c];
            sum[1] += all.sum[all.count + c];
        }
        moments(p, set, group, sum, &mean, &var);
        store_stats(p.stats_out, set * p.count + group, (double)p.rows * per,
                    mean, var, !p.stats_out.step->shard.idle);
    }
}

/* Sums of d and d^2 by channel over a part of the rows; the last block stores
 * the statistics if there are counters. */
template <int V, Dtype D>
__global__ void __launch_bounds__(BLOCK, V == 1 ? 3 : 2)
    norm_stats_kernel(const Norm p)
{
    const ColPosition s = col_position<V>(p.cols);
    const Element<D> *from = (const Element<D> *)p.x;
    const int64_t base = col_base(p.cols, s), deep = p.cols.deep;
    ColSums<2, V> sums;
    double pivot[V] = {};
    sums.clear();

    for (int v = 0; v < V && s.valid; v++) {
        const uint32_t group = quotient((uint32_t)(s.c + v), p.per);
        const Element<D> *first = from + base - s.c + group * p.per.by;
        pivot[v] = (double)load<1, D>(first).v[0];
    }

    for (int64_t row = s.from; row < s.to; row += RUN * deep) {
        Vec<V> x[RUN];
        int n = 0;
#pragma unroll
        for (int i = 0; i < RUN; i++) {
            x[i] = {};
            const int64_t at = row + i * deep;
            if (at >= s.to) continue;
            x[i] = load<V, D>(from + base + at * p.channels);
            n++;
        }
#pragma unroll
        for (int v = 0; v < V; v++)
            add_run<V>(x, v, n, pivot[v], &sums.of[v][threadIdx.x],
                       &sums.of[V + v][threadIdx.x]);
    }

    store_all_stats(p, s.set,
                    col_grid_sums(p.cols, s, sums, p.parts, p.counters));
}

/* Statistics of a set and group from partial sums; one block each. */
__global__ void __launch_bounds__(BLOCK) norm_stats_finish_kernel(const Norm p)
{
    double mean, var;
    moments(p, &mean, &var);
    if (threadIdx.x) return;
    store_stats(p.stats_out, blockIdx.x, (double)p.rows * p.per.by, mean, var,
                !p.stats_out.step->shard.idle);
}

/* The values that the ranks all-reduce: sums of d and d^2, d = x - about, and
 * the number of rows; one block a channel. `about` is the running mean, which
 * is the same on all ranks and close to the mean of the batch: the difference
 * of squares stays far above the rounding of double. */
__global__ void __launch_bounds__(BLOCK)
    norm_stats_rank_sums_kernel(const Norm p)
{
    const int c = (int)blockIdx.x;
    const double n = p.stats_out.step->shard.idle ? 0 : (double)p.rows;
    double mean, var;
    moments(p, &mean, &var);
    if (threadIdx.x) return;
    const double d = mean - (double)p.about[c];
    // the data of an idle rank may be non-finite, so 0 is stored directly
    p.joined[c] = n == 0 ? 0 : n * d;
    p.joined[p.channels + c] = n == 0 ? 0 : n * (var + d * d);
    if (c == 0) p.joined[2 * p.channels] = n;
}

/* Statistics from the sums of all ranks; one thread a channel. */
__global__ void __launch_bounds__(BLOCK)
    norm_stats_all_ranks_kernel(const Norm p)
{
    const double n = p.joined[2 * p.channels];
    EACH(c, p.channels)
    {
        double off, var;
        moments_by(n, p.joined[c], p.joined[p.channels + c], &off, &var);
        store_stats(p.stats_out, c, n, (double)p.about[c] + off, var, true);
    }
}

/* Statistics over the batch of all ranks. */
bool joined_stat(const Call *c, Norm *p)
{
    cudaStream_t stream = gpu_stream(c->dev);
    p->joined = p->total;
    LAUNCH(norm_stats_rank_sums_kernel, (unsigned)p->channels,
           sum_threads((int64_t)p->cols.parts.by), 0, stream, *p);
    if (!gpu_launched("norm, own statistics") ||
        !gpu_allreduce(c->dev, p->joined, F64, 2 * (int64_t)p->channels + 1, 1))
        return false;
    LAUNCH(norm_stats_all_ranks_kernel, blocks_for(p->channels), BLOCK, 0,
           stream, *p);
    return gpu_launched("norm, statistics of all");
}

/* Is each group of channels inside one tile of the reduction? */
bool groups_are_whole(const Norm &p)
{
    return p.per.by == 1 || p.cols.tiles.by == 1;
}

} // namespace

bool norm_measure(const Call *c, Norm *p)
{
    const bool joined = uses_sync_batch_norm(c, *p);
    if (!p->about_0) {
        if (!joined && groups_are_whole(*p))
            p->counters =
                gpu_counters(c->dev, col_reduce_counters(p->cols, p->sets));
        moves(moved(c->x[0]));
        LAUNCH_STORED(p->type, p->vec, norm_stats_kernel, p->cols.blocks, c,
                      *p);
        if (!gpu_launched("norm, sums")) return false;
        if (p->counters) return true;
    }

    if (joined) return joined_stat(c, p);
    LAUNCH(norm_stats_finish_kernel, (unsigned)(p->sets * p->count),
           sum_threads((int64_t)p->cols.parts.by * p->per.by), 0,
           gpu_stream(c->dev), *p);
    return gpu_launched("norm, statistics");
}
