/* plan_concat.c -- implicit concats, with convolutions that read both operands:
 * the same bits as with explicit concats; concats that stay explicit; the
 * memory saved. plan_random.c has random networks. */
#include "engine/plan/plan_inside.h"
#include "tests/support/plan_rig.h"

/* Further readers of the operands, and frozen parts. */
enum {
    EARLY = 1,  /* the skip has a reader before the concat       */
    LATE = 2,   /* the first operand has a reader after it       */
    FIRST = 4,  /* no gradient for the first operand ..          */
    SECOND = 8, /* .. or for the second                          */
    INPUT = 16  /* the second operand is an input of the network */
};

typedef struct Case {
    Dims x; /* n: of the batch */
    int first, second, filters, how;
} Case;

/* Makes two branches, their concat, a convolution of it, its norm and
 * activation. The parameters that `how` freezes have names that begin with
 * "p1." or "p2.". */
static int case_net(Net *n, const Case *k)
{
    Dims one = k->x, wide = k->x;
    const int rank = one.d > 1 ? 3 : 2;
    one.n = wide.n = 1, wide.c = k->second;
    net_new(n);
    n->bias = true;
    int x = net_input(n, "x", one, rank);
    int b = net_conv(n, x, k->second, 3), a = net_conv(n, x, k->first, 3);
    if (k->how & INPUT) b = net_input(n, "skip", wide, rank);
    if (!(k->how & (FIRST | SECOND))) a = net_relu(n, net_norm(n, a));
    int early = k->how & EARLY ? net_conv(n, b, 4, 3) : -1;
    int y = net_conv(n, net_op(n, OP_concat, a, b, -1), k->filters, 3);
    y = net_relu(n, net_norm(n, y));
    int z = net_conv(n, y, 4, 1);
    if (early >= 0) z = net_op(n, OP_add, z, early, -1);
    if (k->how & LATE) z = net_op(n, OP_add, z, net_conv(n, a, 4, 3), -1);
    n->root[n->roots++] = y;
    Dims t = k->x;
    t.n = 1, t.c = 4;
    n->loss = net_op(n, OP_mse, z, net_input(n, "t", t, rank), -1);
    return y;
}

/* Options of a run of a case, and its result. */
typedef struct How {
    int threads;
    bool plain, train, dropped;
} How;

typedef struct Got {
    char *bytes; /* roots, parameters and gradients */
    size_t count;
    int calls, concats, recomputed;
} Got;

static void put(Got *g, Arena *mem, const void *from, size_t bytes)
{
    char *all = arena_alloc(mem, g->count + bytes);
    REQUIRE(all);
    if (g->count) memcpy(all, g->bytes, g->count);
    memcpy(all + g->count, from, bytes);
    g->bytes = all, g->count += bytes;
}

static void freeze(PlanRig *r, const char *prefix)
{
    for (int i = 0; i < r->params.count; i++)
        if (!strncmp(r->params.list[i].name, prefix, strlen(prefix)))
            r->params.list[i].frozen = true;
}

/* Drops all values that the backward pass reads; returns their number. */
static int drop_all(PlanRig *r)
{
    Plan *p = r->plan;
    int count = 0;

    for (int i = 0; i < p->nodes; i++) {
        PlanNode *q = &p->node[i];
        if (!q->used || q->alias_of != i || q->first.call < 0 ||
            plan_keeps(p, i))
            continue;
        q->dropped = true;
        count += q->read;
    }

    plan_calls_make(p);
    REQUIRE(plan_lifetimes(p) && plan_place(p));
    plan_rig_pool(r);
    return count;
}

