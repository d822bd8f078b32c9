/* suite_loss.c -- the losses, and the counts for metrics. */
#include "engine/check/suite.h"
#include <string.h>

/* Draws extents of a mask or weight for s: absent, equal or partly 1. */
static Dims draw_part(Draw *d, Dims s)
{
    int kind = draw_int(d, 0, 3);
    if (kind == 0) return (Dims){0};
    int32_t *e = &s.n;
    for (int k = 0; kind > 1 && k < 5; k++)
        if (draw_bool(d)) e[k] = 1;
    return s;
}

/* Draws x, its mask (0 and 1, sometimes between) and its weight. */
static Dims draw_loss(Draw *d, OpCase *c)
{
    Dims s = c->x[0] = draw_image(d, c);
    c->x[2] = draw_part(d, s), c->x[3] = draw_part(d, s);
    c->fill[2] = (Fill){draw_int(d, 0, 3) ? FILL_CLASS : FILL_RANGE, 0, 1};
    c->fill[3] = (Fill){FILL_RANGE, 0, 2};
    return s;
}

/* Draws a target of 0 and 1, sometimes soft, sometimes all 0. */
static void draw_truth(Draw *d, OpCase *c)
{
    static const Fill kind[4] = {
        {FILL_CLASS, 0, 1},
        {FILL_CLASS, 0, 1},
        {FILL_RANGE, 0, 1},
        {FILL_CLASS, 0, 0},
    };
    c->x[1] = c->x[0];
    c->fill[1] = kind[draw_int(d, 0, 3)];
}

static void draw_bce(Draw *d, OpCase *c)
{
    draw_loss(d, c);
    draw_truth(d, c);
    c->attr.bce.pos_weight = draw_bool(d) ? 1 : draw_real(d, 0.1f, 30);
}

/* Draws the last four attributes of dice, bce_dice and tversky. */
static void draw_overlap_attr(Draw *d, OpCase *c)
{
    int end = op_info[c->attr.op].attrs;
    float eps = draw_bool(d) ? 1 : draw_real(d, 1e-6f, 2);
    c->attr.word[1 + end - 4] = draw_bool(d);
    memcpy(&c->attr.word[1 + end - 3], &eps, 4);
    c->attr.word[1 + end - 2] = draw_bool(d);
    c->attr.word[1 + end - 1] = draw_bool(d);
}

static void draw_dice(Draw *d, OpCase *c)
{
    Dims s = draw_loss(d, c);
    draw_truth(d, c);
    if (s.c == 1 && draw_bool(d)) c->x[0].c = c->x[1].c = 3;
    draw_overlap_attr(d, c);
    if (c->attr.op == OP_bce_dice || c->x[0].c == 1 || draw_bool(d)) return;
    // class numbers; some classes may be missing
    c->x[1].c = 1;
    c->fill[1] = (Fill){FILL_CLASS, 0, draw_int(d, 0, c->x[0].c - 1)};
}

static void draw_bce_dice(Draw *d, OpCase *c)
{
    draw_dice(d, c);
    c->attr.bce_dice.bce = draw_int(d, 0, 3) ? draw_real(d, 0, 2) : 0;
    c->attr.bce_dice.dice = draw_int(d, 0, 3) ? draw_real(d, 0, 2) : 0;
    c->attr.bce_dice.pos_weight = draw_real(d, 0.1f, 5);
}

static void draw_tversky(Draw *d, OpCase *c)
{
    draw_dice(d, c);
    c->attr.tversky.alpha = draw_real(d, 0.1f, 1);
    c->attr.tversky.beta = draw_real(d, 0.1f, 1);
}

static void draw_cross_entropy(Draw *d, OpCase *c)
{
    Dims s = draw_loss(d, c), one = s;
    if (s.c < 2) s.c = c->x[0].c = 2;
    one.c = 1;
    c->x[1] = one;
    c->fill[1] = (Fill){FILL_CLASS, 0, s.c - 1};
    c->x[2] = draw_part(d, one);
    // a weight per class, per position, per element, or none
    c->x[3] = draw_int(d, 0, 2) ? draw_part(d, s) : (Dims){1, 1, 1, 1, s.c};
    if (draw_bool(d)) c->attr.cross_entropy.ignore = draw_int(d, 0, s.c - 1);
}

