/* grad_sqnorm.c -- gradient-norm partial sums, written by the kernels that
 * store the gradients (plan_grad_sqnorm.c), and the gradient norm that a step
 * computes from them and from the gradients that it reads, on the emulated
 * device. */
#include "engine/plan/plan_inside.h"
#include "tests/cuda/emulator/emu_control.h"
#include "tests/support/networks.h"
#include "tests/support/op_call.h"
#include <math.h>

/* How a network is trained. */
typedef struct Way {
    Precision precision;
    bool no_fusion; /* nothing fused */
    int parts;      /* of a step */
    int count;      /* samples of a part */
} Way;

/* A layer with so many positions that dw has several partial sums; after a pool
 * a layer with one partial sum; a layer with two tiles of dw along each axis;
 * a layer that runs twice; an upconv; a depthwise layer; a layer with one
 * filter. */
static void layers(Net *n)
{
    net_new(n);
    n->bias = true;
    const int target = net_input(n, "target", (Dims){1, 1, 16, 32, 1}, 2);
    int x = net_input(n, "image", (Dims){1, 1, 32, 64, 8}, 2);
    x = net_relu(n, net_norm(n, net_conv(n, x, 16, 3)));
    x = net_relu(n, net_norm(n, net_conv(n, net_pool(n, x), 16, 3)));
    x = net_relu(n, net_norm(n, net_conv(n, net_pool(n, x), 72, 1)));
    Attr same = op_default(OP_conv);
    n->layers++;
    const int w = net_param(n, "weight", (Dims){72, 1, 1, 1, 72}, 2,
                            (Init){INIT_UNIFORM, 0.1}, true);
    for (int i = 0; i < 2; i++)
        x = net_relu(n, net_row(n, same, (int[]){x, w}, 2));
    x = net_upconv(n, x, 16);
    Attr alone = op_default(OP_conv);
    alone.conv.ph0 = alone.conv.ph1 = alone.conv.pw0 = alone.conv.pw1 = 1;
    alone.conv.groups = 16;
    n->layers++;
    const int taps = net_param(n, "weight", (Dims){16, 1, 3, 3, 1}, 2,
                               (Init){INIT_UNIFORM, 0.3}, true);
    x = net_row(n, alone, (int[]){x, taps}, 2);
    n->root[n->roots++] = net_conv(n, x, 1, 1);
    n->loss = net_op(n, OP_mse, n->root[0], target, -1);
}

static void open_way(Net *n, const Way *way)
{
    const Optim o = optim_default(OPTIM_adamw);
    layers(n);
    SessionSpec spec = {.graph = &n->g,
                        .root = n->root,
                        .roots = n->roots,
                        .loss = n->loss,
                        .device = "cuda",
                        .seed = 11,
                        .optim = &o,
                        .precision = way->precision,
                        .no_fusion = way->no_fusion};
    REQUIRE(session_open(&spec, &n->s));
}

/* Runs one step with all its parts. */
static StepResult step(Net *n, const Way *way, uint32_t seed)
{
    StepResult r = {0};
    for (int i = 0; i < way->parts; i++) {
        Plan *p = net_plan(n, true, way->count);
        const StepPart part = {i == 0, i == way->parts - 1, way->parts, 0.01,
                               1};
        net_feed(n, p, seed + (uint32_t)i);
        REQUIRE(session_part(n->s, p, &part, &r));
    }
    return r;
}

/* Copies `bytes` from the device. The caller frees the copy. */
static void *fetch(Net *n, const void *at, size_t bytes)
{
    void *host = mem_alloc(bytes + 1);
    REQUIRE(host);
    REQUIRE(
        session_backend(n->s)->download(session_device(n->s), host, at, bytes));
    return host;
}

/* Returns whether the norm reads element i of the gradients. */
static bool is_read(const SqnormPlaces *s, int64_t i)
{
    const int64_t line = i / PARAM_ALIGN;
    for (int k = 0; k < s->rests; k++) {
        const Rest *r = &s->rest[k];
        const int64_t end =
            k + 1 < s->rests ? r[1].first : s->elements / PARAM_ALIGN;
        if (line >= r->line && line < r->line + (end - r->first)) return true;
    }
    return false;
}

/* Expects that the partial sums of each parameter add up to the sum of squares
 * of its gradient, and that a gradient without partial sums is read. Returns
 * the number of parameters with partial sums, and the sum of all squares. */
static int check_sqnorms(Net *n, const Plan *p, double *all)
{
    const Params *q = session_params(n->s);
    const SqnormPlaces *s = plan_sqnorms(p);
    int with_sums = 0;
    double *sums = fetch(n, s->left, (size_t)s->lefts * sizeof *sums);
    float *g = fetch(n, q->grad, (size_t)q->trained * sizeof *g);

    *all = 0;
    for (int i = 0; i < q->count; i++) {
        const Param *a = &q->list[i];
        const PlanNode *v = &p->node[a->node];
        double want = 0, got = 0;
        if (!a->trained) continue;
        for (int64_t k = 0; k < numel(a->dim); k++) {
            const double one = (double)g[a->at + k];
            want += one * one;
            EXPECT(is_read(s, a->at + k) == !v->grad_sqnorm.dim.c);
        }
        *all += want;
        if (!v->grad_sqnorm.dim.c) continue;
        for (int k = 0; k < v->grad_sqnorm.dim.c; k++)
            got += sums[v->sqnorm_at + k];
        EXPECT(want > 0);
        EXPECT_NEAR(got, want, 1e-12 * want);
        with_sums++;
    }

    mem_free(sums);
    mem_free(g);
    return with_sums;
}

