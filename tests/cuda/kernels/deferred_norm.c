/* deferred_norm.c -- operands with a deferred norm on the emulated device: the
 * statistics that the convolution writes, the values to which a kernel applies
 * the norm on load, and the gradients. plan_deferred_norm.c tests for which
 * tensors a plan defers the norm. */
#include "tests/cuda/emulator/emu_control.h"
#include "tests/cuda/kernels/bench.h"
#include <math.h>

/* Returns y after its deferred norm, by a maxpool with windows of one. */
static Tensor apply_norm(Bench *b, const Tensor *y, const NormAct *h)
{
    const Attr pool = pool_of_one();
    Tensor out = tensor_of(b, y->dim, y->type);
    run(b,
        &(Call){
            .attr = &pool, .x = {y}, .y = &out, .x_norm = {&h->deferred_norm}});
    return out;
}

/* Layers that read an operand with a deferred norm. */
static const Shape shapes[] = {
    {OP_conv, {2, 1, 16, 16, 32}, {32, 1, 3, 3, 32}, 1, 1, 1},
    {OP_conv, {1, 1, 21, 13, 72}, {40, 1, 3, 3, 72}, 1, 1, 1},
    {OP_conv, {2, 1, 15, 17, 24}, {16, 1, 3, 3, 24}, 2, 1, 1},
    {OP_conv, {1, 5, 7, 6, 16}, {24, 3, 3, 3, 16}, 1, 1, 1},
    {OP_conv, {1, 8, 8, 8, 8}, {8, 4, 4, 4, 8}, 2, 1, 1},
    {OP_conv, {3, 1, 9, 9, 40}, {64, 1, 1, 1, 40}, 1, 0, 1},
    {OP_conv, {2, 1, 8, 8, 32}, {32, 1, 3, 3, 16}, 1, 1, 2},
    {OP_conv, {1, 1, 2, 2, 512}, {64, 1, 3, 3, 512}, 1, 1, 1}, // split-K
    {OP_upconv, {2, 1, 7, 9, 32}, {32, 1, 2, 2, 16}, 2, 0, 1},
    {OP_conv, {1, 1, 9, 8, 8}, {12, 1, 3, 3, 8}, 1, 1, 1},
    {OP_conv, {1, 1, 12, 12, 16}, {1, 1, 1, 1, 16}, 1, 0, 1}, // head.cu
    {OP_conv, {2, 1, 9, 13, 40}, {2, 1, 1, 1, 40}, 1, 0, 1},
    {OP_linear, {3, 1, 1, 37, 32}, {3, 1, 1, 1, 32}, 1, 0, 1},
    {OP_conv, {1, 3, 5, 7, 72}, {7, 1, 1, 1, 72}, 1, 0, 1},
    {OP_conv, {1, 1, 11, 6, 256}, {8, 1, 1, 1, 256}, 1, 0, 1},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

/* Layers that igemm_tile does not take: few filters, windows of many taps, and
 * groups without whole lines of 16 bytes, which read a copy. */
static const Shape others[] = {
    {OP_upconv, {1, 3, 5, 4, 72}, {72, 4, 4, 4, 1}, 2, 1, 1},
    {OP_upconv,
     {2, 3, 5, 9, 96},
     {96, 4, 4, 4, 1},
     2,
     1,
     1}, // upconv_head_bwd.cu
    {OP_upconv, {2, 1, 9, 7, 40}, {40, 1, 3, 3, 20}, 2, 1, 1},
    {OP_conv, {1, 3, 4, 5, 24}, {8, 7, 7, 7, 24}, 1, 3, 1},
    {OP_conv, {2, 1, 9, 8, 24}, {16, 1, 3, 3, 12}, 1, 1, 2},
    {OP_conv, {2, 1, 9, 8, 16}, {16, 1, 3, 3, 4}, 1, 1, 4},
};
enum { OTHERS = sizeof others / sizeof *others };

/* A layer gives the same y, dx and dw, bit by bit, with the norm on load as
 * with an operand stored after the norm. */
static void norm_on_load_agrees(Precision p, const Shape *s)
{
    Bench b;
    NormAct h;
    bench_open(&b, p);
    const Dtype type = precision_copy(p);
    const Attr attr = attr_of(s);
    const Tensor y = deferred_linear(&b, s->x, &h);
    const Tensor normed = apply_norm(&b, &y, &h),
                 w2 = uniform(&b, s->w, type, -1, 1);
    Tensor in[MAX_IN] = {y, w2}, z;
    REQUIRE(op_shape(&attr, in, &z));
    const bool y16 = z.dim.c % NARROW_CHANNELS == 0;
    Tensor out[2], dx[2], dw[2];
    const Tensor dz = uniform(&b, z.dim, y16 ? type : F32, -1, 1);
    const Tensor half = uniform(&b, z.dim, type, -1, 1);

    for (int i = 0; i < 2; i++) {
        out[i] = tensor_of(&b, z.dim, y16 ? type : F32);
        dx[i] = tensor_of(&b, y.dim, type);
        dw[i] = tensor_of(&b, s->w, F32);
        Call c = {.attr = &attr, .x = {i ? &normed : &y, &w2}, .y = &out[i]};
        if (!i) c.x_norm[0] = &h.deferred_norm;
        run(&b, &c);
        c.dy = &dz, c.dx[0] = &dx[i], c.dx[1] = &dw[i], c.fresh = 3;
        if (!y16) c.half.dy = &half;
        run(&b, &c);
    }

    same(&b, &out[0], &out[1]);
    same(&b, &dx[0], &dx[1]);
    same(&b, &dw[0], &dw[1]);
    bench_close(&b);
}

TEST(deferred_norm_of_products)
{
    for (int i = 0; i < SHAPES; i++)
        norm_on_load_agrees(PRECISION_bf16, &shapes[i]);
    norm_on_load_agrees(PRECISION_f16, &shapes[1]);
    norm_on_load_agrees(PRECISION_f16, &shapes[8]);
    for (int i = 9; i < SHAPES; i++)
        norm_on_load_agrees(PRECISION_f16, &shapes[i]);
    for (int i = 0; i < OTHERS; i++)
        norm_on_load_agrees(PRECISION_bf16, &others[i]);
    norm_on_load_agrees(PRECISION_f16, &others[0]);
    norm_on_load_agrees(PRECISION_f16, &others[1]);
    norm_on_load_agrees(PRECISION_f16, &others[5]);
}

/* Dropout of channels after the norm; the random draws are the same. */
TEST(deferred_norm_of_dropout)
{
    for (int f16 = 0; f16 < 2; f16++) {
        Bench b;
        NormAct h;
        Call made;
        bench_open(&b, f16 ? PRECISION_f16 : PRECISION_bf16);
        const Dtype type = precision_copy(b.precision);
        const Attr conv = attr_of(&shapes[0]);
        Attr relu = op_default(OP_relu), drop = op_default(OP_spatial_dropout);
        Tensor x = uniform(&b, (Dims){2, 1, 9, 11, 8}, type, -1, 1);
        Tensor w = uniform(&b, (Dims){24, 1, 3, 3, 8}, type, -1, 1), out[2];
        Tensor y = deferred_conv(&b, &conv, &x, &w, &h, &made);
        const Tensor normed = apply_norm(&b, &y, &h);
        for (int i = 0; i < 2; i++) {
            out[i] = tensor_of(&b, y.dim, type);
            Call c = {.attr = &drop, .act = &relu, .y = &out[i]};
            c.x[0] = i ? &normed : &y,
            c.x_norm[0] = i ? NULL : &h.deferred_norm;
            run(&b, &c);
        }
        same(&b, &out[0], &out[1]);
        bench_close(&b);
    }
}

/* Computes mean and variance of channel c of the stored y. */
static void moments(const double *y, int64_t rows, int channels, int c,
                    double *mean, double *var)
{
    *mean = *var = 0;
    for (int64_t r = 0; r < rows; r++) *mean += y[r * channels + c];
    *mean /= (double)rows;
    for (int64_t r = 0; r < rows; r++) {
        const double d = y[r * channels + c] - *mean;
        *var += d * d;
    }
    *var /= (double)rows;
}

/* A reader that applies the deferred norm gets norm and activation of the
 * stored y, rounded once, and the running statistics are updated. `after`: a
 * separate launch (norm_stats_kernel) computes the statistics from the stored
 * y, not the epilogue. */
static void check_deferred(Precision p, const Shape *s, bool after)
{
    enum { C = 72 };
    static double k[MAX_IN][C], moved[2][C];
    Bench b;
    NormAct h;
    Call made;
    bench_open(&b, p);
    const Dtype type = precision_copy(p);
    Attr attr = attr_of(s);
    const bool f32_x = s->x.c <= 4;
    Tensor x = uniform(&b, s->x, f32_x ? F32 : type, 0.5f, 1);
    Tensor w = uniform(&b, s->w, type, -1, 1);
    emu_reset_counts();
    Tensor out = deferred_conv(&b, &attr, &x, &w, &h, &made);
    EXPECT_INT(emu_launch_count("norm_stats_kernel"), after);
    const int channels = out.dim.c;
    const int64_t rows = numel(out.dim) / channels;
    double *y = mem_alloc((size_t)(2 * numel(out.dim)) * sizeof *y);
    double *normed = y + numel(out.dim);
    REQUIRE(y && channels <= C);
    const Tensor applied = apply_norm(&b, &out, &h);
    read_tensor(&b, &out, y);
    read_tensor(&b, &applied, normed);
    for (int i = 1; i <= 2; i++) read_tensor(&b, &h.x[i], k[i]);
    for (int i = 0; i < 2; i++) read_tensor(&b, &h.x[3 + i], moved[i]);

    // half a unit in the last place, relative
    const double unit = p == PRECISION_bf16 ? 0x1p-8 : 0x1p-11;

    for (int c = 0; c < channels; c++) {
        double mean, var, most = 0;
        moments(y, rows, channels, c, &mean, &var);
        const double scale = k[1][c] / sqrt(var + 1e-5);
        for (int64_t r = 0; r < rows; r++) {
            double v = (y[r * channels + c] - mean) * scale + k[2][c];
            if (v <= 0) v *= (double)h.act.leaky_relu.slope;
            // ... and the rounding of the float operations
            const double far = unit * fabs(v) + 1e-6 * (1 + fabs(mean * scale));
            const double off = fabs(normed[r * channels + c] - v);
            if (off > far && off > most) most = off;
        }
        EXPECT_NEAR(most, 0, 0);
        // the running values were -1 .. 1 and 1 .. 2; momentum 0.1
        const double n = (double)rows;
        EXPECT(fabs(moved[0][c] - 0.1 * mean) < 0.9001);
        const double rest = moved[1][c] - 0.1 * var * n / (n - 1);
        EXPECT(rest > 0.8999 && rest < 1.8001);
    }

    mem_free(y);
    bench_close(&b);
}

TEST(deferred_norm_is_norm_of_stored_operand)
{
    for (int i = 0; i < SHAPES; i++) {
        const Shape *s = &shapes[i];
        const bool after = i == 7; // few positions: split-K
        if (s->w.n % NARROW_CHANNELS) continue;
        check_deferred(PRECISION_bf16, s, after);
        if (i % 3 == 0) check_deferred(PRECISION_f16, s, after);
    }
}

/* The same for upconvs with residue classes, each with boxes of its own:
 * classes of different sizes, eight classes, and classes without a tap. */
TEST(deferred_norm_of_classes)
{
    static const Shape spread[] = {
        {OP_upconv, {2, 1, 9, 7, 24}, {24, 1, 3, 3, 16}, 2, 1, 1},
        {OP_upconv, {1, 3, 5, 4, 72}, {72, 2, 2, 2, 40}, 2, 0, 1},
        {OP_upconv, {1, 1, 33, 21, 16}, {16, 1, 3, 3, 72}, 2, 1, 1},
        {OP_upconv, {2, 1, 6, 5, 16}, {16, 1, 1, 1, 8}, 2, 0, 1},
        {OP_upconv, {1, 1, 6, 9, 16}, {16, 1, 3, 3, 16}, 1, 1, 1},
    };
    for (int i = 0; i < 5; i++)
        check_deferred(i % 2 ? PRECISION_f16 : PRECISION_bf16, &spread[i],
                       false);
}

/* The same for 1 to 4 input channels, which are read in f32: first.cu. */
TEST(deferred_norm_after_conv_first)
{
    static const Shape first[] = {
        {OP_conv, {2, 1, 21, 13, 1}, {32, 1, 3, 3, 1}, 1, 1, 1},
        {OP_conv, {1, 7, 9, 6, 2}, {64, 3, 3, 3, 2}, 1, 1, 1},
        {OP_conv, {1, 1, 15, 17, 3}, {24, 1, 4, 4, 3}, 2, 1, 1},
        {OP_conv, {1, 1, 1, 3, 4}, {8, 1, 1, 1, 4}, 1, 0, 1},
        // warps that compute more than one piece
        {OP_conv, {1, 1, 259, 517, 1}, {8, 1, 1, 1, 1}, 1, 0, 1},
    };

    for (int i = 0; i < 5; i++) {
        emu_reset_counts();
        check_deferred(i % 2 ? PRECISION_f16 : PRECISION_bf16, &first[i],
                       false);
        EXPECT_INT(emu_launch_count("conv_first_kernel"), 1);
    }
}

/* The same for 5 to 15 input channels, stored in 16 bits: small_cin.cu. */
TEST(deferred_norm_after_small_cin)
{
    static const Shape first[] = {
        {OP_conv, {2, 1, 21, 13, 5}, {32, 1, 3, 3, 5}, 1, 1, 1},
        {OP_conv, {1, 7, 9, 6, 11}, {64, 4, 4, 4, 11}, 2, 1, 1},
        {OP_conv, {1, 1, 15, 17, 14}, {72, 1, 4, 4, 14}, 2, 1, 1},
        {OP_conv, {1, 1, 1, 3, 7}, {8, 1, 1, 1, 7}, 1, 0, 1},
        {OP_conv, {2, 1, 31, 133, 6}, {24, 1, 3, 3, 6}, 1, 1, 1},
    };

    for (int i = 0; i < 5; i++) {
        emu_reset_counts();
        check_deferred(i % 2 ? PRECISION_f16 : PRECISION_bf16, &first[i],
                       false);
        EXPECT_INT(emu_launch_count("small_cin_kernel"), 1);
    }
}

/* A concat of f32 operands that only products read is stored in 16 bits at
 * once, in packs of four channels when both numbers of channels are
 * multiples of four. */
TEST(deferred_norm_of_concat_in_16_bits)
{
    for (int p = PRECISION_bf16; p <= PRECISION_f16; p++) {
        Bench b;
        bench_open(&b, (Precision)p);
        const Attr concat = op_default(OP_concat);
        const Tensor one = uniform(&b, (Dims){2, 1, 3, 5, 4}, F32, -1, 1);
        const Tensor two = uniform(&b, (Dims){2, 1, 3, 5, 8}, F32, -1, 1);
        Tensor y[2];
        for (int i = 0; i < 2; i++) {
            const Dtype type = i ? F32 : precision_copy((Precision)p);
            y[i] = tensor_of(&b, (Dims){2, 1, 3, 5, 12}, type);
            run(&b, &(Call){.attr = &concat, .x = {&one, &two}, .y = &y[i]});
        }
        near(&b, &y[0], &y[1], p == PRECISION_bf16 ? 0x1p-16 : 0x1p-22);
        bench_close(&b);
    }
}

/* Expects that p has the bits of the channels of q from `from` on. */
static void same_part(Bench *b, const Tensor *p, const Tensor *q, int from)
{
    const int64_t rows = numel(p->dim) / p->dim.c;
    double *v = mem_alloc((size_t)numel(p->dim) * sizeof *v);
    double *w = mem_alloc((size_t)numel(q->dim) * sizeof *w);

    REQUIRE(v && w);
    read_tensor(b, p, v);
    read_tensor(b, q, w);
    int64_t off = 0;
    for (int64_t r = 0; r < rows; r++)
        for (int c = 0; c < p->dim.c; c++)
            off += v[r * p->dim.c + c] != w[r * q->dim.c + from + c];
    EXPECT_INT(off, 0);
    mem_free(v);
    mem_free(w);
}

/* Flags: the second operand of the concat (else the first) has a deferred norm;
 * the gradient of the first or second operand is not computed; gradients are
 * added. */
enum { FAR = 1, NO_DX = 2, NO_DX2 = 4, ADDED = 8, HOWS = 16 };

/* Computes `whole`, the concat of `one` and `two`. */
static void store_concat(Bench *b, const Tensor *one, const Tensor *two,
                         const Tensor *whole, const DeferredNorm *first,
                         const DeferredNorm *second)
{
    const Attr concat = op_default(OP_concat);
    run(b, &(Call){.attr = &concat,
                   .x = {one, two},
                   .y = whole,
                   .x_norm = {first, second}});
}

/* A convolution of an implicit concat gives the same bits as of the stored
 * concat: y, the gradients of both operands and dw. */
static void implicit_concat(Precision p, const Shape *s, int first, int how)
{
    Bench b;
    NormAct h;
    bench_open(&b, p);
    const Dtype type = precision_copy(p);
    const Attr attr = attr_of(s);
    Dims one = s->x, two = s->x;
    one.c = first, two.c -= first;
    const bool far = how & FAR;
    const bool dx0 = !(how & NO_DX), dx1 = !(how & NO_DX2);
    const Dims normed = far ? two : one, rest = far ? one : two;
    const Tensor y = deferred_linear(&b, normed, &h);
    const Tensor other = uniform(&b, rest, type, -1, 1);
    const Tensor w2 = uniform(&b, s->w, type, -1, 1);
    const Tensor whole = tensor_of(&b, s->x, type);
    const Tensor *part[2] = {far ? &other : &y, far ? &y : &other};
    store_concat(&b, part[0], part[1], &whole, far ? NULL : &h.deferred_norm,
                 far ? &h.deferred_norm : NULL);
    Tensor in[MAX_IN] = {whole, w2}, z;
    REQUIRE(op_shape(&attr, in, &z));
    const bool y16 = z.dim.c % NARROW_CHANNELS == 0;
    Tensor out[2], dw[2], dx[3];
    const Tensor dz = uniform(&b, z.dim, y16 ? type : F32, -1, 1);
    const Tensor half = uniform(&b, z.dim, type, -1, 1);
    for (int i = 0; i < 2; i++) {
        out[i] = tensor_of(&b, z.dim, dz.type);
        b.draws = 100;
        dw[i] = uniform(&b, s->w, F32, -1, 1);
    }

    dx[0] = uniform(&b, one, type, -1, 1),
    dx[1] = uniform(&b, two, type, -1, 1);
    dx[2] = tensor_of(&b, s->x, type);
    store_concat(&b, &dx[0], &dx[1], &dx[2], NULL, NULL);
    Call c = {.attr = &attr, .x = {part[0], &w2}, .y = &out[0]};
    c.x[X2] = part[1], c.x_norm[far ? X2 : 0] = &h.deferred_norm;
    const Call of_two = {.attr = &attr,
                         .precision = b.precision,
                         .x = {c.x[0], &w2, [X2] = part[1]},
                         .y = &out[0]};
    EXPECT(backend_cuda.fusions(&of_two).concat);
    run(&b, &c);
    c.dy = &dz, c.dx[1] = &dw[0], c.fresh = how & ADDED ? 0 : ~0u;
    c.half.dy = y16 ? NULL : &half;
    c.dx[0] = dx0 ? &dx[0] : NULL, c.dx[X2] = dx1 ? &dx[1] : NULL;
    run(&b, &c);
    Call plain = {.attr = &attr, .x = {&whole, &w2}, .y = &out[1]};
    run(&b, &plain);
    plain.dy = &dz, plain.dx[0] = &dx[2], plain.dx[1] = &dw[1];
    plain.fresh = c.fresh, plain.half.dy = c.half.dy;
    run(&b, &plain);
    same(&b, &out[0], &out[1]);
    same(&b, &dw[0], &dw[1]);
    if (dx0) same_part(&b, &dx[0], &dx[2], 0);
    if (dx1) same_part(&b, &dx[1], &dx[2], first);
    bench_close(&b);
}

TEST(deferred_norm_of_implicit_concat)
{
    static const Shape all[] = {
        {OP_conv, {2, 1, 15, 17, 56}, {40, 1, 3, 3, 56}, 1, 1, 1},
        {OP_upconv, {2, 1, 7, 9, 56}, {56, 1, 4, 4, 24}, 2, 1, 1},
        {OP_upconv, {1, 3, 5, 4, 72}, {72, 4, 4, 4, 1}, 2, 1, 1},
    };

    // the checked build takes every third case, others for each shape
    const int by = given_once() ? 3 : 1;

    for (int i = 0; i < 3; i++)
        for (int how = i % by; how < HOWS; how += by)
            // at least one gradient is computed
            if ((how & (NO_DX | NO_DX2)) != (NO_DX | NO_DX2))
                implicit_concat(how & 2 ? PRECISION_f16 : PRECISION_bf16,
                                &all[i], 32, how);
}

TEST(deferred_norm_of_implicit_concat_of_other_extents)
{
    static const Shape all[] = {
        {OP_conv, {1, 5, 7, 6, 40}, {24, 3, 3, 3, 40}, 1, 1, 1},
        {OP_conv, {1, 1, 9, 8, 96}, {16, 1, 1, 1, 96}, 1, 0, 1},
        {OP_conv, {1, 3, 4, 5, 40}, {8, 7, 7, 7, 40}, 1, 3, 1}, // no tiles
        {OP_conv, {1, 1, 9, 8, 48}, {9, 1, 1, 1, 48}, 1, 0, 1},
        {OP_upconv, {1, 3, 2, 5, 48}, {48, 4, 4, 4, 24}, 2, 1, 1},
        {OP_upconv, {2, 1, 5, 6, 104}, {104, 1, 2, 2, 32}, 2, 0, 1},
        {OP_upconv, {2, 1, 9, 7, 40}, {40, 1, 3, 3, 20}, 2, 1, 1},
    };
    for (int i = 0; i < (int)(sizeof all / sizeof *all); i++)
        for (int how = i % 2; how < HOWS; how += 8 + FAR)
            implicit_concat(PRECISION_bf16, &all[i], 32, how);
}

/* Split-K with one block per slice: the second pass writes the two gradients
 * of the concat while it adds the slices. */
TEST(deferred_norm_of_implicit_concat_of_parts)
{
    static const Shape all[] = {
        {OP_conv, {1, 1, 2, 2, 512}, {64, 1, 3, 3, 512}, 1, 1, 1},
        {OP_conv, {1, 1, 2, 2, 64}, {512, 1, 3, 3, 64}, 1, 1, 1},
        {OP_upconv, {1, 1, 3, 2, 1024}, {1024, 1, 4, 4, 32}, 2, 1, 1},
        {OP_upconv, {1, 1, 3, 2, 64}, {64, 1, 4, 4, 256}, 2, 1, 1},
    };

    for (int i = 0; i < 4; i++)
        for (int how = 0; how < HOWS; how += ADDED + i % 2) {
            emu_reset_counts();
            implicit_concat(PRECISION_bf16, &all[i], i % 2 ? 32 : 128, how);
            // y or dx, in both runs
            EXPECT_INT(emu_launch_count("split_k_sum_kernel"), 2);
        }
}
