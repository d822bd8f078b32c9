/* optim.cu -- the optimisers of optim.def, and the sum of squares.
 *
 * Arithmetic on elements follows cpu/ref/optim.c in float, operation by
 * operation: each product and sum is rounded (no fused multiply-add), so an
 * update gives the same bits as on the CPU. Values that all elements share
 * (Decision) are computed in double and rounded once, by the host or by one
 * thread of the device step.
 *
 * Each thread updates one element, or four where all addresses allow. Bound by
 * memory: adam 28 bytes a parameter, sgd 20, 2 more for a copy in 16 bits. The
 * sum of squares is in double throughout, as squares of floats overflow long
 * before the norm does. It adds the partial sums that other kernels left
 * (grad_sqnorm) and the squares of all other gradients, which are read here (4
 * bytes each), in parts whose number depends on extents only; one block adds
 * the parts. */
#include "cuda/device/optim.cuh"
#include "cuda/lib/grad_sqnorm.cuh"
#include "cuda/lib/vec.cuh"

namespace {

/* a b and a + b, rounded once each: nvcc would fuse the operators. */
__device__ __forceinline__ float times(float a, float b)
{
    return __fmul_rn(a, b);
}

__device__ __forceinline__ float plus(float a, float b)
{
    return __fadd_rn(a, b);
}

/* update_factors, rounded. */
struct Factors {
    float of[FACTOR_COUNT];
};

/* Arrays of `count` elements; v for adam only. */
struct Job {
    float *value, *m, *v;
    const float *grad;
    uint16_t *copy; // or NULL
    Dtype copied;
    int64_t count;
};

/* One parameter and its optimiser state. */
struct ParamState {
    float p, g, m, v;
};

struct Sgd {
    enum { STATES = 1 };
    static __device__ __forceinline__ void step(const Factors &f, ParamState *a)
    {
        const float rate = f.of[FACTOR_RATE], momentum = f.of[FACTOR_MOMENTUM];
        const float g = plus(times(a->g, f.of[FACTOR_SCALE]),
                             times(f.of[FACTOR_DECAY], a->p));
        // the first m is g, whatever a new buffer contains
        const bool first = f.of[FACTOR_FIRST] != 0;
        a->m = first ? g : plus(times(a->m, momentum), g);
        const bool nesterov = f.of[FACTOR_NESTEROV] != 0;
        const float d = nesterov ? plus(g, times(momentum, a->m)) : a->m;
        a->p = plus(a->p, times(rate, d));
    }
};

/* m, v: running means of g and g^2, both too small in the first steps; the
 * factors ROOT and RATE correct for it. */
struct Adam {
    enum { STATES = 2 };
    static __device__ __forceinline__ void step(const Factors &f, ParamState *a)
    {
        const float g = plus(times(a->g, f.of[FACTOR_SCALE]),
                             times(f.of[FACTOR_DECAY], a->p));
        const float square = times(times(f.of[FACTOR_REST2], g), g);
        a->m =
            plus(times(a->m, f.of[FACTOR_BETA1]), times(f.of[FACTOR_REST1], g));
        a->v = plus(times(a->v, f.of[FACTOR_BETA2]), square);
        const float below =
            plus(sqrtf(a->v) / f.of[FACTOR_ROOT], f.of[FACTOR_EPS]);
        a->p = plus(times(a->p, f.of[FACTOR_SHRINK]),
                    times(f.of[FACTOR_RATE], a->m) / below);
    }
};

/* Writes V numbers to a copy of type D. */
template <int V, Dtype D>
__device__ __forceinline__ void put_copy(uint16_t *to, const Vec<V> &p)
{
    if constexpr (V > 1)
        store_vec<V, D>(to, p, true);
    else
        *to = (uint16_t)Stored<D>::pack(p.v[0], 0);
}

/* Updates V adjacent elements from i on. */
template <class Kind, int V>
__device__ __forceinline__ void update_at(const Job &j, const Factors &f,
                                          int64_t i)
{
    Vec<V> p = load<V>(j.value + i), v = {};
    Vec<V> m = load<V>(j.m + i), g = load<V>(j.grad + i);
    if (Kind::STATES > 1) v = load<V>(j.v + i);
    for (int k = 0; k < V; k++) {
        ParamState a = {p.v[k], g.v[k], m.v[k], v.v[k]};
        Kind::step(f, &a);
        p.v[k] = a.p, m.v[k] = a.m, v.v[k] = a.v;
    }

    store_vec<V>(j.value + i, p, true);
    if (j.copy && j.copied == BF16) put_copy<V, BF16>(j.copy + i, p);
    if (j.copy && j.copied == F16) put_copy<V, F16>(j.copy + i, p);
    store_vec<V>(j.m + i, m, true);
    if (Kind::STATES > 1) store_vec<V>(j.v + i, v, true);
}

/* The param_range that contains element i, or NULL. */
__device__ __forceinline__ const ParamRange *param_range_of(
    const ParamRange *list, int count, int64_t i)
{
    int from = 0, to = count; // binary search: the last that begins at or
                              // before i
    while (to - from > 1) {
        const int half = (from + to) / 2;
        if (list[half].from <= i)
            from = half;
        else
            to = half;
    }
    const ParamRange *s = &list[from];
    return count && s->from <= i && i < s->to ? s : NULL;
}

/* Updates all param_ranges, V elements a thread; each begins at a multiple of
 * V. */
template <class Kind, int V>
__global__ void __launch_bounds__(BLOCK)
    optim_update_kernel(const Job j, const ParamRange *list, int param_ranges,
                        const Decision *d)
{
    if (!d->applied) return;
    EACH(i, (j.count + V - 1) / V)
    {
        const int64_t at = i * V;
        const ParamRange *s = param_range_of(list, param_ranges, at);
        if (!s) continue;
        Factors f;
        for (int k = 0; k < FACTOR_COUNT; k++)
            f.of[k] = d->factors[s->group][k];
        if (at + V <= s->to)
            update_at<Kind, V>(j, f, at);
        else
            for (int64_t k = at; k < s->to; k++) update_at<Kind, 1>(j, f, k);
    }
}

template <class Kind>
bool update(void *dev, const Job &j, const ParamRange *list, int param_ranges,
            const Decision *d)
{
    const uintptr_t all = (uintptr_t)j.value | (uintptr_t)j.grad |
                          (uintptr_t)j.m | (uintptr_t)j.v;
    cudaStream_t stream = gpu_stream(dev);
    if (all % alignof(Vec<4>) == 0)
        LAUNCH((optim_update_kernel<Kind, 4>), blocks_for(ceil_div(j.count, 4)),
               BLOCK, 0, stream, j, list, param_ranges, d);
    else
        LAUNCH((optim_update_kernel<Kind, 1>), blocks_for(j.count), BLOCK, 0,
               stream, j, list, param_ranges, d);
    return gpu_launched("update");
}

bool update_kind(void *dev, OptimKind kind, const Job &j,
                 const ParamRange *list, int param_ranges, const Decision *d)
{
    return kind == OPTIM_sgd ? update<Sgd>(dev, j, list, param_ranges, d)
                             : update<Adam>(dev, j, list, param_ranges, d);
}

// -- an average over steps ---------------------------------------------------

// as a difference: equal numbers stay equal to the last bit
__global__ void __launch_bounds__(BLOCK)
    weight_average_kernel(float *y, const float *x, int64_t count,
                          const Decision *d)
{
    if (!d->applied) return;
    const float by = d->blend;
    EACH(i, count) y[i] = plus(y[i], times(by, plus(x[i], -y[i])));
}

// -- sum of squares ----------------------------------------------------------

enum {
    LOADS = 4,                // loads of a thread in flight
    PARTS = SQNORM_PARTS / 2, // blocks that fill any GPU
    ITEMS = 4096, // gradients that are worth a block; for partial sums:
    LEFT_ITEMS = 1024,
};

/* A number of items, and the items of a block. */
struct Cut {
    int64_t count, grain;
};

/* Cuts `count` into blocks of at least `items`. */
Cut cut_of(int64_t count, int64_t items)
{
    return {count, most(items, ceil_div(count, PARTS))};
}

int blocks_of(Cut s)
{
    return (int)ceil_div(s.count, s.grain);
}

/* The first item of this thread in block `block`, and the end of the block. */
__device__ __forceinline__ int64_t cut_from(Cut s, int block)
{
    return block * s.grain + threadIdx.x;
}

__device__ __forceinline__ int64_t cut_to(Cut s, int block)
{
    const int64_t to = (block + 1) * s.grain;
    return to < s.count ? to : s.count;
}

/* Number i of the gradients that are read here. */
__device__ __forceinline__ float rest_at(const float *x, const SqnormPlaces &s,
                                         int64_t i)
{
    const uint32_t line = (uint32_t)(i / PARAM_ALIGN);
    int from = 0, to = s.rests; // binary search: the last that begins at or
                                // before line
    while (to - from > 1) {
        const int half = (from + to) / 2;
        if (s.rest[half].first <= line)
            from = half;
        else
            to = half;
    }
    const int64_t at = (int64_t)s.rest[from].line + (line - s.rest[from].first);
    return x[at * PARAM_ALIGN + i % PARAM_ALIGN];
}

/* The sum of one block: of squares of gradients, or, from block `readers` on,
 * of partial sums that other kernels left. */
__global__ void __launch_bounds__(BLOCK)
    sqnorm_kernel(const float *x, const __grid_constant__ SqnormPlaces s,
                  const Cut rest, const Cut left, int readers, double *parts)
{
    const bool reads = (int)blockIdx.x < readers;
    const Cut cut = reads ? rest : left;
    const int block = (int)blockIdx.x - (reads ? 0 : readers);
    const int64_t to = cut_to(cut, block);
    double sum = 0;

    for (int64_t i = cut_from(cut, block); i < to; i += LOADS * BLOCK) {
        if (reads) {
            float v[LOADS];
#pragma unroll
            for (int k = 0; k < LOADS; k++)
                v[k] = i + k * BLOCK < to ? rest_at(x, s, i + k * BLOCK) : 0;
#pragma unroll
            for (int k = 0; k < LOADS; k++) sum += square_of(v[k]);
        } else {
#pragma unroll
            for (int k = 0; k < LOADS; k++)
                sum += i + k * BLOCK < to ? s.left[i + k * BLOCK] : 0;
        }
    }
    store_sqnorm(sum, parts + blockIdx.x);
}

__global__ void __launch_bounds__(BLOCK)
    sqnorm_sum_kernel(const double *parts, int count, double *out)
{
    double sum[1];
    partial_sums(parts, count, 1, 0, sum);
    if (threadIdx.x == 0) *out = sum[0];
}

} // namespace

