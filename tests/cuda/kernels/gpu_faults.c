/* gpu_faults.c -- error texts for a GPU that is missing, out of memory or
 * faulty.
 *
 * Linked with the emulated device only, whose runtime has injected failures
 * (emu_control.h). A short session (open, plan, bind, feed, step, read, close)
 * is run with each failure: an error of the k-th call of the runtime for every
 * k, then a fault in the k-th launch, after which every CUDA call fails. Each
 * time there must be an error text with the failure and a fix, of the kind that
 * ends the program with exit code 4. Nothing may crash, and after the close no
 * memory may be left on the device or on the host. */
#include "engine/base/rng.h"
#include "engine/check/auto_device.h"
#include "tests/cuda/emulator/emu_control.h"
#include "tests/support/networks.h"
#include "tests/support/op_call.h"
#include <stdlib.h>

extern const Backend backend_cuda;

enum { GIB = 1 << 30 };

/* CUDA's error codes that the tests inject. */
enum {
    INVALID_VALUE = 1,
    NO_MEMORY = 2,
    UNAVAILABLE = 46,
    NO_IMAGE = 209,
    ECC = 214,
    NEW_PTX = 222,
    ILLEGAL_ADDRESS = 700,
    TIMEOUT = 702,
    LAUNCH_FAILURE = 719,
    NOT_READY = 802,
    MISMATCH = 803,
};

/* Sets up a machine with one working GPU. */
static void good_device(void)
{
    emu_set_device(80, 1, "ok", (size_t)2 * GIB);
}

// -- finding one -------------------------------------------------------------

TEST(gpu_is_missing)
{
    static const struct {
        int capability, devices;
        const char *driver, *device, *want;
    } row[] = {
        {80, 1, "none", "cuda",
         "no NVIDIA driver (a container needs --gpus all or --nv): install it, "
         "or use --device cpu"},
        {80, 1, "old", "cuda",
         "the NVIDIA driver supports CUDA 11.8, this program needs 13.0: "
         "update "
         "the driver, or build with the CUDA Toolkit 11.8"},
        {80, 0, "ok", "cuda", "no NVIDIA GPU is visible (CUDA_VISIBLE_DEVICES"},
        {80, 1, "ok", "cuda:1",
         "there is no cuda:1: this machine shows one GPU, cuda:0"},
        {80, 3, "ok", "cuda:7",
         "there is no cuda:7: this machine shows 3 GPUs, cuda:0 to cuda:2"},
        {70, 1, "ok", "cuda",
         "GPU cuda:0 (emulated) has compute capability 7.0, the kernels need "
         "7.5 or more (T4, RTX 20 and later): use --device cpu"},
    };
    Net n;
    net_linear(&n);
    long live = mem_live();

    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        SessionSpec spec = {.graph = &n.g,
                            .root = n.root,
                            .roots = 1,
                            .loss = -1,
                            .device = row[i].device};
        Session *s = NULL;
        char text[BACKEND_TEXT];
        emu_set_device(row[i].capability, row[i].devices, row[i].driver, GIB);
        EXPECT_FAIL(session_open(&spec, &s), row[i].want);
        EXPECT_INT(err_kind(), ERR_DEVICE);
        EXPECT_INT(mem_live(), live);
        int number = row[i].device[4] ? row[i].device[5] - '0' : 0;
        EXPECT_FAIL(backend_cuda.describe(number, text), row[i].want);
        // the default device falls back to the CPU and keeps the reason
        if (row[i].device[4]) continue;
        AutoDevice a;
        auto_device(&backend_cuda, 0, PRECISION_f32, &a);
        EXPECT_TEXT(a.device, "cpu");
        EXPECT(strstr(a.why, row[i].want));
    }

    good_device();
    net_free(&n);
}

TEST(gpu_is_described)
{
    char text[BACKEND_TEXT];
    emu_set_device(90, 2, "ok", (size_t)3 * GIB / 2);
    REQUIRE(backend_cuda.describe(1, text));
    // a machine with a driver has its version in between
    const char *begins = "emulated, 1.5 GiB, compute capability 9.0 with "
                         "Hopper's kernels, driver ";
    EXPECT(!strncmp(text, begins, strlen(begins)));
    EXPECT(strstr(text, "CUDA 13.0"));
    REQUIRE(!setenv("SEG_HOPPER", "0", 1));
    REQUIRE(backend_cuda.describe(1, text));
    EXPECT(strstr(text, "capability 9.0, driver "));
    unsetenv("SEG_HOPPER");
    good_device();
}

// -- a life ------------------------------------------------------------------

