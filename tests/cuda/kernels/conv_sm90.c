/* conv_sm90.c -- the Hopper kernels (igemm_sm90, wgrad_sm90) on an emulated
 * GPU of capability 9.0, compared with the kernels of other GPUs.
 *
 * Both round the same sums, at times to neighbouring numbers. */
#include "engine/check/suite.h"
#include "tests/cuda/emulator/emu_control.h"
#include "tests/cuda/kernels/bench.h"
#include <stdlib.h>

enum {
    ADD = 1,    // gradients are added
    NORM = 2,   // the operand has a deferred norm
    DW = 4,     // wgrad_sm90 takes dw; igemm_sm90 takes y and dx
    THIN = 8,   // no dx, and igemm_sm90 does not take y
    BOTH = 16,  // in bf16 and f16: together these layers run all kernels
    ROWS = 32,  // THIN, but igemm_sm90 takes y, by im2row_sm90
    NO_DX = 64, // igemm_sm90 takes y, not dx
    LEFT = 128, // igemm_sm90 takes neither
};

typedef struct Layer {
    Shape shape;
    int x2; // channels of a second operand; 0: none
    unsigned how;
} Layer;

static const Layer layers[] = {
    // boxes of 8 x 32, one and two tiles of filters, resident and streamed
    {{OP_conv, {2, 1, 32, 16, 64}, {64, 1, 3, 3, 64}, 1, 1, 1},
     0,
     NORM | DW | BOTH},
    {{OP_conv, {1, 1, 40, 10, 128}, {64, 1, 3, 3, 128}, 1, 1, 1},
     0,
     ADD | DW | BOTH},
    {{OP_conv, {1, 1, 60, 12, 64}, {128, 1, 3, 3, 64}, 1, 1, 1},
     0,
     NORM | DW | BOTH},
    // several tiles for each block: 4 blocks
    {{OP_conv, {2, 1, 40, 16, 128}, {64, 1, 3, 3, 128}, 1, 1, 1},
     0,
     NORM | DW | BOTH},
    {{OP_conv, {2, 1, 32, 16, 64}, {192, 1, 3, 3, 64}, 1, 1, 1}, 0, DW | BOTH},
    {{OP_conv, {3, 1, 16, 16, 64}, {128, 1, 3, 3, 64}, 1, 1, 1},
     0,
     NORM | DW | BOTH},
    {{OP_conv, {1, 1, 14, 27, 64}, {64, 1, 3, 3, 64}, 1, 1, 1},
     0,
     ADD | NORM | DW},
    // boxes of several planes: samples, and planes along d
    {{OP_conv, {5, 1, 8, 8, 64}, {64, 1, 3, 3, 64}, 1, 1, 1}, 0, NORM | DW},
    {{OP_conv, {3, 1, 4, 4, 64}, {128, 1, 3, 3, 64}, 1, 1, 1},
     0,
     ADD | NORM | DW},
    {{OP_conv, {1, 5, 6, 7, 64}, {64, 3, 3, 3, 64}, 1, 1, 1}, 0, NORM | DW},
    {{OP_conv, {3, 1, 8, 16, 32}, {32, 1, 3, 3, 32}, 1, 1, 1}, 0, NORM | DW},
    {{OP_upconv, {2, 4, 4, 4, 128}, {128, 4, 4, 4, 64}, 2, 1, 1}, 0, NORM | DW},
    {{OP_conv, {2, 1, 16, 16, 64}, {64, 1, 3, 3, 64}, 2, 1, 1},
     0,
     NORM | DW | BOTH},
    // split-K
    {{OP_conv, {2, 4, 8, 8, 128}, {64, 4, 4, 4, 128}, 2, 1, 1}, 0, NORM | DW},
    {{OP_conv, {1, 2, 4, 8, 64}, {320, 3, 3, 3, 128}, 1, 1, 1},
     64,
     ADD | NORM | DW},
    // an implicit concat
    {{OP_conv, {1, 1, 32, 8, 64}, {64, 1, 3, 3, 192}, 1, 1, 1}, 128, NORM | DW},
    // chunks of 64 channels that are padded
    {{OP_conv, {1, 1, 32, 8, 32}, {64, 1, 3, 3, 32}, 1, 1, 1}, 0, NORM | DW},
    {{OP_conv, {1, 1, 32, 8, 104}, {96, 1, 3, 3, 104}, 1, 1, 1},
     0,
     ADD | NORM | DW},
    {{OP_conv, {1, 1, 32, 8, 96}, {96, 1, 3, 3, 152}, 1, 1, 1}, 56, NORM | DW},
    // pairs: tensors of 32 channels
    {{OP_conv, {3, 1, 64, 32, 32}, {32, 1, 3, 3, 32}, 1, 1, 1},
     0,
     NORM | DW | BOTH},
    {{OP_conv, {1, 1, 60, 30, 32}, {32, 1, 3, 3, 64}, 1, 1, 1},
     32,
     ADD | NORM | DW},
    {{OP_conv, {1, 3, 32, 16, 32}, {32, 3, 3, 3, 32}, 1, 1, 1}, 0, NORM | DW},
    // first layers: dw alone
    {{OP_conv, {2, 1, 32, 40, 8}, {32, 1, 3, 3, 8}, 1, 1, 1},
     0,
     THIN | DW | BOTH},
    {{OP_conv, {1, 1, 64, 33, 3}, {64, 1, 3, 3, 3}, 1, 1, 1},
     0,
     ADD | THIN | DW},
    {{OP_conv, {1, 4, 64, 32, 10}, {64, 4, 4, 4, 11}, 2, 1, 1},
     1,
     THIN | ROWS | DW | BOTH},
    // y by rows of taps: overlapping ones of 4 and 8 channels
    {{OP_conv, {2, 1, 20, 24, 3}, {64, 1, 7, 7, 3}, 2, 3, 1}, 0, THIN | ROWS},
    {{OP_conv, {1, 1, 9, 17, 5}, {64, 1, 5, 5, 5}, 1, 2, 1}, 0, THIN | ROWS},
    // 3-D, windows of one, strides, transposed
    {{OP_conv, {1, 3, 16, 16, 64}, {64, 3, 3, 3, 64}, 1, 1, 1}, 0, NORM | DW},
    {{OP_conv, {1, 1, 32, 8, 128}, {64, 1, 1, 1, 128}, 1, 0, 1}, 0, NORM},
    {{OP_conv, {1, 1, 32, 64, 64}, {128, 1, 4, 4, 64}, 2, 1, 1}, 0, NORM | DW},
    {{OP_conv, {1, 4, 16, 32, 64}, {128, 4, 4, 4, 64}, 2, 1, 1}, 0, NORM | DW},
    {{OP_conv, {1, 4, 16, 32, 64}, {64, 3, 3, 3, 64}, 2, 1, 1}, 0, NORM | DW},
    {{OP_upconv, {1, 2, 8, 16, 128}, {128, 4, 4, 4, 64}, 2, 1, 1},
     0,
     NORM | DW | BOTH},
    {{OP_upconv, {1, 1, 32, 16, 128}, {256, 1, 4, 4, 64}, 2, 1, 1},
     128,
     NORM | DW},
    // the border of dx is inside of a chunk of 64 channels
    {{OP_upconv, {1, 1, 32, 8, 96}, {192, 1, 4, 4, 48}, 2, 1, 1},
     96,
     NORM | DW | NO_DX},
    // four products a tap of a pair, but 64 in all
    {{OP_conv, {1, 6, 8, 16, 32}, {32, 5, 5, 3, 32}, 1, 1, 1}, 0, LEFT},
    // a halo for each tap
    {{OP_upconv, {3, 1, 16, 16, 128}, {128, 1, 2, 2, 64}, 2, 0, 1},
     0,
     NORM | DW | BOTH},
    {{OP_upconv, {1, 2, 8, 7, 64}, {128, 2, 2, 2, 32}, 2, 0, 1},
     64,
     ADD | NORM | DW},
    {{OP_upconv, {3, 3, 4, 8, 64}, {64, 2, 2, 2, 64}, 2, 0, 1},
     0,
     NORM | DW | BOTH},
    {{OP_conv, {1, 1, 18, 40, 64}, {128, 1, 2, 2, 64}, 2, 0, 1}, 0, NORM | DW},
    {{OP_conv, {1, 1, 32, 16, 10}, {64, 1, 2, 2, 10}, 2, 0, 1},
     0,
     THIN | ROWS | DW},
};
enum { LAYERS = sizeof layers / sizeof *layers };

