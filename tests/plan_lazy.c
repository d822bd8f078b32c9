/* plan_lazy.c -- which norms a plan leaves to those who read. What kernels make
 * of that is in tests/emu/lens.c. */
#include "plan_inside.h"
#include "rig.h"
#include <string.h>

static unsigned narrow(const Call *c)
{
    switch (call_op(c)) {
    case OP_conv:
    case OP_batch_norm:
    case OP_relu:
    case OP_maxpool:
    case OP_sigmoid:
        return 1 | NARROW_Y;
    case OP_add:
        return 3 | NARROW_Y;
    default:
        return 0;
    }
}

static bool fuses(const Call *c)
{
    return c->lazy ? call_op(c) == OP_conv : call_op(c) == OP_batch_norm;
}

static unsigned sees(const Call *c)
{
    return call_op(c) == OP_conv || call_op(c) == OP_maxpool;
}

/* Nothing of this backend runs here. */
static Backend lazy_backend(void)
{
    Backend be = backend_cpu;
    be.narrow = narrow, be.fuses = fuses, be.sees = sees;
    be.beside = NULL;
    return be;
}

/* conv, norm, relu: the activation's node. */
static int layer(Net *n, int x)
{
    return net_relu(n, net_norm(n, net_conv(n, x, 8, 3)));
}

/* How many calls of a plan are lazy, and how many read through a lens, forward
 * and back. */
typedef struct Count {
    int lazy, sees, back;
} Count;

static Count counted(Rig *r)
{
    Count n = {0};
    for (int i = 0; i < r->plan->calls; i++) {
        const Call *c = &r->plan->call[i];
        if (is_convert(c)) continue;
        n.lazy += c->lazy && !is_backward(c);
        if (!c->lens[0]) continue;
        ++*(is_backward(c) ? &n.back : &n.sees);
        // what is seen is what the lazy call was told to leave
        EXPECT(c->lens[0]->norm->op == OP_batch_norm);
    }
    return n;
}

/* The network of `y` under a loss, planned; trained unless said. */
static void plan_of(Rig *r, Net *n, const Backend *be, int y, bool train)
{
    const int t = net_input(n, "t", n->g.node[y].y.dim, n->g.node[y].y.rank);
    n->root[n->roots++] = y;
    n->loss = net_op(n, OP_mse, y, t, -1);
    rig_open(r, n, be, 1, 2);
    r->spec.precision = PRECISION_bf16;
    r->spec.train = train;
    Plan *plan;
    REQUIRE(plan_build(&r->spec, &plan));
    r->plan = plan;
}

static void close_all(Rig *r, Net *n)
{
    plan_free(r->plan);
    r->plan = NULL;
    rig_close(r);
    net_free(n);
}

static int image(Net *n)
{
    net_new(n);
    return net_input(n, "x", (Dims){1, 1, 8, 8, 8}, 2);
}

TEST(plan_lazy_between_convolutions)
{
    Net n;
    Rig r;
    const Backend be = lazy_backend();
    const int a = layer(&n, image(&n)), b = layer(&n, a), p = net_pool(&n, b);
    plan_of(&r, &n, &be, net_conv(&n, p, 8, 3), true);
    const Count got = counted(&r);
    EXPECT_INT(got.lazy, 2);
    EXPECT_INT(got.sees, 2); // a convolution and the pool
    EXPECT_INT(got.back, 2);
    // nodes of a layer show its convolution, whose row names them
    const PlanNode *q = r.plan->node;
    EXPECT(q[a].same == q[a - 1].same && q[q[a].same].lazy);
    EXPECT(q[q[a].same].then == a && !plan_value(r.plan, a));
    char text[ROW_TEXT];
    EXPECT(
        !strcmp(row_text(r.plan, q[a].same, text), "conv + batch_norm + relu"));
    // the norm's gradients are made by the convolution's call, once
    for (int i = 0; i < r.plan->calls; i++) {
        const Call *c = &r.plan->call[i];
        if (!c->lazy || !is_backward(c)) continue;
        EXPECT(c->norm_dx[1] && c->norm_dx[2] && !c->norm_dx[3]);
        EXPECT_INT(c->fresh >> NORM_FRESH, 6);
        EXPECT_INT(r.plan->param_bits[i] >> NORM_FRESH, 6);
        // what it stored is there for the way back
        EXPECT(c->y == &q[c->node].first.x && q[c->node].read);
    }
    close_all(&r, &n);
}

/* Not where somebody cannot see, wants the value, or the norm has constants. */
TEST(plan_lazy_not_otherwise)
{
    enum { OTHER, ROOT, EVALUATION, PLAIN, TWICE, CASES };
    for (int how = 0; how < CASES; how++) {
        Net n;
        Rig r;
        const Backend be = lazy_backend();
        const int x = image(&n), a = layer(&n, x);
        int y = net_conv(&n, a, 8, 3);
        const int norm = n.g.node[a].in[0], conv = n.g.node[norm].in[0];
        if (how == OTHER) y = net_op(&n, OP_add, y, a, -1);
        if (how == ROOT) n.root[n.roots++] = a;
        // the convolution's own value is read by another, too
        if (how == TWICE) y = net_op(&n, OP_add, y, conv, -1);
        y = net_conv(&n, y, 8, 3); // so that the sum is narrow
        const int t = net_input(&n, "t", n.g.node[y].y.dim, 2);
        n.root[n.roots++] = y;
        n.loss = net_op(&n, OP_mse, y, t, -1);
        rig_open(&r, &n, &be, 1, 2);
        r.spec.precision = PRECISION_bf16;
        r.spec.train = how != EVALUATION;
        r.spec.plain = how == PLAIN;
        REQUIRE(plan_build(&r.spec, &r.plan));
        EXPECT_INT(counted(&r).lazy, 0);
        EXPECT_INT(counted(&r).sees, 0);
        close_all(&r, &n);
    }
}

/* What is dropped and made again is so through the same lenses. */
TEST(plan_lazy_made_again)
{
    Net n;
    Rig r;
    const Backend be = lazy_backend();
    int y = image(&n);
    for (int i = 0; i < 6; i++) y = layer(&n, y);
    plan_of(&r, &n, &be, net_conv(&n, y, 8, 3), true);
    EXPECT_INT(counted(&r).lazy, 6);
    r.spec.budget = plan_bytes(r.plan) * 9 / 10;
    plan_free(r.plan);
    REQUIRE(plan_build(&r.spec, &r.plan));
    EXPECT(plan_again(r.plan).dropped > 0);
    int again = 0, seeing = 0;
    for (int i = 0; i < r.plan->calls; i++) {
        const Call *c = &r.plan->call[i];
        if (!c->again) continue;
        EXPECT(c->lazy);
        again++, seeing += c->lens[0] != NULL;
        // statistics are those of the first making
        EXPECT_INT(r.plan->saved[i],
                   r.plan->saved[r.plan->node[c->node].first.call]);
    }
    EXPECT(again > 0 && seeing > 0);
    close_all(&r, &n);
}
