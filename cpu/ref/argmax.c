/* argmax.c -- the index of the largest element along axes.
 *
 * The first of several equals; NaN is the largest. */
#include "cpu/ref/fibres.h"

typedef struct Job {
    const Call *c;
    Fibres fibres;
} Job;

static void argmax_results(void *ctx, int64_t from, int64_t to)
{
    const Job *j = ctx;
    for (int64_t i = from; i < to; i++) {
        const real *x = values(j->c->x[0]) + fibre_start(&j->fibres, i);
        real largest = x[0];
        int64_t at = 0;
        for (int64_t k = 1; k < j->fibres.length; k++) {
            const real v = x[fibre_step(&j->fibres, k)];
            if (!(v > largest) && !(isnan(v) && !isnan(largest))) continue;
            largest = v, at = k;
        }
        values(j->c->y)[i] = (real)at;
    }
}

bool KERNEL(argmax_fwd)(const Call *c)
{
    Job j = {c, fibres_of(c->attr, c->x[0]->dim)};
    range_run(c, j.fibres.count, 2 * j.fibres.length, argmax_results, &j);
    return true;
}