// igemm_sm90 takes y and dx of f32 tensors; a chunk of the source has 32
// channels
static const Layer tf32_layers[] = {
    // resident and streamed filters, one and two tiles of filters
    {{OP_conv, {2, 1, 32, 16, 64}, {64, 1, 3, 3, 64}, 1, 1, 1}, 0, 0},
    {{OP_conv, {2, 1, 40, 16, 96}, {64, 1, 3, 3, 96}, 1, 1, 1}, 0, ADD},
    {{OP_conv, {1, 1, 60, 12, 128}, {128, 1, 3, 3, 128}, 1, 1, 1}, 0, ADD},
    // padded chunks; rows of 16 bytes and channels that are no multiple of 8
    {{OP_conv, {1, 1, 14, 27, 32}, {32, 1, 3, 3, 32}, 1, 1, 1}, 0, ADD},
    {{OP_conv, {1, 1, 16, 24, 60}, {60, 1, 3, 3, 60}, 1, 1, 1}, 0, 0},
    // pairs: a result of 32 channels and an even width
    {{OP_conv, {2, 1, 33, 30, 64}, {32, 1, 3, 3, 64}, 1, 1, 1}, 0, ADD},
    {{OP_conv, {1, 3, 16, 16, 32}, {32, 3, 3, 3, 32}, 1, 1, 1}, 0, ADD},
    {{OP_upconv, {1, 1, 16, 20, 32}, {32, 1, 4, 3, 64}, 1, 1, 1}, 0, 0},
    // boxes of several planes, split-K, strides, transposed
    {{OP_conv, {5, 1, 8, 8, 64}, {64, 1, 3, 3, 64}, 1, 1, 1}, 0, 0},
    {{OP_conv, {1, 5, 6, 7, 32}, {64, 3, 3, 3, 32}, 1, 1, 1}, 0, 0},
    {{OP_conv, {2, 4, 8, 8, 128}, {64, 4, 4, 4, 128}, 2, 1, 1}, 0, ADD},
    {{OP_conv, {1, 1, 32, 32, 64}, {64, 1, 3, 3, 64}, 2, 1, 1}, 0, 0},
    {{OP_upconv, {1, 1, 16, 16, 128}, {128, 1, 2, 2, 64}, 2, 0, 1}, 0, 0},
};
enum { TF32_LAYERS = sizeof tf32_layers / sizeof *tf32_layers };

