/* ops_elementwise.c -- elementwise operators and operators that only move
 * numbers, beyond the properties of ops.c: numbers computed by hand or by
 * PyTorch, and NaN, which a diverging network must not lose. */
#include "cpu/lib/kernels.h"
#include "cpu/lib/thread_pool.h"
#include "engine/base/rng.h"
#include "tests/golden/ops_golden.h"
#include "tests/support/op_call.h"

// -- numbers -----------------------------------------------------------------

TEST(broadcast_by_hand)
{
    // (1,1,1,3,2) with a vector of channels and with one number
    static const double a[6] = {1, 2, 3, 4, 5, 6}, b[2] = {2, 4}, one[1] = {2};
    static const double dy[6] = {1, 1, 2, 2, 4, 4};
    static const struct {
        Op op;
        double y[6], da[6], db[2], sum; /* sum: gradient of a single number */
    } row[4] = {
        {OP_add, {3, 6, 5, 8, 7, 10}, {1, 1, 2, 2, 4, 4}, {7, 7}, 14},
        {OP_sub, {-1, -2, 1, 0, 3, 2}, {1, 1, 2, 2, 4, 4}, {-7, -7}, -14},
        {OP_mul, {2, 8, 6, 16, 10, 24}, {2, 4, 4, 8, 8, 16}, {27, 34}, 61},
        {OP_div,
         {0.5, 0.5, 1.5, 1, 2.5, 1.5},
         {0.5, 0.25, 1, 0.5, 2, 1},
         {-6.75, -2.125},
         -15.25},
    };
    Arena mem = {0};

    for (int i = 0; i < 8; i++) {
        OpValues out;
        OpCase c = {.attr = op_default(row[i / 2].op), .rank = 1, .wrt = 3};
        c.x[0] = (Dims){1, 1, 1, 3, 2}, c.x[1] = (Dims){1, 1, 1, 1, 2};
        given_run(given_backend(i % 2), &c, (const double *[MAX_IN]){a, b}, dy,
                  &mem, &out);
        given_near(out.y, row[i / 2].y, 6, 1e-6);
        given_near(out.dx[0], row[i / 2].da, 6, 1e-6);
        given_near(out.dx[1], row[i / 2].db, 2, 1e-6);
        c.x[1].c = 1;
        given_run(given_backend(i % 2), &c, (const double *[MAX_IN]){a, one},
                  dy, &mem, &out);
        given_near(out.dx[1], &row[i / 2].sum, 1, 1e-6);
    }
    arena_release(&mem);
}

TEST(layout_by_hand)
{
    // (1,1,2,2,2): position p has channels 10 p + 1 and 10 p + 2
    static const double x[8] = {1, 2, 11, 12, 21, 22, 31, 32};
    static const double flat[8] = {1, 11, 21, 31, 2, 12, 22, 32};
    static const double cut[2] = {12, 32};
    static const double framed[12] = {1, 2, 11, 12, 9, 9, 21, 22, 31, 32, 9, 9};
    const double *const operands[MAX_IN] = {x};
    Arena mem = {0};

    for (int i = 0; i < 2; i++) {
        OpValues out;
        OpCase c = {.attr = op_default(OP_flatten), .rank = 2};
        c.x[0] = (Dims){1, 1, 2, 2, 2};
        given_run(given_backend(i), &c, operands, NULL, &mem, &out);
        given_near(out.y, flat, 8, 0);
        c.attr = op_default(OP_slice);
        c.attr.slice.w0 = 1, c.attr.slice.c0 = 1;
        given_run(given_backend(i), &c, operands, NULL, &mem, &out);
        EXPECT_INT(out.results, 2);
        given_near(out.y, cut, 2, 0);
        c.attr = op_default(OP_pad);
        c.attr.pad.pw1 = 1, c.attr.pad.value = 9;
        given_run(given_backend(i), &c, operands, NULL, &mem, &out);
        EXPECT_INT(out.results, 12);
        given_near(out.y, framed, 12, 0);
    }
    arena_release(&mem);
}

