/* precision.c -- tensor cores and copies in 16 bits on the emulated device.
 *
 * The suites of the operators run in every precision (tests/ops/ops.c). This
 * file tests copies of numbers at the limits of the types, overflow in f16, the
 * loss scale, and small U-Nets trained in each precision against the CPU in
 * f32. */
#include "engine/check/oprun.h"
#include "engine/plan/plan_inside.h"
#include "tests/cuda/emulator/emu_control.h"
#include "tests/support/networks.h"
#include "tests/support/op_call.h"

extern const Backend backend_cuda;

// -- copies ------------------------------------------------------------------

enum { MOST = 1024 };

/* Converts x[0 .. count) to 16 bits on the device. */
static void convert(Precision p, const float *x, int count,
                    uint16_t out[MOST + 1])
{
    OpDevice d;
    void *from, *to;
    Dims s = {1, 1, 1, 1, count};
    size_t bytes = (size_t)count * 2;

    REQUIRE(opdevice_open(&backend_cuda, 1, &d));
    REQUIRE(d.be->alloc(d.dev, 2 * bytes, &from));
    REQUIRE(d.be->alloc(d.dev, bytes + 2, &to));
    REQUIRE(d.be->upload(d.dev, from, x, 2 * bytes));
    Tensor source = {s, F32, RANK_VECTOR, from};
    Tensor copy = {s, precision_copy(p), RANK_VECTOR, to};
    Call c = {.dev = d.dev, .x = {&source}, .y = &copy};
    EXPECT(d.be->convert(&c) && d.be->sync(d.dev));
    REQUIRE(d.be->download(d.dev, out, to, bytes + 2));
    d.be->release(d.dev, from);
    d.be->release(d.dev, to);
    opdevice_close(&d);
}

TEST(precision_copies_of_special_numbers)
{
    static const float x[] = {
        0,           -0.0f,       1,           -65504,
        65519,       65520,       -1e9f,       3.4e38f,
        INFINITY,    -INFINITY,   NAN,         0x1p-14f,
        0x1p-24f,    0x1p-25f,    0x1.8p-24f,  0x1.002p-15f,
        0x1p-126f,   0x1p-140f,   1.00390625f, 1.01171875f,
        1.00048828f, 1.00146484f, 2.9999998f};
    enum { COUNT = sizeof x / sizeof *x };
    uint16_t got[MOST + 1];

    for (int p = PRECISION_bf16; p <= PRECISION_f16; p++) {
        convert((Precision)p, x, COUNT, got);
        for (int i = 0; i < COUNT; i++) {
            double want = precision_round((Precision)p, (double)x[i]);
            double v = precision_value((Precision)p, got[i]);
            EXPECT(v == want || (isnan(v) && isnan(want)));
            EXPECT(isnan(v) || !signbit(v) == !signbit(want));
        }
        EXPECT_INT(got[COUNT], 0); // no write past the end
    }
}

TEST(precision_copies_of_every_length)
{
    float x[MOST];
    uint16_t got[MOST + 1];
    for (int i = 0; i < MOST; i++) x[i] = 0.37f * (float)(i - 500);
    static const int count[] = {1, 2, 3, 4, 5, 7, 8, 1021, 1023, 1024};
    for (size_t k = 0; k < sizeof count / sizeof *count; k++) {
        convert(PRECISION_bf16, x, count[k], got);
        for (int i = 0; i < count[k]; i++)
            EXPECT(precision_value(PRECISION_bf16, got[i]) ==
                   precision_round(PRECISION_bf16, (double)x[i]));
        EXPECT_INT(got[count[k]], 0);
    }
}

// -- overflow ----------------------------------------------------------------

/* Multiplies two numbers by the weight w in a linear layer. */
static void multiply(Precision p, const double x[2], double w, double y[2])
{
    OpCase c = {.attr = op_default(OP_linear),
                .x = {{2, 1, 1, 1, 1}, {1, 1, 1, 1, 1}}};
    OpDevice d;
    OpValues in, out;
    Arena mem = {NULL};

    REQUIRE(opdevice_open(&backend_cuda, 1, &d));
    d.precision = p;
    REQUIRE(opcase_values(&c, &mem, &in));
    in.x[0][0] = x[0], in.x[0][1] = x[1], in.x[1][0] = w;
    REQUIRE(oprun(&c, &d, &in, (OpOptions){0}, &mem, &out));
    y[0] = out.y[0], y[1] = out.y[1];
    opdevice_close(&d);
    arena_release(&mem);
}

