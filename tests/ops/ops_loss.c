/* ops_loss.c -- the losses, beyond the properties of ops.c.
 *
 * A table of losses computed by hand, PyTorch's numbers, and two errors that
 * must not happen: a result that is not finite at extreme logits, and an
 * influence of masked elements. */
#include "tests/golden/ops_golden.h"
#include "tests/support/op_call.h"

// -- by hand -----------------------------------------------------------------

enum { MOST = 8 };
#define LN2 0.69314718055994530942

/* dy of a loss alone. */
static const double one = 1;

/* One loss with dy = 1. Mask and weight are absent if their extents are 0. */
typedef struct Sum {
    const char *what;
    Attr attr;
    Dims x, t, m, q;
    double xs[MOST], ts[MOST], ms[MOST], qs[MOST];
    double y, dx[MOST];
} Sum;

// clang-format off
#define D(n, w, c) {n, 1, 1, w, c}
#define NONE       {0, 0, 0, 0, 0}
static const Sum sums[] = {
    {"bce", {.bce = {OP_bce, 1}}, D(1,2,1), D(1,2,1), NONE, NONE,
     {0, 0}, {1, 0}, {0}, {0}, LN2, {-0.25, 0.25}},
    {"bce, positives three times", {.bce = {OP_bce, 3}}, D(1,2,1), D(1,2,1), NONE, NONE,
     {0, 0}, {1, 0}, {0}, {0}, 2 * LN2, {-0.75, 0.25}},
    {"bce, one of two masked", {.bce = {OP_bce, 1}}, D(1,2,1), D(1,2,1), D(1,2,1), NONE,
     {0, 7}, {1, 0}, {1, 0}, {0}, LN2, {-0.5, 0}},
    {"bce, weights are not in the mean", {.bce = {OP_bce, 1}}, D(1,2,1), D(1,2,1), NONE, D(1,2,1),
     {0, 0}, {1, 0}, {0}, {2, 1}, 1.5 * LN2, {-0.5, 0.25}},
    {"bce, empty mask", {.bce = {OP_bce, 1}}, D(1,2,1), D(1,2,1), D(1,1,1), NONE,
     {3, 7}, {1, 0}, {0}, {0}, 0, {0, 0}},
    {"bce, a mask of one channel counts both", {.bce = {OP_bce, 1}}, D(1,2,2), D(1,2,2), D(1,2,1), NONE,
     {0, 0, 5, 5}, {1, 1, 0, 0}, {1, 0}, {0}, LN2, {-0.25, -0.25, 0, 0}},
    {"bce, one factor for all is still a mean", {.bce = {OP_bce, 1}}, D(2,1,1), D(2,1,1), D(1,1,1), NONE,
     {0, 0}, {1, 0}, {0.5}, {0}, LN2, {-0.25, 0.25}},
    {"bce, wholly wrong", {.bce = {OP_bce, 1}}, D(1,2,1), D(1,2,1), NONE, NONE,
     {100, -100}, {0, 1}, {0}, {0}, 100, {0.5, -0.5}},

    /* I = 1/2, P = T = 1: score 2/3 */
    {"dice", {.dice_loss = {OP_dice_loss, 0, 1, 0, 0}}, D(1,2,1), D(1,2,1), NONE, NONE,
     {0, 0}, {1, 0}, {0}, {0}, 1 / 3.0, {-1 / 9.0, 1 / 18.0}},
    {"dice, eps 0", {.dice_loss = {OP_dice_loss, 0, 0, 0, 0}}, D(1,2,1), D(1,2,1), NONE, NONE,
     {0, 0}, {1, 0}, {0}, {0}, 0.5, {-0.1875, 0.0625}},
    /* a second sample without target: its score is 1/2 */
    {"dice a sample", {.dice_loss = {OP_dice_loss, 1, 1, 0, 0}}, D(2,2,1), D(2,2,1), NONE, NONE,
     {0, 0, 0, 0}, {1, 0, 0, 0}, {0}, {0}, 5 / 12.0, {-1 / 18.0, 1 / 36.0, 1 / 32.0, 1 / 32.0}},
    {"dice a sample, empty ones left out", {.dice_loss = {OP_dice_loss, 1, 1, 1, 0}}, D(2,2,1), D(2,2,1), NONE, NONE,
     {0, 0, 0, 0}, {1, 0, 0, 0}, {0}, {0}, 1 / 3.0, {-1 / 9.0, 1 / 18.0, 0, 0}},
    /* I = 1/2, P = 2, T = 1 */
    {"dice of the batch", {.dice_loss = {OP_dice_loss, 0, 1, 1, 0}}, D(2,2,1), D(2,2,1), NONE, NONE,
     {0, 0, 0, 0}, {1, 0, 0, 0}, {0}, {0}, 0.5, {-3 / 32.0, 1 / 32.0, 1 / 32.0, 1 / 32.0}},
    {"dice, nothing to find, left out", {.dice_loss = {OP_dice_loss, 0, 1, 1, 0}}, D(1,2,1), D(1,2,1), NONE, NONE,
     {3, -2}, {0, 0}, {0}, {0}, 0, {0, 0}},
    {"dice, nothing to find, counted", {.dice_loss = {OP_dice_loss, 0, 1, 0, 0}}, D(1,2,1), D(1,2,1), NONE, NONE,
     {0, 0}, {0, 0}, {0}, {0}, 0.5, {0.0625, 0.0625}},
    {"dice, all masked", {.dice_loss = {OP_dice_loss, 0, 1, 0, 0}}, D(1,2,1), D(1,2,1), D(1,1,1), NONE,
     {3, -2}, {1, 0}, {0}, {0}, 0, {0, 0}},
    {"dice, all masked, eps 0", {.dice_loss = {OP_dice_loss, 0, 0, 0, 0}}, D(1,2,1), D(1,2,1), D(1,1,1), NONE,
     {3, -2}, {1, 0}, {0}, {0}, 0, {0, 0}},
    {"dice, one of three masked", {.dice_loss = {OP_dice_loss, 0, 1, 0, 0}}, D(1,3,1), D(1,3,1), D(1,3,1), NONE,
     {0, 0, 9}, {1, 0, 1}, {1, 1, 0}, {0}, 1 / 3.0, {-1 / 9.0, 1 / 18.0, 0}},
    {"dice, two classes, background left out", {.dice_loss = {OP_dice_loss, 0, 1, 0, 0}}, D(1,2,2), D(1,2,1), NONE, NONE,
     {4, 4, -3, -3}, {1, 0}, {0}, {0}, 1 / 3.0, {1 / 9.0, -1 / 9.0, -1 / 18.0, 1 / 18.0}},
    {"dice, the same with a channel a class", {.dice_loss = {OP_dice_loss, 0, 1, 0, 0}}, D(1,2,2), D(1,2,2), NONE, NONE,
     {4, 4, -3, -3}, {0, 1, 1, 0}, {0}, {0}, 1 / 3.0, {1 / 9.0, -1 / 9.0, -1 / 18.0, 1 / 18.0}},
    /* the two scores are equal and their derivatives are opposite in s: half of each, twice */
    {"dice, background counted", {.dice_loss = {OP_dice_loss, 0, 1, 0, 1}}, D(1,2,2), D(1,2,1), NONE, NONE,
     {4, 4, -3, -3}, {1, 0}, {0}, {0}, 1 / 3.0, {1 / 12.0, -1 / 12.0, -1 / 12.0, 1 / 12.0}},
    {"dice, only background is there, empty left out", {.dice_loss = {OP_dice_loss, 0, 1, 1, 0}}, D(1,2,2), D(1,2,1), NONE, NONE,
     {4, 4, -3, -3}, {0, 0}, {0}, {0}, 0, {0, 0, 0, 0}},

    /* I = 1/2, P = T = 1: (1/2 + 1) / (1/2 + 1/8 + 3/8 + 1) */
    {"tversky", {.tversky = {OP_tversky, 0.25f, 0.75f, 0, 1, 0, 0}}, D(1,2,1), D(1,2,1), NONE, NONE,
     {0, 0}, {1, 0}, {0}, {0}, 0.25, {-0.1015625, 0.0234375}},
    {"tversky of 1/2, 1/2 and eps 1/2 is dice with eps 1", {.tversky = {OP_tversky, 0.5f, 0.5f, 0, 0.5f, 0, 0}}, D(1,2,1), D(1,2,1), NONE, NONE,
     {0, 0}, {1, 0}, {0}, {0}, 1 / 3.0, {-1 / 9.0, 1 / 18.0}},

    {"half bce, half dice", {.bce_dice = {OP_bce_dice, 0.5f, 0.5f, 1, 0, 1, 0, 0}}, D(1,2,1), D(1,2,1), NONE, NONE,
     {0, 0}, {1, 0}, {0}, {0}, LN2 / 2 + 1 / 6.0, {-1 / 8.0 - 1 / 18.0, 1 / 8.0 + 1 / 36.0}},
    {"bce_dice, a weight of 0 counts in the mean of bce", {.bce_dice = {OP_bce_dice, 1, 1, 1, 0, 1, 0, 0}}, D(1,3,1), D(1,3,1), NONE, D(1,3,1),
     {0, 0, 9}, {1, 0, 1}, {0}, {1, 1, 0}, LN2 * 2 / 3 + 1 / 3.0, {-1 / 6.0 - 1 / 9.0, 1 / 6.0 + 1 / 18.0, 0}},

    {"cross entropy", {.cross_entropy = {OP_cross_entropy, -100}}, D(1,2,2), D(1,2,1), NONE, NONE,
     {4, 4, -3, -3}, {0, 1}, {0}, {0}, LN2, {-0.25, 0.25, 0.25, -0.25}},
    {"cross entropy, one ignored", {.cross_entropy = {OP_cross_entropy, -100}}, D(1,2,2), D(1,2,1), NONE, NONE,
     {4, 4, -3, -3}, {0, -100}, {0}, {0}, LN2, {-0.5, 0.5, 0, 0}},
    {"cross entropy, all ignored", {.cross_entropy = {OP_cross_entropy, 1}}, D(1,2,2), D(1,2,1), NONE, NONE,
     {4, 4, -3, -3}, {1, 1}, {0}, {0}, 0, {0, 0, 0, 0}},
    {"cross entropy, one masked, whatever its class", {.cross_entropy = {OP_cross_entropy, -100}}, D(1,2,2), D(1,2,1), D(1,2,1), NONE,
     {4, 4, -3, -3}, {0, 77}, {1, 0}, {0}, LN2, {-0.5, 0.5, 0, 0}},
    {"cross entropy, a weight a class", {.cross_entropy = {OP_cross_entropy, -100}}, D(1,2,2), D(1,2,1), NONE, D(1,1,2),
     {4, 4, -3, -3}, {0, 1}, {0}, {1, 3}, 2 * LN2, {-0.25, 0.25, 0.75, -0.75}},
    {"cross entropy, a weight a position", {.cross_entropy = {OP_cross_entropy, -100}}, D(1,2,2), D(1,2,1), NONE, D(1,2,1),
     {4, 4, -3, -3}, {0, 1}, {0}, {2, 0}, LN2, {-0.5, 0.5, 0, 0}},
    {"cross entropy, wholly wrong", {.cross_entropy = {OP_cross_entropy, -100}}, D(1,1,2), D(1,1,1), NONE, NONE,
     {100, -100}, {1}, {0}, {0}, 200, {1, -1}},

    {"focal", {.focal = {OP_focal, 2, -1}}, D(1,2,1), D(1,2,1), NONE, NONE,
     {0, 0}, {1, 0}, {0}, {0}, LN2 / 4, {-(LN2 + 0.5) / 8, (LN2 + 0.5) / 8}},
    {"focal, a quarter for what is true", {.focal = {OP_focal, 2, 0.25f}}, D(1,2,1), D(1,2,1), NONE, NONE,
     {0, 0}, {1, 0}, {0}, {0}, LN2 / 8, {-(LN2 + 0.5) / 32, 3 * (LN2 + 0.5) / 32}},
    {"focal with gamma 0 is bce", {.focal = {OP_focal, 0, -1}}, D(1,2,1), D(1,2,1), NONE, NONE,
     {100, 0}, {0, 0}, {0}, {0}, (100 + LN2) / 2, {0.5, 0.25}},

    {"mae", {.mae = {OP_mae}}, D(1,4,1), D(1,4,1), NONE, NONE,
     {1, -2, 3, 0}, {0, 0, 3, 0}, {0}, {0}, 0.75, {0.25, -0.25, 0, 0}},
    {"mae over the mask", {.mae = {OP_mae}}, D(1,4,1), D(1,4,1), D(1,4,1), D(1,4,1),
     {1, -2, 3, 0}, {0, 0, 9, 0}, {1, 1, 0, 0}, {1, 3, 1, 1}, 3.5, {0.5, -1.5, 0, 0}},
    {"mse", {.mse = {OP_mse}}, D(1,4,1), D(1,4,1), NONE, NONE,
     {1, -2, 3, 0}, {0, 0, 3, 0}, {0}, {0}, 1.25, {0.5, -1, 0, 0}},
    {"huber", {.huber = {OP_huber, 1}}, D(1,4,1), D(1,4,1), NONE, NONE,
     {1, -2, 3, 0.5}, {0, 0, 3, 0}, {0}, {0}, 0.53125, {0.25, -0.25, 0, 0.125}},
};
// clang-format on