static Got run_case(const Case *k, How how, Arena *mem)
{
    Net n;
    PlanRig r;
    Got got = {0};
    const int y = case_net(&n, k);

    if (!how.train) n.loss = -1;
    plan_rig_open(&r, &n, &backend_cpu, how.threads, k->x.n);
    r.spec.no_fusion = how.plain;
    if (k->how & FIRST) freeze(&r, "p2.");
    if (k->how & SECOND) freeze(&r, "p1.");
    plan_rig_plan(&r, how.train);
    got.calls = plan_calls(r.plan);
    got.concats = plan_rig_implicit_concats(&r);
    if (how.dropped) got.recomputed = drop_all(&r);
    const size_t real = sizeof(float);
    memset(r.params.grad, 0, (size_t)r.params.trained * real);

    // the second run adds to the gradients of the first
    for (int turn = 0; turn < 2; turn++) {
        plan_rig_run(&r, how.train, turn > 0, 0.75);
        EXPECT(plan_rig_intact(&r));
        const Tensor *t = plan_value(r.plan, y);
        REQUIRE(t);
        put(&got, mem, t->data, tensor_bytes(t));
        put(&got, mem, r.params.grad, (size_t)r.params.trained * real);
        put(&got, mem, r.params.value, (size_t)r.params.total * real);
    }

    plan_rig_close(&r);
    net_free(&n);
    return got;
}

static void same(const Case *k, How how, const Got *got, const Got *want)
{
    if (got->count != want->count ||
        memcmp(got->bytes, want->bytes, got->count))
        test_failed(__FILE__, __LINE__,
                    "%d + %d channels to %d, how %d, %d threads, %s%s: bits",
                    k->first, k->second, k->filters, k->how, how.threads,
                    how.train ? "training" : "evaluation",
                    how.dropped ? ", values recomputed" : "");
}

/* Boundaries inside and at the ends of chunks of channels (of x and of its
 * gradient, few blocks and many), odd extents, windows with depth. */
static const Case cases[] = {
    {{2, 1, 9, 11, 3}, 16, 5, 20, 0},
    {{2, 1, 7, 7, 3}, 48, 33, 17, EARLY | LATE},
    {{2, 1, 21, 18, 2}, 32, 32, 24, EARLY},
    {{1, 1, 8, 9, 2}, 96, 104, 70, LATE},
    {{1, 1, 7, 9, 2}, 160, 150, 130, EARLY | LATE},
    {{2, 1, 13, 10, 4}, 16, 40, 16, FIRST},
    {{2, 1, 13, 10, 4}, 16, 40, 16, SECOND | EARLY},
    {{2, 1, 13, 10, 4}, 16, 21, 33, INPUT},
    {{2, 3, 9, 7, 2}, 16, 19, 18, EARLY | LATE},
    {{1, 5, 7, 8, 2}, 80, 30, 66, EARLY},
};
enum { CASES = sizeof cases / sizeof *cases };

TEST(implicit_concat_same_bits)
{
    for (int i = 0; i < CASES; i++)
        for (int train = 0; train < 2; train++) {
            Arena mem = {NULL};
            const Case *k = &cases[i];
            How how = {.threads = 1, .plain = true, .train = train};
            Got want = run_case(k, how, &mem);
            EXPECT_INT(want.concats, 0);
            how.plain = false;
            for (how.threads = 1; how.threads < 5; how.threads++) {
                Got got = run_case(k, how, &mem);
                same(k, how, &got, &want);
                EXPECT_INT(got.concats, 1);
                EXPECT(got.calls < want.calls);
            }
            arena_release(&mem);
        }
}

/* A concat within a concat, which a convolution reads after a dropout (which in
 * evaluation shows the concat) and another convolution reads directly: the
 * inner concat has two readers, so it is explicit. */
