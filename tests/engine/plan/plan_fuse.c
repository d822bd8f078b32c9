/* plan_fuse.c -- fused operators: which, their cost, their names in messages.
 * plan_random.c tests that the bits are unchanged, and for each kernel its
 * suite (opfused_agree). */
#include "tests/support/plan_rig.h"

static const Dims image = {1, 1, 8, 8, 3};

/* Returns the number of calls in the plan of `n` on a backend, evaluation or
 * training. */
static int calls_of(Net *n, const Backend *be, bool train, bool plain)
{
    PlanRig r;
    plan_rig_open(&r, n, be, 1, 2);
    r.spec.no_fusion = plain;
    plan_rig_plan(&r, train);
    int calls = plan_calls(r.plan);
    plan_rig_close(&r);
    return calls;
}

/* Returns how many calls fusion saves. */
static int saves(Net *n, const Backend *be, bool train)
{
    return calls_of(n, be, train, true) - calls_of(n, be, train, false);
}

TEST(fused_norm_and_activation)
{
    for (int leaky = 0; leaky < 2; leaky++) {
        Net n;
        PlanRig r;
        net_new(&n);
        int x = net_input(&n, "x", image, 2);
        int t = net_input(&n, "t", image, 2);
        int norm = net_norm(&n, net_conv(&n, x, 3, 3));
        int y = net_op(&n, leaky ? OP_leaky_relu : OP_relu, norm, -1, -1);
        n.root[n.roots++] = y;
        n.loss = net_op(&n, OP_mse, y, t, -1);
        // forward, backward
        EXPECT_INT(saves(&n, &backend_cpu, true), 2);
        EXPECT_INT(saves(&n, &backend_ref, true), 0);
        plan_rig_open(&r, &n, &backend_cpu, 1, 2);
        plan_rig_plan(&r, true);
        const PlanRow *row;
        REQUIRE(plan_rows(r.plan, &row) == 3);
        EXPECT(row[1].node == norm && row[1].ops.count == 2);
        EXPECT(row[1].ops.node[1] == y);
        EXPECT(row[0].ops.count == 1 && row[2].ops.count == 1);
        // the value is the activation's, and the one before it is not in memory
        EXPECT(plan_value(r.plan, y) && !plan_value(r.plan, norm));
        plan_rig_run(&r, false, false, 1);
        double least = 1;
        for (int i = 0; i < 2 * 8 * 8 * 3; i++)
            least = fmin(least, plan_rig_value(&r, y, i));
        EXPECT(leaky ? least < 0 && least > -0.1 : least == 0);
        plan_rig_close(&r);
        net_free(&n);
    }
}

/* The backward pass through a norm and its activation reads the norm's operand
 * only: its result, which only max pooling reads, is not kept. */
TEST(fused_norm_keeps_its_operand_alone)
{
    int values[2]; // read by the backward pass: fused, unfused
    for (int plain = 0; plain < 2; plain++) {
        Net n;
        PlanRig r;
        net_new(&n);
        int x = net_input(&n, "x", image, 2);
        int t = net_input(&n, "t", (Dims){1, 1, 4, 4, 3}, 2);
        int y = net_pool(&n, net_relu(&n, net_norm(&n, net_conv(&n, x, 3, 3))));
        n.root[n.roots++] = y;
        n.loss = net_op(&n, OP_mse, y, t, -1);
        plan_rig_open(&r, &n, &backend_cpu, 1, 2);
        r.spec.no_fusion = plain;
        plan_rig_plan(&r, true);
        values[plain] = plan_recomputed(r.plan).values;
        plan_rig_close(&r);
        net_free(&n);
    }
    EXPECT_INT(values[1] - values[0], 1);
}

/* A value with another use stays: another reader, a root, a loss. */
TEST(fused_not_where_the_value_between_is_wanted)
{
    for (int how = 0; how < 4; how++) {
        Net n;
        net_new(&n);
        int x = net_input(&n, "x", image, 2);
        int norm = net_norm(&n, net_pool(&n, x)), y = net_relu(&n, norm);
        if (how == 1) y = net_op(&n, OP_concat, y, norm, -1);
        if (how == 2) n.root[n.roots++] = norm;
        // skipped in evaluation: the value that it shows is a root
        if (how == 3) n.root[n.roots++] = net_op(&n, OP_dropout, norm, -1, -1);
        n.root[n.roots++] = y;
        EXPECT_INT(saves(&n, &backend_cpu, false), how == 0);
        net_free(&n);
    }
}

