/* lstm.c -- a step of an LSTM after its matrix product, forward and backward:
 *
 *     (i,f,g,o) = (s, s, tanh, s)(z + b + sum),  c = f c' + i g,  h = o tanh(c)
 *
 * One vector of units at a time, its four gates together. Bound by arithmetic:
 * five exponentials and four divisions a unit. The product before it has 8 H
 * multiply-adds a unit, so this is a few per cent of a layer of 64 units. */
#include "cpu/simd/explog.h"

/* The first n lanes at p + at, or 0 if p is NULL. */
INLINE V get(const float *p, int64_t at, int n)
{
    if (!p) return v_zero();
    return n == LANES ? v_load(p + at) : v_load_part(p + at, n);
}

INLINE void set(float *p, int64_t at, V v, int n)
{
    if (n == LANES)
        v_store(p + at, v);
    else
        v_store_part(p + at, v, n);
}

/* Units u .. u+n-1. */
INLINE void step(const LstmStep *s, int64_t u, int n)
{
    V gate[4];
    UNROLL for (int k = 0; k < 4; k++)
    {
        int64_t at = k * s->units + u;
        V sum = get(s->z, at, n) + get(s->bias, at, n) + get(s->sum, at, n);
        gate[k] = k == 2 ? v_tanh(sum) : v_sigmoid(sum);
    }
    UNROLL for (int k = 0; k < 4; k++)
        set(s->gates, k * s->units + u, gate[k], n);
    V cell = gate[0] * gate[2];

    if (s->cell) cell = v_fma(gate[1], get(s->cell, u, n), cell);
    set(s->next, u, cell, n);
    set(s->y, u, gate[3] * v_tanh(cell), n);
}

INLINE void grad(const LstmGrad *s, int64_t u, int n)
{
    V gate[4], one = v_set(1);
    UNROLL for (int k = 0; k < 4; k++) gate[k] =
        get(s->gates, k * s->units + u, n);
    V t = v_tanh(get(s->cell, u, n)), last = get(s->last, u, n);
    V d = get(s->dy, u, n) + get(s->dh, u, n);
    V v = get(s->dc, u, n) + d * gate[3] * (one - t * t);
    set(s->gates, u, v * gate[2] * gate[0] * (one - gate[0]), n);
    set(s->gates, s->units + u, v * last * gate[1] * (one - gate[1]), n);
    set(s->gates, 2 * s->units + u, v * gate[0] * (one - gate[2] * gate[2]), n);
    set(s->gates, 3 * s->units + u, d * t * gate[3] * (one - gate[3]), n);
    set(s->dc, u, v * gate[1], n);
}

void ISA_NAME(lstm_step)(const LstmStep *s);
void ISA_NAME(lstm_step)(const LstmStep *s)
{
    int64_t u = 0;
    for (; u + LANES <= s->units; u += LANES) step(s, u, LANES);
    if (u < s->units) step(s, u, (int)(s->units - u));
}

void ISA_NAME(lstm_grad)(const LstmGrad *s);
void ISA_NAME(lstm_grad)(const LstmGrad *s)
{
    int64_t u = 0;
    for (; u + LANES <= s->units; u += LANES) grad(s, u, LANES);
    if (u < s->units) grad(s, u, (int)(s->units - u));
}
