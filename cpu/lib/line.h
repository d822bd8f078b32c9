/* line.h -- lines of a tensor, (n,d,h), for kernels that go through an image a
 * line at a time and add lines up: columns and channels in one param_range. */
#ifndef SEG_CPU_LIB_LINE_H
#define SEG_CPU_LIB_LINE_H
#include "cpu/lib/blocks.h"
#include <string.h>

/* Where line number `line` of a tensor lies. */
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

/* Column w of a line of an operand, result or gradient, channel 0. */
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

/* A piece of a gradient is known: stored or, unless `fresh`, added. */
static inline void line_put(float *restrict to, const float *restrict from,
                            bool fresh, int64_t count)
{
    if (fresh)
        memcpy(to, from, (size_t)count * sizeof *to);
    else
        line_add(to, from, 1, count);
}
#endif
