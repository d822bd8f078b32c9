/* plan_half.c -- the values that a plan stores in 16 bits.
 * engine/check/ophalf.c tests the kernels, tests/cuda whole networks. */
#include "engine/plan/plan_inside.h"
#include "tests/support/plan_rig.h"

/* 16 bits for operands and results of products, activations and sums, and for
 * the operand only of a global pool. */
static unsigned narrow(const Call *c)
{
    switch (call_op(c)) {
    case OP_conv:
        return 1 | 1u << X2 | NARROW_Y;
    case OP_relu:
    case OP_sigmoid:
        return 1 | NARROW_Y;
    case OP_add:
        return 3 | NARROW_Y;
    case OP_global_avgpool: // lengths are operand 1
        return 1;
    case OP_mask_length:
        return 1 | NARROW_Y;
    case OP_concat:
        return 3 | NARROW_Y | NARROW_ALONE;
    default:
        return 0;
    }
}

static Storage storage(const Call *c)
{
    return (Storage){narrow(c), backend_cpu.storage(c).copies};
}

/* A backend that only plans: no kernel runs. */
static Backend narrow_backend(void)
{
    Backend be = backend_cpu;
    be.storage = storage;
    be.fusions = NULL;
    return be;
}

static void plan_of(PlanRig *r, Net *n, const Backend *be, Precision p)
{
    plan_rig_open(r, n, be, 1, 2);
    r->spec.precision = p;
    Plan *plan;
    REQUIRE(plan_build(&r->spec, &plan));
    r->plan = plan;
}

/* Returns the common type of a value and its gradient. */
static Dtype type_of(const PlanRig *r, int node)
{
    const PlanNode *q = &r->plan->node[node];
    EXPECT_INT(q->dx.type, q->first.x.type);
    return q->first.x.type;
}

static int image(Net *n)
{
    net_new(n);
    return net_input(n, "x", (Dims){1, 1, 6, 6, 8}, 2);
}

/* Makes `y` the root, and its mean square error against a target the loss. */
static void ends(Net *n, int y)
{
    int t = net_input(n, "t", n->g.node[y].y.dim, n->g.node[y].y.rank);
    n->root[n->roots++] = y;
    n->loss = net_op(n, OP_mse, y, t, -1);
}

TEST(plan_narrow_between_inputs_and_roots)
{
    Net n;
    PlanRig r;
    const Backend be = narrow_backend();
    int x = image(&n), a = net_conv(&n, x, 16, 3), b = net_relu(&n, a);
    int odd = net_conv(&n, b, 12, 3), c = net_relu(&n, odd);
    int last = net_conv(&n, c, 8, 3);

    ends(&n, last);
    plan_of(&r, &n, &be, PRECISION_bf16);
    EXPECT_INT(type_of(&r, x), F32);
    EXPECT_INT(type_of(&r, a), BF16);
    EXPECT_INT(type_of(&r, b), BF16);

    // channels that do not divide, a root, a loss
    EXPECT_INT(type_of(&r, odd), F32);
    EXPECT_INT(type_of(&r, c), F32);
    EXPECT_INT(type_of(&r, last), F32);
    EXPECT_INT(type_of(&r, n.loss), F32);

    // copies are of f32 values: x, c, four weights; dy of two
    int copies = 0;

    for (int i = 0; i < r.plan->calls; i++) {
        const Call *call = &r.plan->call[i];
        copies += is_convert(call);
        for (int k = 0; k < MAX_IN; k++)
            EXPECT(!call->half.x[k] || !is_narrow(call->x[k]));
        EXPECT(!call->half.dy || !is_narrow(call->dy));
    }

    EXPECT_INT(copies, 2 + 3 + 2);
    plan_rig_drop(&r);
}

TEST(plan_narrow_of_no_other_precision)
{
    static const Precision p[] = {PRECISION_f32, PRECISION_bf16};
    for (int i = 0; i < 2; i++) {
        Net n;
        PlanRig r;
        Backend be = narrow_backend();
        int a = net_conv(&n, image(&n), 8, 3);
        ends(&n, net_conv(&n, a, 8, 3));
        if (i) be.storage = backend_cpu.storage;
        plan_of(&r, &n, &be, p[i]);
        EXPECT_INT(type_of(&r, a), F32);
        plan_rig_drop(&r);
    }
}

