/* bce.c -- sigmoid cross entropy of logits, element by element:
 *
 *     l = w t softplus(-x) + (1 - t) softplus(x)
 *     dl/dx = (1 - t) s - w t (1 - s),   s = sigmoid(x)
 *
 * with softplus(x) = max(x, 0) + log(1 + exp(-|x|)): no term overflows and
 * none cancels another. Bound by arithmetic, some 40 operations and one
 * division a vector; one vector at a time, because neighbouring ones
 * do not depend on each other and overlap by themselves. */
#include "cpu/simd/explog.h"

enum { RUN = 64 }; // vectors that are summed in float

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
                V v = v_load(x + i);
                sum += v_cross(v, v_load(t + i), w, v_decay(v));
            } else {
                // lanes beyond the end must not count
                V v = v_load_part(x + i, rest);
                V part = v_cross(v, v_load_part(t + i, rest), w, v_decay(v));
                float keep[LANES] = {0};
                v_store_part(keep, part, rest);
                sum += v_load(keep);
            }
        }
        all += v_sum(sum);
    }
    return all;
}

/* factor * dl/dx. */
INLINE V grad(V x, V t, V weight, V factor)
{
    V s, rest, one = v_set(1);
    v_logistic(x, v_decay(x), &s, &rest);
    return factor * ((one - t) * s - weight * t * rest);
}

void ISA_NAME(bce_grad)(const float *x, const float *t, int64_t n, float weight,
                        float factor, float *dx, bool add);
void ISA_NAME(bce_grad)(const float *x, const float *t, int64_t n, float weight,
                        float factor, float *dx, bool add)
{
    V w = v_set(weight), f = v_set(factor);
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        V v = grad(v_load(x + i), v_load(t + i), w, f);
        v_store(dx + i, add ? v_load(dx + i) + v : v);
    }
    int rest = (int)(n - i);
    if (!rest) return;
    V v = grad(v_load_part(x + i, rest), v_load_part(t + i, rest), w, f);
    v_store_part(dx + i, add ? v_load_part(dx + i, rest) + v : v, rest);
}
