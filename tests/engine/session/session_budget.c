/* session_budget.c -- a session with little memory: steps within a budget give
 * the bits of steps without one, on every backend; a limit on all of its memory
 * holds. */
#include "tests/support/networks.h"
#include "tests/support/op_call.h"

static Optim adam(void)
{
    return optim_default(OPTIM_adamw);
}

/* A U-Net with dropout, for 16 x 16 images, and a sum. */
static void deep(Net *n)
{
    net_new(n);
    int x = net_input(n, "image", (Dims){1, 1, 16, 16, 2}, 2);
    int t = net_input(n, "target", (Dims){1, 1, 16, 16, 1}, 2);
    int a = net_block(n, x, 8);
    int b =
        net_op(n, OP_spatial_dropout, net_block(n, net_pool(n, a), 16), -1, -1);
    int up = net_op(n, OP_concat, net_upconv(n, b, 8), a, -1);
    int c = net_op(n, OP_dropout, net_block(n, up, 8), -1, -1);
    int y = net_conv(n, net_op(n, OP_add, c, a, -1), 1, 1);
    n->loss = net_op(n, OP_bce_dice, y, t, -1);
    n->root[n->roots++] = y;
}

/* Adds a matrix of so many rows for a linear layer or an LSTM. */
static int matrix(Net *n, int rows, int columns)
{
    n->layers++;
    return net_param(n, "matrix", (Dims){rows, 1, 1, 1, columns}, 0,
                     (Init){INIT_UNIFORM, 0.5}, true);
}

/* Two LSTM layers and one of attention, with dropout, over 24 steps. */
static void recurrent(Net *n)
{
    enum { WIDTH = 8 };
    net_new(n);
    int y = net_input(n, "image", (Dims){1, 1, 1, 24, 4}, 1);
    int t = net_input(n, "target", (Dims){1, 1, 1, 24, 1}, 1);
    for (int i = 0; i < 2; i++) {
        int w = matrix(n, 4 * WIDTH, i ? WIDTH : 4);
        int z = net_op(n, OP_linear, y, w, -1);
        y = net_op(n, OP_lstm, z, matrix(n, 4 * WIDTH, WIDTH), -1);
    }

    Attr a = op_default(OP_attention);
    a.attention.heads = 2;
    a.attention.p = 0.3f;
    int qkv = net_op(n, OP_linear, y, matrix(n, 3 * WIDTH, WIDTH), -1);
    y = net_op(n, OP_add, y, net_row(n, a, &qkv, 1), -1);
    y = net_op(n, OP_linear, y, matrix(n, 1, WIDTH), -1);
    n->loss = net_op(n, OP_bce, y, t, -1);
    n->root[n->roots++] = y;
}

/* Runs four steps, two of them with two parts; returns the final state. */
static void *trained(Net *n, void (*make)(Net *), const char *device,
                     Precision precision, Arena *mem, size_t budget,
                     size_t *bytes, size_t *pool)
{
    Optim o = adam();
    make(n);
    n->precision = precision;
    net_open(n, device, 2, &o);
    session_budget(n->s, budget, true);

    for (int i = 0; i < 4; i++) {
        StepResult r;
        const int parts = 1 + i % 2;
        for (int k = 0; k < parts; k++) {
            Plan *p = net_plan(n, true, 2);
            StepPart part = {k == 0, k == parts - 1, parts, 0.01, 1};
            net_feed(n, p, (uint32_t)(2 * i + k));
            REQUIRE(session_part(n->s, p, &part, &r));
        }
        EXPECT(r.applied);
    }

    *pool = session_pool_bytes(n->s);
    EXPECT_INT(*pool, plan_bytes(net_plan(n, true, 2)));
    void *state = net_state(n, mem, bytes);
    net_free(n);
    return state;
}

/* Compares runs without a budget, with the minimum, and halfway between. */
static void compare(void (*make)(Net *), const char *device, Precision p)
{
    Net n;
    Arena mem = {NULL};
    size_t bytes, all, within, least;
    void *want = trained(&n, make, device, p, &mem, 0, &bytes, &all);
    void *got = trained(&n, make, device, p, &mem, 1, &bytes, &least);

    EXPECT(least < all * 19 / 20);
    EXPECT(!memcmp(got, want, bytes));
    size_t budget = (all + least) / 2;
    got = trained(&n, make, device, p, &mem, budget, &bytes, &within);
    EXPECT(within <= budget && within >= least);
    EXPECT(!memcmp(got, want, bytes));
    arena_release(&mem);
}

