/* upconv_head.c -- upconvs with few filters on the emulated device: against
 * ref, and in 16 bits against f32, with and without each gradient; an implicit
 * concat against a stored one. Gradient sums of dx are in grad_sums.c. */
#include "engine/check/ophalf.h"
#include "tests/cuda/emulator/emu_control.h"
#include "tests/cuda/kernels/bench.h"
#include <stdlib.h>

static OpCase case_of(const Shape *s, unsigned wrt, uint32_t number)
{
    OpCase c = {.attr = attr_of(s), .x = {s->x, s->w}};
    c.rank = s->x.d > 1 ? 3 : s->x.h > 1 ? 2 : 1;
    if (number % 3) c.x[2] = (Dims){1, 1, 1, 1, s->w.c};
    c.wrt = number % 3 ? wrt : wrt & 3;
    c.number = number;
    if (c.rank == 1) c.attr.conv.sh = 1, c.attr.conv.ph0 = c.attr.conv.ph1 = 0;
    return c;
}

/* Checks all properties of a case and that the upconv_head kernels ran its
 * backward pass and, if `fwd`, its y. */
static void holds(const OpCase *c, Precision p, bool fwd)
{
    OpCheck k = {.be = &backend_cuda, .precision = p, .report = given_report};
    emu_reset_counts();
    opcase_agree(c, &k);
    EXPECT_INT(emu_launch_count("upconv_head_fwd_kernel"), fwd ? 2 : 0);
    EXPECT_INT(emu_launch_count("igemm_mma_kernel"), fwd ? 0 : 2);
    EXPECT_INT(emu_launch_count("upconv_head_bwd_kernel"), c->wrt & 3 ? 2 : 0);
    EXPECT_INT(emu_launch_count("wgrad_mma_kernel"), 0);
    EXPECT_INT(emu_launch_count("conv_bias_grad_kernel"), c->wrt == 4 ? 2 : 0);

    // the same kernels again, which takes long for a large one
    if (given_once() && numel(c->x[0]) > 1 << 20) return;
    if (c->wrt) opcase_adding(c, &k);
    opnarrow_agree(c, &k);
}

/* Full boxes and boxes across the border of the operand; windows of each kind.
 */