static void draw_focal(Draw *d, OpCase *c)
{
    draw_loss(d, c);
    draw_truth(d, c);
    c->attr.focal.gamma = draw_bool(d) ? 2 : draw_real(d, 0, 4);
    c->attr.focal.alpha = draw_bool(d) ? -1 : draw_real(d, 0, 1);
}

static void draw_regression(Draw *d, OpCase *c)
{
    draw_loss(d, c);
    c->x[1] = c->x[0];
    c->fill[1] = (Fill){FILL_OFFSET, 0.01, 3};
    if (c->attr.op == OP_huber) c->attr.huber.delta = draw_real(d, 0.1f, 3);
}

/* Draws doses over all bins and beyond; structures of 0 and 1, sometimes
 * fractions, sometimes all empty. */
static void draw_dvh(Draw *d, OpCase *c)
{
    static const Fill kind[4] = {
        {FILL_CLASS, 0, 1},
        {FILL_CLASS, 0, 1},
        {FILL_RANGE, 0, 1},
        {FILL_CLASS, 0, 0},
    };
    const int bins = draw_int(d, 1, 12);
    const float width = draw_real(d, 0.5f, 2);

    c->x[2] = c->x[0] = draw_image(d, c);
    c->x[0].c = 1;
    c->x[1] = c->x[0];
    c->fill[0] = c->fill[1] = (Fill){FILL_RANGE, -width, (bins + 2) * width};
    c->fill[2] = kind[draw_int(d, 0, 3)];
    c->attr.dvh_loss.bins = bins;
    c->attr.dvh_loss.width = width;
    c->attr.dvh_loss.steep = draw_real(d, 0.3f, 4);
}

static void draw_overlap(Draw *d, OpCase *c)
{
    Dims s = c->x[0] = draw_image(d, c);
    c->x[1] = s;
    // no mask, one value per position, or one per element
    if (draw_int(d, 0, 2)) c->x[2] = s;
    if (draw_bool(d)) c->x[2].c = c->x[2].n ? 1 : 0;
    c->fill[1] = c->fill[2] = (Fill){FILL_CLASS, 0, 1};
    c->attr.overlap.threshold = draw_real(d, 0, 1);
    if (s.c == 1 || draw_bool(d)) return;
    c->x[1].c = 1;
    c->fill[1].hi = s.c - 1;
}

/* Samples of one channel that end in a block, a run or a vector of the sums of
 * the fast kernels, or exactly at its end. */
static Dims image_blocks(Draw *d, OpCase *c)
{
    int edge = PICK(d, 16384, 2 * 16384, 1024, 128, 64, 16);
    c->rank = 1;
    return (Dims){draw_int(d, 1, 3), 1, 1, draw_edge(d, edge), 1};
}

/* One channel without a mask, which has its own kernels. */
static void draw_alone(Draw *d, OpCase *c)
{
    if (c->attr.op == OP_bce_dice)
        draw_bce_dice(d, c);
    else if (c->attr.op == OP_tversky)
        draw_tversky(d, c);
    else
        draw_dice(d, c);
    c->x[0].c = 1;
    c->x[1] = c->x[0];
    c->x[2] = c->x[3] = (Dims){0};
    if (c->fill[1].hi > 1) c->fill[1].hi = 1;
}

/* Mask and weight absent, or one value per element: own kernels, too. */
static void draw_whole(Draw *d, OpCase *c)
{
    draw_regression(d, c);
    for (int i = 2; i < 4; i++) c->x[i] = draw_bool(d) ? c->x[0] : (Dims){0};
}

#define WHOLE(row)                                                     \
    {                                                                  \
        .note = "whole", .op = OP_##row, .draw = draw_whole, .wrt = 1, \
        .image = image_blocks, .cases = 12                             \
    }

/* Several channels without weight, with at most a mask per row: own kernels,
 * too. */
