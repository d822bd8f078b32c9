/* condition.c -- bounds when float arithmetic itself is inexact (condition.h):
 * neither a chaotic recurrence nor an almost constant row excuses a mistake. */
#include "engine/check/condition.h"
#include "engine/check/node.h"
#include "engine/check/suite.h"
#include "tests/support/networks.h"
#include "tests/support/op_call.h"

TEST(condition_room_is_by_element)
{
    Arena mem = {0};
    // one bad element, one exact by chance, others off by 1e-7
    const double want[5] = {1, 1, 1, 1, 1};
    const double plain[5] = {1 + 1e-7, 1.5, 1, 1 - 1e-7, 1 + 1e-7};
    const double *room = condition_room(plain, want, 5, &mem);

    REQUIRE(room);
    EXPECT_NEAR(room[0], 1.6e-6, 1e-12);
    EXPECT_NEAR(room[1], 0x1p-10, 0); // the upper limit
    EXPECT_NEAR(room[2], 1.6e-6, 1e-12);
    const double none[2] = {NAN, INFINITY};
    room = condition_room(none, want, 2, &mem);
    REQUIRE(room);
    EXPECT_NEAR(room[0], 0, 0);
    EXPECT_NEAR(room[1], 0, 0);
    arena_release(&mem);
}

/* An LSTM of 48 units and 32 steps. */
static OpCase lstm_case(Fill weights)
{
    OpCase c = {.attr = op_default(OP_lstm), .rank = 1, .number = 137};
    c.x[0] = (Dims){1, 1, 1, 32, 192};
    c.x[1] = (Dims){192, 1, 1, 1, 48};
    c.x[2] = (Dims){1, 1, 1, 1, 192};
    c.fill[1] = c.fill[2] = weights;
    c.attr.lstm.reverse = 1;
    c.wrt = 7;
    return c;
}

static OpCase attention_case(void)
{
    OpCase c = {.attr = op_default(OP_attention), .rank = 1, .number = 1};
    c.x[0] = (Dims){2, 1, 1, 9, 24};
    c.attr.attention.heads = 2;
    c.fill[0] = (Fill){FILL_NORMAL, 0, 5};
    c.wrt = 1;
    return c;
}

/* Rows in which about every fourth float is distinct: their range has 16. */
static OpCase norm_case(Op op)
{
    OpCase c = {.attr = op_default(op), .rank = 2, .number = 1};
    c.x[0] = (Dims){3, 1, 7, 9, 8};
    c.x[1] = c.x[2] = (Dims){1, 1, 1, 1, 8};
    c.fill[0] = (Fill){FILL_RANGE, 1000, 1000.001};
    c.wrt = 7;
    if (op == OP_group_norm) c.attr.group_norm.groups = 2;
    return c;
}

static const Fill starts = {FILL_RANGE, -0.1443, 0.1443}; // 1 / sqrt(48)

static Op scaled_op;
static float scaled_by;

/* Makes a result too large. */
static bool scaled_fwd(const Call *c)
{
    if (!backend_cpu.fwd[scaled_op](c)) return false;
    float *y = c->y->data;
    for (int64_t i = 0; i < numel(c->y->dim); i++) y[i] *= scaled_by;
    return true;
}

/* Makes a gradient too large. */
static bool scaled_bwd(const Call *c)
{
    if (!backend_cpu.bwd[scaled_op](c)) return false;
    float *dx = c->dx[0]->data;
    for (int64_t i = 0; i < numel(c->dx[0]->dim); i++) dx[i] *= scaled_by;
    return true;
}

