/* gpu_steps.c -- steps as CUDA graphs, and asynchronous copies, on the emulated
 * device.
 *
 * Its streams run as late as event waits allow, so a missing wait changes
 * values. A replayed graph must give the same bits as the single calls, even
 * after buffers have moved. */
#include "tests/cuda/emulator/emu_control.h"
#include "tests/support/networks.h"
#include "tests/support/op_call.h"
#include <stdlib.h>

enum { STEPS = 12 };

/* Trains steps of two batch sizes, in one or two parts, one with an infinite
 * value, while the memory pool grows; returns the final state. */
static void *train(bool careful, const char *streams, Arena *mem, size_t *bytes)
{
    Net n;
    Optim o = optim_default(OPTIM_adamw);
    emu_set_streams(streams);
    if (careful)
        setenv("SEG_CAREFUL", "1", 1);
    else
        unsetenv("SEG_CAREFUL");
    net_small(&n);
    net_open(&n, "cuda", 1, &o);

    for (int i = 0; i < STEPS; i++) {
        StepResult r;
        Plan *p = net_plan(&n, true, i == 7 ? 4 : 1 + i / 2 % 2);
        net_feed(&n, p, (uint32_t)i);
        if (i == 9) {
            float bad[2 * 8 * 8 * 2] = {INFINITY};
            REQUIRE(session_feed(n.s, p, n.input[0], bad));
        }
        StepPart part = {i % 2 == 0 || i > 8, i % 2 == 1 || i > 8,
                         i > 8 ? 1 : 2, 0.01 / (i + 1), 1};
        REQUIRE(session_part(n.s, p, &part, &r));
        EXPECT_INT(r.applied, part.last && i != 9);
        // an evaluation between two steps changes nothing
        if (i != 5) continue;
        p = net_plan(&n, false, 3);
        net_feed(&n, p, 99);
        REQUIRE(session_run(n.s, p));
    }

    void *out = net_state(&n, mem, bytes);
    net_free(&n);
    unsetenv("SEG_CAREFUL");
    emu_set_streams("late");
    return out;
}

TEST(gpu_launches_captured_graphs)
{
    static const char *const streams[] = {"late", "early", "ahead", "r3"};
    Arena mem = {NULL};
    size_t bytes;
    void *want = train(true, "early", &mem, &bytes);
    for (int i = 0; i < 4; i++) {
        void *got = train(false, streams[i], &mem, &bytes);
        if (memcmp(want, got, bytes))
            test_failed(__FILE__, __LINE__, "streams %s: other bits",
                        streams[i]);
    }
    arena_release(&mem);
}

/* From the third step of a plan on the host makes fewer than 20 calls, the same
 * number each time, and the graph runs all kernels of the step. */
TEST(gpu_step_is_one_launch)
{
    Net n;
    Optim o = optim_default(OPTIM_adamw);
    long launches = 0, calls = 0;

    net_small(&n);
    net_open(&n, "cuda", 1, &o);

    for (uint32_t i = 0; i < 6; i++) {
        Plan *p = net_plan(&n, true, 2);
        net_feed(&n, p, i);
        emu_fail_at(0, 0, 0); // counts from here
        emu_reset_counts();
        StepResult r;
        REQUIRE(session_step(n.s, p, 0.01, 1, &r));
        EXPECT(r.applied);
        if (i > 2) {
            EXPECT_INT(emu_launch_count(NULL), launches);
            EXPECT_INT(emu_fail_count(), calls);
        }
        if (i > 1) launches = emu_launch_count(NULL), calls = emu_fail_count();
    }

    EXPECT(launches > 60);

    // upload of the step's parameters; graph launch, report, its event, the
    // wait for it
    EXPECT(calls < 20);

    // all parameters in one launch
    emu_reset_counts();
    EXPECT(net_step(&n, 2, 1, 0.01, 1).applied);
    EXPECT_INT(emu_launch_count("update"), 1);
    net_free(&n);
}

/* The host may reuse its memory when an upload returns; uploads in pieces, and
 * many at a time, arrive complete and in order. */
