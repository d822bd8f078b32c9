/* emu_half.h -- f16 and bf16, single and in pairs.
 *
 * Values are 16 bits; arithmetic is done in float and rounded once to nearest
 * even, which for + - * / equals the device (24 bits of significand are more
 * than twice 11 plus 1). __hfma goes through double; its second rounding can
 * differ from the device's single one in rare ties. Conversions are explicit
 * here although CUDA also has implicit ones: code that compiles here compiles
 * with nvcc. Every value is checked in emu_test.cu. */
#ifndef EMU_HALF_H
#define EMU_HALF_H
#include "tests/cuda/emulator/emu_math.h"

namespace emu {

inline float from_bf16(uint16_t x)
{
    return bits<float>((uint32_t)x << 16);
}
inline uint16_t to_bf16(float x)
{
    const uint32_t u = bits<uint32_t>(x);
    if ((u & 0x7fffffffu) > 0x7f800000u) return 0x7fff; /* one NaN */
    return (uint16_t)((u + 0x7fffu + (u >> 16 & 1)) >> 16);
}

inline float from_f16(uint16_t x)
{
    const uint32_t sign = (x & 0x8000u) << 16, e = x >> 10 & 31, m = x & 1023;
    if (e == 31) return bits<float>(sign | 0x7f800000u | m << 13);
    if (e) return bits<float>(sign | (e + 112) << 23 | m << 13);
    const float tiny = (float)m * 0x1p-24f; /* zero or subnormal */
    return sign ? -tiny : tiny;
}
/* Round to nearest even; 65520 and above become infinite. The sum of 0.5 and
 * a number below 2^-14 has its last place at 2^-24, so the processor's own
 * rounding makes the subnormal. */
inline uint16_t to_f16(float x)
{
    const uint32_t u = bits<uint32_t>(x), a = u & 0x7fffffffu;
    const uint16_t sign = (uint16_t)(u >> 16 & 0x8000u);
    if (a > 0x7f800000u) return 0x7fff;
    if (a >= 0x477ff000u) return (uint16_t)(sign | 0x7c00);
    if (a < 0x38800000u) {
        const float shifted = bits<float>(a) + 0.5f;
        return (uint16_t)(sign | (bits<uint32_t>(shifted) - 0x3f000000u));
    }
    const uint32_t rounded = a + 0xfffu + (a >> 13 & 1);
    return (uint16_t)(sign | ((rounded >> 13) - (112u << 10)));
}

/* A number of 16 bits, and two of them in one register. */
template <uint16_t (*to)(float), float (*from)(uint16_t)> struct Small {
    uint16_t bits;
    Small() = default;
    explicit Small(float x) : bits(to(x))
    {
    }
    explicit Small(int x) : bits(to((float)x))
    {
    }
    explicit operator float() const
    {
        return from(bits);
    }
    static Small of_bits(unsigned b)
    {
        Small h;
        h.bits = (uint16_t)b;
        return h;
    }
};
template <class H> struct alignas(4) Pair {
    H x, y;
};

} // namespace emu

typedef emu::Small<emu::to_f16, emu::from_f16> __half;
typedef emu::Small<emu::to_bf16, emu::from_bf16> __nv_bfloat16;
typedef emu::Pair<__half> __half2;
typedef emu::Pair<__nv_bfloat16> __nv_bfloat162;
typedef __half half;
typedef __half2 half2;
typedef __nv_bfloat16 nv_bfloat16;
typedef __nv_bfloat162 nv_bfloat162;

/* Functions of both types; the name of a function for pairs ends in 2. */
#define EMU_SMALL                                             \
    template <uint16_t (*to)(float), float (*from)(uint16_t), \
              class H = emu::Small<to, from>>
#define EMU_ONE  emu::Small<to, from>
#define EMU_PAIR template <class H>
#define EMU_TWO  emu::Pair<H>

#define EMU_OPERATOR(op)                                           \
    namespace emu {                                                \
    EMU_SMALL inline H operator op(EMU_ONE a, EMU_ONE b)           \
    {                                                              \
        return H((float)a op(float) b);                            \
    }                                                              \
    EMU_SMALL inline H &operator op##=(EMU_ONE &a, EMU_ONE b)      \
    {                                                              \
        return a = a op b;                                         \
    }                                                              \
    EMU_PAIR inline EMU_TWO operator op(EMU_TWO a, EMU_TWO b)      \
    {                                                              \
        return {a.x op b.x, a.y op b.y};                           \
    }                                                              \
    EMU_PAIR inline EMU_TWO &operator op##=(EMU_TWO &a, EMU_TWO b) \
    {                                                              \
        return a = a op b;                                         \
    }                                                              \
    }
EMU_OPERATOR(+)
EMU_OPERATOR(-)
EMU_OPERATOR(*)
EMU_OPERATOR(/)
#undef EMU_OPERATOR

#define EMU_ORDER(op, name)                                 \
    namespace emu {                                         \
    EMU_SMALL inline bool operator op(EMU_ONE a, EMU_ONE b) \
    {                                                       \
        return (float)a op(float) b;                        \
    }                                                       \
    }                                                       \
    EMU_SMALL inline bool name(EMU_ONE a, EMU_ONE b)        \
    {                                                       \
        return (float)a op(float) b;                        \
    }
