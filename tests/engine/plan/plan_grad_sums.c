/* plan_grad_sums.c -- which backward calls sum the gradients that they store.
 * What kernels make of that is in tests/emu/close.c. */
#include "engine/plan/plan_inside.h"
#include "tests/support/deferring_backend.h"

/* Calls that close a gradient. Each is the last that adds to it, has room for
 * the sums until they are read, and sees what the lens shows; `own`: it makes
 * the reader's gradients of them. */
static int closings(const PlanRig *r, bool own)
{
    const Plan *p = r->plan;
    int count = 0;
    for (int c = 0; c < p->calls; c++) {
        if (!p->call[c].grad_sums[0]) continue;
        const int v = operand_of(p, p->call[c].node, 0);
        const PlanNode *q = &p->node[v];
        EXPECT(is_backward(&p->call[c]) && q->sums_by == c && q->bwd > c);
        EXPECT(p->call[q->bwd].dy_sums == p->call[c].grad_sums[0]);
        EXPECT_INT(q->grad_sums.dim.c, grad_sums_size(8));
        EXPECT(p->call[c].sums_for[0] == (own ? &p->call[q->bwd] : NULL));
        EXPECT(p->call[q->bwd].grads_written == own);
        EXPECT_INT(p->buffer[q->sums].first, c);
        EXPECT_INT(p->buffer[q->sums].last, q->bwd);
        for (int i = c + 1; i < p->calls; i++)
            EXPECT(p->call[i].dx[0] != p->call[c].dx[0]);
        count++;
    }
    return count;
}

static int closing(const PlanRig *r)
{
    return closings(r, true);
}

/* Of parameters that two norms share each makes a part, in the order of the
 * calls: nothing is made before its turn. */
TEST(plan_grad_sums_shared_parameters)
{
    Net n;
    PlanRig r;
    const Backend be = deferring_backend();
    const int a = net_norm(&n, net_conv(&n, deferred_image(&n), 8, 3));
    const int b = net_norm(&n, net_conv(&n, net_relu(&n, a), 8, 3));
    for (int k = 1; k <= 2; k++) n.g.node[b].in[k] = n.g.node[a].in[k];
    deferred_plan(&r, &n, &be, net_conv(&n, net_relu(&n, b), 8, 3), true,
                  false);
    EXPECT_INT(closings(&r, false), 2);
    plan_rig_drop(&r);
}

TEST(plan_grad_sums_between_convolutions)
{
    for (int plain = 0; plain < 2; plain++) {
        Net n;
        PlanRig r;
        const Backend be = deferring_backend();
        const int a = deferred_layer(&n, deferred_image(&n)),
                  b = deferred_layer(&n, a);
        deferred_plan(&r, &n, &be, net_conv(&n, b, 8, 3), true, plain);
        EXPECT_INT(closing(&r), plain ? 0 : 2);
        plan_rig_drop(&r);
    }
}

static unsigned pools_close(const Call *c)
{
    return call_op(c) == OP_maxpool && c->dx[0];
}

/* What closes a gradient wants what a lens shows; without one nobody keeps what
 * only extents are wanted of. */
TEST(plan_grad_sums_keeps_operand_of_deferred_norm)
{
    for (int deferred_norm = 0; deferred_norm < 2; deferred_norm++) {
        Net n;
        PlanRig r;
        Backend be = deferring_backend();
        be.sums_grads = pools_close;
        int a = deferred_image(&n);
        n.bias = true;
        a = deferred_norm ? deferred_layer(&n, a) : net_conv(&n, a, 8, 3);
        deferred_plan(&r, &n, &be, net_conv(&n, net_pool(&n, a), 8, 3), true,
                      false);
        const PlanNode *q = &r.plan->node[r.plan->node[a].same];
        EXPECT_INT(closing(&r), 1);
        EXPECT_INT(q->first.late, deferred_norm ? q->sums_by : -1);
        plan_rig_drop(&r);
    }
}

/* Of several readers the last on the way back, if it can. */
TEST(plan_grad_sums_last_reader)
{
    for (int first = 0; first < 2; first++) {
        Net n;
        PlanRig r;
        const Backend be = deferring_backend();
        const int a = deferred_layer(&n, deferred_image(&n));
        int y[2] = {-1, -1};
        // what comes first forward comes last on the way back
        for (int i = 0; i < 2; i++)
            y[i] = i == first ? net_pool(&n, a) : net_conv(&n, a, 8, 3);
        const int wide = y[!first];
        const int sum = net_op(&n, OP_add, net_pool(&n, wide), y[first], -1);
        deferred_plan(&r, &n, &be, net_conv(&n, sum, 8, 3), true, false);
        EXPECT_INT(closing(&r), first != 0);
        plan_rig_drop(&r);
    }
}

/* A bias that is trained is a sum, too; one that is not wants none. */
TEST(plan_grad_sums_bias)
{
    for (int bias = 0; bias < 2; bias++) {
        Net n;
        PlanRig r;
        const Backend be = deferring_backend();
        const int x = deferred_image(&n);
        n.bias = bias;
        const int a = net_conv(&n, x, 8, 3);
        deferred_plan(&r, &n, &be, net_conv(&n, a, 8, 3), true, false);
        EXPECT_INT(closing(&r), bias);
        plan_rig_drop(&r);
    }
}

/* What is dropped is there again when the call that closes reads it. */
TEST(plan_grad_sums_recomputed)
{
    Net n;
    PlanRig r;
    const Backend be = deferring_backend();
    deferred_long(&r, &n, &be);
    EXPECT_INT(closing(&r), 6);
    deferred_less(&r);
    const Plan *p = r.plan;
    EXPECT_INT(closing(&r), 6);
    for (int c = 0; c < p->calls; c++) {
        if (!p->call[c].grad_sums[0]) continue;
        const PlanNode *q = &p->node[operand_of(p, p->call[c].node, 0)];
        if (q->dropped)
            EXPECT(q->recomputed.call >= 0 && q->recomputed.call < c);
    }
    plan_rig_drop(&r);
}
