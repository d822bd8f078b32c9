/* plan_grad_sums.c -- backward calls that sum the gradients that they store.
 * tests/cuda/kernels/grad_sums.c tests the kernels. */
#include "engine/plan/plan_inside.h"
#include "tests/support/deferring_backend.h"

/* Counts calls with gradient sums. Each is the last that adds to its gradient,
 * its sums have memory until they are read, and it has the deferred norm of its
 * operand; `own`: it also writes the reader's gradients that depend on the
 * sums. */
static int grad_sum_calls(const PlanRig *r, bool own)
{
    const Plan *p = r->plan;
    int count = 0;

    for (int c = 0; c < p->calls; c++) {
        if (!p->call[c].sums.dx[0]) continue;
        const int v = operand_of(p, p->call[c].node, 0);
        const PlanNode *q = &p->node[v];
        EXPECT(is_backward(&p->call[c]) && q->sums_by == c && q->bwd > c);
        EXPECT(p->call[q->bwd].sums.dy == p->call[c].sums.dx[0]);
        EXPECT_INT(q->grad_sums.dim.c, grad_sums_size(8));
        EXPECT(p->call[c].sums.reader[0] == (own ? &p->call[q->bwd] : NULL));
        EXPECT(p->call[q->bwd].sums.written == own);
        EXPECT_INT(p->buffer[q->sums].first, c);
        EXPECT_INT(p->buffer[q->sums].last, q->bwd);
        for (int i = c + 1; i < p->calls; i++)
            EXPECT(p->call[i].dx[0] != p->call[c].dx[0]);
        count++;
    }
    return count;
}

static int own_grad_sum_calls(const PlanRig *r)
{
    return grad_sum_calls(r, true);
}

/* If two norms share parameters, each call adds its part in the order of the
 * calls: no gradient is written early. */
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
    EXPECT_INT(grad_sum_calls(&r, false), 2);
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
        EXPECT_INT(own_grad_sum_calls(&r), plain ? 0 : 2);
        plan_rig_drop(&r);
    }
}

static Fusions sums_pool_grads(const Call *c)
{
    Fusions f = deferring_backend().fusions(c);
    f.sums = call_op(c) == OP_maxpool && c->dx[0];
    return f;
}

/* A call with gradient sums keeps an operand with a deferred norm; an operand
 * of which only the extents are used is not kept. */
TEST(plan_grad_sums_keeps_operand_of_deferred_norm)
{
    for (int deferred_norm = 0; deferred_norm < 2; deferred_norm++) {
        Net n;
        PlanRig r;
        Backend be = deferring_backend();
        be.fusions = sums_pool_grads;
        int a = deferred_image(&n);
        n.bias = true;
        a = deferred_norm ? deferred_layer(&n, a) : net_conv(&n, a, 8, 3);
        deferred_plan(&r, &n, &be, net_conv(&n, net_pool(&n, a), 8, 3), true,
                      false);
        const PlanNode *q = &r.plan->node[r.plan->node[a].alias_of];
        EXPECT_INT(own_grad_sum_calls(&r), 1);
        EXPECT_INT(q->first.late, deferred_norm ? q->sums_by : -1);
        plan_rig_drop(&r);
    }
}

/* Among several readers the last one in the backward pass writes the sums, if
 * it can. */
TEST(plan_grad_sums_last_reader)
{
    for (int first = 0; first < 2; first++) {
        Net n;
        PlanRig r;
        const Backend be = deferring_backend();
        const int a = deferred_layer(&n, deferred_image(&n));
        int y[2] = {-1, -1};
        // the first in forward order is the last in backward order
        for (int i = 0; i < 2; i++)
            y[i] = i == first ? net_pool(&n, a) : net_conv(&n, a, 8, 3);
        const int other = y[!first];
        const int sum = net_op(&n, OP_add, net_pool(&n, other), y[first], -1);
        deferred_plan(&r, &n, &be, net_conv(&n, sum, 8, 3), true, false);
        EXPECT_INT(own_grad_sum_calls(&r), first != 0);
        plan_rig_drop(&r);
    }
}

/* A trained bias is a sum, too; without a bias there is none. */
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
        EXPECT_INT(own_grad_sum_calls(&r), bias);
        plan_rig_drop(&r);
    }
}

/* A dropped operand is recomputed before the call with gradient sums reads
 * it. */
TEST(plan_grad_sums_recomputed)
{
    Net n;
    PlanRig r;
    const Backend be = deferring_backend();

    deferred_long(&r, &n, &be);
    EXPECT_INT(own_grad_sum_calls(&r), 6);
    deferred_less(&r);
    const Plan *p = r.plan;
    EXPECT_INT(own_grad_sum_calls(&r), 6);

    for (int c = 0; c < p->calls; c++) {
        if (!p->call[c].sums.dx[0]) continue;
        const PlanNode *q = &p->node[operand_of(p, p->call[c].node, 0)];
        if (q->dropped)
            EXPECT(q->recomputed.call >= 0 && q->recomputed.call < c);
    }
    plan_rig_drop(&r);
}