TEST(implicit_concat_not_where_two_read)
{
    for (int between = 0; between < 2; between++) {
        Arena mem = {NULL};
        Got got[2] = {{0}};
        for (int plain = 0; plain < 2; plain++) {
            Net n;
            PlanRig r;
            net_new(&n);
            int x = net_input(&n, "x", (Dims){1, 1, 9, 11, 3}, 2);
            int a = net_conv(&n, x, 16, 3), b = net_conv(&n, x, 16, 3);
            int s = net_conv(&n, x, 16, 3);
            int inner = net_op(&n, OP_concat, a, b, -1);
            int outer = net_op(&n, OP_concat, inner, s, -1);
            if (between) outer = net_op(&n, OP_dropout, outer, -1, -1);
            n.root[n.roots++] = net_conv(&n, outer, 16, 3);
            n.root[n.roots++] = net_conv(&n, inner, 16, 3);
            plan_rig_open(&r, &n, &backend_cpu, 1, 2);
            r.spec.no_fusion = plain;
            plan_rig_plan(&r, false);
            plan_rig_run(&r, false, false, 1);
            for (int i = 0; i < n.roots; i++) {
                const Tensor *t = plan_value(r.plan, n.root[i]);
                REQUIRE(t);
                put(&got[plain], &mem, t->data, tensor_bytes(t));
            }
            plan_rig_close(&r);
            net_free(&n);
        }
        EXPECT_INT(got[0].count, got[1].count);
        EXPECT(!memcmp(got[0].bytes, got[1].bytes, got[1].count));
        arena_release(&mem);
    }
}

TEST(implicit_concat_recomputed)
{
    for (int i = 0; i < CASES; i++) {
        Arena mem = {NULL};
        How how = {.threads = 2, .plain = true, .train = true};
        Got want = run_case(&cases[i], how, &mem);
        how.plain = false, how.dropped = true;
        Got got = run_case(&cases[i], how, &mem);
        same(&cases[i], how, &got, &want);
        EXPECT(got.recomputed > 2);
        arena_release(&mem);
    }
}

/* The brain network: evaluation needs a fifth less memory. A training step has
 * its maximum where all values are kept, and the parts of an implicit concat
 * are as large as the whole. */
TEST(implicit_concat_takes_less)
{
    size_t bytes[2][2], naive[2][2];
    for (int plain = 0; plain < 2; plain++)
        for (int train = 0; train < 2; train++) {
            Net n;
            PlanRig r;
            const Dims one = {1, 1, 256, 256, 1};
            net_new(&n);
            int y = net_unet(&n, net_input(&n, "x", one, 2), 32, 4);
            n.root[n.roots++] = y;
            int t = net_input(&n, "t", one, 2);
            if (train) n.loss = net_op(&n, OP_bce, y, t, -1);
            plan_rig_open(&r, &n, &backend_cpu, 2, 4);
            r.spec.no_fusion = plain, r.spec.train = train;
            Plan *p;
            REQUIRE(plan_build(&r.spec, &p)); // no pool is needed
            bytes[plain][train] = plan_bytes(p);
            naive[plain][train] = plan_naive_bytes(p);
            plan_free(p);
            plan_rig_close(&r);
            net_free(&n);
        }

    EXPECT(bytes[0][0] < 0.8 * (double)bytes[1][0]);
    EXPECT(bytes[0][1] <= bytes[1][1]);
    EXPECT(naive[0][1] < 0.85 * (double)naive[1][1]);
}

static Fusions no_concat(const Call *c)
{
    Fusions f = backend_cpu.fusions(c);
    f.concat = false;
    return f;
}

/* With recomputation concats are explicit: the minimum of memory is that of a
 * plan without implicit concats. */
TEST(implicit_concat_not_within_a_budget)
{
    size_t least[2], all[2];
    int values[2]; // read by the backward pass

    for (int implicit = 0; implicit < 2; implicit++) {
        Net n;
        PlanRig r;
        Backend be = backend_cpu;
        if (!implicit) be.fusions = no_concat;
        case_net(&n, &cases[2]);
        plan_rig_open(&r, &n, &be, 1, 2);
        plan_rig_plan(&r, true);
        all[implicit] = plan_bytes(r.plan);
        // the budget is the full memory: nothing changes
        r.spec.budget = all[implicit];
        plan_rig_plan(&r, true);
        EXPECT_INT(plan_rig_implicit_concats(&r), implicit);
        r.spec.budget = 1, r.spec.least = true;
        plan_rig_plan(&r, true);
        EXPECT_INT(plan_rig_implicit_concats(&r), 0);
        least[implicit] = plan_bytes(r.plan);
        values[implicit] = plan_recomputed(r.plan).values;
        plan_rig_close(&r);
        net_free(&n);
    }

    EXPECT(least[0] == least[1] && least[1] < all[1]);
    EXPECT_INT(values[0], values[1]);
}

