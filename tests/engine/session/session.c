/* session.c -- training steps: their changes, and steps that change nothing. */
#include "engine/base/rng.h"
#include "tests/support/networks.h"
#include "tests/support/op_call.h"
#include <stdlib.h>

/* Returns a writable value of a node of a plan in host memory. */
static Tensor host_value(Plan *p, int node)
{
    const Tensor *t = plan_value(p, node);
    REQUIRE(t);
    return *t;
}

/* Sets element i of a node's value to v, on any device; returns the old
 * value. */
static double poke(Net *n, Plan *p, int node, int64_t i, double v)
{
    const Backend *be = session_backend(n->s);
    void *dev = session_device(n->s);
    Tensor one = host_value(p, node);
    size_t real = dtype_bytes(one.type);
    char *at = (char *)one.data + (size_t)i * real;
    double value[1]; // room for an element of any type

    one.data = value;
    REQUIRE(be->download(dev, value, at, real));
    double was = tensor_get(&one, 0);
    tensor_set(&one, 0, v);
    REQUIRE(be->upload(dev, at, value, real));
    return was;
}

static Optim sgd(double momentum, double decay)
{
    Optim o = optim_default(OPTIM_sgd);
    o.hyper[0] = momentum;
    o.hyper[2] = decay;
    EXPECT_NEAR(optim_hyper(&o, "momentum"), momentum, 0);
    EXPECT_NEAR(optim_hyper(&o, "decay"), decay, 0);
    return o;
}

/* y = w x + b with mean square error, computed by hand. */
TEST(session_step_by_hand)
{
    Net n;
    StepResult r;
    Optim o = sgd(0.9, 0.1);

    net_linear(&n);
    net_open(&n, "ref", 1, &o);
    double w[2], b = net_get(&n, "p1.bias", PARAM_VALUE, 0), m[3] = {0};
    for (int i = 0; i < 2; i++) w[i] = net_get(&n, "p1.weight", PARAM_VALUE, i);
    EXPECT_INT(session_state(n.s).count, 0);

    for (int step = 0; step < 3; step++) {
        Plan *p = net_plan(&n, true, 2);
        net_feed(&n, p, (uint32_t)step);
        Tensor x = host_value(p, n.input[0]), t = host_value(p, n.input[1]);
        double g[3] = {0}, loss = 0;
        for (int i = 0; i < 2; i++) {
            double x0 = tensor_get(&x, 2 * i), x1 = tensor_get(&x, 2 * i + 1);
            double e = w[0] * x0 + w[1] * x1 + b - tensor_get(&t, i);
            loss += e * e / 2;
            g[0] += e * x0, g[1] += e * x1, g[2] += e; // 2 e / 2
        }
        REQUIRE(session_step(n.s, p, 0.05, 0, &r));
        EXPECT(r.applied);
        EXPECT_NEAR(r.loss, loss, 1e-14);
        EXPECT_NEAR(r.grad_norm, sqrt(g[0] * g[0] + g[1] * g[1] + g[2] * g[2]),
                    1e-14);
        for (int i = 0; i < 3; i++) {
            // a bias has no weight decay
            double d = g[i] + (i < 2 ? 0.1 * w[i] : 0);
            m[i] = step ? 0.9 * m[i] + d : d;
            *(i < 2 ? &w[i] : &b) -= 0.05 * m[i];
        }
        for (int i = 0; i < 2; i++) {
            EXPECT_NEAR(net_get(&n, "p1.weight", PARAM_VALUE, i), w[i], 1e-14);
            EXPECT_NEAR(net_get(&n, "p1.weight", PARAM_GRAD, i), g[i], 1e-14);
        }
        EXPECT_NEAR(net_get(&n, "p1.bias", PARAM_VALUE, 0), b, 1e-14);
        EXPECT_INT(session_state(n.s).count, step + 1);
    }
    net_free(&n);
}

/* As PyTorch: g * min(1, clip / (norm + 1e-6)). */
TEST(session_clips)
{
    static const double clips[] = {0, -1, 0.01, 1e9};
    for (int i = 0; i < 4; i++) {
        Net n;
        Optim o = sgd(0, 0);
        net_linear(&n);
        net_open(&n, "ref", 1, &o);
        double before = net_get(&n, "p1.bias", PARAM_VALUE, 0);
        StepResult r = net_step(&n, 3, 1, 1, clips[i]);
        double g = net_get(&n, "p1.bias", PARAM_GRAD, 0), scale = 1;
        if (i == 2) scale = 0.01 / (r.grad_norm + 1e-6);
        EXPECT(r.grad_norm > 0.1);
        EXPECT_NEAR(net_get(&n, "p1.bias", PARAM_VALUE, 0), before - scale * g,
                    1e-15);
        net_free(&n);
    }
}

