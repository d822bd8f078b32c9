/* plan.c -- what a plan skips, refuses, counts and blames (plan_blame).
 * plan_random.c tests the computed numbers. */
#include "engine/base/rng.h"
#include "tests/support/plan_rig.h"
#include <stdlib.h>

static const Dims image = {1, 1, 8, 8, 2};

/* Counts the rows of the plan with operator `op`. */
static int rows_of(const PlanRig *r, Op op)
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
    PlanRig r;
    net_new(&n);
    int x = net_input(&n, "x", image, 2);
    int conv = net_conv(&n, x, 3, 3),
        drop = net_op(&n, OP_dropout, conv, -1, -1);
    int norm = net_norm(&n, drop);
    int recomputed = net_op(&n, OP_spatial_dropout, norm, -1, -1);
    int first = net_op(&n, OP_dropout, x, -1, -1);
    n.root[n.roots++] = recomputed;
    n.root[n.roots++] = norm;
    n.root[n.roots++] = first;
    plan_rig_open(&r, &n, &backend_ref, 1, 1);
    plan_rig_plan(&r, false);
    EXPECT_INT(rows_of(&r, OP_dropout), 0);
    EXPECT_INT(rows_of(&r, OP_spatial_dropout), 0);
    EXPECT_INT(plan_calls(r.plan), 2);

    // a skipped operator shows its operand, even an input
    EXPECT(plan_value(r.plan, recomputed) == plan_value(r.plan, norm));
    EXPECT(plan_value(r.plan, first) == plan_value(r.plan, x));
    EXPECT(!plan_value(r.plan, conv)); // not a root: its memory is reused
    EXPECT(!plan_value(r.plan, -1) && !plan_value(r.plan, n.g.count));

    // running statistics are read and not changed
    size_t bytes = (size_t)r.params.total * sizeof(double);
    double *before = mem_alloc(bytes);
    REQUIRE(before);
    memcpy(before, r.params.value, bytes);
    plan_rig_run(&r, false, false, 1);
    EXPECT(!memcmp(before, r.params.value, bytes));
    double y = plan_rig_value(&r, norm, 0), old[4];

    for (int i = 0; i < 4; i++) { // weight, bias, mean, variance, channel 0
        int k = r.params.count - 4 + i;
        Tensor t = params_tensor(&r.params, k, PARAM_VALUE, 0);
        old[i] = tensor_get(&t, 0);
        // y = x' w + b with x' = (x - mean) / sqrt(var + eps)
        if (i == 2) tensor_set(&t, 0, old[2] - 1);
    }

    plan_rig_run(&r, false, false, 1);
    EXPECT_NEAR(plan_rig_value(&r, norm, 0) - y,
                old[0] / sqrt(old[3] + (double)1e-5f), 1e-12);
    plan_rig_plan(&r, true);
    EXPECT_INT(rows_of(&r, OP_dropout), 2);
    EXPECT_INT(rows_of(&r, OP_spatial_dropout), 1);
    plan_rig_run(&r, false, false, 1);
    EXPECT(memcmp(before, r.params.value, bytes));
    EXPECT(plan_value(r.plan, recomputed) != plan_value(r.plan, norm));
    mem_free(before);
    plan_rig_close(&r);
    net_free(&n);
}

