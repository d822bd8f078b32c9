/* plan_random.c -- random networks: a plan against reference_run.h, gradients
 * against differences.
 *
 * Whatever the planner shares, drops, fuses or does in place, the bits of every
 * root, gradient and running statistic are those of reference_run.h. The pool
 * starts as NaN, so a read before the first write is detected, and is as large
 * as plan_bytes says, with a canary after it. */
#include "engine/base/rng.h"
#include "engine/plan/plan_inside.h"
#include "tests/support/bf16_backend.h"
#include "tests/support/op_call.h"
#include "tests/support/plan_rig.h"
#include "tests/support/reference_run.h"

/* Random numbers of one network. */
typedef struct Random {
    Rng rng;
    uint32_t next;
} Random;

static int roll(Random *d, int sides)
{
    return (int)rng_below(&d->rng, d->next++, (uint32_t)sides);
}

enum { MOST = 72 };

/* Values so far that may be operands. */
typedef struct Grown {
    Net *n;
    Random d;
    int value[MOST], values;
    bool smooth; /* no kinks: for differences */
} Grown;

static Dims dims_of(const Grown *g, int i)
{
    return g->n->g.node[i].y.dim;
}

static int pick(Grown *g)
{
    // often the newest, so that the network is deep as well as wide
    int from = roll(&g->d, 2) ? (g->values > 2 ? g->values - 2 : 0) : 0;
    return g->value[from + roll(&g->d, g->values - from)];
}

/* Returns a value with the extents of x (possibly x itself); any channels if
 * `wide`. */
static int match(Grown *g, int x, bool wide)
{
    for (int tries = 0; tries < 8; tries++) {
        int y = g->value[roll(&g->d, g->values)];
        Dims a = dims_of(g, x), b = dims_of(g, y);
        if (wide) b.c = a.c;
        if (dims_equal(a, b)) return y;
    }
    return x;
}

static int vector(Grown *g, int x)
{
    g->n->layers++;
    return net_param(g->n, "vector", (Dims){1, 1, 1, 1, dims_of(g, x).c},
                     RANK_VECTOR, (Init){INIT_UNIFORM, 1}, true);
}

/* Makes a convolution with the weight of an earlier one of the same shape. */
static int shared_conv(Grown *g, int x)
{
    Net *n = g->n;
    for (int i = 0; i < n->g.count; i++) {
        Node *p = &n->g.node[i];
        if (p->kind != NODE_OP || p->attr.op != OP_conv ||
            dims_of(g, p->in[1]).c != dims_of(g, x).c)
            continue;
        return net_row(n, p->attr, (int[]){x, p->in[1], p->in[2]}, 3);
    }
    return net_conv(n, x, 1 + roll(&g->d, 4), 3);
}

static int one_of(Grown *g, int x, const Op *op, int count)
{
    return net_op(g->n, op[roll(&g->d, count)], x, -1, -1);
}

/* Downsamples, upsamples and joins the original value: a small U. */
static int down_and_up(Grown *g, int x)
{
    Net *n = g->n;
    Attr avg = op_default(OP_avgpool);
    avg.avgpool.kh = avg.avgpool.kw = avg.avgpool.sh = avg.avgpool.sw = 2;
    int y = g->smooth ? net_row(n, avg, &x, 1) : net_pool(n, x);
    y = net_op(n, OP_silu, net_conv(n, y, 2, 3), -1, -1);
    if (roll(&g->d, 2)) return net_upconv(n, y, 2);
    Attr up = op_default(OP_upsample_linear);
    up.upsample_linear.fh = up.upsample_linear.fw = 2;
    return net_row(n, up, &y, 1);
}