/* Checks that parameters, moments, count and running statistics are unchanged
 * after a step. */
static void unchanged(Net *n, Plan *p, const char *what)
{
    Arena mem = {NULL};
    StepResult r;
    size_t bytes;
    void *before = net_state(n, &mem, &bytes);
    REQUIRE(session_step(n->s, p, 0.1, 1, &r));
    EXPECT(!r.applied);
    if (memcmp(before, net_state(n, &mem, &bytes), bytes))
        test_failed(__FILE__, __LINE__, "%s changed something", what);
    arena_release(&mem);
}

TEST(session_leaves_all_when_not_finite)
{
    for (size_t d = 0; d < 2; d++) {
        Net n;
        Optim o = optim_default(OPTIM_adamw);
        net_small(&n);
        net_open(&n, given_device(d), 1, &o);
        EXPECT(net_step(&n, 2, 1, 0.01, 1).applied);
        EXPECT(net_step(&n, 2, 2, 0.01, 1).applied);
        Plan *p = net_plan(&n, true, 2);
        net_feed(&n, p, 3);
        double keep = poke(&n, p, n.input[0], 17, NAN);
        unchanged(&n, p, "a NaN in the image");
        poke(&n, p, n.input[0], 17, INFINITY);
        unchanged(&n, p, "an infinity in the image");
        poke(&n, p, n.input[0], 17, keep);
        poke(&n, p, n.input[1], 3, INFINITY);
        unchanged(&n, p, "an infinity in the target");
        poke(&n, p, n.input[1], 3, 1);
        // and the next step works
        StepResult r;
        REQUIRE(session_step(n.s, p, 0.1, 1, &r));
        EXPECT(r.applied && isfinite(r.loss));
        EXPECT_INT(session_state(n.s).count, 3);
        net_free(&n);
    }
}

/* The loss overflows, its gradient does not; in the first of two parts. */
TEST(session_leaves_all_when_a_part_is_not_finite)
{
    Net n;
    StepResult r;
    Arena mem = {NULL};
    size_t bytes;
    Optim o = sgd(0, 0);

    net_linear(&n);
    net_open(&n, given_device(1), 1, &o);
    Plan *p = net_plan(&n, true, 2);
    net_feed(&n, p, 1);
    void *before = net_state(&n, &mem, &bytes);
    double keep = poke(&n, p, n.input[1], 0, 1e25);
    REQUIRE(session_part(n.s, p, &(StepPart){true, false, 2, 0.1, 0}, &r));
    EXPECT(isinf(r.loss));
    poke(&n, p, n.input[1], 0, keep);
    REQUIRE(session_part(n.s, p, &(StepPart){false, true, 2, 0.1, 0}, &r));
    EXPECT(isfinite(r.loss) && isfinite(r.grad_norm) && !r.applied);
    EXPECT(!memcmp(before, net_state(&n, &mem, &bytes), bytes));

    // the next step is not affected
    REQUIRE(session_step(n.s, p, 0.1, 0, &r));
    EXPECT(r.applied);
    arena_release(&mem);
    net_free(&n);
}

/* Three parts of one batch are one step on the whole batch. */
TEST(session_accumulates)
{
    Net whole, parts;
    StepResult r;
    Optim o = optim_default(OPTIM_adamw);

    net_linear(&whole);
    net_linear(&parts);
    net_open(&whole, "ref", 1, &o);
    net_open(&parts, "ref", 1, &o);

    for (int step = 0; step < 2; step++) {
        Plan *p = net_plan(&whole, true, 6);
        net_feed(&whole, p, (uint32_t)step);
        StepResult all;
        double loss = 0;
        for (int part = 0; part < 3; part++) {
            Plan *q = net_plan(&parts, true, 2);
            for (int k = 0; k < 2; k++) {
                Tensor to = host_value(q, parts.input[k]);
                Tensor from = host_value(p, whole.input[k]);
                memcpy(to.data,
                       (char *)from.data + (size_t)part * tensor_bytes(&to),
                       tensor_bytes(&to));
            }
            REQUIRE(session_part(
                parts.s, q, &(StepPart){part == 0, part == 2, 3, 0.01, 0.5},
                &r));
            EXPECT_INT(r.applied, part == 2);
            loss += r.loss / 3;
        }
        REQUIRE(session_step(whole.s, p, 0.01, 0.5, &all));
        EXPECT_NEAR(loss, all.loss, 1e-14);
        EXPECT_NEAR(r.grad_norm, all.grad_norm, 1e-14);
    }

    EXPECT_INT(session_state(parts.s).count, 2);
    for (int i = 0; i < 2; i++)
        EXPECT_NEAR(net_get(&parts, "p1.weight", PARAM_VALUE, i),
                    net_get(&whole, "p1.weight", PARAM_VALUE, i), 1e-14);
    net_free(&whole);
    net_free(&parts);
}