static void draw_few(Draw *d, OpCase *c)
{
    if (c->attr.op == OP_cross_entropy)
        draw_cross_entropy(d, c);
    else if (c->attr.op == OP_tversky)
        draw_tversky(d, c);
    else
        draw_dice(d, c);
    c->x[2] = c->x[3] = (Dims){0};
    if (draw_bool(d)) return;
    c->x[2] = c->x[0];
    c->x[2].c = 1;
}

#define FEW(row)                                                           \
    {                                                                      \
        .note = "few classes", .op = OP_##row, .draw = draw_few, .wrt = 1, \
        .image = image_few, .cases = 20                                    \
    }

#define ALONE(row)                                                           \
    {                                                                        \
        .note = "one channel", .op = OP_##row, .draw = draw_alone, .wrt = 1, \
        .image = image_blocks, .cases = 20                                   \
    }

#define PARTS(row, drawn, count)                                  \
    {                                                             \
        .note = "parts", .op = OP_##row, .draw = drawn, .wrt = 1, \
        .image = image_parts, .cases = count                      \
    }

/* Logits of a confident network: the smaller exponential vanishes in the
 * rounding of the sum, and the logarithm of a softmax is nearly 0. */
#define FAR_APART           \
    {                       \
        FILL_RANGE, -40, 40 \
    }

const OpSuite suites_loss[] = {
    {.op = OP_bce, .draw = draw_bce, .wrt = 1},
    {.op = OP_dice_loss, .draw = draw_dice, .wrt = 1},
    {.op = OP_bce_dice, .draw = draw_bce_dice, .wrt = 1},
    {.op = OP_tversky, .draw = draw_tversky, .wrt = 1},
    {.op = OP_cross_entropy, .draw = draw_cross_entropy, .wrt = 1},
    {.op = OP_focal, .draw = draw_focal, .wrt = 1},
    {.op = OP_mae, .draw = draw_regression, .wrt = 1},
    {.op = OP_mean,
     .draw = draw_regression,
     .wrt = 1,
     .fill = {{FILL_RANGE, 0.1, 2}}},
    {.op = OP_mse, .draw = draw_regression, .wrt = 1},
    {.op = OP_huber, .draw = draw_regression, .wrt = 1},
    {.op = OP_dvh_loss, .draw = draw_dvh, .wrt = 1},
    {.op = OP_overlap, .draw = draw_overlap},
    PARTS(bce, draw_bce, 15),
    PARTS(dice_loss, draw_dice, 18),
    PARTS(bce_dice, draw_bce_dice, 18),
    PARTS(tversky, draw_tversky, 9),
    ALONE(dice_loss),
    ALONE(bce_dice),
    ALONE(tversky),
    FEW(dice_loss),
    FEW(tversky),
    FEW(cross_entropy),
    PARTS(cross_entropy, draw_cross_entropy, 18),
    PARTS(focal, draw_focal, 9),
    PARTS(mae, draw_regression, 6),
    PARTS(mse, draw_regression, 6),
    PARTS(huber, draw_regression, 6),
    WHOLE(mae),
    WHOLE(mse),
    WHOLE(huber),
    PARTS(dvh_loss, draw_dvh, 6),
    {.note = "parts",
     .op = OP_overlap,
     .draw = draw_overlap,
     .image = image_parts,
     .cases = 18},
    {.note = "far apart",
     .op = OP_bce,
     .draw = draw_bce,
     .wrt = 1,
     .fill = {FAR_APART},
     .cases = 6},
    {.note = "far apart",
     .op = OP_cross_entropy,
     .draw = draw_cross_entropy,
     .wrt = 1,
     .fill = {FAR_APART},
     .cases = 6},
    {.note = "far apart",
     .op = OP_focal,
     .draw = draw_focal,
     .wrt = 1,
     .fill = {FAR_APART},
     .cases = 6},
    {.note = "far apart",
     .op = OP_dice_loss,
     .draw = draw_dice,
     .wrt = 1,
     .fill = {FAR_APART},
     .cases = 6},
    {.draw = NULL},
};
