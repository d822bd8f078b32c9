/* session_update.c -- the parameters that a step updates, and their factors.
 *
 * A session updates neighbours with equal decay in one call of the backend.
 * Here each parameter is updated alone, on copies on the same device: parameter
 * ranges, frozen parameters and gaps must give the same bits. */
#include "engine/base/rng.h"
#include "tests/support/networks.h"
#include "tests/support/op_call.h"

/* Parameters in an order that gives many ranges: decayed and not, frozen and
 * not, running statistics between. */
static void patchwork(Net *n, uint32_t c)
{
    Rng r = {.seed = 3, .stream = RNG_TEST, .sample = c};
    net_new(n);
    n->bias = true;
    int x = net_input(n, "x", (Dims){1, 1, 4, 4, 3}, 2);
    int t = net_input(n, "t", (Dims){1, 1, 4, 4, 3}, 2);
    for (uint32_t i = 0; i < 5; i++) {
        n->bias = rng_below(&r, i, 2);
        if (rng_below(&r, 10 + i, 2)) x = net_norm(n, x);
        x = net_op(n, OP_tanh, net_conv(n, x, 3, 3), -1, -1);
    }

    n->root[n->roots++] = net_conv(n, net_norm(n, x), 2, 1); // no loss here
    n->loss = net_op(n, OP_mse, x, t, -1);
}

/* Copies `count` reals of a device to the host. */
static void *fetched(Net *n, Arena *mem, const void *at, int64_t count)
{
    const Backend *be = session_backend(n->s);
    size_t bytes = (size_t)count * dtype_bytes(be->real);
    void *out = arena_alloc(mem, bytes);
    REQUIRE(out && be->download(session_device(n->s), out, at, bytes));
    return out;
}

/* Copies `count` reals of a device to another place there. */
static char *doubled(Net *n, Arena *mem, const void *at, int64_t count)
{
    const Backend *be = session_backend(n->s);
    void *dev = session_device(n->s), *out;
    size_t bytes = (size_t)count * dtype_bytes(be->real);
    const void *host = fetched(n, mem, at, count);
    REQUIRE(be->alloc(dev, bytes, &out) && be->upload(dev, out, host, bytes));
    return out;
}

/* Checks that trained parameters of two blocks are equal, and gaps zero. */
static void same_parameters(Net *n, const float *want, const float *got)
{
    const Params *q = session_params(n->s);
    float sum = 0;

    for (int i = 0; i < q->count; i++) {
        const Param *a = &q->list[i];
        int64_t count = numel(a->dim);
        if (a->trained &&
            memcmp(want + a->at, got + a->at, (size_t)count * sizeof *want))
            test_failed(__FILE__, __LINE__, "%s%s differs", a->name,
                        a->frozen ? " (frozen)" : "");
        int64_t end = (count + PARAM_ALIGN - 1) / PARAM_ALIGN * PARAM_ALIGN;
        for (int64_t k = count; k < end; k++) sum += fabsf(got[a->at + k]);
    }
    EXPECT_NEAR(sum, 0, 0);
}

/* Updates of single parameters give the bits of updates of ranges. */
TEST(session_updates_every_parameter)
{
    static const OptimKind kinds[] = {OPTIM_adamw, OPTIM_adam, OPTIM_sgd,
                                      OPTIM_radam};
    static const double rates[] = {1, 1, 0.5, 0, 3}, decays[] = {-1, -1, 0, 2};

    for (uint32_t c = 0; c < 32; c++) {
        Net n;
        Arena mem = {NULL};
        Optim o = optim_default(kinds[c % 4]);
        Rng r = {.seed = 4, .stream = RNG_TEST, .sample = c};
        for (int i = 0; i < optim_info[o.kind].hypers; i++)
            if (!strcmp(optim_info[o.kind].hyper[i].name, "decay"))
                o.hyper[i] = 0.3;
        patchwork(&n, c);
        net_open(&n, given_device(1), 1, &o);
        const Backend *be = session_backend(n.s);
        void *dev = session_device(n.s);
        Params *q = session_params(n.s);
        for (uint32_t i = 0; i < (uint32_t)q->count; i++) {
            q->list[i].frozen = rng_below(&r, i, 3) == 0;
            if (c < 8 || !q->list[i].trained) continue;
            // groups of neighbours and of distant parameters
            REQUIRE(params_group(q, q->list[i].name,
                                 rates[rng_below(&r, 100 + i, 5)],
                                 decays[rng_below(&r, 200 + i, 4)]));
        }
        net_step(&n, 2, 1, 0.01, 0);
        char *value = doubled(&n, &mem, q->value, q->total), *state[2] = {NULL};
        for (int i = 0; i < q->states; i++)
            state[i] = doubled(&n, &mem, q->state[i], q->trained);
        net_step(&n, 2, 2, 0.01, 0);
        for (int i = 0; i < q->count; i++) {
            const Param *a = &q->list[i];
            size_t at = (size_t)a->at * 4;
            Update u = {.optim = &o,
                        .value = value + at,
                        .grad = (char *)q->grad + at,
                        .m = state[0] + at,
                        .v = state[1] ? state[1] + at : NULL,
                        .count = numel(a->dim),
                        .step = 2,
                        .lr = 0.01 * a->rate,
                        .decay = !a->decayed    ? 0
                                 : a->decay < 0 ? 0.3
                                                : a->decay,
                        .grad_scale = 1};
            if (a->trained && !a->frozen) REQUIRE(be->update(dev, &u));
        }
        same_parameters(&n, fetched(&n, &mem, value, q->total),
                        fetched(&n, &mem, q->value, q->total));
        be->release(dev, value);
        for (int i = 0; i < 2; i++) be->release(dev, state[i]);
        arena_release(&mem);
        net_free(&n);
    }
}

