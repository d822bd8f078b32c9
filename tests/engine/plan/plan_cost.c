/* plan_cost.c -- cost of calls and memory by purpose, counted by hand. */
#include "engine/backend/launch_log.h"
#include "tests/support/networks.h"
#include "tests/test.h"

/* Returns the part of node `node` in one direction. */
static LaunchPart part_of(const LaunchLog *r, int node, bool backward)
{
    for (int i = 0; i < r->parts; i++)
        if (r->part[i].node == node && r->part[i].backward == backward)
            return r->part[i];
    test_failed(__FILE__, __LINE__, "no part of node %d", node);
    return (LaunchPart){0};
}

/* conv 3x3 (2 -> 4), relu, conv 1x1 (4 -> 1) and mse on 8 x 8, batch 3, by
 * hand. The image gets no gradient. */
TEST(plan_cost_by_hand)
{
    enum { N = 3, P = 8 * 8 * N, B = 4 };
    Net n;
    LaunchLog r = {0};
    Optim o = optim_default(OPTIM_adamw);
    net_new(&n);
    int image = net_input(&n, "image", (Dims){1, 1, 8, 8, 2}, 2);
    int target = net_input(&n, "target", (Dims){1, 1, 8, 8, 1}, 2);
    int first = net_conv(&n, image, 4, 3), relu = net_relu(&n, first);
    int second = net_conv(&n, relu, 1, 1);
    n.loss = net_op(&n, OP_mse, second, target, -1);
    n.root[n.roots++] = second;
    net_open(&n, "cpu", 1, &o);
    launch_log_into(&r);
    EXPECT(net_step(&n, N, 1, 0.01, 1).applied);
    launch_log_into(NULL);

    const double w1 = 4 * 9 * 2, w2 = 4;
    LaunchPart p = part_of(&r, first, false);
    EXPECT_NEAR(p.bytes, B * (P * 2 + w1 + P * 4), 0);
    EXPECT_NEAR(p.flops, 2.0 * P * 4 * 9 * 2, 0);
    p = part_of(&r, first, true); // wgrad only
    EXPECT_NEAR(p.bytes, B * (P * 2 + P * 4 + w1), 0);
    EXPECT_NEAR(p.flops, 2.0 * P * 4 * 9 * 2, 0);
    p = part_of(&r, relu, true); // keeps its result
    EXPECT_NEAR(p.bytes, B * 3.0 * P * 4, 0);
    EXPECT_NEAR(p.flops, 0, 0);
    p = part_of(&r, second, true); // dx and dw
    EXPECT_NEAR(p.bytes, B * (P * 4 + w2 + P + P * 4 + w2), 0);
    EXPECT_NEAR(p.flops, 2 * 2.0 * P * 4, 0);

    launch_log_free(&r);

    // a second part adds: gradients of weights are read too
    Plan *plan = net_plan(&n, true, N);
    StepResult out;
    StepPart part = {false, true, 2, 0.01, 0};
    launch_log_into(&r);
    REQUIRE(session_part(n.s, plan, &part, &out));
    launch_log_into(NULL);
    p = part_of(&r, first, true);
    EXPECT_NEAR(p.bytes, B * (P * 2 + P * 4 + 2 * w1), 0);
    launch_log_free(&r);
    net_free(&n);
}

/* Returns the backward cost of a 1x1 conv (4 -> 4, bias) after a relu; the
 * convolution before it needs a gradient. Up to two parameters are frozen. */
static LaunchPart middle_conv(const char *const frozen[2])
{
    Net n;
    LaunchLog r = {0};
    Optim o = optim_default(OPTIM_sgd);

    net_new(&n);
    n.bias = true;
    int image = net_input(&n, "image", (Dims){1, 1, 8, 8, 4}, 2);
    int target = net_input(&n, "target", (Dims){1, 1, 8, 8, 4}, 2);
    int relu = net_relu(&n, net_conv(&n, image, 4, 1));
    int middle = net_conv(&n, relu, 4, 1);
    n.loss = net_op(&n, OP_mse, middle, target, -1);
    n.root[n.roots++] = middle;
    net_open(&n, "cpu", 1, &o);
    for (int i = 0; i < 2 && frozen[i]; i++)
        REQUIRE(params_freeze(session_params(n.s), frozen[i]));
    launch_log_into(&r);
    EXPECT(net_step(&n, 1, 1, 0.01, 1).applied);
    launch_log_into(NULL);
    LaunchPart p = part_of(&r, middle, true);
    launch_log_free(&r);
    net_free(&n);
    return p;
}

