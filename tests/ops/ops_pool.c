/* ops_pool.c -- the selected element of a pool: the first of equal ones, never
 * padding, NaN; means in blocks. */
#include "tests/support/op_call.h"

/* With ties the backends select the same element. */
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

/* Runs y and dx (dy all 1) of a 4x4 image of one channel. */
static void run_image(const OpCase *c, const Backend *be, double *x, Arena *mem,
                      OpValues *out)
{
    double ones[16];
    Tensor y;
    for (int i = 0; i < 16; i++) ones[i] = 1;
    REQUIRE(opcase_shape(c, &y));
    OpValues in = {.x = {x}, .count = {16}, .dy = ones};
    in.results = numel(y.dim);
    given_values(be, 1, c, &in, mem, out);
}

/* maxpool 2x2, stride 2, of the image of run_image, with so much padding. */
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

/* The selected element: the first of equal ones, never padding, and a NaN. */
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

/* If all elements are -inf, the value of padding, the first tap inside is
 * selected. */
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

/* A mean over blocks of positions, with samples that end anywhere in a block:
 * of one channel, of a few channels with several rows at a time, of many. */
TEST(global_avgpool_in_blocks)
{
    static const Dims shape[] = {{3, 1, 1, 40011, 1},
                                 {4, 1, 1, 5003, 3},
                                 {3, 1, 1, 300, 33},
                                 {3, 1, 1, 270, 130},
                                 {4, 1, 1, 37, 4100}};
    static const double length[] = {1e9, 0.3, 0, NAN};

    for (size_t i = 0; i < sizeof shape / sizeof *shape; i++) {
        Arena mem = {0};
        OpValues in, one, three;
        OpCase c = {.attr = op_default(OP_global_avgpool),
                    .rank = 1,
                    .x = {shape[i], {shape[i].n, 1, 1, 1, 1}},
                    .fill[1] = {FILL_RANGE, 0, shape[i].w},
                    .wrt = 1};
        OpCheck check = {.be = given_backend(1), .report = given_report};
        OpCase whole = c;
        whole.x[1] = (Dims){0};
        opcase_agree(&whole, &check);
        opcase_agree(&c, &check);
        opcase_adding(&c, &check);
        REQUIRE(opcase_values(&c, &mem, &in));
        for (int n = 0; n < shape[i].n; n++) in.x[1][n] = (float)length[n];
        given_values(given_backend(1), 1, &c, &in, &mem, &one);
        given_values(given_backend(1), 3, &c, &in, &mem, &three);
        EXPECT(!memcmp(one.y, three.y, (size_t)in.results * sizeof *one.y));
        EXPECT(!memcmp(one.dx[0], three.dx[0],
                       (size_t)in.count[0] * sizeof *one.dx[0]));
        // a length of 0.3 includes the first position; of none the mean is 0
        const int64_t wide = shape[i].c, sample = shape[i].w * wide;
        for (int64_t k = 0; k < wide; k++) {
            EXPECT(one.y[wide + k] == in.x[0][sample + k]);
            EXPECT(one.y[2 * wide + k] == 0);
        }
        arena_release(&mem);
    }
}

/* Values beyond the length of a sample are not read, and get no part of a
 * gradient that is not finite; within the length it affects only its
 * channel. */
TEST(global_avgpool_keeps_nan)
{
    enum { LONG = 40, OWN = 21, WIDE = 3 };
    for (int k = 0; k < 2; k++) {
        Arena mem = {0};
        OpValues in, out;
        OpCase c = {.attr = op_default(OP_global_avgpool),
                    .rank = 1,
                    .x = {{1, 1, 1, LONG, WIDE}, {1, 1, 1, 1, 1}},
                    .wrt = 1};
        REQUIRE(opcase_values(&c, &mem, &in));
        in.x[1][0] = OWN;
        for (int i = OWN * WIDE; i < LONG * WIDE; i++) in.x[0][i] = NAN;
        in.x[0][(OWN - 1) * WIDE + 2] = NAN;
        in.dy[1] = INFINITY;
        given_values(given_backend(k), 2, &c, &in, &mem, &out);
        for (int i = 0; i < WIDE; i++)
            EXPECT((isnan(out.y[i]) != 0) == (i == 2));
        for (int i = 0; i < LONG * WIDE; i++)
            if (i < OWN * WIDE)
                EXPECT((isinf(out.dx[0][i]) != 0) == (i % WIDE == 1));
            else
                EXPECT(out.dx[0][i] == 0);
        arena_release(&mem);
    }
}