/* A network for steps with the common kernels and all copies. */
static void life_net(Net *n)
{
    net_new(n);
    int image = net_input(n, "image", (Dims){1, 1, 4, 4, 2}, 2);
    int target = net_input(n, "target", (Dims){1, 1, 4, 4, 1}, 2);
    n->root[n->roots++] = net_unet(n, image, 2, 1);
    n->loss = net_op(n, OP_bce_dice, n->root[0], target, -1);
}

static bool one_life(Net *n, const Optim *o)
{
    return net_life(n, "cuda", 0, o);
}

/* Makes the network, runs the session once without a failure and returns its
 * number of runtime calls. */
static long good_life(Net *n, const Optim *o)
{
    life_net(n);
    good_device();
    emu_fail_at(0, 0, 0);
    emu_reset_counts();
    REQUIRE(one_life(n, o));
    return emu_fail_count();
}

/* Fails if host memory, device memory or handles are left. */
static void nothing_left(long host, const char *when, long k)
{
    if (mem_live() != host || emu_live_bytes() || emu_live_handles())
        test_failed(__FILE__, __LINE__,
                    "%s %ld: left behind %ld blocks, %zu bytes of the GPU, %zu "
                    "handles",
                    when, k, mem_live() - host, emu_live_bytes(),
                    emu_live_handles());
}

/* Expects that the last error text has CUDA's name of the error and a fix. */
static void said(const char *name, const char *advice, long k)
{
    const char *text = err_text();
    if (err_kind() != ERR_DEVICE || !strstr(text, "GPU") ||
        !strstr(text, name) || !strstr(text, advice))
        test_failed(__FILE__, __LINE__,
                    "call %ld: kind %d, \"%s\", want \"%s\" and \"%s\"", k,
                    (int)err_kind(), text, name, advice);
}

static const struct Fault {
    int error;
    const char *name, *advice;
} faults[] = {
    {NO_MEMORY, "", "use a smaller batch or smaller images"},
    {UNAVAILABLE, "(cudaErrorDevicesUnavailable)", "choose another GPU with"},
    {NO_IMAGE, "(cudaErrorNoKernelImageForDevice)", "build it with GPUS=NN"},
    {ECC, "(cudaErrorECCUncorrectable)", "have it checked"},
    {NEW_PTX, "(cudaErrorUnsupportedPtxVersion)", "install a newer driver"},
    {NOT_READY, "(cudaErrorSystemNotReady)", "start its fabric manager"},
    {MISMATCH, "(cudaErrorSystemDriverMismatch)", "restart the machine"},
    {LAUNCH_FAILURE, "(cudaErrorLaunchFailure)", "run `segengine check"},
    {TIMEOUT, "(cudaErrorLaunchTimeout)", "use another GPU or --device cpu"},
    {INVALID_VALUE, "(cudaErrorInvalidValue)", "or use --device cpu"},
};
enum { FAULTS = sizeof faults / sizeof *faults };

TEST(gpu_fails_at_every_call)
{
    Net n;
    Optim o = optim_default(OPTIM_adamw);
    long calls = good_life(&n, &o), host = mem_live();

    // copies, launches, allocations: far more calls than ten
    EXPECT(calls > 100);
    nothing_left(host, "no failure", 0);

    for (long k = 1; k <= calls; k += given_every()) {
        const struct Fault *f = &faults[k % FAULTS];
        err_set(ERR_NONE, "");
        emu_fail_at(k, f->error, 0);
        bool ok = one_life(&n, &o);
        emu_fail_at(0, 0, 0);
        // a second request may fit: the session retries without staging memory
        if (ok && f->error != NO_MEMORY)
            test_failed(__FILE__, __LINE__, "nobody noticed call %ld", k);
        if (!ok) said(f->name, f->advice, k);
        nothing_left(host, "call", k);
    }

    EXPECT(one_life(&n, &o));
    net_free(&n);
}

/* A first step that failed at any call can be repeated, and the values on the
 * device are then right. */
TEST(gpu_first_step_is_repeated)
{
    Optim o = optim_default(OPTIM_sgd);
    long failed = 0;
    bool ok = false;

    for (long k = 1; !ok; k++) {
        Net n;
        StepResult r;
        good_device();
        life_net(&n);
        net_open(&n, "cuda", 1, &o);
        Plan *p = net_plan(&n, true, 2);
        net_feed(&n, p, 1);
        emu_fail_at(k, INVALID_VALUE, 0);
        ok = session_step(n.s, p, 0.01, 1, &r);
        emu_fail_at(0, 0, 0);
        failed += !ok;
        if (!session_step(n.s, p, 0.01, 1, &r) || !r.applied)
            test_failed(__FILE__, __LINE__,
                        "call %ld: the step after it: loss %g, norm %g", k,
                        r.loss, r.grad_norm);
        net_free(&n);
    }
    EXPECT(failed > 50);
}

