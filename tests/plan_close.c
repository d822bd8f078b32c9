/* plan_close.c -- which backward calls sum the gradients that they store. What
 * kernels make of that is in tests/emu/close.c. */
#include "plan_inside.h"
#include "rig.h"

static unsigned narrow(const Call *c)
{
    switch (call_op(c)) {
    case OP_conv:
    case OP_batch_norm:
    case OP_relu:
    case OP_maxpool:
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

static unsigned closes(const Call *c)
{
    return call_op(c) == OP_conv && c->dx[0];
}

/* Nothing of this backend runs here. */
static Backend closing_backend(void)
{
    Backend be = backend_cpu;
    be.narrow = narrow, be.fuses = fuses, be.sees = sees, be.closes = closes;
    be.beside = NULL;
    return be;
}

/* conv, norm, relu: the activation's node. */
static int layer(Net *n, int x)
{
    return net_relu(n, net_norm(n, net_conv(n, x, 8, 3)));
}

static int image(Net *n)
{
    net_new(n);
    return net_input(n, "x", (Dims){1, 1, 8, 8, 8}, 2);
}

/* The network of `y` under a loss, planned for training. */
static void plan_of(Rig *r, Net *n, const Backend *be, int y, bool plain)
{
    const int t = net_input(n, "t", n->g.node[y].y.dim, n->g.node[y].y.rank);
    n->root[n->roots++] = y;
    n->loss = net_op(n, OP_mse, y, t, -1);
    rig_open(r, n, be, 1, 2);
    r->spec.precision = PRECISION_bf16;
    r->spec.train = true, r->spec.plain = plain;
    REQUIRE(plan_build(&r->spec, &r->plan));
}

static void close_all(Rig *r, Net *n)
{
    plan_free(r->plan);
    r->plan = NULL;
    rig_close(r);
    net_free(n);
}

/* Calls that close a gradient. Each is the last that adds to it, has room for
 * the sums until they are read, and sees what the lens shows. */
static int closing(const Rig *r)
{
    const Plan *p = r->plan;
    int count = 0;
    for (int c = 0; c < p->calls; c++) {
        if (!p->call[c].total[0]) continue;
        const int v = operand_of(p, p->call[c].node, 0);
        const PlanNode *q = &p->node[v];
        EXPECT(is_backward(&p->call[c]) && q->closer == c && q->bwd > c);
        EXPECT(p->call[q->bwd].dy_total == p->call[c].total[0]);
        EXPECT_INT(q->total.dim.c, 2 * 8 + 1);
        EXPECT_INT(p->buffer[q->sums].first, c);
        EXPECT_INT(p->buffer[q->sums].last, q->bwd);
        for (int i = c + 1; i < p->calls; i++)
            EXPECT(p->call[i].dx[0] != p->call[c].dx[0]);
        count++;
    }
    return count;
}

TEST(plan_close_between_convolutions)
{
    for (int plain = 0; plain < 2; plain++) {
        Net n;
        Rig r;
        const Backend be = closing_backend();
        const int a = layer(&n, image(&n)), b = layer(&n, a);
        plan_of(&r, &n, &be, net_conv(&n, b, 8, 3), plain);
        EXPECT_INT(closing(&r), plain ? 0 : 2);
        close_all(&r, &n);
    }
}

/* Of several readers the last on the way back, if it can. */
TEST(plan_close_last_reader)
{
    for (int first = 0; first < 2; first++) {
        Net n;
        Rig r;
        const Backend be = closing_backend();
        const int a = layer(&n, image(&n));
        int y[2] = {-1, -1};
        // what comes first forward comes last on the way back
        for (int i = 0; i < 2; i++)
            y[i] = i == first ? net_pool(&n, a) : net_conv(&n, a, 8, 3);
        const int wide = y[!first];
        const int sum = net_op(&n, OP_add, net_pool(&n, wide), y[first], -1);
        plan_of(&r, &n, &be, net_conv(&n, sum, 8, 3), false);
        EXPECT_INT(closing(&r), first != 0);
        close_all(&r, &n);
    }
}

/* A bias that is trained is a sum, too; one that is not wants none. */
TEST(plan_close_bias)
{
    for (int bias = 0; bias < 2; bias++) {
        Net n;
        Rig r;
        const Backend be = closing_backend();
        const int x = image(&n);
        n.bias = bias;
        const int a = net_conv(&n, x, 8, 3);
        plan_of(&r, &n, &be, net_conv(&n, a, 8, 3), false);
        EXPECT_INT(closing(&r), bias);
        close_all(&r, &n);
    }
}

/* What is dropped is there again when the call that closes reads it. */
TEST(plan_close_made_again)
{
    Net n;
    Rig r;
    const Backend be = closing_backend();
    int y = image(&n);
    for (int i = 0; i < 6; i++) y = layer(&n, y);
    plan_of(&r, &n, &be, net_conv(&n, y, 8, 3), false);
    EXPECT_INT(closing(&r), 6);
    r.spec.budget = plan_bytes(r.plan) * 9 / 10;
    plan_free(r.plan);
    REQUIRE(plan_build(&r.spec, &r.plan));
    const Plan *p = r.plan;
    EXPECT(plan_again(p).dropped > 0);
    EXPECT_INT(closing(&r), 6);
    for (int c = 0; c < p->calls; c++) {
        if (!p->call[c].total[0]) continue;
        const PlanNode *q = &p->node[operand_of(p, p->call[c].node, 0)];
        if (q->dropped) EXPECT(q->again.call >= 0 && q->again.call < c);
    }
    close_all(&r, &n);
}
