/* elementwise.c -- elementwise kernels: copy, sum, times, relu, leaky relu.
 *
 * A result does not depend on where a block begins, so any cut into tasks gives
 * the same bits. A result may be in an operand's memory: a vector of the
 * operand is loaded before the results of its elements are stored, and they
 * depend on no other vector. Bound by memory, so nothing is unrolled. */
#include "cpu/simd/vec.h"

/* y[i] = f(i-th vectors) over n elements; `value` is an expression of `i` with
 * `load` for loads, whole or in part. A macro and not a function, because C has
 * no other way to inline an expression. */
#define MAP(y, n, add, value)                                                \
    do {                                                                     \
        int64_t i = 0;                                                       \
        for (; i + LANES <= (n); i += LANES) {                               \
            V v = value(v_load);                                             \
            v_store((y) + i, (add) ? v_load((y) + i) + v : v);               \
        }                                                                    \
        int rest = (int)((n)-i);                                             \
        if (rest) {                                                          \
            V v = value(load_rest);                                          \
            v_store_part((y) + i, (add) ? load_rest((y) + i) + v : v, rest); \
        }                                                                    \
    } while (0)
// the load of the last, partial vector; `rest` is a variable of MAP
#define load_rest(p) v_load_part(p, rest)

void ISA_NAME(copy)(const float *x, int64_t n, float *y, bool add);
void ISA_NAME(copy)(const float *x, int64_t n, float *y, bool add)
{
#define VALUE(load) load(x + i)
    if (add)
        MAP(y, n, true, VALUE);
    else
        MAP(y, n, false, VALUE);
#undef VALUE
}

void ISA_NAME(copy_rows)(const float *x, int64_t ldx, int64_t rows, int64_t n,
                         float *y, int64_t ldy, bool add);
void ISA_NAME(copy_rows)(const float *x, int64_t ldx, int64_t rows, int64_t n,
                         float *y, int64_t ldy, bool add)
{
#define VALUE(load) load(x + i)
    for (; rows > 0; rows--, x += ldx, y += ldy)
        if (add)
            MAP(y, n, true, VALUE);
        else
            MAP(y, n, false, VALUE);
#undef VALUE
}

void ISA_NAME(sum2)(const float *a, const float *b, int64_t n, float *y);
void ISA_NAME(sum2)(const float *a, const float *b, int64_t n, float *y)
{
#define VALUE(load) load(a + i) + load(b + i)
    MAP(y, n, false, VALUE);
#undef VALUE
}

void ISA_NAME(times)(const float *x, int64_t n, float factor, float *y);
void ISA_NAME(times)(const float *x, int64_t n, float factor, float *y)
{
#define VALUE(load) load(x + i) * v_set(factor)
    MAP(y, n, false, VALUE);
#undef VALUE
}

void ISA_NAME(relu)(const float *x, int64_t n, float *y);
void ISA_NAME(relu)(const float *x, int64_t n, float *y)
{
    // NaN is the second operand, and so passes
#define VALUE(load) v_max(v_zero(), load(x + i))
    MAP(y, n, false, VALUE);
#undef VALUE
}

void ISA_NAME(leaky)(const float *x, int64_t n, float slope, float *y);
void ISA_NAME(leaky)(const float *x, int64_t n, float slope, float *y)
{
    const V low = v_set(slope);
#define VALUE(load) v_act(ACT_LEAKY_RELU, low, load(x + i))
    MAP(y, n, false, VALUE);
#undef VALUE
}

void ISA_NAME(relu_grad)(const float *dy, const float *y, int64_t n, float *dx,
                         bool add);
void ISA_NAME(relu_grad)(const float *dy, const float *y, int64_t n, float *dx,
                         bool add)
{
    // with this comparison a NaN in y lets dy through, as in the plain loops
#define VALUE(load) v_select(load(y + i) <= 0, v_zero(), load(dy + i))
    if (add)
        MAP(dx, n, true, VALUE);
    else
        MAP(dx, n, false, VALUE);
#undef VALUE
}

void ISA_NAME(leaky_relu)(const float *x, int64_t n, float slope, float *y);
void ISA_NAME(leaky_relu)(const float *x, int64_t n, float slope, float *y)
{
    // with this comparison NaN stays
#define VALUE(load) \
    v_select(load(x + i) <= 0, load(x + i) * v_set(slope), load(x + i))
    MAP(y, n, false, VALUE);
#undef VALUE
}

void ISA_NAME(leaky_grad)(const float *dy, const float *y, int64_t n,
                          float slope, float *dx, bool add);
void ISA_NAME(leaky_grad)(const float *dy, const float *y, int64_t n,
                          float slope, float *dx, bool add)
{
#define VALUE(load) \
    v_select(load(y + i) <= 0, load(dy + i) * v_set(slope), load(dy + i))
    if (add)
        MAP(dx, n, true, VALUE);
    else
        MAP(dx, n, false, VALUE);
#undef VALUE
}
