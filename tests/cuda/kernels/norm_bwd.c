/* norm_bwd.c -- norm backward on load on the emulated device: dgrad and wgrad
 * of a convolution with a deferred norm take dy back through norm and
 * activation as they load it. */
#include "tests/cuda/emulator/emu_control.h"
#include "tests/cuda/kernels/bench.h"

/* A convolution with a deferred norm, and whether its kernels apply the norm
 * backward on load (else a separate pass does). */
typedef struct Layer {
    Shape shape;
    bool on_load;
} Layer;

static const Layer layers[] = {
    {{OP_conv, {2, 1, 9, 11, 8}, {16, 1, 3, 3, 8}, 1, 1, 1}, true},
    {{OP_conv, {1, 1, 21, 13, 72}, {40, 1, 3, 3, 72}, 1, 1, 1}, true},
    {{OP_conv, {1, 1, 13, 20, 136}, {72, 1, 3, 3, 136}, 1, 1, 1}, true},
    // several residue classes read each position
    {{OP_conv, {2, 1, 15, 17, 24}, {16, 1, 3, 3, 24}, 2, 1, 1}, true},
    {{OP_conv, {1, 6, 9, 7, 16}, {8, 2, 2, 2, 16}, 2, 0, 1}, true},
    // the image is larger than the result, and smaller
    {{OP_conv, {1, 1, 14, 9, 16}, {24, 1, 3, 3, 16}, 1, 0, 1}, true},
    {{OP_conv, {1, 1, 9, 9, 16}, {24, 1, 3, 3, 16}, 1, 2, 1}, false},
    {{OP_conv, {1, 1, 12, 12, 64}, {64, 1, 3, 3, 32}, 1, 1, 2}, true},
    {{OP_conv, {3, 1, 9, 9, 40}, {64, 1, 1, 1, 40}, 1, 0, 1}, true},
    {{OP_conv, {1, 5, 6, 7, 16}, {8, 3, 3, 3, 16}, 1, 1, 1}, true},
    {{OP_conv, {1, 1, 3, 2, 512}, {512, 1, 3, 3, 512}, 1, 1, 1}, true}, // split
    {{OP_upconv, {2, 1, 7, 9, 32}, {32, 1, 2, 2, 16}, 2, 0, 1}, true},
    {{OP_upconv, {1, 1, 7, 9, 32}, {32, 1, 4, 4, 40}, 2, 1, 1}, true},
    {{OP_upconv, {1, 3, 4, 5, 16}, {16, 4, 4, 4, 8}, 2, 1, 1}, true},
    // a row of the image that no result reads
    {{OP_conv, {1, 1, 10, 10, 16}, {16, 1, 2, 2, 16}, 3, 0, 1}, false},
};
enum { LAYERS = sizeof layers / sizeof *layers };

/* Compares dx, dw, db, dgamma and dbeta with the results of separate backward
 * calls of norm with activation and of the convolution: stored or added, with
 * the sums of dy given or not. */
