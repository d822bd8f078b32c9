/* gpu_ranks.c -- several ranks on emulated devices against one rank: gradients,
 * losses and norm statistics reduced through the host, and by a substitute for
 * NCCL (nccl/nccl.cc) on the streams, CUDA graphs included. */
#include "tests/cuda/emulator/emu_control.h"
#include "tests/support/op_call.h"
#include "tests/support/ranks_training.h"

/* Sets the number of devices and the substitute library of the build. */
static void set_devices(int devices)
{
    emu_set_device(80, devices, "ok", (size_t)2 << 30);
    REQUIRE(setenv("SEGENGINE_NCCL", EMU_NCCL, 1) == 0);
}

static void reset_devices(void)
{
    emu_set_device(80, 1, "ok", (size_t)2 << 30);
    unsetenv("SEGENGINE_NCCL");
}

TEST(gpu_ranks_by_the_host)
{
    set_devices(1);
    for (int k = 0; k < KINDS; k++) {
        compare_by("host", "cuda", (Kind)k, 7, 2, 1);
        compare_by("host", "cuda", (Kind)k, 2, 3, 1); // one is idle
    }
    compare_by("host", "cuda", BCE, 8, 2, 6);
    compare_local_batch_norm("host", "cuda", 2);
    reset_devices();
}

/* Three ranks get 2, 2, 3 samples, later 1, 2, 2. The second rank keeps its
 * extents and its captured CUDA graph, the others must capture; so it drops the
 * graph, and all capture together. */
TEST(gpu_ranks_of_other_shares)
{
    Work w = {.device = "cuda", .allreduce = "nccl", .batch = 7, .later = 5};
    set_devices(4);
    w.steps = 20;
    compare_work(w, 3);
    reset_devices();
}

/* Deferred norms (plan_deferred_norm.c): the statistics come from sums that a
 * convolution wrote. */
TEST(gpu_ranks_of_deferred_norms)
{
    static const Precision kinds[] = {PRECISION_f16, PRECISION_bf16};
    set_devices(1);
    for (int i = 0; i < 2; i++) {
        Work w = {.device = "cuda", .allreduce = "host", .precision = kinds[i]};
        w.batch = 7, w.steps = 1;
        compare_work(w, 2);
        w.batch = 8, w.steps = 6;
        compare_work(w, 3);
    }
    reset_devices();
}

TEST(gpu_ranks_by_nccl)
{
    set_devices(4);
    for (int k = 0; k < KINDS; k++) {
        compare_by("nccl", "cuda", (Kind)k, 7, 2, 1);
        compare_by("nccl", "cuda", (Kind)k, 2, 3, 1);
    }
    // captured from the third step on, also with an idle rank
    compare_by("nccl", "cuda", BCE, 8, 2, 6);
    compare_by("nccl", "cuda", DICE, 2, 3, 5);
    compare_local_batch_norm("nccl", "cuda", 2);
    reset_devices();
}

/* Options of a rank's session and the expected error text. */
typedef struct Wish {
    const char *allreduce, *device, *reason;
} Wish;

static bool is_refused(Ranks *r, void *context)
{
    const Wish *wish = context;
    Work w = {.device = wish->device, .steps = 1, .batch = 4};
    double loss[20], *grad;
    int64_t grads;
    // "host" keeps all ranks on the first device
    w.allreduce = wish->allreduce;
    if (train(r, &w, loss, &grad, &grads))
        return fail("%s was not refused", wish->allreduce);
    return strstr(err_text(), wish->reason) != NULL;
}

TEST(gpu_ranks_refused)
{
    Wish same = {NULL, "cuda", "ranks 0 and 1 have the same GPU"};
    Wish word = {"ncll", "cuda", "--allreduce ncll: want auto, nccl or host"};
    Wish none = {"nccl", "cuda", "rank 0: NCCL was not found"};
    set_devices(4);
    EXPECT(run_ranks(2, is_refused, &same, -1));
    EXPECT(run_ranks(2, is_refused, &word, -1));
    REQUIRE(setenv("SEGENGINE_NCCL", "/nowhere/libnccl.so.2", 1) == 0);
    EXPECT(run_ranks(2, is_refused, &none, -1));
    reset_devices();
}

static bool says_why(Ranks *r, void *context)
{
    Optim o = optim_default(OPTIM_adam);
    Net n;
    char device[16];

    (void)context;
    snprintf(device, sizeof device, "cuda:%d", r->rank);
    make_net(&n, BCE, PRECISION_f32);
    SessionSpec spec = {.graph = &n.g,
                        .root = n.root,
                        .roots = n.roots,
                        .loss = n.loss,
                        .device = device,
                        .ranks = r,
                        .optim = &o};
    if (!session_open(&spec, &n.s)) return false;
    bool said =
        strstr(session_transport(n.s), "the host (rank 0: NCCL was not");
    net_free(&n);
    return said || fail("it does not say why");
}

TEST(gpu_ranks_auto_says_why)
{
    set_devices(2);
    REQUIRE(setenv("SEGENGINE_NCCL", "/nowhere/libnccl.so.2", 1) == 0);
    EXPECT(run_ranks(2, says_why, NULL, -1));
    reset_devices();
}
