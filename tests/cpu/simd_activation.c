/* simd_activation.c -- tests of sigmoid, tanh, gelu and silu of each
 * instruction set against double, over floats of all magnitudes; and as
 * operators, split into tasks. */
#include "cpu/lib/thread_pool.h"
#include "cpu/ref/logistic.h"
#include "engine/backend/backend.h"
#include "engine/check/compare.h"
#include "tests/support/each_isa.h"

/* SWEPT floats at a time, STEP bit patterns apart: 2.1 million in total. */
enum { KINDS = 4, SWEPT = 4096, STEP = 2039, KEPT = 100003 };

static double below(double x)
{
    return 0.5 * erfc(-x * sqrt(0.5));
}

static double value_of(SmoothAct kind, double x)
{
    switch (kind) {
    case SMOOTH_SIGMOID:
        return logistic(x);
    case SMOOTH_TANH:
        return tanh(x);
    case SMOOTH_GELU:
        return x * below(x);
    default:
        return x * logistic(x);
    }
}

/* Returns the derivative from the value kept for the backward pass, and the
 * size of its terms: with cancellation, the error is relative to that. */
static double grad_of(SmoothAct kind, double k, double *size)
{
    double first, second;
    switch (kind) {
    case SMOOTH_SIGMOID:
        return *size = k * (1 - k);
    case SMOOTH_TANH:
        return *size = (1 - k) * (1 + k);
    case SMOOTH_GELU:
        first = below(k);
        second = k * 0.39894228040143267794 * exp(-0.5 * k * k);
        break;
    default:
        first = logistic(k);
        second = k * first * logistic(-k);
    }

    *size = first + fabs(second);
    return first + second;
}

/* Can a forward run have kept k? */
static bool is_kept(SmoothAct kind, float k)
{
    if (kind == SMOOTH_SIGMOID) return !(k < 0 || k > 1);
    return kind != SMOOTH_TANH || !(k < -1 || k > 1);
}

/* The bound of sigmoid and tanh is that of their operators; for gelu and silu
 * it is wider. */
static void judge(const char *set, SmoothAct kind, const char *what, float x,
                  float got, double want, double size)
{
    const double room = (kind < SMOOTH_GELU ? 4 : 6) * float_spacing(size);
    const bool same = isnan(want)
                          ? isnan(got)
                          : got == (float)want || fabs(got - want) <= room;
    if (!same)
        test_failed(__FILE__, __LINE__,
                    "%s of smooth_act %d at %.9g, %s: %.9g, want %.9g", what,
                    (int)kind, x, set, got, want);
}

/* Runs all instruction sets on n numbers. */
static void sweep(SmoothAct kind, const float *x, int n)
{
    float y[SWEPT], one[SWEPT], dx[SWEPT];
    double value[SWEPT], grad[SWEPT], size[SWEPT];
    for (int i = 0; i < n; i++) {
        one[i] = 1;
        value[i] = value_of(kind, x[i]);
        grad[i] = grad_of(kind, x[i], &size[i]);
    }

    for (int k = 0; k < SETS; k++) {
        const Simd *s = set_at(k);
        if (!s) continue;
        s->smooth_act(kind, x, n, y);
        s->smooth_act_grad(kind, one, x, n, dx, false);
        for (int i = 0; i < n; i++) {
            judge(s->name, kind, "value", x[i], y[i], value[i], value[i]);
            if (is_kept(kind, x[i]))
                judge(s->name, kind, "grad", x[i], dx[i], grad[i], size[i]);
        }
    }
}

TEST(simd_kernels_of_curves)
{
    // limits of the range of exp, of the curves, and of floats
    static const float ends[] = {
        0,       -0.0f,   INFINITY, -INFINITY, NAN,    1e-45f, -1e-45f, 1e-38f,
        -1e-38f, 1e-4f,   0.625f,   1,         -1,     9,      -9,      14.4f,
        -14.4f,  -14.6f,  15,       -15,       -15.1f, 87,     -87,     -87.4f,
        88,      -88,     103,      -103,      104,    -104,   -108,    110,
        -110,    -111.1f, 1e4f,     -1e4f,     3e38f,  -3e38f};
    float x[SWEPT];

    for (int k = 0; k < KINDS; k++) {
        const SmoothAct kind = (SmoothAct)k;
        int n = 0;
        sweep(kind, ends, sizeof ends / sizeof *ends);
        for (uint64_t bits = 0; bits <= UINT32_MAX; bits += STEP) {
            const uint32_t word = (uint32_t)bits;
            memcpy(x + n++, &word, sizeof word);
            if (n < SWEPT) continue;
            sweep(kind, x, n);
            n = 0;
        }
        sweep(kind, x, n);
    }
}