/* Parts have different draws: otherwise sample n of each part would drop the
 * same units, and a step of four parts would differ from one with four times
 * the batch. */
TEST(session_parts_draw_apart)
{
    enum { N = 64 };
    Net n;
    StepResult r;
    Optim o = sgd(0, 0);
    float drawn[4][N];
    net_new(&n);
    int x = net_input(&n, "x", (Dims){1, 1, 1, 1, N}, 0);
    int t = net_input(&n, "t", (Dims){1, 1, 1, 1, 1}, 0);
    int drop = net_op(&n, OP_dropout, x, -1, -1);
    int w = net_param(&n, "weight", (Dims){1, 1, 1, 1, N}, 0,
                      (Init){INIT_CONST, 0.1}, true);
    n.loss = net_op(&n, OP_mse, net_op(&n, OP_linear, drop, w, -1), t, -1);
    n.root[n.roots++] = drop;
    net_open(&n, "ref", 1, &o);
    Plan *p = net_plan(&n, true, 1);
    net_feed(&n, p, 1);

    for (int i = 0; i < 4; i++) { // two steps of two parts
        REQUIRE(session_part(
            n.s, p, &(StepPart){i % 2 == 0, i % 2 == 1, 2, 0.01, 0}, &r));
        REQUIRE(session_read(n.s, p, drop, drawn[i]));
        for (int k = 0; k < i; k++) EXPECT(memcmp(drawn[i], drawn[k], N * 4));
    }

    // the same numbers again at the same place in a run
    REQUIRE(session_set_state(n.s, &(StepState){0, {1, 0}, 0}));

    for (int i = 0; i < 4; i++) {
        float again[N];
        REQUIRE(session_part(
            n.s, p, &(StepPart){i % 2 == 0, i % 2 == 1, 2, 0.01, 0}, &r));
        REQUIRE(session_read(n.s, p, drop, again));
        EXPECT(!memcmp(again, drawn[i], sizeof again));
    }
    net_free(&n);
}

/* Runs three steps; returns the final state. */
static void *three_steps(int threads, int count, Arena *mem, size_t *bytes)
{
    Net n;
    Optim o = optim_default(OPTIM_adamw);
    net_small(&n);
    net_open(&n, given_device(1), threads, &o);
    EXPECT_INT(session_threads(n.s), given_backend(1)->threads(threads));
    for (uint32_t i = 0; i < 3; i++)
        EXPECT(net_step(&n, count, i, 0.01, 1).applied);
    void *out = net_state(&n, mem, bytes);
    net_free(&n);
    return out;
}

TEST(session_bits_for_any_number_of_threads)
{
    for (int count = 1; count <= 5; count += 2) {
        Arena mem = {NULL};
        size_t bytes;
        void *one = three_steps(1, count, &mem, &bytes);
        for (int threads = 2; threads <= 4; threads++)
            EXPECT(
                !memcmp(one, three_steps(threads, count, &mem, &bytes), bytes));
        arena_release(&mem);
    }
}

/* Computes the output of the evaluation plan for a batch; its first `keep`
 * elements. */
static void outputs(Net *n, int count, uint32_t seed, float *out)
{
    Plan *p = net_plan(n, false, count);
    net_feed(n, p, seed);
    REQUIRE(session_run(n->s, p) && session_read(n->s, p, n->root[0], out));
}

TEST(session_plans_share_a_pool)
{
    Net n;
    Optim o = optim_default(OPTIM_adamw);
    static float one[64], again[64], four[256];

    net_small(&n);
    net_open(&n, given_device(1), 1, &o);
    EXPECT_INT(session_pool_bytes(n.s), 0);
    net_step(&n, 2, 1, 0.01, 1);
    outputs(&n, 1, 5, one);
    size_t small = session_pool_bytes(n.s);
    Plan *p = net_plan(&n, true, 7);
    EXPECT(session_pool_bytes(n.s) == plan_bytes(p) && plan_bytes(p) > small);
    outputs(&n, 4, 6, four);
    outputs(&n, 1, 5, again); // in a part of the pool of batch 7
    EXPECT(!memcmp(one, again, sizeof one));
    EXPECT_INT(session_pool_bytes(n.s), plan_bytes(p));
    net_free(&n);
}