TEST(precision_f16_overflows)
{
    double y[2];
    const double x[2] = {70000, 60000};
    multiply(PRECISION_f16, x, -1, y);
    EXPECT(y[0] == -INFINITY);
    EXPECT_NEAR(y[1], -60000, 0);

    // operands overflow, sums do not, because they are f32
    multiply(PRECISION_f16, x, 1, y);
    multiply(PRECISION_f16, (double[2]){60000, 1}, 60000, y);
    EXPECT_NEAR(y[0], 3.6e9, 0);
    multiply(PRECISION_bf16, x, 1, y);
    EXPECT_NEAR(y[0], 70144, 0);
    multiply(PRECISION_tf32, x, 1, y);
    EXPECT_NEAR(y[0], 70016, 0);
}

// -- training ----------------------------------------------------------------

enum { STEPS = 3, LARGEST = 16384 };

static void unet(Net *n, int rank)
{
    Dims image = rank == 3 ? (Dims){1, 4, 8, 12, 1} : (Dims){1, 1, 12, 20, 3};
    Dims mask = image;
    mask.c = 1;
    net_new(n);
    int x = net_input(n, "image", image, rank);
    int target = net_input(n, "target", mask, rank);
    n->root[n->roots++] = net_unet(n, x, rank == 3 ? 4 : 8, 2);
    n->loss = net_op(n, OP_bce_dice, n->root[0], target, -1);
}

/* A session in a precision, two threads; parameters from the seed. */
static void open_net(Net *n, int rank, const char *device, Precision p)
{
    Optim o = optim_default(OPTIM_sgd);
    o.hyper[0] = 0.9; // momentum
    unet(n, rank);
    SessionSpec spec = {.graph = &n->g,
                        .root = n->root,
                        .roots = n->roots,
                        .loss = n->loss,
                        .device = device,
                        .threads = 2,
                        .seed = 11,
                        .optim = &o,
                        .precision = p};
    REQUIRE(session_open(&spec, &n->s));
}

/* With a loss scale that is far too large gradients overflow in f16: the step
 * is skipped, no parameter changes, and the scale is halved. */
static void overflow(Net *n)
{
    Arena mem = {NULL};
    size_t bytes;
    LossScale was = session_state(n->s).scale;

    EXPECT_NEAR(was.by, LOSS_SCALE_FIRST, 0);
    REQUIRE(session_set_state(n->s, &(StepState){0, {0x1p40, 9}, 0}));
    const void *before = net_state(n, &mem, &bytes);

    for (uint32_t i = 0; i < 3; i++) {
        StepResult r = net_step(n, 2, i, 0.05, 1);
        EXPECT(r.overflow && !r.applied && isfinite(r.loss));
        EXPECT_NEAR(r.state.scale.by, ldexp(1, 39 - (int)i), 0);
        EXPECT_INT(r.state.scale.good, 0);
        const void *after = net_state(n, &mem, &bytes);
        EXPECT(!memcmp(before, after, bytes));
    }

    REQUIRE(session_set_state(n->s, &(StepState){0, was, 0}));
    arena_release(&mem);
}

/* Optimiser steps on both backends from the same parameters on the same inputs;
 * u is the unit roundoff of the precision. The loss, a mean of many rounded
 * results, may differ by u; the gradient norm by 32 u, 1.5 times the largest
 * measured difference: twelve layers and the tensors between them are rounded,
 * and batch norms of few values amplify the rounding. */
static void trained_like_cpu(int rank, Precision p)
{
    Net want, got;
    double u = precision_unit(p);
    open_net(&want, rank, "cpu", PRECISION_f32);
    open_net(&got, rank, "cuda", p);
    if (p == PRECISION_f16) overflow(&got);

    for (uint32_t i = 0; i < STEPS; i++) {
        StepResult a = net_step(&want, 2, i, 0.05, 1);
        StepResult b = net_step(&got, 2, i, 0.05, 1);
        EXPECT(a.applied && b.applied);
        EXPECT(b.loss != a.loss); // the precision is in use
        EXPECT_NEAR(b.loss, a.loss, u * a.loss);
        EXPECT_NEAR(b.grad_norm, a.grad_norm, 32 * u * a.grad_norm);
    }

    bool scaled = p == PRECISION_f16;
    EXPECT_NEAR(session_state(got.s).scale.by, scaled ? LOSS_SCALE_FIRST : 1,
                0);
    EXPECT_INT(session_state(got.s).scale.good, scaled ? STEPS : 0);
    net_free(&want);
    net_free(&got);
}

