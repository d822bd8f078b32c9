/* activation.c -- sigmoid, tanh, silu and gelu, forward and backward.
 *
 * One exponential and one or two divisions an element, where the plain loops
 * call the C library. Results of sigmoid and tanh are within 4 ulp, of gelu and
 * silu within 6 (of a derivative: 6 ulp of the larger of its terms), also for
 * subnormal results: small factors are multiplied by 2^64 until the last
 * product (v_exp_large). Infinities and NaN give the values of the formulas.
 *
 * A result does not depend on where a block begins, and a vector of the operand
 * is loaded before the results of its elements are stored: any cut into tasks
 * gives the same bits, and y may be x's memory, dx that of dy. */
#include "cpu/simd/explog.h"

/* 0 where `beyond`, else v: for arguments with a negligible exponential. A 0
 * stays 0 times a large factor and gives NaN times an infinite one. */
INLINE V clear(Vi beyond, V v)
{
    return (V)(~beyond & (Vi)v);
}

/* The larger of sigmoid(x) and sigmoid(-x), and 2^64 times the smaller. */
INLINE void halves(V x, V *near, V *far)
{
    V down = (V)((Vi)x | SIGN), end = v_set(-111);
    V e = v_exp_large(v_max(end, down), v_zero()); // v_max: NaN stays
    e = clear(down < end, e);
    *near = v_set(1) / v_fma(e, TINY, v_set(1));
    *far = e * *near;
}

/* The factors of gelu and of its derivative, with a = |x| and the cumulative P
 * and density p of the normal distribution:
 *     P(-a) = e below,   a p(a) = e a / sqrt(2 pi),   e = exp(-a^2 / 2)
 * The result e is 2^64 times exp(-a^2 / 2). `below` is erfcx(a / sqrt 2) / 2,
 * which decreases slowly and has no exponential: t q(t - 1/2) with t = 1 / (1 +
 * a / 2). q is fitted on 2400 Chebyshev nodes in t, 0 <= a <= 15, to erfcx with
 * 40 digits, by least squares of the relative error with Lawson's weights: to
 * 2.5e-8. With a larger divisor fewer terms would do, but the rounding of t
 * would count more. */
INLINE void normal(V a, V *e, V *below)
{
    // a^2 / 2 as two floats: the rounding of one would be a relative error of e
    // of the same size
    const Vi high = (Vi)v_zero() - (1 << 12);
    V end = v_set(15), c = v_min(end, a); // NaN stays
    V head = (V)((Vi)c & high), half = v_set(0.5f);
    V less = (c - head) * (c + head) * half;

    *e = clear(a > end, v_exp_large(-(head * head * half), less));
    V t = v_set(1) / v_fma(a, half, v_set(1)), u = t - half;
    V q = v_set(-4.053862765e-2f);
    q = v_fma(q, u, v_set(-6.828318816e-3f));
    q = v_fma(q, u, v_set(9.303028136e-2f));
    q = v_fma(q, u, v_set(-5.691203848e-2f));
    q = v_fma(q, u, v_set(-6.051837280e-2f));
    q = v_fma(q, u, v_set(1.080584377e-1f));
    q = v_fma(q, u, v_set(-3.865910228e-3f));
    q = v_fma(q, u, v_set(-1.468876600e-1f));
    q = v_fma(q, u, v_set(5.759681761e-2f));
    q = v_fma(q, u, v_set(3.314045668e-1f));
    *below = t * v_fma(q, u, v_set(3.362039924e-1f));
}

/* y of x. The lower tail, which gets small, is a product, so it keeps its
 * digits; the upper one is 1 minus the lower. */
INLINE V value(SmoothAct kind, V x)
{
    V near, far, e, below;
    if (kind == SMOOTH_TANH) return v_tanh(x);
    if (kind == SMOOTH_GELU) {
        normal((V)((Vi)x & ~SIGN), &e, &below);
        far = e * below;
        near = v_set(1) - far * TINY;
    } else {
        CHECK(kind == SMOOTH_SIGMOID || kind == SMOOTH_SILU);
        halves(x, &near, &far);
    }
    if (kind == SMOOTH_SIGMOID) return v_select(x < 0, far * TINY, near);
    return v_select(x < 0, x * far * TINY, x * near);
}

/* dy/dx as a function of the kept tensor: y of sigmoid and tanh, x of the
 * others. */
INLINE V grad(SmoothAct kind, V k)
{
    V one = v_set(1), near, far, e, below;
    if (kind == SMOOTH_SIGMOID) return k * (one - k);
    if (kind == SMOOTH_TANH) return (one - k) * (one + k);

    if (kind == SMOOTH_GELU) {
        V a = (V)((Vi)k & ~SIGN);
        normal(a, &e, &below);
        // P(-a) - a p(a); the derivatives at a and -a add up to 1
        far = e * v_fma(a, v_set(-0.398942280f), below) * TINY;
        return v_select(k < 0, far, one - far);
    }

    // s (1 + x (1 - s))
    CHECK(kind == SMOOTH_SILU);
    halves(k, &near, &far);
    return v_select(k < 0, far * v_fma(k, near, one) * TINY,
                    near * v_fma(k, far * TINY, one));
}

INLINE void values(SmoothAct kind, const float *x, int64_t n, float *y)
{
#define STEP(i, rest) v_put(y + (i), rest, value(kind, v_get(x + (i), rest)))
    FOR_VECTORS(0, n, STEP);
#undef STEP
}

void ISA_NAME(smooth_act)(SmoothAct kind, const float *x, int64_t n, float *y);
void ISA_NAME(smooth_act)(SmoothAct kind, const float *x, int64_t n, float *y)
{
    switch (kind) {
    case SMOOTH_SIGMOID:
        values(SMOOTH_SIGMOID, x, n, y);
        break;
    case SMOOTH_TANH:
        values(SMOOTH_TANH, x, n, y);
        break;
    case SMOOTH_GELU:
        values(SMOOTH_GELU, x, n, y);
        break;
    case SMOOTH_SILU:
        values(SMOOTH_SILU, x, n, y);
        break;
    }
}

INLINE void grad_vector(SmoothAct kind, const float *dy, const float *kept,
                        float *dx, bool add, int rest)
{
    V d = v_get(dy, rest) * grad(kind, v_get(kept, rest));
    v_put(dx, rest, add ? v_get(dx, rest) + d : d);
}

INLINE void grads(SmoothAct kind, const float *dy, const float *kept, int64_t n,
                  float *dx, bool add)
{
#define STEP(i, rest) \
    grad_vector(kind, dy + (i), kept + (i), dx + (i), add, rest)
    FOR_VECTORS(0, n, STEP);
#undef STEP
}

void ISA_NAME(smooth_act_grad)(SmoothAct kind, const float *dy,
                               const float *kept, int64_t n, float *dx,
                               bool add);
void ISA_NAME(smooth_act_grad)(SmoothAct kind, const float *dy,
                               const float *kept, int64_t n, float *dx,
                               bool add)
{
    switch (kind) {
    case SMOOTH_SIGMOID:
        grads(SMOOTH_SIGMOID, dy, kept, n, dx, add);
        break;
    case SMOOTH_TANH:
        grads(SMOOTH_TANH, dy, kept, n, dx, add);
        break;
    case SMOOTH_GELU:
        grads(SMOOTH_GELU, dy, kept, n, dx, add);
        break;
    case SMOOTH_SILU:
        grads(SMOOTH_SILU, dy, kept, n, dx, add);
        break;
    }
}
