/* gpu_data.c -- device datasets: batches must equal the host's batches, and
 * each failure must have an error text. */
#include "engine/backend/batch_gather.h"
#include "engine/base/rng.h"
#include "engine/check/datacheck.h"
#include "engine/session/device_dataset.h"
#include "engine/session/session.h"
#include "tests/cuda/emulator/emu_control.h"
#include "tests/support/op_call.h"
#include "tests/support/volumes.h"
#include <float.h>
#include <math.h>

extern const Backend backend_cuda;

enum { LAUNCH_FAILURE = 719 }; // CUDA's number

static void fails(void *ctx, const char *text)
{
    (void)ctx;
    test_failed(__FILE__, __LINE__, "%s", text);
}

/* Batches of many extents with many data steps, as in `segengine check`. */
TEST(gpu_data_is_what_the_host_makes)
{
    OpCheck k = {.be = &backend_cuda, .once = given_once(), .report = fails};
    EXPECT_INT(datacheck_run(&k), 10 * 11 * (given_once() ? 1 : 4));
    EXPECT_INT(k.failures, 0);
    // the emulated device rounds like the host: no value is near the bound
    EXPECT(k.worst < 0.2);
    k.be = &backend_cpu;
    EXPECT_INT(datacheck_run(&k), 0);
}

/* Error of the device below: in units of rounding of a value, and as a share of
 * the range of a sample. */
static float off_ulps, off_share;

/* Returns whether sample i has a change of intensities in `change` (g->steps,
 * g->count), and its largest amount of noise. */
static bool rounds(const Gather *g, const Change *change, int i, float *noise)
{
    bool any = false;
    *noise = 0;
    for (int k = 0; k < g->steps; k++) {
        const Change *c = &change[k * g->count + i];
        any = any || c->kind > CHANGE_ELASTIC;
        if (c->kind == CHANGE_NOISE) *noise = fmaxf(*noise, c->amount);
    }
    return any;
}

/* Moves x[0 .. n) up and down in turn, by off_ulps and off_share. */
static void put_off(float *x, int64_t n, float noise)
{
    float lo = x[0], hi = x[0];
    for (int64_t i = 0; i < n; i++) lo = fminf(lo, x[i]), hi = fmaxf(hi, x[i]);
    for (int64_t i = 0; i < n; i++) {
        float by = off_ulps * FLT_EPSILON * fmaxf(fabsf(x[i]), noise) +
                   off_share * (hi - lo);
        x[i] += i % 2 ? by : -by;
    }
}

/* Gathers like a device with a math library that rounds differently. */
static bool gather_off(void *dev, const Gather *g)
{
    const Backend *be = &backend_cuda;
    size_t changes = sizeof(Change) * (size_t)(g->steps * g->count);
    Change *change = mem_alloc(changes + 1);
    bool ok = change && be->gather(dev, g) &&
              (!changes || be->download(dev, change, g->change, changes));

    for (int f = 0; ok && f < g->fields; f++) {
        int64_t one = numel(g->field[f].dim);
        size_t bytes = sizeof(float) * (size_t)(one * g->count);
        if (!g->field[f].image) continue;
        float *x = mem_alloc(bytes), noise;
        ok = x && be->download(dev, x, g->field[f].out, bytes);
        for (int i = 0; ok && i < g->count; i++)
            if (rounds(g, change, i, &noise)) put_off(x + i * one, one, noise);
        ok = ok && be->upload(dev, g->field[f].out, x, bytes);
        mem_free(x);
    }

    mem_free(change);
    return ok;
}

/* A GPU has its own powf, logf and fused multiply-adds. The bound of
 * datacheck_run must accept errors of their size (off_ulps), also in a sample
 * of constant values, and must reject larger ones (off_share). */
TEST(gpu_data_may_round_in_its_own_way)
{
    if (given_once()) return; // kernels of gpu_data_is_what_the_host_makes
    Backend off = backend_cuda;
    OpCheck k = {.be = &off, .report = fails};
    off.gather = gather_off;
    off.upload_narrow = NULL; // put_off changes f32
    off_ulps = 4, off_share = 0;
    datacheck_run(&k);
    EXPECT_INT(k.failures, 0);
    EXPECT(k.worst > 0.01 && k.worst < 0.5);
    k.report = NULL;
    off_ulps = 0, off_share = 1e-3f;
    datacheck_run(&k);

    // each batch of varying samples with intensity steps
    EXPECT(k.failures > 150);
}

/* A failure of the device counts as a failure of the check. */
TEST(gpu_data_check_fails_with_the_device)
{
    OpCheck k = {.be = &backend_cuda};
    emu_fail_at(200, LAUNCH_FAILURE, 0);
    datacheck_run(&k);
    emu_fail_at(0, 0, 0);
    EXPECT_INT(k.failures, 1);
}