/* Sample i of a tensor. */
static Tensor sample(const Tensor *t, int i)
{
    Tensor one = *t;
    one.dim.n = 1;
    one.data = (char *)t->data + (size_t)i * tensor_bytes(&one);
    return one;
}

static void hopper(bool on)
{
    setenv("SEG_HOPPER", on ? "1" : "0", 1);
}

/* Emulate a GPU of capability 9.0; and the usual one again. */
static void begin_hopper(void)
{
    emu_set_device(90, 1, "ok", (size_t)2 << 30);
}

static void end_hopper(void)
{
    unsetenv("SEG_HOPPER");
    emu_set_device(80, 1, "ok", (size_t)2 << 30);
}

/* Did a kernel run since the last emu_reset_counts? On a GPU launches are not
 * counted. */
static void expect_kernel(const char *name, bool want)
{
    const long count = emu_launch_count(name);
    if (count >= 0) EXPECT_INT(count > 0, want);
}

/* Gives the backward call room for the partial sums of squares of dw, if its
 * kernel writes them. */
static void leave_squares(Bench *b, Call *c, Tensor *squares)
{
    const int count = backend_fusions(&backend_cuda, c).sqnorm_parts[1];
    c->sums.sqnorm[1] = NULL;
    if (!count) return;
    *squares = tensor_of(b, (Dims){1, 1, 1, 1, count}, F64);
    c->sums.sqnorm[1] = squares;
}

