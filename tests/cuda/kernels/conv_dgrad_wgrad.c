/* conv_dgrad_wgrad.c -- the kernel that computes dx and dw of narrow
 * convolutions from one reading of dy, on the emulated device, compared with
 * the kernels that compute dx and dw one by one. */
#include "tests/cuda/emulator/emu_control.h"
#include "tests/cuda/kernels/bench.h"
#include <stdlib.h>

enum { WIDE = 32, WAYS = 2 };

/* A convolution of 32 filters with a deferred norm. `concat`: its x is an
 * implicit concat; the first operand has 32 channels. */
typedef struct Layer {
    Dims x;
    unsigned deferred; // bit i: operand i of the concat has a deferred norm
    bool concat, relu, add;
    unsigned no_dx; // bit i: the gradient of operand i is not computed
} Layer;

static bool is_deferred(const Layer *s, int i)
{
    return s->deferred >> i & 1;
}

/* Results of one backward call: dx of each operand of x and its gradient sums,
 * and dw. */
typedef struct BwdResults {
    Tensor dx[2], sums[2], dw;
} BwdResults;

static BwdResults bwd_results(Bench *b, const Layer *s, const Dims *part,
                              Dims w)
{
    BwdResults l;
    const Dtype type = precision_copy(b->precision);
    b->draws = 100; // the same random values at each call
    for (int i = 0; i <= s->concat; i++) {
        l.dx[i] = uniform(b, part[i], type, -1, 1);
        l.sums[i] =
            tensor_of(b, (Dims){1, 1, 1, 1, GRAD_SUMS * part[i].c + 1}, F64);
    }
    l.dw = uniform(b, w, F32, -1, 1);
    return l;
}

static void wants(Call *c, const Layer *s, BwdResults *l)
{
    for (int i = 0; i <= s->concat; i++) {
        if (s->no_dx >> i & 1) continue;
        c->dx[i ? X2 : 0] = &l->dx[i];
        c->sums.dx[i ? X2 : 0] = &l->sums[i];
    }
    c->dx[1] = &l->dw, c->fresh = s->add ? 0 : ~0u;
}

/* Expects gradient sums p and q that differ by rounding: the sum of squared
 * differences is at most `share` of the sum of q's squares. */
static void near_grad_sums(Bench *b, const Tensor *p, const Tensor *q,
                           bool deferred, double share)
{
    double got[GRAD_SUMS * 2 * WIDE + 1], want[GRAD_SUMS * 2 * WIDE + 1];
    double off = 0, all = 0;
    // without a deferred norm the second sums are undefined
    const int sums = p->dim.c / GRAD_SUMS * (deferred ? 2 : 1);
    read_tensor(b, p, got), read_tensor(b, q, want);
    for (int i = 0; i < sums; i++) {
        off += (got[i] - want[i]) * (got[i] - want[i]);
        all += want[i] * want[i];
    }
    EXPECT(off <= share * all);
    if (!(off <= share * all)) EXPECT_NEAR(off / all, 0, share);
}

/* Compares dx, dw and gradient sums of the combined kernel with the results of
 * separate backward calls of norm with activation and of the convolution. */
static void agrees(Precision p, const Layer *s)
{
    Bench b;
    NormAct h, of[2];
    Call c;

    bench_open(&b, p);
    const Dtype type = precision_copy(p);
    Dims part[2] = {s->x, s->x};
    if (s->concat) part[0].c = WIDE, part[1].c = s->x.c - WIDE;
    const Shape shape = {OP_conv, s->x, {WIDE, 1, 3, 3, s->x.c}, 1, 1, 1};
    const Attr attr = attr_of(&shape);
    Tensor w = uniform(&b, shape.w, type, -1, 1), x[2];
    // the backward pass does not depend on the x from which y was computed
    const Tensor whole = uniform(&b, s->x, type, -1, 1);
    Tensor y = deferred_conv(&b, &attr, &whole, &w, &h, &c);
    for (int i = 0; i <= s->concat; i++)
        x[i] = is_deferred(s, i) ? deferred_linear(&b, part[i], &of[i])
                                 : uniform(&b, part[i], type, -1, 1);
    for (int i = 0; i <= s->concat; i++)
        if (s->relu) of[i].act = op_default(OP_relu);
    Tensor dy[WAYS];
    for (int i = 0; i < WAYS; i++) {
        b.draws = 200;
        dy[i] = uniform(&b, y.dim, type, -1, 1);
    }
    Call norm = {
        .attr = &h.norm, .act = h.deferred_norm.act, .y = &y, .x = {&y}};
    norm.saved = c.saved;
    for (int k = 1; k <= 4; k++) norm.x[k] = &h.x[k];
    norm.dy = norm.dx[0] = &dy[1], norm.fresh = ~0u;
    run(&b, &norm);
    Call plain = {.attr = &attr, .x = {&x[0], &w}, .y = &y, .dy = &dy[1]};
    if (s->concat) plain.x[X2] = &x[1];
    for (int i = 0; i <= s->concat; i++)
        if (is_deferred(s, i)) plain.x_norm[i ? X2 : 0] = &of[i].deferred_norm;
    c.y = &y, c.dy = &dy[0], c.x[2] = NULL;
    memcpy(c.x, plain.x, sizeof c.x),
        memcpy(c.x_norm, plain.x_norm, sizeof c.x_norm);
    BwdResults separate = bwd_results(&b, s, part, w.dim),
               combined = bwd_results(&b, s, part, w.dim);
    BwdResults reordered = bwd_results(&b, s, part, w.dim);
    wants(&plain, s, &separate), wants(&c, s, &combined);
    emu_reset_counts();
    run(&b, &plain);
    EXPECT_INT(emu_launch_count("dgrad_wgrad_kernel"), 0);
    emu_reset_counts();
    run(&b, &c);
    EXPECT_INT(emu_launch_count("dgrad_wgrad_kernel"), 1);
    EXPECT_INT(emu_launch_count("igemm_tile_kernel"), 0);
    EXPECT_INT(emu_launch_count("wgrad_mma_kernel"), 0);
    wants(&c, s, &reordered);
    emu_set_order("r5"); // another order of blocks and threads
    run(&b, &c);
    emu_set_order(getenv("EMU_ORDER") ? getenv("EMU_ORDER") : "g");
    const double unit = p == PRECISION_bf16 ? 0x1p-8 : 0x1p-11;

    for (int i = 0; i <= s->concat; i++) {
        same(&b, &combined.dx[i], &reordered.dx[i]);
        near(&b, &combined.dx[i], &separate.dx[i], unit * unit);
        if (s->no_dx >> i & 1) continue;
        near_grad_sums(&b, &combined.sums[i], &separate.sums[i],
                       is_deferred(s, i), unit * unit);
        near_grad_sums(&b, &combined.sums[i], &reordered.sums[i],
                       is_deferred(s, i), 0);
    }

    near(&b, &combined.dw, &separate.dw, unit * unit);
    same(&b, &combined.dw, &reordered.dw);
    bench_close(&b);
}

