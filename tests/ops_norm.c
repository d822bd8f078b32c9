/* ops_norm.c -- what must not spread in a normalisation. */
#include "given.h"

/* In evaluation the statistics are constants, so a gradient that is not
 * finite stays with its element; sums over the batch must not spread it. */
TEST(batch_norm_eval_keeps_to_itself)
{
    Arena mem = {0};
    for (int k = 0; k < 2; k++) {
        OpDevice d;
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
        REQUIRE(opdevice_open(given_backend(k), 1, &d));
        bool ok = oprun(&c, &d, &in, (OpOptions){0}, &mem, &out);
        opdevice_close(&d);
        REQUIRE(ok);
        for (int64_t i = 0; i < out.count[0]; i++)
            EXPECT((isfinite(out.dx[0][i]) != 0) == (i != 4));
    }
    arena_release(&mem);
}
