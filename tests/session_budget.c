/* session_budget.c -- a session with little memory: steps within a budget leave
 * the bytes of steps without one, on every backend; a limit on all that it
 * takes holds. */
#include "given.h"
#include "net.h"

static Optim adam(void)
{
    return optim_default(OPTIM_adamw);
}

/* A U-Net with dropout, of 16 x 16 images, and a sum. */
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

/* Four steps, of which two have two parts; all that they leave. */
static void *trained(Net *n, const char *device, Arena *mem, size_t budget,
                     size_t *bytes, size_t *pool)
{
    Optim o = adam();
    deep(n);
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

TEST(session_budget_leaves_all_bytes)
{
    for (size_t i = 0; i < 2; i++) {
        Net n;
        Arena mem = {NULL};
        size_t bytes, all, within, least;
        const char *device = given_device(i);
        void *want = trained(&n, device, &mem, 0, &bytes, &all);
        void *got = trained(&n, device, &mem, 1, &bytes, &least);
        EXPECT(least < all * 9 / 10);
        EXPECT(!memcmp(got, want, bytes));
        got = trained(&n, device, &mem, (all + least) / 2, &bytes, &within);
        EXPECT(within <= (all + least) / 2 && within > least);
        EXPECT(!memcmp(got, want, bytes));
        arena_release(&mem);
    }
}

/* A budget that cannot be is refused, and a session goes on without it. */
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
                "at least when values are computed again");
    EXPECT_INT(err_kind(), ERR_USAGE);
    // what only evaluates keeps nothing, and has no budget
    REQUIRE(session_plan(n.s, false, in, inputs, &p));
    session_budget(n.s, 0, false);
    REQUIRE(session_plan(n.s, true, in, inputs, &p));
    net_free(&n);
}

/* Weights, arena and what guests have count towards the limit. */
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
        EXPECT_FAIL(session_open(&spec, &n.s), "--vram gives 4096");
        EXPECT(err_wanted(&room) > 4096);
        n.s = NULL;
        spec.limit = 64 << 20;
        REQUIRE(session_open(&spec, &n.s));
        const Params *q = session_params(n.s);
        size_t weights =
            params_bytes(q, session_backend(n.s)->real, true, q->states);
        REQUIRE(session_room(n.s, &room, &left));
        EXPECT_INT(left, spec.limit - weights);
        EXPECT(room > 1 << 20);
        int inputs = net_extents(&n, 2, in);
        REQUIRE(session_plan(n.s, true, in, inputs, &p));
        session_lend(n.s, (int64_t)(left - plan_bytes(p) + 1));
        EXPECT_FAIL(session_bind(n.s, p), "--vram gives");
        EXPECT_INT(err_wanted(&wanted), plan_bytes(p));
        EXPECT_INT(wanted, plan_bytes(p) - 1);
        session_lend(n.s, -1);
        REQUIRE(session_bind(n.s, p));
        REQUIRE(session_room(n.s, &room, &left));
        // the arena that is there counts as free
        EXPECT_INT(left, plan_bytes(p));
        net_free(&n);
    }
}
