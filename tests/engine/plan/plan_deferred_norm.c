/* plan_deferred_norm.c -- the norms that a plan defers to their readers.
 * tests/cuda/kernels/deferred_norm.c tests the kernels. */
#include "engine/plan/plan_inside.h"
#include "tests/support/deferring_backend.h"
#include <string.h>

/* Number of calls with a deferred norm, and of calls that apply one on load,
 * forward and backward. */
typedef struct Count {
    int deferred, loads_deferred, back;
} Count;

static Count counted(PlanRig *r)
{
    Count n = {0};
    for (int i = 0; i < r->plan->calls; i++) {
        const Call *c = &r->plan->call[i];
        if (is_convert(c)) continue;
        n.deferred += c->norm.deferred && !is_backward(c);
        if (!c->x_norm[0]) continue;
        ++*(is_backward(c) ? &n.back : &n.loads_deferred);
        // the DeferredNorm describes the norm of the call that wrote the tensor
        EXPECT(c->x_norm[0]->norm->op == OP_batch_norm);
    }
    return n;
}

TEST(plan_deferred_norm_between_convolutions)
{
    Net n;
    PlanRig r;
    const Backend be = deferring_backend();
    const int a = deferred_layer(&n, deferred_image(&n)),
              b = deferred_layer(&n, a), p = net_pool(&n, b);

    deferred_plan(&r, &n, &be, net_conv(&n, p, 8, 3), true, false);
    const Count got = counted(&r);
    EXPECT_INT(got.deferred, 2);
    EXPECT_INT(got.loads_deferred, 2); // a convolution and the pool
    EXPECT_INT(got.back, 2);

    // nodes of a layer show its convolution, and its row names them
    const PlanNode *q = r.plan->node;
    EXPECT(q[a].alias_of == q[a - 1].alias_of && q[q[a].alias_of].deferred);
    EXPECT(q[q[a].alias_of].act == a && !plan_value(r.plan, a));
    char text[ROW_TEXT];
    EXPECT(!strcmp(row_text(r.plan, q[a].alias_of, text),
                   "conv + batch_norm + relu"));

    // the convolution's call computes the norm's gradients, once
    for (int i = 0; i < r.plan->calls; i++) {
        const Call *c = &r.plan->call[i];
        if (!c->norm.deferred || !is_backward(c)) continue;
        EXPECT(c->norm.dx[1] && c->norm.dx[2] && !c->norm.dx[3]);
        EXPECT_INT(c->fresh >> NORM_FRESH, 6);
        EXPECT_INT(r.plan->param_bits[i] >> NORM_FRESH, 6);
        // its stored result is kept for the backward pass
        EXPECT(c->y == &q[c->node].first.x && q[c->node].read);
    }
    plan_rig_drop(&r);
}

/* No deferred norm if a reader cannot apply it, if the value has another use,
 * or if the norm has constants. */
TEST(plan_deferred_norm_not_otherwise)
{
    enum { OTHER, ROOT, EVALUATION, PLAIN, TWICE, CASES };
    for (int how = 0; how < CASES; how++) {
        Net n;
        PlanRig r;
        const Backend be = deferring_backend();
        const int x = deferred_image(&n), a = deferred_layer(&n, x);
        int y = net_conv(&n, a, 8, 3);
        const int norm = n.g.node[a].in[0], conv = n.g.node[norm].in[0];
        if (how == OTHER) y = net_op(&n, OP_add, y, a, -1);
        if (how == ROOT) n.root[n.roots++] = a;
        // the convolution's own value has another reader, too
        if (how == TWICE) y = net_op(&n, OP_add, y, conv, -1);
        y = net_conv(&n, y, 8, 3); // so that the sum is in 16 bits
        deferred_plan(&r, &n, &be, y, how != EVALUATION, how == PLAIN);
        EXPECT_INT(counted(&r).deferred, 0);
        EXPECT_INT(counted(&r).loads_deferred, 0);
        plan_rig_drop(&r);
    }
}

/* Dropped values are recomputed with the same deferred norms. */
TEST(plan_deferred_norm_recomputed)
{
    Net n;
    PlanRig r;
    const Backend be = deferring_backend();

    deferred_long(&r, &n, &be);
    EXPECT_INT(counted(&r).deferred, 6);
    deferred_less(&r);
    int recomputed = 0, seeing = 0;

    for (int i = 0; i < r.plan->calls; i++) {
        const Call *c = &r.plan->call[i];
        if (!c->recomputed) continue;
        EXPECT(c->norm.deferred);
        recomputed++, seeing += c->x_norm[0] != NULL;
        // statistics are those of the first computation
        EXPECT_INT(r.plan->saved[i],
                   r.plan->saved[r.plan->node[c->node].first.call]);
    }

    EXPECT(recomputed > 0 && seeing > 0);
    plan_rig_drop(&r);
}