static const Shape shapes[] = {
    {OP_upconv, {1, 4, 4, 8, 32}, {32, 4, 4, 4, 1}, 2, 1, 1},
    {OP_upconv, {2, 3, 5, 9, 96}, {96, 4, 4, 4, 1}, 2, 1, 1},
    {OP_upconv, {1, 5, 3, 7, 64}, {64, 3, 3, 3, 2}, 1, 1, 1},
    {OP_upconv, {1, 2, 6, 10, 32}, {32, 2, 2, 2, 2}, 2, 0, 1},
    {OP_upconv, {3, 1, 9, 17, 64}, {64, 1, 3, 5, 3}, 2, 1, 1},
    {OP_upconv, {1, 1, 8, 16, 160}, {160, 1, 4, 4, 4}, 2, 1, 1},
    {OP_upconv, {2, 1, 1, 131, 32}, {32, 1, 1, 9, 3}, 3, 2, 1},
    {OP_upconv, {1, 1, 3, 5, 256}, {256, 1, 8, 8, 1}, 3, 3, 1},
    {OP_upconv, {1, 19, 9, 3, 32}, {32, 4, 4, 4, 1}, 2, 1, 1},
    {OP_upconv, {2, 10, 2, 17, 32}, {32, 5, 2, 2, 1}, 2, 1, 1},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

TEST(upconv_head_of_each_window)
{
    for (int i = 0; i < SHAPES; i++) {
        OpCase c = case_of(&shapes[i], 7, (uint32_t)i + 1);
        holds(&c, i % 2 ? PRECISION_f16 : PRECISION_bf16, true);
    }

    // asymmetric padding
    OpCase c = case_of(&shapes[4], 7, 2);
    c.attr.upconv.pw0 = 3, c.attr.upconv.ph1 = 2;
    holds(&c, PRECISION_f16, true);

    // a dilation, more padding before than after, and a shorter result
    c = case_of(&shapes[4], 7, 1);
    c.attr.upconv.dh = 2, c.attr.upconv.pw0 = 3, c.attr.upconv.ph1 = 2;
    holds(&c, PRECISION_bf16, false);
}

TEST(upconv_head_gradients_that_are_wanted)
{
    for (unsigned wrt = 1; wrt < 8; wrt++) {
        OpCase c = case_of(&shapes[wrt % 2 ? 1 : 4], wrt, 1);
        holds(&c, wrt % 2 ? PRECISION_bf16 : PRECISION_f16, true);
    }
}

/* Blocks with more boxes than a chain of dw has terms, and more blocks than one
 * block of the grid reduction adds. */
TEST(upconv_head_of_many_boxes)
{
    const Shape s = {OP_upconv, {1, 1, 274, 130, 32}, {32, 1, 2, 2, 2}, 2, 0,
                     1};
    OpCase c = case_of(&s, 7, 1);
    holds(&c, PRECISION_bf16, true);
}

/* Upconvs that upconv_head does not take: one filter too many, too many taps or
 * channels, channels that are no multiple of 32, groups; in the backward pass
 * alone results that no position contributes to, halos that do not fit. */
TEST(upconv_head_not_otherwise)
{
    static const Shape others[] = {
        {OP_upconv, {1, 1, 4, 6, 32}, {32, 1, 2, 2, 5}, 2, 0, 1},
        {OP_upconv, {1, 1, 4, 6, 32}, {32, 1, 5, 13, 1}, 2, 0, 1},
        {OP_upconv, {1, 1, 4, 6, 288}, {288, 1, 2, 2, 1}, 2, 0, 1},
        {OP_upconv, {1, 1, 4, 6, 48}, {48, 1, 2, 2, 1}, 2, 0, 1},
        {OP_upconv, {1, 1, 4, 6, 64}, {64, 1, 2, 2, 1}, 2, 0, 2},
        {OP_upconv, {1, 1, 4, 6, 32}, {32, 1, 2, 2, 1}, 3, 0, 1},
        {OP_upconv, {1, 2, 4, 6, 32}, {32, 2, 2, 2, 4}, 2, 0, 1},
        {OP_upconv, {1, 1, 4, 6, 32}, {32, 1, 2, 2, 1}, 2, 0, 1},
    };
    const int count = sizeof others / sizeof *others;

    for (int i = 0; i < count; i++) {
        OpCase c = case_of(&others[i], 7, 1);
        OpCheck k = {.be = &backend_cuda,
                     .precision = PRECISION_bf16,
                     .report = given_report};
        if (others[i].groups > 1) c.x[2].c = others[i].groups;
        // the result is larger than the region that the operand covers
        if (i == count - 1) c.attr.upconv.pw1 = -1;
        emu_reset_counts();
        opcase_agree(&c, &k);
        EXPECT_INT(emu_launch_count("upconv_head_bwd_kernel"), 0);
        EXPECT_INT(emu_launch_count("upconv_head_fwd_kernel"), i >= 5 ? 2 : 0);
    }
}

/* Only y: filters that do not fit in shared memory, a window with too many
 * planes. */
TEST(upconv_head_y_of_large_filters)
{
    static const Shape large[] = {
        {OP_upconv, {1, 2, 3, 4, 256}, {256, 3, 3, 3, 1}, 1, 1, 1},
        {OP_upconv, {1, 1, 8, 9, 256}, {256, 1, 8, 8, 1}, 2, 1, 1},
        {OP_upconv, {1, 3, 2, 2, 32}, {32, 9, 2, 2, 1}, 1, 0, 1},
    };
    for (int i = 0; i < 3; i++) {
        OpCase c = case_of(&large[i], 7, 1);
        holds(&c, i % 2 ? PRECISION_f16 : PRECISION_bf16, false);
    }
}

/* Results of one backward call: dx of each operand of x, dw and db. */
typedef struct BwdResults {
    Tensor dx[2], dw, db;
} BwdResults;

static BwdResults bwd_results(Bench *b, const Dims *part, int parts, Dims w,
                              Dims bias)
{
    BwdResults l = {0};
    b->draws = 100; // the same random values at each call
    for (int i = 0; i < parts; i++)
        l.dx[i] = uniform(b, part[i], precision_copy(b->precision), -1, 1);
    l.dw = uniform(b, w, F32, -1, 1);
    l.db = uniform(b, bias, F32, -1, 1);
    return l;
}

/* Expects that `part` has the bits of the channels of `whole` from `first` on.
 */
static void same_part(Bench *b, const Tensor *part, const Tensor *whole,
                      int first)
{
    const int64_t count = numel(part->dim), all = numel(whole->dim);
    double *v = mem_alloc((size_t)(count + all) * sizeof *v);
    REQUIRE(v);
    read_tensor(b, part, v), read_tensor(b, whole, v + count);
    int off = 0;
    for (int64_t i = 0; i < count; i++) {
        const int64_t row = i / part->dim.c, c = i % part->dim.c;
        off += v[i] != v[count + row * whole->dim.c + first + c];
    }
    EXPECT_INT(off, 0);
    mem_free(v);
}

/* Compares an upconv of an implicit concat with one of the stored concat. Bits
 * of `deferred`: operands with a deferred norm; of `no_dx`: operands without
 * dx. */
static void implicit_concat(Precision p, const Shape *s, int from,
                            unsigned deferred, unsigned no_dx)
{
    enum { WAYS = 2 };
    Bench b;
    NormAct of[2];
    bench_open(&b, p);
    const Dtype type = precision_copy(p);
    const Attr attr = attr_of(s), concat = op_default(OP_concat);
    Dims part[2] = {s->x, s->x};
    part[0].c = from, part[1].c = s->x.c - from;
    Tensor x[2], whole = tensor_of(&b, s->x, type);
    const Tensor w = uniform(&b, s->w, type, -1, 1);
    for (int i = 0; i < 2; i++)
        x[i] = deferred >> i & 1 ? deferred_linear(&b, part[i], &of[i])
                                 : uniform(&b, part[i], type, -1, 1);
    Call concat_call = {.attr = &concat, .x = {&x[0], &x[1]}, .y = &whole};
    for (int i = 0; i < 2; i++)
        if (deferred >> i & 1) concat_call.x_norm[i] = &of[i].deferred_norm;
    run(&b, &concat_call);
    Tensor in[MAX_IN] = {whole, w}, y;
    REQUIRE(op_shape(&attr, in, &y));
    const Tensor dy = uniform(&b, y.dim, F32, -1, 1);
    const Dims bias = {1, 1, 1, 1, y.dim.c};
    const Tensor b0 = uniform(&b, bias, F32, -1, 1);
    y = tensor_of(&b, y.dim, F32);
    BwdResults want = bwd_results(&b, &s->x, 1, w.dim, bias), got[WAYS];

    // dx is stored, dw and db are added to
    Call plain = {.attr = &attr,
                  .x = {&whole, &w, &b0},
                  .y = &y,
                  .dx = {&want.dx[0], &want.dw, &want.db},
                  .fresh = 1};
    run(&b, &plain);
    plain.dy = &dy;
    run(&b, &plain);

    for (int i = 0; i < WAYS; i++) {
        got[i] = bwd_results(&b, part, 2, w.dim, bias);
        got[i].dw = bwd_results(&b, &s->x, 1, w.dim, bias).dw;
        b.draws = 102;
        got[i].db = uniform(&b, bias, F32, -1, 1);
        const Tensor made = tensor_of(&b, y.dim, F32);
        Call c = plain;
        c.dy = NULL, c.y = &made;
        c.x[0] = &x[0], c.x[X2] = &x[1];
        c.x_norm[0] = concat_call.x_norm[0],
        c.x_norm[X2] = concat_call.x_norm[1];
        c.dx[0] = no_dx & 1 ? NULL : &got[i].dx[0];
        c.dx[X2] = no_dx & 2 ? NULL : &got[i].dx[1];
        c.dx[1] = &got[i].dw, c.dx[2] = &got[i].db;
        c.fresh = 1 | 1u << X2;
        if (i) emu_set_order("r5"); // another order of blocks and threads
        emu_reset_counts();
        run(&b, &c);
        same(&b, &made, &y);
        c.dy = &dy;
        run(&b, &c);
        EXPECT_INT(emu_launch_count("upconv_head_fwd_kernel"), 1);
        EXPECT_INT(emu_launch_count("upconv_head_bwd_kernel"), 1);
        EXPECT_INT(emu_launch_count("igemm_mma_kernel"), 0);
    }

    emu_set_order(getenv("EMU_ORDER") ? getenv("EMU_ORDER") : "g");
    for (int i = 0; i < 2; i++) {
        same(&b, &got[0].dx[i], &got[1].dx[i]);
        if (!(no_dx >> i & 1))
            same_part(&b, &got[0].dx[i], &want.dx[0], i * from);
    }

    same(&b, &got[0].dw, &got[1].dw), same(&b, &got[0].db, &got[1].db);
    near(&b, &got[0].dw, &want.dw, 1e-12);
    near(&b, &got[0].db, &want.db, 1e-12);
    bench_close(&b);
}

TEST(upconv_head_of_implicit_concat)
{
    static const Shape s[] = {
        {OP_upconv, {2, 5, 6, 9, 128}, {128, 4, 4, 4, 1}, 2, 1, 1},
        {OP_upconv, {1, 1, 37, 35, 96}, {96, 1, 3, 3, 2}, 2, 1, 1},
    };

    // the first of the two, or the other, with a deferred norm is enough once
    for (unsigned deferred = 0; deferred < 4; deferred++) {
        if (given_once() && deferred % 3 == 0) continue;
        implicit_concat(PRECISION_bf16, &s[0], 64, deferred, 0);
        implicit_concat(PRECISION_f16, &s[1], deferred % 2 ? 32 : 64, deferred,
                        0);
    }

    implicit_concat(PRECISION_bf16, &s[1], 32, 1, 1);
    implicit_concat(PRECISION_f16, &s[0], 64, 2, 2);
}
