/* explog.h -- exp, log, sigmoid and tanh of vectors, for losses, activations
 * and gates.
 *
 * After Cephes (Moshier): reduction to a short interval, a polynomial, and the
 * exponent put back. Errors are below 2 ulp in the ranges used; NaN stays
 * NaN. */
#ifndef SEG_CPU_SIMD_EXPLOG_H
#define SEG_CPU_SIMD_EXPLOG_H
#include "cpu/simd/vec.h"

/* The sign bit alone. */
#define SIGN ((Vi)v_set(-0.0f))

/* Adding and subtracting 1.5 * 2^23 rounds to an integer, which is in the low
 * bits of the sum. */
#define WHOLE v_set(12582912)

/* n of x = n log 2 + r, |r| <= log(2) / 2. */
INLINE V v_exp_whole(V x)
{
    return v_fma(x, v_set(1.44269504089f), WHOLE) - WHOLE;
}

/* r of x = n log 2 + r, with log 2 as a sum of two floats so that the first
 * product is exact. */
INLINE V v_exp_rest(V x, V n)
{
    return v_fma(n, v_set(2.12194440e-4f), v_fma(n, v_set(-0.693359375f), x));
}

/* exp(r) = 1 + r + r^2 p(r), p by Cephes' expf. */
INLINE V v_exp_short(V r)
{
    V p = v_set(1.9875691500e-4f);
    p = v_fma(p, r, v_set(1.3981999507e-3f));
    p = v_fma(p, r, v_set(8.3334519073e-3f));
    p = v_fma(p, r, v_set(4.1665795894e-2f));
    p = v_fma(p, r, v_set(1.6666665459e-1f));
    p = v_fma(p, r, v_set(5.0000001201e-1f));
    return v_fma(p, r * r, r + v_set(1));
}

/* 2^(n + more) from its bits. */
INLINE V v_power(V n, int more)
{
    Vi bits = (Vi)(n + WHOLE) - (Vi)WHOLE;
    return (V)((bits + (127 + more)) << 23);
}

/* exp(x) for x <= 0; below -87 it is exp(-87), 1.6e-38. */
INLINE V v_exp_negative(V x)
{
    // NaN is the second operand, and so passes
    x = v_max(v_set(-87), x);
    V n = v_exp_whole(x);
    return v_exp_short(v_exp_rest(x, n)) * v_power(n, 0);
}

/* exp(x - less) * 2^64 for -120 <= x <= 0 and a small `less`, the digits of the
 * argument that x lacks as one float. exp alone would lose digits below -87,
 * because the result is subnormal; the caller multiplies by its factors and
 * last by TINY, so it rounds once. */
INLINE V v_exp_large(V x, V less)
{
    V n = v_exp_whole(x - less);
    return v_exp_short(v_exp_rest(x, n) - less) * v_power(n, 64);
}
#define TINY v_set(0x1p-64f)

/* exp(-|x|), from which sigmoid and softplus are computed: no term
 * overflows. */
INLINE V v_decay(V x)
{
    return v_exp_negative((V)((Vi)x | SIGN));
}

/* sigmoid(x) in s and 1 - sigmoid(x) in rest, from e = exp(-|x|) (v_decay). The
 * smaller of the two is e / (1 + e) instead of 1 minus the larger, so it keeps
 * its digits. */
INLINE void v_logistic(V x, V e, V *s, V *rest)
{
    // near = 1 / (1 + e) is the larger of the two, far the smaller
    V one = v_set(1), near = one / (one + e), far = e * near;
    Vi negative = x < 0;
    *s = v_select(negative, far, near);
    *rest = v_select(negative, near, far);
}

/* 1 / (1 + exp(-x)), for gates. Below -87 it is exp(-87), so that products with
 * it stay normal numbers, which are fast. */
INLINE V v_sigmoid(V x)
{
    V s, rest;
    v_logistic(x, v_decay(x), &s, &rest);
    return s;
}

/* tanh: (1 - e) / (1 + e) with e = exp(-2 |x|); where that cancels, the
 * polynomial of Cephes' tanhf. NaN stays. */
