/* attention.c -- the rows of scores between the matrix products of attention.
 *
 * Bound by arithmetic, an exponential a score. The products around it are 4 D
 * multiply-adds a score, so from 32 channels a head on it is a small part. */
#include "cpu/simd/explog.h"

float ISA_NAME(attend_row)(float *s, int64_t n, float scale, float *most,
                           float *sum);
float ISA_NAME(attend_row)(float *s, int64_t n, float scale, float *most,
                           float *sum)
{
    float old = *most, peak = old;
    int64_t whole = n - n % LANES;
    int rest = (int)(n - whole);
    V v = v_set(-INFINITY), k = v_set(scale);

    for (int64_t i = 0; i < whole; i += LANES) v = v_max(v, v_load(s + i) * k);
    float lane[LANES];
    v_store(lane, v);
    for (int i = 0; i < LANES; i++) peak = lane[i] > peak ? lane[i] : peak;
    for (int64_t i = whole; i < n; i++)
        peak = s[i] * scale > peak ? s[i] * scale : peak;
    V m = v_set(peak), all = v_zero();
    for (int64_t i = 0; i < whole; i += LANES) {
        V e = v_exp_negative(v_load(s + i) * k - m);
        v_store(s + i, e);
        all += e;
    }

    if (rest) {
        V e = v_exp_negative(v_load_part(s + whole, rest) * k - m);
        v_store_part(s + whole, e, rest);
        // lanes beyond the end must not count
        float keep[LANES] = {0};
        v_store_part(keep, e, rest);
        all += v_load(keep);
    }

    float factor = expf(old - peak);
    *sum = *sum * factor + v_sum(all);
    *most = peak;
    return factor;
}

/* n elements, a vector or less. */
INLINE void grad(float *s, float *da, float scale, const float *log,
                 const float *mean, int64_t step, int n)
{
    V k = v_set(scale), l, m, x, d;
    if (n == LANES) {
        l = step ? v_load(log) : v_set(*log);
        m = step ? v_load(mean) : v_set(*mean);
        x = v_load(s), d = v_load(da);
    } else {
        l = step ? v_load_part(log, n) : v_set(*log);
        m = step ? v_load_part(mean, n) : v_set(*mean);
        x = v_load_part(s, n), d = v_load_part(da, n);
    }

    // at most 0 up to rounding: log is the logarithm of the sum over the row
    V e = x * k - l;
    V a = v_exp_negative(v_select(e > 0, v_zero(), e));
    d = a * (d - m) * k;
    if (n == LANES) {
        v_store(s, a), v_store(da, d);
    } else {
        v_store_part(s, a, n), v_store_part(da, d, n);
    }
}

void ISA_NAME(attend_grad)(float *s, float *da, int64_t n, float scale,
                           const float *log, const float *mean, int64_t step);
void ISA_NAME(attend_grad)(float *s, float *da, int64_t n, float scale,
                           const float *log, const float *mean, int64_t step)
{
    for (int64_t i = 0; i < n; i += LANES)
        grad(s + i, da + i, scale, log + i * step, mean + i * step, step,
             n - i < LANES ? (int)(n - i) : LANES);
}
