/* loss.cuh -- sums over the elements of a loss, and its gradient.
 *
 * The kernels of losses that are a mean over elements: partial sums, which the
 * last block adds (or a second launch, where ranks all-reduce the sums), and
 * gradients. An operator adds only the value and the derivative of one element.
 * Losses of other sums, or with several sets, use the kernels too.
 *
 * Mapping: each thread takes a quad of 4 elements (view4.cuh), adjacent threads
 * adjacent quads. A block sums one part; a part has at least 1024 elements, and
 * there are at most 1024 parts. A part belongs to one set: the batch, or a
 * sample where sums are per sample. Shared memory: K doubles a warp. Bound by
 * memory where the function of an element is cheap: x, t and, if they have x's
 * extents, m and q are read once (8 to 16 bytes), dx is written once.
 *
 * Elements with m q = 0 are skipped: the values of x or of the target there,
 * NaN included, cannot reach the loss or a gradient. */
#ifndef SEG_CUDA_LOSS_LOSS_H
#define SEG_CUDA_LOSS_LOSS_H
#include "cuda/loss/view4.cuh"

enum {
    LOSS_PARTS = 1024, // of all sets together, unless there are more sets
    LOSS_ITEMS = 1024, // elements that are worth a part
};

// -- sums --------------------------------------------------------------------

/* Returns the number of parts into which each of `sets` sets is cut. A set has
 * `items` (positions or quads) and `elements`; *part is the number of items of
 * a part. */
static inline int loss_parts(int64_t sets, int64_t items, int64_t elements,
                             int64_t *part)
{
    int64_t room = most(1, LOSS_PARTS / sets);
    int64_t parts = most(1, least(room, elements / LOSS_ITEMS));
    parts = least(parts, items);
    *part = ceil_div(items, parts);
    return (int)ceil_div(items, *part);
}

/* Bytes of the partial sums of K sums over elements. */
static inline size_t view4_bytes(int64_t sets, int64_t elements, int k)
{
    int64_t part,
        parts = loss_parts(sets, ceil_div(elements, QUAD), elements, &part);
    return (size_t)(sets * parts * k) * sizeof(double);
}

/* out[k] = sum over the block of sum[k]; for a block of BLOCK threads. */
template <int K>
static __device__ __forceinline__ void block_sums(double sum[K], double *out)
{
    SMEM(double, warps, [K][BLOCK / WARP]);
    const int t = (int)threadIdx.x;
#pragma unroll
    for (int k = 0; k < K; k++) sum[k] = warp_sum(sum[k]);
    if (t % WARP == 0)
        for (int k = 0; k < K; k++) warps[k][t / WARP] = sum[k];
    __syncthreads();
    if (t >= K) return;
    double all = 0;
    for (int i = 0; i < BLOCK / WARP; i++) all += warps[t][i];
    out[t] = all;
}

/* all[k] = the sum of `count` parts, by one block. */
template <int K>
static __device__ __forceinline__ void part_totals(const double *parts,
                                                   int count, double *all)
{
    double sum[K] = {};
    for (int i = (int)threadIdx.x; i < count; i += BLOCK)
        for (int k = 0; k < K; k++) sum[k] += parts[i * K + k];
    block_sums<K>(sum, all);
    __syncthreads();
}

/* The last block of a loss: sum[0] = sum m q l and sum[1] = M give y = sum[0] /
 * sum[1], 0 if M is 0. */
struct Mean {
    float *y;
    __device__ void operator()(const double *sum) const
    {
        *y = (float)(sum[1] != 0 ? sum[0] / sum[1] : 0);
    }
};

/* dx = f(x, t, w) where w != 0, else 0. f.open(set) is called first and reads
 * f's values of that set. */
template <class F> struct Grads {
    F f;
    float *dx;
    bool fresh;
    __device__ void open(int64_t set)
    {
        f.open(set);
    }
    /* n elements from `at` on. */
    __device__ void put(const View4 &o, int64_t at, int n, bool aligned) const
    {
        float out[QUAD];
#pragma unroll
        for (int j = 0; j < QUAD; j++)
            out[j] = o.w[j] != 0 ? f(o.x[j], o.t[j], o.w[j]) : 0;
        put4(dx + at, n, aligned, out, fresh);
    }
};