/* Makes a concat with as many channels as a backend may accept as implicit. */
static int wide(Grown *g, int x, int y)
{
    int a = net_conv(g->n, x, 16, 3), b = net_conv(g->n, y, 3, 3);
    if (roll(&g->d, 3) == 0) g->value[g->values++] = a;
    if (roll(&g->d, 3) == 0) g->value[g->values++] = b;
    x = net_op(g->n, OP_concat, a, roll(&g->d, 4) ? b : y, -1);
    return net_conv(g->n, x, 16, 3);
}

/* Sorts x along w, or the places along both axes. */
static int sorted(Grown *g, int x)
{
    Attr sort = op_default(OP_argsort), gather = op_default(OP_gather);
    sort.argsort.w = gather.gather.w = 1;
    sort.argsort.h = gather.gather.h = roll(&g->d, 2);
    const int index = net_row(g->n, sort, &x, 1);
    return net_row(g->n, gather, (int[]){x, index}, 2);
}

static int grow(Grown *g)
{
    static const Op smooth[] = {OP_sigmoid, OP_tanh,    OP_gelu,
                                OP_silu,    OP_softmax, OP_scale};
    static const Op kinked[] = {OP_relu, OP_relu, OP_leaky_relu};
    static const Op random[] = {OP_dropout, OP_spatial_dropout};
    static const Op noise[] = {OP_normal, OP_uniform};
    static const Op norms[] = {OP_instance_norm, OP_group_norm, OP_layer_norm};
    static const Op pairs[] = {OP_add, OP_add, OP_sub, OP_mul};
    Net *n = g->n;
    int x = pick(g), y = match(g, x, false);
    n->bias = roll(&g->d, 2);

    switch (roll(&g->d, 16)) {
    case 0:
    case 1:
        return net_conv(n, x, 1 + roll(&g->d, 4), 1 + 2 * roll(&g->d, 2));
    case 2:
        return shared_conv(g, x);
    case 3:
        return net_norm(n, x);
    case 4:
        return one_of(g, x, norms, 3);
    case 5:
    case 6:
        return g->smooth ? one_of(g, x, smooth, 6) : one_of(g, x, kinked, 3);
    case 7:
        return one_of(g, x, smooth, 6);
    case 8:
        return one_of(g, x, random, 2);
    case 9:
        return net_op(n, pairs[roll(&g->d, 4)], x, y, -1);
    case 10:
        return net_op(n, pairs[roll(&g->d, 4)], x, vector(g, x), -1);
    case 11: // operators that a backend may fuse
        if (roll(&g->d, 2)) x = net_conv(n, x, 1 + roll(&g->d, 4), 3);
        x = roll(&g->d, 3) ? net_norm(n, x) : net_op(n, OP_add, x, x, -1);
        if (roll(&g->d, 4) == 0) x = one_of(g, x, random, 2);
        return g->smooth ? x : one_of(g, x, kinked, 3);
    case 12:
        return wide(g, x, y);
    case 13:
        return g->smooth ? one_of(g, x, smooth, 6) : sorted(g, x);
    case 14:
        return net_op(n, OP_add, x, one_of(g, x, noise, 2), -1);
    default:
        if (roll(&g->d, 2) && dims_of(g, x).h == 8) return down_and_up(g, x);
        if (dims_of(g, x).c > 8) return net_conv(n, x, 2, 1);
        return net_op(n, OP_concat, x, match(g, x, true),
                      roll(&g->d, 2) ? match(g, x, true) : -1);
    }
}

/* Makes a sum of some losses of some values, each with its own target. */
static int losses(Grown *g)
{
    static const Op rows[] = {OP_mse,       OP_bce,   OP_bce_dice,
                              OP_dice_loss, OP_huber, OP_focal};
    int sum = -1, count = 1 + roll(&g->d, 3);

    for (int i = 0; i < count; i++) {
        int x = i ? pick(g) : g->value[g->values - 1];
        char name[16];
        snprintf(name, sizeof name, "t%d", i);
        int t = net_input(g->n, name, dims_of(g, x), 2);
        int loss = net_op(g->n, rows[roll(&g->d, 6)], x, t, -1);
        sum = sum < 0 ? loss : net_op(g->n, OP_add, sum, loss, -1);
    }

    Attr scale = op_default(OP_scale);
    scale.scale.mul = 0.5f;
    return roll(&g->d, 2) ? net_row(g->n, scale, &sum, 1) : sum;
}

