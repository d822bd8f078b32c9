/* vec.h -- a vector of LANES floats, the same for every instruction set.
 *
 * Each file of cpu/simd is compiled once per set with -DISA=name -DLANES=n:
 * avx512 16, avx2 8, portable 4. Arithmetic is written with GCC's vector
 * types; only what they cannot say (fused multiply-add, minimum, maximum,
 * part of a vector) is an intrinsic here.
 *
 * v_fma rounds once where the set has the instruction and twice where it has
 * not, so results of two sets differ in the last bits.
 *
 * How kernels are written: a function `block` is inlined with constant shapes,
 * its loops over them are unrolled, and arrays of V become registers. One
 * instance a shape is called through a table or chosen by a loop. If a shape
 * does not fit the registers, the compiler spills silently and the kernel
 * halves its speed: look at the assembly after changing one. */
#ifndef SEG_VEC_H
#define SEG_VEC_H
#include "simd.h"
#include <math.h>
#include <string.h>
#if LANES > 4
#include <immintrin.h>
#endif

/* Sizes of register blocks: see Simd. Sums take 24 of 32 registers, or 12 of
 * 16 in the smaller sets; the others hold what is loaded. At least 8 sums are
 * needed to hide a latency of 4 cycles behind two multiply-adds a cycle. */
#if LANES == 16
enum { PANEL = 4 * LANES, OUTER_HIGH = 8, OUTER_WIDE = 3 * LANES };
#else
enum { PANEL = 2 * LANES, OUTER_HIGH = 4, OUTER_WIDE = 3 * LANES };
#endif

#define VEC_BYTES (4 * LANES)
typedef float V __attribute__((vector_size(VEC_BYTES)));
typedef int32_t Vi __attribute__((vector_size(VEC_BYTES)));
// the same in memory: any address of a float, whatever it was written as
typedef float Vu __attribute__((vector_size(VEC_BYTES), aligned(4), may_alias));
typedef int32_t Viu
    __attribute__((vector_size(VEC_BYTES), aligned(4), may_alias));

/* ISA_NAME(product) is product_avx512, say. */
#define ISA_NAME(name)        ISA_PASTE2(name, ISA)
#define ISA_PASTE2(name, isa) ISA_PASTE(name, isa)
#define ISA_PASTE(name, isa)  name##_##isa

/* Shapes are constants only where the call is inlined, so it must be. */
#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 32")

INLINE V v_load(const float *p)
{
    return *(const Vu *)p;
}

INLINE void v_store(float *p, V v)
{
    *(Vu *)p = v;
}

INLINE V v_zero(void)
{
    return (V){0};
}

/* The bits of the floats, as integers. */
INLINE Vi v_bits(V v)
{
    return (Vi)v;
}

/* m ? a : b, for m all ones or all zeros in each lane. */
INLINE V v_select(Vi m, V a, V b)
{
    return (V)((m & (Vi)a) | (~m & (Vi)b));
}

#if LANES == 16
INLINE V v_set(float a)
{
    return (V)_mm512_set1_ps(a);
}
INLINE V v_fma(V a, V b, V c)
{
    return (V)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
}
/* The second operand when either is NaN; so too below. */
INLINE V v_max(V a, V b)
{
    return (V)_mm512_max_ps((__m512)a, (__m512)b);
}
INLINE V v_min(V a, V b)
{
    return (V)_mm512_min_ps((__m512)a, (__m512)b);
}
INLINE V v_sqrt(V a)
{
    return (V)_mm512_sqrt_ps((__m512)a);
}
/* The first n lanes, 0 <= n <= LANES; the others read as 0. */
INLINE V v_load_part(const float *p, int n)
{
    return (V)_mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), p);
}
INLINE void v_store_part(float *p, V v, int n)
{
    _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1), (__m512)v);
}
#else
#if LANES == 8
INLINE V v_set(float a)
{
    return (V)_mm256_set1_ps(a);
}
INLINE V v_fma(V a, V b, V c)
{
    return (V)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
}
INLINE V v_max(V a, V b)
{
    return (V)_mm256_max_ps((__m256)a, (__m256)b);
}
INLINE V v_min(V a, V b)
{
    return (V)_mm256_min_ps((__m256)a, (__m256)b);
}
INLINE V v_sqrt(V a)
{
    return (V)_mm256_sqrt_ps((__m256)a);
}
/* All ones in the first n lanes: the mask of a part. */
INLINE Vi v_first(int n)
{
    return (Vi){0, 1, 2, 3, 4, 5, 6, 7} < n;
}
INLINE V v_load_part(const float *p, int n)
{
    return (V)_mm256_maskload_ps(p, (__m256i)v_first(n));
}
INLINE void v_store_part(float *p, V v, int n)
{
    _mm256_maskstore_ps(p, (__m256i)v_first(n), (__m256)v);
}
#else
INLINE V v_set(float a)
{
    return (V){a, a, a, a};
}
INLINE V v_fma(V a, V b, V c)
{
    return a * b + c;
}
INLINE V v_max(V a, V b)
{
    return v_select(a > b, a, b);
}
INLINE V v_min(V a, V b)
{
    return v_select(a < b, a, b);
}
INLINE V v_sqrt(V a)
{
    for (int i = 0; i < LANES; i++) a[i] = sqrtf(a[i]);
    return a;
}
INLINE V v_load_part(const float *p, int n)
{
    V v = v_zero();
    memcpy(&v, p, (size_t)n * sizeof *p);
    return v;
}
INLINE void v_store_part(float *p, V v, int n)
{
    memcpy(p, &v, (size_t)n * sizeof *p);
}
#endif
#endif

/* Sum of the lanes, in halves: a fixed tree. */
INLINE float v_sum(V v)
{
    float s[LANES];
    v_store(s, v);
    for (int half = LANES / 2; half; half /= 2)
        for (int i = 0; i < half; i++) s[i] += s[i + half];
    return s[0];
}
#endif
