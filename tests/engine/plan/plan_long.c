/* plan_long.c -- networks of tens of thousands of layers: the time per layer to
 * append and plan is that of a network of hundreds. */
#include "tests/support/plan_rig.h"
#include <time.h>

enum { FEW = 1000, MANY = 8 * FEW };

typedef enum Kind { PLAIN, WEIGHTS, SKIP, DROPPED, KINDS } Kind;

static int layer(Net *n, Kind kind, int x, int first)
{
    switch (kind) {
    case WEIGHTS: // three nodes, of two names
        n->bias = true;
        return net_conv(n, x, 4, 1);
    case SKIP: // one value that all others read
        return net_op(n, OP_add, net_op(n, OP_tanh, x, -1, -1), first, -1);
    case DROPPED: // operators that evaluation skips
        return net_op(n, OP_relu, net_op(n, OP_dropout, x, -1, -1), -1, -1);
    default:
        return net_op(n, OP_tanh, x, -1, -1);
    }
}

/* Returns the seconds of processor time to describe and plan so many layers:
 * the minimum of five. */
static double seconds(Kind kind, int layers)
{
    double least = INFINITY;
    for (int i = 0; i < 5; i++) {
        Net n;
        PlanRig r;
        const clock_t from = clock();
        net_new(&n);
        int x = net_input(&n, "x", (Dims){1, 1, 1, 1, 4}, 0), first = x;
        int t = net_input(&n, "t", (Dims){1, 1, 1, 1, 4}, 0);
        for (int k = 0; k < layers; k++) x = layer(&n, kind, x, first);
        n.loss = net_op(&n, OP_mse, x, t, -1);
        n.root[n.roots++] = x;
        plan_rig_open(&r, &n, &backend_cpu, 1, 1);
        plan_rig_plan(&r, kind != DROPPED);
        least = fmin(least, (double)(clock() - from) / CLOCKS_PER_SEC);
        // no more than the values, their gradients and a few
        EXPECT(plan_bytes(r.plan) < (size_t)(4 * layers + 8) * 2 * 256);
        plan_rig_close(&r);
        net_free(&n);
    }
    return least;
}

TEST(plan_of_a_long_network_is_linear)
{
    for (int kind = 0; kind < KINDS; kind++) {
        const double few = seconds((Kind)kind, FEW);
        const double many = seconds((Kind)kind, MANY);
        // eight times as long, and up to three times that with small or busy
        // caches; 64 times if one part is quadratic
        if (many > 24 * few + 0.05)
            test_failed(__FILE__, __LINE__,
                        "kind %d: %d layers %.3f s, %d %.3f", kind, FEW, few,
                        MANY, many);
    }
}