/* The case passes; with results or gradients 1e-3 too large it fails. */
static void judged(OpCase c)
{
    OpCheck sane = {.be = given_backend(1), .report = given_report};
    opcase_agree(&c, &sane);
    scaled_op = (Op)c.attr.op;
    scaled_by = 1.001f;

    for (int back = 0; back < 2; back++) {
        Backend be = backend_cpu;
        OpCheck wrong = {.be = &be};
        *(back ? &be.bwd[scaled_op] : &be.fwd[scaled_op]) =
            back ? scaled_bwd : scaled_fwd;
        opcase_agree(&c, &wrong);
        char text[OPCASE_TEXT];
        if (!wrong.failures)
            test_failed(__FILE__, __LINE__, "1e-3 too large, %s: %s",
                        back ? "backward" : "forward", opcase_text(&c, text));
    }
}

TEST(condition_of_an_lstm)
{
    judged(lstm_case(starts));
    // weights of deviation 1: rounding of 6e-8 becomes 5e-4 of the gradient at
    // the end, 50 times the limit of nmse alone
    judged(lstm_case((Fill){FILL_NORMAL, 0, 0}));
}

static char said[ERR_MAX];

static void hear(void *ctx, const char *text)
{
    (void)ctx;
    snprintf(said, sizeof said, "%s", text);
}

/* If float proves nothing about a result, every kernel fails, with the
 * reason. */
TEST(condition_that_no_kernel_can_meet)
{
    OpCheck k = {.be = given_backend(1), .report = hear};
    OpCase c = lstm_case((Fill){FILL_NORMAL, 0, 4});
    opcase_agree(&c, &k);
    EXPECT(k.failures > 0);
    EXPECT(strstr(said, "no kernel can be compared; fix: smaller initial"));
}

TEST(condition_of_attention)
{
    judged(attention_case());
}

TEST(condition_of_norms_of_almost_constant_rows)
{
    static const Op rows[] = {OP_batch_norm, OP_instance_norm, OP_group_norm,
                              OP_layer_norm};
    for (int i = 0; i < 4; i++) {
        OpCase c = norm_case(rows[i]);
        if (rows[i] == OP_batch_norm) {
            c.x[3] = c.x[4] = c.x[1];
            c.fill[4] = (Fill){FILL_RANGE, 0.5, 2};
            c.changes = 1 << 3 | 1 << 4;
        }
        judged(c);
    }
}

/* focal runs the plain loops on the CPU: they do not excuse themselves. */
TEST(condition_of_a_plain_row_excuses_nothing)
{
    OpCase c;
    REQUIRE(suite_example(OP_focal, &c));
    judged(c);
    Backend be = backend_plain;
    OpCheck k = {.be = &be};
    c = lstm_case((Fill){FILL_NORMAL, 0, 0});
    opcase_agree(&c, &k);
    EXPECT(k.failures > 0);
}

/* A node's parameters have the network's initialisation. */
TEST(node_case_starts_as_the_network_does)
{
    static const struct {
        Init init;
        Fill want;
    } table[] = {{{INIT_UNIFORM, 0.25}, {FILL_RANGE, -0.25, 0.25}},
                 {{INIT_NORMAL, 0.5}, {FILL_NORMAL, 0, 0.5}},
                 {{INIT_CONST, 1}, {FILL_NORMAL, 0, 0}},
                 {{INIT_NORMAL, 0}, {FILL_NORMAL, 0, 0}}};

    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        Graph g = {0};
        OpCase c;
        int in[MAX_IN] = {0, 1, -1, -1, -1, -1}, y;
        const Attr attr = op_default(OP_linear);
        REQUIRE(graph_input(&g, "x", (Dims){1, 1, 1, 1, 6}, 0, "", &in[0]));
        REQUIRE(graph_param(&g, "w", (Dims){4, 1, 1, 1, 6}, 0, table[i].init,
                            true, true, "", &in[1]));
        REQUIRE(graph_op(&g, &attr, in, "", "", &y));
        REQUIRE(node_case(&g, y, &c));
        EXPECT_INT(c.fill[1].kind, table[i].want.kind);
        EXPECT_NEAR(c.fill[1].lo, table[i].want.lo, 0);
        EXPECT_NEAR(c.fill[1].hi, table[i].want.hi, 0);
        graph_free(&g);
    }
}