/* Any length, from any offset, added or in place: the same numbers as in one
 * long run, and no write after the last element. */
static void check_parts(const Simd *s, Random *d, Arena *mem)
{
    const SmoothAct kind = (SmoothAct)roll(d, 0, KINDS - 1);
    const int n = roll(d, 1, 300), at = roll(d, 0, n - 1);
    const int part = roll(d, 1, n - at);
    float *x = numbers(mem, n, 1), *dy = numbers(mem, n, 2);
    float *old = numbers(mem, n + 1, 3), *one = numbers(mem, n, 4);
    float *y = numbers(mem, n, 5), *grad = numbers(mem, n, 6);
    float *to = numbers(mem, n + 1, 3);

    for (int i = 0; i < n; i++) one[i] = 1, x[i] *= (float)(i % 12);
    s->smooth_act(kind, x, n, y);
    s->smooth_act_grad(kind, one, x, n, grad, false);
    s->smooth_act(kind, x + at, part, to);
    for (int i = 0; i < part; i++) EXPECT(to[i] == y[at + i]);
    EXPECT(to[part] == old[part]);
    memcpy(to, old, (size_t)part * sizeof *to);
    s->smooth_act_grad(kind, dy + at, x + at, part, to, true);
    for (int i = 0; i < part; i++)
        EXPECT(to[i] == old[i] + dy[at + i] * grad[at + i]);
    EXPECT(to[part] == old[part]);
    memcpy(to, dy, (size_t)n * sizeof *to);
    s->smooth_act_grad(kind, to, x, n, to, false);
    for (int i = 0; i < n; i++) EXPECT(to[i] == dy[i] * grad[i]);
    s->smooth_act(kind, x, n, x);
    for (int i = 0; i < n; i++) EXPECT(x[i] == y[i]);
}

TEST(simd_kernels_of_parts_of_curves)
{
    static CheckFn *const check[] = {check_parts};
    check_sets(check, 1);
}

/* Runs the operator `op`, forward in place where possible, and backward. */
static void run_row(Op op, int threads, float *x, float *y, float *dx)
{
    const Dims s = {1, 1, 1, KEPT, 1};
    const Attr attr = op_default(op);
    Tensor tx = {.dim = s, .type = F32, .rank = 1, .data = x}, ty = tx, td = tx;

    ty.data = op_info[op].flags & INPLACE ? x : y;
    td.data = dx;
    Pool *pool;
    REQUIRE(pool_open(threads, &pool));
    const Call c = {.attr = &attr,
                    .dev = pool,
                    .x = {&tx},
                    .y = &ty,
                    .dy = &td,
                    .dx = {&td},
                    .fresh = 1,
                    .threads = threads};
    EXPECT(backend_cpu.fwd[op](&c) && backend_cpu.bwd[op](&c));
    pool_close(pool);
}

TEST(simd_kernels_of_curves_in_tasks)
{
    static const Op ops[] = {OP_sigmoid, OP_tanh, OP_gelu, OP_silu};
    for (int k = 0; k < KINDS; k++) {
        Arena mem = {0};
        float *x[2], *y[2], *dx[2];
        for (int i = 0; i < 2; i++) {
            x[i] = numbers(&mem, KEPT, 1);
            y[i] = numbers(&mem, KEPT, 2);
            dx[i] = numbers(&mem, KEPT, 3);
            run_row(ops[k], i ? 3 : 1, x[i], y[i], dx[i]);
        }
        EXPECT(!memcmp(x[0], x[1], KEPT * sizeof **x));
        EXPECT(!memcmp(y[0], y[1], KEPT * sizeof **y));
        EXPECT(!memcmp(dx[0], dx[1], KEPT * sizeof **dx));
        arena_release(&mem);
    }
}
