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
#endif
