/* capability_75.c -- kernels on an emulated GPU of compute capability 7.5, with
 * 64 KB of shared memory, compared with one of 8.0.
 *
 * The emulator adds the products of m16n8k8 and m16n8k16 in the same order, so
 * a kernel has the same bits on both, but for wgrad_tile, whose boxes follow
 * from the shared memory; a layer whose kernel needs more shared memory runs
 * another one, which adds in another order. */
#include "tests/cuda/emulator/emu_control.h"
#include "tests/cuda/kernels/bench.h"
#include "tests/support/networks.h"

typedef struct Layer {
    Shape shape;
    const char *kernel; // that it runs on 7.5
    const char *absent; // that it runs on 8.0 alone, or NULL
} Layer;

static const Layer layers[] = {
    // igemm_tile: windows of one, a 3-D halo, strides
    {{OP_conv, {1, 1, 24, 16, 128}, {128, 1, 1, 1, 128}, 1, 0, 1},
     "igemm_tile_kernel<",
     NULL},
    {{OP_conv, {1, 8, 8, 16, 32}, {128, 3, 3, 3, 32}, 1, 1, 1},
     "igemm_tile_kernel<",
     NULL},
    {{OP_conv, {1, 1, 20, 12, 64}, {64, 1, 4, 4, 64}, 2, 1, 1},
     "igemm_tile_kernel<",
     NULL},
    {{OP_upconv, {1, 1, 9, 8, 64}, {64, 1, 2, 2, 32}, 2, 0, 1},
     "igemm_tile_kernel<",
     NULL},
    {{OP_linear, {70, 1, 1, 1, 200}, {24, 1, 1, 1, 200}, 1, 0, 1},
     "igemm_tile_kernel<",
     NULL},
    // a halo of 76 KB
    {{OP_conv, {1, 6, 6, 6, 32}, {32, 5, 5, 5, 32}, 1, 2, 1},
     "igemm_mma_kernel<",
     "igemm_tile_kernel<"},
    // other channels; groups of few
    {{OP_conv, {2, 1, 9, 7, 20}, {12, 1, 3, 3, 20}, 1, 1, 1},
     "igemm_mma_kernel<",
     NULL},
    {{OP_conv, {1, 1, 9, 8, 32}, {32, 1, 3, 3, 4}, 1, 1, 8},
     "direct_kernel<",
     NULL},
    // special kernels
    {{OP_conv, {1, 1, 20, 17, 3}, {32, 1, 3, 3, 3}, 1, 1, 1},
     "conv_first_kernel<",
     NULL},
    {{OP_conv, {1, 1, 18, 16, 11}, {64, 1, 3, 3, 11}, 1, 1, 1},
     "small_cin_kernel<",
     NULL},
    {{OP_conv, {1, 8, 16, 16, 11}, {64, 4, 4, 4, 11}, 2, 1, 1},
     "igemm_mma_kernel<",
     "small_cin_kernel<"},
    {{OP_conv, {1, 1, 16, 17, 32}, {2, 1, 1, 1, 32}, 1, 0, 1},
     "conv_head_kernel<",
     NULL},
    {{OP_upconv, {1, 3, 8, 8, 64}, {64, 4, 4, 4, 1}, 2, 1, 1},
     "igemm_mma_kernel<",
     "upconv_head"},
};

/* Runs an operator forward and backward on an emulated GPU. */
static bool run_on(int capability, Precision p, const OpCase *c, Arena *mem,
                   OpValues *out)
{
    OpDevice d;
    OpValues in;
    emu_set_device(capability, 1, "ok", (size_t)2 << 30);
    REQUIRE(opdevice_open(&backend_cuda, 1, &d));
    d.precision = p;
    emu_reset_counts();
    const bool ok = opcase_values(c, mem, &in) &&
                    oprun(c, &d, &in, (OpOptions){0}, mem, out);
    opdevice_close(&d);
    return ok;
}

// a rounding to f16, squared
static const double ROUNDED = 0x1p-22;

/* Expects the squares of differences to be at most `bound` of the squares. */
static void expect_close(const double *p, const double *q, int64_t count,
                         double bound)
{
    double off = 0, all = 0;
    for (int64_t i = 0; i < count; i++)
        off += (p[i] - q[i]) * (p[i] - q[i]), all += p[i] * p[i];
    EXPECT(off <= bound * all);
}

TEST(capability_75_layers)
{
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++) {
        const Layer *l = &layers[i];
        Arena mem = {NULL};
        OpValues on[2];
        const OpCase c = {.attr = attr_of(&l->shape),
                          .rank = l->shape.w.d > 1 ? 3 : 2,
                          .x = {l->shape.x, l->shape.w},
                          .wrt = 3};
        for (int k = 0; k < 2; k++) {
            REQUIRE(run_on(k ? 75 : 80, PRECISION_f16, &c, &mem, &on[k]));
            if (k) EXPECT(emu_launch_count(l->kernel) > 0);
            if (l->absent) EXPECT_INT(emu_launch_count(l->absent) > 0, !k);
        }
        // another kernel rounds other sums to f16; the boxes of wgrad_tile, and
        // with them the order of its sums, follow from the shared memory
        const double bound = l->absent ? ROUNDED : 0;
        expect_close(on[0].y, on[1].y, on[0].results, bound);
        expect_close(on[0].dx[0], on[1].dx[0], on[0].count[0], bound);
        expect_close(on[0].dx[1], on[1].dx[1], on[0].count[1],
                     l->absent ? ROUNDED : 0x1p-44);
        arena_release(&mem);
    }
    emu_set_device(80, 1, "ok", (size_t)2 << 30);
}