TEST(plan_narrow_rows_have_one_type)
{
    // the root makes its activation f32, which makes the sum f32, both
    // branches, and in one of them the value before its activation; but not
    // before a convolution
    Net n;
    PlanRig r;
    const Backend be = narrow_backend();
    int x = image(&n), first = net_conv(&n, x, 8, 3);
    int left = net_relu(&n, net_conv(&n, first, 8, 3));
    int before = n.g.node[left].in[0], right = net_conv(&n, first, 8, 1);
    int sum = net_op(&n, OP_add, left, right, -1);

    ends(&n, net_op(&n, OP_sigmoid, sum, -1, -1));
    plan_of(&r, &n, &be, PRECISION_bf16);
    EXPECT_INT(type_of(&r, first), BF16);
    EXPECT_INT(type_of(&r, before), F32);
    EXPECT_INT(type_of(&r, left), F32);
    EXPECT_INT(type_of(&r, right), F32);
    EXPECT_INT(type_of(&r, sum), F32);
    plan_rig_drop(&r);
}

TEST(plan_narrow_operand_of_a_wide_result)
{
    // an operator that takes a 16-bit operand and returns f32; and one that
    // takes none
    for (int all = 0; all < 2; all++) {
        Net n;
        PlanRig r;
        const Backend be = narrow_backend();
        int a = net_conv(&n, image(&n), 8, 3), b = net_relu(&n, a);
        int p =
            net_op(&n, all ? OP_global_maxpool : OP_global_avgpool, b, -1, -1);
        ends(&n, p);
        plan_of(&r, &n, &be, PRECISION_bf16);
        EXPECT_INT(type_of(&r, b), all ? F32 : BF16);
        EXPECT_INT(type_of(&r, a), all ? F32 : BF16);
        EXPECT_INT(type_of(&r, p), F32);
        plan_rig_drop(&r);
    }
}

/* A concat of inputs is stored in 16 bits, with any number of channels, if only
 * products read it and it needs no gradient. */
TEST(plan_narrow_alone)
{
    enum { ONE, TWO, READ, ROOT, TRAINED, CASES };
    for (int how = 0; how < CASES; how++) {
        Net n;
        PlanRig r;
        const Backend be = narrow_backend();
        int x = image(&n);
        int z = net_input(&n, "z", (Dims){1, 1, 6, 6, 3}, 2);
        if (how == TRAINED) x = net_conv(&n, x, 8, 3);
        int both = net_op(&n, OP_concat, x, z, -1);
        int y = net_conv(&n, both, 8, 3);
        if (how == TWO) y = net_op(&n, OP_add, y, net_conv(&n, both, 8, 1), -1);
        if (how == READ) n.root[n.roots++] = net_relu(&n, both);
        if (how == ROOT) n.root[n.roots++] = both;
        ends(&n, net_conv(&n, y, 8, 3));
        plan_of(&r, &n, &be, PRECISION_bf16);
        EXPECT_INT(type_of(&r, both), how <= TWO ? BF16 : F32);
        EXPECT_INT(type_of(&r, x), F32);
        int copies = 0;
        for (int i = 0; i < r.plan->calls; i++) {
            const Call *c = &r.plan->call[i];
            copies += is_convert(c) && c->node == both;
        }
        EXPECT_INT(copies, how > TWO);
        plan_rig_drop(&r);
    }
}

static bool no_upload(void *dev, const Tensor *to, const float *host)
{
    (void)dev, (void)to, (void)host;
    return false;
}

/* An input is stored in 16 bits if all its readers are products, or operators
 * with all operands in 16 bits. */
