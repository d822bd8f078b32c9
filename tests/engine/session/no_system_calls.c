/* no_system_calls.c -- what a training step on the CPU asks the system for:
 * nothing.
 *
 * All that it needs was allocated with its plan, and has been touched by the
 * first steps. Memory that a step takes and gives back would come as new pages,
 * which cost a fault and zeros each, every time. */
#include "tests/support/networks.h"
#include <sys/resource.h>

enum { WARM = 2, STEPS = 5, BATCH = 2 };

/* Pages that were given to this process so far. */
static long faults(void)
{
    struct rusage u;
    REQUIRE(!getrusage(RUSAGE_SELF, &u));
    return u.ru_minflt;
}

/* A U-Net large enough that its arena is more than the allocator keeps to
 * itself, with rows that save and draw. */
static void quiet_net(Net *n)
{
    const Dims image = {1, 1, 64, 64, 2}, mask = {1, 1, 64, 64, 1};
    Attr drop = op_default(OP_dropout);
    net_new(n);
    int x = net_input(n, "image", image, 2);
    int target = net_input(n, "target", mask, 2);
    x = net_op(n, OP_leaky_relu, net_conv(n, x, 8, 3), -1, -1);
    x = net_op(n, OP_instance_norm, x, -1, -1);
    x = net_row(n, drop, &x, 1);
    n->root[n->roots++] = net_unet(n, x, 8, 3);
    n->loss = net_op(n, OP_bce_dice, n->root[0], target, -1);
}

/* Least faults of a step after the first, on so many threads; every request
 * for memory in it fails. */
static long least_faults(int threads, OptimKind kind, double ema)
{
    Net n;
    Optim o = optim_default(kind);
    long least = -1;
    quiet_net(&n);
    net_open(&n, "cpu", threads, &o);
    if (ema > 0) REQUIRE(session_ema(n.s, ema));
    for (uint32_t k = 0; k < WARM + STEPS; k++) {
        StepResult r;
        Plan *p = net_plan(&n, true, BATCH);
        net_feed(&n, p, k);
        long before = faults(), blocks = mem_live();
        if (k >= WARM) mem_fail_after(0, true);
        bool ok = session_step(n.s, p, 1e-3, 1, &r);
        mem_fail_after(-1, false);
        long taken = faults() - before;
        REQUIRE(ok);
        EXPECT(r.applied);
        if (k < WARM) continue;
        EXPECT_INT(mem_live(), blocks);
        // of several the least: the system moves pages at times by itself
        if (least < 0 || taken < least) least = taken;
    }
    net_free(&n);
    return least;
}

TEST(quiet_step)
{
    static const struct {
        int threads;
        OptimKind kind;
        double ema;
    } row[] = {{1, OPTIM_adamw, 0}, {2, OPTIM_adamw, 0.9}, {2, OPTIM_sgd, 0}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        long taken = least_faults(row[i].threads, row[i].kind, row[i].ema);
        // a sanitizer's own memory of ours grows as it likes
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
        EXPECT_INT(taken, 0);
#else
        (void)taken;
#endif
    }
}
