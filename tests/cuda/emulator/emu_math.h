/* emu_math.h -- intrinsics and the mathematical functions that are CUDA's own.
 *
 * <math.h> gives the rest. Fast intrinsics (__expf, ...) are the exact
 * functions here, so a test compares with the device by tolerance, never bit
 * for bit. Bit operations are exact. A conversion to an integer saturates and
 * turns NaN into 0, as on the device. To use a further intrinsic in a kernel,
 * add it here with a test in emu_test.cu. */
#ifndef EMU_MATH_H
#define EMU_MATH_H
#include "tests/cuda/emulator/emu_types.h"
#include <limits>

namespace emu {
template <class To, class From> inline To bits(From from)
{
    static_assert(sizeof(To) == sizeof(From), "the same number of bytes");
    To to;
    memcpy(&to, &from, sizeof to);
    return to;
}
template <class I, class F> inline I saturate(F x)
{
    const F below = (F)std::numeric_limits<I>::min();
    const F above = std::ldexp((F)1, std::numeric_limits<I>::digits);
    if (!(x == x)) return 0;
    if (x >= above) return std::numeric_limits<I>::max();
    return x <= below ? std::numeric_limits<I>::min() : (I)x;
}
} // namespace emu

#define EMU_BITS(name, To, From) \
    inline To name(From x)       \
    {                            \
        return emu::bits<To>(x); \
    }
EMU_BITS(__float_as_uint, unsigned, float)
EMU_BITS(__uint_as_float, float, unsigned)
EMU_BITS(__float_as_int, int, float)
EMU_BITS(__int_as_float, float, int)
EMU_BITS(__double_as_longlong, long long, double)
EMU_BITS(__longlong_as_double, double, long long)
#undef EMU_BITS

#define EMU_F1(name, body)     \
    inline float name(float x) \
    {                          \
        return body;           \
    }
EMU_F1(rsqrtf, 1.0f / std::sqrt(x))
EMU_F1(__frsqrt_rn, (float)(1.0 / std::sqrt((double)x)))
EMU_F1(__fsqrt_rn, std::sqrt(x))
EMU_F1(__frcp_rn, 1.0f / x)
EMU_F1(__expf, std::exp(x))
EMU_F1(__exp2f, std::exp2(x))
EMU_F1(__exp10f, std::pow(10.0f, x))
EMU_F1(__logf, std::log(x))
EMU_F1(__log2f, std::log2(x))
EMU_F1(__log10f, std::log10(x))
EMU_F1(__sinf, std::sin(x))
EMU_F1(__cosf, std::cos(x))
EMU_F1(__tanf, std::tan(x))
EMU_F1(__saturatef, x > 0 ? (x < 1 ? x : 1.0f) : 0.0f) /* NaN gives 0 */
#undef EMU_F1
inline double rsqrt(double x)
{
    return 1.0 / std::sqrt(x);
}

#define EMU_F2(name, body)              \
    inline float name(float a, float b) \
    {                                   \
        return body;                    \
    }
EMU_F2(__fadd_rn, a + b)
EMU_F2(__fsub_rn, a - b)
EMU_F2(__fmul_rn, (a * b))
EMU_F2(__fdiv_rn, a / b)
EMU_F2(__fdividef, a / b)
EMU_F2(__powf, std::pow(a, b))
#undef EMU_F2
inline float __fmaf_rn(float a, float b, float c)
{
    return std::fma(a, b, c);
}
inline double __fma_rn(double a, double b, double c)
{
    return std::fma(a, b, c);
}
inline double __dadd_rn(double a, double b)
{
    return a + b;
}
inline double __dmul_rn(double a, double b)
{
    return a * b;
}

#define EMU_TO(name, I, F, round)          \
    inline I name(F x)                     \
    {                                      \
        return emu::saturate<I>(round(x)); \
    }
