/* conv_small_cin.c -- convolutions of 5 to 15 channels on the emulated device:
 * y and dw against ref; with an implicit concat, the same bits as with a stored
 * concat. */
#include "tests/cuda/emulator/emu_control.h"
#include "tests/cuda/kernels/bench.h"
#include "tests/cuda/kernels/windowed.h"

static const Windowed windows[] = {
    {2, {2, 1, 9, 13, 5}, 32, 3, 1, 1, 1, 1},
    {3, {1, 9, 11, 21, 11}, 64, 4, 2, 1, 1, 1}, // chains, boxes
    {3, {2, 5, 4, 7, 7}, 40, 3, 1, 1, 1, 1},
    {2, {1, 1, 17, 8, 12}, 24, 3, 1, 1, 1, 1},
    {2, {1, 1, 11, 7, 14}, 72, 4, 2, 1, 2, 1}, // two columns of blocks
    {2, {3, 1, 10, 9, 6}, 8, 5, 3, 0, 3, 2},
    {3, {1, 6, 7, 5, 9}, 16, 2, 2, 1, 0, 1},
    {1, {2, 1, 1, 500, 13}, 8, 16, 1, 8, 7, 1},
    {0, {37, 1, 1, 1, 15}, 48, 1, 1, 0, 0, 1},
    {2, {1, 1, 33, 9, 10}, 136, 3, 2, 1, 1, 1},
    {2, {1, 1, 12, 14, 5}, 16, 8, 1, 4, 3, 1}, // another chain, fewer channels
};
enum { WINDOWS = sizeof windows / sizeof *windows };

TEST(small_cin_of_each_window)
{
    for (int i = 0; i < WINDOWS; i++)
        for (int p = PRECISION_bf16; p <= PRECISION_f16; p++) {
            const OpCase c = windowed_case(&windows[i], (uint32_t)(i + p), 7);
            OpCheck k = {.be = &backend_cuda,
                         .precision = (Precision)p,
                         .report = given_report};
            emu_reset_counts();
            opcase_agree(&c, &k);
            EXPECT_INT(emu_launch_count("small_cin_kernel"), 2);
            EXPECT_INT(emu_launch_count("igemm_mma_kernel<P, 64, 64, false"),
                       0);
            windowed_y16(&c, &k);
            EXPECT_INT(emu_launch_count("small_cin_kernel"), 4);
        }
}

/* Convolutions that small_cin does not take: too few or too many channels, 8
 * channels, a number of filters that is no multiple of 8, groups, a halo that
 * does not fit into shared memory, operands in f32. */
TEST(small_cin_not_otherwise)
{
    static const Windowed others[] = {
        {2, {1, 1, 8, 7, 4}, 8, 3, 1, 1, 1, 1},
        {2, {1, 1, 8, 7, 17}, 8, 3, 1, 1, 1, 1},
        {2, {1, 1, 8, 7, 8}, 8, 3, 1, 1, 1, 1},
        {2, {1, 1, 8, 7, 16}, 8, 3, 1, 1, 1, 1},
        {2, {1, 1, 8, 7, 5}, 12, 3, 1, 1, 1, 1},
        {3, {1, 9, 9, 40, 5}, 8, 3, 4, 8, 8, 8},
        {2, {1, 1, 8, 7, 10}, 16, 3, 1, 1, 1, 1},
        {2, {1, 1, 8, 7, 10}, 16, 3, 1, 1, 1, 1},
    };
    enum { COUNT = sizeof others / sizeof *others };

    for (int i = 0; i < COUNT; i++) {
        OpCase c = windowed_case(&others[i], 2, 7);
        OpCheck k = {.be = &backend_cuda,
                     .precision = PRECISION_bf16,
                     .report = given_report};
        if (i == COUNT - 2) c.attr.conv.groups = 2, c.x[1].c = 5;
        if (i == COUNT - 1) k.precision = PRECISION_tf32;
        emu_reset_counts();
        opcase_agree(&c, &k);
        EXPECT_INT(emu_launch_count("small_cin_kernel"), 0);
    }
}

/* A convolution of a concat; its first operand has `first` channels. */
typedef struct Pair {
    Shape shape;
    int first;
} Pair;

static const Pair pairs[] = {
    {{OP_conv, {2, 9, 7, 13, 11}, {64, 4, 4, 4, 11}, 2, 1, 1}, 1},
    {{OP_conv, {1, 1, 15, 17, 7}, {40, 1, 3, 3, 7}, 1, 1, 1}, 3},
    {{OP_conv, {2, 1, 9, 11, 7}, {24, 1, 3, 3, 7}, 1, 1, 1}, 4},
    {{OP_conv, {1, 3, 5, 6, 15}, {72, 3, 3, 3, 15}, 1, 1, 1}, 13},
    {{OP_conv, {1, 1, 9, 23, 6}, {8, 1, 5, 5, 6}, 3, 2, 1}, 5},
    {{OP_conv, {2, 1, 1, 90, 14}, {16, 1, 1, 1, 14}, 1, 0, 1}, 6},
    {{OP_conv, {2, 1, 9, 11, 15}, {24, 1, 3, 3, 15}, 1, 1, 1}, 8},
    {{OP_conv, {1, 1, 13, 8, 15}, {24, 1, 3, 3, 15}, 1, 1, 1}, 1},
    {{OP_conv, {1, 5, 6, 7, 9}, {16, 2, 2, 2, 9}, 2, 0, 1}, 3},
};
enum { PAIRS = sizeof pairs / sizeof *pairs };

