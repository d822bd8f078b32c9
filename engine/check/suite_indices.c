/* suite_indices.c -- operators that compute indices or choose by them, and
 * random numbers. */
#include "engine/check/suite.h"

/* Draws the axes of fibres: at least one. */
static void draw_axes(Draw *d, OpCase *c)
{
    int32_t *flag = &c->attr.sum.d;
    for (int i = 0; i < 4; i++) flag[i] = draw_bool(d);
    if (!draw_int(d, 0, 3)) flag[draw_int(d, 4 - 1 - c->rank, 3)] = 1;
}

/* Half of the cases have equal elements, whose order must stay. */
static void draw_argsort(Draw *d, OpCase *c)
{
    c->x[0] = draw_image(d, c);
    draw_axes(d, c);
    c->attr.argsort.descending = draw_bool(d);
    if (draw_bool(d)) c->fill[0] = (Fill){FILL_CLASS, -2, 2};
}

/* Fibres at the boundaries of kernels: the runs of a merge sort, counting and
 * radix sort, tiles (cuda/ops/radix_sort.cu: 4096 elements). */
static void draw_long_fibres(Draw *d, OpCase *c)
{
    c->rank = 2;
    c->x[0] =
        (Dims){draw_int(d, 1, 2), 1, draw_int(d, 1, 2),
               draw_edge(d, PICK(d, 32, 64, 256, 2048, 4096)), PICK(d, 1, 3)};
    c->attr.sum.w = 1;
    c->attr.sum.h = draw_bool(d), c->attr.sum.c = draw_bool(d);
}

static void draw_long_argsort(Draw *d, OpCase *c)
{
    draw_long_fibres(d, c);
    c->attr.argsort.descending = draw_bool(d);
    if (draw_bool(d)) c->fill[0] = (Fill){FILL_CLASS, -9, 9};
}

/* Draws the extents of the indices: any along the axes of fibres; along each
 * other axis some operands have 1. */
static void draw_gather(Draw *d, OpCase *c)
{
    c->x[0] = c->x[1] = draw_image(d, c);
    draw_axes(d, c);
    const int32_t *flag = &c->attr.sum.d;
    int32_t *x = &c->x[0].n, *index = &c->x[1].n;
    for (int i = 0; i < 5; i++) {
        const bool along = i && flag[i - 1], shown = i == 0 || i >= 4 - c->rank;
        if (along && shown)
            index[i] = draw_int(d, 1, index[i] + 2);
        else if (!along && !draw_int(d, 0, 3))
            *(draw_bool(d) ? x + i : index + i) = 1;
    }
    c->fill[1] =
        (Fill){FILL_CLASS, 0, (double)op_indices(&c->attr, c->x[0]) - 1};
}

/* Many indices choose few elements, and the reverse. */
static void draw_long_gather(Draw *d, OpCase *c)
{
    draw_long_fibres(d, c);
    c->x[1] = c->x[0];
    c->x[draw_bool(d)].w = PICK(d, 1, 3, 40);
    if (draw_bool(d) && !c->attr.sum.c) c->x[draw_bool(d)].c = 1;
    c->fill[1] =
        (Fill){FILL_CLASS, 0, (double)op_indices(&c->attr, c->x[0]) - 1};
}

static void draw_argmax(Draw *d, OpCase *c)
{
    c->x[0] = draw_image(d, c);
    draw_axes(d, c);
    c->attr.argmax.drop = draw_bool(d);
    if (draw_bool(d)) c->fill[0] = (Fill){FILL_CLASS, -2, 2};
}

static void draw_long_argmax(Draw *d, OpCase *c)
{
    draw_long_fibres(d, c);
    if (draw_bool(d)) c->fill[0] = (Fill){FILL_CLASS, -99, 99};
}

/* Also classes beyond the channels. */
static void draw_one_hot(Draw *d, OpCase *c)
{
    c->x[0] = draw_image(d, c);
    c->x[0].c = 1;
    c->attr.one_hot.classes = draw_int(d, 1, 9);
}

static void draw_embedding(Draw *d, OpCase *c)
{
    const int count = draw_int(d, 1, d->small ? 5 : 40);
    c->x[1] = draw_image(d, c);
    c->x[0] = (Dims){count, 1, 1, 1, draw_int(d, 1, d->small ? 5 : 40)};
    c->x[1].c = 1;
    c->fill[1] = (Fill){FILL_CLASS, 0, count - 1};
}

static void draw_random(Draw *d, OpCase *c)
{
    c->x[0] = draw_image(d, c);
    float *a = &c->attr.normal.mean; // or the least number
    a[0] = draw_real(d, -3, 3);
    a[1] = draw_int(d, 0, 4) ? draw_real(d, 0, 3) : 0;
    if (c->attr.op == OP_uniform) a[1] += a[0];
    c->eval = draw_int(d, 0, 5) == 0;
}

const OpSuite suites_indices[] = {
    {.op = OP_argsort, .draw = draw_argsort},
    {.note = "long fibres",
     .op = OP_argsort,
     .draw = draw_long_argsort,
     .cases = 12},
    {.op = OP_gather, .draw = draw_gather, .wrt = 1},
    {.note = "long fibres",
     .op = OP_gather,
     .draw = draw_long_gather,
     .wrt = 1,
     .cases = 12},
    {.op = OP_argmax, .draw = draw_argmax},
    {.note = "long fibres",
     .op = OP_argmax,
     .draw = draw_long_argmax,
     .cases = 12},
    {.op = OP_one_hot, .draw = draw_one_hot, .fill = {{FILL_CLASS, -1, 9}}},
    {.op = OP_embedding, .draw = draw_embedding, .wrt = 1},
    {.op = OP_normal, .draw = draw_random},
    {.op = OP_uniform, .draw = draw_random},
    {.note = "parts",
     .op = OP_normal,
     .draw = draw_random,
     .image = image_parts,
     .cases = 9},
    {.draw = NULL},
};
