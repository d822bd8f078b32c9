/* session_queue.c -- queued steps, and the loss scale.
 *
 * A device may run behind the program: results come late, but must equal those
 * of a program that waits after each step, to the bit, also if a step in the
 * middle is skipped. On a backend that does not queue, the same tests check
 * that queue and collect together are one step. */
#include "engine/base/rng.h"
#include "tests/support/networks.h"
#include "tests/support/op_call.h"

enum { BATCHES = 14, BAD = 5 };

static void same_state(Net *a, Net *b)
{
    Arena mem = {NULL};
    size_t bytes;
    const void *x = net_state(a, &mem, &bytes), *y = net_state(b, &mem, &bytes);
    EXPECT(!memcmp(x, y, bytes));
    arena_release(&mem);
}

/* Runs batches in steps of `parts`, one of them with a NaN, with at most
 * `ahead` pending; returns their results. */
static void train(Net *n, int parts, int ahead, StepResult out[BATCHES])
{
    int collected = 0;
    for (int i = 0; i < BATCHES; i++) {
        StepPart part = {i % parts == 0, i % parts == parts - 1, parts,
                         0.01 / (i + 1), i % 3};
        Plan *p = net_plan(n, true, 2);
        net_feed(n, p, (uint32_t)i);
        if (i == BAD) {
            float bad[2 * 8 * 8 * 2];
            for (int k = 0; k < 256; k++) bad[k] = NAN;
            REQUIRE(session_feed(n->s, p, n->input[0], bad));
        }
        REQUIRE(session_queue(n->s, p, &part));
        EXPECT_INT(session_under_way(n->s), i + 1 - collected);
        while (session_under_way(n->s) > (i == BATCHES - 1 ? 0 : ahead)) {
            bool got;
            REQUIRE(session_collect(n->s, true, &out[collected++], &got) &&
                    got);
        }
    }
    EXPECT_INT(collected, BATCHES);
}

TEST(session_runs_ahead)
{
    for (int parts = 1; parts <= 2; parts++) {
        Net waits, ahead;
        StepResult want[BATCHES], got[BATCHES];
        Optim o = optim_default(OPTIM_adamw);
        net_small(&waits);
        net_small(&ahead);
        net_open(&waits, given_device(1), 1, &o);
        net_open(&ahead, given_device(1), 1, &o);
        train(&waits, parts, 0, want);
        train(&ahead, parts, session_ahead(ahead.s), got);
        for (int i = 0; i < BATCHES; i++) {
            EXPECT(want[i].loss == got[i].loss ||
                   (i == BAD && isnan(want[i].loss) && isnan(got[i].loss)));
            EXPECT_INT(want[i].applied, got[i].applied);
            EXPECT_INT(want[i].state.count, got[i].state.count);
            bool last = i % parts == parts - 1;
            EXPECT_INT(got[i].applied, last && i / parts != BAD / parts);
            EXPECT(!got[i].overflow);
            if (got[i].applied) EXPECT(want[i].grad_norm == got[i].grad_norm);
        }
        EXPECT_INT(session_state(ahead.s).count, BATCHES / parts - 1);
        same_state(&waits, &ahead);
        net_free(&waits);
        net_free(&ahead);
    }
}

/* Dropout and batch norm: random draws and running statistics. */
static void random_net(Net *n)
{
    net_new(n);
    int x = net_input(n, "image", (Dims){1, 1, 8, 8, 2}, 2);
    int t = net_input(n, "target", (Dims){1, 1, 8, 8, 1}, 2);
    x = net_op(n, OP_dropout, net_block(n, x, 4), -1, -1);
    n->root[n->roots++] = net_conv(n, x, 1, 1);
    n->loss = net_op(n, OP_bce, n->root[0], t, -1);
}

/* Steps of two parts, one of them skipped after its first part has updated the
 * running statistics: the result of ref on any device. */
