/* ops_golden.c -- ref against PyTorch float64: windows and norms.
 *
 * Central differences cannot detect a wrong formula with a matching gradient;
 * these numbers can. Operands, shapes and the order of the sums are those of
 * golden/window_golden.py. */
#include "engine/check/oprun.h"
#include "tests/golden/window_golden.h"
#include "tests/test.h"

/* A case; x in memory order, `rank` of operands 0 and 1 (others are
 * vectors). */
typedef struct Golden {
    const char *name;
    OpCase c;
    const double *want; // pairs of sums: y, dx[i], then changed x[i]
    int sums;
} Golden;

#define WANT(name) golden_##name, sizeof golden_##name / sizeof(double)
#define VECTOR(n)     \
    {                 \
        1, 1, 1, 1, n \
    }

// clang-format off
static const Golden cases[] = {
    {"conv 2-D", {.attr.conv = {OP_conv, .sd = 1, .sh = 2, .sw = 1,
        .ph0 = 2, .ph1 = 1, .pw0 = 1, .dd = 1, .dh = 1, .dw = 2, .groups = 2},
        .rank = 2, .x = {{2,1,5,6,4}, {6,1,3,2,2}, VECTOR(6)}, .wrt = 7},
        WANT(conv2d)},
    {"conv 3-D", {.attr.conv = {OP_conv, .sd = 1, .sh = 2, .sw = 2, 1, 1, 1,
        1, 1, 1, .dd = 1, .dh = 1, .dw = 1, .groups = 1},
        .rank = 3, .x = {{2,4,5,6,3}, {5,3,3,3,3}, VECTOR(5)}, .wrt = 7},
        WANT(conv3d)},
    {"conv 1-D", {.attr.conv = {OP_conv, .sd = 1, .sh = 1, .sw = 1,
        .pw0 = 2, .pw1 = 2, .dd = 1, .dh = 1, .dw = 2, .groups = 1},
        .rank = 1, .x = {{3,1,1,11,4}, {5,1,1,3,4}}, .wrt = 3},
        WANT(conv1d)},
    {"upconv 2-D", {.attr.upconv = {OP_upconv, .sd = 1, .sh = 2, .sw = 3,
        .ph0 = 1, .ph1 = 0, .pw0 = 0, .pw1 = -2, .dd = 1, .dh = 1, .dw = 2,
        .groups = 2},
        .rank = 2, .x = {{2,1,5,3,4}, {4,1,4,2,3}, VECTOR(6)}, .wrt = 7},
        WANT(upconv2d)},
    {"upconv 3-D", {.attr.upconv = {OP_upconv, 2, 2, 2, 1, 1, 1, 1, 1, 1,
        1, 1, 1, 1},
        .rank = 3, .x = {{1,2,3,4,3}, {3,4,4,4,2}, VECTOR(2)}, .wrt = 7},
        WANT(upconv3d)},
    {"linear", {.attr.linear = {OP_linear},
        .rank = 2, .x = {{2,1,3,4,5}, {7,1,1,1,5}, VECTOR(7)}, .wrt = 7},
        WANT(linear)},
    {"maxpool", {.attr.maxpool = {OP_maxpool, 1, 3, 2, 1, 2, 1, 0, 0, 1, 1,
        1, 1}, .rank = 2, .x = {{2,1,7,5,3}}, .wrt = 1}, WANT(maxpool)},
    {"avgpool valid", {.attr.avgpool = {OP_avgpool, 2, 3, 2, 1, 2, 2, 0, 0, 1,
        1, 1, 1, 0}, .rank = 3, .x = {{2,4,5,6,3}}, .wrt = 1}, WANT(avgpool0)},
    {"avgpool all", {.attr.avgpool = {OP_avgpool, 2, 3, 2, 1, 2, 2, 0, 0, 1,
        1, 1, 1, 1}, .rank = 3, .x = {{2,4,5,6,3}}, .wrt = 1}, WANT(avgpool1)},
    {"upsample", {.attr.upsample_linear = {OP_upsample_linear, 1, 2, 3, 0},
        .rank = 2, .x = {{2,1,4,5,3}}, .wrt = 1}, WANT(upsample0)},
    {"upsample align", {.attr.upsample_linear = {OP_upsample_linear, 1, 2, 3,
        1}, .rank = 2, .x = {{2,1,4,5,3}}, .wrt = 1}, WANT(upsample1)},
    {"upsample 3-D", {.attr.upsample_linear = {OP_upsample_linear, 1, 2, 3, 0},
        .rank = 3, .x = {{1,3,2,4,2}}, .wrt = 1}, WANT(upsample3d)},
    {"batch_norm eval", {.attr.batch_norm = {OP_batch_norm, 0.0625f, 0.25f},
        .eval = true, .rank = 2, .x = {{3,1,5,2,4}, VECTOR(4), VECTOR(4),
        VECTOR(4), VECTOR(4)}, .wrt = 7}, WANT(batch_norm0)},
    {"batch_norm train", {.attr.batch_norm = {OP_batch_norm, 0.0625f, 0.25f},
        .changes = 1 << 3 | 1 << 4, .rank = 2, .x = {{3,1,5,2,4}, VECTOR(4),
        VECTOR(4), VECTOR(4), VECTOR(4)}, .wrt = 7}, WANT(batch_norm1)},
    {"instance_norm", {.attr.instance_norm = {OP_instance_norm, 0.0625f},
        .rank = 2, .x = {{2,1,4,5,3}, VECTOR(3), VECTOR(3)}, .wrt = 7},
        WANT(instance_norm)},
    {"group_norm", {.attr.group_norm = {OP_group_norm, 0.0625f, 2},
        .rank = 2, .x = {{2,1,4,3,6}, VECTOR(6), VECTOR(6)}, .wrt = 7},
        WANT(group_norm)},
    {"layer_norm", {.attr.layer_norm = {OP_layer_norm, 0.0625f},
        .rank = 2, .x = {{2,1,4,3,6}, VECTOR(6), VECTOR(6)}, .wrt = 7},
        WANT(layer_norm)},
};
// clang-format on

