/* channel_sums.cu -- adds the partial sums of channel_sums.cuh that a kernel
 * has stored, many of them by each of its blocks, and computes the results.
 *
 * A block adds a group of neighbouring parts for 16 channels; the last block of
 * these channels adds the groups. The number of groups, at most
 * GRID_REDUCE_FAN_IN, depends on the number of parts alone. A thread loads an
 * eighth of a group (of 64 parts, or of a FAN_IN-th of all if that is more),
 * eight loads in flight. */
#include "cuda/norm/channel_sums.cuh"

namespace {

enum {
    CHANNELS = 16,    // of a block: rows of 128 bytes, and 8 rows at a time
    LEAST_PARTS = 64, // worth a block
};

struct Add {
    ChannelSums sums; // grid_reduce: over the groups
    int group;        // parts of a group
    int parts;
};

__global__ void __launch_bounds__(BLOCK)
    channel_sums_kernel(const __grid_constant__ Add p)
{
    SMEM(double, totals, [BLOCK]);
    const ChannelSums &s = p.sums;
    const int group = (int)blockIdx.x, column = (int)blockIdx.y;
    const int first = column * CHANNELS;
    const int count = min((int)CHANNELS, s.channels - first);
    const int64_t row = 2 * (int64_t)s.channels, step = p.group * row;
    double *parts = s.parts + first, *own = parts + group * step;

    block_sum_rows<2>(own, row, min(p.group, p.parts - group * p.group),
                      s.channels, count, totals);
    if (s.grid_reduce.parts > 1) {
        for (int i = (int)threadIdx.x; i < 2 * count; i += BLOCK)
            own[i / count * s.channels + i % count] = totals[i];
        if (!grid_reduce_sums<2>(s.grid_reduce, group,
                                 s.counters + column * s.grid_reduce.counters,
                                 parts, step, s.channels, count, totals))
            return;
    }
    channel_sums_store(s, first, count, totals);
}

} // namespace

bool channel_sums_add(const Call *c, const ChannelSums &sums)
{
    Add p = {sums, 0, sums.grid_reduce.parts};
    p.group = (int)most(LEAST_PARTS, ceil_div(p.parts, GRID_REDUCE_FAN_IN));
    const int64_t groups = ceil_div(p.parts, p.group),
                  columns = ceil_div(sums.channels, CHANNELS);
    p.sums.grid_reduce = grid_reduce_of(groups, columns);
    p.sums.counters =
        gpu_counters(c->dev, columns * p.sums.grid_reduce.counters);
    moves((double)channel_sums_bytes(p.parts, sums.channels));
    const dim3 blocks((unsigned)groups, (unsigned)columns);
    LAUNCH(channel_sums_kernel, blocks, BLOCK, 0, gpu_stream(c->dev), p);
    return gpu_launched("sums by channel");
}
