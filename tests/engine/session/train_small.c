/* train_small.c -- small U-Nets trained on the fast device and on ref.
 *
 * From the same parameters and inputs both must have the same loss in every
 * step, and after steps of SGD the same parameters and running statistics.
 * (Adam turns the rounding of a gradient near zero into a full step, so after
 * its steps only the losses are compared.) Suites test the operators; this test
 * is about the rest: the plan with its shared memory, values kept for the
 * backward run, batch norm's statistics, the counters of dropout, clipping and
 * the update.
 *
 * SEG_TEST_DEVICE names the fast device, see op_call.h. */
#include "tests/support/networks.h"
#include "tests/support/op_call.h"

enum { STEPS = 3 };

typedef struct Small {
    const char *name;
    Dims image;
    int rank, base, depth, batch;
    bool dropout;
} Small;

// extents that no tile divides; the last batch norm still has 8 values
static const Small smalls[] = {
    {"2-D", {1, 1, 12, 20, 3}, 2, 5, 2, 3, false},
    {"3-D", {1, 4, 8, 12, 1}, 3, 4, 2, 2, false},
    {"2-D with dropout", {1, 1, 12, 12, 2}, 2, 4, 1, 2, true},
    {"3-D with dropout", {1, 6, 6, 4, 2}, 3, 3, 1, 2, true},
};
enum { SMALLS = sizeof smalls / sizeof *smalls };

static void small_net(Net *n, const Small *s)
{
    Dims mask = s->image;
    mask.c = 1;
    net_new(n);
    int image = net_input(n, "image", s->image, s->rank), x = image;
    int target = net_input(n, "target", mask, s->rank);

    if (s->dropout) {
        Attr drop = op_default(OP_dropout),
             all = op_default(OP_spatial_dropout);
        drop.dropout.p = 0.3f;
        all.spatial_dropout.p = 0.25f;
        x = net_block(n, x, 4);
        x = net_row(n, drop, &x, 1);
        x = net_row(n, all, &x, 1);
    }

    n->root[n->roots++] = net_unet(n, x, s->base, s->depth);
    n->loss = net_op(n, OP_bce_dice, n->root[0], target, -1);
}

static void small_open(Net *n, const Small *s, const char *device,
                       OptimKind kind)
{
    Optim o = optim_default(kind);
    if (kind == OPTIM_sgd) o.hyper[0] = 0.9; // momentum
    small_net(n, s);
    net_open(n, device, 2, &o);
}

/* Returns all numbers of parameter i in user order. */
static double *values(Net *n, int i, Arena *mem)
{
    const Params *q = session_params(n->s);
    double *out = ARENA_NEW(mem, double, numel(q->list[i].dim));
    REQUIRE(out && params_read(q, i, PARAM_VALUE, 0, out));
    return out;
}

/* Compares parameters and running statistics, each relative to its largest. */
static void near_parameters(Net *want, Net *got, const Small *s)
{
    Arena mem = {NULL};
    const Params *q = session_params(want->s);

    for (int i = 0; i < q->count; i++) {
        double *w = values(want, i, &mem), *g = values(got, i, &mem);
        double most = 0, worst = 0;
        for (int64_t k = 0; k < numel(q->list[i].dim); k++) {
            most = fmax(most, fabs(w[k]));
            // in this form a NaN stays
            if (!(fabs(g[k] - w[k]) <= worst)) worst = fabs(g[k] - w[k]);
        }
        if (!(worst <= 1e-4 * most))
            test_failed(__FILE__, __LINE__,
                        "%s: %s is off by %.3g, its largest is %.3g", s->name,
                        q->list[i].name, worst, most);
    }
    arena_release(&mem);
}

/* Copies the parameters, so that both start equal; ref gets floats. */
static void hand_over(Net *from, Net *to)
{
    Arena mem = {NULL};
    Params *q = session_params(to->s);
    for (int i = 0; i < q->count; i++)
        REQUIRE(params_write(q, i, PARAM_VALUE, 0, values(from, i, &mem)));
    arena_release(&mem);
}

static void against_ref(const Small *s, OptimKind kind, double lr)
{
    Net ref, fast;
    small_open(&ref, s, given_device(0), kind);
    small_open(&fast, s, given_device(1), kind);
    hand_over(&fast, &ref);

    for (uint32_t step = 0; step < STEPS; step++) {
        StepResult want = net_step(&ref, s->batch, step, lr, 1);
        StepResult got = net_step(&fast, s->batch, step, lr, 1);
        EXPECT(want.applied && got.applied);
        if (!(fabs(got.loss - want.loss) <= 1e-5 * fabs(want.loss)))
            test_failed(__FILE__, __LINE__,
                        "%s, %s, step %u: the loss is %.9g, want %.9g", s->name,
                        optim_info[kind].name, step, got.loss, want.loss);
        EXPECT_NEAR(got.grad_norm, want.grad_norm, 1e-4 * want.grad_norm);
    }

    if (kind == OPTIM_sgd) near_parameters(&ref, &fast, s);
    net_free(&ref);
    net_free(&fast);
}

TEST(train_small_sgd)
{
    for (int i = 0; i < SMALLS; i++) against_ref(&smalls[i], OPTIM_sgd, 0.05);
}

TEST(train_small_adamw)
{
    for (int i = 0; i < SMALLS; i++) against_ref(&smalls[i], OPTIM_adamw, 1e-3);
}

/* Returns parameters, moments and count after some steps. */
static void *trained(const Small *s, Arena *mem, size_t *bytes)
{
    Net n;
    small_open(&n, s, given_device(1), OPTIM_adamw);
    for (uint32_t i = 0; i < STEPS; i++)
        EXPECT(net_step(&n, s->batch, i, 1e-3, 1).applied);
    void *out = net_state(&n, mem, bytes);
    net_free(&n);
    return out;
}

TEST(train_small_twice)
{
    for (int i = 0; i < SMALLS; i++) {
        Arena mem = {NULL};
        size_t bytes;
        const void *once = trained(&smalls[i], &mem, &bytes);
        if (memcmp(once, trained(&smalls[i], &mem, &bytes), bytes))
            test_failed(__FILE__, __LINE__, "%s: other bits", smalls[i].name);
        arena_release(&mem);
    }
}