TEST(loss_by_hand)
{
    Arena mem = {0};
    for (size_t i = 0; i < 2 * sizeof sums / sizeof *sums; i++) {
        const Sum *s = &sums[i / 2];
        const Backend *be = given_backend(i % 2);
        OpValues out;
        OpCase c = {.attr = s->attr,
                    .rank = 1,
                    .x = {s->x, s->t, s->m, s->q},
                    .wrt = 1};
        const double *x[MAX_IN] = {s->xs, s->ts, s->ms, s->qs};
        given_run(be, &c, x, &one, &mem, &out);
        double tol = be->real == F64 ? 1e-13 : 1e-6;
        if (!(fabs(out.y[0] - s->y) <= tol * fmax(1, s->y)))
            test_failed(__FILE__, __LINE__, "%s on %s is %.17g, want %.17g",
                        s->what, be->name, out.y[0], s->y);
        for (int64_t k = 0; k < out.count[0]; k++)
            if (!(fabs(out.dx[0][k] - s->dx[k]) <= tol))
                test_failed(__FILE__, __LINE__,
                            "%s on %s: dx[%d] is %.17g, want %.17g", s->what,
                            be->name, (int)k, out.dx[0][k], s->dx[k]);
    }
    arena_release(&mem);
}

TEST(loss_gradient_is_scaled)
{
    // dy is the product of loss scale and the weights in a sum of losses
    static const double loss_scale = 65536;
    Arena mem = {0};

    for (size_t i = 0; i < sizeof sums / sizeof *sums; i++) {
        const Sum *s = &sums[i];
        OpValues out;
        OpCase c = {.attr = s->attr,
                    .rank = 1,
                    .x = {s->x, s->t, s->m, s->q},
                    .wrt = 1};
        const double *x[MAX_IN] = {s->xs, s->ts, s->ms, s->qs};
        given_run(given_backend(i % 2), &c, x, &loss_scale, &mem, &out);
        for (int64_t k = 0; k < out.count[0]; k++)
            if (!(fabs(out.dx[0][k] - 65536 * s->dx[k]) <= 65536e-6))
                test_failed(__FILE__, __LINE__, "%s: dx[%d] is %.9g", s->what,
                            (int)k, out.dx[0][k]);
    }
    arena_release(&mem);
}

