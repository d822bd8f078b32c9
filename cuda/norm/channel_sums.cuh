/* channel_sums.cuh -- sums by channel over all rows of a tensor that a kernel
 * writes: of y for the statistics of the norm after it, or of gradients
 * (grad_sums.cuh).
 *
 * Each block writes partial sums (parts, 2, channels); the last block adds them
 * (grid_reduce.cuh) and computes the statistics or parameter gradients from
 * them. If blocks write several parts each, a launch of its own adds them
 * (channel_sums_add). */
#ifndef SEG_CUDA_NORM_CHANNEL_SUMS_H
#define SEG_CUDA_NORM_CHANNEL_SUMS_H
#include "cuda/norm/grad_sums.cuh"

struct ChannelSums {
    double *parts;      // NULL: no sums
    bool ends;          // this call adds the parts, in its last block or by
                        // channel_sums_add; else a later call does
    unsigned *counters; // of the last block
    GridReduce grid_reduce;
    int channels;           // of a row of the result
    NormStatsOut stats_out; // of y: sums of v and v^2; stats_out.stat NULL:
                            // sums of gradients
    double rows;            // of y
    GradSums grads,
        second; // of dx: channels below `border`, and the others
    int border;
};

/* Sums of `count` parts of `channels` channels; `scratch` has
 * channel_sums_bytes. */
static inline ChannelSums channel_sums_of(int count, int channels,
                                          void *scratch)
{
    ChannelSums s = {};
    if (!count) return s;
    s.parts = (double *)scratch, s.channels = s.border = channels;
    s.grid_reduce = grid_reduce_of(count, 1);
    return s;
}

static inline size_t channel_sums_bytes(int count, int channels)
{
    return (size_t)count * 2 * (size_t)channels * sizeof(double);
}

/* Bytes that the partial sums write and read. */
static inline double channel_sums_traffic(const ChannelSums &s)
{
    return s.parts ? 2.0 * (double)grid_reduce_traffic(s.grid_reduce) *
                         (double)channel_sums_bytes(1, s.channels)
                   : 0;
}

/* Each part is written by `columns` blocks, one for each range of channels;
 * each column gets its own counters. */
static inline void channel_sums_columns(const Call *c, int columns,
                                        ChannelSums *s)
{
    if (!s->ends) return;
    s->grid_reduce = grid_reduce_of(s->grid_reduce.parts, columns);
    s->counters =
        gpu_counters(c->dev, (int64_t)columns * s->grid_reduce.counters);
}

/* Computes the results of channels first .. first + count - 1 from their totals
 * sum[2][count]. All threads of the block must call it. */
static __device__ __forceinline__ void channel_sums_store(const ChannelSums &s,
                                                          int first, int count,
                                                          const double *totals)
{
    for (int i = (int)threadIdx.x; i < count; i += (int)blockDim.x) {
        const int c = first + i;
        const double sum = totals[i], other = totals[count + i];
        if (s.stats_out.stat)
            store_channel_stats(s.stats_out, c, s.rows, sum, other);
        else if (c < s.border && s.grads.runs)
            grad_sums_finish(s.grads, c, sum, other);
        else if (c >= s.border && s.second.runs)
            grad_sums_finish(s.second, c - s.border, sum, other);
    }
}

/* Call it after the block has stored part `part` of channels first .. first +
 * count - 1, which it shares with the blocks of its column. partials: shared
 * memory of at least 2 count doubles, and of one per thread. Not inlined, so
 * that the main loop before it has all registers. All threads must call it. */
static inline __device__ __attribute__((noinline)) void channel_sums_finish(
    const ChannelSums &s, int part, int column, int first, int count,
    double *partials)
{
    if (!s.counters ||
        !grid_reduce_sums<2>(s.grid_reduce, part,
                             s.counters + column * s.grid_reduce.counters,
                             s.parts + first, 2 * (int64_t)s.channels,
                             s.channels, count, partials))
        return;
    channel_sums_store(s, first, count, partials);
}

/* In channel_sums.cu: queues the sum of all parts, which an earlier launch has
 * stored, and the results from it. Overwrites parts. False with the reason. */
bool channel_sums_add(const Call *c, const ChannelSums &sums);
#endif
