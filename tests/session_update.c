/* session_update.c -- which parameters a step updates, and with what.
 *
 * A session updates neighbours that decay alike in one call of the backend.
 * Here each parameter is updated by itself, on copies of the same device:
 * segments, frozen parameters and gaps must come out with the same bits. */
#include "given.h"
#include "net.h"
#include "rng.h"

/* Parameters in an order that asks for many segments: decayed and not, frozen
 * or not, running statistics between. */
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

/* `count` reals of a device, copied to the host. */
static void *fetched(Net *n, Arena *mem, const void *at, int64_t count)
{
    const Backend *be = session_backend(n->s);
    size_t bytes = (size_t)count * dtype_bytes(be->real);
    void *out = arena_alloc(mem, bytes);
    REQUIRE(out && be->download(session_device(n->s), out, at, bytes));
    return out;
}

/* The same, copied to another place there. */
static char *doubled(Net *n, Arena *mem, const void *at, int64_t count)
{
    const Backend *be = session_backend(n->s);
    void *dev = session_device(n->s), *out;
    size_t bytes = (size_t)count * dtype_bytes(be->real);
    const void *host = fetched(n, mem, at, count);
    REQUIRE(be->alloc(dev, bytes, &out) && be->upload(dev, out, host, bytes));
    return out;
}

/* Those of the trained parameters that differ between two blocks, and gaps
 * that are not zero. */
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

/* The update of each parameter alone gives the same bits as the segments. */
TEST(session_updates_every_parameter)
{
    static const OptimKind kinds[] = {OPTIM_adamw, OPTIM_adam, OPTIM_sgd};
    for (uint32_t c = 0; c < 24; c++) {
        Net n;
        Arena mem = {NULL};
        Optim o = optim_default(kinds[c % 3]);
        Rng r = {.seed = 4, .stream = RNG_TEST, .sample = c};
        for (int i = 0; i < optim_info[o.kind].hypers; i++)
            if (!strcmp(optim_info[o.kind].hyper[i].name, "decay"))
                o.hyper[i] = 0.3;
        patchwork(&n, c);
        net_open(&n, given_device(1), 1, &o);
        const Backend *be = session_backend(n.s);
        void *dev = session_device(n.s);
        Params *q = session_params(n.s);
        for (int i = 0; i < q->count; i++)
            q->list[i].frozen = rng_below(&r, (uint32_t)i, 3) == 0;
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
                        .lr = 0.01,
                        .decay = a->decayed ? 0.3 : 0,
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
