/* suite_elementwise.c -- operators on elements or on rows of channels, and
 * operators that only move numbers: add .. div, scale, concat, slice, pad,
 * flatten, the activations, the functions of elementwise.def, softmax, the two
 * dropouts. */
#include "engine/check/suite.h"

static void draw_one(Draw *d, OpCase *c)
{
    c->x[0] = draw_image(d, c);
}

/* Each extent of either operand stays or becomes 1. */
static void draw_pair(Draw *d, OpCase *c)
{
    Dims s = draw_image(d, c);
    c->x[0] = c->x[1] = s;
    for (int i = 0; i < 2; i++) {
        // half of the operands keep all extents
        if (draw_bool(d)) continue;
        int32_t *e = &c->x[i].n;
        for (int k = 0; k < 5; k++)
            if (draw_bool(d)) e[k] = 1;
    }
}

/* Broadcasts: an operand is repeated a few times, many times, in several
 * partial sums (cuda/ops/broadcast.cu: 64 and 2048), along channels or not. */
static void draw_repeats(Draw *d, OpCase *c)
{
    int times = draw_edge(d, PICK(d, 64, 2048, 4096));
    int ch = PICK(d, 1, 3, 31, 32, 33, 65), which = draw_bool(d);
    c->rank = 1;
    if (times > 2048 && ch > 33) ch = 33;
    Dims s = {1, 1, 1, times, ch};
    c->x[0] = c->x[1] = s;
    c->x[which].w = 1;

    switch (draw_int(d, 0, 2)) {
    case 0: // channels too, for many of them
        c->x[which].c = 1;
        break;
    case 1: // only some positions, the others keep their extent
        c->rank = 2;
        c->x[0].h = c->x[1].h = draw_int(d, 2, 3);
        break;
    default:
        break;
    }
}

static void draw_scale(Draw *d, OpCase *c)
{
    c->x[0] = draw_image(d, c);
    c->attr.scale.mul = draw_real(d, -3, 3);
    c->attr.scale.add = draw_real(d, -3, 3);
}

static void draw_power(Draw *d, OpCase *c)
{
    c->x[0] = draw_image(d, c);
    c->attr.power.exponent = (float)PICK(d, 2, -1, 3, 1);
    if (draw_bool(d)) c->attr.power.exponent = draw_real(d, -3, 3);
}

static void draw_clamp(Draw *d, OpCase *c)
{
    c->x[0] = draw_image(d, c);
    c->attr.clamp.min = -0.001f;
    c->attr.clamp.max = draw_bool(d) ? 0.005f : 5;
}

static void draw_reduction(Draw *d, OpCase *c)
{
    c->x[0] = draw_image(d, c);
    int32_t *flag = &c->attr.sum.d;
    const int flags = op_info[c->attr.op].attrs;
    for (int i = 0; i < flags; i++) flag[i] = draw_bool(d);
}

/* Some terms, many terms, several partial sums (cuda/ops/broadcast.cu). */
static void draw_long_reduction(Draw *d, OpCase *c)
{
    c->rank = 2;
    c->x[0] =
        (Dims){draw_int(d, 1, 2), 1, draw_int(d, 1, 3),
               draw_edge(d, PICK(d, 64, 2048, 4096)), PICK(d, 1, 3, 32, 33)};
    c->attr.sum.w = 1;
    c->attr.sum.h = draw_bool(d), c->attr.sum.c = draw_bool(d);
    c->attr.sum.drop = draw_bool(d);
    if (c->attr.op == OP_sum) c->attr.sum.mean = draw_bool(d);
}

static void draw_constant(Draw *d, OpCase *c)
{
    c->x[0] = draw_image(d, c);
    c->attr.constant.value = draw_real(d, -3, 3);
}

static void draw_concat(Draw *d, OpCase *c)
{
    Dims s = draw_image(d, c);
    int count = draw_int(d, 1, MAX_IN);
    for (int i = 0; i < count; i++) {
        c->x[i] = s;
        c->x[i].c = draw_int(d, 1, d->small ? 3 : 20);
    }
}

static void draw_slice(Draw *d, OpCase *c)
{
    Dims s = c->x[0] = draw_image(d, c);
    // also multiples of four channels, which kernels copy as vectors
    int four = draw_bool(d) ? 4 : 1;
    c->x[0].c *= four;
    int32_t extent[4] = {s.d, s.h, s.w, s.c}, *box = &c->attr.slice.d0;
    for (int i = 0; i < 4; i++) {
        int unit = i == 3 ? four : 1, from = draw_int(d, 0, extent[i] - 1);
        box[2 * i] = unit * from;
        // 0 means up to the end
        box[2 * i + 1] = unit * draw_int(d, 0, extent[i] - from);
    }
}

