/* bands.c -- augments images whose channels are frequency bands, such as a
 * spectrogram: stretches and shifts the bands, adds a random tilt (a line and a
 * parabola) along them, and sets some adjacent bands to 0. All voxels of an
 * image use the same random parameters; padding along w is not changed. */
#include "data/augment/augment_inside.h"
#include "engine/backend/augment.h"
#include <string.h>

/* Change.number[]: stretch, shift, tilt, most. Draws start at CHANGE_DRAWS. */
enum { DRAW = CHANGE_DRAWS };

bool bands_change(const Change *c, const Image *m)
{
    const int32_t n = m->n.c;
    const Rng *r = &c->draw;
    const double stretch =
        1 + c->number[0] * (2 * (double)rng_uniform(r, DRAW) - 1);
    const double shift =
        c->number[1] * (2 * (double)rng_uniform(r, DRAW + 1) - 1);
    const double a = c->number[2] * (2 * (double)rng_uniform(r, DRAW + 2) - 1);
    const double b = c->number[2] * (2 * (double)rng_uniform(r, DRAW + 3) - 1);
    const double middle = (n - 1) / 2.0;
    const uint32_t most =
        c->number[3] > n ? (uint32_t)n : (uint32_t)c->number[3];
    const int32_t gone = (int32_t)rng_below(r, DRAW + 4, most + 1);
    const int32_t from =
        (int32_t)rng_below(r, DRAW + 5, (uint32_t)(n - gone) + 1);
    float *row = mem_alloc(sizeof *row * (size_t)n);

    if (!row) return false;
    for (int64_t i = 0; i < (int64_t)m->n.d * m->n.h; i++)
        for (int32_t w = 0; w < m->own; w++) {
            float *x = m->x + (i * m->n.w + w) * n;
            memcpy(row, x, sizeof *row * (size_t)n);
            for (int32_t k = 0; k < n; k++) {
                const double u = middle > 0 ? (k - middle) / middle : 0;
                int32_t at;
                float t;
                change_linear(middle + (k - middle) * stretch + shift, n, &at,
                              &t);
                x[k] = t > 0 ? row[at] + t * (row[at + 1] - row[at]) : row[at];
                x[k] += (float)(a * u + b * (3 * u * u - 1) / 2);
                if (k >= from && k < from + gone) x[k] = 0;
            }
        }

    mem_free(row);
    return true;
}
