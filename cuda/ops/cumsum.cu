/* cumsum.cu -- running sums along an axis: see cpu/ref/cumsum.c.
 *
 * Where enough lines lie side by side, each thread sums one line, and adjacent
 * threads read adjacent memory. Few lines, or lines along the channels, have a
 * block each, which scans 256 elements at a time in shared memory (4 KB) and
 * carries the sum to the next ones. Sums are in double. Bound by memory: 8
 * bytes an element, 12 where it is added to dx. */
#include "cuda/lib/kernel.cuh"
extern "C" {
#include "engine/graph/rearrange.h"
}

namespace {

enum { MANY_LINES = 4096 };

struct Cumsum {
    const float *from;
    float *to;
    int64_t lines, extent, step; // of the axis
    bool reverse, fresh;
};

/* The index of element k of a line. */
__device__ __forceinline__ int64_t element(const Cumsum &p, int64_t line,
                                           int64_t k)
{
    const int64_t at = p.reverse ? p.extent - 1 - k : k;
    return (line / p.step * p.extent + at) * p.step + line % p.step;
}

__global__ void __launch_bounds__(BLOCK) cumsum_kernel(const Cumsum p)
{
    EACH(line, p.lines)
    {
        double sum = 0;
        for (int64_t k = 0; k < p.extent; k++) {
            const int64_t i = element(p, line, k);
            sum += p.from[i];
            put(&p.to[i], (float)sum, p.fresh);
        }
    }
}

__global__ void __launch_bounds__(BLOCK) cumsum_scan_kernel(const Cumsum p)
{
    SMEM(double, sums, [2][BLOCK]);
    const int t = (int)threadIdx.x;
    for (int64_t line = blockIdx.x; line < p.lines; line += gridDim.x) {
        double carry = 0;
        for (int64_t k = 0; k < p.extent; k += BLOCK) {
            const int64_t i = element(p, line, k + t);
            const bool inside = k + t < p.extent;
            int now = 0;
            sums[0][t] = inside ? p.from[i] : 0;
            __syncthreads();
            // after each step: the sum of 2n elements up to this one
            for (int n = 1; n < BLOCK; n *= 2, now = 1 - now) {
                sums[1 - now][t] =
                    sums[now][t] + (t >= n ? sums[now][t - n] : 0);
                __syncthreads();
            }
            if (inside) put(&p.to[i], (float)(carry + sums[now][t]), p.fresh);
            carry += sums[now][BLOCK - 1];
            __syncthreads(); // before the next elements overwrite the sums
        }
    }
}

bool cumsum(const Call *c, const Tensor *from, const Tensor *to, bool back)
{
    if (!to) return true;
    const int axis = c->attr->cumsum.axis;
    Cumsum p = {};
    p.from = values(from), p.to = values(to);
    p.extent = dims_axis(to->dim, axis), p.step = dims_step(to->dim, axis);
    p.lines = numel(to->dim) / p.extent;
    p.reverse = c->attr->cumsum.reverse != back;
    p.fresh = !back || is_fresh(c, 0);
    const bool scan = p.extent > WARP && (p.step == 1 || p.lines < MANY_LINES);
    if (scan)
        LAUNCH(cumsum_scan_kernel, (unsigned)least(p.lines, 1 << 16), BLOCK, 0,
               gpu_stream(c->dev), p);
    else
        LAUNCH(cumsum_kernel, blocks_for(p.lines), BLOCK, 0, gpu_stream(c->dev),
               p);
    return gpu_launched("cumsum");
}

} // namespace

extern "C" bool cuda_cumsum_fwd(const Call *c)
{
    return cumsum(c, c->x[0], c->y, false);
}

extern "C" bool cuda_cumsum_bwd(const Call *c)
{
    return cumsum(c, c->dy, c->dx[0], true);
}