TEST(session_budget_leaves_all_bytes)
{
    for (size_t i = 0; i < 2; i++) {
        compare(deep, given_device(i), PRECISION_f32);
        compare(recurrent, given_device(i), PRECISION_f32);
        // if supported, with 16-bit copies
        if (backend_has(given_backend(i), PRECISION_bf16))
            compare(deep, given_device(i), PRECISION_bf16);
    }
}

/* An impossible budget is refused, and the session works without it. */
TEST(session_budget_refused)
{
    Net n;
    Plan *p;
    PlanInput in[8];
    Optim o = adam();

    deep(&n);
    net_open(&n, "cpu", 1, &o);
    session_budget(n.s, 4096, false);
    int inputs = net_extents(&n, 2, in);
    EXPECT_FAIL(session_plan(n.s, true, in, inputs, &p),
                "with recompute; the budget is 4096");
    EXPECT_INT(err_kind(), ERR_USAGE);

    // an evaluation plan keeps nothing for backward, and ignores the budget
    REQUIRE(session_plan(n.s, false, in, inputs, &p));
    session_budget(n.s, 0, false);
    REQUIRE(session_plan(n.s, true, in, inputs, &p));
    net_free(&n);
}

/* Parameters, arena and accounted memory count towards the limit. */
TEST(session_limit)
{
    for (size_t i = 0; i < 2; i++) {
        Net n;
        size_t room, left, wanted;
        PlanInput in[8];
        Plan *p;
        Optim o = adam();
        deep(&n);
        SessionSpec spec = {.graph = &n.g,
                            .root = n.root,
                            .roots = n.roots,
                            .loss = n.loss,
                            .device = given_device(i),
                            .threads = 1,
                            .optim = &o,
                            .limit = 4096};
        EXPECT_FAIL(session_open(&spec, &n.s), "--vram allows 4096");
        EXPECT(err_wanted(&room) > 4096);
        n.s = NULL;
        spec.limit = 64 << 20;
        REQUIRE(session_open(&spec, &n.s));
        const Params *q = session_params(n.s);
        size_t weights =
            params_bytes(q, session_backend(n.s)->real, true, q->states);
        REQUIRE(session_available_memory(n.s, &room, &left));
        EXPECT_INT(left, spec.limit - weights);
        EXPECT(room > 1 << 20);
        // checked before there is a plan
        REQUIRE(session_check_memory(n.s, 1 << 20));
        EXPECT_FAIL(session_check_memory(n.s, (size_t)1 << 60),
                    "a training step needs 1152921504606846976 bytes, ");
        EXPECT_INT(err_wanted(&wanted), (int64_t)1 << 60);
        int inputs = net_extents(&n, 2, in);
        REQUIRE(session_plan(n.s, true, in, inputs, &p));
        session_account_memory(n.s, (int64_t)(left - plan_bytes(p) + 1));
        EXPECT_FAIL(session_bind(n.s, p), "--vram allows");
        EXPECT_INT(err_wanted(&wanted), plan_bytes(p));
        EXPECT_INT(wanted, plan_bytes(p) - 1);
        session_account_memory(n.s, -1);
        REQUIRE(session_bind(n.s, p));
        REQUIRE(session_available_memory(n.s, &room, &left));
        // an existing arena counts as free
        EXPECT_INT(left, plan_bytes(p));
        const size_t all = (size_t)q->total * dtype_bytes(F32) * (i ? 1 : 2);
        session_close(n.s);
        // a future average counts, and an existing one too
        spec.averages = true;
        REQUIRE(session_open(&spec, &n.s));
        REQUIRE(session_available_memory(n.s, &room, &left));
        EXPECT_INT(left, spec.limit - weights - all);
        REQUIRE(session_ema(n.s, 0.9));
        REQUIRE(session_available_memory(n.s, &room, &left));
        EXPECT_INT(left, spec.limit - weights - all);
        net_free(&n);
    }
}