/* Stores the partial sums out[set][part][k], k < K. f(x, t, m, w, run) adds the
 * terms of one element to run[k]; w is 0 for elements outside the loss. If
 * mean.y is not NULL (K = 2, one set), the last block also stores the quotient
 * of both sums there. */
template <int K, Way W, class F>
static __global__ void __launch_bounds__(BLOCK)
    loss_sums_kernel(const F f, const __grid_constant__ Views v,
                     int64_t elements, int64_t part, int parts, double *out,
                     const Mean mean, unsigned *word)
{
    const int64_t set = blockIdx.x / (unsigned)parts;
    const int64_t from = blockIdx.x % (unsigned)parts * part;
    const int64_t quads = (elements + QUAD - 1) / QUAD;
    const int64_t to = from + part < quads ? from + part : quads;
    double sum[K] = {};

    for (int64_t i = from + threadIdx.x; i < to;) {
        float run[K] = {};
        for (int n = 0; n < RUN / QUAD && i < to; n++, i += BLOCK) {
            int64_t e = i * QUAD, at = set * elements + e, left = elements - e;
            int n4 = left < QUAD ? (int)left : QUAD;
            View4 o = view4_at<W>(v, at, n4);
#pragma unroll
            for (int j = 0; j < QUAD; j++)
                f(o.x[j], o.t[j], o.m[j], o.w[j], run);
        }
        for (int k = 0; k < K; k++) sum[k] += (double)run[k];
    }

    block_sums<K>(sum, out + (int64_t)blockIdx.x * K);
    if constexpr (K == 2) {
        SMEM(double, all, [K]);
        if (!mean.y || !last_block(word, gridDim.x)) return;
        part_totals<K>(out, (int)gridDim.x, all);
        if (threadIdx.x == 0) mean(all);
    }
}

/* Sets of index computations (Way) for which kernels are instantiated, as bits.
 * With one channel, ROWS is FLAT. */
enum { ALIKE = 1 << FLAT, ONE_CHANNEL = 1 << FLAT | 1 << PLACES, ANY_WAY = 7 };

/* Queues the sums of all parts; `elements`: of one set; mean: see above.
 * Returns the number of parts of a set; 0 if the launch failed. */
template <int K, int WAYS, class F>
static int view4_sums(const Call *c, const F &f, const Views &v, int64_t sets,
                      int64_t elements, double *out, float *mean = NULL)
{
    int64_t part;
    int parts = loss_parts(sets, ceil_div(elements, QUAD), elements, &part);
    unsigned blocks = (unsigned)(sets * parts);
    cudaStream_t stream = gpu_stream(c->dev);
    unsigned *const word = mean ? gpu_counters(c->dev, 1) : NULL;

    CHECK(WAYS >> v.way & 1);
    if (v.way == FLAT)
        LAUNCH((loss_sums_kernel<K, FLAT, F>), blocks, BLOCK, 0, stream, f, v,
               elements, part, parts, out, Mean{mean}, word);
    if constexpr (WAYS >> ROWS & 1)
        if (v.way == ROWS)
            LAUNCH((loss_sums_kernel<K, ROWS, F>), blocks, BLOCK, 0, stream, f,
                   v, elements, part, parts, out, Mean{mean}, word);
    if constexpr (WAYS >> PLACES & 1)
        if (v.way == PLACES)
            LAUNCH((loss_sums_kernel<K, PLACES, F>), blocks, BLOCK, 0, stream,
                   f, v, elements, part, parts, out, Mean{mean}, word);
    return gpu_launched("loss, sums") ? parts : 0;
}

/* One block: f(sum) on one thread, with the sums of all parts. */
template <int K, class F>
static __global__ void __launch_bounds__(BLOCK)
    loss_finish_kernel(const F f, const double *parts, int count)
{
    SMEM(double, all, [K]);
    part_totals<K>(parts, count, all);
    if (threadIdx.x == 0) f(all);
}