// -- explicit concats ---------------------------------------------------------

/* Returns the number of implicit concats in the plan of `n`. */
static int count_of(Net *n, const Backend *be, bool train, bool no_winograd,
                    Precision precision)
{
    PlanRig r;
    plan_rig_open(&r, n, be, 1, 2);
    r.spec.no_winograd = no_winograd;
    r.spec.precision = precision;
    plan_rig_plan(&r, train);
    const int count = plan_rig_implicit_concats(&r);
    plan_rig_close(&r);
    return count;
}

static int count_on_cpu(Net *n)
{
    return count_of(n, &backend_cpu, true, false, PRECISION_f32);
}

TEST(implicit_concat_where_the_backend_can)
{
    const struct {
        int first, second, filters, kernel;
        bool takes;
    } rows[] = {{16, 5, 16, 3, true},  {20, 16, 16, 3, false},
                {16, 16, 8, 3, false}, {16, 16, 16, 5, false},
                {48, 1, 33, 3, true},  {8, 8, 16, 3, false}};

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        Net n;
        net_new(&n);
        int x = net_input(&n, "x", (Dims){1, 1, 8, 8, 3}, 2);
        int a = net_conv(&n, x, rows[i].first, 3);
        int b = net_conv(&n, x, rows[i].second, 3);
        int y = net_op(&n, OP_concat, a, b, -1);
        n.root[n.roots++] = net_conv(&n, y, rows[i].filters, rows[i].kernel);
        EXPECT_INT(count_on_cpu(&n), rows[i].takes);
        EXPECT_INT(count_of(&n, &backend_ref, true, false, PRECISION_f32), 0);
        EXPECT_INT(count_of(&n, &backend_cpu, true, true, PRECISION_f32), 0);
        EXPECT_INT(count_of(&n, &backend_cpu, false, false, PRECISION_bf16), 0);
        net_free(&n);
    }
}

/* A concat with another use is explicit; so is a concat of three values, or of
 * one value twice, and one with a reader of its operands between it and its own
 * reader. */
TEST(implicit_concat_not_where_the_concat_is_wanted)
{
    enum { ALONE, DROPPED, ROOT, READ, THREE, TWICE, BETWEEN, UPCONV, WAYS };
    for (int how = 0; how < WAYS; how++) {
        Net n;
        net_new(&n);
        int x = net_input(&n, "x", (Dims){1, 1, 8, 8, 3}, 2);
        int a = net_conv(&n, x, 16, 3), b = net_conv(&n, x, 16, 3);
        int y = net_op(&n, OP_concat, a, how == TWICE ? a : b,
                       how == THREE ? x : -1);
        if (how == DROPPED) y = net_op(&n, OP_dropout, y, -1, -1);
        if (how == ROOT) n.root[n.roots++] = y;
        if (how == READ) n.root[n.roots++] = net_pool(&n, y);
        if (how == BETWEEN) n.root[n.roots++] = net_relu(&n, b);
        n.root[n.roots++] =
            how == UPCONV ? net_upconv(&n, y, 16) : net_conv(&n, y, 16, 3);
        EXPECT_INT(count_on_cpu(&n), how == ALONE);
        EXPECT_INT(count_of(&n, &backend_cpu, false, false, PRECISION_f32),
                   how == ALONE || how == DROPPED);
        net_free(&n);
    }
}