TEST(plan_narrow_inputs)
{
    enum { BOTH, OTHER, TARGET, ROOT, WIDE, NONE, CASES };
    for (int how = 0; how < CASES; how++) {
        Net n;
        PlanRig r;
        Backend be = narrow_backend();
        int x = image(&n);
        int z = net_input(&n, "z", (Dims){1, 1, 6, 6, 3}, 2);
        int u = net_input(&n, "u", (Dims){1, 1, 6, 6, 1}, 2);
        int both = net_op(&n, OP_concat, x, z, -1);
        int y = net_conv(&n, both, 8, 3);
        y = net_op(&n, OP_add, y, net_conv(&n, u, 8, 3), -1);
        if (how == OTHER)
            y = net_op(&n, OP_add, y, net_conv(&n, net_relu(&n, x), 8, 3), -1);
        if (how == TARGET) // of a loss
            n.root[n.roots++] =
                net_op(&n, OP_mse, net_conv(&n, y, 3, 1), z, -1);
        if (how == ROOT) n.root[n.roots++] = x;
        ends(&n, net_conv(&n, y, 8, 3));
        be.upload_narrow = how == NONE ? NULL : no_upload;
        plan_of(&r, &n, &be, how == WIDE ? PRECISION_f32 : PRECISION_bf16);
        const bool narrow = how != WIDE && how != NONE;
        // one operand of a concat in f32 keeps the other in f32
        EXPECT_INT(type_of(&r, x), how == BOTH ? BF16 : F32);
        EXPECT_INT(type_of(&r, z), how == BOTH ? BF16 : F32);
        EXPECT_INT(type_of(&r, u), narrow ? BF16 : F32);
        EXPECT_INT(type_of(&r, both), how == WIDE ? F32 : BF16);
        plan_rig_drop(&r);
    }
}

static Fusions concat_of_products(const Call *c)
{
    return (Fusions){.concat = op_multiplies(call_op(c))};
}

/* An implicit concat has a type, in case it becomes explicit. */
TEST(plan_narrow_concat_in_parts)
{
    enum { FEATURES, MIXED, GIVEN, CASES };
    for (int how = 0; how < CASES; how++) {
        Net n;
        PlanRig r;
        Backend be = narrow_backend();
        be.fusions = concat_of_products;
        int x = image(&n), b = net_conv(&n, x, 8, 3);
        int a = how == GIVEN ? x : net_conv(&n, b, 8, 3);
        if (how == GIVEN) b = net_input(&n, "b", (Dims){1, 1, 6, 6, 3}, 2);
        if (how == MIXED) n.root[n.roots++] = b;
        int both = net_op(&n, OP_concat, a, b, -1);
        ends(&n, net_conv(&n, both, 8, 3));
        plan_of(&r, &n, &be, PRECISION_bf16);
        EXPECT(!r.plan->node[both].used);
        EXPECT_INT(r.plan->node[both].first.x.type, how == MIXED ? F32 : BF16);
        plan_rig_drop(&r);
    }
}

/* Lengths are not data, even if their reader's other operand is in 16 bits. */
TEST(plan_narrow_lengths)
{
    Net n;
    PlanRig r;
    Backend be = narrow_backend();

    be.upload_narrow = no_upload;
    net_new(&n);
    int x = net_input(&n, "x", (Dims){1, 1, 1, 9, 8}, 1);
    int lengths = net_input(&n, "n", (Dims){1, 1, 1, 1, 1}, 0);
    int y = net_conv(&n, x, 8, 1);
    y = net_op(&n, OP_mask_length, y, lengths, -1);
    ends(&n, net_conv(&n, y, 8, 1));
    plan_of(&r, &n, &be, PRECISION_bf16);
    EXPECT_INT(type_of(&r, y), BF16);
    EXPECT_INT(type_of(&r, x), BF16);
    EXPECT_INT(type_of(&r, lengths), F32);
    plan_rig_drop(&r);
}

TEST(plan_narrow_halves_the_pool)
{
    Net n;
    PlanRig r;
    Backend be = narrow_backend();

    net_new(&n);
    int y = net_input(&n, "x", (Dims){1, 1, 48, 48, 8}, 2);
    for (int i = 0; i < 8; i++) y = net_relu(&n, net_conv(&n, y, 8, 3));
    ends(&n, net_conv(&n, y, 1, 1));
    plan_of(&r, &n, &be, PRECISION_bf16);
    const size_t bytes = plan_bytes(r.plan);
    plan_free(r.plan);
    be.storage = backend_cpu.storage;
    REQUIRE(plan_build(&r.spec, &r.plan));
    EXPECT(bytes < plan_bytes(r.plan) * 6 / 10);
    plan_rig_drop(&r);
}
