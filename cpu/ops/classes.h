/* classes.h -- rows of logits of few classes: from a Call to the arguments of
 * simd/classes.c, for losses and softmax. */
#ifndef SEG_CPU_OPS_CLASSES_H
#define SEG_CPU_OPS_CLASSES_H
#include "cpu/lib/blocks.h"
#include "cpu/lib/simd.h"

/* Rows of a task: some microseconds, so that small results have several
 * tasks. */
enum { CLASS_ROWS = 2048 };

/* Does t have one number for each row of channels of x? */
static inline bool is_row(Dims x, Dims t)
{
    x.c = 1;
    return dims_equal(x, t);
}

/* Are there 2 .. CLASSES_MAX channels, and no mask or one number a row? */
static inline bool has_few_classes(const Call *c)
{
    const Dims x = c->x[0]->dim;
    return x.c >= 2 && x.c <= CLASSES_MAX &&
           (!c->x[2] || is_row(x, c->x[2]->dim));
}

/* The arguments for `count` rows of a loss, from row `from` on. */
static inline Classes classes_at(const Call *c, int64_t from, int64_t count)
{
    const int width = c->x[0]->dim.c, target = c->x[1]->dim.c;
    return (Classes){.x = floats(c->x[0], from * width),
                     .t = floats(c->x[1], from * target),
                     .m = c->x[2] ? floats(c->x[2], from) : NULL,
                     .rows = count,
                     .classes = width,
                     .soft = target > 1,
                     .ignore = (float)NAN};
}
#endif