TEST(precision_trains_2d)
{
    trained_like_cpu(2, PRECISION_tf32);
    trained_like_cpu(2, PRECISION_bf16);
    trained_like_cpu(2, PRECISION_f16);
}

TEST(precision_trains_3d)
{
    trained_like_cpu(3, PRECISION_tf32);
    trained_like_cpu(3, PRECISION_bf16);
    trained_like_cpu(3, PRECISION_f16);
}

/* Expects that the 16-bit copy of each parameter is its nearest number. */
static void copies_are_now(Session *s, Precision p)
{
    const Params *q = session_params(s);
    REQUIRE(q->copied == precision_copy(p));

    for (int i = 0; i < q->count; i++) {
        static float value[LARGEST];
        static uint16_t copy[LARGEST];
        if (!params_has_copy(q, i)) continue;
        const Tensor x = params_tensor(q, i, PARAM_VALUE, 0);
        const Tensor y = params_copy(q, i);
        REQUIRE(numel(x.dim) <= LARGEST);
        REQUIRE(backend_cuda.download(session_device(s), value, x.data,
                                      tensor_bytes(&x)));
        REQUIRE(backend_cuda.download(session_device(s), copy, y.data,
                                      tensor_bytes(&y)));
        for (int64_t k = 0; k < numel(x.dim); k++)
            EXPECT(precision_value(p, copy[k]) ==
                   precision_round(p, (double)value[k]));
    }
}

/* The copies in 16 bits equal the rounded parameters at the start, after
 * optimiser steps, after values are swapped with their averages, and after a
 * parameter is written. */
TEST(precision_copies_of_parameters)
{
    for (int p = PRECISION_bf16; p <= PRECISION_f16; p++) {
        Net n;
        open_net(&n, 2, "cuda", (Precision)p);
        REQUIRE(session_ema(n.s, 0.5));
        copies_are_now(n.s, (Precision)p);
        for (uint32_t i = 0; i < 2; i++)
            EXPECT(net_step(&n, 2, i, 0.05, 1).applied);
        copies_are_now(n.s, (Precision)p);
        REQUIRE(session_swap(n.s));
        copies_are_now(n.s, (Precision)p);
        static double v[LARGEST];
        for (int i = 0; i < LARGEST; i++) v[i] = 0.37 * i - 5;
        REQUIRE(params_write(session_params(n.s), 0, PARAM_VALUE, 0, v));
        copies_are_now(n.s, (Precision)p);
        // no call of a plan converts parameters
        Plan *plan = net_plan(&n, true, 2);
        for (int c = 0; c < plan_calls(plan); c++) {
            const Call *call = &plan->call[c];
            EXPECT(!is_convert(call) || plan->node[call->node].param < 0);
        }
        net_free(&n);
    }
}

/* Returns all gradients of one backward pass with loss scale `scale`. */
static float *gradients(int rank, Precision p, double scale, Arena *mem,
                        int64_t *count)
{
    Net n;
    open_net(&n, rank, "cuda", p);
    Plan *plan = net_plan(&n, true, 2);
    net_feed(&n, plan, 5);
    PlanRun run = {.step = {3, 4}, .backward = true, .seed_grad = scale};
    REQUIRE(plan_run(plan, &run));
    const Params *q = session_params(n.s);
    *count = q->trained;
    float *out = ARENA_NEW(mem, float, *count);
    REQUIRE(out && backend_cuda.download(session_device(n.s), out, q->grad,
                                         (size_t)*count * sizeof *out));
    net_free(&n);
    return out;
}

/* A loss scale that is a power of two changes exponents only, so gradients are
 * exactly the unscaled gradients times the scale: if no exponent overflows, and
 * in f16 if no value is below the least normal number. */
