/* precision_traits.cuh -- precision traits: the type of an operand in memory,
 * its value, its form in shared memory, and the tensor-core product that reads
 * this form.
 *
 * bf16 and f16 operands are copies that the plan provides; tf32 operands are
 * f32 in memory and rounded on their way to shared memory. Products of two
 * numbers of one of these formats are exact in f32. */
#ifndef SEG_CUDA_LIB_PRECISION_TRAITS_H
#define SEG_CUDA_LIB_PRECISION_TRAITS_H
#include "cuda/lib/kernel.cuh"

/* The stored type of a 16-bit operand. */
template <Precision P>
static constexpr Dtype NARROW_TYPE = P == PRECISION_bf16 ? BF16 : F16;

/* 16 bytes of adjacent values: one load, one store. */
template <class T> struct alignas(16) Line {
    enum { COUNT = 16 / sizeof(T) };
    T v[COUNT];
};

template <Precision P> struct PrecisionTraits;

template <> struct PrecisionTraits<PRECISION_f32> {
    typedef float T;
    static __device__ __forceinline__ float value(T v)
    {
        return v;
    }
};

template <> struct PrecisionTraits<PRECISION_tf32> {
    typedef float T;
    typedef uint32_t Shared;
    static __device__ __forceinline__ Shared shared(T v)
    {
        return to_tf32(v);
    }
    static __device__ __forceinline__ float value(T v)
    {
        // mma reads only the upper 19 bits
        return __uint_as_float(to_tf32(v) & 0xffffe000u);
    }
    static __device__ __forceinline__ void multiply(float (&d)[4],
                                                    const uint32_t (&a)[4],
                                                    const uint32_t (&b)[2])
    {
        mma_tf32(d, a, b);
    }
};

/* bf16 and f16: T holds the bits. */
struct PrecisionTraits16 {
    typedef uint16_t T;
    typedef uint16_t Shared;
    static __device__ __forceinline__ Shared shared(T v)
    {
        return v;
    }
};

template <> struct PrecisionTraits<PRECISION_bf16> : PrecisionTraits16 {
    static __device__ __forceinline__ float value(T v)
    {
        return unpack_bf16(v).x;
    }
    static __device__ __forceinline__ void multiply(float (&d)[4],
                                                    const uint32_t (&a)[4],
                                                    const uint32_t (&b)[2])
    {
        mma_bf16(d, a, b);
    }
};

template <> struct PrecisionTraits<PRECISION_f16> : PrecisionTraits16 {
    static __device__ __forceinline__ float value(T v)
    {
        return unpack_f16(v).x;
    }
    static __device__ __forceinline__ void multiply(float (&d)[4],
                                                    const uint32_t (&a)[4],
                                                    const uint32_t (&b)[2])
    {
        mma_f16(d, a, b);
    }
};
#endif
