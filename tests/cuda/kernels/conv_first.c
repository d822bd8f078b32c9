/* conv_first.c -- convolutions of one to four channels on the emulated device:
 * y against ref, y stored in 16 bits against y in f32, and the statistics that
 * a convolution with a deferred norm writes. */
#include "tests/cuda/emulator/emu_control.h"
#include "tests/cuda/kernels/windowed.h"
#include "tests/support/op_call.h"

extern const Backend backend_cuda;

static const Windowed shapes[] = {
    {2, {2, 1, 9, 13, 1}, 32, 3, 1, 1, 1, 1},
    {2, {1, 1, 17, 8, 3}, 24, 3, 1, 1, 1, 1}, // two steps
    {2, {1, 1, 11, 7, 4}, 64, 4, 2, 1, 2, 1}, // four channels
    {2, {3, 1, 10, 9, 2}, 8, 5, 3, 0, 3, 2},
    {3, {2, 4, 5, 6, 1}, 40, 3, 1, 1, 1, 1},
    {3, {1, 6, 7, 5, 2}, 16, 2, 2, 1, 0, 1},
    {1, {2, 1, 1, 1100, 1}, 8, 16, 1, 8, 7, 1}, // blocks
    {0, {37, 1, 1, 1, 3}, 48, 1, 1, 0, 0, 1},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

/* Compares y of x in f32 with y of the same numbers stored in 16 bits. */
static void check_x16(const OpCase *c, OpCheck *k)
{
    const OpOptions y16 = {.forward_only = true, .narrow = NARROW_Y};
    const OpOptions xy16 = {.forward_only = true, .narrow = 1 | NARROW_Y};
    Arena mem = {0};
    OpValues v, p, q;
    REQUIRE(opcase_values(c, &mem, &v));
    for (int64_t i = 0; i < numel(c->x[0]); i++)
        v.x[0][i] = precision_round(k->precision, v.x[0][i]);
    REQUIRE(opcase_run(c, k, 1, &v, xy16, &mem, &p));
    REQUIRE(opcase_run(c, k, 1, &v, y16, &mem, &q));
    opcase_same(k, c, &p, &q, "x in f32 and in 16 bits");
    arena_release(&mem);
}

TEST(conv_first_of_each_window)
{
    for (int i = 0; i < SHAPES; i++)
        for (int p = PRECISION_bf16; p <= PRECISION_f16; p++) {
            const OpCase c = windowed_case(&shapes[i], (uint32_t)(i + p), 6);
            OpCheck k = {.be = &backend_cuda,
                         .precision = (Precision)p,
                         .report = given_report};
            emu_reset_counts();
            opcase_agree(&c, &k);
            EXPECT_INT(emu_launch_count("conv_first_kernel"), 2);
            windowed_y16(&c, &k);
            check_x16(&c, &k);
            EXPECT_INT(emu_launch_count("conv_first_kernel"), 6);
        }
}

/* Convolutions that conv_first does not take: one channel, tap or filter too
 * many, a number of filters that is no multiple of 8, groups. */
TEST(conv_first_not_otherwise)
{
    static const Windowed others[] = {
        {2, {1, 1, 8, 7, 5}, 8, 3, 1, 1, 1, 1},
        {1, {1, 1, 1, 90, 1}, 8, 65, 1, 1, 1, 1},
        {2, {1, 1, 8, 7, 1}, 72, 3, 1, 1, 1, 1},
        {2, {1, 1, 8, 7, 2}, 12, 3, 1, 1, 1, 1},
        {2, {1, 1, 8, 7, 4}, 16, 3, 1, 1, 1, 1},
    };

    for (int i = 0; i < 5; i++) {
        OpCase c = windowed_case(&others[i], 1, 6);
        OpCheck k = {.be = &backend_cuda,
                     .precision = PRECISION_bf16,
                     .report = given_report};
        if (i == 4) c.attr.conv.groups = 2, c.x[1].c = 2;
        emu_reset_counts();
        opcase_agree(&c, &k);
        EXPECT_INT(emu_launch_count("conv_first_kernel"), 0);
    }
}