TEST(precision_loss_scale)
{
    for (int p = 0; p < PRECISION_f16; p++) {
        Arena mem = {NULL};
        int64_t count, other;
        const float *one = gradients(2, (Precision)p, 1, &mem, &count);
        const float *big = gradients(2, (Precision)p, 1024, &mem, &other);
        int64_t off = 0;
        EXPECT_INT(count, other);
        for (int64_t i = 0; i < count; i++) off += big[i] != 1024 * one[i];
        EXPECT_INT(off, 0);
        arena_release(&mem);
    }
}

/* ... in f16 the scale is needed: without it small gradients are lost. */
TEST(precision_loss_scale_keeps_f16)
{
    Arena mem = {NULL};
    int64_t count;
    const float *want = gradients(2, PRECISION_f32, 1, &mem, &count);
    double error[2] = {0, 0}, all = 0;

    for (int k = 0; k < 2; k++) {
        double scale = k ? 4096 : 0x1p-12;
        const float *got = gradients(2, PRECISION_f16, scale, &mem, &count);
        for (int64_t i = 0; i < count; i++) {
            double e = (double)got[i] / scale - (double)want[i];
            error[k] += e * e;
        }
    }

    for (int64_t i = 0; i < count; i++)
        all += (double)want[i] * (double)want[i];
    EXPECT(error[1] < 4e-3 * all);
    EXPECT(error[0] > 4 * error[1]);
    arena_release(&mem);
}

/* The gradients of a session have the reported norm times the loss scale. */
TEST(precision_f16_gradients_have_a_scale)
{
    Net n;
    double squares;
    open_net(&n, 2, "cuda", PRECISION_f16);
    EXPECT_NEAR(session_grad_scale(n.s), 1, 0); // no gradients yet

    for (uint32_t i = 0; i < STEPS; i++) {
        double before = session_state(n.s).scale.by;
        StepResult r = net_step(&n, 2, i, 0.05, 1);
        const Params *q = session_params(n.s);
        REQUIRE(backend_cuda.sum_squares(session_device(n.s), q->grad,
                                         q->trained, &squares));
        EXPECT_NEAR(session_grad_scale(n.s), before, 0);
        EXPECT(before > 1);
        EXPECT_NEAR(sqrt(squares) / before, r.grad_norm, 1e-5 * r.grad_norm);
    }
    net_free(&n);
}

/* A second run gives the same bits. */
TEST(precision_same_bits)
{
    for (int p = 1; p < PRECISION_COUNT; p++) {
        Arena mem = {NULL};
        int64_t count;
        const float *a = gradients(3, (Precision)p, 1, &mem, &count);
        const float *b = gradients(3, (Precision)p, 1, &mem, &count);
        EXPECT(!memcmp(a, b, (size_t)count * sizeof *a));
        arena_release(&mem);
    }
}

/* Computes y of a linear layer with `rows` rows; the first rows do not depend
 * on the number of rows. */
static bool linear_rows(int32_t rows, Arena *mem, OpValues *out)
{
    enum { IN = 2336, OUT = 8 };
    const OpCase c = {.attr = op_default(OP_linear),
                      .x = {{rows, 1, 1, 1, IN}, {OUT, 1, 1, 1, IN}}};
    OpDevice d;
    OpValues in;
    if (!opdevice_open(&backend_cuda, 1, &d)) return false;
    d.precision = PRECISION_f16;
    const OpOptions how = {.forward_only = true};
    bool ok = opcase_values(&c, mem, &in) && oprun(&c, &d, &in, how, mem, out);
    opdevice_close(&d);
    return ok;
}

/* A long sum is computed by several blocks (split-K) for few rows, by one block
 * for many rows: in the same order. */
TEST(precision_same_bits_in_any_batch)
{
    enum { FEW = 3, MANY = 4400 };
    Arena mem = {NULL};
    OpValues few, many;
    emu_reset_counts();
    REQUIRE(linear_rows(FEW, &mem, &few));
    EXPECT(emu_launch_count("split_k_sum_kernel") == 1);
    REQUIRE(linear_rows(MANY, &mem, &many));
    EXPECT(emu_launch_count("split_k_sum_kernel") == 1);
    EXPECT(!memcmp(few.y, many.y, (size_t)few.results * sizeof *few.y));
    arena_release(&mem);
}
