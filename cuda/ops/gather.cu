/* gather.cu -- elements of fibres, chosen by index; see cpu/ref/gather.c.
 *
 * Forward: a thread copies one element, 12 bytes. Backward: each element of
 * `index` gets a key, the element of dx that it chooses, and the keys are
 * sorted. Then a group of threads sums, for each element of dx, the elements of
 * dy that the sorted keys assign to it, in that order: no atomics. Fibres of dx
 * over which `index` is broadcast have the same indices, so they are one set
 * and share keys. */
#include "cuda/lib/thread_group.cuh"
#include "cuda/ops/fibres.cuh"
#include "cuda/ops/radix_sort.cuh"

namespace {

/* An index rounded to a whole number; `length` for NaN and outside the fibre.
 */
__device__ __forceinline__ uint32_t number_of(float index, uint32_t length)
{
    const float whole = rintf(index);
    return whole >= 0 && whole < (float)length ? (uint32_t)whole : length;
}

struct GatherCopy {
    const float *x, *index;
    float *y;
    Fibres of_x;
    Steps index_step;
    Grid grid; // of y
    Divisor channels;
    int64_t count;
};

__global__ void gather_fwd_kernel(const GatherCopy p)
{
    EACH(i, p.count)
    {
        uint32_t row = (uint32_t)i;
        const int c = (int)split(&row, p.channels);
        const Place q = place(p.grid, row);
        const uint32_t k =
            number_of(p.index[offset(p.index_step, q, c)], p.of_x.length);
        p.y[i] = k < p.of_x.length
                     ? p.x[offset(p.of_x.start, q, c) + fibre_step(p.of_x, k)]
                     : NAN;
    }
}

struct GatherGrads {
    const float *index, *dy;
    float *dx;
    Fibres of_x;
    FibreAxes axes;
    Grid grid, index_grid; // of x; of index
    Divisor channels, index_channels;
    Steps set;      // from a place to the number of its set of fibres of dx
    Steps index_to; // from the place of an element of index to that of dy
    Steps x_to;     // the rest of the way, from the place in dx: along the
                    // axes where index has extent 1
    uint32_t none;  // the key of an index that chooses nothing
    int64_t count, indices;
    const uint32_t *keys, *items; // sorted
    bool fresh;
};

/* The key of an index: set times the length of a fibre plus the number. */
__global__ void gather_keys_kernel(const GatherGrads p, uint32_t *keys,
                                   uint32_t *items)
{
    EACH(i, p.indices)
    {
        uint32_t row = (uint32_t)i;
        const int c = (int)split(&row, p.index_channels);
        const Place q = place(p.index_grid, row);
        const uint32_t k = number_of(p.index[i], p.of_x.length);
        const uint32_t set = (uint32_t)offset(p.set, q, c);
        keys[i] = k < p.of_x.length ? set * p.of_x.length + k : p.none;
        items[i] = (uint32_t)i;
    }
}

/* How many of the sorted keys are below `key`? */
__device__ __forceinline__ int64_t below(const GatherGrads &p, uint32_t key)
{
    int64_t from = 0, to = p.indices;
    while (from < to) {
        const int64_t middle = (from + to) / 2;
        if (p.keys[middle] < key)
            from = middle + 1;
        else
            to = middle;
    }
    return from;
}

__global__ void __launch_bounds__(BLOCK)
    gather_bwd_kernel(const GatherGrads p, const ThreadGroups t)
{
    const ThreadGroup g = thread_group(t);
    double sum[1] = {0};
    if (g.live) {
        uint32_t row = (uint32_t)g.item;
        const int c = (int)split(&row, p.channels);
        const Place q = place(p.grid, row);
        const uint32_t key = (uint32_t)offset(p.set, q, c) * p.of_x.length +
                             fibre_number(p.axes, p.of_x, q, c);
        const float *dy = p.dy + offset(p.x_to, q, c);
        const int64_t end = below(p, key + 1);
        for (int64_t i = below(p, key) + g.lane; i < end; i += g.width) {
            uint32_t from = p.items[i];
            const int ch = (int)split(&from, p.index_channels);
            sum[0] += dy[offset(p.index_to, place(p.index_grid, from), ch)];
        }
    }
    thread_group_sums(sum, g.width);
    if (g.live && !g.lane) put(&p.dx[g.item], (float)sum[0], p.fresh);
}

/* The numbers of sets along the axes: 1 along the axes of a fibre, and where x
 * or index has extent 1. */
Dims sets_of(const Call *c)
{
    const Dims a = op_reduced_dims(c->attr, c->x[0]->dim);
    const Dims b = op_reduced_dims(c->attr, c->x[1]->dim);
    return {a.n < b.n ? a.n : b.n, a.d < b.d ? a.d : b.d, a.h < b.h ? a.h : b.h,
            a.w < b.w ? a.w : b.w, a.c < b.c ? a.c : b.c};
}

/* Memory elements of y (and dy) from place to place along the axes where index
 * has extent 1; 0 along others. */
Steps steps_of_x(Dims y, Dims index)
{
    Steps v = steps_of(y);
    if (index.n > 1) v.n = 0;
    if (index.d > 1) v.d = 0;
    if (index.h > 1) v.h = 0;
    if (index.w > 1) v.w = 0;
    if (index.c > 1) v.c = 0;
    return v;
}

} // namespace