TEST(concat_by_hand)
{
    static const double a[2] = {1, 2}, b[4] = {3, 4, 5, 6}, c3[2] = {7, 8};
    static const double y[8] = {1, 3, 4, 7, 2, 5, 6, 8};
    Arena mem = {0};

    for (int i = 0; i < 2; i++) {
        OpValues out;
        OpCase c = {.attr = op_default(OP_concat), .rank = 1, .wrt = 7};
        c.x[0] = c.x[2] = (Dims){1, 1, 1, 2, 1};
        c.x[1] = (Dims){1, 1, 1, 2, 2};
        // backward of concat with dy = y returns the operands
        given_run(given_backend(i), &c, (const double *[MAX_IN]){a, b, c3}, y,
                  &mem, &out);
        given_near(out.y, y, 8, 0);
        given_near(out.dx[0], a, 2, 0);
        given_near(out.dx[1], b, 4, 0);
        given_near(out.dx[2], c3, 2, 0);
    }
    arena_release(&mem);
}

/* An operand that occurs twice may have one gradient block for both. */
TEST(concat_twice)
{
    enum { P = 7, C = 3, TIMES = 3 };
    for (size_t i = 0; i < 2; i++) {
        const Backend *be = given_backend(i);
        size_t real = dtype_bytes(be->real);
        double room[P * C * TIMES]; // of either real type
        Tensor dy = {{1, 1, 1, P, C * TIMES}, be->real, 1, room};
        Tensor dx = {{1, 1, 1, P, C}, be->real, 1, NULL}, other = dx, x = dx;
        void *dev, *at[3];
        REQUIRE(be->open(0, 1, &dev));
        for (int k = 0; k < 3; k++)
            REQUIRE(be->alloc(dev, sizeof room, &at[k]));
        for (int k = 0; k < P * C * TIMES; k++) tensor_set(&dy, k, k);
        REQUIRE(be->upload(dev, at[0], room, real * P * C * TIMES));
        dy.data = at[0], dx.data = at[1], other.data = at[2];
        Attr attr = op_default(OP_concat);
        Call c = {.attr = &attr,
                  .dev = dev,
                  .threads = 1,
                  .x = {&x, &x, &x},
                  .y = &dy,
                  .dy = &dy,
                  .dx = {&dx, &other, &dx},
                  .fresh = 3}; // the second call adds
        REQUIRE(be->bwd[OP_concat](&c));
        REQUIRE(be->download(dev, room, at[1], real * P * C));
        dx.data = room;
        for (int k = 0; k < P * C; k++) {
            int first = k / C * C * TIMES + k % C;
            EXPECT_NEAR(tensor_get(&dx, k), 2 * first + 2 * C, 0);
        }
        for (int k = 0; k < 3; k++) be->release(dev, at[k]);
        be->close(dev);
    }
}

TEST(activation_golden)
{
    static const struct {
        Op op;
        const double *y, *dx;
    } row[] = {
        {OP_gelu, golden_gelu, golden_gelu_grad},
        {OP_silu, golden_silu, golden_silu_grad},
        {OP_sigmoid, golden_sigmoid, golden_sigmoid_grad},
        {OP_tanh, golden_tanh, golden_tanh_grad},
    };
    double x[16], ones[16];
    for (int i = 0; i < 16; i++) x[i] = (i * 5 % 64 - 32) / 8.0, ones[i] = 1;
    Arena mem = {0};

    for (int i = 0; i < 8; i++) {
        OpValues out;
        OpCase c = {.attr = op_default(row[i / 2].op), .rank = 0, .wrt = 1};
        c.x[0] = (Dims){1, 1, 1, 1, 16};
        given_run(given_backend(i % 2), &c, (const double *[MAX_IN]){x}, ones,
                  &mem, &out);
        given_near(out.y, row[i / 2].y, 16, i % 2 ? 1e-6 : 1e-14);
        given_near(out.dx[0], row[i / 2].dx, 16, i % 2 ? 1e-6 : 1e-14);
    }
    arena_release(&mem);
}

TEST(softmax_extremes)
{
    static const double x[6] = {100, -100, 0, 1e4, 1e4, -1e4};
    static const double y[6] = {1, 1.3838965267367376e-87, 3.72e-44, 0.5, 0.5,
                                0};
    Arena mem = {0};

    for (int i = 0; i < 2; i++) {
        OpValues out;
        OpCase c = {.attr = op_default(OP_softmax), .rank = 1, .wrt = 1};
        c.x[0] = (Dims){1, 1, 1, 2, 3};
        given_run(given_backend(i), &c, (const double *[MAX_IN]){x}, NULL, &mem,
                  &out);
        given_near(out.y, y, 6, 1e-15);
        for (int k = 0; k < 6; k++) EXPECT(isfinite(out.dx[0][k]));
    }
    arena_release(&mem);
}