// -- PyTorch -----------------------------------------------------------------

/* ((i * step) mod 64 - 32) / scale, as in ops_golden.py. */
static void spread(double *x, int count, int step, double scale)
{
    for (int i = 0; i < count; i++) x[i] = (i * step % 64 - 32) / scale;
}

TEST(loss_golden)
{
    static const double classes[6] = {0, 3, 1, 2, -100, 3};
    double quarters[12], bce_x[12], ce_x[24], e_x[12], e_t[12];
    for (int i = 0; i < 12; i++) quarters[i] = i % 5 / 4.0;
    spread(bce_x, 12, 7, 4), spread(ce_x, 24, 11, 8);
    spread(e_x, 12, 5, 8), spread(e_t, 12, 3, 16);
    const struct {
        Attr attr;
        Dims x, t;
        const double *xs, *ts, *y, *dx;
    } row[] = {
        {{.bce = {OP_bce, 3}},
         D(1, 12, 1),
         D(1, 12, 1),
         bce_x,
         quarters,
         golden_bce,
         golden_bce_grad},
        {{.cross_entropy = {OP_cross_entropy, -100}},
         D(2, 3, 4),
         D(2, 3, 1),
         ce_x,
         classes,
         golden_cross_entropy,
         golden_cross_entropy_grad},
        {{.huber = {OP_huber, 1.5f}},
         D(1, 12, 1),
         D(1, 12, 1),
         e_x,
         e_t,
         golden_huber,
         golden_huber_grad},
        {{.mae = {OP_mae}},
         D(3, 2, 2),
         D(3, 2, 2),
         e_x,
         e_t,
         golden_mae,
         golden_mae_grad},
        {{.mse = {OP_mse}},
         D(1, 1, 12),
         D(1, 1, 12),
         e_x,
         e_t,
         golden_mse,
         golden_mse_grad},
    };
    Arena mem = {0};

    for (size_t i = 0; i < 2 * sizeof row / sizeof *row; i++) {
        OpValues out;
        OpCase c = {.attr = row[i / 2].attr, .rank = 1, .wrt = 1};
        c.x[0] = row[i / 2].x, c.x[1] = row[i / 2].t;
        const double *x[MAX_IN] = {row[i / 2].xs, row[i / 2].ts};
        given_run(given_backend(i % 2), &c, x, &one, &mem, &out);
        double tol = i % 2 ? 1e-6 : 1e-14;
        EXPECT_NEAR(out.y[0], row[i / 2].y[0], tol * 4);
        for (int64_t k = 0; k < out.count[0]; k++)
            EXPECT_NEAR(out.dx[0][k], row[i / 2].dx[k], tol);
    }
    arena_release(&mem);
}

