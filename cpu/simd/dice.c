/* dice.c -- sums and gradients of the region losses (dice.h) for one channel of
 * logits, s = sigmoid(x).
 *
 * One exp(-|x|) serves the sigmoid and the cross entropy. Bound by arithmetic:
 * some 30 operations and a division a vector for the sums, 30 more with cross
 * entropy, 25 for the gradient. A few vectors are added in float, all else in
 * double: 1 - score is a small difference once a network is good. */
#include "cpu/simd/explog.h"

enum { RUN = 8, TERMS = 4 }; // vectors summed in float; I, P, T, bce

/* v in the first n lanes, 0 in the others. */
INLINE V first(V v, int n)
{
    float keep[LANES] = {0};
    v_store_part(keep, v, n);
    return v_load(keep);
}

/* s t, s, t and the cross entropy of one vector. */
INLINE void terms(V x, V t, V weight, bool cross, V term[TERMS])
{
    V s, rest, e = v_decay(x);
    v_logistic(x, e, &s, &rest);
    term[0] = s * t, term[1] = s, term[2] = t;
    term[3] = cross ? v_cross(x, t, weight, e) : v_zero();
}

INLINE void sums(const float *x, const float *t, int64_t n, float weight,
                 bool cross, double *out)
{
    V w = v_set(weight);
    D all[TERMS][2] = {{{0}}};

    for (int64_t i = 0; i < n;) {
        V sum[TERMS], term[TERMS];
        UNROLL for (int k = 0; k < TERMS; k++) sum[k] = v_zero();
        for (int r = 0; r < RUN && i < n; r++, i += LANES) {
            int rest = n - i < LANES ? (int)(n - i) : LANES;
            if (rest == LANES) {
                terms(v_load(x + i), v_load(t + i), w, cross, term);
                UNROLL for (int k = 0; k < TERMS; k++) sum[k] += term[k];
            } else {
                terms(v_load_part(x + i, rest), v_load_part(t + i, rest), w,
                      cross, term);
                // lanes beyond the end must not count
                UNROLL for (int k = 0; k < TERMS; k++) sum[k] +=
                    first(term[k], rest);
            }
        }
        UNROLL for (int k = 0; k < TERMS; k++)
        {
            float s[LANES];
            v_store(s, sum[k]);
            all[k][0] += d_load(s), all[k][1] += d_load(s + LANES_D);
        }
    }

    for (int k = 0; k < TERMS; k++) {
        D both = all[k][0] + all[k][1];
        out[k] = 0;
        for (int l = 0; l < LANES_D; l++) out[k] += both[l];
    }
}

void ISA_NAME(region_sums)(const float *x, const float *t, int64_t n,
                           float weight, bool cross, double *sum);
void ISA_NAME(region_sums)(const float *x, const float *t, int64_t n,
                           float weight, bool cross, double *sum)
{
    if (cross)
        sums(x, t, n, weight, true, sum);
    else
        sums(x, t, n, weight, false, sum);
}

/* (a t + b) s (1 - s) + bce ((1 - t) s - weight t (1 - s)). */
INLINE V grad(V x, V t, const RegionGrad *r)
{
    V s, rest, one = v_set(1);
    v_logistic(x, v_decay(x), &s, &rest);
    V cross = (one - t) * s - v_set(r->weight) * t * rest;
    V region = (v_set(r->a) * t + v_set(r->b)) * s * rest;
    return v_fma(v_set(r->bce), cross, region);
}

void ISA_NAME(region_grad)(const float *x, const float *t, int64_t n,
                           const RegionGrad *r, float *dx, bool add);
void ISA_NAME(region_grad)(const float *x, const float *t, int64_t n,
                           const RegionGrad *r, float *dx, bool add)
{
    const RegionGrad own = *r; // a copy, so that stores to dx cannot change it
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        V v = grad(v_load(x + i), v_load(t + i), &own);
        v_store(dx + i, add ? v_load(dx + i) + v : v);
    }
    int rest = (int)(n - i);
    if (!rest) return;
    V v = grad(v_load_part(x + i, rest), v_load_part(t + i, rest), &own);
    v_store_part(dx + i, add ? v_load_part(dx + i, rest) + v : v, rest);
}
