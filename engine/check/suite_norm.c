/* suite_norm.c -- batch, instance, group and layer normalisation.
 *
 * Every draw has at least 4 values per mean: with two, the result is +-1 for
 * any values, and its gradient is only rounding. */
#include "engine/check/suite.h"

#define GAMMA_FILL       \
    {                    \
        FILL_GAP, 0.3, 2 \
    }
#define VAR_FILL           \
    {                      \
        FILL_RANGE, 0.2, 3 \
    }
// a mean that is large compared with the spread, as in a scan
#define FAR_FILL               \
    {                          \
        FILL_RANGE, 1000, 1001 \
    }
// a row that is almost constant: its range has 16 floats
#define FLAT_FILL                  \
    {                              \
        FILL_RANGE, 1000, 1000.001 \
    }

/* With gamma and beta three times in four. */
static void draw_affine(Draw *d, OpCase *c)
{
    if (draw_int(d, 0, 3) == 0) return;
    c->x[1] = c->x[2] = (Dims){1, 1, 1, 1, c->x[0].c};
}

static void draw_batch_norm(Draw *d, OpCase *c)
{
    c->x[0] = draw_image(d, c);
    if (!d->image) c->x[0].n += 3;
    draw_affine(d, c);
    c->x[3] = c->x[4] = (Dims){1, 1, 1, 1, c->x[0].c};
    c->eval = draw_int(d, 0, 2) == 0;
    c->changes = c->eval ? 0 : 1 << 3 | 1 << 4;
    c->attr.batch_norm.eps = draw_real(d, 1e-5f, 1e-2f);
    c->attr.batch_norm.momentum = draw_real(d, 0.01f, 0.9f);
}

static void draw_instance_norm(Draw *d, OpCase *c)
{
    c->x[0] = draw_ranked(d, c, draw_int(d, 1, 3));
    if (!d->image) c->x[0].w += 3;
    draw_affine(d, c);
    c->attr.instance_norm.eps = draw_real(d, 1e-5f, 1e-2f);
}

static void draw_group_norm(Draw *d, OpCase *c)
{
    c->x[0] = draw_image(d, c);
    int groups = draw_int(d, 1, 4);

    if (d->image) {
        while (c->x[0].c % groups) groups--;
    } else {
        c->x[0].c = groups * draw_int(d, 1, d->small ? 3 : 8);
        if (c->rank) c->x[0].w += 2;
    }

    if (positions(c->x[0]) * c->x[0].c / groups < 4) c->x[0].c = 4 * groups;
    draw_affine(d, c);
    c->attr.group_norm.groups = groups;
    c->attr.group_norm.eps = draw_real(d, 1e-5f, 1e-2f);
}

static void draw_layer_norm(Draw *d, OpCase *c)
{
    c->x[0] = draw_image(d, c);
    if (!d->image) c->x[0].c = draw_int(d, 4, d->small ? 8 : 40);
    if (c->x[0].c < 4) c->x[0].c = 4;
    draw_affine(d, c);
    c->attr.layer_norm.eps = draw_real(d, 1e-5f, 1e-2f);
}

const OpSuite suites_norm[] = {
    {.op = OP_batch_norm,
     .draw = draw_batch_norm,
     .wrt = 7,
     .fill = {{0}, GAMMA_FILL, {0}, {FILL_RANGE, -1, 1}, VAR_FILL}},
    {.op = OP_instance_norm,
     .draw = draw_instance_norm,
     .wrt = 7,
     .fill = {{0}, GAMMA_FILL}},
    {.op = OP_group_norm,
     .draw = draw_group_norm,
     .wrt = 7,
     .fill = {{0}, GAMMA_FILL}},
    {.op = OP_layer_norm,
     .draw = draw_layer_norm,
     .wrt = 7,
     .fill = {{0}, GAMMA_FILL}},
    {.note = "parts",
     .op = OP_batch_norm,
     .draw = draw_batch_norm,
     .wrt = 7,
     .fill = {{0}, GAMMA_FILL, {0}, {FILL_RANGE, -1, 1}, VAR_FILL},
     .image = image_walk,
     .cases = 15},
    {.note = "far from 0",
     .op = OP_batch_norm,
     .draw = draw_batch_norm,
     .wrt = 7,
     .fill = {FAR_FILL, GAMMA_FILL, {0}, {FILL_RANGE, -1, 1}, VAR_FILL},
     .image = image_walk,
     .cases = 6},
    {.note = "parts",
     .op = OP_instance_norm,
     .draw = draw_instance_norm,
     .wrt = 7,
     .fill = {{0}, GAMMA_FILL},
     .image = image_walk,
     .cases = 9},
    {.note = "parts",
     .op = OP_group_norm,
     .draw = draw_group_norm,
     .wrt = 7,
     .fill = {{0}, GAMMA_FILL},
     .image = image_walk,
     .cases = 12},
    {.note = "far from 0",
     .op = OP_instance_norm,
     .draw = draw_instance_norm,
     .wrt = 7,
     .fill = {FAR_FILL, GAMMA_FILL},
     .image = image_walk,
     .cases = 6},
    {.note = "far from 0",
     .op = OP_group_norm,
     .draw = draw_group_norm,
     .wrt = 7,
     .fill = {FAR_FILL, GAMMA_FILL},
     .image = image_walk,
     .cases = 6},
    {.note = "long rows",
     .op = OP_layer_norm,
     .draw = draw_layer_norm,
     .wrt = 7,
     .fill = {{0}, GAMMA_FILL},
     .image = image_channels,
     .cases = 18},
    {.note = "almost constant",
     .op = OP_batch_norm,
     .draw = draw_batch_norm,
     .wrt = 7,
     .fill = {FLAT_FILL, GAMMA_FILL, {0}, {FILL_RANGE, -1, 1}, VAR_FILL},
     .cases = 6},
    {.note = "almost constant",
     .op = OP_instance_norm,
     .draw = draw_instance_norm,
     .wrt = 7,
     .fill = {FLAT_FILL, GAMMA_FILL},
     .cases = 6},
    {.note = "almost constant",
     .op = OP_group_norm,
     .draw = draw_group_norm,
     .wrt = 7,
     .fill = {FLAT_FILL, GAMMA_FILL},
     .cases = 6},
    {.note = "almost constant",
     .op = OP_layer_norm,
     .draw = draw_layer_norm,
     .wrt = 7,
     .fill = {FLAT_FILL, GAMMA_FILL},
     .cases = 6},
    {.draw = NULL},
};