// -- dropout -----------------------------------------------------------------

/* Is element (n, i) of a sample with `draws` draws kept, by the contract? */
static bool kept(uint32_t n, uint32_t i, float p)
{
    // seed, step and node of oprun
    Rng r = {
        .seed = 3, .stream = RNG_DROPOUT, .op = 7, .epoch = 5, .sample = n};
    return rng_uniform(&r, i) >= p;
}

TEST(dropout_draws)
{
    const float p = 0.25f;
    const Dims s = {3, 1, 5, 7, 6};
    const int64_t size = positions(s) * s.c;
    Arena mem = {0};

    for (int i = 0; i < 4; i++) {
        bool spatial = i / 2;
        OpValues out, in;
        OpCase c = {.attr =
                        op_default(spatial ? OP_spatial_dropout : OP_dropout),
                    .rank = 2,
                    .wrt = 1};
        c.x[0] = s, c.fill[0] = (Fill){FILL_GAP, 1, 2};
        c.attr.dropout.p = p; // both operators begin with it
        REQUIRE(opcase_values(&c, &mem, &in));
        given_run(given_backend(i % 2), &c, (const double *[MAX_IN]){0}, NULL,
                  &mem, &out);
        int64_t zeros = 0, wrong = 0;
        for (int64_t k = 0; k < numel(s); k++) {
            uint32_t n = (uint32_t)(k / size), index = (uint32_t)(k % size);
            if (spatial) index %= (uint32_t)s.c;
            double factor = kept(n, index, p) ? 1 / 0.75 : 0;
            zeros += factor == 0;
            wrong += fabs(out.y[k] - in.x[0][k] * factor) > 1e-6;
            wrong += fabs(out.dx[0][k] - in.dy[k] * factor) > 1e-6;
        }
        EXPECT_INT(wrong, 0);
        EXPECT(zeros > 0 && zeros < numel(s));
        // 630 draws: 6 standard deviations of the dropped fraction
        if (!spatial) EXPECT_NEAR((double)zeros / (double)numel(s), p, 0.104);
    }
    arena_release(&mem);
}

/* 0 times infinity would be NaN. */
TEST(dropout_drops_what_is_not_finite)
{
    enum { N = 64 };
    double x[N];
    for (int k = 0; k < N; k++) x[k] = INFINITY;
    Arena mem = {0};

    for (int i = 0; i < 4; i++) {
        OpValues out;
        OpCase c = {.attr = op_default(i / 2 ? OP_spatial_dropout : OP_dropout),
                    .rank = 0,
                    .x = {{1, 1, 1, 1, N}},
                    .wrt = 1};
        given_run(given_backend(i % 2), &c, (const double *[MAX_IN]){x}, x,
                  &mem, &out);
        int zeros = 0;
        for (int k = 0; k < N; k++) {
            EXPECT(out.y[k] == 0 || isinf(out.y[k]));
            EXPECT(out.dx[0][k] == out.y[k]);
            zeros += out.y[k] == 0;
        }
        EXPECT(zeros > 0 && zeros < N);
    }
    arena_release(&mem);
}

TEST(dropout_in_evaluation)
{
    Arena mem = {0};
    for (int i = 0; i < 4; i++) {
        OpValues out, in;
        OpCase c = {.attr = op_default(i / 2 ? OP_spatial_dropout : OP_dropout),
                    .rank = 1,
                    .wrt = 1,
                    .eval = true};
        c.x[0] = (Dims){2, 1, 1, 9, 3};
        REQUIRE(opcase_values(&c, &mem, &in));
        given_run(given_backend(i % 2), &c, (const double *[MAX_IN]){0}, NULL,
                  &mem, &out);
        given_near(out.y, in.x[0], in.count[0], 0);
        given_near(out.dx[0], in.dy, in.results, 0);
    }
    arena_release(&mem);
}

