/* session_average.c -- averages of weights, recomputed running statistics, and
 * both in checkpoints. */
#include "engine/base/rng.h"
#include "engine/checkpoint/checkpoint.h"
#include "tests/support/networks.h"
#include "tests/support/op_call.h"

/* Returns element i of parameter q in a block. */
static double element(Net *n, int q, ParamBlock block, int64_t i)
{
    static double user[4096];
    const Params *p = session_params(n->s);
    int64_t count = numel(p->list[q].dim);
    REQUIRE(count <= 4096 && params_read(p, q, block, 0, user));
    return user[i < count ? i : 0]; // a bias may have one
}

static void open_small(Net *n, const char *device)
{
    Optim o = optim_default(OPTIM_adamw);
    net_small(n);
    net_open(n, device, 1, &o);
}

/* e += (1 - d) (x - e) for weights, gaps between them and running statistics,
 * with d = min(ema, (1 + t) / (10 + t)); a skipped step does not count. */
TEST(average_of_every_step_by_hand)
{
    enum { MOST = 64 };
    for (size_t d = 0; d < 2; d++) {
        Net n;
        double want[MOST][2], left = 0;
        open_small(&n, given_device(d));
        EXPECT_FAIL(session_ema(n.s, 1), "ema is 1, want a number from 0");
        REQUIRE(session_ema(n.s, 0.25));
        const Params *p = session_params(n.s);
        bool is_float = session_backend(n.s)->real == F32;
        REQUIRE(p->count <= MOST);
        for (int q = 0; q < p->count; q++)
            for (int k = 0; k < 2; k++) {
                want[q][k] = element(&n, q, PARAM_VALUE, k ? 0 : 1);
                EXPECT_NEAR(element(&n, q, PARAM_AVERAGE, k ? 0 : 1),
                            want[q][k], 0);
            }
        for (int t = 1; t <= 6; t++) {
            double keeps = fmin(0.25, (1.0 + t) / (10.0 + t));
            StepResult r;
            Plan *plan = net_plan(&n, true, 2);
            net_feed(&n, plan, (uint32_t)t);
            if (t == 4) { // this step is skipped
                float bad[2 * 8 * 8 * 2] = {NAN};
                REQUIRE(session_feed(n.s, plan, n.input[0], bad));
                REQUIRE(session_step(n.s, plan, 0.01, 1, &r) && !r.applied);
                net_feed(&n, plan, 4);
            }
            REQUIRE(session_step(n.s, plan, 0.01, 1, &r) && r.applied);
            for (int q = 0; q < p->count; q++)
                for (int k = 0; k < 2; k++) {
                    double x = element(&n, q, PARAM_VALUE, k ? 0 : 1);
                    double *e = &want[q][k], by = 1 - keeps;
                    if (is_float)
                        *e = (float)*e + (float)by * ((float)x - (float)*e);
                    else
                        *e += by * (x - *e);
                    if (is_float) *e = (float)*e;
                    EXPECT_NEAR(element(&n, q, PARAM_AVERAGE, k ? 0 : 1), *e,
                                0);
                    left += fabs(x - *e);
                }
        }
        EXPECT(left > 1e-3); // average and values differ
        double value = element(&n, 0, PARAM_VALUE, 0);
        REQUIRE(session_swap(n.s));
        EXPECT_NEAR(element(&n, 0, PARAM_VALUE, 0), want[0][1], 0);
        EXPECT_NEAR(element(&n, 0, PARAM_AVERAGE, 0), value, 0);
        REQUIRE(session_swap(n.s));
        EXPECT_NEAR(element(&n, 0, PARAM_VALUE, 0), value, 0);
        EXPECT_FAIL(session_ema(n.s, 0.5), "the network has begun to train");
        net_free(&n);
    }
}

/* The mean over the calls so far, independent of the initial average. */
TEST(average_of_some_is_their_mean)
{
    for (size_t d = 0; d < 2; d++) {
        Net n;
        double sum = 0;
        open_small(&n, given_device(d));
        REQUIRE(session_ema(n.s, 0));
        EXPECT(!session_has_ema(n.s));
        for (int k = 0; k < 5; k++) {
            EXPECT(net_step(&n, 2, (uint32_t)k, 0.01, 0).applied);
            if (k < 2) continue;
            sum += element(&n, 0, PARAM_VALUE, 3);
            REQUIRE(session_average(n.s, k - 2));
        }
        EXPECT_NEAR(element(&n, 0, PARAM_AVERAGE, 3), sum / 3, 1e-6);
        net_free(&n);
    }
}

/* As PyTorch's update_bn: mean and unbiased variance of each batch, and their
 * mean over batches of any size; the norm with momentum 0 keeps its
 * statistics. */
