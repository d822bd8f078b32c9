/* copy.cu -- concat, slice and pad: operators that only move elements.
 *
 *     concat   y[n,p,s_i + c] = x_i[n,p,c], s_i the channels before x_i
 *     slice    y[n,p,c] = x[n,p + p0,c + c0]      a box cut out
 *     pad      y[n,p,c] = x[n,p - lo,c] or value  a box put into a border
 *
 * The gradient of a slice is a pad with zeros, and the reverse. Concat and
 * boxes: each thread moves one vector of channels of one row of the written
 * tensor; no shared memory.
 *
 * Bound by memory: 8 bytes per moved element, 12 where it is added to dx, 4 for
 * an element of a border; half as much in 16 bits, 6 for a concat of f32
 * operands to 16 bits. */
#include "cuda/norm/deferred_norm.cuh"

namespace {

// -- concat ------------------------------------------------------------------

struct Join {
    void *part[MAX_IN]; // operands, or dx; NULL: not needed
    int from[MAX_IN];   // first channel in the whole; INT32_MAX: no operand
    int channels[MAX_IN];
    NormOnLoad norm_on_load[MAX_IN]; // forward: of each operand
    unsigned wide;                   // bit i: part i is f32
    void *whole;                     // y, or dy
    int all;                         // its channels
    unsigned fresh;                  // backward: bit i as in Call
    Vecs vecs;                       // of the whole
};

/* The number of the operand that contains channel c of the whole. The loop is
 * unrolled, so that the kernel parameters are indexed by constants. */
__device__ __forceinline__ int part_of(const Join &p, int c, void **part,
                                       int *from, int *channels)
{
    int found = 0;
    *part = p.part[0], *from = 0, *channels = p.channels[0];
#pragma unroll
    for (int i = 1; i < MAX_IN; i++) {
        if (c < p.from[i]) continue;
        found = i, *part = p.part[i];
        *from = p.from[i], *channels = p.channels[i];
    }
    return found;
}

/* Operands of type F32 or N to a whole of type D. */
template <int V, Dtype D, Dtype N>
__global__ void __launch_bounds__(BLOCK)
    concat_kernel(const __grid_constant__ Join p)
{
    EACH(i, p.vecs.count)
    {
        int c, from, channels;
        void *part;
        const int64_t row = row_of(p.vecs, i, &c);
        const int k = part_of(p, c * V, &part, &from, &channels);
        NormOnLoad norm_on_load = p.norm_on_load[0];
#pragma unroll
        for (int j = 1; j < MAX_IN; j++)
            if (j == k) norm_on_load = p.norm_on_load[j];
        const int at = c * V - from;
        const int64_t place = row * channels + at;
        const Vec<V> x =
            p.wide >> k & 1
                ? load<V>((const float *)part + place)
                : norm_act<V, N>(norm_on_load, at,
                                 load<V, N>((const Element<N> *)part + place));
        store_vec<V, D>((Element<D> *)p.whole + i * V, x, true);
    }
}

template <int V, Dtype D, Dtype N>
__global__ void __launch_bounds__(BLOCK)
    concat_bwd_kernel(const __grid_constant__ Join p)
{
    EACH(i, p.vecs.count)
    {
        int c, from, channels;
        void *part;
        const int64_t row = row_of(p.vecs, i, &c);
        const int k = part_of(p, c * V, &part, &from, &channels);
        if (!part) continue;
        const int64_t place = row * channels + c * V - from;
        const bool fresh = p.fresh >> k & 1;
        const auto dy = load<V, D>((const Element<D> *)p.whole + i * V);
        if (p.wide >> k & 1)
            store_vec<V>((float *)part + place, dy, fresh);
        else
            store_vec<V, N>((Element<N> *)part + place, dy, fresh);
    }
}

/* Tensors in 16 bits may have any number of channels here: inputs, and concats
 * of inputs. */
template <Dtype D, Dtype N>
void start_join(const Call *c, const Join &p, int v, bool back)
{
    const unsigned blocks = blocks_for(p.vecs.count);
    cudaStream_t stream = gpu_stream(c->dev);
    if (back && v == 4)
        LAUNCH((concat_bwd_kernel<4, D, N>), blocks, BLOCK, 0, stream, p);
    else if (back)
        LAUNCH((concat_bwd_kernel<1, D, N>), blocks, BLOCK, 0, stream, p);
    else if (v == 4)
        LAUNCH((concat_kernel<4, D, N>), blocks, BLOCK, 0, stream, p);
    else
        LAUNCH((concat_kernel<1, D, N>), blocks, BLOCK, 0, stream, p);
}

/* Chooses the types of the whole and of its parts, which differ where the plan
 * needed one of the operands in f32. */
void start_typed(const Call *c, const Join &p, Dtype whole, int v, bool back)
{
    Dtype narrow = whole;
    for (int i = 0; i < MAX_IN && narrow == F32; i++)
        if (c->x[i]) narrow = c->x[i]->type;
    if (whole == BF16)
        start_join<BF16, BF16>(c, p, v, back);
    else if (whole == F16)
        start_join<F16, F16>(c, p, v, back);
    else if (narrow == F16)
        start_join<F32, F16>(c, p, v, back);
    else // also if all are f32
        start_join<F32, BF16>(c, p, v, back);
}

/* The operands, which are dense from 0 on; sets the vector width. */
Join join_of(const Call *c, const Tensor *whole, int *v)
{
    Join p = {};
    p.whole = whole->data, p.all = whole->dim.c, p.fresh = c->fresh;
    int from = 0;
    *v = 4;

    for (int i = 0; i < MAX_IN; i++) {
        const Tensor *x = c->x[i];
        p.from[i] = x ? from : INT32_MAX;
        if (!x) continue;
        p.channels[i] = x->dim.c;
        p.wide |= (x->type == F32 ? 1u : 0) << i;
        from += x->dim.c;
        if (x->dim.c % 4) *v = 1;
    }

    p.vecs = vecs_of(whole->dim, *v);
    return p;
}

// -- boxes -------------------------------------------------------------------

/* A small block at an offset within a large one. */
struct Box {
    void *small, *large;
    Dims in, out;   // extents of small and large
    int d, h, w, c; // where small begins
    Vecs vecs;      // of the block that the kernel loops over
    Grid grid;      // of the block that the kernel loops over
    float fill;     // value outside the small block
    bool fresh;
};

/* Loops over the small block: CUT small (+)= large, else large += small. */
template <int V, Dtype D, bool CUT>
__device__ __forceinline__ void move_box(const Box &p)
{
    EACH(i, p.vecs.count)
    {
        int c;
        const Place q = place(p.grid, row_of(p.vecs, i, &c));
        Element<D> *large =
            (Element<D> *)p.large +
            row_at(p.out, q.n, q.d + p.d, q.h + p.h, q.w + p.w) * p.out.c +
            p.c + c * V;
        Element<D> *small = (Element<D> *)p.small + i * V;
        if (CUT)
            store_vec<V, D>(small, load<V, D>(large), p.fresh);
        else
            store_vec<V, D>(large, load<V, D>(small), false);
    }
}

template <int V, Dtype D>
__global__ void __launch_bounds__(BLOCK)
    crop_kernel(const __grid_constant__ Box p)
{
    move_box<V, D, true>(p);
}

template <int V, Dtype D>
__global__ void __launch_bounds__(BLOCK)
    add_to_box_kernel(const __grid_constant__ Box p)
{
    move_box<V, D, false>(p);
}

/* Loops over the large block: writes the small one, and the fill around it. */
template <int V, Dtype D>
__global__ void __launch_bounds__(BLOCK)
    pad_kernel(const __grid_constant__ Box p)
{
    EACH(i, p.vecs.count)
    {
        int c;
        const Place q = place(p.grid, row_of(p.vecs, i, &c));
        const int d = q.d - p.d, h = q.h - p.h, w = q.w - p.w;
        const int k = c * V - p.c;
        Vec<V> x;
        for (int j = 0; j < V; j++) x.v[j] = p.fill;
        if (d >= 0 && d < p.in.d && h >= 0 && h < p.in.h && w >= 0 &&
            w < p.in.w && k >= 0 && k < p.in.c)
            x = load<V, D>((const Element<D> *)p.small +
                           row_at(p.in, q.n, d, h, w) * p.in.c + k);
        store_vec<V, D>((Element<D> *)p.large + i * V, x, true);
    }
}

/* The box of a slice or pad; the block that is cut or embedded is `small`. */
bool box_of(const Call *c, const Tensor *small, const Tensor *large, Box *p)
{
    *p = {};
    p->small = small->data, p->large = large->data;
    p->in = small->dim, p->out = large->dim;
    if (c->attr->op == OP_slice) {
        p->d = c->attr->slice.d0, p->h = c->attr->slice.h0;
        p->w = c->attr->slice.w0, p->c = c->attr->slice.c0;
    } else {
        p->d = c->attr->pad.pd0, p->h = c->attr->pad.ph0;
        p->w = c->attr->pad.pw0, p->fill = c->attr->pad.value;
    }
    return countable(c, rows(p->out));
}

/* Returns the vector width; sets the block that the kernel loops over. */
int box_range(Box *p, Dims over)
{
    int v = p->in.c % 4 || p->out.c % 4 || p->c % 4 ? 1 : 4;
    p->vecs = vecs_of(over, v);
    p->grid = grid_of(over);
    return v;
}

bool cut(const Call *c, const Tensor *large, const Tensor *small, bool fresh)
{
    Box p;
    if (!small) return true;
    if (!box_of(c, small, large, &p)) return false;
    p.fresh = fresh;
    const int v = box_range(&p, small->dim);
    LAUNCH_STORED(small->type, v, crop_kernel, blocks_for(p.vecs.count), c, p);
    return gpu_launched(op_info[c->attr->op].name);
}

/* Elements outside get the fill, except when gradients are added: their
 * gradient is 0, so they are not touched. */
bool embed(const Call *c, const Tensor *small, const Tensor *large, bool fresh)
{
    Box p;
    if (!large) return true;
    if (!box_of(c, small, large, &p)) return false;
    const int v = box_range(&p, fresh ? large->dim : small->dim);
    const unsigned blocks = blocks_for(p.vecs.count);
    if (fresh)
        LAUNCH_STORED(small->type, v, pad_kernel, blocks, c, p);
    else
        LAUNCH_STORED(small->type, v, add_to_box_kernel, blocks, c, p);
    return gpu_launched(op_info[c->attr->op].name);
}

} // namespace

