/* bias.c -- a smooth field that multiplies an image, as the coil of a scanner
 * has one: exp of a polynomial of low order over the sample.
 *
 * P_0 = 1, P_1 = t, (n + 1) P_n+1 = (2 n + 1) t P_n - n P_n-1, t from -1 at the
 * first voxel of an axis to 1 at the last, 0 where there is one. A row along w
 * is one polynomial, whose coefficients are summed over h and d before. */
#include "change_inside.h"
#include <math.h>

enum { TERMS = 6 }; /* of one axis: order 5 */

static void legendre(int32_t at, int32_t n, double p[TERMS])
{
    const double t = n > 1 ? 2.0 * at / (n - 1) - 1 : 0;
    p[0] = 1, p[1] = t;
    for (int k = 1; k + 1 < TERMS; k++)
        p[k + 1] = ((2 * k + 1) * t * p[k] - k * p[k - 1]) / (k + 1);
}

/* The coefficient of P_i(w) P_j(h) P_k(d): every one has a draw of its own,
 * whatever the order. */
static double coefficient(const Change *c, int i, int j, int k)
{
    const uint32_t draw =
        CHANGE_DRAWS + (uint32_t)((k * TERMS + j) * TERMS + i);
    if (i + j + k == 0 || i + j + k > (int)c->number[1]) return 0;
    return c->number[0] * (2 * (double)rng_uniform(&c->draw, draw) - 1);
}

/* of[i]: what P_i(w) is multiplied by in row (h, d). */
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

void bias_change(const Change *c, const Image *m)
{
    double all[TERMS][TERMS][TERMS], ph[TERMS], pd[TERMS], pw[TERMS], of[TERMS];
    const Dims n = m->n;
    if (c->number[0] == 0) return; // not a bit changes
    for (int k = 0; k < TERMS; k++)
        for (int j = 0; j < TERMS; j++)
            for (int i = 0; i < TERMS; i++)
                all[k][j][i] = coefficient(c, i, j, k);
    for (int32_t ch = 0; ch < n.c; ch++) {
        const Channel x = image_channel(m, ch);
        float air = x.x[0], *at = x.x;
        for (int64_t i = 0; i < x.count; i++) air = fminf(air, x.x[i * x.step]);
        for (int32_t d = 0; d < n.d; d++) {
            legendre(d, n.d, pd);
            for (int32_t h = 0; h < n.h; h++) {
                legendre(h, n.h, ph);
                row_of(all, ph, pd, of);
                for (int32_t w = 0; w < n.w; w++, at += x.step) {
                    double b = 0;
                    legendre(w, n.w, pw);
                    for (int i = 0; i < TERMS; i++) b += of[i] * pw[i];
                    *at = (float)((double)air + (double)(*at - air) * exp(b));
                }
            }
        }
    }
}
