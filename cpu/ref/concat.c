/* concat.c -- the channels of up to six operands, one after the other.
 *
 * Operand 0's channels come first (`a .. b` in a recipe). Operands are dense
 * from 0 on: the first absent one ends the list. The rule for shapes gives all
 * the same positions, so a row of y is a row of each operand. */
#include "cpu/lib/plain.h"

/* Writes one row of y after the other, each from a row of every operand. */
static void join_rows(void *ctx, int64_t from, int64_t to)
{
    const Call *c = ctx;
    for (int64_t row = from; row < to; row++) {
        real *y = values(c->y) + row * c->y->dim.c;
        for (int i = 0; i < MAX_IN && c->x[i]; i++) {
            int64_t n = c->x[i]->dim.c;
            memcpy(y, values(c->x[i]) + row * n, (size_t)n * sizeof *y);
            y += n;
        }
    }
}

bool KERNEL(concat_fwd)(const Call *c)
{
    range_run(c, rows(c->y->dim), c->y->dim.c, join_rows, (void *)c);
    return true;
}

/* If an operand occurs twice, its gradients may be the same memory: within a
 * row the operands follow each other, and the later ones add. */
static void split_rows(void *ctx, int64_t from, int64_t to)
{
    const Call *c = ctx;
    for (int64_t row = from; row < to; row++) {
        const real *dy = values(c->dy) + row * c->dy->dim.c;
        for (int i = 0; i < MAX_IN && c->x[i]; i++) {
            int64_t n = c->x[i]->dim.c;
            if (c->dx[i]) {
                real *dx = values(c->dx[i]) + row * n;
                bool fresh = is_fresh(c, i);
                for (int64_t k = 0; k < n; k++) put(dx + k, dy[k], fresh);
            }
            dy += n;
        }
    }
}

bool KERNEL(concat_bwd)(const Call *c)
{
    range_run(c, rows(c->dy->dim), c->dy->dim.c, split_rows, (void *)c);
    return true;
}
