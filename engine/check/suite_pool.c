/* suite_pool.c -- pooling, global pooling, upsampling. */
#include "engine/check/suite.h"

/* Values at least 2 / count apart, so that no step of a gradient check changes
 * the position of a maximum. */
#define DISTINCT             \
    {                        \
        FILL_DISTINCT, -1, 1 \
    }

#define SET_WINDOW(row, win)                                          \
    do {                                                              \
        c->attr.row.kd = (win).k[0], c->attr.row.kh = (win).k[1];     \
        c->attr.row.kw = (win).k[2];                                  \
        c->attr.row.sd = (win).s[0], c->attr.row.sh = (win).s[1];     \
        c->attr.row.sw = (win).s[2];                                  \
        c->attr.row.pd0 = (win).lo[0], c->attr.row.pd1 = (win).hi[0]; \
        c->attr.row.ph0 = (win).lo[1], c->attr.row.ph1 = (win).hi[1]; \
        c->attr.row.pw0 = (win).lo[2], c->attr.row.pw1 = (win).hi[2]; \
    } while (0)

/* Half of the draws are the common window of 2, stride 2. */
static Window draw_window(Draw *d, int rank)
{
    Window g = {.k = {1, 1, 1}, .s = {1, 1, 1}};
    bool common = draw_bool(d);
    for (int i = 3 - rank; i < 3; i++) {
        g.k[i] = g.s[i] = 2;
        if (common) continue;
        g.k[i] = draw_int(d, 1, 4);
        g.s[i] = draw_int(d, 1, 3);
        g.lo[i] = draw_int(d, 0, g.k[i] - 1);
        g.hi[i] = draw_int(d, 0, g.k[i] - 1);
    }
    return g;
}

static void draw_maxpool(Draw *d, OpCase *c)
{
    c->x[0] = draw_image(d, c);
    Window g = draw_window(d, c->rank);
    SET_WINDOW(maxpool, g);
}

static void draw_avgpool(Draw *d, OpCase *c)
{
    c->x[0] = draw_image(d, c);
    Window g = draw_window(d, c->rank);
    SET_WINDOW(avgpool, g);
    c->attr.avgpool.count_all = draw_bool(d);
}

/* Windows with more taps than a byte counts, or than a chain of additions has
 * (cuda/ops/pool_max.cu, pool_avg.cu, cuda/lib/window.cuh). */
static void draw_long_window(Draw *d, OpCase *c)
{
    Window g = {.k = {1, 1, draw_edge(d, PICK(d, 257, 512))}, .s = {1, 1, 1}};
    c->rank = 1;
    c->x[0] = (Dims){1, 1, 1, g.k[2] + draw_int(d, 0, 700), PICK(d, 1, 3, 4)};
    g.s[2] = PICK(d, 1, 5, 300);
    g.lo[2] = draw_int(d, 0, 90), g.hi[2] = draw_int(d, 0, 90);
    if (c->attr.op == OP_maxpool)
        SET_WINDOW(maxpool, g);
    else
        SET_WINDOW(avgpool, g);
}

/* Lines longer than the piece of a line in a task (cpu/ops/pool_avg.c). */
static void draw_wide_window(Draw *d, OpCase *c)
{
    c->rank = 2;
    c->x[0] = (Dims){1, 1, draw_int(d, 3, 5), 0, PICK(d, 1, 3, 16)};
    c->x[0].w = PICK(d, 4090, 4097, 4500, 8300) / c->x[0].c;
    Window g = draw_window(d, c->rank);
    SET_WINDOW(avgpool, g);
    c->attr.avgpool.count_all = draw_bool(d);
}

/* A factor that gives a gradient more terms than a chain has. */
static void draw_long_upsample(Draw *d, OpCase *c)
{
    c->rank = 1;
    c->x[0] = (Dims){1, 1, 1, draw_int(d, 1, 4), PICK(d, 1, 3, 4)};
    c->attr.word[3] = draw_edge(d, PICK(d, 256, 512, 700));
    if (c->attr.op == OP_upsample_linear)
        c->attr.upsample_linear.align = draw_bool(d);
}