// -- errors that must not happen ----------------------------------------------

static const Op losses[] = {OP_bce,   OP_dice_loss, OP_bce_dice,
                            OP_focal, OP_tversky,   OP_cross_entropy,
                            OP_mae,   OP_mse,       OP_huber};
enum { LOSSES = sizeof losses / sizeof *losses };

/* 4 positions of `c` channels (at least 2 for classes), targets 0 and 1. */
static OpCase small_case(Op op, int channels)
{
    OpCase c = {.attr = op_default(op), .rank = 1, .wrt = 1};
    if (op == OP_cross_entropy && channels < 2) channels = 2;
    c.x[0] = c.x[1] = (Dims){1, 1, 1, 4, channels};
    if (op == OP_cross_entropy) c.x[1].c = 1;
    c.fill[1] = (Fill){FILL_CLASS, 0, 1};
    return c;
}

TEST(loss_extreme_logits)
{
    static const double size[] = {100, 1e4, 1e30};
    Arena mem = {0};

    for (int i = 0; i < LOSSES * 2 * 2 * 3; i++) {
        Op op = losses[i / 12];
        // squares of 1e30 overflow in float
        if (op == OP_mse && i % 3 == 2) continue;
        double x[12];
        for (int k = 0; k < 12; k++) x[k] = (k * 5 % 3 - 1) * size[i % 3];
        OpCase c = small_case(op, i / 6 % 2 ? 3 : 1);
        OpValues out;
        given_run(given_backend(i / 3 % 2), &c, (const double *[MAX_IN]){x},
                  &one, &mem, &out);
        bool ok = isfinite(out.y[0]);
        for (int64_t k = 0; k < out.count[0]; k++)
            ok = ok && isfinite(out.dx[0][k]);
        if (!ok)
            test_failed(__FILE__, __LINE__, "%s on %s at %g: %g",
                        op_info[op].name, given_backend(i / 3 % 2)->name,
                        size[i % 3], out.y[0]);
    }
    arena_release(&mem);
}