bool sqnorm_queue(void *dev, const float *x, const SqnormPlaces *s,
                  double *parts, int *count)
{
    const Cut rest = cut_of(s->elements, ITEMS);
    const Cut left = cut_of(s->lefts, LEFT_ITEMS);
    const int readers = blocks_of(rest);
    *count = readers + blocks_of(left);
    if (!*count) return true;
    moves((double)s->elements * sizeof *x +
          (double)(s->lefts + *count) * sizeof *parts);
    LAUNCH(sqnorm_kernel, (unsigned)*count, BLOCK, 0, gpu_stream(dev), x, *s,
           rest, left, readers, parts);
    return gpu_launched("sum of squares, parts");
}

namespace {

/* A Decision and one param_range, set by the host; a device step has them on
 * the device. */
struct Single {
    Decision decision;
    ParamRange param_range;
};

} // namespace

extern "C" bool cuda_update(void *dev, const Update *u)
{
    CHECK(u->step >= 1);
    if (u->count == 0) return true;
    Job j = {};
    j.value = (float *)u->value, j.grad = (const float *)u->grad;
    j.m = (float *)u->m, j.count = u->count;
    if (u->optim->kind != OPTIM_sgd) j.v = (float *)u->v;
    double exact[FACTOR_COUNT];
    Single one = {};
    one.decision.applied = 1, one.param_range.to = u->count;
    update_factors(u, exact);
    for (int i = 0; i < FACTOR_COUNT; i++)
        one.decision.factors[0][i] = (float)exact[i];
    Single *there = (Single *)gpu_scratch(dev, sizeof one);
    return there && gpu_upload(dev, there, &one, sizeof one) &&
           update_kind(dev, u->optim->kind, j, &there->param_range, 1,
                       &there->decision);
}