/* Makes network number `c`. */
static void make(Net *n, uint32_t c, bool smooth)
{
    Grown g = {.n = n, .smooth = smooth};
    g.d.rng = (Rng){.seed = 6, .stream = RNG_TEST, .sample = c};
    net_new(n);
    int x = net_input(n, "x", (Dims){1, 1, 8, 8, 2}, 2);
    g.value[g.values++] = x;
    if (roll(&g.d, 3) == 0)
        g.value[g.values++] = net_input(n, "unused", (Dims){1, 1, 8, 8, 1}, 2);
    g.value[g.values++] = net_conv(n, x, 3, 3);
    for (int steps = 3 + roll(&g.d, 18); steps > 0; steps--)
        g.value[g.values++] = grow(&g);
    n->loss = losses(&g);
    n->root[n->roots++] = g.value[g.values - 1];
    for (int i = roll(&g.d, 4); i > 0; i--) n->root[n->roots++] = pick(&g);
}

/* Freezes some parameters: gradients stop there. */
static void freeze(PlanRig *r, uint32_t c)
{
    Rng g = {.seed = 10, .stream = RNG_TEST, .sample = c};
    for (int i = 0; i < r->params.count; i++)
        r->params.list[i].frozen = rng_below(&g, (uint32_t)i, 4) == 0;
}

static void same_bytes(const char *what, uint32_t c, const void *got,
                       const void *want, size_t bytes)
{
    if (memcmp(got, want, bytes))
        test_failed(__FILE__, __LINE__, "network %u: %s differ", c, what);
}

/* Drops one in `every` values that backward calls read, whatever that frees or
 * costs; returns their number. */
static int drop_some(PlanRig *r, uint32_t c, uint32_t every)
{
    Plan *p = r->plan;
    Rng g = {.seed = 11, .stream = RNG_TEST, .sample = c};
    int count = 0;

    for (int i = 0; i < p->nodes; i++) {
        PlanNode *q = &p->node[i];
        if (!q->used || q->alias_of != i || q->first.call < 0 ||
            plan_keeps(p, i))
            continue;
        q->dropped = !q->read || rng_below(&g, (uint32_t)i, every) == 0;
        q->saves_again = !q->read && rng_below(&g, (uint32_t)i, every) == 1;
        count += q->read && q->dropped;
    }

    plan_calls_make(p);
    REQUIRE(plan_lifetimes(p) && plan_place(p));
    plan_rig_pool(r);
    return count;
}

/* Compares the plan with a run without plan; twice, since inputs outlive a
 * run. */
static void compare_planned(PlanRig *r, uint32_t c)
{
    size_t real = dtype_bytes(r->be->real);
    size_t all = (size_t)r->params.total * real;
    size_t trained = (size_t)r->params.trained * real;
    const void *input[8];
    ReferenceRun u;
    Arena mem = {NULL};
    void *start = arena_alloc(&mem, all);

    REQUIRE(start);
    memcpy(start, r->params.value, all);
    for (int k = 0; k < r->spec.inputs; k++)
        input[k] = plan_rig_input(r, k, &mem);
    REQUIRE(reference_run(&r->spec, r->dev, &plan_rig_step, 0.75, input, &u));

    for (int turn = 0; turn < 2; turn++) {
        memcpy(r->params.value, start, all);
        if (r->spec.loss >= 0) memset(r->params.grad, 0, trained);
        plan_rig_run(r, true, false, 0.75);
        EXPECT(plan_rig_intact(r));
        same_bytes("parameters or running statistics", c, r->params.value,
                   u.value, all);
        same_bytes("gradients", c, r->params.grad, u.grad, trained);
        for (int i = 0; i < r->spec.roots; i++) {
            const Tensor *t = plan_value(r->plan, r->spec.root[i]);
            REQUIRE(t);
            same_bytes("roots", c, t->data, u.y[r->spec.root[i]].data,
                       tensor_bytes(t));
        }
    }

    memcpy(r->params.value, start, all);
    arena_release(&u.mem);
    arena_release(&mem);
}