static void draw_pad(Draw *d, OpCase *c)
{
    c->x[0] = draw_image(d, c);
    // words 1..6 are d, h, w before and after: only existing axes
    for (int i = 0; i < 2 * c->rank; i++)
        c->attr.word[6 - i] = draw_int(d, 0, 3);
    c->attr.pad.value = draw_real(d, -2, 2);
}

static void draw_leaky_relu(Draw *d, OpCase *c)
{
    c->x[0] = draw_image(d, c);
    c->attr.leaky_relu.slope = draw_real(d, 0.01f, 0.5f);
}

static void draw_dropout(Draw *d, OpCase *c)
{
    c->x[0] = draw_image(d, c);
    float p = draw_int(d, 0, 4) ? draw_real(d, 0, 1) : (float)draw_bool(d);
    if (c->attr.op == OP_dropout)
        c->attr.dropout.p = p;
    else
        c->attr.spatial_dropout.p = p;
    c->eval = draw_int(d, 0, 5) == 0;
}

const OpSuite suites_elementwise[] = {
    {.op = OP_add, .draw = draw_pair, .wrt = 3},
    {.op = OP_sub, .draw = draw_pair, .wrt = 3},
    {.op = OP_mul, .draw = draw_pair, .wrt = 3},
    {.op = OP_div,
     .draw = draw_pair,
     .wrt = 3,
     .fill = {{FILL_NORMAL, 0, 0}, {FILL_GAP, 0.5, 2}}},
    {.op = OP_scale, .draw = draw_scale, .wrt = 1},
    {.op = OP_concat, .draw = draw_concat, .wrt = 63},
    {.op = OP_slice, .draw = draw_slice, .wrt = 1},
    {.op = OP_pad, .draw = draw_pad, .wrt = 1},
    {.op = OP_flatten, .draw = draw_one, .wrt = 1},
    {.op = OP_relu, .draw = draw_one, .wrt = 1, .fill = {{FILL_GAP, 0.01, 2}}},
    {.op = OP_leaky_relu,
     .draw = draw_leaky_relu,
     .wrt = 1,
     .fill = {{FILL_GAP, 0.01, 2}}},
    {.op = OP_sigmoid,
     .draw = draw_one,
     .wrt = 1,
     .fill = {{FILL_RANGE, -6, 6}}},
    {.op = OP_tanh, .draw = draw_one, .wrt = 1, .fill = {{FILL_RANGE, -4, 4}}},
    {.op = OP_gelu, .draw = draw_one, .wrt = 1, .fill = {{FILL_RANGE, -6, 6}}},
    {.op = OP_silu, .draw = draw_one, .wrt = 1, .fill = {{FILL_RANGE, -6, 6}}},
    {.op = OP_exp, .draw = draw_one, .wrt = 1, .fill = {{FILL_RANGE, -4, 4}}},
    {.op = OP_log, .draw = draw_one, .wrt = 1, .fill = {{FILL_RANGE, 0.1, 4}}},
    {.op = OP_log1p,
     .draw = draw_one,
     .wrt = 1,
     .fill = {{FILL_RANGE, -0.8, 4}}},
    {.op = OP_sqrt, .draw = draw_one, .wrt = 1, .fill = {{FILL_RANGE, 0.1, 4}}},
    {.op = OP_rsqrt,
     .draw = draw_one,
     .wrt = 1,
     .fill = {{FILL_RANGE, 0.1, 4}}},
    {.op = OP_abs, .draw = draw_one, .wrt = 1, .fill = {{FILL_GAP, 0.01, 2}}},
    {.op = OP_sin, .draw = draw_one, .wrt = 1, .fill = {{FILL_RANGE, -9, 9}}},
    {.op = OP_cos, .draw = draw_one, .wrt = 1, .fill = {{FILL_RANGE, -9, 9}}},
    {.op = OP_erf, .draw = draw_one, .wrt = 1, .fill = {{FILL_RANGE, -3, 3}}},
    {.op = OP_power,
     .draw = draw_power,
     .wrt = 1,
     .fill = {{FILL_RANGE, 0.2, 3}}},
    // limits between the two halves of the operand's range, and above it
    {.op = OP_clamp,
     .draw = draw_clamp,
     .wrt = 1,
     .fill = {{FILL_GAP, 0.01, 2}}},
    {.op = OP_sign, .draw = draw_one, .fill = {{FILL_CLASS, -1, 1}}},
    {.op = OP_floor, .draw = draw_one, .fill = {{FILL_RANGE, -4, 4}}},
    {.op = OP_round, .draw = draw_one, .fill = {{FILL_RANGE, -4, 4}}},
    // either operand is the larger one, never by less than 0.1
    {.op = OP_max,
     .draw = draw_pair,
     .wrt = 3,
     .fill = {{FILL_GAP, 1, 2}, {FILL_RANGE, -0.9, 0.9}}},
    {.op = OP_min,
     .draw = draw_pair,
     .wrt = 3,
     .fill = {{FILL_GAP, 1, 2}, {FILL_RANGE, -0.9, 0.9}}},
    {.op = OP_pow,
     .draw = draw_pair,
     .wrt = 3,
     .fill = {{FILL_RANGE, 0.2, 3}, {FILL_RANGE, -2, 2}}},
    // quotients are no whole numbers
    {.op = OP_mod,
     .draw = draw_pair,
     .wrt = 3,
     .fill = {{FILL_RANGE, 0.2, 0.8}, {FILL_GAP, 1, 2}}},
    {.op = OP_select,
     .draw = draw_pair,
     .wrt = 2,
     .fill = {{FILL_CLASS, 0, 1}, {FILL_NORMAL, 0, 0}}},
    // also whole quotients
    {.op = OP_floor_div,
     .draw = draw_pair,
     .fill = {{FILL_CLASS, -40, 40}, {FILL_CLASS, 1, 7}}},
    {.op = OP_gt,
     .draw = draw_pair,
     .fill = {{FILL_CLASS, 0, 2}, {FILL_CLASS, 0, 2}}},
    {.op = OP_ge,
     .draw = draw_pair,
     .fill = {{FILL_CLASS, 0, 2}, {FILL_CLASS, 0, 2}}},
    {.op = OP_eq,
     .draw = draw_pair,
     .fill = {{FILL_CLASS, 0, 2}, {FILL_CLASS, 0, 2}}},
    {.op = OP_stop, .draw = draw_one},
    {.op = OP_constant, .draw = draw_constant},
    {.op = OP_sum, .draw = draw_reduction, .wrt = 1},
    {.op = OP_amax,
     .draw = draw_reduction,
     .wrt = 1,
     .fill = {{FILL_DISTINCT, -2, 2}}},
    {.note = "many terms",
     .op = OP_sum,
     .draw = draw_long_reduction,
     .wrt = 1,
     .cases = 12},
    {.note = "many terms",
     .op = OP_amax,
     .draw = draw_long_reduction,
     .wrt = 1,
     .fill = {{FILL_DISTINCT, -2, 2}},
     .cases = 12},
    {.op = OP_softmax,
     .draw = draw_one,
     .wrt = 1,
     .fill = {{FILL_RANGE, -5, 5}}},
    {.op = OP_dropout, .draw = draw_dropout, .wrt = 1},
    {.op = OP_spatial_dropout, .draw = draw_dropout, .wrt = 1},
    {.note = "repeats",
     .op = OP_add,
     .draw = draw_repeats,
     .wrt = 3,
     .cases = 12},
    {.note = "repeats",
     .op = OP_sub,
     .draw = draw_repeats,
     .wrt = 3,
     .cases = 6},
    {.note = "repeats",
     .op = OP_mul,
     .draw = draw_repeats,
     .wrt = 3,
     .cases = 12},
    {.note = "repeats",
     .op = OP_div,
     .draw = draw_repeats,
     .wrt = 3,
     .fill = {{FILL_NORMAL, 0, 0}, {FILL_GAP, 0.5, 2}},
     .cases = 9},
    {.note = "tiles",
     .op = OP_flatten,
     .draw = draw_one,
     .wrt = 1,
     .image = image_turn,
     .cases = 12},
    {.note = "long rows",
     .op = OP_softmax,
     .draw = draw_one,
     .wrt = 1,
     .fill = {{FILL_RANGE, -5, 5}},
     .image = image_channels,
     .cases = 18},
    {.note = "few channels",
     .op = OP_softmax,
     .draw = draw_one,
     .wrt = 1,
     .fill = {{FILL_RANGE, -5, 5}},
     .image = image_few,
     .cases = 12},
    {.note = "parts",
     .op = OP_dropout,
     .draw = draw_dropout,
     .wrt = 1,
     .image = image_parts,
     .cases = 9},
    {.note = "parts",
     .op = OP_spatial_dropout,
     .draw = draw_dropout,
     .wrt = 1,
     .image = image_walk,
     .cases = 9},
    // its gradient is y (dy - sum of y dy), which cancels nearly equal numbers
    // where y is 1: the error of a float sum proves nothing there
    {.note = "far apart",
     .op = OP_softmax,
     .draw = draw_one,
     .fill = {{FILL_RANGE, -40, 40}},
     .cases = 6},
    {.note = "near 0",
     .op = OP_div,
     .draw = draw_pair,
     .wrt = 3,
     .fill = {{FILL_NORMAL, 0, 0}, {FILL_GAP, 1e-6, 1e-3}},
     .cases = 6},
    {.draw = NULL},
};
