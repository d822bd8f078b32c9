/* line.h -- lines of a tensor, for kernels that go through an image line by
 * line and add lines. A line is one (n,d,h): W columns of C channels,
 * contiguous. */
#ifndef SEG_CPU_LIB_LINE_H
#define SEG_CPU_LIB_LINE_H
#include "cpu/lib/blocks.h"
#include <string.h>

/* The place of a line in a tensor. */
typedef struct LinePlace {
    int64_t n, d, h;
} LinePlace;

static inline LinePlace line_place(Dims s, int64_t line)
{
    return (LinePlace){line / s.h / s.d, line / s.h % s.d, line % s.h};
}

static inline int64_t line_count(Dims s)
{
    return (int64_t)s.n * s.d * s.h;
}

/* Address of column w, channel 0, of a line of an operand, result or
 * gradient. */
static inline float *line_at(const Tensor *t, LinePlace p, int64_t w)
{
    const Dims s = t->dim;
    return floats(t, (((p.n * s.d + p.d) * s.h + p.h) * s.w + w) * s.c);
}

/* to[0 .. count-1] += by * from */
static inline void line_add(float *restrict to, const float *restrict from,
                            float by, int64_t count)
{
    for (int64_t i = 0; i < count; i++) to[i] += by * from[i];
}

/* Writes `count` finished elements of a gradient: stores if `fresh`, else
 * adds. */
static inline void line_put(float *restrict to, const float *restrict from,
                            bool fresh, int64_t count)
{
    if (fresh)
        memcpy(to, from, (size_t)count * sizeof *to);
    else
        line_add(to, from, 1, count);
}
#endif
