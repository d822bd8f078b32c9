/* close.cu -- totals of the sums that a call made over a gradient: see
 * close.cuh.
 *
 * A block a channel; parts are added in the order of its threads, in double.
 * Bound by latency: parts are some hundredth of what they are sums of. */
#include "close.cuh"
#include "team.cuh"

namespace {

struct Totals {
    const double *parts; // (count, 2, channels)
    double *total;       // (2, C)
    const Stat *stat;    // (C) of the norm, or NULL
    int count, channels, from;
};

__global__ void __launch_bounds__(BLOCK) close_total_kernel(const Totals p)
{
    const int c = (int)blockIdx.x;
    double sum[2];
    part_sums(p.parts + p.from + c, p.count, 2 * (int64_t)p.channels,
              p.channels, sum);
    if (threadIdx.x) return;
    p.total[c] = sum[0];
    if (!p.stat) return;
    const Stat s = p.stat[c];
    // what the parts left of the mean
    p.total[gridDim.x + c] = (sum[1] - (double)s.lo * sum[0]) * (double)s.rstd;
}

__global__ void __launch_bounds__(BLOCK)
    close_put_kernel(const double *total, int channels, const Puts to)
{
    EACH(c, channels)
    {
        put_total(to, 0, (int)c, total[c]);
        put_total(to, 1, (int)c, total[channels + c]);
    }
}

} // namespace

bool close_total(const Call *c, int k, const double *parts, int count,
                 int channels, int from)
{
    const int own = c->x[k]->dim.c;
    Totals p = {parts,
                (double *)c->total[k]->data,
                closing_of(c, k).stat,
                count,
                channels,
                from};
    moves((double)count * 2 * own * sizeof(double) +
          2.0 * own * sizeof(double));
    LAUNCH(close_total_kernel, (unsigned)own, sum_threads(count), 0,
           gpu_stream(c->dev), p);
    return gpu_launched("totals of a gradient");
}

bool close_put(const Call *c, const Puts &to)
{
    const int channels = c->y->dim.c;
    if (!to.to[0] && !to.to[1]) return true;
    moves(4.0 * channels * sizeof(double));
    LAUNCH(close_put_kernel, blocks_for(channels), BLOCK, 0, gpu_stream(c->dev),
           (const double *)c->dy_total->data, channels, to);
    return gpu_launched("slopes by totals");
}