/* Lines longer than the piece of a line in a task, more rows than a task has,
 * and factors that are too large for it (cpu/ops/upsample.c). */
static void draw_wide_upsample(Draw *d, OpCase *c)
{
    c->rank = 2;
    c->x[0] = (Dims){1, 1, draw_int(d, 3, 5), 0, PICK(d, 1, 3, 16, 600)};
    c->x[0].w = PICK(d, 260, 511, 700);
    if (c->x[0].c > 1) c->x[0].w = 3000 / c->x[0].c + draw_int(d, 0, 9);
    c->attr.word[2] = PICK(d, 1, 3, 4);
    c->attr.word[3] = PICK(d, 1, 2, 3, 17);
    if (c->attr.op == OP_upsample_linear)
        c->attr.upsample_linear.align = draw_bool(d);
}

static void draw_global(Draw *d, OpCase *c)
{
    c->x[0] = draw_image(d, c);
}

/* Both operators begin with the same three factors. */
static void draw_upsample(Draw *d, OpCase *c)
{
    c->x[0] = draw_image(d, c);
    for (int i = 3 - c->rank; i < 3; i++)
        c->attr.word[1 + i] = draw_int(d, 1, 3);
    if (c->attr.op == OP_upsample_linear)
        c->attr.upsample_linear.align = draw_bool(d);
}

const OpSuite suites_pool[] = {
    {.op = OP_maxpool, .draw = draw_maxpool, .wrt = 1, .fill = {DISTINCT}},
    {.note = "ties",
     .op = OP_maxpool,
     .draw = draw_maxpool,
     .fill = {{FILL_CLASS, 0, 1}}},
    {.op = OP_avgpool, .draw = draw_avgpool, .wrt = 1},
    {.op = OP_global_avgpool, .draw = draw_global, .wrt = 1},
    {.op = OP_global_maxpool,
     .draw = draw_global,
     .wrt = 1,
     .fill = {DISTINCT}},
    {.op = OP_upsample_nearest, .draw = draw_upsample, .wrt = 1},
    {.op = OP_upsample_linear, .draw = draw_upsample, .wrt = 1},
    {.note = "long",
     .op = OP_maxpool,
     .draw = draw_long_window,
     .wrt = 1,
     .fill = {DISTINCT},
     .cases = 10},
    {.note = "long",
     .op = OP_avgpool,
     .draw = draw_long_window,
     .wrt = 1,
     .cases = 6},
    {.note = "wide",
     .op = OP_avgpool,
     .draw = draw_wide_window,
     .wrt = 1,
     .cases = 12},
    {.note = "parts",
     .op = OP_global_avgpool,
     .draw = draw_global,
     .wrt = 1,
     .image = image_global,
     .cases = 16},
    {.note = "parts",
     .op = OP_global_maxpool,
     .draw = draw_global,
     .wrt = 1,
     .fill = {DISTINCT},
     .image = image_global,
     .cases = 16},
    {.note = "parts, ties",
     .op = OP_global_maxpool,
     .draw = draw_global,
     .wrt = 1,
     .fill = {{FILL_CLASS, 0, 2}},
     .image = image_global,
     .cases = 16},
    {.note = "long",
     .op = OP_upsample_nearest,
     .draw = draw_long_upsample,
     .wrt = 1,
     .cases = 5},
    {.note = "long",
     .op = OP_upsample_linear,
     .draw = draw_long_upsample,
     .wrt = 1,
     .cases = 6},
    {.note = "wide",
     .op = OP_upsample_nearest,
     .draw = draw_wide_upsample,
     .wrt = 1,
     .cases = 8},
    {.note = "wide",
     .op = OP_upsample_linear,
     .draw = draw_wide_upsample,
     .wrt = 1,
     .cases = 16},
    {.draw = NULL},
};