/* An almost certain and correct prediction: the remainder keeps its digits,
 * where 1 - softmax would have none. */
TEST(loss_almost_right)
{
    static const double x[2] = {20, 0}, target[1] = {0};
    const double rest = exp(-20);
    Arena mem = {0};

    for (size_t i = 0; i < 2; i++) {
        OpCase c = {.attr = op_default(OP_cross_entropy),
                    .rank = 0,
                    .x = {{1, 1, 1, 1, 2}, {1, 1, 1, 1, 1}},
                    .wrt = 1};
        OpValues out;
        given_run(given_backend(i), &c, (const double *[MAX_IN]){x, target},
                  &one, &mem, &out);
        EXPECT_NEAR(out.y[0], rest, 1e-5 * rest);
        EXPECT_NEAR(out.dx[0][0], -rest, 1e-5 * rest);
        EXPECT_NEAR(out.dx[0][1], rest, 1e-5 * rest);
    }
    arena_release(&mem);
}

TEST(loss_masked_nan_has_no_say)
{
    // the last position is masked by the mask, or by a weight of 0
    static const double part[4] = {1, 1, 1, 0};
    Arena mem = {0};

    for (int i = 0; i < LOSSES * 2 * 2 * 2; i++) {
        Op op = losses[i / 8];
        int channels = i / 4 % 2 ? 3 : 1, by = i / 2 % 2 ? 2 : 3;
        if (op == OP_cross_entropy) channels = 3;
        OpCase c = small_case(op, channels);
        c.x[by] = (Dims){1, 1, 1, 4, 1};
        OpValues in, clean, dirty;
        REQUIRE(opcase_values(&c, &mem, &in));
        const double *x[MAX_IN] = {in.x[0], in.x[1]};
        x[by] = part;
        given_run(given_backend(i % 2), &c, x, &one, &mem, &clean);
        for (int64_t k = 3 * channels; k < 4 * channels; k++) in.x[0][k] = NAN;
        // with a weight of 0 the target must still be a class
        if (op != OP_cross_entropy) in.x[1][in.count[1] - 1] = NAN;
        given_run(given_backend(i % 2), &c, x, &one, &mem, &dirty);
        EXPECT_NEAR(dirty.y[0], clean.y[0], 0);
        for (int64_t k = 0; k < in.count[0]; k++)
            EXPECT_NEAR(dirty.dx[0][k], clean.dx[0][k], 0);
    }
    arena_release(&mem);
}