/* Draws two operands x[0], x[1] and stores their concat in x[2]. */
static void operands(Bench *b, const Pair *s, Tensor x[3])
{
    const Attr concat = op_default(OP_concat);
    const Dtype type = precision_copy(b->precision);
    Dims one = s->shape.x, two = s->shape.x;

    one.c = s->first, two.c -= s->first;
    x[0] = uniform(b, one, F32, -1, 1), x[1] = uniform(b, two, F32, -1, 1);
    x[2] = tensor_of(b, s->shape.x, type);
    run(b, &(Call){.attr = &concat, .x = {&x[0], &x[1]}, .y = &x[2]});
    b->draws -= 2; // the same numbers, rounded
    const uint32_t draws = b->draws;
    for (int i = 0; i < 2; i++) {
        b->draws = draws + (uint32_t)i;
        x[i] = uniform(b, x[i].dim, type, -1, 1);
    }
}

/* A convolution with deferred norm of an implicit concat gives the same bits as
 * of the stored concat: y, and dw, which depends on the statistics, as wgrad
 * takes dy back through the norm; or, if `plain`, dw from a given dy. */
static void implicit_concat(Precision p, const Pair *s, bool plain)
{
    Bench b;
    NormAct h;
    Call c[2];
    Tensor x[3], y[2], dw[2], dy[2], gamma[2], beta[2];

    bench_open(&b, p);
    const Dtype type = precision_copy(p);
    const Attr attr = attr_of(&s->shape);
    operands(&b, s, x);
    const Tensor w = uniform(&b, s->shape.w, type, -1, 1);
    y[0] = deferred_conv(&b, &attr, &x[2], &w, &h, &c[0]);
    y[1] = tensor_of(&b, y[0].dim, type);
    c[0].y = &y[0];
    c[1] = c[0], c[1].y = &y[1], c[1].saved = NULL;
    c[1].x[0] = &x[0], c[1].x[X2] = &x[1];
    EXPECT(backend_cuda.fusions(&c[1]).concat);
    EXPECT_INT(backend_cuda.fusions(&c[1]).x_norm, 0);
    Call trained = c[1];
    trained.dx[X2] = &x[1];
    EXPECT(!backend_cuda.fusions(&trained).concat);
    emu_reset_counts();
    run(&b, &c[1]);
    EXPECT_INT(emu_launch_count("small_cin_kernel"), 1);
    EXPECT_INT(emu_launch_count("norm_stats_kernel"), 0);
    same(&b, &y[1], &y[0]);

    for (int i = 0; i < 2; i++) {
        b.draws = 100;
        dy[i] = uniform(&b, y[0].dim, type, -1, 1);
        dw[i] = uniform(&b, s->shape.w, F32, -1, 1);
        gamma[i] = tensor_of(&b, h.x[1].dim, F32);
        beta[i] = tensor_of(&b, h.x[1].dim, F32);
        if (plain) c[i].norm = (CallNorm){.attr = NULL}, c[i].act = NULL;
        c[i].dy = &dy[i], c[i].dx[1] = &dw[i];
        c[i].norm.dx[1] = &gamma[i], c[i].norm.dx[2] = &beta[i];
        c[i].fresh = p == PRECISION_bf16 ? ~0u : 0;
        if (!c[i].fresh && !plain)
            for (int k = 0; k < 2; k++)
                (k ? beta : gamma)[i] = uniform(&b, h.x[1].dim, F32, -1, 1);
        run(&b, &c[i]);
        same(&b, &dw[i], &dw[0]);
        if (!plain) same(&b, &gamma[i], &gamma[0]);
    }
    bench_close(&b);
}

/* A concat of a multiple of 8 channels is stored: igemm_tile takes the
 * convolution, and its bits are promised. */
static void explicit_concat(const Shape *s, int first)
{
    Bench b;
    bench_open(&b, PRECISION_bf16);
    const Attr attr = attr_of(s);
    Dims one = s->x, two = s->x;
    one.c = first, two.c -= first;
    const Tensor x[] = {tensor_of(&b, one, BF16), tensor_of(&b, two, BF16)};
    const Tensor whole = tensor_of(&b, s->x, BF16);
    const Tensor w = tensor_of(&b, s->w, BF16);
    Tensor in[MAX_IN] = {whole, w}, y;
    REQUIRE(op_shape(&attr, in, &y));
    const Call c = {.attr = &attr,
                    .precision = b.precision,
                    .x = {&x[0], &w, [X2] = &x[1]},
                    .y = &y};
    EXPECT(!backend_cuda.fusions(&c).concat);
    EXPECT_INT(backend_cuda.fusions(&c).x_norm, 1 | 1 << X2);
    bench_close(&b);
}

TEST(small_cin_of_implicit_concat)
{
    explicit_concat(
        &(Shape){OP_conv, {1, 1, 9, 8, 16}, {8, 1, 3, 3, 16}, 1, 1, 1}, 8);
    explicit_concat(
        &(Shape){OP_conv, {1, 1, 9, 8, 8}, {8, 1, 3, 3, 8}, 1, 1, 1}, 3);
    for (int i = 0; i < PAIRS; i++) {
        implicit_concat(i % 2 ? PRECISION_bf16 : PRECISION_f16, &pairs[i],
                        i % 3 == 0);
        if (i < 3) implicit_concat(PRECISION_bf16, &pairs[i], i % 3);
    }
}