TEST(plan_of_frozen_and_unreached_parameters)
{
    Net n;
    PlanRig r;
    net_new(&n);
    int x = net_input(&n, "x", image, 2);
    int t = net_input(&n, "t", (Dims){1, 1, 8, 8, 3}, 2);
    int a = net_conv(&n, x, 3, 3);
    int b = net_conv(&n, net_relu(&n, a), 3, 1);
    int side = net_conv(&n, x, 2, 1); // for an output without a loss
    n.root[n.roots++] = side;
    n.loss = net_op(&n, OP_mse, b, t, -1);
    plan_rig_open(&r, &n, &backend_ref, 1, 1);
    plan_rig_plan(&r, true);
    int all = plan_calls(r.plan);
    plan_rig_run(&r, true, false, 1);
    double zero = 0, some = 0;
    const Param *p = r.params.list;
    EXPECT_INT(r.params.count, 3);
    for (int64_t i = 0; i < numel(p[2].dim); i++)
        zero += fabs(plan_rig_grad(&r, p[2].at + i));
    for (int64_t i = 0; i < numel(p[0].dim); i++)
        some += fabs(plan_rig_grad(&r, p[0].at + i));
    EXPECT_NEAR(zero, 0, 0);
    EXPECT(some > 0);

    // the first convolution is frozen: it needs no gradient
    r.params.list[0].frozen = true;
    memset(r.params.grad, 0, (size_t)r.params.trained * sizeof(double));
    plan_rig_plan(&r, true);
    EXPECT_INT(plan_calls(r.plan), all - 2);
    plan_rig_run(&r, true, false, 1);
    EXPECT_NEAR(plan_rig_grad(&r, p[0].at), 0, 0);
    EXPECT(plan_rig_grad(&r, p[1].at) != 0);

    // all are frozen: only the forward run is left
    for (int i = 0; i < 3; i++) r.params.list[i].frozen = true;
    memset(r.params.grad, 0, (size_t)r.params.trained * sizeof(double));
    plan_rig_plan(&r, true);
    EXPECT_INT(plan_calls(r.plan), 5);
    plan_rig_run(&r, true, false, 1);
    EXPECT_NEAR(plan_rig_grad(&r, p[1].at), 0, 0);
    plan_rig_close(&r);
    net_free(&n);
}

/* A loss has a gradient only for its prediction: a computed target is a
 * constant. */
TEST(plan_target_gets_no_gradient)
{
    Net n;
    PlanRig r;
    net_new(&n);
    int x = net_input(&n, "x", image, 2);
    int y = net_conv(&n, x, 3, 3), t = net_conv(&n, x, 3, 3);
    n.loss = net_op(&n, OP_mse, y, t, -1);
    plan_rig_open(&r, &n, &backend_cpu, 1, 1);
    plan_rig_plan(&r, true);
    EXPECT_INT(plan_calls(r.plan), 3 + 2);
    plan_rig_close(&r);
    net_free(&n);
}

TEST(plan_without_what_roots_do_not_need)
{
    Net n;
    PlanRig r;
    net_new(&n);
    int x = net_input(&n, "x", image, 2), y = net_input(&n, "y", image, 2);
    int a = net_relu(&n, x), dead = net_conv(&n, y, 64, 3);
    n.root[n.roots++] = a;
    plan_rig_open(&r, &n, &backend_cpu, 1, 1);
    plan_rig_plan(&r, true);
    EXPECT_INT(plan_calls(r.plan), 1);
    EXPECT_INT(r.params.count, 0);
    EXPECT(plan_value(r.plan, x) && !plan_value(r.plan, y));
    EXPECT(!plan_value(r.plan, dead));

    // an input and its relu: not in place
    EXPECT_INT(plan_bytes(r.plan), 2 * 8 * 8 * 2 * 4);

    // an input that is not needed may be missing
    r.spec.inputs = 1;
    plan_rig_plan(&r, true);

    // no roots at all
    r.spec.roots = 0;
    plan_rig_plan(&r, true);
    EXPECT_INT(plan_bytes(r.plan), 0);
    plan_rig_run(&r, true, false, 1);
    plan_rig_close(&r);
    net_free(&n);
}

/* A chain of in-place operators needs two buffers, whatever its length. */
TEST(plan_in_place)
{
    Net n;
    PlanRig r;
    net_new(&n);
    int x = net_input(&n, "x", (Dims){1, 1, 16, 16, 4}, 2);
    int y = net_op(&n, OP_scale, x, -1, -1);
    for (int i = 0; i < 9; i++) y = net_relu(&n, y);
    n.root[n.roots++] = y;
    Backend apart = backend_cpu;
    apart.program = NULL;
    plan_rig_open(&r, &n, &apart, 1, 2);
    plan_rig_plan(&r, false);
    EXPECT_INT(plan_calls(r.plan), 10);
    EXPECT_INT(plan_bytes(r.plan), 2 * 2 * 16 * 16 * 4 * 4);
    plan_rig_close(&r);
    net_free(&n);
}