TEST(loss_nan_is_seen)
{
    Arena mem = {0};
    for (int i = 0; i < LOSSES * 2; i++) {
        OpCase c = small_case(losses[i / 2], 2);
        OpValues out;
        double x[8] = {0, 0, 0, NAN};
        given_run(given_backend(i % 2), &c, (const double *[MAX_IN]){x}, &one,
                  &mem, &out);
        if (!isnan(out.y[0]))
            test_failed(__FILE__, __LINE__, "%s of NaN is %g",
                        op_info[losses[i / 2]].name, out.y[0]);
    }
    arena_release(&mem);
}

/* A target between two classes, as from an interpolated mask, is not a class:
 * it must not count as the lower one. */
TEST(cross_entropy_wants_whole_numbers)
{
    static const double part[4] = {1, 0, 1, 1};
    Arena mem = {0};

    for (int k = 0; k < 2; k++) {
        OpDevice d;
        OpValues in, out;
        OpCase c = small_case(OP_cross_entropy, 3);
        c.x[2] = (Dims){1, 1, 1, 4, 1};
        REQUIRE(opcase_values(&c, &mem, &in));
        REQUIRE(opdevice_open(given_backend(k), 1, &d));
        for (int i = 0; i < 4; i++) in.x[2][i] = part[i];
        in.x[1][1] = 1.5;
        EXPECT(oprun(&c, &d, &in, (OpOptions){0}, &mem, &out));
        in.x[1][2] = 1.5;
        bool ok = oprun(&c, &d, &in, (OpOptions){0}, &mem, &out);
        // a backend that would have to wait for the device for a message
        // returns NaN
        if (!strcmp(d.be->name, "cuda"))
            EXPECT(ok && isnan(out.y[0]));
        else
            EXPECT_FAIL(ok, "the target holds 1.5, want a class number from "
                            "0 to 2");
        opdevice_close(&d);
    }
    arena_release(&mem);
}
