/* grad_sums.c -- gradient sums, computed by the call that writes the gradient
 * last (Call.sums.dx), on the emulated device. plan_grad_sums.c tests which
 * calls compute gradient sums. */
#include "tests/cuda/emulator/emu_control.h"
#include "tests/cuda/kernels/bench.h"
#include <math.h>
#include <string.h>

/* Layers that compute the gradient sums of their operand in the backward call.
 */
static const Shape layers[] = {
    {OP_conv, {2, 1, 16, 16, 32}, {32, 1, 3, 3, 32}, 1, 1, 1},
    {OP_conv, {1, 1, 21, 13, 72}, {40, 1, 3, 3, 72}, 1, 1, 1},
    // four and eight residue classes with different numbers of boxes
    {OP_conv, {2, 1, 15, 17, 24}, {16, 1, 3, 3, 24}, 2, 1, 1},
    {OP_conv, {1, 5, 9, 7, 16}, {8, 2, 2, 2, 16}, 2, 0, 1},
    {OP_conv, {1, 1, 12, 12, 64}, {64, 1, 3, 3, 32}, 1, 1, 2},
    {OP_conv, {3, 1, 9, 9, 40}, {64, 1, 1, 1, 40}, 1, 0, 1},
    // more boxes than a block adds at once, for several tiles of channels
    {OP_conv, {2, 1, 72, 64, 160}, {8, 1, 1, 1, 160}, 1, 0, 1},
    // a grid reduction in three rounds
    {OP_conv, {2, 1, 265, 265, 8}, {8, 1, 1, 1, 8}, 1, 0, 1},
    {OP_conv, {2, 1, 9, 10, 128}, {128, 1, 1, 1, 128}, 1, 0, 1},
    {OP_upconv, {2, 1, 7, 9, 32}, {32, 1, 2, 2, 16}, 2, 0, 1},
    {OP_upconv, {1, 1, 11, 5, 136}, {136, 1, 2, 2, 24}, 2, 0, 1},
    // upconv_head_bwd.cu
    {OP_upconv, {2, 5, 9, 11, 64}, {64, 4, 4, 4, 1}, 2, 1, 1},
    {OP_upconv, {1, 1, 37, 35, 96}, {96, 1, 3, 3, 2}, 2, 1, 1},
    {OP_upconv, {2, 1, 7, 19, 160}, {160, 1, 4, 4, 1}, 2, 1, 1},
    // head.cu, with several partial sums and with one
    {OP_conv, {2, 1, 33, 35, 32}, {1, 1, 1, 1, 32}, 1, 0, 1},
    {OP_conv, {1, 1, 21, 13, 40}, {2, 1, 1, 1, 40}, 1, 0, 1},
    {OP_linear, {3, 1, 9, 9, 136}, {5, 1, 1, 1, 136}, 1, 0, 1},
    {OP_conv, {1, 1, 40, 50, 256}, {8, 1, 1, 1, 256}, 1, 0, 1},
    {OP_conv, {1, 1, 5, 7, 8}, {3, 1, 1, 1, 8}, 1, 0, 1},
    {OP_conv, {1, 1, 40, 51, 256}, {1, 1, 1, 1, 256}, 1, 0, 1},
};
enum { LAYERS = sizeof layers / sizeof *layers };

/* Computes mean and 1 / standard deviation of the channel at v, with h's
 * epsilon. */
static void stat_of(const NormAct *h, const double *v, int64_t rows,
                    int channels, double *mean, double *rstd)
{
    double var = 0;
    *mean = 0;
    for (int64_t r = 0; r < rows; r++) *mean += v[r * channels] / (double)rows;
    for (int64_t r = 0; r < rows; r++)
        var += pow(v[r * channels] - *mean, 2) / (double)rows;
    *rstd = 1 / sqrt(var + (double)h->norm.batch_norm.eps);
}

