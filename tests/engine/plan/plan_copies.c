/* plan_copies.c -- 16-bit copies that a plan makes: which, how many, their
 * sizes and names. plan_random.c tests their lifetimes. */
#include "tests/support/bf16_backend.h"
#include "tests/support/plan_rig.h"

/* Two convolutions of the image x, one of them twice with the same weight, one
 * of their sum; mean square error. */
static void branches(Net *n)
{
    net_new(n);
    int x = net_input(n, "x", (Dims){1, 1, 6, 6, 2}, 2);
    int t = net_input(n, "t", (Dims){1, 1, 6, 6, 3}, 2);
    int a = net_conv(n, x, 3, 3), b = net_conv(n, x, 3, 1);
    const Node *first = &n->g.node[a];
    int recomputed = net_row(n, first->attr, (int[]){x, first->in[1], -1}, 3);
    int sum = net_op(n, OP_add, net_op(n, OP_add, a, b, -1), recomputed, -1);
    int y = net_conv(n, net_relu(n, sum), 3, 1);
    n->root[n->roots++] = y;
    n->loss = net_op(n, OP_mse, y, t, -1);
}

/* Returns the aligned bytes of a buffer for so many numbers. */
static size_t placed(int64_t count, size_t each)
{
    return ((size_t)count * each + 255) / 256 * 256;
}

TEST(plan_half_copies_once)
{
    Net n;
    PlanRig r;
    Backend be = half_backend();

    branches(&n);
    plan_rig_open(&r, &n, &be, 1, 2);
    r.spec.no_fusion = true; // no fusion: the sum and its relu are two calls
    plan_rig_plan(&r, true);
    int calls = plan_calls(r.plan);
    size_t naive = plan_naive_bytes(r.plan);
    r.spec.precision = PRECISION_bf16;
    plan_rig_plan(&r, true);

    // forward: x, three weights, the sum's relu; backward: dy of each of four
    EXPECT_INT(plan_calls(r.plan), calls + 5 + 4);
    int64_t image = 2 * 36;
    size_t copies = placed(image * 2, 2) + placed(image * 3, 2) +
                    placed(3 * 9 * 2, 2) + placed(3 * 2, 2) + placed(3 * 3, 2) +
                    4 * placed(image * 3, 2);
    EXPECT_INT(plan_naive_bytes(r.plan), naive + copies);

    // a row counts the copies of which it is the first reader
    const PlanRow *row;
    int rows = plan_rows(r.plan, &row), seen = 0;
    size_t want[] = {(size_t)(image * 2 + 54) * 2, 6 * 2, 0,
                     (size_t)(image * 3 + 9) * 2};
    EXPECT_INT(rows, calls / 2);

    for (int i = 0; i < rows; i++) {
        if (n.g.node[row[i].node].attr.op == OP_conv)
            EXPECT_INT(row[i].half_bytes, want[seen++]);
        else
            EXPECT_INT(row[i].half_bytes, 0);
    }

    EXPECT_INT(seen, 4);

    // evaluation: no gradients
    r.spec.loss = -1;
    plan_rig_plan(&r, false);
    EXPECT_INT(plan_calls(r.plan), 7 + 5);
    plan_rig_close(&r);
    net_free(&n);
}

TEST(plan_half_gives_the_float_back)
{
    // for values that only convolutions read the copy, not the value, lives
    // until the backward pass
    Net n;
    PlanRig r;
    Backend be = half_backend();

    net_new(&n);
    int x = net_input(&n, "x", (Dims){1, 1, 16, 16, 8}, 2), y = x;
    for (int i = 0; i < 16; i++) y = net_conv(&n, y, 8, 3);
    n.root[n.roots++] = y;
    n.loss = net_op(&n, OP_mse, y, x, -1);
    plan_rig_open(&r, &n, &be, 1, 4);
    plan_rig_plan(&r, true);
    size_t bytes = plan_bytes(r.plan);
    r.spec.precision = PRECISION_bf16;
    plan_rig_plan(&r, true);
    EXPECT(plan_bytes(r.plan) < bytes * 3 / 4);
    plan_rig_close(&r);
    net_free(&n);
}

TEST(plan_half_times_and_blames)
{
    Net n;
    PlanRig r;
    Backend be = half_backend();

    branches(&n);
    plan_rig_open(&r, &n, &be, 1, 2);
    r.spec.precision = PRECISION_bf16;
    plan_rig_plan(&r, true);
    PlanTime time[64];
    PlanRun run = {.step = plan_rig_step, .backward = true, .seed_grad = 1};
    int count, copies = 0, late = 0;
    REQUIRE(plan_time(r.plan, &run, time, 64, &count));
    EXPECT_INT(count, plan_calls(r.plan));
    for (int i = 0; i < count; i++) {
        copies += time[i].convert;
        late += time[i].convert && time[i].backward;
    }
    EXPECT_INT(copies, 9);
    EXPECT_INT(late, 4);
    char text[200];
    REQUIRE(plan_blame(r.plan, &plan_rig_step, text, sizeof text, NULL));
    EXPECT_TEXT(text, "");

    // an infinite value in a copy is blamed on the layer, not on the copy
    Tensor w = params_tensor(&r.params, 0, PARAM_VALUE, 0);
    tensor_set(&w, 0, 3.4e38);
    REQUIRE(plan_blame(r.plan, &plan_rig_step, text, sizeof text, NULL));
    EXPECT(strstr(text, "conv (") == text);
    plan_rig_close(&r);
    net_free(&n);
}

/* A failing copy is named with its original. */
static bool refuse(const Call *c)
{
    (void)c;
    return fail_device("no room on the test's device");
}

TEST(plan_half_failure_is_named)
{
    Net n;
    PlanRig r;
    Backend be = half_backend();

    be.convert = refuse;
    branches(&n);
    plan_rig_open(&r, &n, &be, 1, 1);
    r.spec.precision = PRECISION_bf16;
    plan_rig_plan(&r, true);
    EXPECT_FAIL(plan_run(r.plan, &(PlanRun){.step = plan_rig_step}),
                "copy in 16 bits (x): no room on the test's device");
    r.spec.precision = PRECISION_f16;
    Plan *p;
    EXPECT_FAIL(plan_build(&r.spec, &p),
                "precision f16 is not available on device half, which has f32, "
                "bf16: use --precision f32");
    plan_rig_close(&r);
    net_free(&n);
}
