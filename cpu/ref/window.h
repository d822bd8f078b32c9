/* window.h -- taps of a window and positions of an image.
 *
 * Along one axis (0 d, 1 h, 2 w) position p of the result reads the image at
 * p*s - lo + k*dil through tap k. The functions solve this for one variable:
 * the taps of a position inside the image (taps_inside), the position that
 * reads an element through a tap (result_at), the positions that read the
 * image through a tap (result_range). Elements outside the image count as
 * zero, or in pools as absent, so they are left out. */
#ifndef SEG_CPU_REF_WINDOW_H
#define SEG_CPU_REF_WINDOW_H
#include "cpu/lib/plain.h"

/* Taps from .. to-1 are inside the image; `first` is the image position of tap
 * 0, maybe outside. */
typedef struct Taps {
    int64_t first, from, to;
} Taps;

/* Returns the taps of position p in an image of `size`; none if from >= to.
 * Both ends round up: `to` is the first tap at or beyond `size`. */
static inline Taps taps_inside(const Window *g, int axis, int64_t p,
                               int64_t size)
{
    int64_t dil = g->dil[axis];
    Taps t = {.first = p * g->s[axis] - g->lo[axis]};
    t.from = t.first < 0 ? ceil_div(-t.first, dil) : 0;
    t.to = t.first < size ? ceil_div(size - t.first, dil) : 0;
    t.to = least(t.to, g->k[axis]);
    return t;
}

/* Returns the position below `count` that reads image position q through tap k,
 * or -1: q lies between two strides, before the first or after the last. */
static inline int64_t result_at(const Window *g, int axis, int64_t q, int64_t k,
                                int64_t count)
{
    int64_t t = q + g->lo[axis] - k * g->dil[axis];
    if (t < 0 || t % g->s[axis]) return -1;
    t /= g->s[axis];
    return t < count ? t : -1;
}

/* Sets the range from .. to-1, below `count`, of positions that read an image
 * of `size` through tap k. */
static inline void result_range(const Window *g, int axis, int64_t k,
                                int64_t count, int64_t size, int64_t *from,
                                int64_t *to)
{
    int64_t first = k * g->dil[axis] - g->lo[axis], s = g->s[axis];
    *from = first < 0 ? ceil_div(-first, s) : 0;
    *to = first < size ? least(count, ceil_div(size - first, s)) : 0;
}

/* Number of taps of a window. */
static inline int64_t window_taps(const Window *g)
{
    return (int64_t)g->k[0] * g->k[1] * g->k[2];
}

/* Tap number k as (kd, kh, kw). */
static inline void tap_split(const Window *g, int64_t k, int64_t out[3])
{
    out[2] = k % g->k[2], k /= g->k[2];
    out[1] = k % g->k[1];
    out[0] = k / g->k[1];
}

/* Returns the flat index of the row of channels of `result` that reads image
 * position p (of `place`) through tap k, or -1. */
static inline int64_t result_row_at(const Window *g, Dims result, Place p,
                                    int64_t k)
{
    int64_t kk[3];
    tap_split(g, k, kk);
    int64_t d = result_at(g, 0, p.d, kk[0], result.d);
    int64_t h = result_at(g, 1, p.h, kk[1], result.h);
    int64_t w = result_at(g, 2, p.w, kk[2], result.w);
    return d < 0 || h < 0 || w < 0 ? -1 : at(result, p.n, d, h, w);
}
#endif
