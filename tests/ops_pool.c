/* ops_pool.c -- who wins in a pool: the first of equals, never padding, NaN. */
#include "given.h"

/* With ties the backends agree on the winner. */
TEST(maxpool_ties)
{
    OpCase c = {.attr = op_default(OP_maxpool),
                .rank = 2,
                .x = {{2, 1, 6, 8, 5}},
                .fill = {{FILL_CLASS, 0, 1}},
                .wrt = 1};
    c.attr.maxpool.kh = c.attr.maxpool.kw = 3;
    c.attr.maxpool.sh = c.attr.maxpool.sw = 2;
    OpCheck check = {.be = given_backend(1), .report = given_report};
    opcase_agree(&c, &check);
}

/* y and dx (dy all 1) of a 4x4 image of one channel. */
static void run_image(const OpCase *c, const Backend *be, double *x, Arena *mem,
                      OpValues *out)
{
    double ones[16];
    OpDevice d;
    Tensor y;
    for (int i = 0; i < 16; i++) ones[i] = 1;
    REQUIRE(opcase_shape(c, &y));
    OpValues in = {.x = {x}, .count = {16}, .dy = ones};
    in.results = numel(y.dim);
    REQUIRE(opdevice_open(be, 1, &d));
    bool ok = oprun(c, &d, &in, (OpOptions){0}, mem, out);
    opdevice_close(&d);
    REQUIRE(ok);
}

/* maxpool 2x2, stride 2, of the image of run_image, so many elements padded. */
static OpCase window_case(int before, int after)
{
    OpCase c = {.attr = op_default(OP_maxpool),
                .rank = 2,
                .x = {{1, 1, 4, 4, 1}},
                .wrt = 1};
    c.attr.maxpool.kh = c.attr.maxpool.kw = 2;
    c.attr.maxpool.sh = c.attr.maxpool.sw = 2;
    c.attr.maxpool.ph0 = c.attr.maxpool.pw0 = before;
    c.attr.maxpool.ph1 = c.attr.maxpool.pw1 = after;
    return c;
}

/* The winner itself: the first of equal ones, never padding, and a NaN. */
TEST(maxpool_winner)
{
    static const double first[16] = {1, 0, 1, 0, 0, 0, 0, 0, //
                                     1, 0, 1, 0, 0, 0, 0, 0};
    for (int k = 0; k < 2; k++) {
        Arena mem = {0};
        OpValues out;
        double x[16];
        for (int i = 0; i < 16; i++) x[i] = -5;
        OpCase c = window_case(0, 0);
        run_image(&c, given_backend(k), x, &mem, &out);
        for (int i = 0; i < 16; i++) EXPECT_NEAR(out.dx[0][i], first[i], 0);
        x[5] = NAN;
        run_image(&c, given_backend(k), x, &mem, &out);
        EXPECT(isnan(out.y[0]));
        EXPECT_NEAR(out.y[1], -5, 0);
        EXPECT_NEAR(out.dx[0][5], 1, 0);
        c = window_case(1, 0);
        run_image(&c, given_backend(k), x, &mem, &out);
        EXPECT_NEAR(out.y[0], -5, 0);
        arena_release(&mem);
    }
}

/* Of nothing but -inf, which padding is like, the first tap inside wins. */
TEST(maxpool_of_minus_infinity)
{
    static const double first[16] = {1, 1, 0, 1, 1, 1, 0, 1, //
                                     0, 0, 0, 0, 1, 1, 0, 1};
    for (size_t k = 0; k < 2; k++) {
        Arena mem = {0};
        OpValues out;
        double x[16];
        for (int i = 0; i < 16; i++) x[i] = -INFINITY;
        OpCase c = window_case(1, 1);
        run_image(&c, given_backend(k), x, &mem, &out);
        for (int i = 0; i < 9; i++) EXPECT(out.y[i] == -INFINITY);
        for (int i = 0; i < 16; i++) EXPECT_NEAR(out.dx[0][i], first[i], 0);
        arena_release(&mem);
    }
}

TEST(global_maxpool_winner)
{
    for (int k = 0; k < 2; k++) {
        Arena mem = {0};
        OpValues out;
        double x[16] = {0, 0, 3, 1, 3, 2};
        OpCase c = {.attr = op_default(OP_global_maxpool),
                    .rank = 2,
                    .x = {{1, 1, 4, 4, 1}},
                    .wrt = 1};
        run_image(&c, given_backend(k), x, &mem, &out);
        EXPECT_NEAR(out.y[0], 3, 0);
        for (int i = 0; i < 16; i++) EXPECT_NEAR(out.dx[0][i], i == 2, 0);
        x[9] = NAN;
        run_image(&c, given_backend(k), x, &mem, &out);
        EXPECT(isnan(out.y[0]));
        EXPECT_NEAR(out.dx[0][9], 1, 0);
        arena_release(&mem);
    }
}
