/* device_dataset.cu -- makes a batch from samples that stay in device memory,
 * with augmentation.
 *
 * Geometric changes (flips, affine and elastic maps) are part of the copy: the
 * first flip and the map after it are evaluated at the source, so a batch is
 * written once. Later geometric changes work from a copy of the batch. Changes
 * of intensity follow in place (augment.cu).
 *
 * Each thread makes all channels of one voxel; adjacent threads are along w.
 * Source positions are computed in double, as on the host, so that a label is
 * rounded the same way. Bound by memory: one element is read (with a map up to
 * eight neighbours, most of them from the cache) and one written; labels are
 * read as bytes. A batch in 16 bits is rounded as it is copied if its only
 * change is a flip, else by a pass after all changes. The control points of an
 * elastic change are drawn by an earlier launch, one thread each. A voxel of a
 * volume then sums 64 control points (16 in a slice) for each axis, some 250
 * multiply-adds in double; adjacent voxels read the same points. */
#include "cuda/device/augment.cuh"
#include "cuda/lib/vec.cuh"
#include <limits.h>

namespace {

/* The source of a field's samples: the block, or a copy of the batch. */
template <class T> struct Take {
    const T *from;
    void *to;                 // f32; without a map also 16 bits
    const int32_t *number;    // sample numbers in the block; NULL: 0, 1, ..
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
    uint32_t axes; // bits of the mirrored axes

    __device__ __forceinline__ float at(int32_t w, int32_t h, int32_t d,
                                        int32_t c) const
    {
        return (float)x[change_voxel(n, axes, w, h, d) + c];
    }
};

/* Writes all channels of voxel v, read through the map. */
template <class T>
__device__ __forceinline__ void show(const Take<T> &p, const Sampler<T> &s,
                                     const Change *map, const double *points,
                                     const Place &v, float *to)
{
    double q[3];
    change_places(map, points, v.w, v.h, v.d, q);

    // bytes are labels, which are not interpolated
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

/* Writes a batch of type D; a map only if D is F32. */
template <class T, Dtype D>
__global__ void __launch_bounds__(BLOCK, 2)
    dataset_batch_kernel(const Take<T> p)
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

/* Draws the control points of all samples with an elastic change: (count, each,
 * 3). */
__global__ void __launch_bounds__(BLOCK)
    elastic_points_kernel(const Change *change, int64_t each, double *points)
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
        LAUNCH(elastic_points_kernel,
               dim3(blocks_for(p.each), (unsigned)p.count), BLOCK, 0,
               gpu_stream(dev), p.map, p.each, (double *)p.points);
        if (!gpu_launched("control points")) return false;
    }

    const int64_t voxels = positions(p.n);
    const dim3 grid((unsigned)least(ceil_div(voxels, BLOCK), 1 << 16),
                    (unsigned)least(p.count, 65535));
    cudaStream_t stream = gpu_stream(dev);

    if (stored == F32)
        LAUNCH((dataset_batch_kernel<T, F32>), grid, BLOCK, 0, stream, p);
    else if (stored == BF16)
        LAUNCH((dataset_batch_kernel<T, BF16>), grid, BLOCK, 0, stream, p);
    else
        LAUNCH((dataset_batch_kernel<T, F16>), grid, BLOCK, 0, stream, p);
    return gpu_launched("taking samples");
}

/* The changes of step k, one for each sample. */
const Change *step_of(const Gather *g, int k)
{
    return g->change + (int64_t)k * g->count;
}

/* Sets the flip and the map that come at step *k or next, and advances *k past
 * both. For a field that is not an image, skips the changes of intensity. */
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

/* Reads from the block, or (again) from a copy of the batch so far. */
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

    // points first, as they need the larger alignment
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
                           "%d: use --device_dataset off",
                           (long long)positions(f->dim), (int)MOST_POSITIONS);
    if (g->count > 65535)
        return fail_device("%d samples in a batch; the GPU kernels count to "
                           "65535: use --device_dataset off",
                           g->count);
    if (!(f->type == U8 ? take_field<uint8_t>(dev, g, f, false, &k)
                        : take_field<float>(dev, g, f, false, &k)))
        return false;

    while (k < g->steps) {
        const int32_t kind = g->kind[k];
        bool ok = true;
        if (kind == CHANGE_FLIP || change_moves(kind))
            // advances k
            ok = take_field<float>(dev, g, f, true, &k);
        else if (kind != CHANGE_NONE) // images only: take_places skips
                                      // intensity steps of other fields
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
        // changes apply to values that are not rounded yet
        wide.out = g->room, wide.stored = F32;
        if (!gather_field(dev, g, &wide) || !round_batch(dev, g, f))
            return false;
    }
    return true;
}
