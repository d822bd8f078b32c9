/* suite_sequence.c -- LSTM, attention, and operators with lengths.
 *
 * Lengths are drawn from 0 to one more than the number of positions, whole and
 * fractional: a position is valid if p < lengths[n]. */
#include "engine/check/suite.h"

#define DISTINCT             \
    {                        \
        FILL_DISTINCT, -1, 1 \
    }

/* Sets operand i to lengths of x0's samples. */
static void draw_lengths(Draw *d, OpCase *c, int i)
{
    c->x[i] = (Dims){c->x[0].n, 1, 1, 1, 1};
    c->fill[i] = (Fill){draw_bool(d) ? FILL_CLASS : FILL_RANGE, 0,
                        (double)positions(c->x[0]) + 1};
}

/* The same in two draws of three. */
static void maybe_lengths(Draw *d, OpCase *c, int i)
{
    if (draw_int(d, 0, 2)) draw_lengths(d, c, i);
}

static void draw_masked(Draw *d, OpCase *c)
{
    c->x[0] = draw_image(d, c);
    draw_lengths(d, c, 1);
}

static void draw_last(Draw *d, OpCase *c)
{
    c->x[0] = draw_image(d, c);
    maybe_lengths(d, c, 1);
}

/* Sets a layer of `units` with `steps` steps and n samples. */
static void set_lstm(Draw *d, OpCase *c, int n, int steps, int units)
{
    c->rank = 1;
    c->x[0] = (Dims){n, 1, 1, steps, 4 * units};
    c->x[1] = (Dims){4 * units, 1, 1, 1, units};
    if (draw_int(d, 0, 3)) c->x[2] = (Dims){1, 1, 1, 1, 4 * units};
    maybe_lengths(d, c, 3);
    c->attr.lstm.reverse = draw_bool(d);
}

static void draw_lstm(Draw *d, OpCase *c)
{
    int units = draw_int(d, 1, d->small ? 3 : 9);
    if (!d->small && draw_int(d, 0, 3) == 0) units = draw_int(d, 10, 40);
    set_lstm(d, c, draw_int(d, 1, d->small ? 3 : 5),
             draw_int(d, 1, d->small ? 5 : 19), units);
}

/* More samples than a task of the CPU has, and numbers of units at the limits
 * of a GPU block (cuda/ops/lstm.cu). */
static void draw_wide_lstm(Draw *d, OpCase *c)
{
    static const struct {
        int n, steps, units;
    } table[] = {{70, 3, 5},  {3, 4, 64},  {2, 3, 65},  {9, 3, 72}, {17, 3, 80},
                 {1, 3, 129}, {5, 2, 160}, {2, 2, 300}, {2, 2, 520}};
    int i = (int)(d->sample % (sizeof table / sizeof *table));
    set_lstm(d, c, table[i].n, table[i].steps, table[i].units);
}

/* Sets heads with 3 D channels each. */
static void set_attention(Draw *d, OpCase *c, int depth)
{
    int heads = draw_int(d, 1, 3);
    c->x[0].c = 3 * heads * depth;
    c->attr.attention.heads = heads;
    maybe_lengths(d, c, 1);
    c->eval = draw_int(d, 0, 2) == 0;
    if (draw_int(d, 0, 2) == 0) c->attr.attention.p = draw_real(d, 0.1f, 0.6f);
}

static void draw_attention(Draw *d, OpCase *c)
{
    c->x[0] = draw_image(d, c);
    set_attention(d, c, draw_int(d, 1, d->small ? 3 : 9));
}

/* Sequences around blocks of 64 positions and tasks of 192
 * (cpu/ops/attention.c), of 32 and 64 (cuda/ops/attention.cu); more channels
 * than any block has. */
static void draw_long_attention(Draw *d, OpCase *c)
{
    c->rank = 1;
    c->x[0] = (Dims){draw_int(d, 1, 2), 1, 1,
                     draw_edge(d, PICK(d, 32, 64, 128, 192)), 3};
    set_attention(d, c, PICK(d, 1, 3, 8, 16, 31, 32, 33, 64, 100));
}

const OpSuite suites_sequence[] = {
    {.op = OP_lstm, .draw = draw_lstm, .wrt = 7},
    {.op = OP_attention, .draw = draw_attention, .wrt = 1},
    {.op = OP_mask_length, .draw = draw_masked, .wrt = 1},
    {.op = OP_last_step, .draw = draw_last, .wrt = 1},
    {.note = "lengths", .op = OP_global_avgpool, .draw = draw_masked, .wrt = 1},
    {.note = "lengths",
     .op = OP_global_maxpool,
     .draw = draw_masked,
     .wrt = 1,
     .fill = {DISTINCT}},
    {.note = "wide",
     .op = OP_lstm,
     .draw = draw_wide_lstm,
     .wrt = 7,
     .cases = 9},
    {.note = "blocks",
     .op = OP_attention,
     .draw = draw_long_attention,
     .wrt = 1,
     .cases = 10},
    {.note = "far apart",
     .op = OP_attention,
     .draw = draw_attention,
     .wrt = 1,
     .fill = {{FILL_NORMAL, 0, 5}},
     .cases = 6},
    {.draw = NULL},
};
