/* intensity.c -- random changes of the intensities of an image, voxel by voxel:
 * contrast, brightness, gamma, noise, rician. All channels share the
 * parameters, not the noise. */
#include "data/augment/augment_inside.h"
#include <math.h>

/* The sum runs in double, in memory order: the same mean in every build. */
static void contrast(Channel c, float factor)
{
    double sum = 0;
    for (int64_t i = 0; i < c.count; i++) sum += (double)c.x[i * c.step];
    float mean = (float)(sum / (double)c.count);
    for (int64_t i = 0; i < c.count; i++)
        c.x[i * c.step] = mean + factor * (c.x[i * c.step] - mean);
}

static void brightness(Channel c, float by)
{
    for (int64_t i = 0; i < c.count; i++) c.x[i * c.step] += by;
}

/* Keeps lo and hi; values between them follow the gamma curve. */
static void gamma_curve(Channel c, float exponent)
{
    float lo = c.x[0], hi = c.x[0];
    for (int64_t i = 0; i < c.count; i++) {
        lo = fminf(lo, c.x[i * c.step]);
        hi = fmaxf(hi, c.x[i * c.step]);
    }
    if (!(lo < hi)) return; // constant: no curve
    float span = hi - lo;
    for (int64_t i = 0; i < c.count; i++) {
        float *x = &c.x[i * c.step];
        *x = lo + span * powf((*x - lo) / span, exponent);
    }
}

/* Is element i of an image inside the sequence, not padding? */
static bool is_own(const Image *m, int64_t i)
{
    return m->own == m->n.w || i / m->n.c % m->n.w < m->own;
}

/* Element i uses draw `first + i`; a pair of normal numbers serves two
 * elements. */
static void noise(const Change *c, const Image *m)
{
    const int64_t n = numel(m->n);
    float *x = m->x;
    for (int64_t i = 0; i < n; i += 2) {
        float z[2];
        rng_normal_pair(&c->draw, (m->first + (uint32_t)i) / 2, z);
        if (is_own(m, i)) x[i] += c->amount * z[0];
        if (i + 1 < n && is_own(m, i + 1)) x[i + 1] += c->amount * z[1];
    }
}

/* Element i uses the pair `first + i`, counted over all images: no two elements
 * share a pair, because `first` counts elements. */
static void rician(const Change *c, const Image *m)
{
    if (c->amount == 0) return;
    for (int32_t k = 0; k < m->n.c; k++) {
        const Channel x = image_channel(m, k);
        const float air = channel_air(x);
        for (int64_t i = 0; i < x.count; i++) {
            float z[2], *at = &x.x[i * x.step];
            rng_normal_pair(&c->draw, m->first + (uint32_t)(i * x.step + k), z);
            *at = air + hypotf(*at - air + c->amount * z[0], c->amount * z[1]);
        }
    }
}

void intensity_change(const Change *c, const Image *m)
{
    if (c->kind == CHANGE_NOISE) {
        noise(c, m);
        return;
    }
    if (c->kind == CHANGE_RICIAN) {
        rician(c, m);
        return;
    }

    for (int32_t k = 0; k < m->n.c; k++) {
        const Channel one = image_channel(m, k);
        if (c->kind == CHANGE_CONTRAST) contrast(one, c->amount);
        if (c->kind == CHANGE_BRIGHTNESS) brightness(one, c->amount);
        if (c->kind == CHANGE_GAMMA) gamma_curve(one, c->amount);
    }
}