/* A result of the last call does not take memory before it. */
TEST(plan_result_lives_from_its_call)
{
    Net n;
    PlanRig r;
    net_new(&n);
    int x = net_input(&n, "x", (Dims){1, 1, 1, 1, 64}, 0);
    int y = net_op(&n, OP_sigmoid, x, -1, -1), big[2];

    for (int i = 0; i < 2; i++) {
        int w = net_param(&n, i ? "b" : "a", (Dims){64 << 6, 1, 1, 1, 64}, 0,
                          (Init){INIT_CONST, 0}, true);
        big[i] = net_op(&n, OP_linear, y, w, -1);
        Attr s = op_default(OP_slice);
        s.slice.c = 64;
        y = net_row(&n, s, &big[i], 1);
    }

    int w = net_param(&n, "c", (Dims){64 << 6, 1, 1, 1, 64}, 0,
                      (Init){INIT_CONST, 0}, true);
    n.root[n.roots++] = net_op(&n, OP_linear, y, w, -1);
    plan_rig_open(&r, &n, &backend_ref, 1, 1);
    plan_rig_plan(&r, false);

    // three large results one after the other, and some small ones
    EXPECT(plan_bytes(r.plan) < 2 * (64 << 6) * 8);
    EXPECT(plan_naive_bytes(r.plan) > 3 * (64 << 6) * 8);
    plan_rig_close(&r);
    net_free(&n);
}

/* Two runs of half a batch, each with half of the gradient, equal one run. */
TEST(plan_accumulates)
{
    Net n;
    PlanRig r;
    net_new(&n);
    int x = net_input(&n, "x", image, 2);
    int t = net_input(&n, "t", (Dims){1, 1, 8, 8, 2}, 2);
    n.bias = true;
    int a = net_conv(&n, x, 2, 3);
    const Node *conv = &n.g.node[a];

    // the same weight and bias twice: gradients of both uses add up
    int y = net_row(
        &n, conv->attr,
        (int[]){net_op(&n, OP_tanh, a, -1, -1), conv->in[1], conv->in[2]}, 3);
    n.loss = net_op(&n, OP_bce, y, t, -1);
    plan_rig_open(&r, &n, &backend_ref, 2, 4);
    plan_rig_plan(&r, true);
    plan_rig_run(&r, true, false, 1);
    size_t count = (size_t)r.params.trained;
    double *whole = mem_alloc(count * sizeof *whole);
    REQUIRE(whole);
    memcpy(whole, r.params.grad, count * sizeof *whole);
    plan_rig_close(&r);
    plan_rig_open(&r, &n, &backend_ref, 2, 2);
    plan_rig_plan(&r, true);
    PlanRig full = r;
    full.input[0].dim.n = full.input[1].dim.n = 4;
    Arena mem = {NULL};

    for (int part = 0; part < 2; part++) {
        for (int k = 0; k < 2; k++) {
            const Tensor *v = plan_value(r.plan, r.input[k].node);
            char *all = plan_rig_input(&full, k, &mem);
            size_t bytes = tensor_bytes(v);
            memcpy(v->data, all + (size_t)part * bytes, bytes);
        }
        plan_rig_run(&r, true, part > 0, 0.5);
    }

    for (size_t i = 0; i < count; i++)
        EXPECT_NEAR(plan_rig_grad(&r, (int64_t)i), whole[i], 1e-14);

    // without accumulation gradients start from zero
    plan_rig_run(&r, true, false, 0.5);
    EXPECT(fabs(plan_rig_grad(&r, 0) - whole[0]) > 1e-6);
    arena_release(&mem);
    mem_free(whole);
    plan_rig_close(&r);
    net_free(&n);
}

