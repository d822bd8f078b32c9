/* vec.cuh -- vector loads and stores: one thread, one vector of adjacent
 * channels.
 *
 * Kernels that copy, select or gather go over a tensor in vectors of V channels
 * of one row: V = 4 (one memory instruction) where the channels of all tensors
 * of the call divide by 4, else 1. Adjacent threads take adjacent vectors, so a
 * warp reads and writes contiguous memory. Alignment: tensors begin at
 * multiples of 256 bytes (plan_memory.c).
 *
 * A tensor is f32 or, where the plan stores it in 16 bits, bf16 or f16 (cuda.c
 * lists the operators); in registers a vector is always of floats. Tensors in
 * 16 bits have a multiple of 8 channels, so V = 4, or 8 (wide_vec), except in
 * kernels that work element by element. Inputs and concats of inputs are an
 * exception; only convolutions, linear and copy.cu read them. */
#ifndef SEG_CUDA_LIB_VEC_H
#define SEG_CUDA_LIB_VEC_H
#include "cuda/lib/kernel.cuh"

/* Aligned to at most 16 bytes, the most that one instruction moves. */
template <int V> struct alignas(V < 4 ? 4 * V : 16) Vec {
    float v[V];
};

/* The stored type of a number. For 16 bits also the conversion of two numbers
 * to and from one register, the first in the low half, rounded to nearest as in
 * convert.cu. */
template <Dtype D> struct Stored;

template <> struct Stored<F32> {
    typedef float T;
};

template <> struct Stored<BF16> {
    typedef uint16_t T;
    static __device__ __forceinline__ uint32_t pack(float low, float high)
    {
        return pack_bf16(low, high);
    }
    static __device__ __forceinline__ float2 unpack(uint32_t both)
    {
        return unpack_bf16(both);
    }
};

template <> struct Stored<F16> {
    typedef uint16_t T;
    static __device__ __forceinline__ uint32_t pack(float low, float high)
    {
        return pack_f16(low, high);
    }
    static __device__ __forceinline__ float2 unpack(uint32_t both)
    {
        return unpack_f16(both);
    }
};

template <Dtype D> using Element = typename Stored<D>::T;

/* Memory of a tensor of type D; NULL for an absent one. */
template <Dtype D> static inline Element<D> *elements(const Tensor *t)
{
    return t ? (Element<D> *)t->data : NULL;
}

template <int V> struct alignas(2 * V) Vec16 {
    uint32_t v[V / 2];
};

template <int V, Dtype D = F32>
static __device__ __forceinline__ Vec<V> load(const Element<D> *p)
{
    if constexpr (D == F32) {
        return *(const Vec<V> *)p;
    } else if constexpr (V == 1) {
        return {Stored<D>::unpack(*p).x};
    } else {
        const Vec16<V> all = *(const Vec16<V> *)p;
        Vec<V> x;
#pragma unroll
        for (int i = 0; i < V / 2; i++) {
            const float2 two = Stored<D>::unpack(all.v[i]);
            x.v[2 * i] = two.x, x.v[2 * i + 1] = two.y;
        }
        return x;
    }
}

/* Loads V numbers of 16 bits as raw bits, half the registers of a Vec;
 * values_of converts the bits to floats. */
template <int V>
static __device__ __forceinline__ Vec16<V> packed(const void *p, int64_t i)
{
    return *(const Vec16<V> *)((const uint16_t *)p + i);
}

/* V numbers of a tensor as raw bits, for loads that wait in registers. */
template <int V, Dtype D>
using Raw = std::conditional_t<D == F32, Vec<V>, Vec16<V>>;

template <int V, Dtype D>
static __device__ __forceinline__ Vec<V> values_of(const Raw<V, D> &raw)
{
    return load<V, D>((const Element<D> *)&raw);
}

/* *p = x or *p += x. */
template <int V, Dtype D = F32>
static __device__ __forceinline__ void store_vec(Element<D> *p, Vec<V> x,
                                                 bool fresh)
{
    if (!fresh) {
        const Vec<V> old = load<V, D>(p);
        for (int i = 0; i < V; i++) x.v[i] = old.v[i] + x.v[i];
    }

    if constexpr (D == F32) {
        *(Vec<V> *)p = x;
    } else if constexpr (V == 1) {
        *p = (uint16_t)Stored<D>::pack(x.v[0], 0);
    } else {
        Vec16<V> all;
#pragma unroll
        for (int i = 0; i < V / 2; i++)
            all.v[i] = Stored<D>::pack(x.v[2 * i], x.v[2 * i + 1]);
        *(Vec16<V> *)p = all;
    }
}

