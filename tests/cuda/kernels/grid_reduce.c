/* grid_reduce.c -- grid reductions on the emulated device, compared with ref:
 * of one partial sum, of as many as a block adds at once, of one more, and of
 * numbers that leave a small last group. The suites of the operators have few
 * partial sums. */
#include "tests/support/op_call.h"

extern const Backend backend_cuda;

/* Receives the differences found. */
static void report(void *ctx, const char *text)
{
    (void)ctx;
    test_failed(__FILE__, __LINE__, "%s", text);
}

static void agrees(const OpCase *c, Precision p)
{
    OpCheck k = {.be = &backend_cuda,
                 .precision = p,
                 .once = given_once(),
                 .report = report};
    opcase_agree(c, &k);
    EXPECT_INT(k.failures, 0);
}

/* Numbers of partial sums; GRID_REDUCE_FAN_IN of grid_reduce.cuh is 32. */
static const int parts[] = {1, 2, 32, 33, 50};
enum { PARTS = sizeof parts / sizeof *parts };

/* With SEG_TEST_ONCE, when each access is checked, only 33 partial sums are
 * taken: a group of 32 and a last group of one. */
static bool is_taken(int i)
{
    return !given_once() || parts[i] == 33;
}

/* Rows of one partial sum: of a column reduction of 127 channels, of dw. */
enum { ODD = 127, ROWS = 64, POSITIONS = 1024 };

static OpCase linear(int rows, int in, int out, unsigned wrt)
{
    OpCase c = {.attr = op_default(OP_linear), .wrt = wrt};
    c.x[0] = (Dims){rows, 1, 1, 1, in};
    c.x[1] = (Dims){out, 1, 1, 1, in};
    c.x[2] = (Dims){1, 1, 1, 1, out};
    return c;
}

TEST(grid_reduce_dw)
{
    for (int i = 0; i < PARTS; i++) {
        if (!is_taken(i)) continue;
        const OpCase c = linear(parts[i] * POSITIONS, 1, 1, 2);
        agrees(&c, PRECISION_f32);
    }

    // tiles of 16 x 8 that w fills in part; 33 and 9 partial sums per tile
    static const Precision all[] = {PRECISION_f32, PRECISION_tf32,
                                    PRECISION_bf16, PRECISION_f16};

    for (int i = 0; i < 4; i++) {
        OpCase c =
            linear((given_once() && i % 2 ? 3 : 33) * POSITIONS, 12, 20, 2);
        agrees(&c, all[i]);
        c = linear((given_once() ? 3 : 9) * POSITIONS, 72, 40, 2);
        agrees(&c, all[i]);
    }
}

/* A depthwise convolution along one axis. */
static OpCase by_groups(int positions, int channels, int kernel)
{
    OpCase c = {.attr = op_default(OP_conv), .rank = 1, .wrt = 2};
    c.x[0] = (Dims){1, 1, 1, positions + kernel - 1, channels};
    c.x[1] = (Dims){channels, 1, 1, kernel, 1};
    c.attr.conv.groups = channels;
    return c;
}

TEST(grid_reduce_dw_of_groups)
{
    for (int i = 0; i < PARTS; i++) {
        if (!is_taken(i)) continue;
        const OpCase c = by_groups(parts[i] * POSITIONS, 2, 1);
        agrees(&c, PRECISION_f32);
    }

    // more channels than a block takes, and five taps where a block takes four
    OpCase c = by_groups(3 * POSITIONS + 5, 34, 5);
    agrees(&c, PRECISION_bf16);

    // so many columns that there is one partial sum; its warps have a chain of
    // 512 positions and a second one
    c = by_groups(8 * 513, 2, 1030);
    agrees(&c, PRECISION_f32);
}

TEST(grid_reduce_db)
{
    for (int i = 0; i < PARTS; i++) {
        if (!is_taken(i)) continue;
        const OpCase c = linear(parts[i] * ROWS, 1, ODD, 4);
        agrees(&c, PRECISION_f32);
    }
    // one channel; packs of four channels with an incomplete last part
    OpCase c = linear(40 * 8192, 1, 1, 4);
    agrees(&c, PRECISION_f32);
    c = linear(33 * 96 + 5, 1, 300, 4);
    agrees(&c, PRECISION_f32);
}

static OpCase norm(Op op, Dims x)
{
    OpCase c = {.attr = op_default(op), .rank = 2, .wrt = 7, .x = {x}};
    const int operands = op == OP_batch_norm ? 4 : 2;
    for (int i = 1; i <= operands; i++) c.x[i] = (Dims){1, 1, 1, 1, x.c};
    for (int i = 1; i <= operands; i++) c.fill[i] = (Fill){FILL_RANGE, 0.5, 2};
    c.changes = op == OP_batch_norm ? 1 << 3 | 1 << 4 : 0;
    return c;
}

TEST(grid_reduce_norms)
{
    for (int i = 0; i < PARTS; i++) {
        if (!is_taken(i)) continue;
        const Dims x = {1, 1, 1, parts[i] * ROWS, ODD};
        const OpCase c = norm(OP_batch_norm, x);
        agrees(&c, PRECISION_f32);
    }
    // two tiles of channels; partial sums for each sample
    OpCase c = norm(OP_batch_norm, (Dims){3, 1, 1, 33 * 32, 516});
    agrees(&c, PRECISION_f32);
    c = norm(OP_instance_norm, (Dims){2, 1, 1, 33 * ROWS, ODD});
    agrees(&c, PRECISION_f32);
}

/* Groups within one block's tile of channels, and groups across two tiles. */
TEST(grid_reduce_groups)
{
    OpCase c = norm(OP_group_norm, (Dims){2, 1, 1, 33 * ROWS, 126});
    c.attr.group_norm.groups = 3;
    agrees(&c, PRECISION_f32);
    c = norm(OP_group_norm, (Dims){2, 1, 1, 200, 516});
    c.attr.group_norm.groups = 3;
    agrees(&c, PRECISION_f32);
    c.x[0].w = 2;
    agrees(&c, PRECISION_f32);
}
