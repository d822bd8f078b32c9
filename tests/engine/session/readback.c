/* readback.c -- values kept on a device for a later read: the numbers of
 * immediate reads, on every device. */
#include "tests/support/networks.h"
#include "tests/support/op_call.h"

/* Passes with different batch sizes over an untrained network. */
TEST(readback_has_what_reading_at_once_gives)
{
    static const int batch[] = {3, 1, 3, 2, 3};
    enum { PASSES = sizeof batch / sizeof *batch, MOST = 3 * 8 * 8 };

    for (size_t d = 0; d < 2; d++) {
        static float logits[PASSES][MOST], loss[PASSES];
        Net n;
        net_small(&n);
        net_open(&n, given_device(d), 1, NULL);
        Readback *j = session_readback(n.s);
        const int keep[] = {n.loss, n.root[0]};
        for (int i = 0; i < PASSES; i++) {
            Plan *p = net_plan(&n, false, batch[i]);
            net_feed(&n, p, (uint32_t)i);
            REQUIRE(session_run(n.s, p));
            REQUIRE(session_read(n.s, p, n.root[0], logits[i]));
            REQUIRE(session_read(n.s, p, n.loss, &loss[i]));
        }
        // twice: the memory is reused
        for (int round = 0; round < 2; round++) {
            for (int i = 0; i < PASSES; i++) {
                Plan *p = net_plan(&n, false, batch[i]);
                net_feed(&n, p, (uint32_t)i);
                REQUIRE(session_run_async(n.s, p, keep, 2));
            }
            EXPECT_INT(readback_count(j), 2 * PASSES);
            REQUIRE(readback_fetch(j));
            for (int i = 0; i < PASSES; i++) {
                float got[MOST], one;
                tensor_to_user(readback_value(j, 2 * i), &one);
                const Tensor *t = readback_value(j, 2 * i + 1);
                EXPECT(one == loss[i]);
                EXPECT_INT(t->dim.n, batch[i]);
                tensor_to_user(t, got);
                EXPECT(!memcmp(got, logits[i],
                               (size_t)numel(t->dim) * sizeof *got));
            }
            readback_clear(j);
            EXPECT_INT(readback_count(j), 0);
        }
        net_free(&n);
    }
}

/* Values of many sizes, across blocks and larger than a block. */
TEST(readback_grows)
{
    enum { VALUES = 300, MOST = 40000 };
    static float x[MOST];
    const Backend *be = given_backend(1);
    Readback *j;
    void *dev, *at;
    REQUIRE(be->open(0, 1, &dev) && readback_open(be, dev, &j));
    REQUIRE(be->alloc(dev, sizeof x, &at));
    for (int i = 0; i < MOST; i++) x[i] = (float)i;
    REQUIRE(be->upload(dev, at, x, sizeof x));

    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < VALUES; i++) {
            int count = i % 100 == 7 ? MOST - i : i % 50 == 3 ? 9000 : 1 + i;
            Tensor t = {{1, 1, 1, 1, count}, F32, 0, (float *)at + i};
            REQUIRE(readback_add(j, &t));
        }
        REQUIRE(readback_fetch(j));
        for (int i = 0; i < VALUES; i++) {
            const Tensor *t = readback_value(j, i);
            for (int64_t k = 0; k < numel(t->dim); k++)
                if (tensor_get(t, k) != i + k) {
                    EXPECT_NEAR(tensor_get(t, k), i + k, 0);
                    break;
                }
        }
        readback_clear(j);
    }

    be->release(dev, at);
    readback_close(j);
    be->close(dev);
}

TEST(readback_survives_no_memory)
{
    const Backend *be = given_backend(0);
    static double x[10];
    Tensor t = {{1, 1, 1, 1, 10}, F64, 0, x};
    void *dev;

    REQUIRE(be->open(0, 1, &dev));
    long live = mem_live();

    for (long k = 0, done = 0; !done && k < 20; k++) {
        Readback *j = NULL;
        mem_fail_after(k, false);
        bool ok = readback_open(be, dev, &j) && readback_add(j, &t) &&
                  readback_fetch(j);
        mem_fail_after(-1, false);
        done = ok;
        if (!ok) EXPECT(strstr(err_text(), "memory"));
        // it works again afterwards
        if (j) EXPECT(readback_add(j, &t) && readback_fetch(j));
        readback_close(j);
        EXPECT_INT(mem_live(), live);
        if (k == 19) EXPECT(done);
    }
    be->close(dev);
}