static void norm_bwd_on_load(Precision p, const Layer *s, bool add, bool given)
{
    enum { DX, DW, DB, DGAMMA, DBETA, ALL };
    Bench b;
    NormAct h;
    Call c;
    bench_open(&b, p);
    const Dtype type = precision_copy(p);
    const Attr attr = attr_of(&s->shape);
    Tensor x = uniform(&b, s->shape.x, type, -1, 1);
    Tensor w = uniform(&b, s->shape.w, type, -1, 1);
    Tensor y = deferred_conv(&b, &attr, &x, &w, &h, &c), dy[2], d[2][ALL];
    Tensor total =
        tensor_of(&b, (Dims){1, 1, 1, 1, GRAD_SUMS * y.dim.c + 1}, F64);
    const Dims one = {1, 1, 1, 1, y.dim.c},
               extent[] = {x.dim, w.dim, one, one, one};

    for (int i = 0; i < 2; i++) {
        b.draws = 100; // the same for both
        dy[i] = uniform(&b, y.dim, type, -1, 1);
        for (int k = 0; k < ALL; k++)
            d[i][k] = uniform(&b, extent[k], k == DX ? type : F32, -1, 1);
    }

    // separate calls with the same statistics
    Call norm = {
        .attr = &h.norm, .act = h.deferred_norm.act, .y = &y, .x = {&y}};
    norm.saved = c.saved;
    for (int k = 1; k <= 4; k++) norm.x[k] = &h.x[k];
    norm.dy = norm.dx[0] = &dy[1];
    norm.fresh = add ? 1 : ~0u;
    norm.dx[1] = &d[1][DGAMMA], norm.dx[2] = &d[1][DBETA];

    // ... the sums of dy come from the backward call of a pool
    if (given) {
        const Attr pool = pool_of_one();
        Tensor out = tensor_of(&b, y.dim, type),
               in = tensor_of(&b, y.dim, type);
        Call one_of = {.attr = &pool, .x = {&y}, .y = &out};
        one_of.x_norm[0] = &h.deferred_norm;
        run(&b, &one_of);
        one_of.dy = &dy[1], one_of.dx[0] = &in, one_of.fresh = 1;
        one_of.sums.dx[0] = &total;
        run(&b, &one_of);
        c.sums.dy = &total;
    }

    run(&b, &norm);
    Call plain = {.attr = &attr, .x = {&x, &w, &h.bias}, .y = &y};
    plain.dy = &dy[1], plain.dx[0] = &d[1][DX], plain.dx[1] = &d[1][DW];
    plain.dx[2] = &d[1][DB];
    plain.fresh = add ? 0 : ~0u;
    run(&b, &plain);
    c.y = &y, c.dy = &dy[0], c.dx[0] = &d[0][DX], c.dx[1] = &d[0][DW];
    c.dx[2] = &d[0][DB];
    c.norm.dx[1] = &d[0][DGAMMA], c.norm.dx[2] = &d[0][DBETA];
    c.fresh = add ? 0 : ~0u;
    emu_reset_counts();
    run(&b, &c);
    EXPECT_INT(emu_launch_count("norm_bwd_dx_kernel"), !s->on_load);
    EXPECT_INT(emu_launch_count("norm_bwd_sums_kernel"), !given);

    // both ways round dy of the convolution, at times to neighbouring numbers;
    // db, the sum of dy, is 0 up to this rounding
    const double unit = p == PRECISION_bf16 ? 0x1p-8 : 0x1p-11;
    for (int k = 0; k < ALL; k++)
        if (k != DB) near(&b, &d[0][k], &d[1][k], unit * unit);
    if (add) near(&b, &d[0][DB], &d[1][DB], 1);
    bench_close(&b);
}

TEST(norm_bwd_on_load_backward)
{
    for (int i = 0; i < LAYERS; i++) {
        norm_bwd_on_load(PRECISION_bf16, &layers[i], i % 2, i % 3 == 0);
        if (i % 4 == 1)
            norm_bwd_on_load(PRECISION_f16, &layers[i], i % 2 == 0, i % 3);
    }
}

/* A first layer, for which no dx is computed. */
typedef struct First {
    Shape shape;
    bool bias; // db is computed, as a sum of dy that a separate pass stores
    bool on_load;
} First;

static const First firsts[] = {
    {{OP_conv, {2, 1, 20, 17, 1}, {32, 1, 3, 3, 1}, 1, 1, 1}, false, true},
    {{OP_conv, {1, 5, 9, 8, 11}, {40, 3, 3, 3, 11}, 1, 1, 1}, false, true},
    // several partial sums over positions, the last chunk incomplete; two tiles
    // of filters, 64 and 8
    {{OP_conv, {1, 1, 47, 45, 5}, {72, 1, 3, 3, 5}, 1, 1, 1}, false, true},
    {{OP_conv, {2, 1, 9, 11, 8}, {16, 1, 3, 3, 8}, 1, 1, 1}, false, true},
    {{OP_conv, {2, 1, 15, 17, 24}, {72, 1, 3, 3, 24}, 2, 1, 1}, false, true},
    {{OP_conv, {1, 1, 12, 12, 64}, {144, 1, 3, 3, 32}, 1, 1, 2}, false, true},
    {{OP_conv, {2, 1, 9, 11, 8}, {16, 1, 3, 3, 8}, 1, 1, 1}, true, false},
    {{OP_conv, {2, 1, 9, 11, 8}, {12, 1, 3, 3, 8}, 1, 1, 1}, false, false},
    {{OP_upconv, {2, 1, 7, 9, 16}, {16, 1, 2, 2, 16}, 2, 0, 1}, false, false},
};
enum { FIRSTS = sizeof firsts / sizeof *firsts };

/* Compares dw, dgamma and dbeta of a wgrad with norm backward on load with the
 * results of separate backward calls of norm, activation and convolution. */
