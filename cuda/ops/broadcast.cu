/* broadcast.cu -- add, sub, mul, div, and the functions of two operands of
 * elementwise.def, of operands with equal extents or 1.
 *
 * Forward: each thread makes one element of the result, four in 16 bits; an
 * operand that is repeated along an axis has stride 0 there. Equal extents need
 * no positions and use flat indices. Bound by bandwidth: 12 bytes an element, 6
 * in 16 bits.
 *
 * Backward sums dy (times a derivative) over the axes along which the operand
 * was repeated. With at most LOOP_REPEATS repeats one thread loops over the
 * repeats of an element. With more, blocks of 32 x 8 threads take a part of the
 * repeats for 32 adjacent elements, and a second kernel adds the parts in their
 * order. If the operand has several channels the 32 are channels, otherwise
 * repeats: in both cases adjacent threads read adjacent memory. */
#include "cuda/lib/grid_reduce_launch.cuh"
#include "cuda/ops/functions.cuh"
#include "cuda/ops/repeats.cuh"

namespace {

enum { PARTS = 256, PART_ITEMS = 2048 };

/* Elements of a thread if each has its own result: operands in 16 bits have
 * channels that divide by four. */
template <Dtype D> struct Each {
    enum { COUNT = D == F32 ? 1 : 4 };
};

// -- operands broadcast to the result ----------------------------------------

struct View {
    const void *data;
    Steps step;
};

View view_of(const Tensor *t)
{
    return {t->data, steps_of(t->dim)};
}

/* V elements of the operand at a position and from a channel of the result
 * on. */
template <int V, Dtype D>
__device__ __forceinline__ Vec<V> load_at(const View &v, const Place &p, int c)
{
    return load<V, D>((const Element<D> *)v.data + offset(v.step, p, c));
}

struct Pair {
    View a, b;
    Grid grid; // of the result
    Divisor channels;
    int64_t count;
    bool flat; // all extents equal
};

/* f.value of V elements. */
template <class F, int V>
__device__ __forceinline__ Vec<V> value_of(const F &f, Vec<V> a,
                                           const Vec<V> &b)
{
    for (int k = 0; k < V; k++) a.v[k] = f.value(a.v[k], b.v[k]);
    return a;
}

Pair pair_of(const Call *c)
{
    Dims s = c->y->dim;
    bool flat = dims_equal(c->x[0]->dim, s) && dims_equal(c->x[1]->dim, s);
    return {view_of(c->x[0]), view_of(c->x[1]), grid_of(s),
            divisor(s.c),     numel(s),         flat};
}

// -- forward -----------------------------------------------------------------

/* Adjacent threads make adjacent elements; an operand that is repeated comes
 * from the caches. */
template <class F, Dtype D>
__global__ void broadcast_fwd_kernel(const F f, const Pair p, Element<D> *y)
{
    constexpr int V = Each<D>::COUNT;
    const Element<D> *a = (const Element<D> *)p.a.data,
                     *b = (const Element<D> *)p.b.data;
    EACH(n, p.count / V)
    {
        const int64_t i = n * V;
        if (p.flat) {
            store_vec<V, D>(
                y + i, value_of(f, load<V, D>(a + i), load<V, D>(b + i)), true);
            continue;
        }
        int64_t row = i / p.channels.by;
        int c = (int)(i - row * p.channels.by);
        Place q = place(p.grid, (uint32_t)row);
        store_vec<V, D>(
            y + i,
            value_of(f, load_at<V, D>(p.a, q, c), load_at<V, D>(p.b, q, c)),
            true);
    }
}

template <class F, Dtype D> bool forward_as(const Call *c, const F &f)
{
    Pair p = pair_of(c);
    if (!countable(c, rows(c->y->dim))) return false;
    LAUNCH((broadcast_fwd_kernel<F, D>), blocks_for(p.count / Each<D>::COUNT),
           BLOCK, 0, gpu_stream(c->dev), f, p, elements<D>(c->y));
    return gpu_launched("broadcast");
}

template <class F> bool forward(const Call *c, const F &f)
{
    return c->y->type == BF16  ? forward_as<F, BF16>(c, f)
           : c->y->type == F16 ? forward_as<F, F16>(c, f)
                               : forward_as<F, F32>(c, f);
}

// -- backward ----------------------------------------------------------------

/* The gradient of an operand: its extents (own), and the number of repeats
 * along each axis (again; 1 where it is not repeated). own * again = the
 * extents of dy. */
struct Repeat {
    Grid own, again;
    Divisor own_c, again_c;
    int64_t count;   // of the gradient
    int64_t repeats; // elements of dy for each of its elements
    int64_t part;    // repeats in a part
    View dy;         // all extents
    int operand;
};

/* The term of dy's elements at own position and channel, repeat k. */
template <class F, int V, Dtype D>
__device__ __forceinline__ Vec<V> part_at(const F &f, const Pair &p,
                                          const Repeat &r, Place own, int c,
                                          int64_t k)
{
    int64_t row = k / r.again_c.by;
    int rc = (int)(k - row * r.again_c.by);
    Place q = place(r.again, (uint32_t)row);
    // along each axis one of the two is 0
    q.n += own.n, q.d += own.d, q.h += own.h, q.w += own.w, c += rc;
    Vec<V> dy = load_at<V, D>(r.dy, q, c), a = {}, b = {};
    if (F::reads) a = load_at<V, D>(p.a, q, c), b = load_at<V, D>(p.b, q, c);
    for (int v = 0; v < V; v++)
        dy.v[v] = f.part(r.operand, dy.v[v], a.v[v], b.v[v]);
    return dy;
}

/* One element of the gradient a thread, four in 16 bits: a chain of
 * LOOP_REPEATS terms needs no second register. */
template <class F, Dtype D>
__global__ void broadcast_bwd_kernel(const F f, const Pair p, const Repeat r,
                                     Element<D> *dx, bool fresh)
{
    constexpr int V = Each<D>::COUNT;
    EACH(n, r.count / V)
    {
        const int64_t i = n * V;
        int64_t row = i / r.own_c.by;
        int c = (int)(i - row * r.own_c.by);
        Place own = place(r.own, (uint32_t)row);
        Vec<V> sum = {};
        for (int64_t k = 0; k < r.repeats; k++) {
            const Vec<V> part = part_at<F, V, D>(f, p, r, own, c, k);
            for (int v = 0; v < V; v++) sum.v[v] += part.v[v];
        }
        store_vec<V, D>(dx + i, sum, fresh);
    }
}

/* parts[part][element]. Block (32, 8): x over channels and y over repeats, or,
 * with one channel, all 256 over repeats. */
template <class F, Dtype D, bool CHANNELS>
__global__ void broadcast_bwd_parts_kernel(const F f, const Pair p,
                                           const Repeat r, int tiles,
                                           double *parts)
{
    SMEM(double, lane, [8][33]);
    const int64_t row = blockIdx.x / tiles;
    const int c = CHANNELS ? (int)(blockIdx.x % tiles * 32 + threadIdx.x) : 0;
    const int first =
        CHANNELS ? (int)threadIdx.y : (int)(threadIdx.y * 32 + threadIdx.x);
    const int step = CHANNELS ? 8 : 256;
    const Place own = place(r.own, (uint32_t)row);
    const int64_t from = blockIdx.y * r.part;
    const int64_t to = from + r.part < r.repeats ? from + r.part : r.repeats;
    double sum = 0;

    if (c < (int)r.own_c.by) {
        for (int64_t k = from + first; k < to;) {
            float run = 0;
            for (int n = 0; n < RUN && k < to; n++, k += step)
                run += part_at<F, 1, D>(f, p, r, own, c, k).v[0];
            sum += (double)run;
        }
    }

    lane[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y || c >= (int)r.own_c.by) return;
    if (!CHANNELS && threadIdx.x) return;
    double all = 0;
    for (int y = 0; y < 8; y++)
        for (int x = 0; x < (CHANNELS ? 1 : 32); x++)
            all += lane[y][CHANNELS ? threadIdx.x : x];
    parts[blockIdx.y * r.count + row * r.own_c.by + c] = all;
}

/* Parts depend on extents alone, so the sum has one order on every GPU. */
Repeat repeat_of(const Call *c, int operand)
{
    Dims own = c->x[operand]->dim, all = c->y->dim;
    Dims more = dims_repeats(own, all);
    Repeat r = {};
    r.own = grid_of(own), r.own_c = divisor(own.c);
    r.again = grid_of(more), r.again_c = divisor(more.c);
    r.count = numel(own), r.repeats = numel(more);
    r.operand = operand;
    int64_t parts = most(1, least(PARTS, r.repeats / PART_ITEMS));
    r.part = ceil_div(r.repeats, parts);
    return r;
}

/* Bytes of the parts; 0 if there are none. */
size_t parts_bytes(const Call *c, int operand)
{
    Repeat r = repeat_of(c, operand);
    if (!c->dx[operand] || r.repeats <= LOOP_REPEATS) return 0;
    return (size_t)(ceil_div(r.repeats, r.part) * r.count) * sizeof(double);
}

Space space_of(const Call *c)
{
    int64_t a = (int64_t)parts_bytes(c, 0), b = (int64_t)parts_bytes(c, 1);
    Space s = {};
    s.bwd = (size_t)most(a, b);
    return s;
}

template <class F, Dtype D>
bool gradient(const Call *c, const F &f, const Pair &p, int operand)
{
    Repeat r = repeat_of(c, operand);
    Element<D> *dx = elements<D>(c->dx[operand]);
    bool fresh = is_fresh(c, operand);
    cudaStream_t stream = gpu_stream(c->dev);

    r.dy = view_of(c->dy);
    if (r.repeats <= LOOP_REPEATS) {
        LAUNCH((broadcast_bwd_kernel<F, D>),
               blocks_for(r.count / Each<D>::COUNT), BLOCK, 0, stream, f, p, r,
               dx, fresh);
        return gpu_launched("broadcast, backward");
    }

    double *parts = (double *)c->scratch;
    int count = (int)ceil_div(r.repeats, r.part);
    int tiles = (int)ceil_div(r.own_c.by, 32);
    dim3 grid((unsigned)(r.count / r.own_c.by * tiles), (unsigned)count);

    if (D != F32 || r.own_c.by > 1)
        LAUNCH((broadcast_bwd_parts_kernel<F, D, true>), grid, dim3(32, 8), 0,
               stream, f, p, r, tiles, parts);
    else
        LAUNCH((broadcast_bwd_parts_kernel<F, F32, false>), grid, dim3(32, 8),
               0, stream, f, p, r, tiles, parts);

    if (!gpu_launched("broadcast, parts")) return false;
    return reduce_parts<D>(c, parts, count, r.count, dx, fresh);
}

/* One after the other: both use the same scratch. */
template <class F, Dtype D> bool backward_as(const Call *c, const F &f)
{
    Pair p = pair_of(c);
    for (int i = 0; i < 2; i++)
        if (c->dx[i] && !gradient<F, D>(c, f, p, i)) return false;
    return true;
}

template <class F> bool backward(const Call *c, const F &f)
{
    return c->dy->type == BF16  ? backward_as<F, BF16>(c, f)
           : c->dy->type == F16 ? backward_as<F, F16>(c, f)
                                : backward_as<F, F32>(c, f);
}

// -- sums over axes ----------------------------------------------------------

/* A sum is the gradient of an operand of add that is repeated along the axes of
 * the sum. share: 1, or for a mean 1 / the number of terms. */
struct Shares {
    static constexpr bool reads = false;
    float share;
    __device__ float part(int, float dy, float, float) const
    {
        return dy * share;
    }
};

/* dx (a) (+)= share times the gradient of the sum (b). */
struct Spread {
    float share;
    bool fresh;
    __device__ float value(float a, float b) const
    {
        return fresh ? b * share : a + b * share;
    }
};

float share_of(const Call *c, const Tensor &sums)
{
    const int64_t terms = numel(c->x[0]->dim) / numel(sums.dim);
    return c->attr->sum.mean ? 1 / (float)terms : 1;
}

/* The sum as a gradient: sums = dx[0] of an operand that is broadcast to x. */
Call sum_call(const Call *c, Tensor *sums)
{
    Call of = *c;
    *sums = *c->y;
    sums->dim = op_reduced_dims(c->attr, c->x[0]->dim);
    of.x[0] = of.dx[0] = sums, of.x[1] = of.dx[1] = NULL;
    of.y = of.dy = (Tensor *)c->x[0], of.fresh = 1;
    return of;
}

} // namespace

