/* pack.cuh -- one thread, one pack of neighbouring channels.
 *
 * Kernels that copy, pick or gather walk a tensor by packs of V channels of
 * one row: V = 4 (16 bytes, one memory instruction) where the channels of all
 * tensors of the call divide by 4, else 1. Neighbouring threads take
 * neighbouring packs, so a warp reads and writes contiguous memory.
 * Alignment: tensors begin at multiples of 256 bytes (plan_place.c). */
#ifndef SEG_PACK_CUH
#define SEG_PACK_CUH
#include "kernel.cuh"

template <int V> struct alignas(4 * V) Pack {
    float v[V];
};

template <int V> static __device__ __forceinline__ Pack<V> load(const float *p)
{
    return *(const Pack<V> *)p;
}

/* *p = x or *p += x. */
template <int V>
static __device__ __forceinline__ void put_pack(float *p, Pack<V> x, bool fresh)
{
    if (!fresh) {
        const Pack<V> old = load<V>(p);
        for (int i = 0; i < V; i++) x.v[i] = old.v[i] + x.v[i];
    }
    *(Pack<V> *)p = x;
}

/* How many channels a pack has in a tensor of `channels`. */
static inline int pack_of(int64_t channels)
{
    return channels % 4 ? 1 : 4;
}

/* Counts all packs of a tensor, and takes a count apart. */
struct Packs {
    Divisor per_row;
    int64_t count;
    bool narrow; // count fits the 32 bits of a Divisor
};

static inline Packs packs_of(Dims s, int v)
{
    int64_t count = numel(s) / v;
    return {divisor(s.c / v), count, count <= INT32_MAX};
}

/* Row of pack i; *pack is its number in the row. Division of 64 bits takes
 * some fifty instructions, so it is left to tensors that need it. */
static __device__ __forceinline__ uint32_t row_of(const Packs &p, int64_t i,
                                                  int *pack)
{
    uint32_t row = (uint32_t)i;
    if (p.narrow) {
        *pack = (int)split(&row, p.per_row);
        return row;
    }
    row = (uint32_t)(i / p.per_row.by);
    *pack = (int)(i - (int64_t)row * p.per_row.by);
    return row;
}

/* Flat row number of a place within extents `s`. */
static __device__ __forceinline__ int64_t row_at(Dims s, int n, int d, int h,
                                                 int w)
{
    return (((int64_t)n * s.d + d) * s.h + h) * s.w + w;
}

/* Launch kernel<4> or kernel<1> with so many blocks. */
#define LAUNCH_V(v, kernel, blocks, c, ...)                           \
    do {                                                              \
        if ((v) == 4)                                                 \
            LAUNCH(kernel<4>, blocks, BLOCK, 0, gpu_stream((c)->dev), \
                   __VA_ARGS__);                                      \
        else                                                          \
            LAUNCH(kernel<1>, blocks, BLOCK, 0, gpu_stream((c)->dev), \
                   __VA_ARGS__);                                      \
    } while (0)

/* ... with a thread for each of `count`. */
#define LAUNCH_PACKED(v, kernel, count, c, ...) \
    LAUNCH_V(v, kernel, blocks_for(count), c, __VA_ARGS__)
#endif