/* Computes the gradient sums of dx over its rows in double: of u, dx taken back
 * through the activation of h, and of u times the normalised x. `h` NULL: no
 * deferred norm. `size`: the sums of the absolute terms. */
static void sums_of(Bench *b, const Tensor *dx, const Tensor *x,
                    const NormAct *h, double *sum, double *size)
{
    const int channels = dx->dim.c;
    const int64_t count = numel(dx->dim), rows = count / channels;
    double *v = mem_alloc((size_t)(2 * count) * sizeof *v);
    double k[MAX_IN][256];

    REQUIRE(v && channels <= 256);
    read_tensor(b, dx, v);
    if (h) {
        read_tensor(b, x, v + count);
        for (int i = 1; i <= 2; i++) read_tensor(b, &h->x[i], k[i]);
    }

    for (int c = 0; c < channels; c++) {
        double mean = 0, rstd = 1;
        if (h) stat_of(h, v + count + c, rows, channels, &mean, &rstd);
        double *s = sum + c, *t = size + c;
        s[0] = s[channels] = t[0] = t[channels] = 0;
        for (int64_t r = 0; r < rows; r++) {
            double u = v[r * channels + c], z = 0;
            if (h) z = (v[count + r * channels + c] - mean) * rstd;
            if (h && z * k[1][c] + k[2][c] <= 0)
                u *= (double)h->act.leaky_relu.slope;
            s[0] += u, s[channels] += u * z;
            t[0] += fabs(u), t[channels] += fabs(u * z);
        }
    }
    mem_free(v);
}

/* Expects the gradient sums of dx in `sums`. Close to zero rounding can change
 * the sign before the activation while u is not small: such a term is 1e-4 of
 * the sums here. */
static void check_sums(Bench *b, const Tensor *sums, const Tensor *dx,
                       const Tensor *x, const NormAct *h)
{
    double got[1026], want[512], size[512];
    const int count = (h ? 2 : 1) * dx->dim.c;
    REQUIRE(sums->dim.c <= 1026);
    read_tensor(b, sums, got);
    sums_of(b, dx, x, h, want, size);
    for (int i = 0; i < count; i++)
        EXPECT_NEAR(got[i], want[i], 2e-4 * size[i] + 1e-6);
}

/* A maxpool with windows of two along w, h and, unless d is 1, d. */
static Attr pool_of_two(Dims s)
{
    Attr a = op_default(OP_maxpool);
    a.maxpool.kd = a.maxpool.sd = s.d > 1 ? 2 : 1;
    a.maxpool.kh = a.maxpool.sh = a.maxpool.kw = a.maxpool.sw = 2;
    return a;
}

static Tensor sums_of_extents(Bench *b, Dims s)
{
    return tensor_of(b, (Dims){1, 1, 1, 1, grad_sums_size(s.c)}, F64);
}

/* Returns whether the backend sums dx[k] in this call. */
static bool has_sums(Bench *b, Call c, int k)
{
    c.precision = b->precision;
    return backend_cuda.fusions(&c).sums >> k & 1;
}

/* Checks the gradient sums of a layer's dx. `add`: dx is added to, and dw and
 * db are computed as well. */
