/* bce.c -- sigmoid cross entropy of logits, element by element:
 *
 *     l = w t softplus(-x) + (1 - t) softplus(x)
 *     dl/dx = (1 - t) s - w t (1 - s),   s = sigmoid(x)
 *
 * with softplus(x) = max(x, 0) + log(1 + exp(-|x|)): no term overflows and
 * none cancels another. Bound by arithmetic, some 40 operations and one
 * division a vector; one vector at a time, because neighbouring ones
 * do not depend on each other and overlap by themselves. */
#include "explog.h"

enum { RUN = 64 }; // vectors that are summed in float

/* exp(-|x|). */
INLINE V decay(V x)
{
    return v_exp_negative((V)((Vi)x | (Vi)v_set(-0.0f)));
}

/* l of one vector. */
INLINE V loss(V x, V t, V weight)
{
    V both = v_log1p_unit(decay(x)), one = v_set(1), zero = v_zero();
    // NaN is the second operand of v_max, and so passes
    V above = v_max(zero, x), below = v_max(zero, -x);
    return weight * t * (below + both) + (one - t) * (above + both);
}

double ISA_NAME(bce_sum)(const float *x, const float *t, int64_t n,
                         float weight);
double ISA_NAME(bce_sum)(const float *x, const float *t, int64_t n,
                         float weight)
{
    double all = 0;
    V w = v_set(weight);
    for (int64_t i = 0; i < n;) {
        V sum = v_zero();
        for (int k = 0; k < RUN && i < n; k++, i += LANES) {
            int rest = n - i < LANES ? (int)(n - i) : LANES;
            if (rest == LANES) {
                sum += loss(v_load(x + i), v_load(t + i), w);
            } else {
                // lanes beyond the end must not count
                V part =
                    loss(v_load_part(x + i, rest), v_load_part(t + i, rest), w);
                float keep[LANES] = {0};
                v_store_part(keep, part, rest);
                sum += v_load(keep);
            }
        }
        all += v_sum(sum);
    }
    return all;
}

/* factor * dl/dx. s and 1 - s are each computed from exp(-|x|), so neither
 * loses digits in its small tail. */
INLINE V slope(V x, V t, V weight, V factor)
{
    V e = decay(x), one = v_set(1), near = one / (one + e), far = e * near;
    // near = 1 / (1 + e) is the larger of s and 1 - s, far the smaller
    Vi negative = x < 0;
    V s = v_select(negative, far, near), rest = v_select(negative, near, far);
    return factor * ((one - t) * s - weight * t * rest);
}

void ISA_NAME(bce_slope)(const float *x, const float *t, int64_t n,
                         float weight, float factor, float *dx, bool add);
void ISA_NAME(bce_slope)(const float *x, const float *t, int64_t n,
                         float weight, float factor, float *dx, bool add)
{
    V w = v_set(weight), f = v_set(factor);
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        V v = slope(v_load(x + i), v_load(t + i), w, f);
        v_store(dx + i, add ? v_load(dx + i) + v : v);
    }
    int rest = (int)(n - i);
    if (!rest) return;
    V v = slope(v_load_part(x + i, rest), v_load_part(t + i, rest), w, f);
    v_store_part(dx + i, add ? v_load_part(dx + i, rest) + v : v, rest);
}
