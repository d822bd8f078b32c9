/* lstm.c -- the two directions of a bidirectional LSTM in one launch, and the
 * partition of its work among blocks: neither changes a bit. */
#include "tests/cuda/emulator/emu_control.h"
#include "tests/support/networks.h"
#include "tests/support/op_call.h"

enum { STEPS = 4, CHANNELS = 3, SAMPLES = 6 };

static int matrix(Net *n, int rows, int columns)
{
    n->layers++;
    return net_param(n, "matrix", (Dims){rows, 1, 1, 1, columns}, 0,
                     (Init){INIT_UNIFORM, 0.1}, true);
}

/* A bidirectional layer with bias, in the order of nn.lstm, and a linear layer.
 */
static void bidirectional(Net *n, int units)
{
    int z[2], y[2];
    net_new(n);
    const int x = net_input(n, "x", (Dims){1, 1, 1, STEPS, CHANNELS}, 1);
    const int t = net_input(n, "target", (Dims){1, 1, 1, STEPS, 1}, 1);
    // normal numbers: lengths from 0 to 3
    const int lengths = net_input(n, "lengths", (Dims){1, 1, 1, 1, 1}, 0);
    for (int i = 0; i < 2; i++)
        z[i] = net_op(n, OP_linear, x, matrix(n, 4 * units, CHANNELS), -1);
    for (int i = 0; i < 2; i++) {
        Attr a = op_default(OP_lstm);
        a.lstm.reverse = i;
        const int w = matrix(n, 4 * units, units);
        const int b = net_param(n, "bias", (Dims){1, 1, 1, 1, 4 * units},
                                RANK_VECTOR, (Init){INIT_UNIFORM, 0.1}, true);
        y[i] = net_row(n, a, (int[]){z[i], w, b, i ? lengths : -1}, 4);
    }
    const int all = net_op(n, OP_concat, y[0], y[1], -1);
    n->root[n->roots++] =
        net_op(n, OP_linear, all, matrix(n, 1, 2 * units), -1);
    n->loss = net_op(n, OP_mse, n->root[0], t, -1);
}

/* Trains two steps on a GPU of this compute capability; returns the state in
 * `mem`, and the launches of both kernels. */
static void *trained(int units, int capability, bool plain, Arena *mem,
                     size_t *bytes, long launches[2])
{
    Net n;
    Optim o = optim_default(OPTIM_sgd);
    bidirectional(&n, units);
    emu_set_device(capability, 1, "ok", (size_t)1 << 30);
    SessionSpec spec = {.graph = &n.g,
                        .root = n.root,
                        .roots = n.roots,
                        .loss = n.loss,
                        .device = "cuda",
                        .seed = 11,
                        .optim = &o,
                        .no_fusion = plain};
    REQUIRE(session_open(&spec, &n.s));
    emu_reset_counts();
    for (uint32_t i = 0; i < 2; i++)
        EXPECT(net_step(&n, SAMPLES, i, 0.1, 0).applied);
    void *state = net_state(&n, mem, bytes);
    launches[0] = emu_launch_count("lstm_fwd_kernel");
    launches[1] = emu_launch_count("lstm_bwd_kernel");
    net_free(&n);
    return state;
}

/* The emulated GPU of capability 8.0 has 64 multiprocessors with 99 KB of
 * shared memory each, that of 9.0 has four with 227 KB: weights lie in one
 * block; in several; on 9.0 in all four, so both directions run one after the
 * other; or in none. */
TEST(lstm_directions_share_a_launch)
{
    static const struct {
        int units;
        bool apart; // on 9.0
    } row[] = {{5, false}, {66, false}, {200, true}, {300, false}};

    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        Arena mem = {NULL};
        size_t bytes;
        long launches[2];
        void *want = trained(row[i].units, 80, true, &mem, &bytes, launches);
        EXPECT_INT(launches[0], 2 * 2);
        EXPECT_INT(launches[1], 2 * 2);
        for (int capability = 80; capability <= 90; capability += 10) {
            const long both = capability == 90 && row[i].apart ? 2 : 1;
            void *got = trained(row[i].units, capability, false, &mem, &bytes,
                                launches);
            EXPECT(!memcmp(got, want, bytes));
            EXPECT_INT(launches[0], 2 * both);
            EXPECT_INT(launches[1], 2 * both);
        }
        arena_release(&mem);
    }
    emu_set_device(80, 1, "ok", (size_t)2 << 30);
}