/* Counts operators fused into other calls. */
static int fused_rows(const Plan *p)
{
    const PlanRow *row;
    int count = 0, rows = plan_rows(p, &row);
    for (int i = 0; i < rows; i++) count += row[i].ops.count - 1;
    return count;
}

/* Compares a plan in one mode. Returns how much memory it saved. */
static double compare(PlanRig *r, uint32_t c, bool train)
{
    plan_rig_plan(r, train);
    compare_planned(r, c);
    return (double)plan_bytes(r->plan) / (double)plan_naive_bytes(r->plan);
}

/* The same with recomputed values: the bits are unchanged, and running
 * statistics are updated once. Returns the number of values. */
static int with_dropped(PlanRig *r, uint32_t c)
{
    int count = 0;
    for (uint32_t every = 1; every < 4; every++) {
        plan_rig_plan(r, true);
        count += drop_some(r, c, every);
        compare_planned(r, c);
    }
    return count;
}

/* The same within budgets: with the minimum of memory, and halfway to it. */
static void within_budgets(PlanRig *r, uint32_t c)
{
    plan_rig_plan(r, true);
    size_t all = plan_bytes(r->plan);
    r->spec.budget = 1;
    r->spec.least = true;
    compare(r, c, true);
    size_t least = plan_bytes(r->plan);
    EXPECT(least <= all && plan_recomputed(r->plan).kept_bytes == all);
    r->spec.least = false;
    for (int half = 0; half < 2; half++) {
        r->spec.budget = least + (half ? (all - least) / 2 : 0);
        compare(r, c, true);
        EXPECT(plan_bytes(r->plan) <= r->spec.budget);
    }
    r->spec.budget = 0;
}

static void equals_reference_run(const Backend *be, Precision p, uint32_t cases)
{
    double share = 0;
    int recomputed = 0, fused = 0, implicit = 0;

    if (given_once()) cases /= 3; // a sanitized build
    for (uint32_t c = 0; c < cases; c++) {
        Net n;
        PlanRig r;
        make(&n, c, false);
        plan_rig_open(&r, &n, be, 1 + (int)(c % 3), 1 + (int)(c % 2));
        r.spec.precision = p;
        if (c % 3 == 0) freeze(&r, c);
        share += compare(&r, c, true);
        fused += fused_rows(r.plan), implicit += plan_rig_implicit_concats(&r);
        recomputed += with_dropped(&r, c);
        within_budgets(&r, c);
        compare(&r, c, false);
        fused += fused_rows(r.plan);
        r.spec.loss = -1;
        memset(r.params.grad, 0,
               (size_t)r.params.trained * dtype_bytes(be->real));
        compare(&r, c, true);
        compare(&r, c, false);
        plan_rig_close(&r);
        net_free(&n);
    }

    EXPECT(share / cases < 0.8); // otherwise nothing was shared
    EXPECT(recomputed > 2 * (int)cases);
    EXPECT(be->fusions ? fused > (int)cases / 8 : !fused);
    EXPECT(be->fusions && p == PRECISION_f32 ? implicit > (int)cases / 16
                                             : !implicit);
}

TEST(plan_equals_no_plan_on_ref)
{
    equals_reference_run(&backend_ref, PRECISION_f32, 150);
}

TEST(plan_equals_no_plan_on_cpu)
{
    equals_reference_run(&backend_cpu, PRECISION_f32, 150);
}

/* 16-bit copies keep their values as long as they are read, even if the memory
 * of the original is reused. */
