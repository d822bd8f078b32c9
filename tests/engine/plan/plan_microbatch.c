/* plan_microbatch.c -- micro-batches: when they are used, their savings, and
 * the state of a plan afterwards. plan_random.c and fuse.lua test that all bits
 * are those of the whole batch. */
#include "engine/plan/plan_inside.h"
#include "tests/support/plan_rig.h"

/* Makes a chain of 3x3 convolutions from 3 channels to the numbers given, a
 * list that ends with 0, for square images; and its evaluation plan. */
static void chain(Net *n, PlanRig *r, const Backend *be, int batch, int size,
                  const int *filters)
{
    net_new(n);
    int x = net_input(n, "x", (Dims){1, 1, size, size, 3}, 2);
    for (; *filters; filters++) x = net_conv(n, x, *filters, 3);
    n->root[n->roots++] = x;
    plan_rig_open(r, n, be, 1, batch);
    r->spec.train = false;
    REQUIRE(plan_build(&r->spec, &r->plan));
}

static void done(Net *n, PlanRig *r)
{
    plan_rig_close(r);
    net_free(n);
}

/* The choice of the CPU: micro-batches if a batch does not fit into a cache,
 * but not for layers with many weights, nor for one sample. */
TEST(plan_microbatches_of_the_cpu)
{
    Net n;
    PlanRig r;
    const int wide[] = {32, 32, 1, 0}, deep[] = {512, 512, 512, 0};

    chain(&n, &r, &backend_cpu, 8, 128, wide);
    REQUIRE(r.plan->groups == 1);
    const MicrobatchGroup *s = r.plan->group;

    // 4 MiB per sample in the second layer: 3, 3 and 2
    EXPECT(s->each == 3 && s->batch == 8 && s->microbatches == 3);
    EXPECT(s->first == 0 && s->end == plan_calls(r.plan));
    EXPECT_INT(plan_microbatched(r.plan), plan_calls(r.plan));
    const size_t bytes = plan_bytes(r.plan), naive = plan_naive_bytes(r.plan);
    plan_free(r.plan);
    r.spec.no_fusion = true;
    REQUIRE(plan_build(&r.spec, &r.plan));
    EXPECT_INT(plan_microbatched(r.plan), 0);
    EXPECT(2 * bytes < plan_bytes(r.plan));

    // the memory without a plan is that of the whole batch, except scratch
    EXPECT(naive > plan_naive_bytes(r.plan) * 9 / 10);
    plan_free(r.plan);

    // random draws depend on the sample's number in its batch; a backward pass
    // needs all samples
    r.spec.no_fusion = false;
    r.spec.mc_dropout = true;
    REQUIRE(plan_build(&r.spec, &r.plan));
    EXPECT_INT(plan_microbatched(r.plan), 0);
    plan_free(r.plan);
    r.spec.mc_dropout = false;
    r.spec.train = true;
    REQUIRE(plan_build(&r.spec, &r.plan));
    EXPECT_INT(plan_microbatched(r.plan), 0);
    done(&n, &r);
    chain(&n, &r, &backend_cpu, 2, 128, wide);
    EXPECT_INT(plan_microbatched(r.plan), 0);
    done(&n, &r);
    chain(&n, &r, &backend_cpu, 1, 1024, wide);
    EXPECT_INT(plan_microbatched(r.plan), 0);
    done(&n, &r);
    chain(&n, &r, &backend_cpu, 64, 16, deep);
    EXPECT_INT(plan_microbatched(r.plan), 0);
    done(&n, &r);
    chain(&n, &r, &backend_ref, 8, 128, wide);
    EXPECT_INT(plan_microbatched(r.plan), 0);
    done(&n, &r);
}

static Schedule by_two(const Call *c)
{
    (void)c;
    return (Schedule){.microbatch = 2};
}

/* Checks that the first root has the bits of the whole batch in micro-batches
 * of two; returns the number of calls that run so. */
static int microbatches(Net *n, const int32_t *inputs_n, int batch)
{
    PlanRig r;
    Arena mem = {NULL};
    Backend be = backend_cpu;

    be.schedule = by_two;
    be.program = NULL; // the calls of the operators are counted
    plan_rig_open(&r, n, &be, 2, batch);
    for (int k = 0; k < r.spec.inputs; k++)
        if (inputs_n) r.input[k].dim.n = inputs_n[k];
    r.spec.no_fusion = true;
    plan_rig_plan(&r, false);
    plan_rig_run(&r, false, false, 1);
    const Tensor *y = plan_value(r.plan, n->root[0]);
    const size_t bytes = tensor_bytes(y);
    void *want = arena_alloc(&mem, bytes);
    REQUIRE(want);
    memcpy(want, y->data, bytes);
    r.spec.no_fusion = false;
    plan_rig_plan(&r, false);
    plan_rig_run(&r, false, false, 1);
    EXPECT(!memcmp(want, plan_value(r.plan, n->root[0])->data, bytes));
    EXPECT(plan_rig_intact(&r));
    const int microbatched = plan_microbatched(r.plan);
    arena_release(&mem);
    plan_rig_close(&r);
    net_free(n);
    return microbatched;
}