INLINE V v_tanh(V x)
{
    V a = (V)((Vi)x & ~SIGN), one = v_set(1), s = x * x;
    V e = v_exp_negative(a * v_set(-2));
    V far = (V)((Vi)((one - e) / (one + e)) | ((Vi)x & SIGN));
    V p = v_set(-5.70498872745e-3f);
    p = v_fma(p, s, v_set(2.06390887954e-2f));
    p = v_fma(p, s, v_set(-5.37397155531e-2f));
    p = v_fma(p, s, v_set(1.33314422036e-1f));
    p = v_fma(p, s, v_set(-3.33332819422e-1f));
    return v_select(a < v_set(0.625f), v_fma(p * s, x, x), far);
}

/* log(1 + e) for 0 <= e <= 1. */
INLINE V v_log1p_unit(V e)
{
    // with u = e / (2 + e) <= 1/3: 2 atanh(u) = 2 (u + u^3/3 + u^5/5 + ...)
    V u = e / (e + v_set(2)), s = u * u;
    V p = v_set(2.0f / 15);
    p = v_fma(p, s, v_set(2.0f / 13));
    p = v_fma(p, s, v_set(2.0f / 11));
    p = v_fma(p, s, v_set(2.0f / 9));
    p = v_fma(p, s, v_set(2.0f / 7));
    p = v_fma(p, s, v_set(2.0f / 5));
    p = v_fma(p, s, v_set(2.0f / 3));
    return v_fma(p * s, u, u + u);
}

/* log(1 + e) for e >= 0, not infinite. */
INLINE V v_log1p(V e)
{
    // 1 + e = 2^n (1 + f); for n = 0, f is e with all its digits
    V u = e + v_set(1);
    Vi n = ((Vi)u >> 23) - 127;
    V f = (V)((Vi)u - (n << 23)) - v_set(1);
    f = v_select(n == 0, e, f);
    V whole = __builtin_convertvector(n, V);
    // the exponent bits of NaN are no number, so NaN is added again
    return v_fma(whole, v_set(0.69314718056f), v_log1p_unit(f)) + (e - e);
}

/* exp(x) for any x; a subnormal result is rounded once. NaN stays. */
INLINE V v_exp(V x)
{
    // beyond these the result is 0 or infinite; NaN is the second operand
    x = v_min(v_set(90), v_max(v_set(-105), x));
    const V n = v_exp_whole(x), half = v_fma(n, v_set(0.5f), WHOLE) - WHOLE;
    // 2^n itself may be no normal number
    return v_exp_short(v_exp_rest(x, n)) * v_power(half, 0) *
           v_power(n - half, 0);
}

/* log(x) for any x: minus infinity for 0, NaN below. */
INLINE V v_log(V x)
{
    // a subnormal number is multiplied by 2^25
    const Vi small = x < v_set(0x1p-126f);
    const V normal = v_select(small, x * v_set(0x1p25f), x);
    // x = 2^n (1 + f) with 1 + f from sqrt(1/2) to sqrt(2)
    const Vi n = ((Vi)normal - 0x3f3504f3) >> 23;
    const V f = (V)((Vi)normal - (n << 23)) - v_set(1);
    const V whole =
        __builtin_convertvector(n, V) - v_select(small, v_set(25), v_zero());
    // log 2 as a sum of two floats, of which the first product is exact
    V r = v_fma(whole, v_set(-2.12194440e-4f), v_log1p_unit(f));
    r = v_fma(whole, v_set(0.693359375f), r);
    r = v_select(x > 0, r, v_set(NAN));
    r = v_select(x == 0, v_set(-INFINITY), r);
    // infinite and NaN are their own logarithms
    return v_select(x < v_set(INFINITY), r, x);
}

/* log(1 + x) for any x. */
INLINE V v_log1p_any(V x)
{
    // log u of the rounded sum u = 1 + x, and the rest of the sum to first
    // order
    const V u = x + v_set(1), rest = (x - (u - v_set(1))) / u;
    const V r = v_log(u);
    return v_select((u > 0) & (u < v_set(INFINITY)), r + rest, r);
}

/* Sigmoid cross entropy, positive targets times `weight`, from e = v_decay(x):
 * weight t softplus(-x) + (1 - t) softplus(x), in which no term cancels
 * another. */
INLINE V v_cross(V x, V t, V weight, V e)
{
    V both = v_log1p_unit(e), one = v_set(1), zero = v_zero();
    // NaN is the second operand of v_max, and so passes
    V above = v_max(zero, x), below = v_max(zero, -x);
    return weight * t * (below + both) + (one - t) * (above + both);
}
#endif