TEST(session_forgets_the_oldest_plan)
{
    Net n;
    static float first[64], again[64], other[64 * 40];
    net_small(&n);
    net_open(&n, "cpu", 1, NULL);
    outputs(&n, 1, 5, first);
    Plan *p = net_plan(&n, false, 1);
    for (int count = 2; count < 40; count++) {
        outputs(&n, count, 6, other);
        // used in between, so it is never the oldest
        EXPECT(net_plan(&n, false, 1) == p);
    }

    outputs(&n, 1, 5, again);
    EXPECT(!memcmp(first, again, sizeof first));
    long live = mem_live();
    for (int count = 40; count > 1; count--) net_plan(&n, false, count);
    outputs(&n, 1, 5, again); // planned again
    EXPECT(!memcmp(first, again, sizeof first));

    // each new plan replaces an old one: memory does not grow
    EXPECT(labs(mem_live() - live) <= 4);
    net_free(&n);
}

/* Training and evaluation of the same extents have two plans. */
TEST(session_plans_by_mode_and_extents)
{
    Net n;
    Optim o = optim_default(OPTIM_adamw);
    PlanInput in[8];
    Plan *p;

    net_small(&n);
    net_open(&n, "ref", 1, &o);
    Plan *a = net_plan(&n, true, 2), *b = net_plan(&n, false, 2);
    EXPECT(a != b && a == net_plan(&n, true, 2));
    int count = net_extents(&n, 2, in);
    in[0].dim.h = in[1].dim.h = 12;
    REQUIRE(session_plan(n.s, true, in, count, &p));
    EXPECT(p != a);
    in[0].dim.h = in[1].dim.h = 10;
    EXPECT_FAIL(session_plan(n.s, true, in, count, &p), "total stride");
    EXPECT_FAIL(session_plan(n.s, true, in, 17, &p), "at most 16");
    EXPECT(net_plan(&n, true, 2) == a);
    net_free(&n);
}

/* A training step computes only the requested roots, with the bits of a step
 * that computes all. */
TEST(session_step_roots)
{
    enum { STEPS = 3 };
    const Optim o = optim_default(OPTIM_adamw);
    Arena mem = {NULL};
    size_t bytes[2];
    double loss[2] = {0, 0};
    void *state[2];

    for (int some = 0; some < 2; some++) {
        Net n;
        net_small(&n);
        const int out = n.root[0];
        const Node *image = &n.g.node[n.input[0]];
        const int only =
            net_input(&n, "only", n.g.node[out].y.dim, image->y.rank);
        const int product = net_op(&n, OP_mul, out, only, -1);
        n.root[n.roots++] = product;
        SessionSpec spec = {.graph = &n.g,
                            .root = n.root,
                            .roots = n.roots,
                            .loss = n.loss,
                            .device = given_device(1),
                            .threads = 1,
                            .seed = 11,
                            .optim = &o};
        const int other = n.input[0];
        spec.step_root = &other, spec.step_roots = 1;
        EXPECT_FAIL(session_open(&spec, &n.s), "is not one of the roots");
        spec.step_root = some ? &out : NULL, spec.step_roots = some;
        REQUIRE(session_open(&spec, &n.s));
        spec.step_root = NULL; // the session keeps its own list
        for (uint32_t i = 0; i < STEPS; i++)
            loss[some] += net_step(&n, 2, i, 0.01, 1).loss;
        Plan *p = net_plan(&n, true, 2);
        EXPECT(plan_value(p, out) && plan_value(p, n.loss));
        EXPECT((plan_value(p, product) == NULL) == some);
        EXPECT((plan_value(p, only) == NULL) == some);
        p = net_plan(&n, false, 2);
        EXPECT(plan_value(p, product) && plan_value(p, only));
        state[some] = net_state(&n, &mem, &bytes[some]);
        net_free(&n);
    }

    EXPECT(loss[0] == loss[1] && bytes[0] == bytes[1]);
    EXPECT(!memcmp(state[0], state[1], bytes[0]));
    arena_release(&mem);
}

