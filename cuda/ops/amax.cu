/* amax.cu -- the largest element over axes; see cpu/ref/amax.c.
 *
 * Forward: up to LOOP_REPEATS elements of a result are read by one thread, more
 * by a block, 256 at a time; the largest and the number of its equals do not
 * depend on the order. Backward: each thread makes one element of dx. Bound by
 * bandwidth: 4 bytes an element forward, 8 backward. 2 KB of shared memory. */
#include "cuda/lib/kernel.cuh"
#include "cuda/ops/repeats.cuh"

namespace {

/* The largest of some elements and the number of its equals; 0: no element. */
struct Most {
    float x;
    int count;

    __device__ __forceinline__ void take(const Most &o)
    {
        if (!o.count) return;
        const bool nan = o.x != o.x, own_nan = x != x;
        if (!count || o.x > x || (nan && !own_nan))
            *this = o;
        else if (o.x == x || (nan && own_nan))
            count += o.count;
    }
};

struct Amax {
    const float *x;
    Steps step;      // of x
    Grid own, again; // of the result; of the elements of one
    Divisor own_c, again_c;
    int64_t results, repeats;
};

/* Element k of result i. */
__device__ __forceinline__ float element(const Amax &p, int64_t i, int64_t k)
{
    const int64_t row = i / p.own_c.by, of = k / p.again_c.by;
    Place q = place(p.own, (uint32_t)row);
    const Place r = place(p.again, (uint32_t)of);
    // along each axis one of the two is 0
    q.n += r.n, q.d += r.d, q.h += r.h, q.w += r.w;
    const int c = (int)(i - row * p.own_c.by) + (int)(k - of * p.again_c.by);
    return p.x[offset(p.step, q, c)];
}

__global__ void amax_fwd_kernel(const Amax p, float *y, float *counts)
{
    EACH(i, p.results)
    {
        Most m = {0, 0};
        for (int64_t k = 0; k < p.repeats; k++) m.take({element(p, i, k), 1});
        y[i] = m.x, counts[i] = (float)m.count;
    }
}

/* One block a result. */
__global__ void __launch_bounds__(BLOCK)
    amax_block_kernel(const Amax p, float *y, float *counts)
{
    SMEM(Most, all, [BLOCK]);
    const int64_t i = blockIdx.x;
    Most m = {0, 0};
    for (int64_t k = threadIdx.x; k < p.repeats; k += BLOCK)
        m.take({element(p, i, k), 1});
    all[threadIdx.x] = m;
    __syncthreads();
    for (int n = BLOCK / 2; n > 0; n /= 2) {
        if ((int)threadIdx.x < n) all[threadIdx.x].take(all[threadIdx.x + n]);
        __syncthreads();
    }
    if (threadIdx.x) return;
    y[i] = all[0].x, counts[i] = (float)all[0].count;
}

struct AmaxGrads {
    const float *x, *y, *dy, *counts;
    Steps step; // of y, dy and counts
    Grid grid;  // of x
    Divisor channels;
    int64_t count;
    float *dx;
    bool fresh;
};

__global__ void amax_bwd_kernel(const AmaxGrads p)
{
    EACH(i, p.count)
    {
        const int64_t row = i / p.channels.by;
        const int c = (int)(i - row * p.channels.by);
        const int64_t at = offset(p.step, place(p.grid, (uint32_t)row), c);
        // 0 times dy, so that NaN stays
        const float share = p.x[i] == p.y[at] ? 1 / p.counts[at] : 0;
        put(&p.dx[i], share * p.dy[at], p.fresh);
    }
}

} // namespace

extern "C" Space cuda_amax_space(const Call *c)
{
    Space s = {};
    s.saved = (size_t)numel(c->y->dim) * sizeof(float);
    return s;
}

extern "C" bool cuda_amax_fwd(const Call *c)
{
    const Dims all = c->x[0]->dim, own = op_reduced_dims(c->attr, all);
    const Dims more = dims_repeats(own, all);
    Amax p = {};
    p.x = values(c->x[0]), p.step = steps_of(all);
    p.own = grid_of(own), p.own_c = divisor(own.c);
    p.again = grid_of(more), p.again_c = divisor(more.c);
    p.results = numel(own), p.repeats = numel(more);
    float *y = values(c->y), *counts = (float *)c->saved;
    if (!countable(c, numel(all))) return false;
    if (p.repeats <= LOOP_REPEATS)
        LAUNCH(amax_fwd_kernel, blocks_for(p.results), BLOCK, 0,
               gpu_stream(c->dev), p, y, counts);
    else
        LAUNCH(amax_block_kernel, (unsigned)p.results, BLOCK, 0,
               gpu_stream(c->dev), p, y, counts);
    return gpu_launched("amax");
}

extern "C" bool cuda_amax_bwd(const Call *c)
{
    if (!c->dx[0]) return true;
    const Dims all = c->x[0]->dim;
    AmaxGrads p = {};
    p.x = values(c->x[0]), p.y = values(c->y), p.dy = values(c->dy);
    p.counts = (const float *)c->saved;
    p.step = steps_of(op_reduced_dims(c->attr, all));
    p.grid = grid_of(all), p.channels = divisor(all.c), p.count = numel(all);
    p.dx = values(c->dx[0]), p.fresh = is_fresh(c, 0);
    LAUNCH(amax_bwd_kernel, blocks_for(p.count), BLOCK, 0, gpu_stream(c->dev),
           p);
    return gpu_launched("amax, backward");
}