/* Equal extents have a fast kernel on `cpu`: tested with a few elements and
 * with several blocks, with a NaN. */
TEST(mul_has_the_bits_of_the_plain_loops)
{
    static const Dims shape[] = {
        {1, 1, 1, 1, 1}, {2, 1, 3, 5, 7}, {3, 1, 1, 1, 16387}};
    const Attr attr = op_default(OP_mul);
    Pool *pool;

    REQUIRE(pool_open(3, &pool));
    for (int i = 0; i < 3; i++) {
        enum { A, B, DY, Y, DA, DB, SQUARE, PLAIN, TENSORS = PLAIN + 3 };
        const int64_t n = numel(shape[i]);
        const size_t bytes = (size_t)n * sizeof(float);
        const Rng r = {.seed = 2, .stream = RNG_TEST};
        Arena mem = {0};
        Tensor t[TENSORS];
        float *p[TENSORS];
        for (uint32_t k = 0; k < TENSORS; k++) {
            REQUIRE(p[k] = ARENA_NEW(&mem, float, n));
            for (int64_t e = 0; e < n && k < Y; e++)
                p[k][e] = rng_normal(&r, (uint32_t)e * Y + k);
            t[k] = (Tensor){.dim = shape[i], .type = F32, .data = p[k]};
        }
        p[A][n / 2] = NAN, p[B][n / 3] = INFINITY;
        Call c = {.attr = &attr,
                  .dev = pool,
                  .threads = 3,
                  .x = {&t[A], &t[B]},
                  .y = &t[Y],
                  .dy = &t[DY],
                  .dx = {&t[DA], &t[DB]},
                  .fresh = 3};
        EXPECT(cpu_mul_fwd(&c) && cpu_mul_bwd(&c));
        c.y = &t[PLAIN], c.dx[0] = &t[PLAIN + 1], c.dx[1] = &t[PLAIN + 2];
        EXPECT(plain_mul_fwd(&c) && plain_mul_bwd(&c));
        for (int k = 0; k < 3; k++)
            EXPECT(!memcmp(p[Y + k], p[PLAIN + k], bytes));
        // a square: both gradients are one block, and the second is added to it
        c.x[1] = c.x[0], c.dx[0] = c.dx[1] = &t[SQUARE], c.fresh = 1;
        EXPECT(cpu_mul_bwd(&c));
        for (int64_t e = 0; e < n; e++)
            EXPECT(p[SQUARE][e] == 2 * (p[DY][e] * p[A][e]) || e == n / 2);
        arena_release(&mem);
    }
    pool_close(pool);
}

// -- values that are not finite -----------------------------------------------

TEST(activation_keeps_nan)
{
    static const Op ops[] = {
        OP_relu,    OP_leaky_relu, OP_sigmoid, OP_tanh,  OP_gelu,  OP_silu,
        OP_softmax, OP_exp,        OP_log,     OP_log1p, OP_sqrt,  OP_rsqrt,
        OP_abs,     OP_sin,        OP_cos,     OP_erf,   OP_power, OP_clamp,
        OP_sign,    OP_floor,      OP_round,   OP_stop};
    const double x[1] = {NAN};
    Arena mem = {0};

    for (size_t i = 0; i < 2 * sizeof ops / sizeof *ops; i++) {
        OpValues out;
        OpCase c = {.attr = op_default(ops[i / 2]), .rank = 0};
        c.x[0] = (Dims){1, 1, 1, 1, 1};
        given_run(given_backend(i % 2), &c, (const double *[MAX_IN]){x}, NULL,
                  &mem, &out);
        if (!isnan(out.y[0]))
            test_failed(__FILE__, __LINE__, "%s of NaN on %s is %g",
                        op_info[ops[i / 2]].name, given_backend(i % 2)->name,
                        out.y[0]);
    }
    arena_release(&mem);
}

/* Two operands of which one is NaN: maximum, minimum and the others are NaN;
 * comparisons are 0; a select of the other operand is that operand. */