/* A kernel faults while it runs: a later call and all calls after it return the
 * error. */
TEST(gpu_faults_in_every_launch)
{
    Net n;
    Optim o = optim_default(OPTIM_adamw);
    long calls = good_life(&n, &o), launches = emu_launch_count(NULL);
    long host = mem_live(), faulted = 0, named = 0;

    // the first launch from call k on faults, so many k hit the same launch.
    // The launch itself succeeds; a call that waits for it, or a later one,
    // returns the error
    for (long k = 1; k <= calls; k += 3 * given_every()) {
        err_set(ERR_NONE, "");
        emu_fail_at(k, ILLEGAL_ADDRESS, 1);
        bool ok = one_life(&n, &o);
        if (ok) break; // k is after the last launch
        faulted++;
        said("(cudaErrorIllegalAddress)", "run `segengine check", k);
        // in its first run a plan synchronises after each call
        named += strstr(err_text(), " (n") != NULL;
        // CUDA refuses all further work of the process
        EXPECT(!one_life(&n, &o));
        said("(cudaErrorIllegalAddress)", "run `segengine check", k);
        emu_fail_at(0, 0, 0);
        emu_reset_device();
        nothing_left(host, "launch", k);
    }

    emu_fail_at(0, 0, 0);
    emu_reset_device();
    EXPECT(faulted > launches / 3 / given_every());
    EXPECT(named > faulted / 2);
    EXPECT(one_life(&n, &o));
    net_free(&n);
}

/* Too little memory: an error text with the bytes, and a session that goes on.
 */
TEST(gpu_is_too_small)
{
    Net n;
    Optim o = optim_default(OPTIM_adamw);
    life_net(&n);
    long host = mem_live();
    bool ok = false;

    for (size_t bytes = 256; !ok && bytes < (size_t)1 << 20; bytes *= 2) {
        err_set(ERR_NONE, "");
        emu_set_device(80, 1, "ok", bytes);
        ok = one_life(&n, &o);
        if (!ok) {
            // weights that do not fit are refused before allocation
            char want[64] = "are free; fix: a smaller network, or a GPU";
            if (!strstr(err_text(), "the weights"))
                snprintf(want, sizeof want, "of %zu free: use a smaller batch",
                         bytes);
            said("GPU: ", bytes > 256 ? want : "use a smaller batch", 0);
            size_t room, wanted = err_wanted(&room);
            EXPECT(wanted > room && room <= bytes);
        }
        nothing_left(host, "bytes", (long)bytes);
    }

    EXPECT(ok);

    // when a plan does not fit, only the plan is lost: the session goes on with
    // another one
    Plan *p;
    PlanInput in[8];
    emu_set_device(80, 1, "ok", (size_t)1 << 20);
    net_open(&n, "cuda", 1, &o);
    EXPECT(net_step(&n, 1, 1, 0.01, 1).applied);
    int inputs = net_extents(&n, 4096, in);
    REQUIRE(session_plan(n.s, true, in, inputs, &p));
    EXPECT_FAIL(session_bind(n.s, p), "a smaller batch or smaller images need");
    EXPECT_INT(err_kind(), ERR_DEVICE);
    EXPECT(net_step(&n, 1, 2, 0.01, 1).applied);
    good_device();
    net_free(&n);
}

// -- the same bits -----------------------------------------------------------

/* Training does not depend on the order of threads and blocks, nor on the
 * schedule of the streams. */
TEST(gpu_order_does_not_matter)
{
    static const char *const order[] = {"g", "h", "a", "d", "r7", "r8"};
    static const char *const streams[] = {"late", "early", "r3"};
    Arena mem = {NULL};
    const void *first = NULL;
    size_t bytes;

    for (size_t i = 0; i < sizeof order / sizeof *order; i++) {
        Net n;
        Optim o = optim_default(OPTIM_adamw);
        emu_set_order(order[i]);
        emu_set_streams(streams[i % 3]);
        life_net(&n);
        net_open(&n, "cuda", 1, &o);
        for (uint32_t step = 0; step < 3; step++)
            EXPECT(net_step(&n, 2, step, 0.01, 1).applied);
        const void *state = net_state(&n, &mem, &bytes);
        if (!first) first = state;
        if (memcmp(first, state, bytes))
            test_failed(__FILE__, __LINE__, "order %s: other bits", order[i]);
        net_free(&n);
    }

    emu_set_order("g");
    emu_set_streams("late");
    arena_release(&mem);
}