TEST(session_parts_on_any_device)
{
    Net ref, fast;
    Arena mem = {NULL};
    StepResult want[BATCHES], got[BATCHES];
    Optim o = optim_default(OPTIM_sgd);

    random_net(&ref);
    random_net(&fast);
    net_open(&ref, given_device(0), 1, &o);
    net_open(&fast, given_device(1), 1, &o);
    train(&ref, 2, 0, want);
    train(&fast, 2, session_ahead(fast.s), got);

    for (int i = 0; i < BATCHES; i++) {
        EXPECT_INT(got[i].applied, want[i].applied);
        if (i == BAD) continue;
        EXPECT_NEAR(got[i].loss, want[i].loss, 1e-5);
        if (want[i].applied)
            EXPECT_NEAR(got[i].grad_norm / want[i].grad_norm, 1, 1e-4);
    }

    const Params *p = session_params(ref.s), *q = session_params(fast.s);
    for (int i = 0; i < p->count; i++) {
        int64_t count = numel(p->list[i].dim);
        double *a = ARENA_NEW(&mem, double, count);
        double *b = ARENA_NEW(&mem, double, count);
        REQUIRE(params_read(p, i, PARAM_VALUE, 0, a) &&
                params_read(q, i, PARAM_VALUE, 0, b));
        given_near(b, a, count, 1e-5);
    }

    arena_release(&mem);
    net_free(&ref);
    net_free(&fast);
}

TEST(session_collects_nothing)
{
    Net n;
    StepResult r;
    bool got = true;
    Optim o = optim_default(OPTIM_sgd);

    net_small(&n);
    net_open(&n, given_device(1), 1, &o);
    REQUIRE(session_collect(n.s, true, &r, &got));
    EXPECT(!got);
    EXPECT(net_step(&n, 2, 1, 0.01, 1).applied);
    got = true;
    REQUIRE(session_collect(n.s, false, &r, &got));
    EXPECT(!got);
    net_free(&n);
}

/* The state may be set at any time: a step then depends on the new count only,
 * not on the earlier one. */
TEST(session_state_is_set_and_kept)
{
    Net n, other;
    Optim o = optim_default(OPTIM_adamw);
    net_small(&n);
    net_small(&other);
    net_open(&n, given_device(1), 1, &o);
    net_open(&other, given_device(1), 1, &o);
    StepState far = {1000, {1, 0}, 0};

    // before the first step, and after one with another count
    REQUIRE(session_set_state(n.s, &far));
    StepState two = {2, {4096, 7}, 0};
    REQUIRE(session_set_state(other.s, &two));
    EXPECT_NEAR(session_state(other.s).scale.by, 1, 0); // it has none
    REQUIRE(session_set_state(other.s, &far));
    StepResult a = net_step(&n, 2, 1, 0.01, 1);
    StepResult b = net_step(&other, 2, 1, 0.01, 1);
    EXPECT_INT(a.state.count, 1001);
    EXPECT_INT(b.state.count, 1001);
    same_state(&n, &other);

    // between two steps, after the device has run one
    REQUIRE(session_set_state(n.s, &(StepState){7, {1, 0}, 0}));
    EXPECT_INT(net_step(&n, 2, 2, 0.01, 1).state.count, 8);
    net_free(&n);
    net_free(&other);
}

// -- the loss scale ----------------------------------------------------------

/* The state machine of loss_scale.h against a model that counts in
 * exponents. */
TEST(loss_scale_is_sane)
{
    LossScale s = {LOSS_SCALE_FIRST, 0};
    int exponent = 16, good = 0, halved = 0, doubled = 0;

    for (uint32_t i = 0; i < 100000; i++) {
        Rng r = {.seed = 9, .stream = RNG_TEST, .sample = i};
        // periods with few overflows, periods with many
        bool finite = rng_below(&r, 0, i / 20000 % 2 ? 3 : 3000) != 0;
        // saved and restored at any point
        LossScale kept = s;
        loss_scale_next(&kept, finite);
        loss_scale_next(&s, finite);
        if (!finite) {
            halved += exponent > 0;
            good = 0, exponent -= exponent > 0;
        } else if (++good == 2000) {
            doubled += exponent < 24;
            good = 0, exponent += exponent < 24;
        }
        EXPECT_NEAR(s.by, ldexp(1, exponent), 0);
        EXPECT_INT(s.good, good);
        EXPECT(kept.by == s.by && kept.good == s.good);
    }

    // both limits were reached
    EXPECT(halved > 20 && doubled > 8);
}