static void first_layer(Precision p, const First *f, bool add)
{
    enum { DW, DGAMMA, DBETA, ALL };
    Bench b;
    NormAct h;
    Call c;
    bench_open(&b, p);
    const Dtype type = precision_copy(p);
    const Attr attr = attr_of(&f->shape);
    // up to 4 channels are read in f32 by fprop, and as a 16-bit copy by wgrad
    const bool f32_x = f->shape.x.c <= 4;
    Tensor half = uniform(&b, f->shape.x, type, -1, 1), x = half;
    b.draws = 0;
    if (f32_x) x = uniform(&b, f->shape.x, F32, -1, 1);
    b.draws = 1;
    Tensor w = uniform(&b, f->shape.w, type, -1, 1);
    Tensor y = deferred_conv(&b, &attr, &x, &w, &h, &c), dy[2], d[2][ALL];
    Tensor db = tensor_of(&b, h.bias.dim, F32);
    const Dims extent[] = {w.dim, h.bias.dim, h.bias.dim};

    for (int i = 0; i < 2; i++) {
        b.draws = 100; // the same for both
        dy[i] = uniform(&b, y.dim, type, -1, 1);
        for (int k = 0; k < ALL; k++)
            d[i][k] = uniform(&b, extent[k], F32, -1, 1);
    }

    Call norm = {
        .attr = &h.norm, .act = h.deferred_norm.act, .y = &y, .x = {&y}};
    norm.saved = c.saved;
    for (int k = 1; k <= 4; k++) norm.x[k] = &h.x[k];
    norm.dy = norm.dx[0] = &dy[1];
    norm.dx[1] = &d[1][DGAMMA], norm.dx[2] = &d[1][DBETA];
    norm.fresh = add ? 1 : ~0u;
    run(&b, &norm);
    Call plain = {.attr = &attr, .x = {&x, &w, &h.bias}, .y = &y};
    plain.dy = &dy[1], plain.dx[1] = &d[1][DW];
    plain.fresh = c.fresh = add ? 0 : ~0u;
    if (f32_x) plain.half.x[0] = c.half.x[0] = &half;
    run(&b, &plain);
    c.y = &y, c.dy = &dy[0], c.dx[1] = &d[0][DW];
    if (f->bias) c.dx[2] = &db;
    c.norm.dx[1] = &d[0][DGAMMA], c.norm.dx[2] = &d[0][DBETA];
    emu_reset_counts();
    run(&b, &c);
    EXPECT_INT(emu_launch_count("norm_bwd_dx_kernel"), !f->on_load);
    EXPECT_INT(emu_launch_count("norm_bwd_table_kernel"), f->on_load);
    const double unit = p == PRECISION_bf16 ? 0x1p-8 : 0x1p-11;
    for (int k = 0; k < ALL; k++) near(&b, &d[0][k], &d[1][k], unit * unit);
    bench_close(&b);
}

TEST(norm_bwd_on_load_of_a_first_layer)
{
    for (int i = 0; i < FIRSTS; i++) {
        first_layer(PRECISION_bf16, &firsts[i], i % 2);
        if (i % 3 == 0) first_layer(PRECISION_f16, &firsts[i], i % 2 == 0);
    }
}

/* wgrad alone with norm backward on load gives the same bits as wgrad after
 * dgrad, which stores the gradient. */
TEST(norm_bwd_on_load_is_norm_bwd)
{
    Bench b;
    NormAct h;
    Call c;

    bench_open(&b, PRECISION_bf16);
    const Attr attr = attr_of(&firsts[4].shape);
    Tensor x = uniform(&b, firsts[4].shape.x, BF16, -1, 1);
    Tensor w = uniform(&b, firsts[4].shape.w, BF16, -1, 1);
    Tensor y = deferred_conv(&b, &attr, &x, &w, &h, &c), dw[2];
    Tensor dx = tensor_of(&b, x.dim, BF16);
    c.y = &y, c.fresh = ~0u;

    for (int i = 0; i < 2; i++) {
        b.draws = 100; // the same for both
        Tensor dy = uniform(&b, y.dim, BF16, -1, 1);
        dw[i] = tensor_of(&b, w.dim, F32);
        c.dy = &dy, c.dx[0] = i ? &dx : NULL, c.dx[1] = &dw[i];
        run(&b, &c);
    }

    same(&b, &dw[0], &dw[1]);
    bench_close(&b);
}