static void layer_sums(Precision p, const Shape *s, bool deferred, bool add)
{
    enum { DX, DW, DB, ALL };
    Bench b;
    NormAct h;
    bench_open(&b, p);
    const Dtype type = precision_copy(p);
    const Attr attr = attr_of(s);
    const Tensor y = deferred_linear(&b, s->x, &h);
    const Tensor w2 = uniform(&b, s->w, type, -1, 1);
    Tensor in[MAX_IN] = {y, w2}, z;
    REQUIRE(op_shape(&attr, in, &z));
    const bool f32_dz = z.dim.c % NARROW_CHANNELS;
    const Tensor dz = uniform(&b, z.dim, f32_dz ? F32 : type, -1, 1);
    const Tensor sums = sums_of_extents(&b, s->x);
    const Dims extent[ALL] = {y.dim, s->w, {1, 1, 1, 1, z.dim.c}};
    Tensor d[2][ALL];

    for (int i = 0; i < 2; i++) {
        b.draws = 100; // the same random values in both runs
        z.data = NULL;
        Call c = {.attr = &attr, .x = {&y, &w2}, .y = &z, .dy = &dz};
        if (deferred) c.x_norm[0] = &h.deferred_norm;
        for (int k = 0; k < (add ? ALL : DW); k++) {
            d[i][k] = uniform(&b, extent[k], k == DX ? type : F32, -1, 1);
            c.dx[k] = &d[i][k];
        }
        c.fresh = !add;
        EXPECT(has_sums(&b, c, 0));
        if (i) c.sums.dx[0] = &sums;
        run(&b, &c);
    }

    for (int k = 0; k < (add ? ALL : DW); k++) same(&b, &d[0][k], &d[1][k]);
    check_sums(&b, &sums, &d[1][DX], &y, deferred ? &h : NULL);
    bench_close(&b);
}

TEST(grad_sums_of_a_product)
{
    for (int i = 0; i < LAYERS; i++) {
        layer_sums(PRECISION_bf16, &layers[i], true, i % 2);
        if (i % 3 == 0) layer_sums(PRECISION_f16, &layers[i], true, i % 2 == 0);
        if (i % 3 == 1)
            layer_sums(PRECISION_bf16, &layers[i], false, i % 2 == 0);
    }
}

/* Checks the values that the call computes from the sums for the reader of the
 * gradient, a call with deferred norm h: dgamma and dbeta, and after the sums
 * one line of four floats per channel: scale and shift of the norm, then factor
 * of x and constant of dx (norm_bwd_on_load.cuh). */
static void check_reader(Bench *b, const Tensor *sums, const Tensor *x,
                         const NormAct *h, const double *before)
{
    const int channels = x->dim.c;
    const int64_t rows = numel(x->dim) / channels;
    double got[1026], gamma[256], made[2][256];

    read_tensor(b, sums, got);
    read_tensor(b, &h->x[1], gamma);
    for (int i = 0; i < 2; i++) read_tensor(b, &h->dx[2 - i], made[i]);
    double *v = mem_alloc((size_t)numel(x->dim) * sizeof *v);
    REQUIRE(v);
    read_tensor(b, x, v);

    for (int c = 0; c < channels; c++) {
        double mean, rstd;
        stat_of(h, v + c, rows, channels, &mean, &rstd);
        const double share = -gamma[c] * rstd / (double)rows;
        const double tilt = share * got[channels + c] * rstd;
        const double want[4] = {gamma[c] * rstd, 0, tilt,
                                share * got[c] - mean * tilt};
        float line[4];
        memcpy(line, got + GRAD_SUMS * channels + 2 + 2 * c, sizeof line);
        for (int i = 0; i < 4; i++)
            if (i != 1)
                EXPECT_NEAR((double)line[i], want[i],
                            1e-4 * (fabs(want[i]) + fabs(mean * tilt)));
        for (int i = 0; i < 2; i++)
            EXPECT_NEAR(made[i][c], got[i * channels + c] + before[i],
                        1e-5 * fabs(got[i * channels + c]) + 1e-5);
    }
    mem_free(v);
}