/* A scale with overflowing gradients is halved until they are finite; earlier
 * steps are skipped, and later ones give the bits of a session that never
 * scaled. */
TEST(session_scales_the_loss)
{
    for (size_t d = 0; d < 2; d++) {
        Net plain, scaled;
        Arena mem = {NULL};
        size_t bytes;
        Optim o = optim_default(OPTIM_adamw);
        net_small(&plain);
        net_small(&scaled);
        scaled.scaled = true;
        net_open(&plain, given_device(d), 1, &o);
        net_open(&scaled, given_device(d), 1, &o);
        EXPECT_NEAR(session_state(scaled.s).scale.by, LOSS_SCALE_FIRST, 0);
        // in float a gradient overflows, in double the sum of its squares
        double by = session_backend(plain.s)->real == F64 ? 0x1p520 : 0x1p127;
        REQUIRE(session_set_state(scaled.s, &(StepState){0, {by, 5}, 0}));
        Plan *p = net_plan(&scaled, true, 2);
        net_feed(&scaled, p, 1);
        float far[2 * 8 * 8];
        for (int i = 0; i < 128; i++) far[i] = i % 2 ? 1e3f : -1e3f;
        REQUIRE(session_feed(scaled.s, p, scaled.input[1], far));
        void *before = net_state(&scaled, &mem, &bytes);
        StepResult r;
        int skipped = 0;
        for (;; skipped++) {
            StepState was = session_state(scaled.s);
            // not clipped: the factor would leave the range of a float
            REQUIRE(session_step(scaled.s, p, 0.01, 0, &r));
            if (r.applied) break;
            EXPECT(r.overflow && !isfinite(r.grad_norm) && isfinite(r.loss));
            EXPECT_NEAR(r.state.scale.by, was.scale.by / 2, 0);
            EXPECT_INT(r.state.scale.good, 0);
            EXPECT_INT(r.state.count, 0);
            void *after = net_state(&scaled, &mem, &bytes);
            EXPECT(!memcmp(before, after, bytes));
            REQUIRE(skipped < 64);
        }
        EXPECT(skipped > 0);
        EXPECT_INT(r.state.scale.good, 1);
        Plan *q = net_plan(&plain, true, 2);
        net_feed(&plain, q, 1);
        StepResult want;
        REQUIRE(session_feed(plain.s, q, plain.input[1], far));
        REQUIRE(session_step(plain.s, q, 0.01, 0, &want));
        EXPECT(want.loss == r.loss && want.applied);
        EXPECT_NEAR(r.grad_norm / want.grad_norm, 1, 1e-12);
        for (uint32_t i = 0; i < 3; i++) {
            EXPECT(net_step(&plain, 2, i, 0.01, 1).applied);
            EXPECT(net_step(&scaled, 2, i, 0.01, 1).applied);
        }
        same_state(&plain, &scaled);
        // a loss that is not finite is not an overflow: no scale would help
        float bad[2 * 8 * 8 * 2];
        for (int k = 0; k < 256; k++) bad[k] = NAN;
        double last = session_state(scaled.s).scale.by;
        REQUIRE(session_feed(scaled.s, p, scaled.input[0], bad));
        REQUIRE(session_step(scaled.s, p, 0.01, 1, &r));
        EXPECT(!r.applied && !r.overflow);
        EXPECT_NEAR(r.state.scale.by, last / 2, 0);
        arena_release(&mem);
        net_free(&plain);
        net_free(&scaled);
    }
}
