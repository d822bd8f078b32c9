/* plan.c -- what a plan drops, refuses, counts and blames. Whether it computes
 * the right thing is in plan_random.c. */
#include "rig.h"
#include "rng.h"
#include <stdlib.h>

static const Dims image = {1, 1, 8, 8, 2};

/* Rows of the plan that are `op`. */
static int rows_of(const Rig *r, Op op)
{
    const PlanRow *row;
    int count = plan_rows(r->plan, &row), found = 0;
    for (int i = 0; i < count; i++)
        found += r->net->g.node[row[i].node].attr.op == (int)op;
    return found;
}

TEST(plan_of_evaluation)
{
    Net n;
    Rig r;
    net_new(&n);
    int x = net_input(&n, "x", image, 2);
    int conv = net_conv(&n, x, 3, 3), drop = net_op(&n, OP_dropout, conv, -1, -1);
    int norm = net_norm(&n, drop);
    int again = net_op(&n, OP_spatial_dropout, norm, -1, -1);
    int first = net_op(&n, OP_dropout, x, -1, -1);
    n.root[n.roots++] = again;
    n.root[n.roots++] = norm;
    n.root[n.roots++] = first;
    rig_open(&r, &n, &backend_ref, 1, 1);
    rig_plan(&r, false);
    EXPECT_INT(rows_of(&r, OP_dropout), 0);
    EXPECT_INT(rows_of(&r, OP_spatial_dropout), 0);
    EXPECT_INT(plan_calls(r.plan), 2);
    // what is dropped shows its operand, an input too
    EXPECT(plan_value(r.plan, again) == plan_value(r.plan, norm));
    EXPECT(plan_value(r.plan, first) == plan_value(r.plan, x));
    EXPECT(!plan_value(r.plan, conv)); // not a root: its place is used again
    EXPECT(!plan_value(r.plan, -1) && !plan_value(r.plan, n.g.count));
    // running statistics are used and not changed
    size_t bytes = (size_t)r.params.total * sizeof(double);
    double *before = mem_alloc(bytes);
    REQUIRE(before);
    memcpy(before, r.params.value, bytes);
    rig_run(&r, false, false, 1);
    EXPECT(!memcmp(before, r.params.value, bytes));
    double y = rig_value(&r, norm, 0), old[4];
    for (int i = 0; i < 4; i++) { // weight, bias, mean, variance, channel 0
        int k = r.params.count - 4 + i;
        Tensor t = params_tensor(&r.params, k, PARAM_VALUE, 0);
        old[i] = tensor_get(&t, 0);
        // y = x' w + b with x' = (x - mean) / sqrt(var + eps)
        if (i == 2) tensor_set(&t, 0, old[2] - 1);
    }
    rig_run(&r, false, false, 1);
    EXPECT_NEAR(rig_value(&r, norm, 0) - y,
                old[0] / sqrt(old[3] + (double)1e-5f), 1e-12);
    rig_plan(&r, true);
    EXPECT_INT(rows_of(&r, OP_dropout), 2);
    EXPECT_INT(rows_of(&r, OP_spatial_dropout), 1);
    rig_run(&r, false, false, 1);
    EXPECT(memcmp(before, r.params.value, bytes));
    EXPECT(plan_value(r.plan, again) != plan_value(r.plan, norm));
    mem_free(before);
    rig_close(&r);
    net_free(&n);
}

TEST(plan_of_frozen_and_unreached_parameters)
{
    Net n;
    Rig r;
    net_new(&n);
    int x = net_input(&n, "x", image, 2);
    int t = net_input(&n, "t", (Dims){1, 1, 8, 8, 3}, 2);
    int a = net_conv(&n, x, 3, 3);
    int b = net_conv(&n, net_relu(&n, a), 3, 1);
    int side = net_conv(&n, x, 2, 1); // of an output that no loss looks at
    n.root[n.roots++] = side;
    n.loss = net_op(&n, OP_mse, b, t, -1);
    rig_open(&r, &n, &backend_ref, 1, 1);
    rig_plan(&r, true);
    int all = plan_calls(r.plan);
    rig_run(&r, true, false, 1);
    double zero = 0, some = 0;
    const Param *p = r.params.list;
    EXPECT_INT(r.params.count, 3);
    for (int64_t i = 0; i < numel(p[2].dim); i++)
        zero += fabs(rig_grad(&r, p[2].at + i));
    for (int64_t i = 0; i < numel(p[0].dim); i++)
        some += fabs(rig_grad(&r, p[0].at + i));
    EXPECT_NEAR(zero, 0, 0);
    EXPECT(some > 0);
    // the first convolution frozen: nothing has to go back to it
    r.params.list[0].frozen = true;
    memset(r.params.grad, 0, (size_t)r.params.trained * sizeof(double));
    rig_plan(&r, true);
    EXPECT_INT(plan_calls(r.plan), all - 2);
    rig_run(&r, true, false, 1);
    EXPECT_NEAR(rig_grad(&r, p[0].at), 0, 0);
    EXPECT(rig_grad(&r, p[1].at) != 0);
    // all frozen: only the forward run is left
    for (int i = 0; i < 3; i++)
        r.params.list[i].frozen = true;
    memset(r.params.grad, 0, (size_t)r.params.trained * sizeof(double));
    rig_plan(&r, true);
    EXPECT_INT(plan_calls(r.plan), 5);
    rig_run(&r, true, false, 1);
    EXPECT_NEAR(rig_grad(&r, p[1].at), 0, 0);
    rig_close(&r);
    net_free(&n);
}