/* Invalid groups, and more groups than allowed. */
TEST(session_refuses_groups)
{
    Net n;
    Optim o = optim_default(OPTIM_sgd);
    net_new(&n);
    int x = net_input(&n, "x", (Dims){1, 1, 1, 1, 2}, 0);
    int t = net_input(&n, "t", (Dims){1, 1, 1, 1, 2}, 0);
    n.bias = true;
    int y = x;

    for (int i = 0; i < MAX_GROUPS; i++) {
        char name[16];
        snprintf(name, sizeof name, "w%d", i);
        int w = net_param(&n, name, (Dims){2, 1, 1, 1, 2}, 0,
                          (Init){INIT_CONST, 0.1}, true);
        y = net_op(&n, OP_linear, y, w, -1);
    }

    int w = net_param(&n, "last", (Dims){2, 1, 1, 1, 2}, 0,
                      (Init){INIT_CONST, 0.1}, true);
    n.loss = net_op(&n, OP_mse, net_op(&n, OP_linear, y, w, -1), t, -1);
    net_open(&n, given_device(1), 1, &o);
    Params *q = session_params(n.s);
    EXPECT_FAIL(params_group(q, "nobody", 1, 0),
                "no trained parameter is called \"nobody\"");
    EXPECT_FAIL(params_group(q, q->list[0].name, -1, 0), "its rate is -1");
    EXPECT_FAIL(params_group(q, q->list[0].name, NAN, 0), "its rate is nan");
    EXPECT_FAIL(params_group(q, q->list[0].name, 1, INFINITY), "decay inf");
    for (int i = 0; i < q->count; i++)
        REQUIRE(params_group(q, q->list[i].name, 1 + i, 0));
    StepResult r;
    Plan *p = net_plan(&n, true, 1);
    net_feed(&n, p, 1);
    EXPECT_FAIL(session_step(n.s, p, 0.1, 0, &r),
                "is the first of group 65; at most 64 different rates");

    // the maximum number of groups
    REQUIRE(params_group(q, q->list[0].name, 2, 0));
    REQUIRE(session_step(n.s, p, 0.1, 0, &r));
    net_free(&n);
}

/* Parameters that the loss does not depend on keep their values; they would
 * decay otherwise. */
TEST(session_leaves_what_has_no_gradient)
{
    for (size_t d = 0; d < 2; d++) {
        Net n;
        Optim o = optim_default(OPTIM_adamw);
        net_small(&n);
        n.root[n.roots++] = net_conv(&n, n.input[0], 2, 3);
        char name[32];
        snprintf(name, sizeof name, "p%d.weight", n.layers);
        net_open(&n, given_device(d), 1, &o);
        double was = net_get(&n, name, PARAM_VALUE, 5);
        double first = net_get(&n, "p1.weight", PARAM_VALUE, 5);
        EXPECT(net_step(&n, 2, 1, 0.1, 0).applied);
        EXPECT_NEAR(net_get(&n, name, PARAM_VALUE, 5), was, 0);
        EXPECT(net_get(&n, "p1.weight", PARAM_VALUE, 5) != first);
        net_free(&n);
    }
}
