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
    const double *at = p.parts + p.from + c;
    const int64_t pair = 2 * (int64_t)p.channels;
    double sum[2] = {};
    for (int64_t i = threadIdx.x; i < p.count; i += blockDim.x) {
        sum[0] += at[i * pair];
        sum[1] += at[i * pair + p.channels];
    }
    team_sums(sum, (int)blockDim.x);
    if (threadIdx.x) return;
    p.total[c] = sum[0];
    if (!p.stat) return;
    const Stat s = p.stat[c];
    // what the parts left of the mean
    p.total[gridDim.x + c] = (sum[1] - (double)s.lo * sum[0]) * (double)s.rstd;
}

struct Put {
    const double *total; // (2, C)
    float *slope[2];
    bool fresh[2];
    int channels;
};

__global__ void __launch_bounds__(BLOCK) close_put_kernel(const Put p)
{
    EACH(i, 2 * p.channels)
    {
        const int which = i >= p.channels;
        const int64_t c = i - which * p.channels;
        if (p.slope[which])
            put(&p.slope[which][c], (float)p.total[i], p.fresh[which]);
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

bool close_put(const Call *c, const Tensor *total, float *const slope[2],
               const bool fresh[2])
{
    Put p = {(const double *)total->data,
             {slope[0], slope[1]},
             {fresh[0], fresh[1]},
             c->y->dim.c};
    if (!slope[0] && !slope[1]) return true;
    moves(4.0 * p.channels * sizeof(double));
    LAUNCH(close_put_kernel, blocks_for(2 * p.channels), BLOCK, 0,
           gpu_stream(c->dev), p);
    return gpu_launched("slopes by totals");
}