TEST(average_takes_norms_anew)
{
    enum { C = 3, W = 4, BATCHES = 3 };
    for (size_t d = 0; d < 2; d++) {
        Net n;
        Optim o = optim_default(OPTIM_sgd);
        net_new(&n);
        int x = net_input(&n, "x", (Dims){1, 1, 1, W, C}, 1);
        int t = net_input(&n, "t", (Dims){1, 1, 1, W, C}, 1);
        int y = net_norm(&n, x), still = net_norm(&n, y);
        n.g.node[still].attr.batch_norm.momentum = 0;
        n.loss = net_op(&n, OP_mse, still, t, -1);
        n.root[n.roots++] = y;
        net_open(&n, given_device(d), 1, &o);
        const Params *p = session_params(n.s);
        EXPECT(net_step(&n, 2, 7, 0.01, 0).applied);
        double mean[C] = {0}, var[C] = {0}, before[2];
        int still_at[2] = {params_find(p, "p2.running_mean"),
                           params_find(p, "p2.running_var")};
        for (int k = 0; k < 2; k++)
            before[k] = element(&n, still_at[k], PARAM_VALUE, 1);
        REQUIRE(session_update_bn_begin(n.s));
        for (int b = 0; b < BATCHES; b++) {
            int count = 2 + b;
            float v[5 * C * W], zero[5 * C * W] = {0};
            Plan *q = net_plan(&n, true, count);
            for (int i = 0; i < count * C * W; i++)
                v[i] = (float)((i * 37 + b * 11) % 64) / 16;
            REQUIRE(session_feed(n.s, q, n.input[0], v) &&
                    session_feed(n.s, q, n.input[1], zero) &&
                    session_run(n.s, q) && session_update_bn_add(n.s));
            for (int c = 0; c < C; c++) {
                double sum = 0, squares = 0, m = count * W;
                for (int i = 0; i < count; i++)
                    for (int w = 0; w < W; w++) sum += v[(i * C + c) * W + w];
                for (int i = 0; i < count; i++)
                    for (int w = 0; w < W; w++)
                        squares += pow(v[(i * C + c) * W + w] - sum / m, 2);
                mean[c] += sum / m / BATCHES;
                var[c] += squares / (m - 1) / BATCHES;
            }
        }
        REQUIRE(session_update_bn_end(n.s));
        for (int c = 0; c < C; c++) {
            int at = params_find(p, "p1.running_mean");
            EXPECT_NEAR(element(&n, at, PARAM_VALUE, c), mean[c], 2e-6);
            at = params_find(p, "p1.running_var");
            EXPECT_NEAR(element(&n, at, PARAM_VALUE, c), var[c], 2e-6);
        }
        for (int k = 0; k < 2; k++)
            EXPECT_NEAR(element(&n, still_at[k], PARAM_VALUE, 1), before[k], 0);
        net_free(&n);
    }
}

/* A norm that a training step does not run keeps its statistics. */
TEST(average_leaves_norms_of_no_step)
{
    Net n;
    const Optim o = optim_default(OPTIM_sgd);
    const Dims s = {1, 1, 1, 4, 2};

    net_new(&n);
    int x = net_input(&n, "x", s, 1), t = net_input(&n, "t", s, 1);
    int moved = net_norm(&n, x), still = net_norm(&n, x);
    n.loss = net_op(&n, OP_mse, moved, t, -1);
    n.root[n.roots++] = moved;
    n.root[n.roots++] = still;
    SessionSpec spec = {.graph = &n.g,
                        .root = n.root,
                        .roots = n.roots,
                        .loss = n.loss,
                        .device = given_device(1),
                        .threads = 1,
                        .optim = &o,
                        .step_root = &moved,
                        .step_roots = 1};
    REQUIRE(session_open(&spec, &n.s));
    const Params *p = session_params(n.s);
    const int at[2] = {params_find(p, "p1.running_var"),
                       params_find(p, "p2.running_var")};
    REQUIRE(session_update_bn_begin(n.s));
    Plan *q = net_plan(&n, true, 2);
    net_feed(&n, q, 1);
    REQUIRE(session_run(n.s, q) && session_update_bn_add(n.s) &&
            session_update_bn_end(n.s));
    EXPECT(element(&n, at[0], PARAM_VALUE, 1) != 1);
    EXPECT_NEAR(element(&n, at[1], PARAM_VALUE, 1), 1, 0);
    net_free(&n);
}

/* Returns the state for a resume, the average last. */
static void *state_with_average(Net *n, Arena *mem, size_t *bytes)
{
    const Params *p = session_params(n->s);
    size_t own, more = (size_t)p->total * dtype_bytes(p->be->real);
    char *state = net_state(n, mem, &own);
    char *all = arena_alloc(mem, own + more);
    REQUIRE(all && p->be->download(p->dev, all + own, p->average, more));
    memcpy(all, state, own);
    *bytes = own + more;
    return all;
}

