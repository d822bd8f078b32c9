/* suite_conv.c -- conv, upconv, linear. */
#include "engine/check/suite.h"
#include <string.h>

/* Sets all window attributes of an operator; axes beyond the rank keep kernel
 * 1, stride 1, padding 0, dilation 1. */
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

/* Draws a window of any size, stride, dilation and asymmetric padding; half of
 * the draws are the common 3x3 with padding 1. `reach`: how negative the end
 * padding may become. */
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

/* Draws a number of filters; one time in four more than a register block of any
 * kernel. */
static int draw_filters(Draw *d)
{
    if (d->small) return draw_int(d, 1, 3);
    return draw_int(d, 0, 3) ? draw_int(d, 1, 19) : draw_int(d, 60, 100);
}

/* Draws a number of filters, and one time in four groups of few channels: any
 * number of groups, also one per channel. Then sets the channels of x0. */
static int draw_channels(Draw *d, OpCase *c, Window *g)
{
    int co = draw_filters(d);
    if (draw_int(d, 0, 3)) return co;
    g->groups = draw_int(d, 1, 4);
    c->x[0].c = g->groups * draw_int(d, 1, 3);
    return g->groups * draw_int(d, 1, 3);
}

static void draw_conv(Draw *d, OpCase *c)
{
    c->x[0] = draw_image(d, c);
    Window g = draw_window(d, c->rank, 0);
    int co = draw_channels(d, c, &g);
    SET_WINDOW(conv, g);
    c->x[1] = (Dims){co, g.k[0], g.k[1], g.k[2], c->x[0].c / g.groups};
    if (draw_bool(d)) c->x[2] = (Dims){1, 1, 1, 1, co};
}

/* Depthwise: one group per channel, for the kernels of depthwise.c, with
 * windows of every size, stride, dilation and padding. */
static void draw_depthwise(Draw *d, OpCase *c)
{
    bool up = c->attr.op == OP_upconv;
    c->x[0] = draw_image(d, c);
    Window g = draw_window(d, c->rank, up ? 2 : 0);
    c->x[0].c = g.groups = draw_int(d, 2, d->small ? 5 : 70);
    SET_WINDOW(conv, g); // both operators have the same attributes
    c->x[1] = (Dims){g.groups, g.k[0], g.k[1], g.k[2], 1};
    if (draw_bool(d)) c->x[2] = (Dims){1, 1, 1, 1, g.groups};
}