/* session_blame finds the node and changes nothing, with or without memory. */
TEST(session_blames)
{
    Net n;
    char text[256];
    Arena mem = {NULL};
    size_t bytes;
    Optim o = optim_default(OPTIM_adamw);

    for (int trains = 0; trains < 2; trains++) {
        net_small(&n);
        net_open(&n, given_device(1), 1, trains ? &o : NULL);
        Plan *p = net_plan(&n, true, 2);
        net_feed(&n, p, 1);
        void *before = net_state(&n, &mem, &bytes);
        REQUIRE(session_blame(n.s, p, text, sizeof text, NULL));
        EXPECT_TEXT(text, "");
        EXPECT(!memcmp(before, net_state(&n, &mem, &bytes), bytes));
        int failed = 0;
        for (long k = 0; k < 8; k++) {
            mem_fail_after(k, false);
            bool ok = session_blame(n.s, p, text, sizeof text, NULL);
            mem_fail_after(-1, false);
            failed += !ok;
            EXPECT(!memcmp(before, net_state(&n, &mem, &bytes), bytes));
        }
        EXPECT_INT(failed, 8);
        poke(&n, p, n.input[0], 0, NAN);
        REQUIRE(session_blame(n.s, p, text, sizeof text, NULL));
        EXPECT_TEXT(text, "input \"image\"");
        net_free(&n);
    }
    arena_release(&mem);
}

TEST(session_without_a_loss_cannot_train)
{
    Net n;
    StepResult r;
    net_small(&n);
    net_open(&n, "ref", 1, NULL);
    Plan *p = net_plan(&n, true, 2);
    EXPECT_FAIL(session_step(n.s, p, 0.1, 0, &r), "without a loss");
    EXPECT_INT(err_kind(), ERR_USAGE);
    net_free(&n);
}

/* Device names and other options of a run, valid and not. */
TEST(session_of_any_device)
{
    static const char *const rows[][2] = {
        {"gpu", "\"gpu\" is not known; use auto, cpu"},
        {"", "\"\" is not known"},
        {"cpu:0", "only cuda takes a number"},
        {"cpu:", "only cuda takes a number"},
        {"ref:1", "only cuda takes a number"},
        {"auto:0", "is not known"},
        {"CPU", "is not known"},
    };
    Net n;
    net_small(&n);
    long live = mem_live();

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        SessionSpec spec = {.graph = &n.g,
                            .root = n.root,
                            .roots = 1,
                            .loss = -1,
                            .device = rows[i][0]};
        Session *s = NULL;
        EXPECT_FAIL(session_open(&spec, &s), rows[i][1]);
        EXPECT_INT(err_kind(), ERR_USAGE);
    }

    EXPECT_INT(mem_live(), live);

    // built without CUDA, no driver, or no such GPU
    SessionSpec spec = {.graph = &n.g,
                        .root = n.root,
                        .roots = 1,
                        .loss = -1,
                        .device = "cuda:255"};
    Session *s = NULL;
    EXPECT(!session_open(&spec, &s));
    EXPECT_INT(err_kind(), ERR_DEVICE);
    EXPECT_INT(mem_live(), live);
    net_open(&n, "cpu", 3, NULL);
    EXPECT_TEXT(session_backend(n.s)->name, "cpu");
    EXPECT_INT(session_threads(n.s), 3);
    net_free(&n);
}

/* Every allocation fails once, alone or with all later ones. */
TEST(session_without_memory)
{
    Optim o = optim_default(OPTIM_adamw);
    for (int then_on = 0; then_on < 2; then_on++) {
        Net n;
        net_small(&n);
        long live = mem_live(), k = 0;
        for (;; k += given_every()) {
            err_set(ERR_NONE, "");
            mem_fail_after(k, then_on);
            bool ok = net_life(&n, given_device(1), 2, &o);
            mem_fail_after(-1, false);
            EXPECT_INT(mem_live(), live);
            if (ok) break;
            EXPECT(strstr(err_text(), "no memory: "));
            EXPECT_INT(err_kind(), ERR_FAILURE);
            REQUIRE(k < 1000);
        }
        // an ignored failure would end the loop early
        EXPECT(k > 50);
        net_free(&n);
    }
}

/* A pool that does not fit gives a reason, and the session still works. */
TEST(session_without_room)
{
    Net n;
    Optim o = optim_default(OPTIM_adamw);
    net_small(&n);
    net_open(&n, "cpu", 1, &o);
    net_step(&n, 1, 1, 0.01, 1);
    PlanInput in[8];
    Plan *p;
    int inputs = net_extents(&n, 4, in);
    REQUIRE(session_plan(n.s, true, in, inputs, &p));
    mem_fail_after(0, false);
    EXPECT_FAIL(session_bind(n.s, p), "a smaller batch or smaller images");
    EXPECT(net_step(&n, 1, 2, 0.01, 1).applied);

    // more than the machine has
    net_extents(&n, 1 << 30, in);
    in[0].dim.h = in[1].dim.h = 1 << 12;
    REQUIRE(session_plan(n.s, true, in, inputs, &p));
    EXPECT_FAIL(session_bind(n.s, p), "no memory");
    EXPECT(net_step(&n, 1, 3, 0.01, 1).applied);
    net_free(&n);
}
