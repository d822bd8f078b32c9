/* deferring_backend.c -- see deferring_backend.h. */
#include "tests/support/deferring_backend.h"

static Storage storage(const Call *c)
{
    Storage s = {0};
    switch (call_op(c)) {
    case OP_conv:
    case OP_batch_norm:
    case OP_relu:
    case OP_maxpool:
    case OP_sigmoid:
        s.narrow = 1 | NARROW_Y;
        break;
    case OP_add:
        s.narrow = 3 | NARROW_Y;
        break;
    default:
        break;
    }

    s.copies = backend_cpu.storage(c).copies;
    return s;
}

static Fusions fusions(const Call *c)
{
    const Op op = call_op(c);
    return (Fusions){.epilogue =
                         op == (c->norm.deferred ? OP_conv : OP_batch_norm),
                     .x_norm = op == OP_conv || op == OP_maxpool,
                     .sums = op == OP_conv && c->dx[0]};
}

Backend deferring_backend(void)
{
    Backend be = backend_cpu;
    be.storage = storage, be.fusions = fusions;
    return be;
}

int deferred_image(Net *n)
{
    net_new(n);
    return net_input(n, "x", (Dims){1, 1, 8, 8, 8}, 2);
}

int deferred_layer(Net *n, int x)
{
    return net_relu(n, net_norm(n, net_conv(n, x, 8, 3)));
}

void deferred_plan(PlanRig *r, Net *n, const Backend *be, int y, bool train,
                   bool no_fusion)
{
    const int t = net_input(n, "t", n->g.node[y].y.dim, n->g.node[y].y.rank);
    n->root[n->roots++] = y;
    n->loss = net_op(n, OP_mse, y, t, -1);
    plan_rig_open(r, n, be, 1, 2);
    r->spec.precision = PRECISION_bf16;
    r->spec.train = train, r->spec.no_fusion = no_fusion;
    REQUIRE(plan_build(&r->spec, &r->plan));
}

void deferred_long(PlanRig *r, Net *n, const Backend *be)
{
    int y = deferred_image(n);
    for (int i = 0; i < 6; i++) y = deferred_layer(n, y);
    deferred_plan(r, n, be, net_conv(n, y, 8, 3), true, false);
}

void deferred_less(PlanRig *r)
{
    r->spec.budget = plan_bytes(r->plan) * 9 / 10;
    plan_free(r->plan);
    REQUIRE(plan_build(&r->spec, &r->plan));
    EXPECT(plan_recomputed(r->plan).dropped > 0);
}
