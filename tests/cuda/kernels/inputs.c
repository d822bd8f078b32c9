/* inputs.c -- inputs stored in 16 bits on the emulated device: training steps
 * equal the steps of the same network with inputs in f32, of which products
 * make 16-bit copies. */
#include "engine/graph/precision.h"
#include "tests/cuda/emulator/emu_control.h"
#include "tests/support/networks.h"
#include "tests/test.h"
#include <string.h>

extern const Backend backend_cuda;

enum { BATCH = 2, STEPS = 3, INPUTS = 4 };

/* A network with inputs of three kinds: one before a first-layer convolution,
 * two with a concat before a convolution, one before a 1x1 convolution. `wide`:
 * the inputs are also outputs, which are f32. */
static void open_net(Net *n, Precision p, bool wide)
{
    static const int channels[INPUTS] = {1, 1, 4, 16};
    static const char *const name[INPUTS] = {"a", "b", "c", "d"};
    Optim o = optim_default(OPTIM_adam);
    int x[INPUTS];

    net_new(n);
    for (int i = 0; i < INPUTS; i++)
        x[i] = net_input(n, name[i], (Dims){1, 1, 9, 10, channels[i]}, 2);
    const int t = net_input(n, "target", (Dims){1, 1, 9, 10, 8}, 2);
    int y = net_conv(n, x[0], 8, 3);
    const int both = net_op(n, OP_concat, x[1], x[2], -1);
    y = net_op(n, OP_add, y, net_conv(n, both, 8, 3), -1);
    y = net_op(n, OP_add, y, net_conv(n, x[3], 8, 1), -1);
    n->root[n->roots++] = net_conv(n, y, 8, 3);
    for (int i = 0; i < INPUTS && wide; i++) n->root[n->roots++] = x[i];
    n->loss = net_op(n, OP_mse, n->root[0], t, -1);
    SessionSpec spec = {.graph = &n->g,
                        .root = n->root,
                        .roots = n->roots,
                        .loss = n->loss,
                        .device = "cuda",
                        .threads = 2,
                        .seed = 3,
                        .optim = &o,
                        .precision = p};
    REQUIRE(session_open(&spec, &n->s));
}

TEST(inputs_train_as_copies_do)
{
    for (int p = PRECISION_bf16; p <= PRECISION_f16; p++) {
        Arena mem = {NULL};
        Net n[2];
        size_t bytes[2];
        void *state[2];
        StepResult r[2];
        for (int i = 0; i < 2; i++) {
            open_net(&n[i], (Precision)p, i == 1);
            for (uint32_t s = 0; s < STEPS; s++)
                r[i] = net_step(&n[i], BATCH, s, 0.01, 0);
            const Plan *plan = net_plan(&n[i], true, BATCH);
            for (int k = 0; k < n[i].inputs; k++) {
                const bool target = *n[i].g.node[n[i].input[k]].name == 't';
                EXPECT_INT(plan_value(plan, n[i].input[k])->type,
                           i || target ? F32 : precision_copy((Precision)p));
            }
            state[i] = net_state(&n[i], &mem, &bytes[i]);
        }
        EXPECT(r[0].applied && r[0].loss == r[1].loss);
        EXPECT_INT(bytes[0], bytes[1]);
        EXPECT(!memcmp(state[0], state[1], bytes[0]));
        for (int i = 0; i < 2; i++) net_free(&n[i]);
        arena_release(&mem);
    }
}

/* Trains a network with an implicit concat, which is stored in the least memory
 * (`least`). `how`: a concat of two features, of two inputs, of a concat of
 * inputs and a function of one input, of features and an input that stays f32.
 */
