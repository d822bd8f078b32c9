/* normal.h -- standard normal numbers with the same bits on the host and in GPU
 * kernels.
 *
 * The method of Box and Muller with a logarithm, a sine and a cosine of its
 * own, as those of C libraries and GPUs differ in their last bits: sums,
 * products, quotients and square roots of floats alone, each of which IEEE 754
 * rounds in one way. Errors are below 1e-6 of a deviation. */
#ifndef SEG_ENGINE_BASE_NORMAL_H
#define SEG_ENGINE_BASE_NORMAL_H
#include "engine/base/rng.h"

/* The natural logarithm of v, 2^-24 <= v <= 1. With v = m 2^e, m from
 * sqrt(1/2) to sqrt(2), and s = (m - 1) / (m + 1) it is e log 2 + 2 artanh s;
 * the rest of the series of artanh is below 4e-10. */
HOST_DEVICE float normal_log(float v)
{
    int e = 0;
    while (v < 0.70710678f) v *= 2, e--; /* exact */
    const float s = (v - 1) / (v + 1), q = s * s;
    float sum = 1.0f / 9;
    sum = sum * q + 1.0f / 7;
    sum = sum * q + 1.0f / 5;
    sum = sum * q + 1.0f / 3;
    sum = sum * q + 1;
    return (float)e * 0.69314718f + 2 * s * sum;
}

/* Two numbers from two words. */
HOST_DEVICE void normal_pair(const uint32_t word[2], float out[2])
{
    /* 1 - u > 0: the logarithm stays finite */
    const float radius = sqrtf(-2 * normal_log(1 - rng_unit(word[0])));
    /* the angle 2 pi u is `quarter` quarters and t, within pi / 4 */
    const float turn = 4 * rng_unit(word[1]);
    const int quarter = (int)(turn + 0.5f);
    const float t = (turn - (float)quarter) * 1.57079633f, q = t * t;
    /* Taylor's series to t^9 and t^10 */
    float sine = 1.0f / 362880, cosine = -1.0f / 3628800;
    sine = sine * q - 1.0f / 5040;
    sine = sine * q + 1.0f / 120;
    sine = sine * q - 1.0f / 6;
    sine = (sine * q + 1) * t;
    cosine = cosine * q + 1.0f / 40320;
    cosine = cosine * q - 1.0f / 720;
    cosine = cosine * q + 1.0f / 24;
    cosine = cosine * q - 0.5f;
    cosine = cosine * q + 1;
    const float x = quarter % 2 ? sine : cosine;
    const float y = quarter % 2 ? cosine : sine;
    out[0] = radius * (quarter == 1 || quarter == 2 ? -x : x);
    out[1] = radius * (quarter == 2 || quarter == 3 ? -y : y);
}

/* Draws 4*four .. 4*four + 3 of a normal distribution. */
HOST_DEVICE void normal_four(const Rng *r, uint32_t four, float mean, float std,
                             float out[4])
{
    uint32_t word[4];
    rng_block(r, four, word);
    normal_pair(word, out);
    normal_pair(word + 2, out + 2);
    for (int i = 0; i < 4; i++) out[i] = mean + std * out[i];
}

/* The mean of the numbers from low to high, which does not overflow. */
HOST_DEVICE float uniform_mean(float low, float high)
{
    return 0.5f * low + 0.5f * high;
}
#endif
