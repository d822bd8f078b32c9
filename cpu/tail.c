/* tail.c -- a norm of constants and an activation over a piece of results: see
 * tail.h. */
#include "tail.h"
#include "strip.h"
#include <math.h>

size_t tail_bytes(const Call *c)
{
    int64_t floats = c->norm ? 4 * (int64_t)c->y->dim.c : 0;
    return (size_t)round_up(floats * (int64_t)sizeof(float), 64);
}

BnAffine tail_constants(const Attr *a, const Tensor *const x[MAX_IN],
                        float *table)
{
    const float *gamma = x[1] ? x[1]->data : NULL;
    const float *beta = x[2] ? x[2]->data : NULL;
    const float *mean = x[3]->data, *var = x[4]->data;
    const int64_t n = x[3]->dim.c;
    float *hi = table, *lo = hi + n, *scale = lo + n, *bias = scale + n;
    for (int64_t i = 0; i < n; i++) {
        double rstd = 1 / sqrt(var[i] + (double)a->batch_norm.eps);
        hi[i] = mean[i];
        lo[i] = 0; // a mean that is stored in one float has no rest
        scale[i] = (float)(rstd * (gamma ? gamma[i] : 1));
        bias[i] = beta ? beta[i] : 0;
    }
    return (BnAffine){.hi = hi, .lo = lo, .scale = scale, .beta = bias};
}

Tail tail_of(const Call *c, float *table)
{
    Tail t = {.then = then_of(c)};
    if (!c->norm || !table) return t;
    t.norm = tail_constants(c->norm, c->norm_x, table);
    t.norm.then = t.then;
    return t;
}

/* `count` channels from `from` on, of `pixels` that follow each other. */
static void run(const Tail *t, float *y, int64_t pixels, int64_t from,
                int64_t count)
{
    if (t->norm.hi) {
        BnAffine a = t->norm;
        a.hi += from, a.lo += from, a.scale += from, a.beta += from;
        simd()->bn_apply(y, pixels, count, &a, y);
    } else if (t->then.kind == THEN_RELU) {
        simd()->relu(y, pixels * count, y);
    } else if (t->then.kind == THEN_LEAKY) {
        simd()->leaky(y, pixels * count, t->then.slope, y);
    }
}

void tail_run(const Tail *t, float *y, int64_t pixels, int64_t pitch,
              int64_t from, int64_t count)
{
    if (pitch == count) {
        run(t, y, pixels, from, count);
        return;
    }
    for (int64_t i = 0; i < pixels; i++) run(t, y + i * pitch, 1, from, count);
}