static void draw_upconv(Draw *d, OpCase *c)
{
    c->x[0] = draw_image(d, c);
    Window g = draw_window(d, c->rank, 2);
    // the window of a U-Net: kernel 2, stride 2
    if (draw_int(d, 0, 2) == 0)
        for (int i = 3 - c->rank; i < 3; i++)
            g.k[i] = g.s[i] = 2, g.lo[i] = g.hi[i] = 0, g.dil[i] = 1;
    int co = draw_channels(d, c, &g);
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

/* Sets an image of rank 1, a kernel along it and some filters. */
static void draw_line(Draw *d, OpCase *c, int width, int channels, int filters,
                      int kernel)
{
    c->rank = 1;
    c->x[0] = (Dims){1, 1, 1, width, channels};
    c->x[1] = (Dims){filters, 1, 1, kernel, channels};
    c->attr.conv.pw0 = kernel / 2, c->attr.conv.pw1 = (kernel - 1) / 2;
    if (draw_bool(d)) c->x[2] = (Dims){1, 1, 1, 1, filters};
}

/* Cases for cpu/conv/winograd.h: 3x3 windows, some with depth, full and partial
 * last 4x4 tiles, padding up to 2 on either side, channels that fill vectors
 * and slices or not. Some planes are just too small for it. */
static void draw_winograd(Draw *d, OpCase *c)
{
    bool up = c->attr.op == OP_upconv;
    int depth = draw_int(d, 0, 2) ? 1 : draw_int(d, 2, 5);
    int side = depth > 1 ? 11 : 17;

    c->rank = depth > 1 ? 3 : 2;
    c->x[0] = (Dims){draw_int(d, 0, 2) ? 1 : 3, depth, draw_int(d, 5, side),
                     draw_int(d, 8, side), PICK(d, 16, 17, 33, 64)};
    Window g = {.k = {1, 3, 3}, .s = {1, 1, 1}, .dil = {1, 1, 1}, .groups = 1};
    if (depth > 1) g.k[0] = PICK(d, 1, 2, 3, 3);
    for (int i = 0; i < 3; i++) {
        bool same = draw_bool(d);
        g.lo[i] = same ? g.k[i] / 2 : draw_int(d, 0, g.k[i] - 1);
        g.hi[i] = same ? g.k[i] / 2 : draw_int(d, 0, g.k[i] - 1);
    }

    SET_WINDOW(conv, g); // both operators have the same attributes
    int co = PICK(d, 16, 17, 33, 64, 70);
    c->x[1] = (Dims){co, g.k[0], 3, 3, c->x[0].c};
    if (up) c->x[1].n = c->x[0].c, c->x[1].c = co;
    if (draw_bool(d)) c->x[2] = (Dims){1, 1, 1, 1, co};
}

/* Cases for the tiles of cuda/conv/igemm_f32.cu: 128 positions by 64 filters,
 * 256 by 32, or 128 by 16, chunks of 8 of the k axis, chains of 512; and of
 * wgrad_f32.cu: filters x (tap, channel) 64 x 128, 32 x 128 or 64 x 16, chunks
 * of 8 positions, partial sums of 1024. One kind per case, in turn. */
static void draw_conv_tiles(Draw *d, OpCase *c)
{
    switch (d->sample % 8) {
    case 0: // the wide tiles
        draw_line(d, c, draw_edge(d, PICK(d, 128, 256)), draw_int(d, 4, 9),
                  draw_edge(d, PICK(d, 32, 64)), 3);
        break;
    case 1: // the narrow tile
        draw_line(d, c, draw_edge(d, PICK(d, 128, 256)), draw_edge(d, 16),
                  draw_edge(d, 16), draw_int(d, 1, 2));
        break;
    case 2: // long sums
        draw_line(d, c, draw_int(d, 3, 40), draw_edge(d, PICK(d, 512, 1024)),
                  PICK(d, 3, 20), 1);
        break;
    case 3: // groups, also too small for a tile
        draw_line(d, c, draw_edge(d, 64), 2 * draw_edge(d, 8),
                  2 * PICK(d, 7, 8, 9, 65), 2);
        c->x[1].c /= 2, c->attr.conv.groups = 2;
        break;
    case 4: // groups with a chain of 512
        draw_line(d, c, draw_int(d, 250, 260), 2 * draw_int(d, 3, 5),
                  2 * draw_int(d, 1, 3), 240);
        c->x[1].c /= 2, c->attr.conv.groups = 2;
        break;
    case 5: // partial sums over positions
        draw_line(d, c, draw_edge(d, PICK(d, 1024, 2048)), PICK(d, 3, 4, 5),
                  PICK(d, 5, 8), draw_int(d, 1, 3));
        break;
    case 6: // the tile of wgrad
        draw_line(d, c, draw_edge(d, PICK(d, 16, 32)),
                  draw_edge(d, PICK(d, 16, 128)), draw_edge(d, PICK(d, 32, 64)),
                  1);
        break;
    default: // the sum over dy for the bias gradient
        if (draw_bool(d))
            draw_line(d, c, 16384 + draw_int(d, -1, 1), 1, draw_int(d, 1, 2),
                      1);
        else
            draw_line(d, c, 2 * 96 + draw_int(d, -1, 1), 2, 516, 1);
        c->x[2] = (Dims){1, 1, 1, 1, c->x[1].n};
    }
}

/* The same with a stride: positions are sorted into classes, 8 per launch. */
static void draw_upconv_tiles(Draw *d, OpCase *c)
{
    int kernel = 2, filters;
    c->attr.upconv.sw = 2;

    switch (d->sample % 4) {
    case 0:
        c->x[0] = (Dims){1, 1, 1, draw_edge(d, 64), draw_edge(d, 16)};
        filters = draw_edge(d, 64);
        break;
    case 1:
        c->x[0] = (Dims){1, 1, 1, draw_edge(d, 128), draw_edge(d, 64)};
        filters = draw_edge(d, 16);
        break;
    case 2:
        c->x[0] = (Dims){2, 1, 1, 5, draw_edge(d, 512)};
        filters = PICK(d, 3, 20);
        break;
    default: // 9 classes, some of them without a tap
        c->x[0] = (Dims){1, 1, 9, draw_int(d, 6, 9), draw_int(d, 3, 9)};
        filters = draw_int(d, 3, 9);
        kernel = draw_int(d, 2, 4);
        c->attr.upconv.sh = c->attr.upconv.sw = 3;
    }

    c->rank = c->x[0].h > 1 ? 2 : 1;
    c->x[1] = (Dims){c->x[0].c, 1, c->rank > 1 ? kernel : 1, kernel, filters};
    c->x[2] = (Dims){1, 1, 1, 1, filters};
}

static void draw_linear_tiles(Draw *d, OpCase *c)
{
    bool deep = draw_bool(d);
    int n = draw_edge(d, deep ? 16 : PICK(d, 64, 128));
    int in = draw_edge(d, deep ? 512 : 16), out = draw_edge(d, PICK(d, 16, 64));
    c->x[0] = (Dims){n, 1, 1, 1, in};
    c->x[1] = (Dims){out, 1, 1, 1, in};
    c->x[2] = (Dims){1, 1, 1, 1, out};
}

/* Sets the operands for cuda/conv/igemm_tile.cuh: channels per group divisible
 * by 8, at the ends of its chunks of 32 (halves of 16) and tiles of 32, 64 and
 * 128, extents at and next to those of its boxes, windows with a stride that
 * forms groups or classes. For conv, or for upconv, where the weights have the
 * channels swapped. */
static void set_boxes(Draw *d, OpCase *c, Window g, int ci, int co)
{
    c->x[0].c = ci * g.groups;
    SET_WINDOW(conv, g); // both operators have the same attributes
    c->x[1] = (Dims){co * g.groups, g.k[0], g.k[1], g.k[2], ci};
    if (c->attr.op == OP_upconv) c->x[1].n = ci * g.groups, c->x[1].c = co;
    if (draw_bool(d)) c->x[2] = (Dims){1, 1, 1, 1, co * g.groups};
}

static void draw_boxes(Draw *d, OpCase *c)
{
    Window g = {.k = {1, 1, 1}, .s = {1, 1, 1}, .dil = {1, 1, 1}, .groups = 1};
    int ci = PICK(d, 8, 16, 24, 32, 40), co = PICK(d, 8, 24, 32, 40);
    c->rank = 2;
    c->x[0] =
        (Dims){draw_int(d, 1, 2), 1, draw_edge(d, 8), draw_edge(d, 16), ci};
    for (int i = 1; i < 3; i++) g.k[i] = 3, g.lo[i] = g.hi[i] = 1;

    switch (d->sample % 8) {
    case 0: // the common case
        break;
    case 1: // in three dimensions, strided half of the time
        c->rank = 3;
        c->x[0] = (Dims){draw_int(d, 1, 2), draw_edge(d, 4), draw_edge(d, 4),
                         draw_edge(d, 8), ci};
        g.k[0] = g.k[1] = g.k[2] = PICK(d, 3, 4);
        g.s[0] = g.s[1] = g.s[2] = g.k[0] - 2;
        g.lo[0] = g.hi[0] = 1;
        ci = PICK(d, 8, 16), co = PICK(d, 8, 24);
        break;
    case 2: // one tap, all channels
        g.k[1] = g.k[2] = 1, g.lo[1] = g.lo[2] = 0, g.hi[1] = g.hi[2] = 0;
        g.s[2] = draw_int(d, 1, 2);
        ci = PICK(d, 32, 64, 72, 136), co = PICK(d, 16, 64, 72, 136);
        break;
    case 3: // wide windows; for the widest no halo fits
        g.k[1] = g.k[2] = PICK(d, 5, 7);
        g.dil[1] = PICK(d, 1, 1, 5), g.dil[2] = PICK(d, 1, 2, 5);
        for (int i = 1; i < 3; i++) {
            g.lo[i] = g.dil[i] * draw_int(d, 2, 3);
            g.hi[i] = g.dil[i] * draw_int(d, 2, 4);
        }
        ci = PICK(d, 8, 16), co = PICK(d, 8, 16);
        break;
    case 4: // strides equal to, below and above the kernel
        for (int i = 1; i < 3; i++) {
            g.k[i] = draw_int(d, 1, 4), g.s[i] = draw_int(d, 1, 3);
            g.dil[i] = draw_int(d, 1, 3);
            g.lo[i] = draw_int(d, 0, 3), g.hi[i] = draw_int(d, 0, 3);
        }
        break;
    case 5: // half an image, and back
        g.k[1] = g.k[2] = g.s[1] = g.s[2] = 2;
        g.lo[1] = g.lo[2] = 0, g.hi[1] = g.hi[2] = 0;
        ci = PICK(d, 16, 32, 64);
        break;
    case 6: // groups
        g.groups = draw_int(d, 2, 3);
        ci = PICK(d, 8, 16, 24), co = PICK(d, 8, 24, 40);
        break;
    default: // long sums of few positions: split-K, and a chain of 512
        c->rank = 3;
        c->x[0] = (Dims){draw_int(d, 1, 3), 2, 3, draw_int(d, 2, 3), ci};
        g.k[0] = 3, g.lo[0] = g.hi[0] = 1;
        ci = PICK(d, 104, 136, 320), co = PICK(d, 8, 24, 72);
        if (ci > 136) co = 8;
    }
    set_boxes(d, c, g, ci, co);
}

/* Cases for the larger tiles, of 32, 64 and 128 channels: for y, and for
 * dx. They are used if the number of results matches, or if requested
 * (Backend.tile: 1 is 128x128, 2 128x64). */
static void draw_many(Draw *d, OpCase *c)
{
    const struct {
        int ci, co, positions;
        int8_t tile[2];
    } many[] = {{24, 24, 9200, {0, 0}},
                {56, 56, 300, {2, 2}},
                {8, 120, 300, {1, 0}},
                {120, 8, 15400, {0, 0}}};
    const int i = (int)d->sample % 4;
    Window g = {.k = {1, 1, 2}, .s = {1, 1, 1}, .dil = {1, 1, 1}, .groups = 1};

    g.lo[2] = draw_int(d, 0, 1), g.hi[2] = draw_int(d, 0, 1);
    c->rank = 1;
    c->x[0] =
        (Dims){1, 1, 1, many[i].positions + draw_int(d, 0, 99), many[i].ci};
    memcpy(c->tile, many[i].tile, sizeof c->tile);
    set_boxes(d, c, g, many[i].ci, many[i].co);
}

/* A window of one: long sums, in one block or several. */
static void draw_linear_long(Draw *d, OpCase *c)
{
    const int out = (const int[]){8, 64, 72}[d->sample % 3];
    const int in =
        out > 8 ? PICK(d, 2040, 2080, 4104) : PICK(d, 2040, 4104, 8200);
    const int rows = in < 4096 ? PICK(d, 2, 64) : 2;
    c->x[0] = (Dims){draw_edge(d, rows), 1, 1, 1, in};
    c->x[1] = (Dims){out, 1, 1, 1, in};
    c->x[2] = (Dims){1, 1, 1, 1, out};
}

/* Cases for the Hopper kernels, cuda/conv/igemm_sm90*.cu and wgrad_sm90.cu:
 * channels in chunks of 64, padded or not, or pairs of positions of 32; planes
 * of one or two boxes of 8 x 32 positions and next to them, and planes of about
 * 16 x 16. Other GPUs run igemm_tile. */
static void draw_hopper(Draw *d, OpCase *c)
{
    Window g = {.k = {1, 3, 3}, .s = {1, 1, 1}, .dil = {1, 1, 1}, .groups = 1};
    int ci = 64, co = 64;
    c->rank = 2;
    c->x[0] = (Dims){1, 1, draw_edge(d, 32), draw_edge(d, 8), ci};
    for (int i = 1; i < 3; i++) g.lo[i] = g.hi[i] = 1;

    switch (d->sample % 5) {
    case 0: // one chunk of channels
        break;
    case 1: // pairs
        ci = co = 32;
        c->x[0].w = PICK(d, 6, 8, 10, 16);
        break;
    case 2: // padded chunks, also with one tap
        g.k[1] = g.k[2] = PICK(d, 1, 3);
        for (int i = 1; i < 3; i++) g.lo[i] = g.hi[i] = g.k[i] / 2;
        ci = PICK(d, 56, 104), co = PICK(d, 56, 96, 128);
        break;
    case 3: // 16 x 16
        c->x[0].h = draw_edge(d, 16), c->x[0].w = draw_edge(d, 16);
        co = PICK(d, 64, 128);
        break;
    default: // half an image, and back
        for (int i = 1; i < 3; i++) {
            g.k[i] = PICK(d, 2, 4), g.s[i] = 2;
            g.lo[i] = g.hi[i] = g.k[i] / 2 - 1;
        }
        c->x[0].h = 2 * draw_int(d, 8, 9), c->x[0].w = 16;
        ci = PICK(d, 64, 128), co = PICK(d, 64, 128);
    }
    set_boxes(d, c, g, ci, co);
}

const OpSuite suites_conv[] = {
    {.op = OP_conv, .draw = draw_conv, .wrt = 7},
    {.note = "depthwise", .op = OP_conv, .draw = draw_depthwise, .wrt = 7},
    {.note = "depthwise", .op = OP_upconv, .draw = draw_depthwise, .wrt = 7},
    {.op = OP_upconv, .draw = draw_upconv, .wrt = 7},
    {.op = OP_linear, .draw = draw_linear, .wrt = 7},
    {.note = "winograd",
     .of = "cpu",
     .op = OP_conv,
     .draw = draw_winograd,
     .wrt = 7,
     .cases = 30},
    {.note = "winograd",
     .of = "cpu",
     .op = OP_upconv,
     .draw = draw_winograd,
     .wrt = 7,
     .cases = 10},
    {.note = "tiles",
     .of = "cuda",
     .op = OP_conv,
     .draw = draw_conv_tiles,
     .wrt = 7,
     .cases = 24},
    {.note = "tiles",
     .of = "cuda",
     .op = OP_upconv,
     .draw = draw_upconv_tiles,
     .wrt = 7,
     .cases = 12},
    {.note = "tiles",
     .of = "cuda",
     .op = OP_linear,
     .draw = draw_linear_tiles,
     .wrt = 7,
     .cases = 9},
    {.note = "boxes",
     .of = "cuda",
     .op = OP_conv,
     .draw = draw_boxes,
     .wrt = 7,
     .cases = 24},
    {.note = "boxes",
     .of = "cuda",
     .op = OP_upconv,
     .draw = draw_boxes,
     .wrt = 7,
     .cases = 24},
    {.note = "Hopper",
     .of = "cuda",
     .op = OP_conv,
     .draw = draw_hopper,
     .wrt = 7,
     .narrow = true,
     .cases = 15},
    {.note = "Hopper",
     .of = "cuda",
     .op = OP_upconv,
     .draw = draw_hopper,
     .wrt = 7,
     .narrow = true,
     .cases = 15},
    {.note = "many",
     .of = "cuda",
     .op = OP_conv,
     .draw = draw_many,
     .wrt = 1,
     .cases = 4},
    {.note = "long",
     .of = "cuda",
     .op = OP_linear,
     .draw = draw_linear_long,
     .wrt = 7,
     .cases = 6},
    {.draw = NULL},
};