EMU_TO(__float2int_rn, int, float, std::nearbyint)
EMU_TO(__float2int_rz, int, float, std::trunc)
EMU_TO(__float2int_rd, int, float, std::floor)
EMU_TO(__float2int_ru, int, float, std::ceil)
EMU_TO(__float2uint_rn, unsigned, float, std::nearbyint)
EMU_TO(__float2uint_rz, unsigned, float, std::trunc)
EMU_TO(__float2ll_rn, long long, float, std::nearbyint)
EMU_TO(__double2int_rn, int, double, std::nearbyint)
EMU_TO(__double2ll_rn, long long, double, std::nearbyint)
#undef EMU_TO
inline float __int2float_rn(int x)
{
    return (float)x;
}
inline float __uint2float_rn(unsigned x)
{
    return (float)x;
}
inline float __double2float_rn(double x)
{
    return (float)x;
}

#define EMU_MIN_MAX(T)        \
    inline T min(T a, T b)    \
    {                         \
        return b < a ? b : a; \
    }                         \
    inline T max(T a, T b)    \
    {                         \
        return a < b ? b : a; \
    }
EMU_MIN_MAX(int)
EMU_MIN_MAX(unsigned)
EMU_MIN_MAX(long)
EMU_MIN_MAX(unsigned long)
EMU_MIN_MAX(long long)
EMU_MIN_MAX(unsigned long long)
#undef EMU_MIN_MAX
inline float min(float a, float b)
{
    return std::fmin(a, b);
}
inline float max(float a, float b)
{
    return std::fmax(a, b);
}
inline double min(double a, double b)
{
    return std::fmin(a, b);
}
inline double max(double a, double b)
{
    return std::fmax(a, b);
}

inline int __popc(unsigned x)
{
    return __builtin_popcount(x);
}
inline int __popcll(unsigned long long x)
{
    return __builtin_popcountll(x);
}
inline int __ffs(int x)
{
    return __builtin_ffs(x);
}
inline int __ffsll(long long x)
{
    return __builtin_ffsll(x);
}
inline int __clz(int x)
{
    return x ? __builtin_clz((unsigned)x) : 32;
}
inline int __clzll(long long x)
{
    return x ? __builtin_clzll((unsigned long long)x) : 64;
}
inline unsigned __brev(unsigned x)
{
    unsigned turned = 0;
    for (int i = 0; i < 32; i++) turned |= (x >> i & 1) << (31 - i);
    return turned;
}
inline unsigned __umulhi(unsigned a, unsigned b)
{
    return (unsigned)((unsigned long long)a * b >> 32);
}
inline int __mulhi(int a, int b)
{
    return (int)((long long)a * b >> 32);
}
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b)
{
    return (unsigned long long)((__extension__(unsigned __int128) a) * b >> 64);
}
/* The low three bits of nibble i of `select` name the byte of b:a that becomes
 * byte i. The nibble's top bit has no effect: it repeats the sign in PTX's
 * prmt, but CUDA masks `select` with 0x7777, as an H200 confirmed. */
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned select)
{
    const unsigned long long all = (unsigned long long)b << 32 | a;
    unsigned made = 0;
    for (int i = 0; i < 4; i++) {
        const unsigned s = select >> 4 * i & 7;
        made |= ((unsigned)(all >> 8 * s) & 255) << 8 * i;
    }
    return made;
}
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned by)
{
    const unsigned long long all = (unsigned long long)high << 32 | low;
    return (unsigned)(all << (by & 31) >> 32);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned by)
{
    const unsigned long long all = (unsigned long long)high << 32 | low;
    return (unsigned)(all >> (by & 31));
}

/* Loads and stores with a hint are plain ones. */
template <class T> inline T __ldg(const T *p)
{
    return *p;
}
template <class T> inline T __ldcg(const T *p)
{
    return *p;
}
template <class T> inline T __ldcs(const T *p)
{
    return *p;
}
template <class T> inline void __stcg(T *p, T value)
{
    *p = value;
}
template <class T> inline void __stcs(T *p, T value)
{
    *p = value;
}
#endif
