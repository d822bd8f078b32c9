/* vec.h -- a vector of LANES floats, the same for every instruction set.
 *
 * Each file of cpu/simd is compiled once per set with -DISA=name -DLANES=n
 * -DREGISTERS=n: avx512 16 and 32, avx2 8 and 16, neon 4 and 32, portable 4 and
 * 16. Arithmetic is written with GCC's vector types; operations that they lack
 * (fused multiply-add, minimum, maximum, part of a vector) are intrinsics here.
 * The two sets of 4 lanes differ in the number of registers.
 *
 * v_fma rounds once where the set has the instruction and twice where it has
 * not, so results of two sets differ in the last bits.
 *
 * Structure of a kernel: a function `block` is inlined with constant shapes,
 * its loops over the shapes are unrolled, and arrays of V become registers.
 * Each shape is an instance, called through a table or chosen by a loop. If a
 * shape does not fit the registers, the compiler spills silently and the kernel
 * halves its speed: inspect the assembly after changing one. */
#ifndef SEG_CPU_SIMD_VEC_H
#define SEG_CPU_SIMD_VEC_H
#include "cpu/lib/simd.h"
#include <math.h>
#include <string.h>
#define NEON (LANES == 4 && REGISTERS == 32)
#if LANES > 4
#include <immintrin.h>
#elif NEON
#include <arm_neon.h>
#endif

/* Sizes of register blocks: see Simd. Sums take 24 of 32 registers, or 12 of 16
 * in the smaller sets; the others hold loaded values. At least 8 sums are
 * needed to hide a latency of 4 cycles with two multiply-adds a cycle. */
#if REGISTERS == 32
enum { PANEL = 4 * LANES, OUTER_HIGH = 8, OUTER_WIDE = 3 * LANES };
#else
enum { PANEL = 2 * LANES, OUTER_HIGH = 4, OUTER_WIDE = 3 * LANES };
#endif

#define VEC_BYTES (4 * LANES)
typedef float V __attribute__((vector_size(VEC_BYTES)));
typedef int32_t Vi __attribute__((vector_size(VEC_BYTES)));
// the same in memory: at any address of a float, written as any type
typedef float Vu __attribute__((vector_size(VEC_BYTES), aligned(4), may_alias));
typedef int32_t Viu
    __attribute__((vector_size(VEC_BYTES), aligned(4), may_alias));

// bf16 in memory
typedef uint16_t Bu
    __attribute__((vector_size(VEC_BYTES / 2), aligned(2), may_alias));

/* Half as many doubles, for sums that need more digits, and the same number of
 * floats in memory. */
enum { LANES_D = LANES / 2 };
typedef double D __attribute__((vector_size(VEC_BYTES)));
typedef int64_t Di __attribute__((vector_size(VEC_BYTES)));
typedef float Hu
    __attribute__((vector_size(VEC_BYTES / 2), aligned(4), may_alias));

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

/* LANES numbers of bf16, which are the upper halves of floats. */
INLINE V v_load_half(const uint16_t *p)
{
    return (V)(__builtin_convertvector(*(const Bu *)p, Vi) << 16);
}

INLINE V v_zero(void)
{
    return (V){0};
}

/* LANES_D floats, as doubles. */
INLINE D d_load(const float *p)
{
    return __builtin_convertvector(*(const Hu *)p, D);
}

/* The same back, each rounded to float. */
INLINE void d_store(float *p, D d)
{
    *(Hu *)p = __builtin_convertvector(d, Hu);
}

INLINE D d_set(double a)
{
    return (D){0} + a;
}

INLINE D d_select(Di m, D a, D b)
{
    return (D)((m & (Di)a) | (~m & (Di)b));
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

/* All ones in the first n lanes: the mask of a part. */
INLINE Vi v_first(int n)
{
#if LANES == 16
    const Vi lane = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
#elif LANES == 8
    const Vi lane = {0, 1, 2, 3, 4, 5, 6, 7};
#else
    const Vi lane = {0, 1, 2, 3};
#endif
    return lane < n;
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
/* vmaxq_f32 would give NaN when either operand is one, not the second. */
INLINE V v_max(V a, V b)
{
    return v_select(a > b, a, b);
}
INLINE V v_min(V a, V b)
{
    return v_select(a < b, a, b);
}
#if NEON
INLINE V v_fma(V a, V b, V c)
{
    return (V)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
}
INLINE V v_sqrt(V a)
{
    return (V)vsqrtq_f32((float32x4_t)a);
}
/* There are no masks, but loads and stores of one lane and of two. */
INLINE V v_load_part(const float *p, int n)
{
    float32x4_t v = vdupq_n_f32(0);
    if (n == 4) return v_load(p);
    if (n & 2) v = vcombine_f32(vld1_f32(p), vget_low_f32(v));
    if (n == 3) v = vld1q_lane_f32(p + 2, v, 2);
    if (n == 1) v = vld1q_lane_f32(p, v, 0);
    return (V)v;
}
INLINE void v_store_part(float *p, V v, int n)
{
    float32x4_t u = (float32x4_t)v;
    if (n == 4) v_store(p, v);
    if (n == 2 || n == 3) vst1_f32(p, vget_low_f32(u));
    if (n == 3) vst1q_lane_f32(p + 2, u, 2);
    if (n == 1) vst1q_lane_f32(p, u, 0);
}
#else
INLINE V v_fma(V a, V b, V c)
{
    return a * b + c;
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
#endif

/* Loads or stores LANES numbers, or `rest` of them if rest is not 0: the lanes
 * beyond read as 0 and are not written. */
INLINE V v_get(const float *p, int rest)
{
    return rest ? v_load_part(p, rest) : v_load(p);
}

INLINE void v_put(float *p, int rest, V v)
{
    if (rest)
        v_store_part(p, v, rest);
    else
        v_store(p, v);
}

/* Calls step(i, rest) for each vector of numbers from .. to-1, `rest` as above;
 * a macro, because a step may write to several places. */
#define FOR_VECTORS(from, to, step)                       \
    do {                                                  \
        int64_t i = from;                                 \
        for (; i + LANES <= (to); i += LANES) step(i, 0); \
        if (i < (to)) step(i, (int)((to)-i));             \
    } while (0)

/* The activation `kind` (see Act), a constant; slope: of ACT_LEAKY_RELU in all
 * lanes. NaN passes through, as in the operators of the same names. */
INLINE V v_act(ActKind kind, V slope, V v)
{
    if (kind == ACT_RELU) return v_max(v_zero(), v);
    if (kind == ACT_LEAKY_RELU) return v_select(v <= 0, v * slope, v);
    return v;
}

/* Takes dy, the gradient of its result y, back through it. */
INLINE V v_act_bwd(ActKind kind, V slope, V y, V dy)
{
    if (kind == ACT_RELU) return v_select(y <= 0, v_zero(), dy);
    if (kind == ACT_LEAKY_RELU) return v_select(y <= 0, dy * slope, dy);
    return dy;
}

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