bool update_all_queue(void *dev, const DeviceStepSpec *spec,
                      const ParamRange *list, int64_t updated,
                      const Decision *d)
{
    Job j = {};
    j.value = (float *)spec->value, j.grad = (const float *)spec->grad;
    j.m = (float *)spec->state[0], j.v = (float *)spec->state[1];
    j.copy = (uint16_t *)spec->copy, j.copied = spec->copied;
    j.count = spec->trained;
    // gradients are read, the others read and written
    const int states = optim_info[spec->optim.kind].states;
    const double each = (1 + 2 * (1 + states)) * sizeof(float) +
                        (j.copy ? dtype_bytes(j.copied) : 0);
    moves((double)updated * each);
    return update_kind(dev, spec->optim.kind, j, list, spec->param_ranges, d);
}

bool blend_queue(void *dev, float *y, const float *x, int64_t count,
                 const Decision *d)
{
    moves(3 * (double)count * sizeof *y);
    LAUNCH(weight_average_kernel, blocks_for(count), BLOCK, 0, gpu_stream(dev),
           y, x, count, d);
    return gpu_launched("average");
}

extern "C" bool cuda_blend(void *dev, void *y, const void *x, int64_t count,
                           double by)
{
    if (count == 0) return true;
    Decision d = {};
    d.applied = 1, d.blend = (float)by;
    Decision *there = (Decision *)gpu_scratch(dev, sizeof d);
    return there && gpu_upload(dev, there, &d, sizeof d) &&
           blend_queue(dev, (float *)y, (const float *)x, count, there);
}

extern "C" bool cuda_sum_squares(void *dev, const void *x, int64_t count,
                                 double *out)
{
    SqnormPlaces all = {};
    int parts;
    all.elements = count, all.rests = 1;
    double *room =
        (double *)gpu_scratch(dev, (1 + SQNORM_PARTS) * sizeof *room);
    if (!room || !sqnorm_queue(dev, (const float *)x, &all, room + 1, &parts))
        return false;
    LAUNCH(sqnorm_sum_kernel, 1, BLOCK, 0, gpu_stream(dev), room + 1, parts,
           room);

    // the download waits
    return gpu_launched("sum of squares") &&
           gpu_download(dev, out, room, sizeof *out);
}
