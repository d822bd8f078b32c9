/* channel_sums.cuh -- sums over all rows of what a call stores, of each
 * channel: those of y that a norm behind it wants, or those of gradients
 * (grad_sums.cuh).
 *
 * Blocks leave parts (parts, 2, channels), the last of them adds them up
 * (grid_reduce.cuh) and makes what the sums are for. */
#ifndef SEG_CUDA_NORM_CHANNEL_SUMS_H
#define SEG_CUDA_NORM_CHANNEL_SUMS_H
#include "cuda/norm/grad_sums.cuh"

struct ChannelSums {
    double *parts;      // NULL: none are made
    bool ends;          // else parts are only left, for others to add
    unsigned *counters; // where it ends
    GridReduce grid_reduce;
    int channels; // of a row of the result
    NormStatsOut
        stats_out; // of y: sums are of v and v^2; keep.stat NULL: gradients
    double rows;   // of y
    GradSums grads,
        second; // of dx; its channels below `border`, and the others
    int border;
};

/* Of `count` parts of `channels`; `scratch`: channel_sums_bytes of them. */
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

/* What they move: parts that are written and read. */
static inline double channel_sums_traffic(const ChannelSums &s)
{
    return s.parts ? 2.0 * (double)grid_reduce_traffic(s.grid_reduce) *
                         (double)channel_sums_bytes(1, s.channels)
                   : 0;
}

/* `columns` blocks that make one part have channels of their own. */
static inline void channel_sums_columns(const Call *c, int columns,
                                        ChannelSums *s)
{
    if (!s->ends) return;
    s->grid_reduce = grid_reduce_of(s->grid_reduce.parts, columns);
    s->counters =
        gpu_counters(c->dev, (int64_t)columns * s->grid_reduce.counters);
}

/* The block has left part `part` of channels first .. first + count - 1, which
 * it shares with the blocks of its column. pile: shared memory of at least 2
 * count numbers, and as many as it has threads. A function of its own, so that
 * the loop before it has all the registers. All threads come here. */
static inline __device__ __attribute__((noinline)) void channel_sums_finish(
    const ChannelSums &s, int part, int column, int first, int count,
    double *pile)
{
    if (!s.counters ||
        !grid_reduce_sums<2>(
            s.grid_reduce, part, s.counters + column * s.grid_reduce.counters,
            s.parts + first, 2 * (int64_t)s.channels, s.channels, count, pile))
        return;
    for (int i = (int)threadIdx.x; i < count; i += (int)blockDim.x) {
        const int c = first + i;
        const double sum = pile[i], other = pile[count + i];
        if (s.stats_out.stat)
            store_channel_stats(s.stats_out, c, s.rows, sum, other);
        else if (c < s.border && s.grads.runs)
            grad_sums_finish(s.grads, c, sum, other);
        else if (c >= s.border && s.second.runs)
            grad_sums_finish(s.second, c - s.border, sum, other);
    }
}
#endif
