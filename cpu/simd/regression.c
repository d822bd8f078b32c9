/* regression.c -- costs of the errors of a regression, and their gradient: see
 * Errors.
 *
 * In double, as the plain loops: a square stays in range, and a gradient has
 * the same bits. The cost of double (half as many lanes, and conversions) is
 * hidden behind memory, which bounds all of it. */
#include "cpu/simd/vec.h"

/* Operands of one vector of doubles. */
enum { X, T, M, Q, OPERANDS };

INLINE D magnitude(D e)
{
    const Di rest = (Di){0} + INT64_MAX; // all but the sign
    return (D)((Di)e & rest);
}

INLINE D value(ErrorKind kind, D e, D delta)
{
    if (kind == ERROR_MAE) return magnitude(e);
    if (kind == ERROR_MSE) return e * e;
    if (kind == ERROR_MEAN) return e;
    // with this comparison NaN stays NaN
    return d_select(magnitude(e) <= delta, e * e * 0.5,
                    delta * (magnitude(e) - delta * 0.5));
}

INLINE D grad(ErrorKind kind, D e, D delta)
{
    if (kind == ERROR_MSE) return 2 * e;
    if (kind == ERROR_MEAN) return d_set(1);
    D most = kind == ERROR_MAE ? d_set(1) : delta;
    D edge = kind == ERROR_MAE ? d_set(0) : delta;
    return d_select(e > edge, most, d_select(e < -edge, -most, e));
}

/* m q at element i. */
INLINE D weight_of(const Errors *e, int64_t i)
{
    D w = d_set(1);
    if (e->m) w *= d_load(e->m + i);
    if (e->q) w *= d_load(e->q + i);
    return w;
}

/* The error of element i, or for a mean the element. */
INLINE D error_of(const Errors *e, ErrorKind kind, int64_t i)
{
    const D x = d_load(e->x + i);
    return kind == ERROR_MEAN ? x : x - d_load(e->t + i);
}

/* m q l at element i. */
INLINE D cost(const Errors *e, ErrorKind kind, int64_t i)
{
    D w = weight_of(e, i), d = error_of(e, kind, i);
    return d_select(w == 0, d_set(0), w * value(kind, d, d_set(e->delta)));
}

/* The gradient of element i, factor m q dl/dx, multiplied in the order of the
 * plain loop. */
INLINE D element_grad(const Errors *e, ErrorKind kind, int64_t i, D factor)
{
    D w = weight_of(e, i), d = error_of(e, kind, i);
    D s = d_select(w == 0, d_set(0), grad(kind, d, d_set(e->delta)));
    return factor * w * s;
}

/* Copies the operands of the last n < LANES_D elements from i on to `room` and
 * appends zeros, which have no error and cost nothing. */
INLINE Errors last(const Errors *e, int64_t i, int64_t n,
                   float room[OPERANDS][LANES_D])
{
    const float *from[OPERANDS] = {e->x, e->t, e->m, e->q};
    memset(room, 0, OPERANDS * sizeof *room);
    for (int k = 0; k < OPERANDS; k++)
        if (from[k]) memcpy(room[k], from[k] + i, (size_t)n * sizeof(float));
    return (Errors){.x = room[X],
                    .t = room[T],
                    .m = e->m ? room[M] : NULL,
                    .q = e->q ? room[Q] : NULL,
                    .delta = e->delta,
                    .kind = e->kind};
}

INLINE double sum_lanes(D d)
{
    double all = 0;
    for (int i = 0; i < LANES_D; i++) all += d[i];
    return all;
}

INLINE double sum_of(const Errors *given, ErrorKind kind, int64_t n)
{
    const Errors e = *given;
    // two sums, so that an addition need not wait for the previous one
    D even = d_set(0), odd = d_set(0);
    int64_t i = 0;

    for (; i + LANES <= n; i += LANES) {
        even += cost(&e, kind, i);
        odd += cost(&e, kind, i + LANES_D);
    }
    if (i + LANES_D <= n) even += cost(&e, kind, i), i += LANES_D;
    if (i < n) {
        float room[OPERANDS][LANES_D];
        const Errors rest = last(&e, i, n - i, room);
        odd += cost(&rest, kind, 0);
    }
    return sum_lanes(even + odd);
}

double ISA_NAME(error_sum)(const Errors *e, int64_t n);
double ISA_NAME(error_sum)(const Errors *e, int64_t n)
{
    switch (e->kind) {
    case ERROR_MAE:
        return sum_of(e, ERROR_MAE, n);
    case ERROR_MSE:
        return sum_of(e, ERROR_MSE, n);
    case ERROR_MEAN:
        return sum_of(e, ERROR_MEAN, n);
    default:
        return sum_of(e, ERROR_HUBER, n);
    }
}

INLINE void grads(const Errors *given, ErrorKind kind, int64_t n, double factor,
                  float *dx, bool add)
{
    const Errors e = *given; // a copy, so that stores to dx cannot change it
    const D f = d_set(factor);
    int64_t i = 0;

    for (; i + LANES_D <= n; i += LANES_D) {
        D d = element_grad(&e, kind, i, f);
        d_store(dx + i, add ? d_load(dx + i) + d : d);
    }
    if (i == n) return;
    float room[OPERANDS][LANES_D], to[LANES_D] = {0};
    const Errors rest = last(&e, i, n - i, room);
    const size_t bytes = (size_t)(n - i) * sizeof *dx;
    if (add) memcpy(to, dx + i, bytes);
    D d = element_grad(&rest, kind, 0, f);
    d_store(to, add ? d_load(to) + d : d);
    memcpy(dx + i, to, bytes);
}

void ISA_NAME(error_grad)(const Errors *e, int64_t n, double factor, float *dx,
                          bool add);
void ISA_NAME(error_grad)(const Errors *e, int64_t n, double factor, float *dx,
                          bool add)
{
    switch (e->kind) {
    case ERROR_MAE:
        grads(e, ERROR_MAE, n, factor, dx, add);
        break;
    case ERROR_MSE:
        grads(e, ERROR_MSE, n, factor, dx, add);
        break;
    case ERROR_MEAN:
        grads(e, ERROR_MEAN, n, factor, dx, add);
        break;
    default:
        grads(e, ERROR_HUBER, n, factor, dx, add);
    }
}

double ISA_NAME(sum)(const float *x, int64_t n);
double ISA_NAME(sum)(const float *x, int64_t n)
{
    D even = d_set(0), odd = d_set(0);
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        even += d_load(x + i), odd += d_load(x + i + LANES_D);
    double all = sum_lanes(even + odd);
    for (; i < n; i++) all += x[i];
    return all;
}
