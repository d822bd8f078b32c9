/* ops_norm.c -- isolation of values that are not finite in norms, and sums in
 * blocks. */
#include "tests/support/op_call.h"

/* In evaluation the statistics are constants, so a gradient that is not finite
 * affects only its element; sums over the batch must not spread it. */
TEST(batch_norm_eval_keeps_to_itself)
{
    Arena mem = {0};
    for (int k = 0; k < 2; k++) {
        OpValues in, out;
        OpCase c = {.attr = op_default(OP_batch_norm),
                    .rank = 1,
                    .x = {{2, 1, 1, 3, 2}},
                    .fill[4] = {FILL_RANGE, 0.2, 3},
                    .wrt = 1,
                    .eval = true};
        c.x[3] = c.x[4] = (Dims){1, 1, 1, 1, 2};
        REQUIRE(opcase_values(&c, &mem, &in));
        in.dy[4] = INFINITY;
        given_values(given_backend(k), 1, &c, &in, &mem, &out);
        for (int64_t i = 0; i < out.count[0]; i++)
            EXPECT((isfinite(out.dx[0][i]) != 0) == (i != 4));
    }
    arena_release(&mem);
}

/* Rows of several full and partial blocks; many channels. The sums for gamma
 * and beta go by blocks, and must not depend on threads. */
TEST(layer_norm_in_blocks)
{
    static const Dims shape[] = {{2, 1, 1, 1025, 5},
                                 {3, 1, 7, 50, 65},
                                 {1, 1, 1, 130, 512},
                                 {1, 1, 1, 70, 1100}};

    for (size_t i = 0; i < sizeof shape / sizeof *shape; i++) {
        Arena mem = {0};
        OpValues in, one, three;
        const Dims per = {1, 1, 1, 1, shape[i].c};
        OpCase c = {.attr = op_default(OP_layer_norm),
                    .rank = 2,
                    .x = {shape[i], per, per},
                    .wrt = 7};
        OpCheck check = {.be = given_backend(1), .report = given_report};
        opcase_agree(&c, &check);
        opcase_adding(&c, &check);
        REQUIRE(opcase_values(&c, &mem, &in));
        given_values(given_backend(1), 1, &c, &in, &mem, &one);
        given_values(given_backend(1), 3, &c, &in, &mem, &three);
        EXPECT(!memcmp(one.y, three.y, (size_t)in.results * sizeof *one.y));
        for (int k = 0; k < 3; k++)
            EXPECT(!memcmp(one.dx[k], three.dx[k],
                           (size_t)in.count[k] * sizeof *one.dx[k]));
        arena_release(&mem);
    }
}

/* A NaN affects y and dx of its own row only, and the gradient of gamma, a sum
 * over all rows. */
TEST(layer_norm_keeps_to_its_row)
{
    enum { ROWS = 9, WIDE = 6, ODD = 4 };
    for (int k = 0; k < 2; k++) {
        Arena mem = {0};
        OpValues in, out;
        const Dims per = {1, 1, 1, 1, WIDE};
        OpCase c = {.attr = op_default(OP_layer_norm),
                    .rank = 1,
                    .x = {{1, 1, 1, ROWS, WIDE}, per, per},
                    .wrt = 7};
        REQUIRE(opcase_values(&c, &mem, &in));
        in.x[0][ODD * WIDE + 1] = NAN;
        given_values(given_backend(k), 1, &c, &in, &mem, &out);
        for (int i = 0; i < ROWS * WIDE; i++) {
            EXPECT((isnan(out.y[i]) != 0) == (i / WIDE == ODD));
            EXPECT((isnan(out.dx[0][i]) != 0) == (i / WIDE == ODD));
        }
        for (int i = 0; i < WIDE; i++)
            EXPECT(isnan(out.dx[1][i]) && isfinite(out.dx[2][i]));
        arena_release(&mem);
    }
}
