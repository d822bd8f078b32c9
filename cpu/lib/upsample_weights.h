/* upsample_weights.h -- weights of upsampling along one axis.
 *
 * nearest: result p is x[floor(p / f)]. linear: result p has the source
 * coordinate (p + 1/2) / f - 1/2, clamped to the image, or with `align` p
 * (X-1)/(Y-1), and interpolates between the two positions next to it.
 * Coordinates are computed in double, by the same function in both
 * directions. */
#ifndef SEG_CPU_LIB_UPSAMPLE_WEIGHTS_H
#define SEG_CPU_LIB_UPSAMPLE_WEIGHTS_H
#include "engine/graph/op.h"
#include <math.h>

/* One axis of operand and result, with `size` and `count` = size f
 * positions. */
typedef struct MixAxis {
    int64_t size, count, f;
    bool linear, align;
} MixAxis;

/* The two source positions of a result along one axis and their weights, which
 * add up to 1. */
typedef struct Mix {
    int64_t i[2];
    double w[2];
} Mix;

/* Axis 0 d, 1 h, 2 w of a call of either operator; operand and result have
 * extents x and y. The attributes of both begin with the same three factors. */
static inline MixAxis mix_axis(const Call *c, int axis, Dims x, Dims y)
{
    MixAxis a = {(&x.d)[axis], (&y.d)[axis], c->attr->word[1 + axis],
                 call_op(c) == OP_upsample_linear, false};
    a.align = a.linear && c->attr->upsample_linear.align;
    return a;
}

/* Source positions and weights of result p. The second position is clamped to
 * the image; its weight is 0 there, or both positions are the last one. */
static inline Mix mix_at(MixAxis a, int64_t p)
{
    if (!a.linear) return (Mix){{p / a.f, p / a.f}, {1, 0}};
    double at = ((double)p + 0.5) / (double)a.f - 0.5;
    if (a.align)
        at = a.count > 1 ? (double)(p * (a.size - 1)) / (double)(a.count - 1)
                         : 0;
    at = fmin(fmax(at, 0), (double)(a.size - 1));
    const int64_t i = (int64_t)at;
    return (Mix){{i, i + 1 < a.size ? i + 1 : a.size - 1},
                 {1 - (at - (double)i), at - (double)i}};
}

/* Weight of operand position q in result p. */
static inline double mix_weight(MixAxis a, int64_t p, int64_t q)
{
    const Mix m = mix_at(a, p);
    return (m.i[0] == q ? m.w[0] : 0) + (m.i[1] == q ? m.w[1] : 0);
}

/* Sets the range from .. to-1 of results in which position q can have a weight:
 * those with a source coordinate less than 1 away from q, rounded outwards. For
 * some of them mix_weight() may still be 0. */
static inline void mix_range(MixAxis a, int64_t q, int64_t *from, int64_t *to)
{
    *from = q * a.f, *to = (q + 1) * a.f;
    if (a.linear) *from -= a.f, *to += a.f;
    if (a.align && a.size > 1) {
        *from = (q - 1) * (a.count - 1) / (a.size - 1);
        *to = (q + 1) * (a.count - 1) / (a.size - 1) + 2;
    }
    if (*from < 0) *from = 0;
    if (*to > a.count) *to = a.count;
}
#endif
