/* suite_conv.c -- conv, upconv, linear. */
#include "suite.h"

/* Window attributes of a row that has them all; axes beyond the rank keep
 * kernel 1, stride 1, padding 0, dilation 1. */
#define SET_WINDOW(row, win)                                          \
    do {                                                              \
        c->attr.row.sd = (win).s[0], c->attr.row.sh = (win).s[1];     \
        c->attr.row.sw = (win).s[2];                                  \
        c->attr.row.pd0 = (win).lo[0], c->attr.row.pd1 = (win).hi[0]; \
        c->attr.row.ph0 = (win).lo[1], c->attr.row.ph1 = (win).hi[1]; \
        c->attr.row.pw0 = (win).lo[2], c->attr.row.pw1 = (win).hi[2]; \
        c->attr.row.dd = (win).dil[0], c->attr.row.dh = (win).dil[1]; \
        c->attr.row.dw = (win).dil[2];                                \
        c->attr.row.groups = (win).groups;                            \
    } while (0)

/* A window of any size, stride, dilation and uneven padding; half of the
 * draws are the common 3x3 with padding 1. `reach`: how negative the padding
 * after may become. */
static Window draw_window(Draw *d, int rank, int reach)
{
    Window g = {.k = {1, 1, 1}, .s = {1, 1, 1}, .dil = {1, 1, 1}, .groups = 1};
    bool common = draw_bool(d);
    for (int i = 3 - rank; i < 3; i++) {
        g.k[i] = common ? 3 : draw_int(d, 1, 4);
        g.lo[i] = g.hi[i] = 1;
        if (common) continue;
        g.s[i] = draw_int(d, 1, 3);
        g.dil[i] = draw_int(d, 0, 3) ? 1 : draw_int(d, 2, 3);
        g.lo[i] = draw_int(d, 0, 3);
        g.hi[i] = draw_int(d, -reach, 3);
    }
    return g;
}

/* Filters; one time in four more than a register block of any kernel. */
static int draw_filters(Draw *d)
{
    if (d->small) return draw_int(d, 1, 3);
    return draw_int(d, 0, 3) ? draw_int(d, 1, 19) : draw_int(d, 60, 100);
}

static void draw_conv(Draw *d, OpCase *c)
{
    c->x[0] = draw_image(d, c);
    Window g = draw_window(d, c->rank, 0);
    int co = draw_filters(d);
    if (draw_int(d, 0, 3) == 0) {
        // any number of groups, also one a channel
        g.groups = draw_int(d, 1, 4);
        c->x[0].c = g.groups * draw_int(d, 1, 3);
        co = g.groups * draw_int(d, 1, 3);
    }
    SET_WINDOW(conv, g);
    c->x[1] = (Dims){co, g.k[0], g.k[1], g.k[2], c->x[0].c / g.groups};
    if (draw_bool(d)) c->x[2] = (Dims){1, 1, 1, 1, co};
}

/* Every channel its own group: the kernels of depthwise.c, with windows of
 * every size, stride, dilation and padding. */
static void draw_depthwise(Draw *d, OpCase *c)
{
    bool up = c->attr.op == OP_upconv;
    c->x[0] = draw_image(d, c);
    Window g = draw_window(d, c->rank, up ? 2 : 0);
    c->x[0].c = g.groups = draw_int(d, 2, d->small ? 5 : 70);
    SET_WINDOW(conv, g); // the two rows have the same attributes
    c->x[1] = (Dims){g.groups, g.k[0], g.k[1], g.k[2], 1};
    if (draw_bool(d)) c->x[2] = (Dims){1, 1, 1, 1, g.groups};
}

static void draw_upconv(Draw *d, OpCase *c)
{
    c->x[0] = draw_image(d, c);
    Window g = draw_window(d, c->rank, 2);
    // the U-Net's own: kernel 2, stride 2
    if (draw_int(d, 0, 2) == 0)
        for (int i = 3 - c->rank; i < 3; i++)
            g.k[i] = g.s[i] = 2, g.lo[i] = g.hi[i] = 0, g.dil[i] = 1;
    int co = draw_filters(d);
    if (draw_int(d, 0, 3) == 0) {
        g.groups = draw_int(d, 1, 4);
        c->x[0].c = g.groups * draw_int(d, 1, 3);
        co = g.groups * draw_int(d, 1, 3);
    }
    SET_WINDOW(upconv, g);
    c->x[1] = (Dims){c->x[0].c, g.k[0], g.k[1], g.k[2], co / g.groups};
    if (draw_bool(d)) c->x[2] = (Dims){1, 1, 1, 1, co};
}

static void draw_linear(Draw *d, OpCase *c)
{
    c->x[0] = draw_image(d, c);
    int co = draw_int(d, 1, d->small ? 5 : 40);
    c->x[1] = (Dims){co, 1, 1, 1, c->x[0].c};
    if (draw_bool(d)) c->x[2] = (Dims){1, 1, 1, 1, co};
}

const OpSuite suites_conv[] = {
    {.op = OP_conv, .draw = draw_conv, .wrt = 7},
    {.note = "depthwise", .op = OP_conv, .draw = draw_depthwise, .wrt = 7},
    {.note = "depthwise", .op = OP_upconv, .draw = draw_depthwise, .wrt = 7},
    {.op = OP_upconv, .draw = draw_upconv, .wrt = 7},
    {.op = OP_linear, .draw = draw_linear, .wrt = 7},
    {.draw = NULL},
};