/* A session that is saved, loaded into another session and continued has the
 * same bits. A load of the weights alone takes the average of ema (over
 * optimiser steps) as the weights, but not the average of swa (over epochs). */
TEST(average_lies_in_the_checkpoint)
{
    for (int swa = 0; swa < 2; swa++) {
        Net n, other, plain;
        Arena mem = {NULL};
        Meta m;
        size_t bytes;
        char path[512];
        snprintf(path, sizeof path, "%s/average%d.safetensors", test_folder(),
                 swa);
        open_small(&n, given_device(1));
        open_small(&other, given_device(1));
        open_small(&plain, given_device(1));
        REQUIRE(session_ema(n.s, swa ? 0 : 0.5));
        REQUIRE(session_ema(other.s, swa ? 0 : 0.5));
        for (uint32_t k = 0; k < 3; k++)
            EXPECT(net_step(&n, 2, k, 0.01, 1).applied);
        if (swa) REQUIRE(session_average(n.s, 1));
        REQUIRE(checkpoint_save(path, n.s, true, NULL));
        REQUIRE(checkpoint_load(path, other.s, true, &mem, &m));
        EXPECT(net_step(&n, 2, 3, 0.01, 1).applied);
        EXPECT(net_step(&other, 2, 3, 0.01, 1).applied);
        void *a = state_with_average(&n, &mem, &bytes);
        EXPECT(!memcmp(a, state_with_average(&other, &mem, &bytes), bytes));
        // weights alone
        REQUIRE(checkpoint_load(path, other.s, true, &mem, &m));
        REQUIRE(checkpoint_load(path, plain.s, false, &mem, &m));
        EXPECT_NEAR(element(&plain, 0, PARAM_VALUE, 2),
                    element(&other, 0, swa ? PARAM_VALUE : PARAM_AVERAGE, 2),
                    0);
        // a run with an average cannot resume from a checkpoint without one
        REQUIRE(checkpoint_save(path, plain.s, true, NULL));
        EXPECT_FAIL(checkpoint_load(path, other.s, true, &mem, &m),
                    swa ? "missing: swa.p1" : "missing: ema.p1");
        arena_release(&mem);
        net_free(&n);
        net_free(&other);
        net_free(&plain);
    }
}

/* An optimiser that starts in the middle of a run starts at step 1: its first
 * update is number 1, however many updates another optimiser made. */
TEST(average_and_optimiser_begin_anew)
{
    Net n, fresh;
    Arena mem = {NULL};
    Meta m;
    char path[512];

    snprintf(path, sizeof path, "%s/anew.safetensors", test_folder());
    open_small(&n, given_device(1));
    open_small(&fresh, given_device(1));
    StepState state = {500, {1, 0}, 500};
    REQUIRE(session_set_state(n.s, &state));

    for (uint32_t k = 0; k < 3; k++) {
        EXPECT_INT(net_step(&n, 2, k, 0.01, 1).state.count, 501 + (int)k);
        EXPECT(net_step(&fresh, 2, k, 0.01, 1).applied);
        for (int q = 0; q < session_params(n.s)->count; q++)
            EXPECT_NEAR(element(&n, q, PARAM_VALUE, 0),
                        element(&fresh, q, PARAM_VALUE, 0), 0);
        if (k != 1) continue;
        REQUIRE(checkpoint_save(path, n.s, true, NULL));
        REQUIRE(session_set_state(n.s, &(StepState){0, {1, 0}, 0}));
        REQUIRE(checkpoint_load(path, n.s, true, &mem, &m));
        EXPECT_INT(session_state(n.s).start, 500);
    }

    arena_release(&mem);
    net_free(&n);
    net_free(&fresh);
}

/* Gradients are clipped by their norm without the loss scale. */
TEST(average_clip_knows_no_scale)
{
    Net plain, scaled;
    open_small(&plain, given_device(1));
    Optim o = optim_default(OPTIM_adamw);
    net_small(&scaled);
    scaled.scaled = true;
    net_open(&scaled, given_device(1), 1, &o);

    for (uint32_t k = 0; k < 3; k++) {
        StepResult a = net_step(&plain, 2, k, 0.01, 0.01);
        StepResult b = net_step(&scaled, 2, k, 0.01, 0.01);
        EXPECT(a.grad_norm > 0.02 && a.applied && b.applied);
        EXPECT_NEAR(a.grad_norm, b.grad_norm, 0);
        EXPECT(b.state.scale.by > 1);
        for (int q = 0; q < session_params(plain.s)->count; q++)
            EXPECT_NEAR(element(&plain, q, PARAM_VALUE, 0),
                        element(&scaled, q, PARAM_VALUE, 0), 0);
    }

    net_free(&plain);
    net_free(&scaled);
}