/* Operands that are not samples: every micro-batch reads all of them. */
TEST(plan_microbatches_only_samples)
{
    enum { BATCH = 5, C = 4 };
    Net n;

    // the weights of a convolution are an input, with as many filters as
    // samples
    net_new(&n);
    int x = net_input(&n, "x", (Dims){1, 1, 6, 6, C}, 2);
    int w = net_input(&n, "w", (Dims){1, 1, 3, 3, C}, 2);
    Attr conv = op_default(OP_conv);
    conv.conv.ph0 = conv.conv.ph1 = conv.conv.pw0 = conv.conv.pw1 = 1;
    int y = net_row(&n, conv, (int[]){net_relu(&n, x), w}, 2);
    y = net_op(&n, OP_sigmoid, net_op(&n, OP_tanh, y, -1, -1), -1, -1);
    n.root[n.roots++] = y;
    EXPECT_INT(microbatches(&n, NULL, BATCH), 2); // only the calls after it

    // the weights of a linear layer are the batch itself
    net_new(&n);
    x = net_input(&n, "x", (Dims){1, 1, 1, 1, C}, 0);
    y = net_op(&n, OP_sigmoid, x, -1, -1);
    n.root[n.roots++] = net_op(&n, OP_linear, y, x, -1);
    EXPECT_INT(microbatches(&n, NULL, BATCH), 0);

    // a parameter with one value per sample
    net_new(&n);
    x = net_input(&n, "x", (Dims){1, 1, 6, 6, C}, 2);
    int p = net_param(&n, "each", (Dims){BATCH, 1, 1, 1, C}, 2,
                      (Init){INIT_UNIFORM, 1}, true);
    y = net_op(&n, OP_mul, net_conv(&n, net_relu(&n, x), C, 3), p, -1);
    n.root[n.roots++] = net_conv(&n, net_relu(&n, y), 2, 3);
    EXPECT_INT(microbatches(&n, NULL, BATCH), 4); // before it and after it

    // a table of vectors, and elements chosen within each sample
    net_new(&n);
    x = net_input(&n, "x", (Dims){1, 1, 6, 6, C}, 2);
    p = net_param(&n, "table", (Dims){C, 1, 1, 1, C}, 0,
                  (Init){INIT_UNIFORM, 1}, true);
    Attr most = op_default(OP_argmax), sort = op_default(OP_argsort);
    Attr gather = op_default(OP_gather);
    most.argmax.c = sort.argsort.w = gather.gather.w = 1;
    y = net_row(&n, most, (int[]){x}, 1);
    y = net_row(&n, op_default(OP_embedding), (int[]){p, y}, 2);
    y = net_row(&n, gather, (int[]){y, net_row(&n, sort, (int[]){x}, 1)}, 2);
    n.root[n.roots++] = net_op(&n, OP_sigmoid, y, -1, -1);
    EXPECT_INT(microbatches(&n, NULL, BATCH), 5);

    // the table is the batch itself
    net_new(&n);
    x = net_input(&n, "x", (Dims){1, 1, 1, 1, C}, 0);
    y = net_op(&n, OP_sigmoid, x, -1, -1);
    most.argmax.c = 1;
    p = net_row(&n, most, (int[]){x}, 1);
    n.root[n.roots++] = net_row(&n, op_default(OP_embedding), (int[]){y, p}, 2);
    EXPECT_INT(microbatches(&n, NULL, BATCH), 2); // only the calls before it

    // a value of all samples, and an input with n = 1
    net_new(&n);
    x = net_input(&n, "x", (Dims){1, 1, 6, 6, C}, 2);
    int one = net_input(&n, "one", (Dims){1, 1, 1, 1, C}, 2);
    p = net_param(&n, "all", (Dims){1, 1, 6, 1, C}, 2, (Init){INIT_UNIFORM, 1},
                  true);
    y = net_op(&n, OP_add, net_op(&n, OP_mul, net_relu(&n, x), p, -1), x, -1);
    y = net_op(&n, OP_add, net_relu(&n, y), one, -1);
    n.root[n.roots++] = net_relu(&n, y);
    EXPECT_INT(microbatches(&n, (int32_t[]){BATCH, 1}, BATCH), 3);
}

