/* suite_shape.c -- operators that only move the elements of a sample, running
 * sums, and products of matrices. */
#include "engine/check/suite.h"

/* Numbers of the axes that a sample of this rank has: 0 d, 1 h, 2 w, 3 c.
 * Returns how many. */
static int own_axes(int rank, int list[4])
{
    int n = 0;
    for (int i = 3 - rank; i < 4; i++) list[n++] = i;
    return n;
}

/* Draws an axis of a sample of this rank. */
static int draw_axis(Draw *d, int rank)
{
    return draw_int(d, 3 - rank, 3);
}

/* A divisor of n, at most 12. */
static int32_t draw_divisor(Draw *d, int32_t n)
{
    int v = draw_int(d, 1, n < 12 ? n : 12);
    while (n % v) v--;
    return v;
}

static void draw_reshape(Draw *d, OpCase *c)
{
    Dims s = c->x[0] = draw_image(d, c);
    int32_t left = s.d * s.h * s.w * s.c, *extent = &c->attr.reshape.d;
    const int rank = draw_int(d, 0, 3);
    int open = draw_axis(d, rank);
    // channels of a multiple of those of x may be in 16 bits as those are
    if (draw_bool(d)) open = 3, left /= s.c;
    c->attr.reshape.rank = rank;
    c->attr.reshape.channels_last = draw_int(d, 0, 3) == 0;
    for (int i = 3 - rank; i < 4; i++) {
        if (i == open) continue;
        extent[i] = draw_divisor(d, left);
        left /= extent[i];
    }
    // channels are multiplied for 16 bits, so they are what remains
    extent[open] = open == 3 || draw_bool(d) ? -1 : left;
}

/* To and from one position; both of many positions with other channels. */
static void draw_turn(Draw *d, OpCase *c)
{
    Dims s = c->x[0] = draw_image(d, c);
    int32_t *extent = &c->attr.reshape.d;
    extent[3] = -1;
    switch (draw_int(d, 0, 2)) {
    case 0:
        c->attr.reshape.rank = 0;
        break;
    case 1:
        c->rank = 0;
        c->x[0] = (Dims){s.n, 1, 1, 1, s.w * s.c};
        c->attr.reshape.rank = 1, extent[2] = s.w;
        break;
    default:
        c->attr.reshape.rank = 1, extent[2] = draw_divisor(d, s.w * s.c);
    }
}

static void draw_permute(Draw *d, OpCase *c)
{
    int list[4];
    c->x[0] = draw_image(d, c);
    const int n = own_axes(c->rank, list);
    for (int i = n - 1; i > 0; i--) {
        const int k = draw_int(d, 0, i), old = list[i];
        list[i] = list[k], list[k] = old;
    }
    for (int i = 0; i < n; i++) c->attr.word[1 + 4 - n + i] = list[i];
}

/* Channels that move, in the tiles of cuda/ops/transpose.cuh, and with 8 or 16
 * of both extents, which may be in 16 bits. */
static void draw_tiles(Draw *d, OpCase *c)
{
    draw_image(d, c);
    const bool eight = draw_bool(d);
    c->rank = 3;
    c->x[0] =
        (Dims){draw_int(d, 1, 2), draw_int(d, 1, 2), draw_int(d, 1, 3),
               eight ? PICK(d, 8, 16, 40) : draw_edge(d, PICK(d, 8, 32, 64)),
               eight ? PICK(d, 8, 16, 40) : draw_edge(d, PICK(d, 8, 32, 64))};
    const int other = draw_int(d, 0, 2);
    if (other < 2) {
        int32_t *e = other ? &c->x[0].h : &c->x[0].d, small = *e;
        *e = c->x[0].w, c->x[0].w = small;
    }
    c->attr.word[1 + 3] = other, c->attr.word[1 + other] = 3;
    if (draw_bool(d)) { // and the other two axes change places
        const int a = other == 0, b = other == 2 ? 1 : 2;
        c->attr.word[1 + a] = b, c->attr.word[1 + b] = a;
    }
}

static void draw_flip(Draw *d, OpCase *c)
{
    c->x[0] = draw_image(d, c);
    for (int i = 0; i < 4; i++) c->attr.word[1 + i] = draw_bool(d);
}

static void draw_roll(Draw *d, OpCase *c)
{
    c->x[0] = draw_image(d, c);
    for (int i = 0; i < 4; i++)
        c->attr.word[1 + i] = draw_bool(d) ? draw_int(d, -25, 25) : 0;
}

static void draw_repeats(Draw *d, OpCase *c)
{
    c->x[0] = draw_image(d, c);
    for (int i = 3 - c->rank; i < 4; i++)
        c->attr.word[1 + i] = draw_int(d, 1, d->small ? 2 : 3);
}