/* dx, dw and the gradients of gamma and beta of a convolution with a deferred
 * norm: one kernel on 8.0, with 94 KB, and several on 7.5. */
enum { GRADS = 4 };
static void gradients_of(int capability, Arena *mem, double *(*out)[GRADS],
                         int64_t count[GRADS])
{
    static const Shape s = {
        OP_conv, {1, 1, 16, 20, 32}, {32, 1, 3, 3, 32}, 1, 1, 1};
    Bench b;
    NormAct h;
    Call c;
    emu_set_device(capability, 1, "ok", (size_t)2 << 30);
    bench_open(&b, PRECISION_f16);
    const Attr attr = attr_of(&s);
    const Tensor x = uniform(&b, s.x, F16, -1, 1);
    const Tensor w = uniform(&b, s.w, F16, -0.3f, 0.3f);
    const Tensor y = deferred_conv(&b, &attr, &x, &w, &h, &c);
    // the gradient of the norm's result is overwritten by that of its operand
    const Tensor dy = uniform(&b, y.dim, F16, -1, 1);
    Tensor dx = tensor_of(&b, s.x, F16), dw = tensor_of(&b, s.w, F32);
    Tensor sink = y;
    const Tensor *const all[GRADS] = {&dx, &dw, &h.dx[1], &h.dx[2]};
    c.y = &sink, c.dy = &dy, c.dx[0] = &dx, c.dx[1] = &dw, c.x[2] = NULL;
    for (int k = 1; k <= 2; k++) c.norm.dx[k] = &h.dx[k];
    c.fresh = ~0u;
    emu_reset_counts();
    run(&b, &c);
    EXPECT_INT(emu_launch_count("dgrad_wgrad_kernel") > 0, capability >= 80);
    for (int k = 0; k < GRADS; k++) {
        count[k] = numel(all[k]->dim);
        (*out)[k] = arena_alloc(mem, (size_t)count[k] * sizeof(double));
        REQUIRE((*out)[k]);
        read_tensor(&b, all[k], (*out)[k]);
    }
    bench_close(&b);
}

TEST(capability_75_norm_bwd)
{
    Arena mem = {NULL};
    double *on[2][GRADS];
    int64_t count[GRADS];
    for (int k = 0; k < 2; k++) gradients_of(k ? 75 : 80, &mem, &on[k], count);
    for (int k = 0; k < GRADS; k++)
        expect_close(on[0][k], on[1][k], count[k], ROUNDED);
    arena_release(&mem);
    emu_set_device(80, 1, "ok", (size_t)2 << 30);
}

/* y and all gradients of an LSTM on an emulated GPU. */
static bool lstm_on(int capability, int32_t units, Arena *mem, OpValues *out)
{
    const OpCase c = {.attr = op_default(OP_lstm),
                      .rank = 1,
                      .x = {{2, 1, 1, 3, 4 * units},
                            {4 * units, 1, 1, 1, units},
                            {1, 1, 1, 1, 4 * units}},
                      .wrt = 7};
    return run_on(capability, PRECISION_f32, &c, mem, out);
}

/* With 400 units the weights fit in shared memory on 8.0 alone. */
TEST(capability_75_lstm)
{
    Arena mem = {NULL};
    OpValues a, b;
    REQUIRE(lstm_on(80, 400, &mem, &a) && lstm_on(75, 400, &mem, &b));
    EXPECT_INT(a.results, b.results);
    EXPECT(!memcmp(a.y, b.y, (size_t)a.results * sizeof *a.y));
    for (int k = 0; k < 3; k++)
        EXPECT(!memcmp(a.dx[k], b.dx[k], (size_t)a.count[k] * sizeof(double)));
    EXPECT_FAIL(lstm_on(75, 1028, &mem, &a),
                "lstm: 1028 units; the kernels hold the states of at most 1024 "
                "on this GPU: use fewer, or --device cpu");
    arena_release(&mem);
    emu_set_device(80, 1, "ok", (size_t)2 << 30);
}

/* bf16 and tf32 are refused when a session is opened, f16 and f32 are not. */
TEST(capability_75_precisions)
{
    static const char *const want[PRECISION_COUNT] = {
        [PRECISION_tf32] = "precision tf32 is not available on this GPU: the "
                           "tensor cores of compute capability 7.5 (T4, RTX "
                           "20) multiply f16; bf16 and tf32 need 8.0 or more "
                           "(RTX 30, A100 and later): use --precision f16 or "
                           "f32",
        [PRECISION_bf16] = "precision bf16 is not available on this GPU"};
    Net n;
    net_linear(&n);
    for (int real = 0; real < 2; real++)
        for (int p = 0; p < PRECISION_COUNT; p++) {
            const SessionSpec spec = {.graph = &n.g,
                                      .root = n.root,
                                      .roots = 1,
                                      .loss = -1,
                                      .device = "cuda",
                                      .precision = (Precision)p,
                                      .dry_run = !real,
                                      .capability = real ? 0 : 75};
            Session *s = NULL;
            emu_set_device(75, real, "ok", (size_t)1 << 28);
            if (!want[p]) {
                REQUIRE(session_open(&spec, &s));
                session_close(s);
                continue;
            }
            EXPECT_FAIL(session_open(&spec, &s), want[p]);
            EXPECT_INT(err_kind(), ERR_USAGE);
        }
    net_free(&n);
    emu_set_device(80, 1, "ok", (size_t)2 << 30);
}