static double trained(int how, bool least, double *norm)
{
    Net n;
    const Optim o = optim_default(OPTIM_sgd);
    const Dims s = {1, 1, 7, 9, 1};
    Dims ten = s, eight = s;

    ten.c = 10, eight.c = 8;
    net_new(&n);
    const int a = net_input(&n, "a", s, 2), b = net_input(&n, "b", ten, 2);
    const int d = net_input(&n, "d", eight, 2);
    const int t = net_input(&n, "target", s, 2);
    int y = net_relu(&n, net_conv(&n, b, 32, 3));
    int z = y;

    // so many layers that recomputing some of them saves memory
    for (int i = 0; i < 8; i++) z = net_relu(&n, net_conv(&n, z, 32, 3));
    if (how == 0) z = net_op(&n, OP_concat, z, net_conv(&n, y, 8, 3), -1);
    if (how == 3) z = net_op(&n, OP_concat, z, d, -1);
    z = net_conv(&n, z, 8, 3);
    if (how == 1 || how == 2) {
        int both = net_op(&n, OP_concat, a, b, -1);
        if (how == 2) both = net_op(&n, OP_concat, both, net_relu(&n, a), -1);
        z = net_op(&n, OP_add, z, net_conv(&n, both, 8, 3), -1);
    }

    n.root[n.roots++] = net_conv(&n, z, 1, 1);
    if (how == 3) n.root[n.roots++] = net_relu(&n, d);
    n.loss = net_op(&n, OP_mse, n.root[0], t, -1);
    n.precision = PRECISION_bf16;
    net_open(&n, "cuda", 1, &o);
    if (least) session_budget(n.s, 1, true);
    double loss = 0;
    EXPECT((plan_recomputed(net_plan(&n, true, BATCH)).calls > 0) == least);
    for (uint32_t i = 0; i < STEPS; i++) {
        const StepResult r = net_step(&n, BATCH, i, 0.05, 0);
        loss += r.loss, *norm += r.grad_norm;
    }
    net_free(&n);
    return loss;
}

TEST(inputs_and_concats_in_little_memory)
{
    for (int how = 0; how < 4; how++) {
        double norm[2] = {0, 0};
        const double a = trained(how, false, &norm[0]);
        const double b = trained(how, true, &norm[1]);
        if (a != b || norm[0] != norm[1])
            test_failed(__FILE__, __LINE__,
                        "case %d: %.9g, %.9g and %.9g, %.9g", how, a, norm[0],
                        b, norm[1]);
    }
}

/* An input larger than one staging buffer. */
TEST(inputs_go_in_pieces)
{
    enum { ALL = (33 << 20) / 2 + 5, APART = 9973 };
    float *x = mem_alloc(ALL * sizeof *x);
    Tensor t = {{1, 1, 1, 1, ALL}, F16, RANK_MAX, NULL};
    uint16_t *got = mem_alloc(tensor_bytes(&t));
    void *dev;
    REQUIRE(x && got && backend_cuda.open(0, 1, &dev));
    REQUIRE(backend_cuda.alloc(dev, tensor_bytes(&t), &t.data));
    for (int i = 0; i < ALL; i++) x[i] = (float)(i % 2039);
    REQUIRE(backend_cuda.upload_narrow(dev, &t, x));
    REQUIRE(backend_cuda.download(dev, got, t.data, tensor_bytes(&t)));
    for (int i = ALL - 1; i >= 0; i -= APART)
        EXPECT(precision_value(PRECISION_f16, got[i]) == (double)x[i]);
    backend_cuda.release(dev, t.data);
    backend_cuda.close(dev);
    mem_free(x);
    mem_free(got);
}

/* Inputs of a caller, in channels-first and in channels-last order. */
TEST(inputs_are_rounded_as_they_arrive)
{
    enum { C = 4, P = 90, ALL = BATCH * C * P };
    static float user[ALL], memory[ALL];
    static float back[ALL];
    uint16_t want[ALL], got[ALL];
    Net n;
    open_net(&n, PRECISION_bf16, false);
    Plan *p = net_plan(&n, true, BATCH);
    const int node = graph_find(&n.g, "c");
    const Tensor *t = plan_value(p, node);
    for (int i = 0; i < ALL; i++) {
        const int s = i / (C * P), at = i / P % C, place = i % P;
        user[i] = (float)(i * 37 % 1001) / 7 - 50;
        memory[(s * P + place) * C + at] = user[i];
    }

    precision_narrow(BF16, memory, ALL, want);
    const Tensor from = {t->dim, F32, t->rank, memory};

    for (int how = 0; how < 2; how++) {
        REQUIRE(how ? session_feed_tensor(n.s, p, node, &from)
                    : session_feed(n.s, p, node, user));
        REQUIRE(backend_cuda.download(session_device(n.s), got, t->data,
                                      tensor_bytes(t)));
        EXPECT_INT(tensor_bytes(t), sizeof want);
        EXPECT(!memcmp(got, want, sizeof want));
        REQUIRE(session_read(n.s, p, node, back));
        for (int i = 0; i < ALL; i++)
            EXPECT((double)back[i] ==
                   precision_round(PRECISION_bf16, (double)user[i]));
        memset(got, 0, sizeof got);
        REQUIRE(
            backend_cuda.upload(session_device(n.s), t->data, got, sizeof got));
    }
    net_free(&n);
}
