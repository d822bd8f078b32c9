/* optim.c -- kernels over all parameters: an optimiser's update, a moving
 * average, the sum of squares.
 *
 * The same operations in the same order as the plain loops, and no fused
 * multiply-add: the bits are those of cpu/ref/optim.c in every set, so a run
 * that is resumed on another machine takes the same step from the same
 * gradients. Elements are independent, so any cut into tasks gives the same
 * bits.
 *
 * Bound by memory (adam loads four numbers and stores three). A square root and
 * two divisions a vector are hidden behind that; one scalar at a time they
 * would not be. */
#include "engine/graph/optim.h"
#include "cpu/simd/vec.h"

/* g = SCALE grad + DECAY p. */
INLINE V decayed_grad(const float *grad, V p, const float *f, int rest)
{
    V g = v_get(grad, rest) * v_set(f[FACTOR_SCALE]);
    return g + v_set(f[FACTOR_DECAY]) * p;
}

INLINE void adam(const float *grad, const float *f, float *value, float *mean,
                 float *square, int rest)
{
    V p = v_get(value, rest), g = decayed_grad(grad, p, f, rest);
    V m =
        v_get(mean, rest) * v_set(f[FACTOR_BETA1]) + v_set(f[FACTOR_REST1]) * g;
    V v = v_get(square, rest) * v_set(f[FACTOR_BETA2]) +
          v_set(f[FACTOR_REST2]) * g * g;
    V below = v_sqrt(v) / v_set(f[FACTOR_ROOT]) + v_set(f[FACTOR_EPS]);
    v_put(mean, rest, m);
    v_put(square, rest, v);
    v_put(value, rest,
          p * v_set(f[FACTOR_SHRINK]) + v_set(f[FACTOR_RATE]) * m / below);
}

void ISA_NAME(adam)(const float *grad, int64_t n, const float *factor, float *p,
                    float *m, float *v);
void ISA_NAME(adam)(const float *grad, int64_t n, const float *factor, float *p,
                    float *m, float *v)
{
    float f[FACTOR_COUNT]; // a copy, so that stores to p cannot change it
    memcpy(f, factor, sizeof f);
#define STEP(i, rest) adam(grad + i, f, p + i, m + i, v + i, rest)
    FOR_VECTORS(0, n, STEP);
#undef STEP
}

/* At the first optimiser step m = g, so the new buffer `mean` is not even
 * loaded. */
INLINE void sgd(const float *grad, const float *f, float *value, float *mean,
                int rest, bool first, bool nesterov)
{
    V p = v_get(value, rest), g = decayed_grad(grad, p, f, rest);
    V momentum = v_set(f[FACTOR_MOMENTUM]);
    V m = first ? g : v_get(mean, rest) * momentum + g;
    v_put(mean, rest, m);
    v_put(value, rest,
          p + v_set(f[FACTOR_RATE]) * (nesterov ? g + momentum * m : m));
}

void ISA_NAME(sgd)(const float *grad, int64_t n, const float *factor, float *p,
                   float *m);
void ISA_NAME(sgd)(const float *grad, int64_t n, const float *factor, float *p,
                   float *m)
{
    float f[FACTOR_COUNT];
    memcpy(f, factor, sizeof f);
    const bool first = f[FACTOR_FIRST] != 0;
    const bool nesterov = f[FACTOR_NESTEROV] != 0;
#define STEP(i, rest) sgd(grad + i, f, p + i, m + i, rest, first, nesterov)
    FOR_VECTORS(0, n, STEP);
#undef STEP
}

void ISA_NAME(blend)(const float *x, int64_t n, float by, float *y);
void ISA_NAME(blend)(const float *x, int64_t n, float by, float *y)
{
    // as a difference: equal numbers stay equal to the last bit
#define STEP(i, rest)          \
    v_put(y + i, rest,         \
          v_get(y + i, rest) + \
              v_set(by) * (v_get(x + i, rest) - v_get(y + i, rest)))
    FOR_VECTORS(0, n, STEP);
#undef STEP
}

/* The sum of squares has the lanes of the plain dot() in every set: a vector of
 * doubles has LANES / 2 of them, so there are one, two or four vectors. */
enum { SUMS = 8 / LANES_D };

double ISA_NAME(sum_squares)(const float *x, int64_t n);
double ISA_NAME(sum_squares)(const float *x, int64_t n)
{
    D sum[SUMS];
    UNROLL for (int k = 0; k < SUMS; k++) sum[k] = (D){0};
    int64_t i = 0;

    for (; i + 8 <= n; i += 8) UNROLL for (int k = 0; k < SUMS; k++)
        {
            D v = d_load(x + i + k * LANES_D);
            sum[k] += v * v; // a square of a float is exact in double
        }

    double s[8];
    memcpy(s, sum, sizeof s);
    for (int l = 0; i + l < n; l++) s[l] += (double)x[i + l] * x[i + l];
    return ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]));
}