/* The bias is never read; x only for the weights' gradient, the weights only
 * for that of x. */
TEST(plan_cost_of_what_is_wanted)
{
    enum { P = 8 * 8 * 4, W = 16, BIAS = 4, B = 4 };
    const double dy = P;
    LaunchPart p = middle_conv((const char *const[2]){NULL});
    EXPECT_NEAR(p.bytes, B * (dy + P + W + P + W + BIAS), 0);
    EXPECT_NEAR(p.flops, 2 * 2.0 * P * 4, 0);
    p = middle_conv((const char *const[2]){"p2.weight", NULL});
    EXPECT_NEAR(p.bytes, B * (dy + W + P + BIAS), 0);
    EXPECT_NEAR(p.flops, 2.0 * P * 4, 0);
    p = middle_conv((const char *const[2]){"p1.weight", "p1.bias"});
    EXPECT_NEAR(p.bytes, B * (dy + P + W + BIAS), 0);
    EXPECT_NEAR(p.flops, 2.0 * P * 4, 0);
}

/* -- memory ------------------------------------------------------------- */

static size_t whole(PlanPeak k)
{
    return k.values + k.gradients + k.workspace;
}

/* conv 1x1 and mse, batch 2, 8 x 8: before the backward call of the convolution
 * memory holds image, target, logits, the gradients of logits and loss, the
 * loss, and workspace of the kernels. */
TEST(plan_peak_by_hand)
{
    enum { P = 2 * 8 * 8, B = 4, ONE = 256 }; // bytes of one number, padded
    Net n;
    Optim o = optim_default(OPTIM_adamw);
    net_new(&n);
    int image = net_input(&n, "image", (Dims){1, 1, 8, 8, 2}, 2);
    int target = net_input(&n, "target", (Dims){1, 1, 8, 8, 1}, 2);
    int logits = net_conv(&n, image, 1, 1);
    n.loss = net_op(&n, OP_mse, logits, target, -1);
    n.root[n.roots++] = logits;
    net_open(&n, "cpu", 1, &o);
    PlanPeak k = plan_peak(net_plan(&n, true, 2));
    EXPECT_INT(k.values, B * P * (2 + 1 + 1) + ONE);
    EXPECT_INT(k.gradients, B * P + ONE);

    // logits, which the loss's backward call reads, and the loss, a root
    EXPECT_INT(plan_activation_bytes(net_plan(&n, true, 2)), B * P + ONE);

    // without backward there are no gradients
    k = plan_peak(net_plan(&n, false, 2));
    EXPECT_INT(k.values, B * P * (2 + 1 + 1) + ONE);
    EXPECT_INT(k.gradients, 0);
    EXPECT_INT(plan_activation_bytes(net_plan(&n, false, 2)), 0);
    net_free(&n);
}

/* The largest use fits the pool, and the pool has little more. */
TEST(plan_peak_fills_the_pool)
{
    Net n;
    Optim o = optim_default(OPTIM_adamw);
    net_small(&n);
    net_open(&n, "cpu", 1, &o);

    for (int batch = 1; batch < 40; batch += 13) {
        for (int train = 0; train < 2; train++) {
            Plan *p = net_plan(&n, train, batch);
            PlanPeak k = plan_peak(p);
            EXPECT(whole(k) <= plan_bytes(p));
            EXPECT(10 * whole(k) >= 9 * plan_bytes(p));
            EXPECT(!train == !k.gradients);
        }
    }

    // without memory to sort buffers by purpose the sum stays
    Plan *p = net_plan(&n, true, 3);
    mem_fail_after(0, false);
    PlanPeak k = plan_peak(p);
    mem_fail_after(-1, false);
    EXPECT_INT(k.workspace, plan_bytes(p));
    EXPECT_INT(whole(k), plan_bytes(p));
    net_free(&n);
}