extern "C" {

bool cuda_concat_fwd(const Call *c)
{
    int v;
    Join p = join_of(c, c->y, &v);
    if (!countable(c, rows(c->y->dim))) return false;
    for (int i = 0; i < MAX_IN && p.from[i] < p.all; i++)
        p.part[i] = values(c->x[i]), p.norm_on_load[i] = norm_on_load_of(c, i);
    start_typed(c, p, c->y->type, v, false);
    return gpu_launched("concat");
}

/* If an operand occurs twice, both gradients may be in the same memory: the
 * second is added by a launch of its own, as otherwise two threads would write
 * one element. */
bool cuda_concat_bwd(const Call *c)
{
    int v;
    Join p = join_of(c, c->dy, &v);
    if (!countable(c, rows(c->dy->dim))) return false;

    for (int i = 0; i < MAX_IN && p.from[i] < p.all;) {
        bool met = false, any = false;
        for (int k = 0; k < MAX_IN; k++) p.part[k] = NULL;
        for (; i < MAX_IN && p.from[i] < p.all; i++) {
            void *dx = values(c->dx[i]);
            for (int k = 0; k < i; k++) met |= dx && dx == p.part[k];
            if (met) break;
            p.part[i] = dx;
            any |= dx != NULL;
        }
        if (!any) continue;
        start_typed(c, p, c->dy->type, v, true);
        if (!gpu_launched("concat, backward")) return false;
    }
    return true;
}

bool cuda_slice_fwd(const Call *c)
{
    return cut(c, c->x[0], c->y, true);
}

bool cuda_slice_bwd(const Call *c)
{
    return embed(c, c->dy, c->dx[0], is_fresh(c, 0));
}

bool cuda_pad_fwd(const Call *c)
{
    return embed(c, c->x[0], c->y, true);
}

bool cuda_pad_bwd(const Call *c)
{
    return cut(c, c->dy, c->dx[0], is_fresh(c, 0));
}
}
