/* epilogue.c -- a batch norm with constant statistics and an activation over
 * finished results: see epilogue.h. */
#include "cpu/conv/epilogue.h"
#include "cpu/lib/norm.h"
#include <math.h>

size_t epilogue_bytes(const Call *c)
{
    int64_t floats = c->norm.attr ? NORM_TABLES * (int64_t)c->y->dim.c : 0;
    return (size_t)round_up(floats * (int64_t)sizeof(float), 64);
}

Epilogue epilogue_of(const Call *c, float *table)
{
    Epilogue t = {.act = act_of(c)};
    if (!c->norm.attr || !table) return t;
    // running mean and variance
    const Tensor *const *x = c->norm.x;
    const float *mean = x[3]->data, *var = x[4]->data;
    const double eps = c->norm.attr->batch_norm.eps;
    const int64_t n = x[3]->dim.c;
    for (int64_t i = 0; i < n; i++)
        norm_channel(table, n, i, mean[i], 1 / sqrt(var[i] + eps), x[1], x[2]);
    t.norm = norm_affine(table, n, t.act);
    return t;
}

/* Runs the epilogue over `pixels` contiguous pixels of `count` channels. */
static void run(const Epilogue *t, float *y, int64_t pixels, int64_t count)
{
    if (t->norm.hi) {
        simd()->bn_apply(y, pixels, count, &t->norm, y);
    } else if (t->act.kind == ACT_RELU) {
        simd()->relu(y, pixels * count, y);
    } else if (t->act.kind == ACT_LEAKY_RELU) {
        simd()->leaky(y, pixels * count, t->act.slope, y);
    }
}

void epilogue_run(const Epilogue *t, float *y, int64_t pixels, int64_t pitch,
                  int64_t from, int64_t count)
{
    const Epilogue at = epilogue_at(t, from);
    if (pitch == count) {
        run(&at, y, pixels, count);
        return;
    }
    for (int64_t i = 0; i < pixels; i++) run(&at, y + i * pitch, 1, count);
}