template <int K, class F>
static bool finish_here(const Call *c, const F &f, const double *parts,
                        int count)
{
    LAUNCH((loss_finish_kernel<K, F>), 1, BLOCK, 0, gpu_stream(c->dev), f,
           parts, count);
    return gpu_launched("loss, finish");
}

/* Stores the sums of this rank for the all-reduce; zeros on an idle rank. */
template <int K> struct Own {
    double *to; // may be the parts: all have been read
    const Step *step;
    __device__ void operator()(const double *sum) const
    {
        for (int k = 0; k < K; k++) to[k] = step->shard.idle ? 0 : sum[k];
    }
};

/* finish_here, with the sums of all ranks if the ranks share the batch. */
template <int K, class F>
static bool finish(const Call *c, const F &f, double *parts, int count)
{
    if (!is_sharded(c)) return finish_here<K>(c, f, parts, count);
    return finish_here<K>(c, Own<K>{parts, gpu_step(c->dev)}, parts, count) &&
           gpu_allreduce(c->dev, parts, F64, K, 1) &&
           finish_here<K>(c, f, parts, 1);
}

/* 1 / M for the gradient. M is `times` times the sum of the mask's own
 * elements, each of which is broadcast to `times` elements of x. */
struct Inverse {
    float *y;
    double times;
    __device__ void operator()(const double *sum) const
    {
        *y = (float)(sum[0] != 0 ? 1 / (sum[0] * times) : 0);
    }
};

// -- gradient ----------------------------------------------------------------

template <Way W, class F>
static __global__ void __launch_bounds__(BLOCK)
    loss_bwd_kernel(const Grads<F> f, const __grid_constant__ Views v,
                    int64_t elements, int blocks)
{
    const int64_t set = blockIdx.x / (unsigned)blocks;
    const int64_t quads = (elements + QUAD - 1) / QUAD;
    Grads<F> grads = f;
    grads.open(set);
    for (int64_t i =
             blockIdx.x % (unsigned)blocks * (int64_t)BLOCK + threadIdx.x;
         i < quads; i += (int64_t)blocks * BLOCK) {
        int64_t e = i * QUAD, at = set * elements + e, left = elements - e;
        int n = left < QUAD ? (int)left : QUAD;
        grads.put(view4_at<W>(v, at, n), at, n, v.aligned);
    }
}

template <int WAYS, class F>
static bool view4_grads(const Call *c, const F &f, const Views &v, int64_t sets,
                        int64_t elements)
{
    int64_t quads = ceil_div(elements, QUAD);
    int blocks = (int)least(ceil_div(quads, BLOCK), most(1, 65536 / sets));
    unsigned grid = (unsigned)(sets * blocks);
    cudaStream_t stream = gpu_stream(c->dev);
    const Grads<F> grads = {f, values(c->dx[0]), is_fresh(c, 0)};

    CHECK(WAYS >> v.way & 1);
    if (v.way == FLAT)
        LAUNCH((loss_bwd_kernel<FLAT, F>), grid, BLOCK, 0, stream, grads, v,
               elements, blocks);
    if constexpr (WAYS >> ROWS & 1)
        if (v.way == ROWS)
            LAUNCH((loss_bwd_kernel<ROWS, F>), grid, BLOCK, 0, stream, grads, v,
                   elements, blocks);
    if constexpr (WAYS >> PLACES & 1)
        if (v.way == PLACES)
            LAUNCH((loss_bwd_kernel<PLACES, F>), grid, BLOCK, 0, stream, grads,
                   v, elements, blocks);
    return gpu_launched("loss, gradients");
}

/* The plan treats target, mask and weight as constants, so a gradient of one is
 * an error of the program. */
static inline void only_dx0(const Call *c)
{
    for (int i = 1; i < MAX_IN; i++) CHECK(!c->dx[i]);
}

// -- the mean of an operator -------------------------------------------------

/* T has value(x, t) and grad(x, t): l and dl/dx of one element. */
template <class T> struct Value {
    T term;
    __device__ void operator()(float x, float t, float m, float w,
                               float run[2]) const
    {
        if (w != 0) run[0] += w * term.value(x, t);
        run[1] += m;
    }
};