static double wave(int64_t i, int a, int b)
{
    return (double)(i * a % b) / b - 0.5;
}

/* Makes an operand from a wave over its elements in user order. */
static double *wave_tensor(Arena *mem, Dims s, int rank, int a, int b)
{
    int64_t n = numel(s);
    double *user = ARENA_NEW(mem, double, n), *out = ARENA_NEW(mem, double, n);
    REQUIRE(user && out);
    for (int64_t i = 0; i < n; i++) user[i] = wave(i, a, b);
    tensor_from_user_f64(user, &(Tensor){s, F64, rank, out});
    return out;
}

static void expect_sums(const Golden *g, int pair, Arena *mem, Dims s, int rank,
                        double *v)
{
    double *user = ARENA_NEW(mem, double, numel(s)), sum[2] = {0}, scale = 0;
    REQUIRE(user && v);
    tensor_to_user_f64(&(Tensor){s, F64, rank, v}, user);
    for (int64_t i = 0; i < numel(s); i++) {
        sum[0] += user[i] * wave(i, 7, 31);
        sum[1] += user[i] * wave(i, 5, 23);
        scale += fabs(user[i]);
    }

    for (int k = 0; k < 2; k++) {
        double want = g->want[2 * pair + k];
        if (!(fabs(sum[k] - want) <= 1e-14 * (1 + scale)))
            test_failed(__FILE__, __LINE__,
                        "%s: sum %d of array %d is %.17g, "
                        "PyTorch has %.17g",
                        g->name, k, pair, sum[k], want);
    }
}

static void check(const Golden *g)
{
    const OpCase *c = &g->c;
    Arena mem = {0};
    OpDevice d;
    OpValues in = {.results = 0}, out;
    Tensor y;

    REQUIRE(opdevice_open(&backend_ref, 2, &d));
    REQUIRE(opcase_shape(c, &y));

    for (int i = 0; i < MAX_IN; i++) {
        if (!c->x[i].n) continue;
        in.count[i] = numel(c->x[i]);
        in.x[i] = wave_tensor(&mem, c->x[i], c->rank, 389 + 2 * i, 1009);
        for (int64_t k = 0; i == 4 && k < in.count[i]; k++) in.x[i][k] += 1;
    }

    in.results = numel(y.dim);
    in.dy = wave_tensor(&mem, y.dim, y.rank, 17, 41);
    REQUIRE(oprun(c, &d, &in, (OpOptions){0}, &mem, &out));
    int pair = 0;
    expect_sums(g, pair++, &mem, y.dim, y.rank, out.y);
    for (int i = 0; i < MAX_IN; i++)
        if (c->wrt >> i & 1)
            expect_sums(g, pair++, &mem, c->x[i], c->rank, out.dx[i]);
    for (int i = 0; i < MAX_IN; i++)
        if (c->x[i].n && !(c->wrt >> i & 1))
            expect_sums(g, pair++, &mem, c->x[i], c->rank, out.x[i]);
    EXPECT_INT(2 * pair, g->sums);
    opdevice_close(&d);
    arena_release(&mem);
}

TEST(op_golden)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) check(&cases[i]);
}
