/* argsort.cu -- the permutation that sorts each fibre; see cpu/ref/argsort.c.
 *
 * A number becomes a key, a whole number of the same order. Fibres of up to
 * COUNTED elements: a thread counts how many elements of its fibre come before
 * its own, which is the element's place; L1 holds the fibre. Longer ones: a
 * radix sort of all elements by key, then by fibre; as it is stable, each fibre
 * ends up sorted in a part of its own. */
#include "cuda/ops/fibres.cuh"
#include "cuda/ops/radix_sort.cuh"

namespace {

enum { COUNTED = 256 };

struct Argsort {
    const float *x;
    float *y;
    Fibres f;
    Grid own; // of the places of fibres
    Divisor own_c, length;
    int64_t count; // elements
    bool descending;
};

/* NaN gets the largest key; -0 the key of 0. */
__device__ __forceinline__ uint32_t key_of(float v, bool descending)
{
    const uint32_t bits = v == 0 ? 0 : __float_as_uint(v);
    const uint32_t sign = 1u << 31;
    uint32_t key = bits & sign ? ~bits : bits | sign;
    if (v != v) key = 0xffffffffu;
    return descending ? ~key : key;
}

/* The first element of fibre number i. */
__device__ __forceinline__ int64_t start_of(const Argsort &p, uint32_t i)
{
    const uint32_t c = split(&i, p.own_c);
    return offset(p.f.start, place(p.own, i), (int)c);
}

__global__ void argsort_count_kernel(const Argsort p)
{
    EACH(i, p.count)
    {
        uint32_t fibre = (uint32_t)i;
        const uint32_t k = split(&fibre, p.length);
        const int64_t start = start_of(p, fibre);
        const uint32_t own =
            key_of(p.x[start + fibre_step(p.f, k)], p.descending);
        uint32_t before = 0;
        for (uint32_t j = 0; j < p.f.length; j++) {
            const uint32_t key =
                key_of(p.x[start + fibre_step(p.f, j)], p.descending);
            before += key < own || (key == own && j < k);
        }
        p.y[start + fibre_step(p.f, before)] = (float)k;
    }
}

/* Key and number of each element, fibre after fibre. */
__global__ void argsort_keys_kernel(const Argsort p, uint32_t *keys,
                                    uint32_t *items)
{
    EACH(i, p.count)
    {
        uint32_t fibre = (uint32_t)i;
        const uint32_t k = split(&fibre, p.length);
        keys[i] =
            key_of(p.x[start_of(p, fibre) + fibre_step(p.f, k)], p.descending);
        items[i] = (uint32_t)i;
    }
}

__global__ void argsort_fibres_kernel(const Argsort p, uint32_t *keys,
                                      const uint32_t *items)
{
    EACH(i, p.count)
    {
        keys[i] = quotient(items[i], p.length);
    }
}

__global__ void argsort_results_kernel(const Argsort p, const uint32_t *items)
{
    EACH(i, p.count)
    {
        uint32_t fibre = (uint32_t)i, item = items[i];
        const uint32_t k = split(&fibre, p.length);
        p.y[start_of(p, fibre) + fibre_step(p.f, k)] =
            (float)split(&item, p.length);
    }
}

bool sort_long(const Call *c, const Argsort &p)
{
    const int64_t fibres = p.count / p.f.length;
    const unsigned blocks = blocks_for(p.count);
    RadixSort s = radix_sort_in(c->scratch, p.count);
    LAUNCH(argsort_keys_kernel, blocks, BLOCK, 0, gpu_stream(c->dev), p, s.keys,
           s.items);
    if (!radix_sort(c->dev, &s, 32)) return false;
    LAUNCH(argsort_fibres_kernel, blocks, BLOCK, 0, gpu_stream(c->dev), p,
           s.keys, s.items);
    if (!radix_sort(c->dev, &s, radix_sort_bits(fibres))) return false;
    LAUNCH(argsort_results_kernel, blocks, BLOCK, 0, gpu_stream(c->dev), p,
           s.items);
    return gpu_launched("argsort");
}

} // namespace

extern "C" Space cuda_argsort_space(const Call *c)
{
    Space s = {};
    const Dims d = c->y->dim;
    if (op_fibre_length(c->attr, d) > COUNTED)
        s.fwd = radix_sort_bytes(numel(d));
    return s;
}

extern "C" bool cuda_argsort_fwd(const Call *c)
{
    const Dims s = c->y->dim, own = op_reduced_dims(c->attr, s);
    Argsort p = {};
    p.x = values(c->x[0]), p.y = values(c->y);
    p.f = fibres_of(c->attr, s), p.own = grid_of(own);
    p.own_c = divisor(own.c), p.length = divisor(p.f.length);
    p.count = numel(s), p.descending = c->attr->argsort.descending;
    if (!countable(c, p.count)) return false;
    if (p.f.length > COUNTED) return sort_long(c, p);
    LAUNCH(argsort_count_kernel, blocks_for(p.count), BLOCK, 0,
           gpu_stream(c->dev), p);
    return gpu_launched("argsort");
}
