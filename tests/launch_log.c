/* launch_log.c -- what is written down of a step that nobody runs. */
#include "launch_log.h"
#include "net.h"
#include "test.h"

/* Nobody records: nothing is kept, nothing is lost. */
TEST(launch_log_into_nothing)
{
    long live = mem_live();
    launch_log_into(NULL);
    launch_log_part((LaunchPart){.what = "x"});
    launch_log_add((Launch){.name = "x"});
    EXPECT(!launch_log_here());
    EXPECT_INT(mem_live(), live);
}

TEST(launch_log_keeps_order_and_parts)
{
    LaunchLog r = {0};
    launch_log_into(&r);
    launch_log_add((Launch){.name = "first"}); // before any part
    for (int i = 0; i < 600; i++) {
        launch_log_part((LaunchPart){.node = i});
        launch_log_add((Launch){.name = "a", .grid = {(unsigned)i, 1, 1}});
        launch_log_add((Launch){.name = "b", .bytes = (size_t)i});
    }
    launch_log_into(NULL);
    EXPECT(!r.failed);
    EXPECT_INT(r.parts, 601);
    EXPECT_INT(r.launches, 1201);
    EXPECT_TEXT(r.part[0].what, "step");
    EXPECT_INT(r.part[0].node, LAUNCH_NO_NODE);
    EXPECT_INT(r.launch[0].part, 0);
    for (int i = 0; i < 600; i++) {
        EXPECT_INT(r.part[i + 1].node, i);
        EXPECT_INT(r.launch[2 * i + 1].part, i + 1);
        EXPECT_INT(r.launch[2 * i + 1].grid[0], i);
        EXPECT_INT(r.launch[2 * i + 2].bytes, i);
    }
    launch_log_free(&r);
    EXPECT_INT(r.launches, 0);
}

/* Each of its requests for memory fails once: it says so, and what was there
 * is still there. */
TEST(launch_log_without_memory)
{
    long live = mem_live();
    for (long k = 0; k < 2; k++) {
        LaunchLog r = {0};
        launch_log_into(&r);
        mem_fail_after(k, false);
        launch_log_part((LaunchPart){.what = "x"});
        launch_log_add((Launch){.name = "x"});
        mem_fail_after(-1, false);
        launch_log_into(NULL);
        EXPECT(r.failed);
        EXPECT_INT(r.parts, k);
        EXPECT_INT(r.launches, 0);
        launch_log_free(&r);
    }
    EXPECT_INT(mem_live(), live);
}

/* -- what a call costs at least ----------------------------------------- */

/* The part of node `node` in one direction. */
static LaunchPart part_of(const LaunchLog *r, int node, bool backward)
{
    for (int i = 0; i < r->parts; i++)
        if (r->part[i].node == node && r->part[i].backward == backward)
            return r->part[i];
    test_failed(__FILE__, __LINE__, "no part of node %d", node);
    return (LaunchPart){0};
}

/* conv 3x3 (2 -> 4), relu, conv 1x1 (4 -> 1) and mse on 8 x 8, batch 3, by
 * hand. Of the first there is no gradient to the image. */
TEST(launch_log_costs_by_hand)
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
    p = part_of(&r, first, true); // to the weights only
    EXPECT_NEAR(p.bytes, B * (P * 2 + w1 + P * 4 + w1), 0);
    EXPECT_NEAR(p.flops, 2.0 * P * 4 * 9 * 2, 0);
    p = part_of(&r, relu, true); // keeps its result
    EXPECT_NEAR(p.bytes, B * 3.0 * P * 4, 0);
    EXPECT_NEAR(p.flops, 0, 0);
    p = part_of(&r, second, true); // both products
    EXPECT_NEAR(p.bytes, B * (P * 4 + w2 + P + P * 4 + w2), 0);
    EXPECT_NEAR(p.flops, 2 * 2.0 * P * 4, 0);

    launch_log_free(&r);

    // a second part adds to what is there: weights' gradients are read too
    Plan *plan = net_plan(&n, true, N);
    StepResult out;
    StepPart part = {false, true, 2, 0.01, 0};
    launch_log_into(&r);
    REQUIRE(session_part(n.s, plan, &part, &out));
    launch_log_into(NULL);
    p = part_of(&r, first, true);
    EXPECT_NEAR(p.bytes, B * (P * 2 + w1 + P * 4 + 2 * w1), 0);
    launch_log_free(&r);
    net_free(&n);
}

/* Only a GPU's backend has launches. */
TEST(launch_log_wants_a_device_that_launches)
{
    Net n;
    Optim o = optim_default(OPTIM_adamw);
    net_small(&n);
    SessionSpec spec = {.graph = &n.g,
                        .root = n.root,
                        .roots = n.roots,
                        .loss = n.loss,
                        .device = "cpu",
                        .optim = &o,
                        .rehearse = true};
    Session *s = NULL;
    EXPECT_FAIL(session_open(&spec, &s), "only cuda has a launch plan");
    EXPECT_INT(err_kind(), ERR_USAGE);
    net_free(&n);
}
