/* window.h -- which taps of a window meet which positions of an image.
 *
 * Along one axis (0 d, 1 h, 2 w) position p of the result sees the image at
 * p*s - lo + k*dil through tap k. Three questions can be asked of that: the
 * taps of a position (taps_inside), the position that sees an element through
 * a tap (normed_from), the positions that see anything through a tap
 * (normed_through). Everything outside the image counts as zero, or in pools as
 * absent, so the answers leave it out. */
#ifndef SEG_CPU_REF_WINDOW_H
#define SEG_CPU_REF_WINDOW_H
#include "cpu/lib/plain.h"

/* Taps from .. to-1 fall inside the image; `first` is where tap 0 falls,
 * perhaps outside. */
typedef struct Taps {
    int64_t first, from, to;
} Taps;

/* Of position p, in an image of `size`. Empty is from >= to. The roundings
 * are up on both ends: `to` is the first tap at or beyond `size`. */
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

/* The position, of `count`, that sees image position q through tap k; -1 if
 * none: q lies between two strides, before the first or after the last. */
static inline int64_t normed_from(const Window *g, int axis, int64_t q,
                                  int64_t k, int64_t count)
{
    int64_t t = q + g->lo[axis] - k * g->dil[axis];
    if (t < 0 || t % g->s[axis]) return -1;
    t /= g->s[axis];
    return t < count ? t : -1;
}

/* Positions from .. to-1, of `count`, see an image of `size` through tap k. */
static inline void normed_through(const Window *g, int axis, int64_t k,
                                  int64_t count, int64_t size, int64_t *from,
                                  int64_t *to)
{
    int64_t first = k * g->dil[axis] - g->lo[axis], s = g->s[axis];
    *from = first < 0 ? ceil_div(-first, s) : 0;
    *to = first < size ? least(count, ceil_div(size - first, s)) : 0;
}

/* All taps of a window. */
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

/* The row of channels of `result` that sees image position p (of `place`)
 * through tap k, as a flat index; -1 if none. */
static inline int64_t row_normed_from(const Window *g, Dims result, Place p,
                                      int64_t k)
{
    int64_t kk[3];
    tap_split(g, k, kk);
    int64_t d = normed_from(g, 0, p.d, kk[0], result.d);
    int64_t h = normed_from(g, 1, p.h, kk[1], result.h);
    int64_t w = normed_from(g, 2, p.w, kk[2], result.w);
    return d < 0 || h < 0 || w < 0 ? -1 : at(result, p.n, d, h, w);
}
#endif
