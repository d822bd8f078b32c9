/* ops_indices.c -- sorting and gathering: NaN, equal elements, wrong indices,
 * several axes, long fibres. */
#include "engine/base/rng.h"
#include "tests/support/op_call.h"

/* A case along w of x (1, count). */
static OpCase along_w(Op op, int32_t count)
{
    OpCase c = {.attr = op_default(op), .rank = 1};
    c.attr.sum.w = 1;
    c.x[0] = (Dims){1, 1, 1, count, 1};
    return c;
}

/* NaN is the largest, minus zero equals zero, and equals keep their order. */
TEST(argsort_by_hand)
{
    static const double x[8] = {0.0,  NAN,      -INFINITY, 2,
                                -0.0, INFINITY, -NAN,      2};
    static const double up[8] = {2, 0, 4, 3, 7, 5, 1, 6};
    static const double down[8] = {1, 6, 5, 3, 7, 0, 4, 2};
    Arena mem = {0};
    for (int i = 0; i < 4; i++) {
        OpValues out;
        OpCase c = along_w(OP_argsort, 8);
        c.attr.argsort.descending = i % 2;
        given_run(given_backend((size_t)i / 2), &c, (const double *[MAX_IN]){x},
                  NULL, &mem, &out);
        given_near(out.y, i % 2 ? down : up, 8, 0);
    }
    arena_release(&mem);
}

/* Long fibres of each kind of number, of one and of several fibres: the
 * permutation is complete, and each element comes before the next. */
TEST(argsort_of_long_fibres)
{
    static const double special[4] = {NAN, INFINITY, -INFINITY, 0};
    enum { COUNT = 20011 };
    Arena mem = {0};
    double *x = ARENA_NEW(&mem, double, 2 * COUNT);
    REQUIRE(x);
    const Rng r = {.seed = 3, .stream = RNG_TEST};
    for (uint32_t i = 0; i < 2 * COUNT; i++)
        x[i] = rng_below(&r, 2 * i, 9)
                   ? (double)(float)(rng_uniform(&r, 2 * i + 1) - 0.5f)
                   : special[rng_below(&r, 2 * i + 1, 4)];

    for (size_t i = 0; i < 4; i++) {
        OpValues out;
        OpCase c = along_w(OP_argsort, COUNT);
        const int32_t channels = i % 2 ? 2 : 1; // the fibres alternate
        c.x[0].c = channels;
        given_run(given_backend(i / 2), &c, (const double *[MAX_IN]){x}, NULL,
                  &mem, &out);
        char *seen = ARENA_NEW(&mem, char, channels *COUNT);
        REQUIRE(seen);
        memset(seen, 0, (size_t)channels * COUNT);
        for (int32_t ch = 0; ch < channels; ch++)
            for (int32_t k = 0; k < COUNT; k++) {
                const int32_t at = (int32_t)out.y[k * channels + ch];
                REQUIRE(at >= 0 && at < COUNT);
                EXPECT(!seen[at * channels + ch]++);
                if (!k) continue;
                const int32_t last = (int32_t)out.y[(k - 1) * channels + ch];
                const double a = x[last * channels + ch];
                const double b = x[at * channels + ch];
                const bool same = a == b || (isnan(a) && isnan(b));
                EXPECT(same ? last < at : a < b || isnan(b));
            }
    }
    arena_release(&mem);
}

/* An index that is none of the fibre's gives NaN and takes no gradient; others
 * are rounded, and what is chosen twice has the sum of two gradients. */
TEST(gather_by_hand)
{
    static const double x[3] = {5, 6, 7}, dy[8] = {1, 2, 4, 8, 16, 32, 64, 128};
    static const double index[8] = {2, -1, 0.4, 3, NAN, INFINITY, 1.6, -0.4};
    Arena mem = {0};
    for (size_t i = 0; i < 2; i++) {
        OpValues out;
        OpCase c = along_w(OP_gather, 3);
        c.x[1] = (Dims){1, 1, 1, 8, 1}, c.wrt = 1;
        given_run(given_backend(i), &c, (const double *[MAX_IN]){x, index}, dy,
                  &mem, &out);
        for (int k = 0; k < 8; k++)
            if (k == 0 || k == 6)
                EXPECT(out.y[k] == 7);
            else if (k == 2 || k == 7)
                EXPECT(out.y[k] == 5);
            else
                EXPECT(isnan(out.y[k]));
        given_near(out.dx[0], (const double[3]){4 + 128, 0, 1 + 64}, 3, 0);
    }
    arena_release(&mem);
}

/* Several axes count as one in user order: element k of (C,H,W) = (2,1,3) is
 * channel k / 3, position k % 3, while memory has the channels next to each
 * other. */