/* Expects that the partial sums add up to the sum of squares of dw. */
static void expect_squares(Bench *b, const Call *c)
{
    const Tensor *t[2] = {c->dx[1], c->sums.sqnorm[1]};
    double sum[2] = {0, 0};
    if (!t[1]) return;
    for (int i = 0; i < 2; i++) {
        const int64_t count = numel(t[i]->dim);
        double *v = mem_alloc((size_t)count * sizeof *v);
        REQUIRE(v);
        read_tensor(b, t[i], v);
        for (int64_t k = 0; k < count; k++) sum[i] += i ? v[k] : v[k] * v[k];
        mem_free(v);
    }
    EXPECT(sum[0] > 0);
    EXPECT_NEAR(sum[1], sum[0], 1e-12 * sum[0]);
}

/* y, dx and dw of a layer on both families. */
static void families_agree(Precision p, const Layer *l)
{
    Bench b;
    NormAct h;
    bench_open(&b, p);
    const Shape *s = &l->shape;
    const Dtype type = precision_copy(p);
    const Attr attr = attr_of(s);
    hopper(false);
    const Tensor x = (l->how & NORM) ? deferred_linear(&b, s->x, &h)
                                     : uniform(&b, s->x, type, -1, 1);
    Dims second = s->x;
    second.c = l->x2;
    const Tensor x2 =
        uniform(&b, l->x2 ? second : (Dims){1, 1, 1, 1, 8}, type, -1, 1);
    const Tensor w = uniform(&b, s->w, type, -0.3f, 0.3f);
    Dims all = s->x;
    all.c += l->x2;
    Tensor in[MAX_IN] = {{all, type, RANK_MAX, NULL}, w}, z;
    REQUIRE(op_shape(&attr, in, &z));
    const Tensor bias = uniform(&b, (Dims){1, 1, 1, 1, z.dim.c}, F32, -1, 1);
    const Tensor dz = uniform(&b, z.dim, type, -1, 1);
    Tensor y[2], dx[2], dx2[2], dw[2], squares;
    const unsigned draws = b.draws;

    for (int i = 0; i < 2; i++) {
        b.draws = draws;
        y[i] = tensor_of(&b, z.dim, type);
        dx[i] = uniform(&b, s->x, type, -1, 1);
        dx2[i] = uniform(&b, x2.dim, type, -1, 1);
        dw[i] = uniform(&b, s->w, F32, -1, 1);
        hopper(i == 0);
        Call c = {.attr = &attr, .x = {&x, &w, &bias}, .y = &y[i]};
        if (l->how & NORM) c.x_norm[0] = &h.deferred_norm;
        if (l->x2) c.x[X2] = &x2;
        emu_reset_counts();
        run(&b, &c);
        expect_kernel("igemm_sm90_kernel",
                      !i && (l->how & (THIN | ROWS)) != THIN &&
                          !(l->how & LEFT));
        expect_kernel("im2row_kernel", !i && (l->how & ROWS));
        c.dy = &dz, c.dx[1] = &dw[i];
        if (!(l->how & THIN)) c.dx[0] = &dx[i];
        if (l->x2 && !(l->how & THIN)) c.dx[X2] = &dx2[i];
        c.fresh = (l->how & ADD) ? 0 : ~0u;
        leave_squares(&b, &c, &squares);
        emu_reset_counts();
        run(&b, &c);
        expect_squares(&b, &c);
        expect_kernel("igemm_sm90_kernel",
                      !i && !(l->how & (THIN | NO_DX | LEFT)));
        expect_kernel("wgrad_sm90_kernel", !i && (l->how & DW));
    }

    // an added gradient is rounded twice. f32 results are sums in another order
    const double unit = p == PRECISION_tf32   ? 0x1p-20
                        : p == PRECISION_bf16 ? 0x1p-8
                                              : 0x1p-11;
    near(&b, &y[0], &y[1], unit * unit);
    near(&b, &dx[0], &dx[1], unit * unit * ((l->how & ADD) ? 4 : 1));
    if (l->x2) near(&b, &dx2[0], &dx2[1], unit * unit);
    near(&b, &dw[0], &dw[1], 1e-10);
    bench_close(&b);
}

TEST(sm90_layers)
{
    begin_hopper();
    for (int i = 0; i < LAYERS; i++) {
        families_agree(PRECISION_bf16, &layers[i]);
        if (layers[i].how & BOTH) families_agree(PRECISION_f16, &layers[i]);
    }
    end_hopper();
}

TEST(sm90_tf32)
{
    begin_hopper();
    for (int i = 0; i < TF32_LAYERS; i++)
        families_agree(PRECISION_tf32, &tf32_layers[i]);
    end_hopper();
}