/* Three steps: call by call, captured, replayed. In the checked build only the
 * first: all three launch the same kernels. */
static void check_steps(const Way *way, int want)
{
    Net n;
    double all;
    open_way(&n, way);
    const Plan *p = net_plan(&n, true, way->count);

    for (uint32_t i = 0; i < (given_once() ? 1 : 3); i++) {
        const StepResult r = step(&n, way, 5 * i);
        const double scale = session_grad_scale(n.s);
        EXPECT(r.applied && r.grad_norm > 0);
        EXPECT_INT(check_sqnorms(&n, p, &all), want);
        EXPECT_NEAR(r.grad_norm, sqrt(all) / scale, 1e-12 * r.grad_norm);
    }
    net_free(&n);
}

// all weights, in 16 bits without the layer of one filter, which has another
// kernel there
TEST(grad_sqnorm_of_what_is_stored)
{
    check_steps(&(Way){PRECISION_bf16, false, 1, 2}, 6);
    check_steps(&(Way){PRECISION_f16, false, 1, 1}, 6);
    check_steps(&(Way){PRECISION_tf32, false, 1, 1}, 7);
    check_steps(&(Way){PRECISION_f32, false, 1, 1}, 7);
}

/* The parts of a step add up: the last part writes the partial sums. */
TEST(grad_sqnorm_of_parts_of_a_step)
{
    check_steps(&(Way){PRECISION_bf16, false, 3, 1}, 6);
    check_steps(&(Way){PRECISION_f32, false, 2, 1}, 7);
}

/* Without fusion all gradients are read; the norm is the same up to the order
 * of the sum. */
TEST(grad_sqnorm_plain)
{
    check_steps(&(Way){PRECISION_bf16, true, 1, 1}, 0);
    check_steps(&(Way){PRECISION_f32, true, 1, 1}, 0);
}

/* The same bits in any order of blocks and threads. */
TEST(grad_sqnorm_any_order)
{
    static const char *const order[] = {"g", "h", "a", "r3"};
    const Way way = {PRECISION_bf16, false, 1, 2};
    double first = 0;
    const size_t orders = given_once() ? 2 : sizeof order / sizeof *order;

    for (size_t k = 0; k < orders; k++) {
        Net n;
        emu_set_order(order[k]);
        open_way(&n, &way);
        const double norm = step(&n, &way, 1).grad_norm;
        if (!k) first = norm;
        EXPECT(norm == first);
        net_free(&n);
    }
    emu_set_order("g");
}

/* One gradient is not finite: the step is skipped, with partial sums and with
 * gradients that are read. */
TEST(grad_sqnorm_of_infinity)
{
    const Way way = {PRECISION_f16, false, 1, 1};
    Net n;
    open_way(&n, &way);
    REQUIRE(session_set_state(n.s, &(StepState){0, {0x1p60, 9}, 0}));
    const StepResult r = step(&n, &way, 1);
    EXPECT(r.overflow && !r.applied && isfinite(r.loss));
    EXPECT(!isfinite(r.grad_norm));
    net_free(&n);
}

/* More separate gradients than fit the argument of the norm's kernel. */
TEST(grad_sqnorm_many_layers)
{
    enum { LAYERS = MAX_RESTS + 20 };
    const Optim o = optim_default(OPTIM_sgd);
    Net n;
    double all;
    net_new(&n);
    n.bias = true;
    const int target = net_input(&n, "target", (Dims){1, 1, 1, 2, 4}, 2);
    int x = net_input(&n, "image", (Dims){1, 1, 1, 2, 4}, 2);
    for (int i = 0; i < LAYERS; i++) {
        const int y = net_conv(&n, x, 4, 1);
        x = net_op(&n, OP_add, x, y, -1);
        if (i % 8 == 7) x = net_norm(&n, x); // else values grow
    }

    n.root[n.roots++] = x;
    n.loss = net_op(&n, OP_mse, x, target, -1);
    net_open(&n, "cuda", 1, &o);
    const StepResult r = net_step(&n, 2, 1, 0.01, 1);
    const Plan *p = net_plan(&n, true, 2);
    EXPECT(r.applied);
    EXPECT_INT(check_sqnorms(&n, p, &all), MAX_RESTS - 1);

    // the first layer is the start of the parameters
    EXPECT_INT(plan_sqnorms(p)->rests, MAX_RESTS - 1);
    EXPECT_NEAR(r.grad_norm, sqrt(all), 1e-12 * r.grad_norm);
    net_free(&n);
}