/* Gradient sums with a reader: dgamma is added to, dbeta is stored. */
static void sums_for_reader(const Shape *s, Op op)
{
    Bench b;
    NormAct h;
    bench_open(&b, PRECISION_bf16);
    const Attr attr = op == OP_conv ? attr_of(s) : pool_of_two(s->x);
    const Tensor y = deferred_linear(&b, s->x, &h);
    const Tensor w2 = uniform(&b, s->w, BF16, -1, 1);
    Tensor in[MAX_IN] = {y, w2}, z;
    REQUIRE(op_shape(&attr, in, &z));
    z = uniform(&b, z.dim, BF16, -1, 1);
    const Tensor dz = uniform(&b, z.dim, BF16, -1, 1);
    const Tensor sums = sums_of_extents(&b, s->x),
                 dx = uniform(&b, y.dim, BF16, 0, 0);
    h.dx[1] = uniform(&b, h.x[1].dim, F32, 3, 3);
    h.dx[2] = uniform(&b, h.x[2].dim, F32, 3, 3);
    const Call reader = {.attr = &attr,
                         .norm = {.x = {NULL, &h.x[1], &h.x[2]},
                                  .dx = {NULL, &h.dx[1], &h.dx[2]},
                                  .deferred = true},
                         .fresh = 1u << (NORM_FRESH + 2)};
    Call c = {.attr = &attr, .x = {&y, op == OP_conv ? &w2 : NULL}, .y = &z};
    c.x_norm[0] = &h.deferred_norm;
    if (op != OP_conv) run(&b, &c);
    c.dy = &dz, c.dx[0] = &dx, c.fresh = 1;
    c.sums.dx[0] = &sums, c.sums.reader[0] = &reader;
    run(&b, &c);
    check_sums(&b, &sums, &dx, &y, &h);
    check_reader(&b, &sums, &y, &h, (const double[]){0, 3});
    bench_close(&b);
}

TEST(grad_sums_for_the_reader)
{
    sums_for_reader(&layers[0], OP_conv);
    sums_for_reader(&layers[6], OP_conv);
    sums_for_reader(&(Shape){OP_maxpool, {2, 1, 64, 48, 40}, {0}, 2, 0, 1},
                    OP_maxpool);
}

/* Call c computes the same gradient with and without gradient sums, and the
 * right sums. `h`: the deferred norm of its operand, or NULL. */
static void call_sums(Bench *b, Call c, const Tensor *dz, NormAct *h, bool add)
{
    const Tensor *y = c.x[0], sums = sums_of_extents(b, y->dim);
    Tensor dx[2];
    if (h) c.x_norm[0] = &h->deferred_norm;
    run(b, &c);

    for (int i = 0; i < 2; i++) {
        b->draws = 100; // the same random values in both runs
        dx[i] = uniform(b, y->dim, y->type, -1, 1);
        c.dy = dz, c.dx[0] = &dx[i], c.fresh = !add;
        EXPECT(backend_cuda.fusions(&c).sums == 1);
        if (i) c.sums.dx[0] = &sums;
        run(b, &c);
    }

    same(b, &dx[0], &dx[1]);
    check_sums(b, &sums, &dx[1], y, h);
}

/* Gradient sums of a maxpool; odd extents leave elements without a window. */
static void pool_sums(Precision p, Dims s, bool deferred, bool add)
{
    Bench b;
    NormAct h;
    bench_open(&b, p);
    const Dtype type = precision_copy(p);
    Attr pool = pool_of_two(s);
    const Tensor y = deferred_linear(&b, s, &h);
    Tensor in[MAX_IN] = {y}, z;
    REQUIRE(op_shape(&pool, in, &z));
    z = tensor_of(&b, z.dim, type);
    const Tensor dz = uniform(&b, z.dim, type, -1, 1);
    const Call c = {.attr = &pool, .x = {&y}, .y = &z};
    call_sums(&b, c, &dz, deferred ? &h : NULL, add);
    bench_close(&b);
}

TEST(grad_sums_of_a_pool)
{
    pool_sums(PRECISION_bf16, (Dims){2, 1, 16, 14, 32}, true, true);
    pool_sums(PRECISION_bf16, (Dims){1, 1, 15, 9, 40}, true, false);
    pool_sums(PRECISION_f16, (Dims){3, 5, 6, 7, 8}, true, true);
    pool_sums(PRECISION_bf16, (Dims){1, 1, 33, 64, 8}, false, true);
}