TEST(gather_counts_in_user_order)
{
    static const double x[6] = {0, 3, 1, 4, 2, 5}, index[2] = {4, 1};
    Arena mem = {0};
    for (size_t i = 0; i < 2; i++) {
        OpValues out;
        OpCase c = along_w(OP_gather, 3);
        c.attr.gather.c = 1, c.x[0].c = 2;
        c.x[1] = (Dims){1, 1, 1, 2, 1};
        given_run(given_backend(i), &c, (const double *[MAX_IN]){x, index},
                  NULL, &mem, &out);
        given_near(out.y, index, 2, 0);
    }
    arena_release(&mem);
}

/* More elements than a float can number are refused. */
TEST(indices_have_an_end)
{
    const Tensor x[MAX_IN] = {{{1, 1, 4097, 4096, 1}, F32, 2, NULL},
                              {{1, 1, 1, 1, 1}, F32, 2, NULL}};
    Attr a = op_default(OP_argsort);
    Tensor y;
    a.sum.w = 1;
    EXPECT(op_shape(&a, x, &y));
    a.sum.h = 1;
    EXPECT(!op_shape(&a, x, &y));
    EXPECT(strstr(err_text(), "counts to 16777216"));
    a = op_default(OP_gather);
    a.sum.w = a.sum.h = 1;
    EXPECT(!op_shape(&a, x, &y));
}

/* The first of the largest; NaN is the largest. Several axes count as one in
 * user order. */
TEST(argmax_by_hand)
{
    static const double rows[4][4] = {
        {1, 3, 3, 2}, {1, NAN, 9, NAN}, {-INFINITY, -2, -1, -1}, {0, -0.0}};
    static const double want[4] = {1, 1, 2, 0};
    Arena mem = {0};
    for (size_t i = 0; i < 8; i++) {
        OpValues out;
        OpCase c = along_w(OP_argmax, i % 4 == 3 ? 2 : 4);
        given_run(given_backend(i / 4), &c,
                  (const double *[MAX_IN]){rows[i % 4]}, NULL, &mem, &out);
        EXPECT(out.y[0] == want[i % 4]);
    }
    for (size_t i = 0; i < 2; i++) {
        static const double x[6] = {0, 1, 0, 0, 1, 0}; // w 3, c 2
        OpValues out;
        OpCase c = along_w(OP_argmax, 3);
        c.x[0].c = 2, c.attr.argmax.c = 1;
        given_run(given_backend(i), &c, (const double *[MAX_IN]){x}, NULL, &mem,
                  &out);
        EXPECT(out.y[0] == 2); // channel 0, position 2
    }
    arena_release(&mem);
}

TEST(one_hot_by_hand)
{
    static const double x[4] = {1, 2.6, NAN, -1};
    static const double want[12] = {0, 1, 0, 0, 0, 0, NAN, NAN, NAN, 0, 0, 0};
    Arena mem = {0};
    for (size_t i = 0; i < 2; i++) {
        OpValues out;
        OpCase c = {.attr = op_default(OP_one_hot), .rank = 1};
        c.attr.one_hot.classes = 3;
        c.x[0] = (Dims){1, 1, 1, 4, 1};
        given_run(given_backend(i), &c, (const double *[MAX_IN]){x}, NULL, &mem,
                  &out);
        for (int k = 0; k < 12; k++)
            EXPECT(out.y[k] == want[k] || (isnan(out.y[k]) && isnan(want[k])));
    }
    arena_release(&mem);
}

/* Rows by index; the gradient of a row is the sum over its readers, of a row
 * without one 0. */
TEST(embedding_by_hand)
{
    static const double table[6] = {1, 2, 3, 4, 5, 6}, index[4] = {2, 0, 2, 5};
    static const double dy[8] = {1, 2, 4, 8, 16, 32, 64, 128};
    Arena mem = {0};
    for (size_t i = 0; i < 2; i++) {
        OpValues out;
        OpCase c = {.attr = op_default(OP_embedding), .rank = 1, .wrt = 1};
        c.x[0] = (Dims){3, 1, 1, 1, 2}, c.x[1] = (Dims){2, 1, 1, 2, 1};
        given_run(given_backend(i), &c, (const double *[MAX_IN]){table, index},
                  dy, &mem, &out);
        given_near(out.y, (const double[6]){5, 6, 1, 2, 5, 6}, 6, 0);
        EXPECT(isnan(out.y[6]) && isnan(out.y[7]));
        given_near(out.dx[0], (const double[6]){4, 8, 0, 0, 17, 34}, 6, 0);
    }
    arena_release(&mem);
}