/* Channels per vector in a tensor of `channels`. */
static inline int vec_width(int64_t channels)
{
    return channels % 4 ? 1 : 4;
}

/* Channels per vector of 16 bytes, for LAUNCH_WIDE and CALL_WIDE. */
static inline int wide_vec(Dtype type, int64_t channels)
{
    return type == F32 ? vec_width(channels) : 8;
}

/* All vectors of a tensor, with a divisor that splits a vector number into row
 * and vector in the row. */
struct Vecs {
    Divisor per_row;
    int64_t count;
    bool narrow; // count fits the 32 bits of a Divisor
};

static inline Vecs vecs_of(Dims s, int v)
{
    int64_t count = numel(s) / v;
    return {divisor(s.c / v), count, count <= INT32_MAX};
}

/* Returns the row of vector i; *vec is its number in the row. A 64-bit division
 * takes some fifty instructions, so only tensors that need it have one. */
static __device__ __forceinline__ uint32_t row_of(const Vecs &p, int64_t i,
                                                  int *vec)
{
    uint32_t row = (uint32_t)i;
    if (p.narrow) {
        *vec = (int)split(&row, p.per_row);
        return row;
    }
    row = (uint32_t)(i / p.per_row.by);
    *vec = (int)(i - (int64_t)row * p.per_row.by);
    return row;
}

/* Row number of a position within extents `s`. */
static __device__ __forceinline__ int64_t row_at(Dims s, int n, int d, int h,
                                                 int w)
{
    return (((int64_t)n * s.d + d) * s.h + h) * s.w + w;
}

/* Launches kernel<4> or kernel<1> with `blocks` blocks. */
#define LAUNCH_V(v, kernel, blocks, c, ...)                           \
    do {                                                              \
        if ((v) == 4)                                                 \
            LAUNCH(kernel<4>, blocks, BLOCK, 0, gpu_stream((c)->dev), \
                   __VA_ARGS__);                                      \
        else                                                          \
            LAUNCH(kernel<1>, blocks, BLOCK, 0, gpu_stream((c)->dev), \
                   __VA_ARGS__);                                      \
    } while (0)

/* Launches kernel<V, D> for tensors of type D; V = 4 for types of 16 bits. */
#define LAUNCH_STORED(type, v, kernel, blocks, c, ...)                        \
    do {                                                                      \
        if ((type) == BF16)                                                   \
            LAUNCH((kernel<4, BF16>), blocks, BLOCK, 0, gpu_stream((c)->dev), \
                   __VA_ARGS__);                                              \
        else if ((type) == F16)                                               \
            LAUNCH((kernel<4, F16>), blocks, BLOCK, 0, gpu_stream((c)->dev),  \
                   __VA_ARGS__);                                              \
        else if ((v) == 4)                                                    \
            LAUNCH((kernel<4, F32>), blocks, BLOCK, 0, gpu_stream((c)->dev),  \
                   __VA_ARGS__);                                              \
        else                                                                  \
            LAUNCH((kernel<1, F32>), blocks, BLOCK, 0, gpu_stream((c)->dev),  \
                   __VA_ARGS__);                                              \
    } while (0)

/* The same with V = 8 for types of 16 bits: wide_vec. */
#define LAUNCH_WIDE(type, v, kernel, blocks, c, ...)                          \
    do {                                                                      \
        if ((type) == BF16)                                                   \
            LAUNCH((kernel<8, BF16>), blocks, BLOCK, 0, gpu_stream((c)->dev), \
                   __VA_ARGS__);                                              \
        else if ((type) == F16)                                               \
            LAUNCH((kernel<8, F16>), blocks, BLOCK, 0, gpu_stream((c)->dev),  \
                   __VA_ARGS__);                                              \
        else                                                                  \
            LAUNCH_STORED(type, v, kernel, blocks, c, __VA_ARGS__);           \
    } while (0)

/* Calls f<V, D>(...) by the rule of LAUNCH_STORED, for other forms of launches.
 */
#define CALL_STORED(type, v, f, ...)           \
    ((type) == BF16  ? f<4, BF16>(__VA_ARGS__) \
     : (type) == F16 ? f<4, F16>(__VA_ARGS__)  \
     : (v) == 4      ? f<4, F32>(__VA_ARGS__)  \
                     : f<1, F32>(__VA_ARGS__))

/* The same for vectors of wide_vec. */
#define CALL_WIDE(type, v, f, ...)             \
    ((type) == BF16  ? f<8, BF16>(__VA_ARGS__) \
     : (type) == F16 ? f<8, F16>(__VA_ARGS__)  \
     : (v) == 4      ? f<4, F32>(__VA_ARGS__)  \
                     : f<1, F32>(__VA_ARGS__))
#endif