TEST(plan_without_what_roots_do_not_need)
{
    Net n;
    Rig r;
    net_new(&n);
    int x = net_input(&n, "x", image, 2), y = net_input(&n, "y", image, 2);
    int a = net_relu(&n, x), dead = net_conv(&n, y, 64, 3);
    n.root[n.roots++] = a;
    rig_open(&r, &n, &backend_cpu, 1, 1);
    rig_plan(&r, true);
    EXPECT_INT(plan_calls(r.plan), 1);
    EXPECT_INT(r.params.count, 0);
    EXPECT(plan_value(r.plan, x) && !plan_value(r.plan, y));
    EXPECT(!plan_value(r.plan, dead));
    // an input and its relu: it may not be done in place
    EXPECT_INT(plan_bytes(r.plan), 2 * 8 * 8 * 2 * 4);
    // an input that is not needed need not be given either
    r.spec.inputs = 1;
    rig_plan(&r, true);
    // no roots at all
    r.spec.roots = 0;
    rig_plan(&r, true);
    EXPECT_INT(plan_bytes(r.plan), 0);
    rig_run(&r, true, false, 1);
    rig_close(&r);
    net_free(&n);
}

/* A chain of in-place rows costs two buffers, however long it is. */
TEST(plan_in_place)
{
    Net n;
    Rig r;
    net_new(&n);
    int x = net_input(&n, "x", (Dims){1, 1, 16, 16, 4}, 2);
    int y = net_op(&n, OP_scale, x, -1, -1);
    for (int i = 0; i < 9; i++)
        y = net_relu(&n, y);
    n.root[n.roots++] = y;
    rig_open(&r, &n, &backend_cpu, 1, 2);
    rig_plan(&r, false);
    EXPECT_INT(plan_calls(r.plan), 10);
    EXPECT_INT(plan_bytes(r.plan), 2 * 2 * 16 * 16 * 4 * 4);
    rig_close(&r);
    net_free(&n);
}

/* A result that only the last call makes is not in the way of the others. */
TEST(plan_result_lives_from_its_call)
{
    Net n;
    Rig r;
    net_new(&n);
    int x = net_input(&n, "x", (Dims){1, 1, 1, 1, 64}, 0);
    Attr up = op_default(OP_upsample_nearest);
    int y = net_op(&n, OP_sigmoid, x, -1, -1), big[2];
    for (int i = 0; i < 2; i++) {
        int w = net_param(&n, i ? "b" : "a", (Dims){64 << 6, 1, 1, 1, 64}, 0,
                          (Init){INIT_CONST, 0}, true);
        big[i] = net_op(&n, OP_linear, y, w, -1);
        Attr s = op_default(OP_slice);
        s.slice.c = 64;
        y = net_row(&n, s, &big[i], 1);
    }
    (void)up;
    int w = net_param(&n, "c", (Dims){64 << 6, 1, 1, 1, 64}, 0,
                      (Init){INIT_CONST, 0}, true);
    n.root[n.roots++] = net_op(&n, OP_linear, y, w, -1);
    rig_open(&r, &n, &backend_ref, 1, 1);
    rig_plan(&r, false);
    // three large results one after the other, and some small ones
    EXPECT(plan_bytes(r.plan) < 2 * (64 << 6) * 8);
    EXPECT(plan_naive_bytes(r.plan) > 3 * (64 << 6) * 8);
    rig_close(&r);
    net_free(&n);
}

/* Two runs of half a batch each, a half of the gradient each, are one run. */
TEST(plan_accumulates)
{
    Net n;
    Rig r;
    net_new(&n);
    int x = net_input(&n, "x", image, 2);
    int t = net_input(&n, "t", (Dims){1, 1, 8, 8, 2}, 2);
    n.bias = true;
    int y = net_conv(&n, net_op(&n, OP_tanh, net_conv(&n, x, 3, 3), -1, -1), 2,
                     3);
    // the same weight twice: both uses add
    int w = n.g.node[y].in[1];
    Attr same = n.g.node[y].attr;
    int z = net_row(&n, same,
                    (int[]){net_op(&n, OP_concat, y, x, -1), w}, 1 + (w < 0));
    (void)z;
    n.loss = net_op(&n, OP_bce, y, t, -1);
    rig_open(&r, &n, &backend_ref, 2, 4);
    rig_plan(&r, true);
    rig_run(&r, true, false, 1);
    size_t count = (size_t)r.params.trained;
    double *whole = mem_alloc(count * sizeof *whole);
    float *half[2] = {mem_alloc(2 * 128 * 4), mem_alloc(2 * 128 * 4)};
    REQUIRE(whole && half[0] && half[1]);
    memcpy(whole, r.params.grad, count * sizeof *whole);
    rig_close(&r);
    rig_open(&r, &n, &backend_ref, 2, 2);
    rig_plan(&r, true);
    Rig full = r;
    full.input[0].dim.n = full.input[1].dim.n = 4;
    Arena mem = {NULL};
    for (int part = 0; part < 2; part++) {
        for (int k = 0; k < 2; k++) {
            const Tensor *v = plan_value(r.plan, r.input[k].node);
            char *all = rig_input(&full, k, &mem);
            size_t bytes = tensor_bytes(v);
            memcpy(v->data, all + (size_t)part * bytes, bytes);
        }
        rig_run(&r, true, part > 0, 0.5);
    }
    for (size_t i = 0; i < count; i++)
        EXPECT_NEAR(rig_grad(&r, (int64_t)i), whole[i], 1e-14);
    // not accumulating begins anew
    rig_run(&r, true, false, 0.5);
    EXPECT(fabs(rig_grad(&r, 0) - whole[0]) > 1e-6);
    arena_release(&mem);
    mem_free(whole);
    mem_free(half[0]);
    mem_free(half[1]);
    rig_close(&r);
    net_free(&n);
}