extern "C" Space cuda_gather_space(const Call *c)
{
    Space s = {};
    s.bwd = radix_sort_bytes(numel(c->x[1]->dim));
    return s;
}

extern "C" bool cuda_gather_fwd(const Call *c)
{
    const Dims s = c->y->dim;
    GatherCopy p = {};
    p.x = values(c->x[0]), p.index = values(c->x[1]), p.y = values(c->y);
    p.of_x = fibres_of(c->attr, c->x[0]->dim);
    p.index_step = steps_of(c->x[1]->dim);
    p.grid = grid_of(s), p.channels = divisor(s.c), p.count = numel(s);
    if (!countable(c, p.count)) return false;
    LAUNCH(gather_fwd_kernel, blocks_for(p.count), BLOCK, 0, gpu_stream(c->dev),
           p);
    return gpu_launched("gather");
}

extern "C" bool cuda_gather_bwd(const Call *c)
{
    if (!c->dx[0]) return true;
    const Dims x = c->x[0]->dim, index = c->x[1]->dim, y = c->y->dim;
    const Dims sets = sets_of(c);
    const int64_t keys = numel(sets) * op_fibre_length(c->attr, x);
    GatherGrads p = {};
    p.index = values(c->x[1]), p.dy = values(c->dy), p.dx = values(c->dx[0]);
    p.of_x = fibres_of(c->attr, x), p.axes = fibre_axes(c->attr);
    p.grid = grid_of(x), p.index_grid = grid_of(index);
    p.channels = divisor(x.c), p.index_channels = divisor(index.c);
    p.set = steps_of(sets), p.none = (uint32_t)keys;
    p.index_to = steps_of(y), p.x_to = steps_of_x(y, index);
    p.count = numel(x), p.indices = numel(index), p.fresh = is_fresh(c, 0);
    if (!countable(c, p.count) || !countable(c, p.indices)) return false;

    RadixSort s = radix_sort_in(c->scratch, p.indices);
    LAUNCH(gather_keys_kernel, blocks_for(p.indices), BLOCK, 0,
           gpu_stream(c->dev), p, s.keys, s.items);
    if (!radix_sort(c->dev, &s, radix_sort_bits(keys + 1))) return false;
    p.keys = s.keys, p.items = s.items;
    const ThreadGroups t =
        thread_groups_of(p.count, ceil_div(numel(y), p.count));
    LAUNCH(gather_bwd_kernel, t.blocks, BLOCK, 0, gpu_stream(c->dev), p, t);
    return gpu_launched("gather, backward");
}
