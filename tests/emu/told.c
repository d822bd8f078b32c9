/* told.c -- losses whose value the backward call makes (Call.tells), in the
 * steps of a session on the emulated device. */
#include "engine/plan/plan_inside.h"
#include "tests/emu/emu_control.h"
#include "tests/support/networks.h"

static float loss_of(Net *n, const Plan *p)
{
    float loss = NAN;
    const Tensor *t = plan_value(p, n->loss);
    REQUIRE(session_backend(n->s)->download(session_device(n->s), &loss,
                                            t->data, sizeof loss));
    return loss;
}

/* One look at the operands, forward alone or in a step, and the same bits. */
TEST(told_loss_of_a_step)
{
    for (int mask = 0; mask < 2; mask++) {
        Net n;
        const Optim o = optim_default(OPTIM_sgd);
        float loss[2];
        net_new(&n);
        const int x = net_input(&n, "x", (Dims){1, 1, 8, 8, 2}, 2);
        const int y = net_conv(&n, x, 3, 3);
        const int t = net_input(&n, "t", (Dims){1, 1, 8, 8, 3}, 2);
        const int m = net_input(&n, "tm", (Dims){1, 1, 8, 8, 1}, 2);
        n.root[n.roots++] = y;
        n.loss = net_op(&n, OP_mae, y, t, mask ? m : -1);
        net_open(&n, "cuda", 1, &o);
        Plan *p = net_plan(&n, true, 2);
        net_feed(&n, p, 7);
        for (int back = 0; back < 2; back++) {
            PlanRun run = {.step = {3, 4}, .backward = back, .seed_grad = 1};
            emu_reset_counts();
            REQUIRE(plan_run(p, &run));
            loss[back] = loss_of(&n, p);
            EXPECT_INT(emu_launch_count("quads_kernel"), 1 + (mask && back));
            EXPECT_INT(emu_launch_count("slopes_kernel"), 0);
        }
        EXPECT(loss[0] > 0 && loss[0] == loss[1]);
        net_free(&n);
    }
}
