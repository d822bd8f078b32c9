/* device_dataset.cu -- a batch out of a block of samples, and what a device
 * does with data that stays on it.
 *
 * Changes of place (flips, affine maps, elastic ones) go together with the
 * copy: the first flip and the map behind it are looked up where the sample
 * lies, so that a batch is written once. Those that come later work from a copy
 * of the batch. Changes of intensity follow in place (augment.cu).
 *
 * A thread makes all channels of one voxel; neighbours are along w. Which place
 * it shows is counted in double, as on the host, so that a label is decided the
 * same way. Bound by memory: one element is read (with a map, those of up to
 * eight neighbours, most of them from the cache) and one written; of labels the
 * one read is a byte. An input of 16 bits is rounded as it is taken where no
 * more than a flip happens to it, else by a pass behind all changes. The
 * control points of an elastic change are drawn by a launch before, a thread
 * each; a voxel of a volume then sums 64 of them (16 in a slice) for each axis,
 * some 250 multiply-adds in double, of points that its neighbours read too. */
#include "cuda/device/augment.cuh"
#include "cuda/lib/vec.cuh"
#include <limits.h>

namespace {

/* What a field's samples are taken from: the block, or a copy of the batch. */
template <class T> struct Take {
    const T *from;
    void *to;                 // of F32, or without a map of 16 bits
    const int32_t *number;    // NULL: in their order
    const Change *flip, *map; // (count) each, or NULL
    const double *points;     // (count, each) control points of the map
    int64_t each;
    Grid grid;
    Dims n;
    int count;
    bool nearest;
};

template <class T> struct Sampler {
    const T *x; // of one sample
    Dims n;
    uint32_t axes; // that are mirrored

    __device__ __forceinline__ float at(int32_t w, int32_t h, int32_t d,
                                        int32_t c) const
    {
        return (float)x[change_voxel(n, axes, w, h, d) + c];
    }
};

/* All channels of voxel v as the map shows them. */
template <class T>
__device__ __forceinline__ void show(const Take<T> &p, const Sampler<T> &s,
                                     const Change *map, const double *points,
                                     const Place &v, float *to)
{
    double q[3];
    change_places(map, points, v.w, v.h, v.d, q);
    // what is kept in bytes are labels, never between two
    if constexpr (sizeof(T) == sizeof(float)) {
        if (!p.nearest) {
            const ChangeSource one = {s.x, s.n, s.axes};
            change_between(&one, q, to);
            return;
        }
    }
    const int32_t w = change_nearest(q[0], p.n.w);
    const int32_t h = change_nearest(q[1], p.n.h);
    const int32_t d = change_nearest(q[2], p.n.d);
    for (int32_t c = 0; c < p.n.c; c++) to[c] = s.at(w, h, d, c);
}

/* Into a batch of type D: a map is for one of F32. */
template <class T, Dtype D>
__global__ void __launch_bounds__(BLOCK, 2) take_kernel(const Take<T> p)
{
    const int64_t voxels = (int64_t)p.n.d * p.n.h * p.n.w;
    for (int n = (int)blockIdx.y; n < p.count; n += (int)gridDim.y) {
        const int64_t from = p.number ? p.number[n] : n;
        const Sampler<T> s = {p.from + from * voxels * p.n.c, p.n,
                              p.flip ? p.flip[n].axes : 0};
        const Change *map =
            p.map && change_moves(p.map[n].kind) ? &p.map[n] : NULL;
        const double *points = p.points + 3 * n * p.each;
        EACH(i, voxels)
        {
            const Place v = place(p.grid, (uint32_t)i);
            Element<D> *to = (Element<D> *)p.to + (n * voxels + i) * p.n.c;
            if (D != F32 || !map) {
                for (int32_t c = 0; c < p.n.c; c++)
                    store_vec<1, D>(to + c, {{s.at(v.w, v.h, v.d, c)}}, true);
                continue;
            }
            if constexpr (D == F32) show(p, s, map, points, v, to);
        }
    }
}

/* Control points of all samples that have them: (count, each, 3). */
__global__ void __launch_bounds__(BLOCK)
    points_kernel(const Change *change, int64_t each, double *points)
{
    const Change *c = &change[blockIdx.y];
    if (c->kind != CHANGE_ELASTIC) return;
    EACH(i, each)
    elastic_point(&c->elastic, &c->draw, i,
                  points + 3 * (blockIdx.y * each + i));
}

template <class T> bool take(void *dev, const Take<T> &p, Dtype stored)
{
    if (p.each) {
        LAUNCH(points_kernel, dim3(blocks_for(p.each), (unsigned)p.count),
               BLOCK, 0, gpu_stream(dev), p.map, p.each, (double *)p.points);
        if (!gpu_launched("control points")) return false;
    }
    const int64_t voxels = positions(p.n);
    const dim3 grid((unsigned)least(ceil_div(voxels, BLOCK), 1 << 16),
                    (unsigned)least(p.count, 65535));
    cudaStream_t stream = gpu_stream(dev);
    if (stored == F32)
        LAUNCH((take_kernel<T, F32>), grid, BLOCK, 0, stream, p);
    else if (stored == BF16)
        LAUNCH((take_kernel<T, BF16>), grid, BLOCK, 0, stream, p);
    else
        LAUNCH((take_kernel<T, F16>), grid, BLOCK, 0, stream, p);
    return gpu_launched("taking samples");
}

/* The changes of one step, of all samples. */
const Change *step_of(const Gather *g, int k)
{
    return g->change + (int64_t)k * g->count;
}

/* The flip and the map that stand at step *k, which moves on behind them; of
 * what is no image, over the steps that it has no part in. */
template <class T>
void take_places(const Gather *g, bool image, Take<T> *p, int *k)
{
    p->flip = p->map = NULL, p->each = 0;
    for (; *k < g->steps; ++*k) {
        const int32_t kind = g->kind[*k];
        const bool places = kind == CHANGE_FLIP || change_moves(kind);
        if (kind == CHANGE_NONE || (!image && !places)) continue;
        if (kind == CHANGE_FLIP && !p->flip && !p->map)
            p->flip = step_of(g, *k);
        else if (change_moves(kind) && !p->map)
            p->map = step_of(g, *k), p->each = g->points[*k];
        else
            return;
    }
}

/* From the block, or (again) from a copy of what has been taken so far. */
template <class T>
bool take_field(void *dev, const Gather *g, const GatherField *f, bool again,
                int *k)
{
    Take<T> p = {};
    size_t copy = 0, points;
    p.from = (const T *)f->block, p.to = f->out, p.number = g->number;
    p.n = f->dim, p.count = g->count, p.grid = grid_of(f->dim);
    p.nearest = f->nearest;
    take_places(g, f->image, &p, k);
    points = 3 * sizeof(double) * (size_t)p.each * (size_t)g->count;
    CHECK(!again || f->stored == F32);
    if (again) copy = sizeof(T) * (size_t)numel(f->dim) * (size_t)g->count;
    // points first, as they are what has to be aligned
    char *room = NULL;
    if (points + copy) {
        room = (char *)gpu_scratch(dev, points + copy);
        if (!room) return false;
    }
    p.points = (const double *)room;
    if (again) {
        p.from = (const T *)(room + points), p.number = NULL;
        if (!gpu_copy(dev, room + points, f->out, copy)) return false;
    }
    return take(dev, p, f->stored);
}

bool round_batch(void *dev, const Gather *g, const GatherField *f)
{
    Dims n = f->dim;
    n.n = g->count;
    const Tensor x = {n, F32, RANK_MAX, g->room};
    Tensor y = {n, f->stored, RANK_MAX, f->out};
    Call c = {};
    c.x[0] = &x, c.y = &y, c.dev = dev;
    return cuda_convert(&c);
}

bool gather_field(void *dev, const Gather *g, const GatherField *f)
{
    int k = 0;
    if (positions(f->dim) > MOST_POSITIONS)
        return fail_device("a sample of %lld voxels; the GPU kernels count to "
                           "%d: use --resident off",
                           (long long)positions(f->dim), (int)MOST_POSITIONS);
    if (g->count > 65535)
        return fail_device("%d samples in a batch; the GPU kernels count to "
                           "65535: use --resident off",
                           g->count);
    if (!(f->type == U8 ? take_field<uint8_t>(dev, g, f, false, &k)
                        : take_field<float>(dev, g, f, false, &k)))
        return false;
    while (k < g->steps) {
        const int32_t kind = g->kind[k];
        bool ok = true;
        if (kind == CHANGE_FLIP || change_moves(kind))
            // k goes on behind what is taken
            ok = take_field<float>(dev, g, f, true, &k);
        else if (kind != CHANGE_NONE) // taking passes over those of images only
            ok = change_images(dev, f, g->count, kind, step_of(g, k)), k++;
        else
            k++;
        if (!ok) return false;
    }
    return true;
}

} // namespace

extern "C" bool cuda_gather(void *dev, const Gather *g)
{
    for (int i = 0; i < g->fields; i++) {
        const GatherField *f = &g->field[i];
        GatherField wide = *f;
        if (!f->out) continue;
        if (f->stored == F32 || gather_copies(g, f)) {
            if (!gather_field(dev, g, f)) return false;
            continue;
        }
        // changes are of what is not rounded
        wide.out = g->room, wide.stored = F32;
        if (!gather_field(dev, g, &wide) || !round_batch(dev, g, f))
            return false;
    }
    return true;
}