extern "C" Space cuda_sum_space(const Call *c)
{
    Space s = {};
    Tensor sums;
    const Call of = sum_call(c, &sums);
    s.fwd = parts_bytes(&of, 0);
    return s;
}

extern "C" bool cuda_sum_fwd(const Call *c)
{
    Tensor sums;
    const Call of = sum_call(c, &sums);
    return countable(c, rows(c->x[0]->dim)) &&
           gradient<Shares, F32>(&of, Shares{share_of(c, sums)}, {}, 0);
}

extern "C" bool cuda_sum_bwd(const Call *c)
{
    if (!c->dx[0]) return true;
    Tensor dy = *c->dy;
    dy.dim = op_reduced_dims(c->attr, c->x[0]->dim);
    Call of = *c;
    of.x[0] = of.y = c->dx[0], of.x[1] = &dy;
    return forward_as<Spread, F32>(&of,
                                   Spread{share_of(c, dy), is_fresh(c, 0)});
}

#define ROW(name, F)                         \
    Space cuda_##name##_space(const Call *c) \
    {                                        \
        return space_of(c);                  \
    }                                        \
    bool cuda_##name##_fwd(const Call *c)    \
    {                                        \
        return forward(c, F);                \
    }                                        \
    bool cuda_##name##_bwd(const Call *c)    \
    {                                        \
        return backward(c, F);               \
    }
extern "C" {
ROW(add, Add{})
ROW(sub, Sub{})
ROW(mul, Mul{})
ROW(div, Div{})

#define BINARY(name, value, da, db) ROW(name, BinaryFunction{OP_##name})
#define BINARY_STEP(name, value)                      \
    bool cuda_##name##_fwd(const Call *c)             \
    {                                                 \
        return forward(c, BinaryFunction{OP_##name}); \
    }
#include "engine/graph/elementwise.def"
}
