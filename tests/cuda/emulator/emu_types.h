/* emu_types.h -- qualifiers, dim3 and the vector types of CUDA.
 *
 * The qualifiers vanish: a kernel is a plain function that is called once
 * for each thread. Standard headers are included first, because some of CUDA's
 * names must not be macros inside them. Vector types have CUDA's sizes and
 * alignments, so that UBSan reports a misaligned float4. */
#ifndef EMU_TYPES_H
#define EMU_TYPES_H
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <math.h>
#include <memory>
#include <stdint.h>
#include <stdlib.h>
#include <tuple>
#include <type_traits>
#include <utility>

#define __global__
#define __grid_constant__
#define __device__
#define __host__
#define __constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __restrict__ __restrict
#define __align__(n) alignas(n)

/* File and line of a call, as default arguments instead of a macro. */
#define EMU_AT const char *file = __builtin_FILE(), int line = __builtin_LINE()

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned nx = 1, unsigned ny = 1, unsigned nz = 1)
        : x(nx), y(ny), z(nz)
    {
    }
};

/* three types for each element type */
#define EMU_VECTOR(T, name)                                    \
    struct alignas(2 * sizeof(T)) name##2                      \
    {                                                          \
        T x, y;                                                \
    };                                                         \
    struct name##3                                             \
    {                                                          \
        T x, y, z;                                             \
    };                                                         \
    struct alignas(sizeof(T) < 8 ? 4 * sizeof(T) : 16) name##4 \
    {                                                          \
        T x, y, z, w;                                          \
    };                                                         \
    static inline name##2 make_##name##2(T x, T y)             \
    {                                                          \
        return {x, y};                                         \
    }                                                          \
    static inline name##3 make_##name##3(T x, T y, T z)        \
    {                                                          \
        return {x, y, z};                                      \
    }                                                          \
    static inline name##4 make_##name##4(T x, T y, T z, T w)   \
    {                                                          \
        return {x, y, z, w};                                   \
    }
EMU_VECTOR(signed char, char)
EMU_VECTOR(unsigned char, uchar)
EMU_VECTOR(short, short)
EMU_VECTOR(unsigned short, ushort)
EMU_VECTOR(int, int)
EMU_VECTOR(unsigned, uint)
EMU_VECTOR(float, float)
EMU_VECTOR(double, double)
EMU_VECTOR(long long, longlong)
EMU_VECTOR(unsigned long long, ulonglong)
#undef EMU_VECTOR
#endif