/* Expects that y and dx of a sample have the same bits in a batch and alone. */
static void batch_agrees(const Shape *s)
{
    Bench b;
    bench_open(&b, PRECISION_bf16);
    const Attr attr = attr_of(s);
    const Tensor x = uniform(&b, s->x, BF16, -1, 1);
    const Tensor w = uniform(&b, s->w, BF16, -0.3f, 0.3f);
    Tensor in[MAX_IN] = {x, w}, z;
    REQUIRE(op_shape(&attr, in, &z));
    const Tensor dz = uniform(&b, z.dim, BF16, -1, 1);

    Tensor y = tensor_of(&b, z.dim, BF16), dx = tensor_of(&b, s->x, BF16);
    Call c = {.attr = &attr, .x = {&x, &w}, .y = &y, .fresh = ~0u};
    run(&b, &c);
    c.dy = &dz, c.dx[0] = &dx;
    run(&b, &c);

    for (int i = 0; i < s->x.n; i++) {
        const Tensor x1 = sample(&x, i), y1 = sample(&y, i);
        const Tensor dz1 = sample(&dz, i), dx1 = sample(&dx, i);
        Tensor yi = tensor_of(&b, y1.dim, BF16);
        Tensor dxi = tensor_of(&b, dx1.dim, BF16);
        Call one = {.attr = &attr, .x = {&x1, &w}, .y = &yi, .fresh = ~0u};
        run(&b, &one);
        one.dy = &dz1, one.dx[0] = &dxi;
        run(&b, &one);
        same(&b, &yi, &y1);
        same(&b, &dxi, &dx1);
    }
    bench_close(&b);
}

TEST(sm90_batch)
{
    // boxes of one and of several samples, split-K
    static const Shape shapes[] = {
        {OP_conv, {3, 1, 36, 8, 64}, {64, 1, 3, 3, 64}, 1, 1, 1},
        {OP_conv, {5, 1, 8, 8, 64}, {128, 1, 3, 3, 64}, 1, 1, 1},
        {OP_conv, {3, 4, 8, 8, 128}, {64, 4, 4, 4, 128}, 2, 1, 1},
    };
    begin_hopper();
    hopper(true);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        batch_agrees(&shapes[i]);
    end_hopper();
}

/* The statistics of a deferred norm of y, and the gradients of x, w, gamma and
 * beta through it. */
static void statistics_agree(Precision p, const Shape *s)
{
    Bench b;
    NormAct h[2];
    Tensor y[2], out[2], dx[2], dw[2], dgamma[2], dbeta[2];
    bench_open(&b, p);
    const Dtype type = precision_copy(p);
    const Attr attr = attr_of(s), pool = pool_of_one();
    const Tensor x = uniform(&b, s->x, type, -1, 1);
    const Tensor w = uniform(&b, s->w, type, -0.3f, 0.3f);
    const unsigned draws = b.draws;

    for (int i = 0; i < 2; i++) {
        Call c;
        b.draws = draws;
        hopper(i == 0);
        emu_reset_counts();
        y[i] = deferred_conv(&b, &attr, &x, &w, &h[i], &c);
        expect_kernel("igemm_sm90_kernel", i == 0 && s->x.c >= 32);
        out[i] = tensor_of(&b, y[i].dim, type);
        run(&b, &(Call){.attr = &pool,
                        .x = {&y[i]},
                        .y = &out[i],
                        .x_norm = {&h[i].deferred_norm}});

        Tensor dy = uniform(&b, y[i].dim, type, -1, 1);
        dx[i] = tensor_of(&b, x.dim, type);
        dw[i] = tensor_of(&b, w.dim, F32);
        dgamma[i] = tensor_of(&b, h[i].x[1].dim, F32);
        dbeta[i] = tensor_of(&b, h[i].x[2].dim, F32);
        c.y = &y[i], c.dy = &dy, c.x[2] = NULL, c.fresh = ~0u;
        c.dx[0] = &dx[i], c.dx[1] = &dw[i];
        c.norm.dx[1] = &dgamma[i], c.norm.dx[2] = &dbeta[i];
        run(&b, &c);
    }

    const double unit = p == PRECISION_bf16 ? 0x1p-8 : 0x1p-11;
    near(&b, &dx[0], &dx[1], unit * unit);
    near(&b, &dw[0], &dw[1], unit * unit);
    near(&b, &dgamma[0], &dgamma[1], unit * unit);
    near(&b, &dbeta[0], &dbeta[1], unit * unit);
    near(&b, &y[0], &y[1], unit * unit);
    near(&b, &out[0], &out[1], unit * unit);
    for (int k = 3; k <= 4; k++) near(&b, &h[0].x[k], &h[1].x[k], 1e-9);
    bench_close(&b);
}

