/* argmax.cu -- the index of the largest element along axes; see
 * cpu/ref/argmax.c.
 *
 * Up to LOOP_REPEATS elements are read by one thread, more by a block. The
 * first of the largest does not depend on the order of threads. 4 bytes an
 * element; 2 KB of shared memory. */
#include "cuda/ops/fibres.cuh"
#include "cuda/ops/repeats.cuh"

namespace {

/* The largest of some elements, and its index. */
struct Largest {
    float x;
    uint32_t at;

    __device__ __forceinline__ void take(const Largest &o)
    {
        const bool nan = o.x != o.x, own_nan = x != x;
        const bool same = o.x == x || (nan && own_nan);
        if (same ? o.at < at : o.x > x || (nan && !own_nan)) *this = o;
    }
};

struct Argmax {
    const float *x;
    float *y;
    Fibres f;
    Grid own; // of the places of fibres
    Divisor own_c;
    int64_t results;
};

/* The largest of every `step`-th element of fibre i from `first` on. */
__device__ __forceinline__ Largest largest_of(const Argmax &p, int64_t i,
                                              uint32_t first, uint32_t step)
{
    uint32_t row = (uint32_t)i;
    const int c = (int)split(&row, p.own_c);
    const float *x = p.x + offset(p.f.start, place(p.own, row), c);
    // element 0, so that a thread without elements does no harm
    Largest m = {x[0], 0};
    for (uint32_t k = first; k < p.f.length; k += step)
        m.take({x[fibre_step(p.f, k)], k});
    return m;
}

__global__ void argmax_kernel(const Argmax p)
{
    EACH(i, p.results)
    {
        p.y[i] = (float)largest_of(p, i, 1, 1).at;
    }
}

/* One block a result. */
__global__ void __launch_bounds__(BLOCK) argmax_block_kernel(const Argmax p)
{
    SMEM(Largest, all, [BLOCK]);
    const int t = (int)threadIdx.x;
    all[t] = largest_of(p, blockIdx.x, threadIdx.x, BLOCK);
    __syncthreads();
    for (int n = BLOCK / 2; n > 0; n /= 2) {
        if (t < n) all[t].take(all[t + n]);
        __syncthreads();
    }
    if (!t) p.y[blockIdx.x] = (float)all[0].at;
}

} // namespace

extern "C" bool cuda_argmax_fwd(const Call *c)
{
    const Dims all = c->x[0]->dim, own = op_reduced_dims(c->attr, all);
    Argmax p = {};
    p.x = values(c->x[0]), p.y = values(c->y);
    p.f = fibres_of(c->attr, all), p.own = grid_of(own);
    p.own_c = divisor(own.c), p.results = numel(own);
    if (!countable(c, p.results)) return false;
    if (p.f.length <= LOOP_REPEATS)
        LAUNCH(argmax_kernel, blocks_for(p.results), BLOCK, 0,
               gpu_stream(c->dev), p);
    else
        LAUNCH(argmax_block_kernel, (unsigned)p.results, BLOCK, 0,
               gpu_stream(c->dev), p);
    return gpu_launched("argmax");
}