/* Gradient sums of spatial dropout with an activation after it. The sign for
 * the activation is taken from y or, with a deferred norm, from x. */
static void dropout_sums(Precision p, Dims s, Op act, bool deferred, bool add)
{
    Bench b;
    NormAct h;
    bench_open(&b, p);
    const Dtype type = precision_copy(p);
    const Attr drop = op_default(OP_spatial_dropout), after = op_default(act);
    const Tensor y = deferred_linear(&b, s, &h), z = tensor_of(&b, s, type);
    const Tensor dz = uniform(&b, s, type, -1, 1);
    Call c = {.attr = &drop, .x = {&y}, .y = &z};
    if (act != OP_spatial_dropout) c.act = &after;
    call_sums(&b, c, &dz, deferred ? &h : NULL, add);
    bench_close(&b);
}

TEST(grad_sums_of_dropout)
{
    const Op none = OP_spatial_dropout;
    const Precision half = PRECISION_bf16;
    dropout_sums(half, (Dims){2, 1, 64, 48, 40}, OP_relu, true, false);
    dropout_sums(half, (Dims){3, 5, 6, 7, 8}, OP_leaky_relu, true, true);
    dropout_sums(half, (Dims){1, 1, 33, 64, 8}, OP_leaky_relu, false, true);
    dropout_sums(half, (Dims){2, 1, 9, 10, 256}, none, true, false);
    dropout_sums(PRECISION_f16, (Dims){2, 1, 15, 9, 40}, none, false, false);
    // partial sums of all samples, added in two rounds
    dropout_sums(half, (Dims){6, 1, 160, 165, 8}, OP_relu, true, false);
}

/* Gradient sums of the two operands, of `first` channels and the others, of an
 * implicit concat that a 3x3 convolution with stride 1 reads. */
static void implicit_concat(const Shape *s, int first, int how)
{
    const bool far = how & 1, one = !(how & 2), two = !(how & 4);
    Dims half[2] = {s->x, s->x}, out = s->x;
    half[0].c = first, half[1].c = s->x.c - first, out.c = s->w.n;
    Bench b;
    NormAct h;
    bench_open(&b, PRECISION_bf16);
    const Attr attr = attr_of(s);
    const Tensor y = deferred_linear(&b, half[far], &h);
    const Tensor other = uniform(&b, half[!far], BF16, -1, 1);
    const Tensor w2 = uniform(&b, s->w, BF16, -1, 1);
    const Tensor dz = uniform(&b, out, BF16, -1, 1);
    Tensor z = dz, dx[2], sums[2];
    Call c = {.attr = &attr, .y = &z, .dy = &dz, .fresh = ~0u};
    c.x[0] = far ? &other : &y, c.x[1] = &w2, c.x[X2] = far ? &y : &other;
    c.x_norm[far ? X2 : 0] = &h.deferred_norm;

    for (int i = 0; i < 2; i++) {
        const int k = i ? X2 : 0;
        dx[i] = uniform(&b, half[i], BF16, -1, 1);
        sums[i] = sums_of_extents(&b, half[i]);
        if (!(i ? two : one)) continue;
        c.dx[k] = &dx[i], c.sums.dx[k] = &sums[i];
    }

    for (int i = 0; i < 2; i++)
        if (i ? two : one) EXPECT(has_sums(&b, c, i ? X2 : 0));
    run(&b, &c);
    for (int i = 0; i < 2; i++)
        if (i ? two : one)
            check_sums(&b, &sums[i], &dx[i], &y, i == far ? &h : NULL);
    bench_close(&b);
}

TEST(grad_sums_of_implicit_concat)
{
    const Shape s = {OP_conv, {2, 1, 15, 17, 56}, {40, 1, 3, 3, 56}, 1, 1, 1};
    for (int how = 0; how < 6; how++) implicit_concat(&s, 32, how);
}

