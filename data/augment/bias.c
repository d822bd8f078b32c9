/* bias.c -- multiplies an image by a smooth bias field, as of the coil of a
 * scanner: exp of a polynomial of low order over the sample.
 *
 * P_0 = 1, P_1 = t, (n + 1) P_n+1 = (2 n + 1) t P_n - n P_n-1, where t runs
 * from -1 at the first voxel of an axis to 1 at the last, and is 0 for an axis
 * of one voxel. Along w a row is one polynomial; its coefficients are summed
 * over h and d first. */
#include "data/augment/augment_inside.h"
#include <math.h>

enum { TERMS = 6 }; /* of one axis: order 5 */

static void legendre(int32_t at, int32_t n, double p[TERMS])
{
    const double t = n > 1 ? 2.0 * at / (n - 1) - 1 : 0;
    p[0] = 1, p[1] = t;
    for (int k = 1; k + 1 < TERMS; k++)
        p[k + 1] = ((2 * k + 1) * t * p[k] - k * p[k - 1]) / (k + 1);
}

/* The coefficient of P_i(w) P_j(h) P_k(d): each has its own draw, for every
 * order. */
static double coefficient(const Change *c, int i, int j, int k)
{
    const uint32_t draw =
        CHANGE_DRAWS + (uint32_t)((k * TERMS + j) * TERMS + i);
    if (i + j + k == 0 || i + j + k > (int)c->number[1]) return 0;
    return c->number[0] * (2 * (double)rng_uniform(&c->draw, draw) - 1);
}

/* of[i]: the factor of P_i(w) in row (h, d). */
static void row_of(double all[TERMS][TERMS][TERMS], const double ph[],
                   const double pd[], double of[TERMS])
{
    for (int i = 0; i < TERMS; i++) {
        of[i] = 0;
        for (int k = 0; k < TERMS; k++)
            for (int j = 0; j < TERMS; j++)
                of[i] += all[k][j][i] * ph[j] * pd[k];
    }
}

/* Changes row (h, d) of all channels. pw: P_i(w) of each voxel of a row. */
static void change_row(const Image *m, const double of[TERMS], const double *pw,
                       const float *air, float *at)
{
    for (int32_t w = 0; w < m->n.w; w++, pw += TERMS) {
        double b = 0;
        for (int i = 0; i < TERMS; i++) b += of[i] * pw[i];
        const double field = exp(b);
        for (int32_t k = 0; k < m->n.c; k++, at++)
            *at = (float)((double)air[k] + (double)(*at - air[k]) * field);
    }
}

bool bias_change(const Change *c, const Image *m)
{
    double all[TERMS][TERMS][TERMS], ph[TERMS], pd[TERMS], of[TERMS];
    const Dims n = m->n;
    const int64_t row = (int64_t)n.w * n.c;

    if (c->number[0] == 0) return true; // no bit changes
    double *pw = mem_alloc((size_t)n.w * TERMS * sizeof *pw);
    float *air = mem_alloc((size_t)n.c * sizeof *air);
    const bool ok = pw && air;
    for (int k = 0; k < TERMS; k++)
        for (int j = 0; j < TERMS; j++)
            for (int i = 0; i < TERMS; i++)
                all[k][j][i] = coefficient(c, i, j, k);
    for (int32_t w = 0; ok && w < n.w; w++) legendre(w, n.w, pw + w * TERMS);
    for (int32_t k = 0; ok && k < n.c; k++)
        air[k] = channel_air(image_channel(m, k));

    for (int32_t d = 0; ok && d < n.d; d++) {
        legendre(d, n.d, pd);
        for (int32_t h = 0; h < n.h; h++) {
            legendre(h, n.h, ph);
            row_of(all, ph, pd, of);
            change_row(m, of, pw, air, m->x + ((int64_t)d * n.h + h) * row);
        }
    }

    mem_free(pw);
    mem_free(air);
    return ok;
}