/* scale, failing at its third call. */
static int scales;

static bool scale_thrice(const Call *c)
{
    if (++scales == 3) return fail_usage("the third");
    return backend_cpu.fwd[OP_scale](c);
}

/* Do all tensors of all calls have the extents of the batch? */
static void is_whole(const PlanRig *r, int32_t batch)
{
    const Plan *p = r->plan;
    EXPECT_INT(p->group_at, -1);
    for (int c = 0; c < p->calls; c++) {
        EXPECT_INT(p->call[c].y->dim.n, batch);
        EXPECT_INT(p->call[c].x[0]->dim.n, batch);
        EXPECT(p->call[c].y->data ==
               plan_address(p, p->node[p->call[c].node].first.value));
    }
}

TEST(plan_is_whole_again)
{
    enum { BATCH = 6 };
    Net n;
    PlanRig r;
    char text[256];
    Blame more;
    PlanTime time[8];
    int count;
    Backend be = backend_cpu;
    be.schedule = by_two;
    be.fwd[OP_scale] = scale_thrice;
    be.program = NULL;
    net_new(&n);
    int x = net_input(&n, "x", (Dims){1, 1, 4, 4, 2}, 2);
    Attr scale = op_default(OP_scale);
    scale.scale.mul = 1e30f;
    int y = net_row(&n, scale, (int[]){net_conv(&n, x, 2, 1)}, 1);
    n.root[n.roots++] = net_op(&n, OP_sigmoid, y, -1, -1);
    plan_rig_open(&r, &n, &be, 1, BATCH);
    plan_rig_plan(&r, false);
    REQUIRE(r.plan->groups == 1 && plan_microbatched(r.plan) == 3);
    is_whole(&r, BATCH);

    // each call three times
    EXPECT(r.plan->group[0].each == 2 && r.plan->group[0].microbatches == 3);
    scales = 0;
    const PlanRun run = {.step = plan_rig_step};
    EXPECT_FAIL(plan_run(r.plan, &run), "the third");
    is_whole(&r, BATCH);
    scales = 3;
    REQUIRE(plan_run(r.plan, &run));
    EXPECT_INT(scales, 6);
    is_whole(&r, BATCH);
    REQUIRE(plan_time(r.plan, &run, time, 8, &count));
    EXPECT_INT(count, 3);
    EXPECT_INT(scales, 9);
    is_whole(&r, BATCH);
    for (int i = 0; i < 3; i++) EXPECT(time[i].ms > 0);
    scales = 0;
    EXPECT_FAIL(plan_time(r.plan, &run, time, 8, &count), "the third");
    is_whole(&r, BATCH);

    // the second and fifth sample overflow: in the first and the last
    // micro-batch
    Tensor t = *plan_value(r.plan, x);
    for (int i = 0; i < 32; i++) {
        tensor_set(&t, 1 * 32 + i, 1e20);
        tensor_set(&t, 4 * 32 + i, 1e20);
    }
    REQUIRE(plan_blame(r.plan, &plan_rig_step, text, sizeof text, &more));
    EXPECT(strstr(text, "scale"));
    EXPECT_INT(more.sample, 1);
    EXPECT_INT(more.count, BATCH * 32);
    EXPECT(more.inf > 32 && more.inf <= 64 && more.nan == 0);
    EXPECT(more.from_hi - more.from_lo > 1e19 && more.lo <= more.hi);

    // an earlier call with a fault in the last micro-batch comes first in the
    // forward run
    for (int i = 0; i < 32; i++) tensor_set(&t, 4 * 32 + i, 3e38);
    tensor_set(&t, 4 * 32, -3e38);
    Tensor w = params_tensor(&r.params, 0, PARAM_VALUE, 0);
    for (int i = 0; i < 4; i++) tensor_set(&w, i, i % 2 ? 4 : 3);
    REQUIRE(plan_blame(r.plan, &plan_rig_step, text, sizeof text, &more));
    EXPECT(strstr(text, "conv"));
    EXPECT_INT(more.sample, 4);
    is_whole(&r, BATCH);
    scales = 1;
    EXPECT_FAIL(plan_blame(r.plan, &plan_rig_step, text, sizeof text, &more),
                "the third");
    is_whole(&r, BATCH);
    EXPECT(plan_rig_intact(&r));
    plan_rig_close(&r);
    net_free(&n);
}