/* Gradient sums of igemm_sm90 and channel_sums.cu: whole boxes and others, of
 * each way to share the work. */
TEST(grad_sums_on_hopper)
{
    static const Shape shapes[] = {
        {OP_conv, {2, 1, 32, 16, 64}, {64, 1, 3, 3, 64}, 1, 1, 1},
        {OP_conv, {1, 1, 14, 27, 64}, {64, 1, 3, 3, 64}, 1, 1, 1},
        {OP_conv, {5, 1, 8, 8, 64}, {64, 1, 3, 3, 64}, 1, 1, 1},
        {OP_conv, {1, 5, 6, 7, 64}, {64, 3, 3, 3, 64}, 1, 1, 1},
        {OP_conv, {1, 1, 32, 8, 104}, {96, 1, 3, 3, 104}, 1, 1, 1},
        {OP_conv, {2, 1, 16, 16, 64}, {64, 1, 3, 3, 64}, 2, 1, 1},
        {OP_conv, {2, 1, 32, 32, 128}, {64, 1, 3, 3, 128}, 1, 1, 1},
        {OP_conv, {3, 1, 24, 43, 128}, {128, 1, 3, 3, 128}, 1, 1, 1},
        {OP_upconv, {1, 1, 16, 16, 128}, {128, 1, 2, 2, 64}, 2, 0, 1},
        {OP_conv, {2, 1, 32, 32, 32}, {32, 1, 3, 3, 32}, 1, 1, 1},
        {OP_conv, {1, 1, 60, 30, 32}, {32, 1, 3, 3, 32}, 1, 1, 1},
        {OP_upconv, {2, 1, 32, 16, 128}, {128, 1, 1, 1, 64}, 1, 0, 1},
        {OP_upconv, {2, 1, 32, 32, 32}, {32, 1, 3, 3, 32}, 1, 1, 1},
        // more partial sums than a block adds
        {OP_conv, {1, 1, 129, 136, 64}, {64, 1, 1, 1, 64}, 1, 0, 1},
    };
    static const struct {
        Shape shape;
        int first;
    } concats[] = {
        {{OP_conv, {1, 1, 32, 8, 192}, {64, 1, 3, 3, 192}, 1, 1, 1}, 64},
        {{OP_conv, {1, 1, 30, 13, 152}, {96, 1, 3, 3, 152}, 1, 1, 1}, 96},
        {{OP_conv, {1, 1, 32, 16, 64}, {32, 1, 3, 3, 64}, 1, 1, 1}, 32},
    };
    emu_set_device(90, 1, "ok", (size_t)2 << 30);
    int runs = 0;
    emu_reset_counts();
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        layer_sums(PRECISION_bf16, &shapes[i], true, false);
        layer_sums(PRECISION_f16, &shapes[i], i % 2, false);
        runs += 2;
    }
    for (size_t i = 0; i < sizeof concats / sizeof *concats; i++)
        for (int how = 0; how < 6; how++, runs++)
            implicit_concat(&concats[i].shape, concats[i].first, how);
    // on a GPU launches are not counted
    const long count = emu_launch_count("channel_sums_kernel");
    if (count >= 0) EXPECT_INT(count, runs);
    emu_set_device(80, 1, "ok", (size_t)2 << 30);
}

/* igemm_sm90 sums no gradient to which it adds. */
TEST(grad_sums_not_of_added)
{
    const Shape s = {OP_conv, {2, 1, 32, 16, 64}, {64, 1, 3, 3, 64}, 1, 1, 1};
    const Attr attr = attr_of(&s);
    const Tensor x = {s.x, BF16, 2, NULL}, w = {s.w, F32, 2, NULL};
    Bench b;
    Call c = {.attr = &attr, .x = {&x, &w}, .y = &x, .dy = &x, .dx = {&x}};
    emu_set_device(90, 1, "ok", (size_t)2 << 30);
    bench_open(&b, PRECISION_bf16);
    EXPECT(!has_sums(&b, c, 0));
    c.fresh = 1;
    EXPECT(has_sums(&b, c, 0));
    bench_close(&b);
    emu_set_device(80, 1, "ok", (size_t)2 << 30);
}

