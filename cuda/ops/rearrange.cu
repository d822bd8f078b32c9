/* rearrange.cu -- flip, roll, repeats, permute: see rearrange.h; reshape,
 * flatten: see cpu/ref/reshape.c.
 *
 * Each thread writes one vector of channels of one row: 4, where the channels
 * keep their order and divide by 4, else 1. A permute that moves the channels
 * is a transposition in tiles (transpose.cuh), and so is a reshape from or to
 * one position. The gradient of repeats adds up to LOOP_REPEATS copies in a
 * thread; more of them in a block, each thread every 256th. Bound by memory:
 * 8 bytes an element, 12 where it is added to dx, half in 16 bits. */
#include "cuda/ops/repeats.cuh"
#include "cuda/ops/transpose.cuh"
extern "C" {
#include "engine/graph/rearrange.h"
}

namespace {

struct Move {
    Rearrange r;
    const void *from;
    void *to;
    Vecs vecs; // of the tensor that is written
    Grid grid;
    Divisor times[4]; // copies along d, h, w, c
    bool fresh;
};

/* Memory elements from the start of the sample to the first element that is
 * read for channel c at place q. */
__device__ __forceinline__ int64_t source(const Move &p, const Place &q, int c)
{
    return q.n * p.r.sample + source_at(&p.r.axis[0], q.d) +
           source_at(&p.r.axis[1], q.h) + source_at(&p.r.axis[2], q.w) +
           source_at(&p.r.axis[3], c);
}

/* Memory elements to copy number k. */
__device__ __forceinline__ int64_t copy_at(const Move &p, uint32_t k)
{
    int64_t at = 0;
#pragma unroll
    for (int i = 3; i >= 0; i--)
        at += split(&k, p.times[i]) * p.r.axis[i].again;
    return at;
}

template <int V, Dtype D>
__global__ void __launch_bounds__(BLOCK)
    rearrange_kernel(const __grid_constant__ Move p)
{
    EACH(i, p.vecs.count)
    {
        int c;
        const Place q = place(p.grid, row_of(p.vecs, i, &c));
        const Element<D> *x = (const Element<D> *)p.from + source(p, q, c * V);
        Vec<V> sum = load<V, D>(x);
        for (uint32_t k = 1; k < p.r.copies; k++) {
            const Vec<V> more = load<V, D>(x + copy_at(p, k));
            for (int j = 0; j < V; j++) sum.v[j] += more.v[j];
        }
        store_vec<V, D>((Element<D> *)p.to + i * V, sum, p.fresh);
    }
}

/* One block an element. */
template <Dtype D>
__global__ void __launch_bounds__(BLOCK)
    rearrange_sum_kernel(const __grid_constant__ Move p)
{
    SMEM(double, part, [BLOCK]);
    for (int64_t i = blockIdx.x; i < p.vecs.count; i += gridDim.x) {
        int c;
        const Place q = place(p.grid, row_of(p.vecs, i, &c));
        const Element<D> *x = (const Element<D> *)p.from + source(p, q, c);
        double sum = 0;
        for (int64_t k = threadIdx.x; k < p.r.copies; k += BLOCK)
            sum += load<1, D>(x + copy_at(p, (uint32_t)k)).v[0];
        part[threadIdx.x] = sum;
        __syncthreads();
        for (int n = BLOCK / 2; n > 0; n /= 2) {
            if ((int)threadIdx.x < n)
                part[threadIdx.x] += part[threadIdx.x + n];
            __syncthreads();
        }
        if (!threadIdx.x)
            store_vec<1, D>((Element<D> *)p.to + i, {(float)part[0]}, p.fresh);
        __syncthreads(); // before the next element overwrites part[0]
    }
}

template <Dtype D> void start(const Call *c, const Move &p, int v)
{
    if (p.r.copies > LOOP_REPEATS)
        LAUNCH(rearrange_sum_kernel<D>, (unsigned)least(p.vecs.count, 1 << 16),
               BLOCK, 0, gpu_stream(c->dev), p);
    else if (v == 4)
        LAUNCH((rearrange_kernel<4, D>), blocks_for(p.vecs.count), BLOCK, 0,
               gpu_stream(c->dev), p);
    else
        LAUNCH((rearrange_kernel<1, D>), blocks_for(p.vecs.count), BLOCK, 0,
               gpu_stream(c->dev), p);
}

/* A permute that moves another axis of `from` to the channels, and the channels
 * of `from` to axis `own`. */
bool turn(const Call *c, const Rearrange &r, const Tensor *from,
          const Tensor *to, int own, bool fresh)
{
    Transpose t = {};
    t.in = from->data, t.out = to->data, t.fresh = fresh;
    t.a = to->dim.c, t.in_a = r.axis[3].step;
    t.b = from->dim.c, t.out_b = dims_step(to->dim, own);
    t.batch[0] = to->dim.n;
    t.in_batch[0] = t.out_batch[0] = r.sample;
    for (int i = 0, k = 1; i < 3; i++) {
        if (i == own) continue;
        t.batch[k] = dims_axis(to->dim, i);
        t.in_batch[k] = r.axis[i].step;
        t.out_batch[k++] = dims_step(to->dim, i);
    }
    return transpose(c, t, from->type);
}

/* Forward, or back: writes `to`, which is NULL for a gradient that is not
 * wanted. */
bool rearrange(const Call *c, const Tensor *from, const Tensor *to, bool back)
{
    if (!to) return true;
    const bool fresh = !back || is_fresh(c, 0);
    Move p = {};
    p.r = rearrange_of(c->attr, from->dim, to->dim, back);
    if (!countable(c, rows(to->dim))) return false;
    if (c->attr->op == OP_permute && permute_source(c->attr, 3) != 3)
        return turn(c, p.r, from, to,
                    back ? permute_source(c->attr, 3)
                         : permute_target(c->attr, 3),
                    fresh);

    const SourceAxis &ch = p.r.axis[3];
    const bool whole = ch.sign == 1 && ch.start == 0 && ch.extent % 4 == 0 &&
                       to->dim.c % 4 == 0 && p.r.copies <= LOOP_REPEATS;
    const int v = whole ? 4 : 1;
    p.from = from->data, p.to = to->data, p.fresh = fresh;
    p.vecs = vecs_of(to->dim, v), p.grid = grid_of(to->dim);
    for (int i = 0; i < 4; i++) p.times[i] = divisor(p.r.axis[i].times);
    if (to->type == BF16)
        start<BF16>(c, p, v);
    else if (to->type == F16)
        start<F16>(c, p, v);
    else
        start<F32>(c, p, v);
    return gpu_launched(op_info[c->attr->op].name);
}

// -- reshape -----------------------------------------------------------------

template <int V, Dtype D>
__global__ void __launch_bounds__(BLOCK)
    reshape_copy_kernel(const void *from, void *to, int64_t count, bool fresh)
{
    EACH(i, count)
    {
        store_vec<V, D>((Element<D> *)to + i * V,
                        load<V, D>((const Element<D> *)from + i * V), fresh);
    }
}

struct Reshape {
    const void *from;
    void *to;
    Vecs vecs;      // of the tensor that is written, in single numbers
    Divisor own;    // positions of a sample of the tensor that is written
    Divisor other;  // of the one that is read
    int64_t sample; // numbers of a sample
    int channels;   // of the tensor that is read
    bool fresh;
};

template <Dtype D>
__global__ void __launch_bounds__(BLOCK)
    reshape_kernel(const __grid_constant__ Reshape p)
{
    EACH(i, p.vecs.count)
    {
        int c;
        uint32_t n = row_of(p.vecs, i, &c);
        const uint32_t position = split(&n, p.own);
        // the number of the element in the sample, in user order
        uint32_t ch = (uint32_t)c * p.own.by + position;
        const uint32_t at = split(&ch, p.other);
        const Element<D> *x = (const Element<D> *)p.from + n * p.sample +
                              (int64_t)at * p.channels + ch;
        store_vec<1, D>((Element<D> *)p.to + i, load<1, D>(x), p.fresh);
    }
}

/* last: the elements keep the order of memory. */
bool reshape(const Call *c, const Tensor *from, const Tensor *to, bool fresh,
             bool last)
{
    if (!to) return true;
    const Dims s = to->dim, t = from->dim;
    const int64_t own = positions(s), other = positions(t);
    const bool flat = last || s.c == t.c ||
                      ((s.c == 1 || own == 1) && (t.c == 1 || other == 1));
    if (!countable(c, rows(s)) || !countable(c, own * s.c)) return false;
    if (!flat && own == 1) // each sample becomes its channels, in user order
        return transpose_samples(c, from, to, s.n, (int)other, t.c, fresh);
    if (!flat && other == 1)
        return transpose_samples(c, from, to, s.n, s.c, (int)own, fresh);

    Reshape p = {};
    p.from = from->data, p.to = to->data, p.fresh = fresh;
    p.vecs = vecs_of(s, 1);
    p.own = divisor(own), p.other = divisor(other);
    p.sample = own * s.c, p.channels = t.c;
    const int v = p.vecs.count % 4 ? 1 : 4;
    const unsigned blocks = blocks_for(p.vecs.count / (flat ? v : 1));
    cudaStream_t stream = gpu_stream(c->dev);
    if (flat) // 16-bit tensors have a multiple of 8 channels, so v is 4
        LAUNCH_STORED(to->type, v, reshape_copy_kernel, blocks, c, p.from, p.to,
                      p.vecs.count / v, fresh);
    else if (to->type == BF16)
        LAUNCH(reshape_kernel<BF16>, blocks, BLOCK, 0, stream, p);
    else if (to->type == F16)
        LAUNCH(reshape_kernel<F16>, blocks, BLOCK, 0, stream, p);
    else
        LAUNCH(reshape_kernel<F32>, blocks, BLOCK, 0, stream, p);
    return gpu_launched(op_info[c->attr->op].name);
}

} // namespace

#define ROW(name)                                   \
    bool cuda_##name##_fwd(const Call *c)           \
    {                                               \
        return rearrange(c, c->x[0], c->y, false);  \
    }                                               \
    bool cuda_##name##_bwd(const Call *c)           \
    {                                               \
        return rearrange(c, c->dy, c->dx[0], true); \
    }
extern "C" {
ROW(flip)
ROW(roll)
ROW(repeats)
ROW(permute)

bool cuda_reshape_fwd(const Call *c)
{
    return reshape(c, c->x[0], c->y, true, c->attr->reshape.channels_last);
}

bool cuda_reshape_bwd(const Call *c)
{
    return reshape(c, c->dy, c->dx[0], is_fresh(c, 0),
                   c->attr->reshape.channels_last);
}

bool cuda_flatten_fwd(const Call *c)
{
    return reshape(c, c->x[0], c->y, true, false);
}

bool cuda_flatten_bwd(const Call *c)
{
    return reshape(c, c->dy, c->dx[0], is_fresh(c, 0), false);
}
}