/* Fusion across operators that evaluation skips. */
TEST(fused_around_what_is_dropped)
{
    Net n;
    PlanRig r;
    net_new(&n);
    int x = net_input(&n, "x", image, 2);
    int drop = net_op(&n, OP_dropout, net_norm(&n, x), -1, -1);
    int relu = net_relu(&n, drop);
    int last = net_op(&n, OP_spatial_dropout, relu, -1, -1);
    n.root[n.roots++] = last;
    EXPECT_INT(saves(&n, &backend_cpu, true), 0);
    EXPECT_INT(saves(&n, &backend_cpu, false), 1);
    plan_rig_open(&r, &n, &backend_cpu, 1, 2);
    plan_rig_plan(&r, false);
    EXPECT_INT(plan_calls(r.plan), 1);
    EXPECT(plan_value(r.plan, last) &&
           plan_value(r.plan, last) == plan_value(r.plan, relu));
    plan_rig_close(&r);
    net_free(&n);
}

/* A residual block: its sum is fused, the norm of its second convolution not,
 * as the sum reads it. */
TEST(fused_sum)
{
    Net n;
    net_new(&n);
    int x = net_input(&n, "x", image, 2);
    int y = net_norm(&n, net_conv(&n, x, 3, 3));
    int wide = net_op(&n, OP_add, y, x, -1);
    n.root[n.roots++] = net_relu(&n, wide);
    EXPECT_INT(saves(&n, &backend_cpu, true), 1);

    // not with a vector as operand: that uses the plain loops
    int bias = net_param(&n, "vector", (Dims){1, 1, 1, 1, 3}, RANK_VECTOR,
                         (Init){INIT_CONST, 1}, true);
    n.root[0] = net_relu(&n, net_op(&n, OP_add, y, bias, -1));
    EXPECT_INT(saves(&n, &backend_cpu, true), 0);
    net_free(&n);
}

/* With a backward pass a convolution and its norm are not fused, as gradients
 * need the value between, in evaluation too; nor for a transposed
 * convolution. */
TEST(fused_convolution_not_with_a_backward_pass)
{
    Net n;
    net_new(&n);
    int x = net_input(&n, "x", image, 2), t = net_input(&n, "t", image, 2);
    int y = net_relu(&n, net_conv(&n, x, 3, 3));
    n.loss = net_op(&n, OP_mse, net_norm(&n, net_conv(&n, y, 3, 3)), t, -1);
    n.root[n.roots++] = y;
    EXPECT_INT(saves(&n, &backend_cpu, true), 0);
    EXPECT_INT(saves(&n, &backend_cpu, false), 0);
    n.root[0] = net_relu(&n, net_norm(&n, net_upconv(&n, x, 3)));
    n.loss = -1;
    EXPECT_INT(saves(&n, &backend_cpu, true), 1);
    EXPECT_INT(saves(&n, &backend_cpu, false), 1);
    net_free(&n);
}

/* A network of one convolution, with or without norm and activation. */
typedef struct Layer {
    Dims x; /* n: of the batch */
    int filters, kernel, stride;
    bool bias, norm;
    Op act; /* OP_COUNT: none */
} Layer;

static int layer_net(Net *n, const Layer *l)
{
    Dims one = l->x;
    one.n = 1;
    net_new(n);
    n->bias = l->bias;
    int y = net_conv(n, net_input(n, "x", one, l->x.d > 1 ? 3 : 2), l->filters,
                     l->kernel);
    Attr *a = &n->g.node[y].attr;
    a->conv.sh = a->conv.sw = l->stride;
    n->g.node[y].y.dim.h = (one.h - 1) / l->stride + 1;
    n->g.node[y].y.dim.w = (one.w - 1) / l->stride + 1;
    if (l->norm) y = net_norm(n, y);
    if (l->act != OP_COUNT) y = net_op(n, l->act, y, -1, -1);
    n->root[n->roots++] = y;
    return y;
}

