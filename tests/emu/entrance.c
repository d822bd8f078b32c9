/* entrance.c -- convolutions of few channels on the emulated device: y against
 * ref, stored narrow as in f32, and the sums that a lazy one leaves. */
#include "check/opcase.h"
#include "emu_control.h"
#include "given.h"

extern const Backend backend_cuda;

/* {n,d,h,w,c}, filters, and of each axis that the rank has: kernel, stride,
 * padding on either side, dilation. */
typedef struct Shape {
    int rank;
    Dims x;
    int filters, kernel, stride, lo, hi, dilation;
} Shape;

static const Shape shapes[] = {
    {2, {2, 1, 9, 13, 1}, 32, 3, 1, 1, 1, 1},
    {2, {1, 1, 17, 8, 3}, 24, 3, 1, 1, 1, 1}, // two steps
    {2, {1, 1, 11, 7, 4}, 64, 4, 2, 1, 2, 1}, // all four
    {2, {3, 1, 10, 9, 2}, 8, 5, 3, 0, 3, 2},
    {3, {2, 4, 5, 6, 1}, 40, 3, 1, 1, 1, 1},
    {3, {1, 6, 7, 5, 2}, 16, 2, 2, 1, 0, 1},
    {1, {2, 1, 1, 1100, 1}, 8, 16, 1, 8, 7, 1}, // blocks
    {0, {37, 1, 1, 1, 3}, 48, 1, 1, 0, 0, 1},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static OpCase case_of(const Shape *s, uint32_t number)
{
    OpCase c = {.attr = op_default(OP_conv), .rank = s->rank, .x = {s->x}};
    c.x[1] = (Dims){s->filters, 1, 1, 1, s->x.c};
    int *k[] = {&c.x[1].d, &c.x[1].h, &c.x[1].w};
    int *step[] = {&c.attr.conv.sd, &c.attr.conv.sh, &c.attr.conv.sw};
    int *lo[] = {&c.attr.conv.pd0, &c.attr.conv.ph0, &c.attr.conv.pw0};
    int *hi[] = {&c.attr.conv.pd1, &c.attr.conv.ph1, &c.attr.conv.pw1};
    int *dil[] = {&c.attr.conv.dd, &c.attr.conv.dh, &c.attr.conv.dw};
    for (int i = 3 - s->rank; i < 3; i++) {
        *k[i] = s->kernel, *step[i] = s->stride;
        *lo[i] = s->lo, *hi[i] = s->hi, *dil[i] = s->dilation;
    }
    if (number % 2) c.x[2] = (Dims){1, 1, 1, 1, s->filters};
    c.wrt = number % 2 ? 6 : 2;
    c.number = number;
    return c;
}

/* y in f32, rounded, is y narrow; of a narrow x, too. */
static void narrow(const OpCase *c, OpCheck *k)
{
    const OpOptions wide = {.forward_only = true};
    const OpOptions thin = {.forward_only = true, .narrow = NARROW_Y};
    Arena mem = {0};
    OpValues v, p, q;
    REQUIRE(opcase_values(c, &mem, &v));
    REQUIRE(opcase_run(c, k, 1, &v, wide, &mem, &p));
    REQUIRE(opcase_run(c, k, 1, &v, thin, &mem, &q));
    for (int64_t i = 0; i < v.results; i++)
        p.y[i] = precision_round(k->precision, p.y[i]);
    opcase_same(k, c, &p, &q, "y in f32 and narrow");
    for (int64_t i = 0; i < numel(c->x[0]); i++)
        v.x[0][i] = precision_round(k->precision, v.x[0][i]);
    const OpOptions all = {.forward_only = true, .narrow = 1 | NARROW_Y};
    REQUIRE(opcase_run(c, k, 1, &v, all, &mem, &p));
    REQUIRE(opcase_run(c, k, 1, &v, thin, &mem, &q));
    opcase_same(k, c, &p, &q, "x in f32 and narrow");
    arena_release(&mem);
}

TEST(entrance_of_each_window)
{
    for (int i = 0; i < SHAPES; i++)
        for (int p = PRECISION_bf16; p <= PRECISION_f16; p++) {
            const OpCase c = case_of(&shapes[i], (uint32_t)(i + p));
            OpCheck k = {.be = &backend_cuda,
                         .precision = (Precision)p,
                         .report = given_report};
            emu_reset_counts();
            opcase_agree(&c, &k);
            EXPECT_INT(emu_launch_count("entrance_kernel"), 2);
            narrow(&c, &k);
            EXPECT_INT(emu_launch_count("entrance_kernel"), 6);
        }
}

/* Not theirs: a channel, a tap or filters too many, filters that make no whole
 * packs, groups. */
TEST(entrance_of_more)
{
    static const Shape more[] = {
        {2, {1, 1, 8, 7, 5}, 8, 3, 1, 1, 1, 1},
        {1, {1, 1, 1, 90, 1}, 8, 65, 1, 1, 1, 1},
        {2, {1, 1, 8, 7, 1}, 72, 3, 1, 1, 1, 1},
        {2, {1, 1, 8, 7, 2}, 12, 3, 1, 1, 1, 1},
        {2, {1, 1, 8, 7, 4}, 16, 3, 1, 1, 1, 1},
    };
    for (int i = 0; i < 5; i++) {
        OpCase c = case_of(&more[i], 1);
        OpCheck k = {.be = &backend_cuda,
                     .precision = PRECISION_bf16,
                     .report = given_report};
        if (i == 4) c.attr.conv.groups = 2, c.x[1].c = 2;
        emu_reset_counts();
        opcase_agree(&c, &k);
        EXPECT_INT(emu_launch_count("entrance_kernel"), 0);
    }
}