/* Plans a U-Net of `depth` levels on 256 x 256 images of one channel. */
static void unet256(Net *n, bool bias, int depth, Params *q, Plan **p)
{
    PlanInput in[8];
    net_new(n);
    n->bias = bias;
    int x = net_input(n, "image", (Dims){1, 1, 256, 256, 1}, 2);
    n->root[n->roots++] = net_unet(n, x, 32, depth);
    REQUIRE(params_list(q, &n->g, n->root, 1));
    PlanSpec spec = {.graph = &n->g,
                     .params = q,
                     .be = &backend_cpu,
                     .threads = 2,
                     .root = n->root,
                     .roots = 1,
                     .loss = -1,
                     .input = in,
                     .inputs = net_extents(n, 1, in)};
    REQUIRE(plan_build(&spec, p));
}

/* Published numbers; counted without a device. */
TEST(plan_counts_parameters_and_flops)
{
    static const struct {
        bool bias;
        int depth;
        int64_t trained;
        double gflops;
    } rows[] = {{false, 4, 7762465, 24.07},
                {true, 4, 7765409, 24.07},
                {true, 5, 31105953, 29.8}};

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        Net n;
        Params q;
        Plan *p;
        const PlanRow *row;
        unet256(&n, rows[i].bias, rows[i].depth, &q, &p);
        EXPECT_INT(params_trained(&q), rows[i].trained);
        EXPECT_NEAR(plan_flops(p) / 1e9, rows[i].gflops,
                    rows[i].depth == 4 ? 0.005 : 0.05);
        double flops = 0;
        int64_t params = 0;
        int count = plan_rows(p, &row);
        for (int k = 0; k < count; k++) {
            flops += row[k].flops;
            params += row[k].params;
            EXPECT(row[k].value_bytes > 0);
            EXPECT(k == 0 || row[k].node > row[k - 1].node);
        }
        EXPECT_NEAR(flops, plan_flops(p), 1);
        EXPECT_INT(params, params_trained(&q) + params_running(&q));
        // first convolution: 32 filters of 3 x 3 x 1 over 256 x 256
        EXPECT_NEAR(row[0].flops, 2.0 * 256 * 256 * 32 * 9, 0);
        EXPECT_INT(row[0].value_bytes, 256 * 256 * 32 * 4);
        // and the four vectors of the norm in its epilogue
        EXPECT_INT(row[0].ops.count, 3);
        EXPECT_INT(row[0].params, 32 * 9 + (rows[i].bias ? 32 : 0) + 4 * 32);
        plan_free(p);
        params_free(&q);
        net_free(&n);
    }
}

/* A copy of `r`'s spec must be refused. */
#define REFUSED(r, part)                                    \
    do {                                                    \
        Plan *refused = NULL;                               \
        EXPECT_FAIL(plan_build(&(r).spec, &refused), part); \
        EXPECT_INT(err_kind(), ERR_USAGE);                  \
    } while (0)

