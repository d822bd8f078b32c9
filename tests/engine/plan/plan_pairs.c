/* plan_pairs.c -- calls that one kernel runs together: which, and that buffers
 * which the second call needs are free when the first runs. */
#include "tests/support/plan_rig.h"

static int pairs, singles; // launches of pools

/* Runs a pool of the cpu backend, forward or backward. */
static bool run_one(const Call *c)
{
    return (c->dy ? backend_cpu.bwd : backend_cpu.fwd)[OP_maxpool](c);
}

/* Runs the pair first: its result must not lie in memory that c still uses. */
static bool run_pair(const Call *c)
{
    *(c->pair ? &pairs : &singles) += 1;
    return (!c->pair || run_one(c->pair)) && run_one(c);
}

static bool pairs_pools(const Call *a, const Call *b)
{
    return call_op(a) == OP_maxpool && dims_equal(a->y->dim, b->y->dim);
}

static Backend pairing(void)
{
    Backend be = backend_cpu;
    be.fwd[OP_maxpool] = be.bwd[OP_maxpool] = run_pair;
    be.pairs = pairs_pools;
    return be;
}

/* Two convolutions of x, then a pool of each: a pair. */
static int two_ways(Net *n, int x, int width)
{
    int y[2];
    for (int i = 0; i < 2; i++) y[i] = net_conv(n, x, width, 1);
    for (int i = 0; i < 2; i++) y[i] = net_op(n, OP_maxpool, y[i], -1, -1);
    return net_op(n, OP_concat, y[0], y[1], -1);
}

static void branches(Net *n)
{
    net_new(n);
    int x = net_input(n, "x", (Dims){1, 1, 6, 6, 2}, 2);
    int t = net_input(n, "t", (Dims){1, 1, 6, 6, 3}, 2);
    x = two_ways(n, two_ways(n, x, 3), 5);
    // the second needs the result of the first
    x = net_op(n, OP_maxpool, net_op(n, OP_maxpool, x, -1, -1), -1, -1);
    n->root[n->roots++] = net_conv(n, x, 3, 1);
    n->loss = net_op(n, OP_mse, n->root[0], t, -1);
}

/* Runs a training step; returns the bytes of result and gradients in `mem`. */
static void *stepped(const Backend *be, Arena *mem, size_t budget, bool plain,
                     size_t *bytes)
{
    Net n;
    PlanRig r;
    branches(&n);
    plan_rig_open(&r, &n, be, 1, 2);
    r.spec.no_fusion = plain;
    r.spec.budget = budget, r.spec.least = true;
    plan_rig_plan(&r, true);
    pairs = singles = 0;
    plan_rig_run(&r, true, false, 1);
    plan_rig_run(&r, true, true, 1); // adds to the gradients
    EXPECT(plan_rig_intact(&r));
    const Tensor *y = plan_value(r.plan, n.root[0]);
    const size_t grads = (size_t)r.params.trained * sizeof(float);
    *bytes = tensor_bytes(y) + grads;
    char *out = arena_alloc(mem, *bytes);
    REQUIRE(out);
    memcpy(out, y->data, tensor_bytes(y));
    memcpy(out + tensor_bytes(y), r.params.grad, grads);
    plan_rig_drop(&r);
    return out;
}

TEST(plan_pairs_keeps_all_bytes)
{
    Arena mem = {NULL};
    const Backend be = pairing();
    size_t bytes;
    void *want = stepped(&backend_cpu, &mem, 0, false, &bytes);
    void *got = stepped(&be, &mem, 0, false, &bytes);
    EXPECT(!memcmp(got, want, bytes));
    // two runs; each forward and backward has two pairs and two alone
    EXPECT_INT(pairs, 2 * 4);
    EXPECT_INT(singles, 2 * 4);

    got = stepped(&be, &mem, 0, true, &bytes);
    EXPECT(!memcmp(got, want, bytes));
    EXPECT_INT(pairs, 0);

    // calls that run again for the backward pass
    got = stepped(&be, &mem, 1, false, &bytes);
    EXPECT(!memcmp(got, want, bytes));
    EXPECT(pairs >= 2 * 2);
    arena_release(&mem);
}

/* Times and blame know the second call of a pair. */
TEST(plan_pairs_are_timed_and_blamed)
{
    Net n;
    PlanRig r;
    PlanTime time[64];
    char text[200];
    const Backend be = pairing();
    int count, pools = 0;

    branches(&n);
    plan_rig_open(&r, &n, &be, 1, 2);
    plan_rig_plan(&r, true);
    PlanRun run = {.step = plan_rig_step, .backward = true, .seed_grad = 1};
    REQUIRE(plan_time(r.plan, &run, time, 64, &count));
    EXPECT_INT(count, plan_calls(r.plan));
    for (int i = 0; i < count; i++)
        pools += n.g.node[time[i].node].attr.op == OP_maxpool;
    EXPECT_INT(pools, 2 * 6);

    // the weight of the second convolution of the first pair
    Tensor w = params_tensor(&r.params, 1, PARAM_VALUE, 0);
    tensor_set(&w, 0, (double)NAN);
    REQUIRE(plan_blame(r.plan, &plan_rig_step, text, sizeof text, NULL));
    EXPECT(strstr(text, "conv"));
    tensor_set(&w, 0, 0);
    REQUIRE(plan_blame(r.plan, &plan_rig_step, text, sizeof text, NULL));
    EXPECT(!*text);
    plan_rig_drop(&r);
}