TEST(gpu_data_labels_are_bytes)
{
    const DeviceDatasetField field[] = {
        {.dim = {1, 1, 6, 7, 1}, .image = true},
        {.dim = {1, 1, 6, 7, 2}},
        {.dim = {1, 1, 6, 7, 1}, .nearest = true},
    };
    static float x[3][84];
    const float *const value[] = {x[0], x[1], x[2]};
    static const float wrong[] = {-1, 256, 0.5f, NAN};
    void *dev;
    DeviceDataset *r;
    size_t bytes;

    EXPECT(device_dataset_bytes(field, 3, 5, &bytes));
    EXPECT_INT(bytes, 5 * 42 * (4 + 2 * 4 + 1));
    REQUIRE(backend_cuda.open(0, 1, &dev));
    REQUIRE(device_dataset_open(&backend_cuda, dev, field, 3, 5, 0, &r));

    for (int i = 0; i < 4; i++) {
        x[2][41] = wrong[i];
        EXPECT_FAIL(device_dataset_put(r, 1, value),
                    "wanted a whole number 0 to 255");
        EXPECT_INT(err_kind(), ERR_DATA);
    }

    x[2][41] = 255;
    EXPECT(device_dataset_put(r, 1, value));
    device_dataset_close(r);
    backend_cuda.close(dev);
    const DeviceDatasetField huge = {.dim = {1, 1 << 20, 1 << 20, 1 << 20, 1}};
    EXPECT(!device_dataset_bytes(&huge, 1, 1 << 30, &bytes));
}

TEST(gpu_data_stays_with_the_loader_on_the_host)
{
    DeviceDatasetField f = {.dim = {1, 1, 2, 2, 1}};
    DeviceDataset *r = NULL;
    EXPECT_FAIL(device_dataset_open(&backend_cpu, NULL, &f, 1, 1, 0, &r),
                "cpu keeps no device dataset");
    EXPECT(!r);
}

/* room() returns the memory that alloc can give; copies on the device work. */
TEST(gpu_data_room_and_copies)
{
    const Backend *be = &backend_cuda;
    void *dev, *a, *b;
    size_t before, after;
    float x[3] = {1, 2, 3}, y[3] = {0};

    REQUIRE(be->open(0, 1, &dev));
    REQUIRE(be->room(dev, &before) && be->alloc(dev, 1 << 20, &a));
    REQUIRE(be->room(dev, &after) && be->alloc(dev, sizeof x, &b));
    EXPECT(before - after >= 1 << 20 && before - after < 2 << 20);
    EXPECT(be->upload(dev, a, x, sizeof x) && be->copy(dev, b, a, sizeof x) &&
           be->download(dev, y, b, sizeof y));
    EXPECT(!memcmp(x, y, sizeof x));
    be->release(dev, a);
    be->release(dev, b);
    be->close(dev);
}

/* Makes one batch with all runtime calls that a batch needs. */
static bool one_batch(void)
{
    static float zero[4];
    const DeviceDatasetField f = {.dim = {1, 1, 2, 2, 1}, .image = true};
    const float *const value[] = {zero};
    const Steps s = made_steps("contrast\nflip p=1\nnoise p=1\n");
    Change change[MAX_STEPS];
    int32_t number = 0;
    void *dev = NULL;
    Tensor batch = {f.dim, F32, RANK_MAX, NULL};
    const Tensor *const out[1] = {&batch};
    DeviceDataset *r = NULL;
    size_t room;
    bool ok = false;
    int steps = augment_decide(&s, 1, 0, 0, f.dim, change);

    TRY(backend_cuda.open(0, 1, &dev));
    TRY(backend_cuda.room(dev, &room));
    TRY(backend_cuda.alloc(dev, sizeof zero, &batch.data));
    TRY(device_dataset_open(&backend_cuda, dev, &f, 1, 1, sizeof zero, &r));
    TRY(device_dataset_put(r, 0, value));
    TRY(device_dataset_gather(r, &number, 1, change, steps, out));
    TRY(backend_cuda.sync(dev));
    ok = true;

done:
    device_dataset_close(r);
    if (dev) backend_cuda.release(dev, batch.data);
    if (dev) backend_cuda.close(dev);
    return ok;
}

TEST(gpu_data_fails_at_every_call)
{
    emu_fail_at(0, 0, 0);
    REQUIRE(one_batch());
    long calls = emu_fail_count(), host = mem_live();
    EXPECT(calls > 15);

    for (long k = 1; k <= calls; k++) {
        err_set(ERR_NONE, "");
        emu_fail_at(k, LAUNCH_FAILURE, 0);
        bool ok = one_batch();
        emu_fail_at(0, 0, 0);
        if (ok || err_kind() != ERR_DEVICE)
            test_failed(__FILE__, __LINE__, "call %ld: %s", k, err_text());
        if (mem_live() != host || emu_live_bytes())
            test_failed(__FILE__, __LINE__, "call %ld: something is left", k);
    }

    for (long k = 0; k < 4; k++) {
        mem_fail_after(k, false);
        bool ok = one_batch();
        mem_fail_after(-1, false);
        if (!ok) EXPECT(strstr(err_text(), "memory"));
        if (mem_live() != host || emu_live_bytes())
            test_failed(__FILE__, __LINE__, "request %ld: left behind", k);
    }
    EXPECT(one_batch());
}