TEST(plan_refuses)
{
    Net n;
    PlanRig r;
    long live = mem_live();

    net_new(&n);
    int x = net_input(&n, "x", image, 2), out;
    int t = net_input(&n, "t", (Dims){1, 1, 8, 8, 4}, 2);
    int y = net_upconv(&n, net_pool(&n, x), 2);
    int in[MAX_IN] = {y, x, -1, -1, -1, -1};
    Attr concat = op_default(OP_concat);
    REQUIRE(graph_op(&n.g, &concat, in, "join", "net.lua:7", &out));
    n.root[n.roots++] = out;
    n.loss = net_op(&n, OP_mse, out, t, -1);
    plan_rig_open(&r, &n, &backend_ref, 1, 1);

    // odd sizes differ after pooling and upsampling
    r.input[0].dim.h = r.input[1].dim.h = 9;
    REFUSED(r, "net.lua:7: concat: 1x2x8x8 (N,C,H,W) and 1x2x9x8 (N,C,H,W)");
    r.input[0].dim = (Dims){1, 1, 8, 8, 3};
    REFUSED(r, "input \"x\" has shape 1x3x8x8 (N,C,H,W), want 1x2x8x8");
    r.input[0].dim = (Dims){0, 1, 8, 8, 2};
    REFUSED(r, "input \"x\" has shape 0x2x8x8");
    r.input[0].dim = (Dims){1, 2, 8, 8, 2};
    REFUSED(r, "input \"x\" has shape");
    r.input[0].dim = (Dims){1 << 30, 1, 1 << 15, 1 << 15, 2};
    REFUSED(r, "input \"x\" has shape");
    net_extents(&n, 2, r.input);
    r.input[1].dim.n = 1;
    REFUSED(r, "target of shape 1x4x8x8");
    r.spec.inputs = 1;
    REFUSED(r, "input \"t\" is missing");
    r.spec.inputs = 2;
    net_extents(&n, 1, r.input);
    r.spec.loss = out;
    REFUSED(r, "the loss has shape 1x4x8x8 (N,C,H,W), want one number");
    plan_rig_close(&r);
    net_free(&n);
    EXPECT_INT(mem_live(), live);
}

/* Extents that fit and sizes in bytes that do not, found when the batch size is
 * known. */
TEST(plan_too_large)
{
    Net n;
    PlanRig r;
    net_new(&n);
    int x = net_input(&n, "x", (Dims){1, 1, 1, 4096, 1024}, 1);
    n.root[n.roots++] = net_op(&n, OP_concat, x, x, -1);
    plan_rig_open(&r, &n, &backend_ref, 1, 1);
    r.input[0].dim.w = 1 << 19;
    r.input[0].dim.n = INT32_MAX;
    REFUSED(r, "too large to address");

    // two tensors that fit only separately
    r.input[0].dim.w = (1 << 18) - 1;
    Plan *p = NULL;
    EXPECT_FAIL(plan_build(&r.spec, &p), "more than this machine");
    plan_rig_close(&r);
    net_free(&n);
}

TEST(plan_batch_norm_of_one_value)
{
    Net n;
    PlanRig r;
    net_new(&n);
    int x = net_input(&n, "x", (Dims){1, 1, 1, 1, 4}, 0);
    n.root[n.roots++] = net_norm(&n, x);
    plan_rig_open(&r, &n, &backend_ref, 1, 1);
    r.spec.train = true;
    REFUSED(r, "batch_norm: one value a channel has no variance; train with a "
               "batch of 2");
    plan_rig_plan(&r, false);
    r.input[0].dim.n = 2;
    plan_rig_plan(&r, true);
    plan_rig_close(&r);
    net_free(&n);
}

TEST(plan_times_every_call)
{
    Net n;
    PlanRig r;
    PlanTime time[400];
    int count, backward = 0;

    net_small(&n);
    plan_rig_open(&r, &n, &backend_cpu, 1, 1);
    plan_rig_plan(&r, true);
    PlanRun run = {.step = plan_rig_step, .backward = true, .seed_grad = 1};
    REQUIRE(plan_time(r.plan, &run, time, 400, &count));
    EXPECT_INT(count, plan_calls(r.plan));

    for (int i = 0; i < count; i++) {
        EXPECT(time[i].ms >= 0);
        EXPECT(!(backward && !time[i].backward)); // all forward calls first
        backward += time[i].backward;
        EXPECT(n.g.node[time[i].node].kind == NODE_OP);
    }

    EXPECT(backward > count / 3 && backward < count);
    REQUIRE(plan_time(r.plan, &run, time, 3, &count));
    EXPECT_INT(count, 3);
    run.backward = false;
    REQUIRE(plan_time(r.plan, &run, time, 400, &count));
    EXPECT_INT(count, plan_calls(r.plan) - backward);
    plan_rig_close(&r);
    net_free(&n);
}