static Fusions fuses_upconv(const Call *c)
{
    return (Fusions){.concat = call_op(c) == OP_upconv};
}

/* A transposed convolution may read an implicit concat, too: the FLOPs that the
 * plan reports for it count the channels of both operands. */
TEST(implicit_concat_of_an_upconv)
{
    double flops[2];
    for (int implicit = 0; implicit < 2; implicit++) {
        Net n;
        PlanRig r;
        Backend be = backend_cpu; // its kernels do not run here
        be.fusions = implicit ? fuses_upconv : no_concat;
        net_new(&n);
        int x = net_input(&n, "x", (Dims){1, 1, 8, 8, 3}, 2);
        int a = net_conv(&n, x, 16, 3), b = net_conv(&n, x, 24, 3);
        int y = net_upconv(&n, net_op(&n, OP_concat, a, b, -1), 16);
        n.root[n.roots++] = y;
        plan_rig_open(&r, &n, &be, 1, 2);
        plan_rig_plan(&r, false);
        EXPECT_INT(plan_rig_implicit_concats(&r), implicit);
        flops[implicit] = plan_flops(r.plan);
        plan_rig_close(&r);
        net_free(&n);
    }
    EXPECT_NEAR(flops[1], flops[0], 0);
}

/* Gradients of the two operands in the call that the backend was asked
 * about. */
static unsigned wanted;

static Fusions fuses_inputs(const Call *c)
{
    if (!c->x[X2]) return (Fusions){0};
    wanted = (c->dx[0] ? 1 : 0) | (c->dx[X2] ? 2 : 0);
    return (Fusions){.concat = !wanted};
}

TEST(implicit_concat_asks_with_gradients)
{
    static const struct {
        int how;
        bool train;
        unsigned wanted;
    } rows[] = {{0, true, 3},     {INPUT, true, 1},         {SECOND, true, 1},
                {FIRST, true, 2}, {FIRST | INPUT, true, 0}, {0, false, 0}};

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const Case k = {{2, 1, 8, 8, 3}, 16, 5, 16, rows[i].how};
        Net n;
        PlanRig r;
        Backend be = backend_cpu;
        be.fusions = fuses_inputs;
        case_net(&n, &k);
        if (!rows[i].train) n.loss = -1;
        plan_rig_open(&r, &n, &be, 1, 2);
        if (k.how & FIRST) freeze(&r, "p2.");
        if (k.how & SECOND) freeze(&r, "p1.");
        plan_rig_plan(&r, rows[i].train);
        EXPECT_INT(wanted, rows[i].wanted);
        EXPECT_INT(plan_rig_implicit_concats(&r), !rows[i].wanted);
        plan_rig_close(&r);
        net_free(&n);
    }
}

/* After a value that is not finite, the message names all operators, and the
 * concat has no value. */
TEST(implicit_concat_blame)
{
    Net n;
    char text[ERR_MAX];
    Blame more;
    const int y = case_net(&n, &cases[0]);

    net_open(&n, "cpu", 1, NULL);
    Plan *p = net_plan(&n, true, 2);
    net_feed(&n, p, 1);
    const PlanRow *row;
    int concat = -1, rows = plan_rows(p, &row);
    for (int i = 0; i < rows; i++)
        if (n.g.node[row[i].ops.node[0]].attr.op == OP_concat)
            concat = row[i].ops.node[0];
    EXPECT(plan_value(p, y) && !plan_value(p, concat));
    Params *params = session_params(n.s);
    for (int i = 0; i < params->count; i++)
        if (!strcmp(params->list[i].name, "p4.weight")) {
            Tensor w = params_tensor(params, i, PARAM_VALUE, 0);
            tensor_set(&w, 0, NAN);
        }

    REQUIRE(session_blame(n.s, p, text, sizeof text, &more));
    EXPECT(strstr(text, "concat + conv"));

    // the operands are two tensors
    EXPECT(more.from_lo > more.from_hi);
    net_free(&n);
}
