/* corr_direct.cu -- gather and spread, one thread a result.
 *
 * Neighbouring threads are neighbouring channels, so reads and writes of a
 * depthwise convolution are contiguous. Each result reads its taps from
 * memory (the second level cache holds what neighbours share): bound by that
 * cache, good for groups of a few channels only. */
#include "corr_direct.cuh"
#include "number.cuh"

namespace {

struct Direct {
    const void *source, *w;
    const float *bias;
    Target result;
    Window win;
    Dims from, to;    // extents of source and result
    int depth, width; // channels of a group: source, result
    Divisor channels; // of the result, all groups
    Grid grid;        // of the result
};

/* The source position that result position q meets along one axis through
 * tap k, or -1. */
template <bool SPREAD>
__device__ __forceinline__ int meets(const Direct &p, int axis, int q, int k,
                                     int size)
{
    const Window &g = p.win;
    if (!SPREAD) {
        int at = q * g.s[axis] - g.lo[axis] + k * g.dil[axis];
        return at < size ? at : -1;
    }
    int at = q + g.lo[axis] - k * g.dil[axis];
    if (at < 0 || at % g.s[axis]) return -1;
    at /= g.s[axis];
    return at < size ? at : -1;
}

/* The result at q and channel c: taps in their order, channels of the group
 * innermost, in chains of CHAIN. */
template <bool SPREAD, Precision P>
__device__ float direct_sum(const Direct &p, Place q, int c)
{
    typedef Number<P> N;
    typedef typename N::T T;
    const Window &g = p.win;
    const int group = c / p.width, n = c % p.width;
    float acc = 0, sum = 0;
    int chain = 0;
    for (int kd = 0; kd < g.k[0]; kd++) {
        int d = meets<SPREAD>(p, 0, q.d, kd, p.from.d);
        for (int kh = 0; d >= 0 && kh < g.k[1]; kh++) {
            int h = meets<SPREAD>(p, 1, q.h, kh, p.from.h);
            for (int kw = 0; h >= 0 && kw < g.k[2]; kw++) {
                int x = meets<SPREAD>(p, 2, q.w, kw, p.from.w);
                if (x < 0) continue;
                int64_t row =
                    (((int64_t)q.n * p.from.d + d) * p.from.h + h) * p.from.w +
                    x;
                const T *s = (const T *)p.source + row * p.from.c +
                             (int64_t)group * p.depth;
                int64_t taps = (int64_t)g.k[0] * g.k[1] * g.k[2];
                int64_t tap = ((int64_t)kd * g.k[1] + kh) * g.k[2] + kw;
                for (int i = 0; i < p.depth; i++) {
                    // w (B, taps, A): the grid's channel is outermost
                    int64_t b = SPREAD ? group * p.depth + i : c;
                    int64_t a = SPREAD ? n : i;
                    int64_t width = SPREAD ? p.width : p.depth;
                    T w = ((const T *)p.w)[(b * taps + tap) * width + a];
                    acc = fmaf(N::value(s[i]), N::value(w), acc);
                }
                if ((chain += p.depth) < CHAIN) continue;
                sum += acc, acc = 0, chain = 0;
            }
        }
    }
    return sum + acc;
}

/* One thread a result, neighbours are channels. */
template <bool SPREAD, Precision P>
__global__ void direct_kernel(const Direct p, int64_t count)
{
    EACH(i, count)
    {
        // count may pass 32 bits, rows do not
        int64_t row = i / p.channels.by;
        int c = (int)(i - row * p.channels.by);
        float v = direct_sum<SPREAD, P>(p, place(p.grid, (uint32_t)row), c);
        put_one(p.result, i, v + (p.bias ? p.bias[c] : 0.0f));
    }
}

/* Queue the kernel of the call's precision. */
template <bool SPREAD>
bool launch(const Corr *r, const Direct &p, int64_t count)
{
    unsigned blocks = blocks_for(count);
    cudaStream_t stream = gpu_stream(r->c->dev);
    switch (r->c->precision) {
    case PRECISION_tf32:
        LAUNCH((direct_kernel<SPREAD, PRECISION_tf32>), blocks, BLOCK, 0,
               stream, p, count);
        break;
    case PRECISION_bf16:
        LAUNCH((direct_kernel<SPREAD, PRECISION_bf16>), blocks, BLOCK, 0,
               stream, p, count);
        break;
    case PRECISION_f16:
        LAUNCH((direct_kernel<SPREAD, PRECISION_f16>), blocks, BLOCK, 0, stream,
               p, count);
        break;
    default:
        LAUNCH((direct_kernel<SPREAD, PRECISION_f32>), blocks, BLOCK, 0, stream,
               p, count);
    }
    return gpu_launched(SPREAD ? "direct spread" : "direct gather");
}

} // namespace

bool corr_direct_gather(const Corr *r, const void *image, const void *w,
                        const float *bias, Target grid)
{
    Direct p = {image,           w,       bias, grid, r->win,
                r->image,        r->grid, r->a, r->b, divisor(r->grid.c),
                grid_of(r->grid)};
    return launch<false>(r, p, numel(r->grid));
}

bool corr_direct_spread(const Corr *r, const void *grid, const void *w,
                        const float *bias, Target image)
{
    Direct p = {grid,
                w,
                bias,
                image,
                r->win,
                r->grid,
                r->image,
                r->b,
                r->a,
                divisor(r->image.c),
                grid_of(r->image)};
    return launch<true>(r, p, numel(r->image));
}