/* Names the first call with a result that is not finite, for any cause. */
TEST(plan_blames)
{
    Net n;
    PlanRig r;
    char text[256];

    net_new(&n);
    int x = net_input(&n, "x", image, 2), out, in[MAX_IN];
    int a = net_conv(&n, x, 2, 3), b = net_relu(&n, net_norm(&n, a));
    Attr div = op_default(OP_div);
    for (int i = 0; i < MAX_IN; i++) in[i] = -1;
    in[0] = b, in[1] = b;
    REQUIRE(graph_op(&n.g, &div, in, "ratio", "net.lua:12", &out));
    n.root[n.roots++] = net_op(&n, OP_sigmoid, out, -1, -1);
    plan_rig_open(&r, &n, &backend_cpu, 1, 2);
    plan_rig_plan(&r, true);
    REQUIRE(plan_blame(r.plan, &plan_rig_step, text, sizeof text, NULL));
    EXPECT_TEXT(text, "div (ratio, net.lua:12)"); // 0 / 0

    // the whole text, or as much as fits
    REQUIRE(plan_blame(r.plan, &plan_rig_step, text, 9, NULL));
    EXPECT_TEXT(text, "div (rat");

    // its contents: the norm's relu is 0 or more, so 0 / 0 is NaN
    Blame more;
    REQUIRE(plan_blame(r.plan, &plan_rig_step, text, sizeof text, &more));
    EXPECT(more.nan > 0 && more.inf == 0 && more.nan < more.count);
    EXPECT(more.lo == 1 && more.hi == 1);
    EXPECT(more.from_lo == 0 && more.from_hi > 0);

    // an infinite weight: an earlier call
    Tensor w = params_tensor(&r.params, 0, PARAM_VALUE, 0);
    double keep = tensor_get(&w, 3);
    tensor_set(&w, 3, INFINITY);
    REQUIRE(plan_blame(r.plan, &plan_rig_step, text, sizeof text, NULL));
    EXPECT(strstr(text, "conv (n"));
    tensor_set(&w, 3, keep);

    // an input: before all calls
    Tensor v = *plan_value(r.plan, x);
    tensor_set(&v, 5, NAN);
    REQUIRE(plan_blame(r.plan, &plan_rig_step, text, sizeof text, &more));
    EXPECT_TEXT(text, "input \"x\"");
    EXPECT_INT(more.nan, 1);
    EXPECT_INT(more.sample, 0);

    // the same in the second sample
    tensor_set(&v, 5, 0);
    tensor_set(&v, numel(v.dim) - 1, -INFINITY);
    REQUIRE(plan_blame(r.plan, &plan_rig_step, text, sizeof text, &more));
    EXPECT_INT(more.inf, 1);
    EXPECT_INT(more.sample, 1);
    plan_rig_close(&r);
    net_free(&n);

    // all results are finite
    net_small(&n);
    plan_rig_open(&r, &n, &backend_cpu, 1, 1);
    plan_rig_plan(&r, true);
    REQUIRE(plan_blame(r.plan, &plan_rig_step, text, sizeof text, NULL));
    EXPECT_TEXT(text, "");
    plan_rig_close(&r);
    net_free(&n);
}

TEST(plan_without_memory)
{
    Net n;
    PlanRig r;
    int failed = 0;

    net_small(&n);
    plan_rig_open(&r, &n, &backend_cpu, 1, 1);
    long live = mem_live();

    for (long k = 0; k < 60; k++) {
        Plan *p = NULL;
        mem_fail_after(k / 2, k % 2);
        bool ok = plan_build(&r.spec, &p);
        mem_fail_after(-1, false);
        if (!ok) EXPECT_FAIL(ok, "no memory");
        failed += !ok;
        plan_free(p);
        EXPECT_INT(mem_live(), live);
    }

    EXPECT(failed > 4 && failed < 60);
    plan_rig_close(&r);
    net_free(&n);
}