TEST(sm90_statistics)
{
    // conv and upconv, whole boxes and others, of each way to share the work
    static const Shape shapes[] = {
        {OP_conv, {2, 1, 32, 16, 64}, {64, 1, 3, 3, 64}, 1, 1, 1},
        {OP_upconv, {1, 1, 61, 13, 64}, {64, 1, 3, 3, 64}, 1, 1, 1},
        {OP_conv, {1, 1, 60, 12, 64}, {128, 1, 3, 3, 64}, 1, 1, 1},
        {OP_upconv, {1, 1, 32, 32, 64}, {64, 1, 3, 3, 128}, 1, 1, 1},
        {OP_conv, {2, 1, 16, 16, 64}, {64, 1, 3, 3, 64}, 1, 1, 1},
        {OP_upconv, {1, 1, 16, 16, 64}, {64, 1, 2, 2, 64}, 2, 0, 1},
        {OP_conv, {1, 1, 14, 27, 64}, {128, 1, 3, 3, 64}, 1, 1, 1},
        {OP_conv, {5, 1, 8, 8, 64}, {64, 1, 3, 3, 64}, 1, 1, 1},
        {OP_conv, {1, 5, 6, 7, 64}, {64, 3, 3, 3, 64}, 1, 1, 1},
        {OP_conv, {2, 1, 32, 32, 32}, {32, 1, 3, 3, 32}, 1, 1, 1},
        {OP_upconv, {1, 1, 61, 30, 32}, {32, 1, 3, 3, 32}, 1, 1, 1},
        {OP_conv, {1, 1, 30, 16, 64}, {56, 1, 3, 3, 64}, 1, 1, 1},
        // dx and y of a kernel of all GPUs, dw of Hopper's
        {OP_conv, {1, 1, 16, 16, 16}, {32, 1, 3, 3, 16}, 1, 1, 1},
    };
    begin_hopper();
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int p = PRECISION_bf16; p <= PRECISION_f16; p++)
            statistics_agree((Precision)p, &shapes[i]);
    end_hopper();
}

/* The suites that `segengine check` runs for these kernels, against ref. */
TEST(sm90_suites)
{
    const OpSuite *s;
    begin_hopper();
    for (int at = 0; (s = suite_next(&at));) {
        if (!s->narrow) continue;
        for (int p = PRECISION_tf32; p <= PRECISION_f16; p++) {
            OpCheck k = {.be = given_backend(1),
                         .precision = (Precision)p,
                         .report = given_report};
            given_share(&k.shares, &k.share);
            emu_reset_counts();
            suite_run(s, &k);
            EXPECT_INT(k.failures, 0);
            if (k.shares > 1) continue; // perhaps no case of one of the two
            expect_kernel("igemm_sm90_kernel", true);
            expect_kernel("wgrad_sm90_kernel", p != PRECISION_tf32);
        }
    }
    end_hopper();
}

/* Opening a GPU of this capability tries two dependent launches, unless
 * SEG_OVERLAP=0. */
static void expect_tries(int capability, const char *overlap, long want)
{
    Bench b;
    emu_set_device(capability, 1, "ok", (size_t)2 << 30);
    if (overlap) setenv("SEG_OVERLAP", overlap, 1);
    emu_reset_counts();
    bench_open(&b, PRECISION_f32);
    const long count = emu_launch_count("wait_kernel");
    if (count >= 0) EXPECT_INT(count, want); // on a GPU they are not counted
    bench_close(&b);
    unsetenv("SEG_OVERLAP");
}

TEST(sm90_dependent_launches)
{
    expect_tries(90, NULL, 2);
    expect_tries(90, "0", 0);
    expect_tries(80, NULL, 0);
}