TEST(dgrad_wgrad_of_one_tensor)
{
    // full boxes, and boxes across the border of the image
    agrees(PRECISION_bf16, &(Layer){{1, 1, 16, 16, WIDE}, .deferred = 1});
    agrees(PRECISION_f16,
           &(Layer){{3, 1, 9, 19, WIDE}, .deferred = 1, .relu = true});
    agrees(PRECISION_bf16, &(Layer){{1, 1, 8, 33, WIDE}, .add = true});
    agrees(PRECISION_f16,
           &(Layer){{1, 1, 5, 7, 2 * WIDE}, .deferred = 1, .add = true});
}

TEST(dgrad_wgrad_of_implicit_concat)
{
    agrees(PRECISION_bf16,
           &(Layer){{1, 1, 9, 19, 2 * WIDE}, .concat = true, .deferred = 2});
    agrees(PRECISION_f16, &(Layer){{3, 1, 8, 16, 2 * WIDE},
                                   .concat = true,
                                   .deferred = 3,
                                   .relu = true,
                                   .add = true});
    for (unsigned i = 1; i <= 2; i++)
        agrees(PRECISION_bf16, &(Layer){{1, 1, 8, 20, 2 * WIDE},
                                        .concat = true,
                                        .deferred = 1,
                                        .no_dx = i});
}

/* The kernel is not used if db is wanted, as db needs the stored dy, nor with
 * another window, other filters or channels. */
TEST(dgrad_wgrad_not_otherwise)
{
    static const Shape others[] = {
        {OP_conv, {1, 1, 8, 16, 96}, {WIDE, 1, 3, 3, 96}, 1, 1, 1},
        {OP_conv, {1, 1, 8, 16, WIDE}, {64, 1, 3, 3, WIDE}, 1, 1, 1},
        {OP_conv, {1, 1, 8, 16, WIDE}, {WIDE, 1, 3, 3, WIDE}, 1, 0, 1},
        {OP_conv, {1, 1, 8, 16, WIDE}, {WIDE, 1, 3, 3, WIDE}, 2, 1, 1},
        {OP_conv, {1, 1, 8, 16, WIDE}, {WIDE, 1, 1, 1, WIDE}, 1, 0, 1},
        {OP_conv, {1, 1, 8, 16, WIDE}, {WIDE, 1, 3, 3, WIDE}, 1, 1, 1},
    };
    const int count = sizeof others / sizeof *others;

    for (int i = 0; i < count; i++) {
        Bench b;
        NormAct h;
        Call c;
        bench_open(&b, PRECISION_bf16);
        const Attr attr = attr_of(&others[i]);
        Tensor x = uniform(&b, others[i].x, BF16, -1, 1);
        Tensor w = uniform(&b, others[i].w, BF16, -1, 1);
        Tensor y = deferred_conv(&b, &attr, &x, &w, &h, &c);
        Tensor dy = uniform(&b, y.dim, BF16, -1, 1);
        Tensor dx = tensor_of(&b, x.dim, BF16), dw = tensor_of(&b, w.dim, F32);
        Tensor db = tensor_of(&b, h.bias.dim, F32);
        c.y = &y, c.dy = &dy, c.dx[0] = &dx, c.dx[1] = &dw, c.fresh = ~0u;
        if (i == count - 1) c.dx[2] = &db;
        emu_reset_counts();
        run(&b, &c);
        EXPECT_INT(emu_launch_count("dgrad_wgrad_kernel"), 0);
        bench_close(&b);
    }
}

/* A block loops over more boxes than a chain of dw has terms, and there is a
 * second block. */
TEST(dgrad_wgrad_of_many_boxes)
{
    agrees(PRECISION_bf16,
           &(Layer){{2, 1, 44, 16, WIDE}, .deferred = 1, .add = true});
}