/* Returns the value of the root after an evaluation run. */
static void *layer_value(const Layer *l, int threads, bool plain, int *calls,
                         size_t *bytes, Arena *mem)
{
    Net n;
    PlanRig r;
    int y = layer_net(&n, l);

    plan_rig_open(&r, &n, &backend_cpu, threads, l->x.n);
    r.spec.no_fusion = plain;
    plan_rig_plan(&r, false);

    // means that are not 0 and variances that are not 1
    for (int i = 0; i < r.params.count; i++) {
        Tensor t = params_tensor(&r.params, i, PARAM_VALUE, 0);
        bool mean = strstr(r.params.list[i].name, "running_mean");
        for (int64_t k = 0; mean && k < t.dim.c; k++)
            tensor_set(&t, k, 0.03 * (double)(k % 7) - 0.1);
    }

    plan_rig_run(&r, false, false, 1);
    EXPECT(plan_rig_intact(&r));
    *calls = plan_calls(r.plan);
    const Tensor *t = plan_value(r.plan, y);
    REQUIRE(t);
    *bytes = tensor_bytes(t);
    void *copy = arena_alloc(mem, *bytes);
    REQUIRE(copy);
    memcpy(copy, t->data, *bytes);
    plan_rig_close(&r);
    net_free(&n);
    return copy;
}

/* Norm and activation in the epilogue of a convolution, in evaluation, give the
 * bits of separate calls: for full and partial panels of weights, tasks with
 * some of the panels, sums in chunks, and images that are one long row. */
TEST(fused_convolution)
{
    static const Layer list[] = {
        {{2, 1, 9, 11, 3}, 5, 3, 1, false, true, OP_relu},
        {{1, 1, 5, 6, 200}, 150, 3, 1, true, true, OP_relu},
        {{3, 1, 33, 20, 17}, 16, 3, 2, true, true, OP_leaky_relu},
        {{2, 1, 40, 40, 32}, 33, 1, 1, false, true, OP_COUNT},
        {{2, 1, 21, 18, 24}, 40, 3, 1, true, true, OP_relu},
        {{2, 1, 7, 300, 4}, 20, 3, 1, true, false, OP_leaky_relu},
        {{1, 4, 6, 7, 8}, 70, 3, 1, true, false, OP_relu},
        {{4, 1, 1, 1, 30}, 65, 1, 1, true, false, OP_relu},
        {{1, 1, 1, 1, 1}, 1, 1, 1, true, true, OP_relu},
    };

    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        const Layer *l = &list[i];
        Arena mem = {NULL};
        int unfused, calls;
        size_t want_bytes, bytes;
        void *want = layer_value(l, 1, true, &unfused, &want_bytes, &mem);
        EXPECT_INT(unfused, 1 + l->norm + (l->act != OP_COUNT));
        for (int threads = 1; threads < 4; threads++) {
            void *got = layer_value(l, threads, false, &calls, &bytes, &mem);
            EXPECT_INT(calls, 1);
            if (bytes != want_bytes || memcmp(got, want, bytes))
                test_failed(__FILE__, __LINE__, "layer %zu, %d threads", i,
                            threads);
        }
        arena_release(&mem);
    }
}

/* The first value that is not finite is reported with both operators. */
TEST(fused_blame)
{
    Net n;
    char text[ERR_MAX];
    Blame more;

    net_new(&n);
    int x = net_input(&n, "x", image, 2), t = net_input(&n, "t", image, 2);
    int y = net_relu(&n, net_norm(&n, net_conv(&n, x, 3, 3)));
    n.loss = net_op(&n, OP_mse, net_conv(&n, y, 3, 3), t, -1);
    net_open(&n, "cpu", 1, NULL);
    Plan *p = net_plan(&n, true, 2);
    net_feed(&n, p, 1);

    // gamma of the norm
    Tensor gamma = {.data = NULL};
    Params *params = session_params(n.s);
    for (int i = 0; i < params->count; i++)
        if (!strcmp(params->list[i].name, "p2.weight"))
            gamma = params_tensor(params, i, PARAM_VALUE, 0);
    REQUIRE(gamma.data);
    tensor_set(&gamma, 1, NAN);
    REQUIRE(session_blame(n.s, p, text, sizeof text, &more));
    EXPECT(strstr(text, "batch_norm + relu"));
    EXPECT_INT(more.nan, 2 * 8 * 8);

    // the range of the operand is known
    EXPECT(more.from_lo < more.from_hi);

    // and after a fused call the range of its result
    tensor_set(&gamma, 1, 1);
    for (int i = 0; i < params->count; i++)
        if (!strcmp(params->list[i].name, "p3.weight")) {
            Tensor w = params_tensor(params, i, PARAM_VALUE, 0);
            tensor_set(&w, 0, INFINITY);
        }

    REQUIRE(session_blame(n.s, p, text, sizeof text, &more));
    EXPECT(strstr(text, "conv") && !strstr(text, "relu"));
    EXPECT(more.from_lo == 0 && more.from_hi > 0);
    net_free(&n);
}