/* Copies in one thread, or in a block of 256 (cuda/ops/rearrange.cu: 64). */
static void draw_many_repeats(Draw *d, OpCase *c)
{
    c->rank = 2;
    c->x[0] = (Dims){draw_int(d, 1, 2), 1, draw_int(d, 1, 2), draw_int(d, 1, 2),
                     PICK(d, 1, 3, 4, 8)};
    c->attr.repeats.w = draw_edge(d, PICK(d, 64, 256, 512));
    c->attr.repeats.h = draw_int(d, 1, 2),
    c->attr.repeats.c = draw_int(d, 1, 2);
}

static void draw_cumsum(Draw *d, OpCase *c)
{
    c->x[0] = draw_image(d, c);
    c->attr.cumsum.axis = draw_axis(d, c->rank);
    c->attr.cumsum.reverse = draw_bool(d);
}

/* Lines at the extents of cuda/ops/cumsum.cu: scans from 33 elements on, 256 at
 * a time, unless 4096 lines lie side by side. */
static void draw_long_cumsum(Draw *d, OpCase *c)
{
    const int many = draw_int(d, 0, 3) == 0;
    c->rank = 1;
    c->x[0] = (Dims){draw_int(d, 1, 2), 1, 1,
                     many ? draw_int(d, 33, 40)
                          : draw_edge(d, PICK(d, 33, 256, 512, 768)),
                     many ? 4096 : PICK(d, 1, 3, 65)};
    c->attr.cumsum.axis = c->x[0].c == 65 ? 3 : 2;
    c->attr.cumsum.reverse = draw_bool(d);
}

/* Matrices m by k and k by n at each place of `s`; each operand may have one
 * for several. */
static void set_matmul(Draw *d, OpCase *c, Dims s, int m, int k, int n)
{
    const bool ta = draw_bool(d), tb = draw_bool(d);
    c->attr.matmul.transpose_a = ta, c->attr.matmul.transpose_b = tb;
    c->x[0] = c->x[1] = s;
    for (int i = 0; i < 2; i++) {
        if (draw_bool(d)) continue;
        int32_t *e = &c->x[i].n;
        for (int axis = 0; axis < 3; axis++)
            if (draw_bool(d)) e[axis] = 1;
    }
    c->x[0].w = ta ? k : m, c->x[0].c = ta ? m : k;
    c->x[1].w = tb ? n : k, c->x[1].c = tb ? k : n;
}

static void draw_matmul(Draw *d, OpCase *c)
{
    const int most = d->small ? 5 : 21;
    Dims s = {draw_int(d, 1, 3), 1, 1, 1, 1};
    c->rank = draw_int(d, 1, 3);
    if (c->rank > 2) s.d = draw_int(d, 1, 3);
    if (c->rank > 1) s.h = draw_int(d, 1, 3);
    set_matmul(d, c, s, draw_int(d, 1, most), draw_int(d, 1, most),
               draw_int(d, 1, most));
}

/* Tiles of 64 by 64 by 16 and chains of 512 (cuda/ops/matmul.cu); 192 rows, 512
 * terms and four panels of 16 to 64 columns (cpu/ops/matmul.c). */
static void draw_blocks(Draw *d, OpCase *c)
{
    c->rank = 2;
    const bool deep = draw_int(d, 0, 3) == 0;
    Dims s = {draw_int(d, 1, 2), 1, draw_int(d, 1, 2), 1, 1};
    set_matmul(d, c, s, draw_edge(d, PICK(d, 16, 64, deep ? 64 : 192)),
               deep ? draw_edge(d, PICK(d, 512, 1024))
                    : draw_edge(d, PICK(d, 16, 64)),
               draw_edge(d, PICK(d, 16, 64, deep ? 64 : 256)));
}

const OpSuite suites_shape[] = {
    {.op = OP_reshape, .draw = draw_reshape, .wrt = 1},
    {.op = OP_permute, .draw = draw_permute, .wrt = 1},
    {.op = OP_flip, .draw = draw_flip, .wrt = 1},
    {.op = OP_roll, .draw = draw_roll, .wrt = 1},
    {.op = OP_repeats, .draw = draw_repeats, .wrt = 1},
    {.op = OP_cumsum, .draw = draw_cumsum, .wrt = 1},
    {.op = OP_matmul, .draw = draw_matmul, .wrt = 3},
    {.note = "tiles",
     .op = OP_reshape,
     .draw = draw_turn,
     .wrt = 1,
     .image = image_turn,
     .cases = 12},
    {.note = "tiles",
     .op = OP_permute,
     .draw = draw_tiles,
     .wrt = 1,
     .cases = 18},
    {.note = "many copies",
     .op = OP_repeats,
     .draw = draw_many_repeats,
     .wrt = 1,
     .cases = 12},
    {.note = "long lines",
     .op = OP_cumsum,
     .draw = draw_long_cumsum,
     .wrt = 1,
     .cases = 18},
    {.note = "blocks",
     .op = OP_matmul,
     .draw = draw_blocks,
     .wrt = 3,
     .cases = 12},
    {.draw = NULL},
};