/* No gradient sums of f32 gradients, nor with split-K. */
TEST(grad_sums_not_otherwise)
{
    Bench b;
    bench_open(&b, PRECISION_bf16);
    const Attr attr = attr_of(&layers[0]);
    Tensor x = {{1, 1, 2, 2, 512}, BF16, 2, NULL};
    Tensor w = {{512, 1, 3, 3, 512}, F32, 2, NULL}, z = {.data = NULL};
    Tensor in[MAX_IN] = {x, w};
    REQUIRE(op_shape(&attr, in, &z));
    Call c = {.attr = &attr, .x = {&x, &w}, .y = &z, .dy = &z, .dx = {&x}};
    EXPECT(!has_sums(&b, c, 0)); // split
    x.dim = (Dims){1, 1, 64, 64, 512}, in[0] = x;
    REQUIRE(op_shape(&attr, in, &z));
    EXPECT(has_sums(&b, c, 0));
    EXPECT(!has_sums(&b, c, X2));
    x.type = F32;
    EXPECT(!has_sums(&b, c, 0));
    bench_close(&b);
}

/* The backward call of a convolution with deferred norm that is given the sums
 * of dy computes the same gradients, up to the order of the sums, as one that
 * computes them; and makes no pass over dy and y. */
TEST(grad_sums_for_norm_bwd)
{
    enum { C = 16 };
    Bench b;
    NormAct h;
    Call c;
    bench_open(&b, PRECISION_bf16);
    const Attr conv = attr_of(&layers[0]);
    Tensor x = uniform(&b, (Dims){2, 1, 9, 11, 8}, BF16, -1, 1);
    Tensor w = uniform(&b, (Dims){C, 1, 3, 3, 8}, BF16, -1, 1);
    Tensor y = deferred_conv(&b, &conv, &x, &w, &h, &c), dx[2], dk[2][3];
    const Tensor sums = sums_of_extents(&b, y.dim);
    c.y = &y, c.fresh = ~0u;

    for (int i = 0; i < 2; i++) {
        b.draws = 200; // the same random values in both runs
        const Tensor dy = uniform(&b, y.dim, BF16, -1, 1);
        if (i) {
            double sum[GRAD_SUMS * C + 1] = {0}, size[GRAD_SUMS * C];
            sums_of(&b, &dy, &y, &h, sum, size);
            REQUIRE(backend_cuda.upload(b.d.dev, sums.data, sum, sizeof sum));
            c.sums.dy = &sums;
        }
        dx[i] = tensor_of(&b, x.dim, BF16);
        c.dy = &dy, c.dx[0] = &dx[i];
        for (int k = 1; k <= 2; k++)
            dk[i][k] = tensor_of(&b, h.x[k].dim, F32), c.norm.dx[k] = &dk[i][k];
        emu_reset_counts();
        run(&b, &c);
        EXPECT_INT(emu_launch_count("norm_bwd_sums_kernel"), !i);
    }

    double v[2][2 * 9 * 11 * 8];
    for (int k = 1; k <= 2; k++) {
        for (int i = 0; i < 2; i++) read_tensor(&b, &dk[i][k], v[i]);
        for (int i = 0; i < C; i++)
            EXPECT_NEAR(v[0][i], v[1][i], 1e-3 + 1e-4 * fabs(v[0][i]));
    }

    for (int i = 0; i < 2; i++) read_tensor(&b, &dx[i], v[i]);
    for (int i = 0; i < 2 * 9 * 11 * 8; i++)
        EXPECT_NEAR(v[0][i], v[1][i], 0.02 * (1 + fabs(v[0][i])));
    bench_close(&b);
}
