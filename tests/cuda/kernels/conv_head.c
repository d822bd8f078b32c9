/* conv_head.c -- 1x1 convolutions with few filters on the emulated device:
 * against ref, and in 16 bits against f32, with and without each gradient.
 * Operands with a deferred norm are in deferred_norm.c. */
#include "engine/check/ophalf.h"
#include "tests/cuda/emulator/emu_control.h"
#include "tests/support/op_call.h"

extern const Backend backend_cuda;

static OpCase case_of(Op op, Dims x, int results, unsigned wrt, uint32_t number)
{
    OpCase c = {.attr = op_default(op), .rank = 2, .x = {x}};
    c.x[1] = (Dims){results, 1, 1, 1, x.c};
    if (number % 3) c.x[2] = (Dims){1, 1, 1, 1, results};
    c.wrt = number % 3 ? wrt : wrt & 3;
    c.number = number;
    return c;
}

static OpCheck check_of(Precision p)
{
    return (OpCheck){
        .be = &backend_cuda, .precision = p, .report = given_report};
}

/* Checks all properties of a case and that the head kernels ran it. */
static void holds(const OpCase *c, Precision p)
{
    OpCheck k = check_of(p);
    emu_reset_counts();
    opcase_agree(c, &k);
    EXPECT_INT(emu_launch_count("conv_head_kernel"), 2);
    EXPECT_INT(emu_launch_count("conv_head_bwd_kernel"), c->wrt ? 2 : 0);
    EXPECT_INT(emu_launch_count("igemm_mma_kernel"), 0);
    if (c->wrt) opcase_adding(c, &k);
    opnarrow_agree(c, &k);
}

TEST(conv_head_of_each_cout)
{
    static const int channels[] = {8, 24, 32, 40, 64, 136, 256, 16};
    for (int b = 1; b <= 8; b++) {
        const Dims x = {2, 1, 7, 11 + b, channels[b - 1]};
        for (int p = PRECISION_bf16; p <= PRECISION_f16; p++) {
            OpCase c = case_of(b % 2 ? OP_conv : OP_linear, x, b, 7,
                               (uint32_t)(b * 2 + p));
            holds(&c, (Precision)p);
        }
    }
}

TEST(conv_head_gradients_that_are_wanted)
{
    for (unsigned wrt = 0; wrt < 8; wrt++)
        for (int b = 1; b <= 8; b += 7) {
            OpCase c = case_of(OP_conv, (Dims){1, 1, 9, 5, 32}, b, wrt, wrt);
            holds(&c, wrt % 2 ? PRECISION_bf16 : PRECISION_f16);
        }
}

/* Numbers of positions around those of a block (one fewer, equal, one more),
 * and so many that several blocks have partial sums. */
TEST(conv_head_of_each_number_of_rows)
{
    static const int rows[] = {1, 63, 64, 65, 255, 257, 2047, 2049, 6151};
    for (int i = 0; i < 9; i++) {
        const Dims x = {1, 1, 1, rows[i], i % 2 ? 8 : 32};
        OpCase c = case_of(OP_conv, x, i % 3 + 1, 7, (uint32_t)i);
        holds(&c, i % 2 ? PRECISION_f16 : PRECISION_bf16);
    }
}

/* Convolutions that the head kernels do not take: one filter or eight channels
 * too many, a stride, a padding, groups, 12 channels. */
TEST(conv_head_not_otherwise)
{
    enum { CASES = 6 };
    for (int i = 0; i < CASES; i++) {
        const Dims x = {1, 1, 5, 6, i == 1 ? 264 : i == 5 ? 12 : 16};
        OpCase c = case_of(OP_conv, x, i == 0 ? 9 : 2, 7, 1);
        OpCheck k = check_of(PRECISION_bf16);
        if (i == 2) c.attr.conv.sw = 2;
        if (i == 3) c.attr.conv.ph0 = 1;
        if (i == 4) c.attr.conv.groups = 2, c.x[1].c = 8;
        emu_reset_counts();
        opcase_agree(&c, &k);
        EXPECT_INT(emu_launch_count("conv_head_kernel"), 0);
        EXPECT_INT(emu_launch_count("conv_head_bwd_kernel"), 0);
    }
}
