/* erase.c -- erases parts of an image: boxes, and intervals of w. Their
 * positions are drawn here, because they depend on the length of a sequence: 8
 * random draws for each, from CHANGE_DRAWS on. The same positions are erased in
 * all images and channels of a sample. */
#include "data/augment/augment_inside.h"
#include "data/resample/crop.h"
#include <math.h>

enum { DRAWS = 8 }; /* per box or interval   */

/* Mean of a channel without padding. */
static float own_mean(const Image *m, int32_t c)
{
    const float *x = m->x + c;
    double sum = 0;
    for (int64_t r = 0; r < (int64_t)m->n.d * m->n.h; r++)
        for (int32_t w = 0; w < m->own; w++)
            sum += (double)x[(r * m->n.w + w) * m->n.c];
    return (float)(sum / ((double)m->n.d * m->n.h * m->own));
}

static void fill(const Image *m, const Box *b, int32_t c, float value)
{
    for (int32_t d = 0; d < b->n[2]; d++)
        for (int32_t h = 0; h < b->n[1]; h++) {
            float *x = m->x + c +
                       change_voxel(m->n, 0, b->from[0], b->from[1] + h,
                                    b->from[2] + d);
            for (int32_t w = 0; w < b->n[0]; w++) x[w * m->n.c] = value;
        }
}

/* Box `number` of a cutout: draws the extents as fractions, then the place. */
static Box cutout_box(const Change *c, const Image *m, uint32_t number)
{
    const int32_t n[] = {m->own, m->n.h, m->n.d};
    const uint32_t draw = CHANGE_DRAWS + DRAWS * number;
    Box b;

    for (uint32_t a = 0; a < 3; a++) {
        double share = (double)rng_range(
            &c->draw, draw + a, (float)c->number[1], (float)c->number[2]);
        // an axis of one voxel is kept whole
        b.n[a] = n[a] == 1 ? 1 : (int32_t)(share * n[a] + 0.5);
        b.from[a] = (int32_t)rng_below(&c->draw, draw + 3 + a,
                                       (uint32_t)(n[a] - b.n[a]) + 1);
    }
    return b;
}

void cutout_change(const Change *c, const Image *m)
{
    for (int32_t k = 0; k < m->n.c; k++) {
        const float mean = own_mean(m, k);
        for (uint32_t i = 0; i < (uint32_t)c->number[0]; i++) {
            const Box b = cutout_box(c, m, i);
            fill(m, &b, k, mean);
        }
    }
}

void timemask_change(const Change *c, const Image *m)
{
    const uint32_t own = (uint32_t)m->own;
    uint32_t most = (uint32_t)c->number[1];
    if (most > own) most = own;

    for (int32_t k = 0; k < m->n.c; k++) {
        const float value = (int)c->number[2] == FILL_MEAN ? own_mean(m, k) : 0;
        for (uint32_t i = 0; i < (uint32_t)c->number[0]; i++) {
            const uint32_t draw = CHANGE_DRAWS + DRAWS * i;
            Box b = {.n = {0, m->n.h, m->n.d}};
            b.n[0] = (int32_t)rng_below(&c->draw, draw, most + 1);
            b.from[0] = (int32_t)rng_below(&c->draw, draw + 1,
                                           own - (uint32_t)b.n[0] + 1);
            fill(m, &b, k, value);
        }
    }
}