EMU_ORDER(==, __heq)
EMU_ORDER(!=, __hne)
EMU_ORDER(<, __hlt)
EMU_ORDER(<=, __hle)
EMU_ORDER(>, __hgt)
EMU_ORDER(>=, __hge)
#undef EMU_ORDER

/* two operands, or one; `a` and `b` are of H */
#define EMU_BINARY(name, body)                            \
    EMU_SMALL inline H name(EMU_ONE a, EMU_ONE b)         \
    {                                                     \
        return body;                                      \
    }                                                     \
    EMU_PAIR inline EMU_TWO name##2(EMU_TWO a, EMU_TWO b) \
    {                                                     \
        return {name(a.x, b.x), name(a.y, b.y)};          \
    }
EMU_BINARY(__hadd, a + b)
EMU_BINARY(__hsub, a - b)
EMU_BINARY(__hmul, (a * b))
EMU_BINARY(__hmin, H(std::fmin((float)a, (float)b)))
EMU_BINARY(__hmax, H(std::fmax((float)a, (float)b)))
EMU_SMALL inline H __hdiv(EMU_ONE a, EMU_ONE b)
{
    return a / b;
}
EMU_PAIR inline EMU_TWO __h2div(EMU_TWO a, EMU_TWO b)
{
    return a / b;
}
#undef EMU_BINARY

#define EMU_UNARY(name, name2, body)         \
    EMU_SMALL inline H name(EMU_ONE a)       \
    {                                        \
        return body;                         \
    }                                        \
    EMU_PAIR inline EMU_TWO name2(EMU_TWO a) \
    {                                        \
        return {name(a.x), name(a.y)};       \
    }
EMU_UNARY(__hneg, __hneg2, H::of_bits(a.bits ^ 0x8000u))
EMU_UNARY(__habs, __habs2, H::of_bits(a.bits & 0x7fffu))
EMU_UNARY(hexp, h2exp, H(std::exp((float)a)))
EMU_UNARY(hlog, h2log, H(std::log((float)a)))
EMU_UNARY(hsqrt, h2sqrt, H(std::sqrt((float)a)))
EMU_UNARY(hrsqrt, h2rsqrt, H(rsqrtf((float)a)))
EMU_UNARY(hrcp, h2rcp, H(1.0f / (float)a))
#undef EMU_UNARY

namespace emu {
EMU_SMALL inline H operator-(EMU_ONE a)
{
    return __hneg(a);
}
EMU_PAIR inline EMU_TWO operator-(EMU_TWO a)
{
    return __hneg2(a);
}
} // namespace emu

EMU_SMALL inline H __hfma(EMU_ONE a, EMU_ONE b, EMU_ONE c)
{
    const double x = (float)a, y = (float)b, z = (float)c;
    return H((float)std::fma(x, y, z));
}
EMU_PAIR inline EMU_TWO __hfma2(EMU_TWO a, EMU_TWO b, EMU_TWO c)
{
    return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)};
}
EMU_SMALL inline bool __hisnan(EMU_ONE a)
{
    return a != a;
}
EMU_SMALL inline int __hisinf(EMU_ONE a)
{
    return std::isinf((float)a) ? (a.bits >> 15 ? -1 : 1) : 0;
}
EMU_PAIR inline float __low2float(EMU_TWO a)
{
    return (float)a.x;
}
EMU_PAIR inline float __high2float(EMU_TWO a)
{
    return (float)a.y;
}
#undef EMU_SMALL
#undef EMU_ONE
#undef EMU_PAIR
#undef EMU_TWO

/* Conversions with the type in their names: H the type, F its name. */
#define EMU_CONVERT(H, F)                            \
    inline H __float2##F(float x)                    \
    {                                                \
        return H(x);                                 \
    }                                                \
    inline H __float2##F##_rn(float x)               \
    {                                                \
        return H(x);                                 \
    }                                                \
    inline float __##F##2float(H x)                  \
    {                                                \
        return (float)x;                             \
    }                                                \
    inline H##2 __float2##F##2_rn(float x)           \
    {                                                \
        return {H(x), H(x)};                         \
    }                                                \
    inline H##2 __floats2##F##2_rn(float x, float y) \
    {                                                \
        return {H(x), H(y)};                         \
    }                                                \
    inline H##2 __float22##F##2_rn(float2 v)         \
    {                                                \
        return {H(v.x), H(v.y)};                     \
    }                                                \
    inline float2 __##F##22float2(H##2 v)            \
    {                                                \
        return {(float)v.x, (float)v.y};             \
    }                                                \
    inline H##2 __halves2##F##2(H x, H y)            \
    {                                                \
        return {x, y};                               \
    }                                                \
    inline H##2 __##F##2##F##2(H x)                  \
    {                                                \
        return {x, x};                               \
    }                                                \
    inline H __low2##F(H##2 v)                       \
    {                                                \
        return v.x;                                  \
    }                                                \
    inline H __high2##F(H##2 v)                      \
    {                                                \
        return v.y;                                  \
    }                                                \
    inline unsigned short __##F##_as_ushort(H x)     \
    {                                                \
        return x.bits;                               \
    }                                                \
    inline H __ushort_as_##F(unsigned short u)       \
    {                                                \
        return H::of_bits(u);                        \
    }
EMU_CONVERT(__half, half)
EMU_CONVERT(__nv_bfloat16, bfloat16)
#undef EMU_CONVERT
#endif
