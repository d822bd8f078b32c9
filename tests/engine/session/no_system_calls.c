/* no_system_calls.c -- a training step on the CPU makes no system calls.
 *
 * All memory of a step is allocated with its plan and touched by the first
 * steps. Memory that a step allocates and frees would come as new pages, each
 * with a page fault and zeroing, in every step. */
#include "tests/support/networks.h"
#include <sys/resource.h>

enum { WARM = 2, STEPS = 5, BATCH = 2 };

/* Returns the number of page faults of this process so far. */
static long faults(void)
{
    struct rusage u;
    REQUIRE(!getrusage(RUSAGE_SELF, &u));
    return u.ru_minflt;
}

/* A U-Net with an arena larger than the memory that the allocator keeps, and
 * with operators that save and draw. */
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

/* Returns the minimum of page faults in a step after the first, with so many
 * threads; every allocation in it fails. */
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
        // the minimum of several steps: the system itself moves pages at times
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
        // a sanitizer's own memory grows at any time
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
        EXPECT_INT(taken, 0);
#else
        (void)taken;
#endif
    }
}