TEST(gpu_uploads_without_waiting)
{
    enum { MOST = 65 << 20 };
    static const size_t sizes[] = {1, 4095, 4097, 100000, MOST - 5, 33 << 20};
    static const char *const streams[] = {"late", "early", "ahead", "r4"};
    extern const Backend backend_cuda;
    const Backend *be = &backend_cuda;
    unsigned char *host = mem_alloc(MOST), *back = mem_alloc(MOST);
    REQUIRE(host && back);

    for (int k = 0; k < 4; k++) {
        void *dev, *at;
        emu_set_streams(streams[k]);
        REQUIRE(be->open(0, 1, &dev));
        REQUIRE(be->alloc(dev, MOST, &at));
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            // large sizes once, and not in the checked build, which is slow
            if (sizes[i] > 1 << 20 && (k || emu_checked_build())) continue;
            for (size_t b = 0; b < sizes[i]; b++)
                host[b] = (unsigned char)(b * 7 + b / 251 + i);
            REQUIRE(be->upload(dev, at, host, sizes[i]));
            memset(host, 0xEE, sizes[i]);
            REQUIRE(be->download(dev, back, at, sizes[i]));
            size_t wrong = 0;
            for (size_t b = 0; b < sizes[i]; b++)
                wrong += back[b] != (unsigned char)(b * 7 + b / 251 + i);
            EXPECT_INT((long)wrong, 0);
        }
        // more uploads to one target than staging buffers: the last one stays
        for (unsigned i = 0; i < 40; i++) {
            memset(host, (int)i, 5000);
            REQUIRE(be->upload(dev, (char *)at + 100 * i, host, 5000));
        }
        REQUIRE(be->download(dev, back, at, 9000));
        size_t wrong = 0;
        for (size_t b = 0; b < 8900; b++)
            wrong += back[b] != (b < 3900 ? b / 100 : 39);
        EXPECT_INT((long)wrong, 0);
        be->release(dev, at);
        be->close(dev);
    }

    emu_set_streams("late");
    mem_free(host);
    mem_free(back);
}

/* Each call of a plan is timed separately. */
TEST(gpu_times_calls)
{
    enum { MOST = 400 };
    static PlanTime time[MOST];
    Net n;
    int count;
    Optim o = optim_default(OPTIM_sgd);
    net_small(&n);
    net_open(&n, "cuda", 1, &o);
    Plan *p = net_plan(&n, true, 2);
    net_feed(&n, p, 1);
    PlanRun run = {.backward = true, .seed_grad = 1};

    for (int k = 0; k < 2; k++) {
        REQUIRE(plan_time(p, &run, time, MOST, &count));
        EXPECT_INT(count, plan_calls(p));
        for (int i = 0; i < count; i++)
            EXPECT(time[i].ms >= 0 && time[i].ms < 1e4);
        EXPECT(!time[0].backward && time[count - 1].backward);
    }

    REQUIRE(plan_time(p, &run, time, 3, &count));
    EXPECT_INT(count, 3);
    net_free(&n);
}

/* Two sessions on two GPUs in alternation, also after one is closed. */
TEST(gpu_two_at_a_time)
{
    Net a, b;
    Arena mem = {NULL};
    size_t bytes;
    Optim o = optim_default(OPTIM_adamw);

    emu_set_device(80, 2, "ok", (size_t)1 << 30);
    net_small(&a);
    net_small(&b);
    net_open(&a, "cuda:0", 1, &o);
    net_open(&b, "cuda:1", 1, &o);

    for (uint32_t i = 0; i < 4; i++) {
        EXPECT(net_step(&a, 2, i, 0.01, 1).applied);
        EXPECT(net_step(&b, 2, i, 0.01, 1).applied);
        // evaluation of the first session, a copy to the second
        Plan *p = net_plan(&a, false, 1);
        net_feed(&a, p, 9);
        net_feed(&b, net_plan(&b, true, 2), 9);
        REQUIRE(session_run(a.s, p));
    }

    const void *x = net_state(&a, &mem, &bytes);
    const void *y = net_state(&b, &mem, &bytes);
    EXPECT(!memcmp(x, y, bytes));
    net_free(&b);
    EXPECT(net_step(&a, 2, 5, 0.01, 1).applied);
    net_free(&a);
    arena_release(&mem);
    emu_set_device(80, 1, "ok", (size_t)2 << 30);
}
