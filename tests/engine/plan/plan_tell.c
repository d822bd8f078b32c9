/* plan_tell.c -- losses whose value is made on the way back. That its bits are
 * those of the forward call is in each loss's suite. */
#include "engine/plan/plan_inside.h"
#include "tests/support/deferring_backend.h"

static bool always(const Call *c)
{
    return c->dx[0];
}

/* A conv under a loss; `read`: another row reads the loss. */
static void plan_of(Rig *r, Net *n, const Backend *be, bool train, bool plain,
                    bool read)
{
    const int y = net_conv(n, lazy_image(n), 8, 3);
    const int t = net_input(n, "t", n->g.node[y].y.dim, n->g.node[y].y.rank);
    n->loss = net_op(n, OP_mse, y, t, -1);
    if (read) n->root[n->roots++] = net_op(n, OP_tanh, n->loss, -1, -1);
    rig_open(r, n, be, 1, 2);
    r->spec.plain = plain, r->spec.train = train;
    if (!train) r->spec.loss = -1, r->spec.root = &n->loss, r->spec.roots = 1;
    REQUIRE(plan_build(&r->spec, &r->plan));
}

TEST(plan_tell_loss)
{
    enum { TELLS, EVALUATES, PLAIN, IS_READ, CANNOT, HOW };
    for (int how = 0; how < HOW; how++) {
        Net n;
        Rig r;
        Backend be = backend_cpu;
        if (how != CANNOT) be.tells = always;
        plan_of(&r, &n, &be, how != EVALUATES, how == PLAIN, how == IS_READ);
        const Plan *p = r.plan;
        const PlanNode *loss = &p->node[n.loss];
        const bool told = how == TELLS;
        EXPECT_INT(p->told, told ? loss->first.call : -1);
        for (int c = 0; c < p->calls; c++)
            EXPECT(p->call[c].tells == (told && c == loss->bwd));
        rig_drop(&r);
    }
}

/* Slopes, and -7 as the loss. */
static bool tells_seven(const Call *c)
{
    *(float *)c->y->data = -7;
    return backend_cpu.bwd[OP_mse](c);
}

/* Of a run that does not go back the forward call makes the loss; of one that
 * does it is left out. */
TEST(plan_tell_runs_one_of_them)
{
    Net n;
    Rig r;
    Backend be = backend_cpu;
    be.tells = always, be.bwd[OP_mse] = tells_seven;
    net_linear(&n);
    rig_open(&r, &n, &be, 1, 2);
    rig_plan(&r, true);
    for (int i = 0; i < 4; i++) {
        rig_run(&r, i % 2, false, 1);
        if (i % 2)
            EXPECT_INT(rig_value(&r, n.loss, 0), -7);
        else
            EXPECT(rig_value(&r, n.loss, 0) > 0);
    }
    rig_drop(&r);
}
