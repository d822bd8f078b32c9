/* explog.h -- exp and log of vectors, for losses.
 *
 * Both after Cephes (Moshier): reduce to a short interval, a polynomial, put
 * the exponent back. Errors are below 2 ulp where used; NaN stays NaN. */
#ifndef SEG_EXPLOG_H
#define SEG_EXPLOG_H
#include "vec.h"

/* exp(x) for x <= 0; below -87 it is exp(-87), 1.6e-38. */
INLINE V v_exp_negative(V x)
{
    // NaN is the second operand, and so passes
    x = v_max(v_set(-87), x);
    // x = n log 2 + r, |r| <= log(2) / 2, with log 2 as a sum of two floats
    // so that the first product is exact; adding and taking away 1.5 * 2^23
    // rounds to integer
    V magic = v_set(12582912);
    V n = v_fma(x, v_set(1.44269504089f), magic) - magic;
    V r = v_fma(n, v_set(-0.693359375f), x);
    r = v_fma(n, v_set(2.12194440e-4f), r);
    // exp(r) = 1 + r + r^2 p(r), p by Cephes' expf
    V p = v_set(1.9875691500e-4f);
    p = v_fma(p, r, v_set(1.3981999507e-3f));
    p = v_fma(p, r, v_set(8.3334519073e-3f));
    p = v_fma(p, r, v_set(4.1665795894e-2f));
    p = v_fma(p, r, v_set(1.6666665459e-1f));
    p = v_fma(p, r, v_set(5.0000001201e-1f));
    p = v_fma(p, r * r, r + v_set(1));
    // 2^n from its bits; the integer lies in the low bits of n + magic
    Vi bits = (Vi)(n + magic) - (Vi)magic;
    return p * (V)((bits + 127) << 23);
}

/* exp(-|x|), in which sigmoid and softplus are written: no term overflows. */
INLINE V v_decay(V x)
{
    return v_exp_negative((V)((Vi)x | (Vi)v_set(-0.0f)));
}

/* sigmoid(x) in s and 1 - sigmoid(x) in rest, of e = v_decay(x). Each comes
 * from e, so neither loses digits in its small tail. */
INLINE void v_logistic(V x, V e, V *s, V *rest)
{
    // near = 1 / (1 + e) is the larger of the two, far the smaller
    V one = v_set(1), near = one / (one + e), far = e * near;
    Vi negative = x < 0;
    *s = v_select(negative, far, near);
    *rest = v_select(negative, near, far);
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
    // 1 + e = 2^n (1 + f), and where n = 0, f is e with all its digits
    V u = e + v_set(1);
    Vi n = ((Vi)u >> 23) - 127;
    V f = (V)((Vi)u - (n << 23)) - v_set(1);
    f = v_select(n == 0, e, f);
    V whole = __builtin_convertvector(n, V);
    // the bits of NaN are no number, so it is added again
    return v_fma(whole, v_set(0.69314718056f), v_log1p_unit(f)) + (e - e);
}

/* Sigmoid cross entropy, positive targets times `weight`, of e = v_decay(x):
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