template <class T> struct Grad {
    T term;
    const float *dy, *inverse; // inverse: 1 / M, or NULL if `factor` is 1 / M
    float factor;              // dy / M after open()
    __device__ void open(int64_t)
    {
        factor = *dy * (inverse ? *inverse : factor);
    }
    __device__ float operator()(float x, float t, float w) const
    {
        return factor * w * term.grad(x, t);
    }
};

/* Sums the first operand. */
struct Plain {
    __device__ void operator()(float x, float, float, float, float run[1]) const
    {
        run[0] += x;
    }
};

static inline Space mean_space(const Call *c)
{
    Space s = {};
    s.fwd = view4_bytes(1, numel(c->x[0]->dim), 2);
    // nothing is saved for the backward pass, so M is summed again: its partial
    // sums, then its inverse; without a mask M is known, except on other ranks
    s.bwd = sizeof(double);
    s.bwd += c->x[2] ? view4_bytes(1, numel(c->x[2]->dim), 1) : sizeof(double);
    return s;
}

template <class T> static bool mean_fwd(const Call *c, const T &term)
{
    if (!countable(c, rows(c->x[0]->dim))) return false;
    float *y = values(c->y);
    double *parts = (double *)c->scratch;
    int count = view4_sums<2, ANY_WAY>(c, Value<T>{term}, loss_views(c, 1), 1,
                                       numel(c->x[0]->dim), parts,
                                       is_sharded(c) ? NULL : y);
    return count && (!is_sharded(c) || finish<2>(c, Mean{y}, parts, count));
}

/* A single part with a value that the host knows. */
static __global__ void loss_count_kernel(double *part, double value)
{
    *part = value;
}

template <class T> static bool mean_bwd(const Call *c, const T &term)
{
    only_dx0(c);
    if (!c->dx[0]) return true;
    int64_t all = numel(c->x[0]->dim);
    const Tensor *m = c->x[2];
    Grad<T> f = {term, values(c->dy), NULL, (float)(1 / (double)all)};
    if (!countable(c, rows(c->x[0]->dim))) return false;

    if (m) {
        // each element of the mask counts for all elements of x that it
        // broadcasts to
        int64_t own = numel(m->dim);
        double *parts = (double *)c->scratch;
        Views v = views_of(m, NULL, NULL, NULL, m->dim, 1);
        moves(moved(m));
        int count = view4_sums<1, ALIKE>(c, Plain{}, v, 1, own, parts);
        float *inverse = (float *)(parts + count);
        if (!count ||
            !finish<1>(c, Inverse{inverse, (double)(all / own)}, parts, count))
            return false;
        f.inverse = inverse;
    } else if (is_sharded(c)) {
        double *part = (double *)c->scratch;
        float *inverse = (float *)(part + 1);
        moves(sizeof *part);
        LAUNCH(loss_count_kernel, 1, 1, 0, gpu_stream(c->dev), part,
               (double)all);
        if (!gpu_launched("loss, count") ||
            !finish<1>(c, Inverse{inverse, 1}, part, 1))
            return false;
        f.inverse = inverse;
    }

    const double reads =
        moved(c->x[0]) + moved(c->x[1]) + moved(m) + moved(c->x[3]);
    moves(reads + moved(c->dx[0], is_fresh(c, 0)));
    return view4_grads<ANY_WAY>(c, f, loss_views(c, 1), 1, all);
}

/* The three launchers of an operator; `term` is an expression with the Call
 * c. */
#define MEAN_LOSS(name, term)                \
    extern "C" {                             \
    Space cuda_##name##_space(const Call *c) \
    {                                        \
        return mean_space(c);                \
    }                                        \
    bool cuda_##name##_fwd(const Call *c)    \
    {                                        \
        return mean_fwd(c, term);            \
    }                                        \
    bool cuda_##name##_bwd(const Call *c)    \
    {                                        \
        return mean_bwd(c, term);            \
    }                                        \
    }
#endif
