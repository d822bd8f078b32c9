/* plan_recompute.c -- values that a plan drops for its budget: the memory
 * reached, the cost, refusals. plan_random.c tests that the bits are
 * unchanged. */
#include "tests/support/plan_rig.h"

/* Makes `length` convolutions with tanh, and a loss. */
static void chain(Net *n, int length)
{
    net_new(n);
    int x = net_input(n, "x", (Dims){1, 1, 32, 32, 4}, 2);
    int t = net_input(n, "t", (Dims){1, 1, 32, 32, 4}, 2);
    for (int i = 0; i < length; i++)
        x = net_op(n, OP_tanh, net_conv(n, x, 4, 3), -1, -1);
    n->loss = net_op(n, OP_mse, x, t, -1);
    n->root[n->roots++] = x;
}

/* Returns the bytes of the plan within a budget, or of the smallest plan. */
static size_t bytes_within(PlanRig *r, size_t budget, bool least)
{
    r->spec.budget = budget;
    r->spec.least = least;
    plan_rig_plan(r, true);
    return plan_bytes(r->plan);
}

/* A chain of n in pieces of sqrt(n): 2 sqrt(n) values instead of n. */
TEST(recompute_chain_comes_to_its_root)
{
    const size_t value = 32 * 32 * 4 * 8;
    for (int length = 16; length <= 144; length *= 3) {
        Net n;
        PlanRig r;
        chain(&n, length);
        plan_rig_open(&r, &n, &backend_ref, 1, 1);
        size_t all = bytes_within(&r, 0, false);
        EXPECT(all > (size_t)length * value);
        EXPECT_INT(plan_recomputed(r.plan).calls, 0);
        size_t least = bytes_within(&r, 1, true);
        double root = sqrt(length);
        if ((double)least > (2 * root + 8) * (double)value)
            test_failed(__FILE__, __LINE__, "%d: %.1f values", length,
                        (double)least / (double)value);
        PlanRecompute recomputed = plan_recomputed(r.plan);
        EXPECT_INT(recomputed.values, length);
        EXPECT(recomputed.dropped < length && recomputed.kept_bytes == all);
        // no value is computed three times
        EXPECT(recomputed.flops > 0 && recomputed.flops <= plan_flops(r.plan));
        plan_rig_run(&r, true, false, 1);
        EXPECT(plan_rig_intact(&r));
        plan_rig_close(&r);
        net_free(&n);
    }
}

/* Every budget down to the minimum is met, and one byte less is refused with
 * that minimum. Less memory costs more. */
TEST(recompute_meets_every_budget)
{
    Net n;
    PlanRig r;
    net_new(&n);
    int x = net_input(&n, "x", (Dims){1, 1, 32, 32, 1}, 2);
    int t = net_input(&n, "t", (Dims){1, 1, 32, 32, 1}, 2);
    int y = net_unet(&n, x, 16, 3);
    n.loss = net_op(&n, OP_bce_dice, y, t, -1);
    n.root[n.roots++] = y;
    plan_rig_open(&r, &n, &backend_cpu, 2, 4);

    // the scratch memory of Winograd's transforms, most of such a small arena,
    // cannot be dropped
    r.spec.no_winograd = true;
    size_t all = bytes_within(&r, 0, false);
    size_t least = bytes_within(&r, 1, true);

    // fused norms and activations leave less to drop
    EXPECT(least < all * 7 / 10);
    double flops = 0;

    for (int i = 0; i <= 8; i++) {
        size_t budget = all - (all - least) / 8 * (size_t)i;
        if (i == 8) budget = least;
        EXPECT(bytes_within(&r, budget, false) <= budget);
        PlanRecompute recomputed = plan_recomputed(r.plan);
        EXPECT(recomputed.flops >= flops * 0.9 && recomputed.kept_bytes == all);
        flops = recomputed.flops;
        // the first third costs no more than norms and activations
        if (i == 2) EXPECT(flops < 0.05 * plan_flops(r.plan));
        plan_rig_run(&r, true, false, 1);
        EXPECT(plan_rig_intact(&r));
    }

    Plan *p = NULL;
    char want[64];
    r.spec.budget = least - 1;
    snprintf(want, sizeof want, "at least %zu with recompute", least);
    EXPECT_FAIL(plan_build(&r.spec, &p), want);
    EXPECT_INT(err_kind(), ERR_USAGE);

    // a plan without gradients keeps no value that could be dropped
    r.spec.budget = 1;
    r.spec.loss = -1;
    plan_rig_plan(&r, true);
    EXPECT_INT(plan_recomputed(r.plan).calls, 0);
    plan_rig_close(&r);
    net_free(&n);
}

/* A failure of any allocation leaves nothing behind. */
TEST(recompute_without_memory)
{
    Net n;
    PlanRig r;
    chain(&n, 6);
    plan_rig_open(&r, &n, &backend_ref, 1, 1);
    r.spec.budget = bytes_within(&r, 1, true);
    r.spec.least = false;
    long live = mem_live();
    bool ok = false;

    for (long after = 0; !ok; after++) {
        Plan *p = NULL;
        mem_fail_after(after, false);
        ok = plan_build(&r.spec, &p);
        mem_fail_after(-1, false);
        if (ok) plan_free(p);
        EXPECT_INT(mem_live(), live);
        REQUIRE(after < 400);
    }

    plan_rig_close(&r);
    net_free(&n);
}