TEST(functions_of_nan)
{
    static const struct {
        Op op;
        bool first, second; // is the result NaN with NaN as this operand?
    } rows[] = {{OP_max, true, true},  {OP_min, true, true},
                {OP_pow, true, true},  {OP_mod, true, true},
                {OP_gt, false, false}, {OP_ge, false, false},
                {OP_eq, false, false}, {OP_select, false, true}};
    Arena mem = {0};

    for (size_t i = 0; i < 4 * sizeof rows / sizeof *rows; i++) {
        OpValues out;
        const double x[2] = {i % 2 ? NAN : 3, i % 2 ? 3 : NAN};
        OpCase c = {.attr = op_default(rows[i / 4].op), .rank = 0};
        c.x[0] = c.x[1] = (Dims){1, 1, 1, 1, 1};
        given_run(given_backend(i / 2 % 2), &c,
                  (const double *[MAX_IN]){&x[0], &x[1]}, NULL, &mem, &out);
        EXPECT_INT(isnan(out.y[0]),
                   i % 2 ? rows[i / 4].first : rows[i / 4].second);
    }
    arena_release(&mem);
}

/* Gradients at kinks: at equal operands half for each, at the limits of a
 * clamp 1, of abs at 0 none, as PyTorch has them. */
TEST(functions_at_kinks)
{
    const double one[1] = {1}, zero[1] = {0};
    const double *const same[MAX_IN] = {one, one}, *const none[MAX_IN] = {zero};
    Arena mem = {0};
    for (int i = 0; i < 2; i++) {
        OpValues out;
        OpCase c = {.attr = op_default(OP_max), .rank = 0, .wrt = 3};
        c.x[0] = c.x[1] = (Dims){1, 1, 1, 1, 1};
        given_run(given_backend(i), &c, same, one, &mem, &out);
        EXPECT(out.dx[0][0] == 0.5 && out.dx[1][0] == 0.5);
        c.attr = op_default(OP_min);
        given_run(given_backend(i), &c, same, one, &mem, &out);
        EXPECT(out.dx[0][0] == 0.5 && out.dx[1][0] == 0.5);
        c.x[1] = (Dims){0}, c.wrt = 1;
        c.attr = op_default(OP_clamp); // 0 .. 1
        given_run(given_backend(i), &c, same, one, &mem, &out);
        EXPECT(out.dx[0][0] == 1);
        c.attr = op_default(OP_abs);
        given_run(given_backend(i), &c, none, one, &mem, &out);
        EXPECT(out.dx[0][0] == 0);
    }
    arena_release(&mem);
}

/* The gradient of the largest element, shared by its equals; NaN is the
 * largest. */
TEST(amax_by_hand)
{
    static const double x[4] = {1, 3, 3, -2}, dy[1] = {8};
    const double nan[4] = {1, NAN, 3, 4};
    Arena mem = {0};
    for (int i = 0; i < 2; i++) {
        OpValues out;
        OpCase c = {.attr = op_default(OP_amax), .rank = 1, .wrt = 1};
        c.attr.amax.w = 1;
        c.x[0] = (Dims){1, 1, 1, 4, 1};
        given_run(given_backend(i), &c, (const double *[MAX_IN]){x}, dy, &mem,
                  &out);
        EXPECT(out.y[0] == 3);
        given_near(out.dx[0], (const double[4]){0, 4, 4, 0}, 4, 0);
        given_run(given_backend(i), &c, (const double *[MAX_IN]){nan}, dy, &mem,
                  &out);
        EXPECT(isnan(out.y[0]));
    }
    arena_release(&mem);
}

TEST(activation_extremes)
{
    // saturated, not NaN; -0 and the smallest numbers included
    static const double x[8] = {1e4, -1e4, 100, -100, 0, -0.0, 1e-40, -1e-40};
    static const Op ops[] = {OP_relu, OP_leaky_relu, OP_sigmoid,
                             OP_tanh, OP_gelu,       OP_silu};
    Arena mem = {0};

    for (size_t i = 0; i < 2 * sizeof ops / sizeof *ops; i++) {
        OpValues out;
        OpCase c = {.attr = op_default(ops[i / 2]), .rank = 0, .wrt = 1};
        c.x[0] = (Dims){1, 1, 1, 1, 8};
        given_run(given_backend(i % 2), &c, (const double *[MAX_IN]){x}, NULL,
                  &mem, &out);
        for (int k = 0; k < 8; k++)
            EXPECT(isfinite(out.y[k]) && isfinite(out.dx[0][k]));
    }
    arena_release(&mem);
}
