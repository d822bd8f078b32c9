/* precision_traits.cuh -- what a precision is to a kernel: the type of an
 * operand in memory, its value, how it lies in shared memory, and the product
 * of tensor cores that takes it from there.
 *
 * bf16 and f16 are read from copies that the planner had made; tf32 operands
 * are f32 in memory and rounded on the way. Products of two such numbers are
 * exact in f32. */
#ifndef SEG_CUDA_LIB_PRECISION_TRAITS_H
#define SEG_CUDA_LIB_PRECISION_TRAITS_H
#include "cuda/lib/kernel.cuh"

/* What an operand of 16 bits is in memory. */
template <Precision P>
static constexpr Dtype NARROW_TYPE = P == PRECISION_bf16 ? BF16 : F16;

/* 16 bytes of neighbours: one load, one store. */
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
        // to mma only the upper 19 bits are a number
        return __uint_as_float(to_tf32(v) & 0xffffe000u);
    }
    static __device__ __forceinline__ void multiply(float (&d)[4],
                                                    const uint32_t (&a)[4],
                                                    const uint32_t (&b)[2])
    {
        mma_tf32(d, a, b);
    }
};

/* The two types of 16 bits, T. */
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
