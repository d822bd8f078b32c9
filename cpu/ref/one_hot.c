/* one_hot.c -- a channel for each class: 1 in the channel of the class number,
 * 0 in the others. */
#include "cpu/lib/plain.h"

static void one_hot_rows(void *ctx, int64_t from, int64_t to)
{
    const Call *c = ctx;
    const int64_t classes = c->y->dim.c;
    for (int64_t row = from; row < to; row++) {
        const double class = rint((double)values(c->x[0])[row]);
        real *y = values(c->y) + row * classes;
        for (int64_t i = 0; i < classes; i++)
            y[i] = (real)(isnan(class) ? class : class == (double)i);
    }
}

bool KERNEL(one_hot_fwd)(const Call *c)
{
    range_run(c, rows(c->y->dim), c->y->dim.c, one_hot_rows, (void *)c);
    return true;
}