TEST(plan_equals_no_plan_with_copies)
{
    Backend be = half_backend();
    equals_reference_run(&be, PRECISION_bf16, 150);
}

/* One sample at a time, whatever the cost; for every seventh node the whole
 * batch, so that groups end. */
static Schedule by_one(const Call *c)
{
    return (Schedule){.microbatch = c->node % 7 ? 1 : 0};
}

static Schedule by_two(const Call *c)
{
    return (Schedule){.microbatch = c->node % 7 ? 2 : 0};
}

/* Calls on micro-batches have the bits of calls on the whole batch, and need no
 * more memory. */
static void in_microbatches(Backend be, Precision p)
{
    const int cases = given_once() ? 50 : 150, batch[] = {2, 3, 4, 6};
    int groups = 0, uneven = 0;
    double share = 0;

    for (int c = 0; c < cases; c++) {
        Net n;
        PlanRig r;
        make(&n, (uint32_t)c, false);
        n.loss = -1;
        be.schedule = NULL;
        plan_rig_open(&r, &n, &be, 1 + c % 3, batch[c % 4]);
        r.spec.precision = p;
        plan_rig_plan(&r, false);
        const size_t whole = plan_bytes(r.plan);
        be.schedule = c & 8 ? by_one : by_two;
        compare(&r, (uint32_t)c, false);
        share += (double)plan_bytes(r.plan) / (double)whole / cases;
        groups += r.plan->groups;
        for (int i = 0; i < r.plan->groups; i++)
            uneven += batch[c % 4] % r.plan->group[i].each != 0;
        r.spec.no_fusion = true;
        plan_rig_plan(&r, false);
        EXPECT_INT(r.plan->groups, 0);
        plan_rig_close(&r);
        net_free(&n);
    }

    EXPECT(groups > cases / 2 && uneven > cases / 36); // 3 as 2 + 1
    EXPECT(share < 1.005);
}

TEST(plan_in_microbatches)
{
    in_microbatches(backend_cpu, PRECISION_f32);
    in_microbatches(backend_ref, PRECISION_f32);
    in_microbatches(half_backend(), PRECISION_bf16);
}

/* Compares d loss / d parameter of the plan with central differences. */
static void differences(PlanRig *r, uint32_t c)
{
    const Params *q = &r->params;
    double *value = q->value, step = 1e-5;

    for (int i = 0; i < q->count; i++) {
        const Param *a = &q->list[i];
        int64_t count = numel(a->dim), stride = count / 12 + 1;
        for (int64_t k = 0; a->trained && k < count; k += stride) {
            double *p = &value[a->at + k], keep = *p;
            *p = keep + step;
            plan_rig_run(r, false, false, 1);
            double up = plan_rig_value(r, r->spec.loss, 0);
            *p = keep - step;
            plan_rig_run(r, false, false, 1);
            double down = plan_rig_value(r, r->spec.loss, 0);
            *p = keep;
            double got = plan_rig_grad(r, a->at + k),
                   want = (up - down) / 2 / step;
            if (!(fabs(got - want) <= 1e-6 * (1 + fabs(want))))
                test_failed(__FILE__, __LINE__,
                            "network %u, %s[%lld]: %.12g, want %.12g", c,
                            a->name, (long long)k, got, want);
        }
    }
}

TEST(plan_gradients_are_finite_differences)
{
    const uint32_t cases = given_once() ? 10 : 40;
    for (uint32_t c = 0; c < cases; c++) {
        Net n;
        PlanRig r;
        make(&n, 1000 + c, true);
        plan_rig_open(&r, &n, &backend_ref, 1, 2);
        // batch statistics, then running statistics
        for (int train = 1; train >= 0; train--) {
            plan_rig_plan(&r, train);
            plan_rig_run(&r, true, false, 1);
            differences(&r, c);
        }
        plan_rig_close(&r);
        net_free(&n);
    }
}
