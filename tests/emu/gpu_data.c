/* gpu_data.c -- data sets that stay on the device: batches must be those of
 * the host, and what goes wrong must be said. */
#include "emu_control.h"
#include "gather.h"
#include "made.h"
#include "resident.h"
#include "rng.h"
#include "session.h"
#include "test.h"

extern const Backend backend_cuda;

enum { FIELDS = 4, SAMPLES = 3 };

/* Samples of two images, a quantity and a mask, on host and device. */
typedef struct Both {
    void *dev;
    Resident *r;
    ResidentField field[FIELDS];
    Sample sample[SAMPLES]; /* on the host, from mem */
    Arena mem;
} Both;

static void both_open(Both *b, Dims n, int channels)
{
    static const FieldKind kind[] = {FIELD_IMAGE, FIELD_VALUE, FIELD_IMAGE,
                                     FIELD_LABEL};
    uint32_t first = CHANGE_DRAWS;
    memset(b, 0, sizeof *b);
    REQUIRE(backend_cuda.open(0, 1, &b->dev));
    for (int f = 0; f < FIELDS; f++) {
        n.c = f == 0 ? channels : f == 1 ? 2 : 1;
        b->field[f] = (ResidentField){.dim = n,
                                      .image = kind[f] == FIELD_IMAGE,
                                      .nearest = kind[f] == FIELD_LABEL,
                                      .first = first};
        if (b->field[f].image) first = change_next(first, n);
    }
    REQUIRE(
        resident_open(&backend_cuda, b->dev, b->field, FIELDS, SAMPLES, &b->r));
    for (int32_t k = 0; k < SAMPLES; k++) {
        const Rng r = {.seed = 21, .stream = RNG_TEST, .sample = (uint32_t)k};
        Sample *s = &b->sample[k];
        s->fields = FIELDS;
        for (int f = 0; f < FIELDS; f++) {
            int64_t count = numel(b->field[f].dim);
            float *x = ARENA_NEW(&b->mem, float, count);
            REQUIRE(x);
            for (int64_t i = 0; i < count; i++)
                x[i] = kind[f] == FIELD_LABEL
                           ? (float)rng_below(&r, (uint32_t)i, 4)
                           : rng_uniform(&r, (uint32_t)i) * 6 - 2;
            s->data[f] = x, s->kind[f] = kind[f], s->dim[f] = b->field[f].dim;
        }
        REQUIRE(resident_put(b->r, k, (const float *const *)s->data));
    }
}

static void both_close(Both *b)
{
    resident_close(b->r);
    backend_cuda.close(b->dev);
    arena_release(&b->mem);
}

/* One batch of these samples, on both: equal, or said. */
static void same_batch(Both *b, const Steps *steps, const int32_t *number,
                       int count, uint32_t epoch, const char *what)
{
    Change change[MAX_STEPS * 8], one[MAX_STEPS];
    float *out[FIELDS];
    int all = 0;
    for (int i = 0; i < count; i++) {
        all = augment_decide(steps, 5, epoch, (uint32_t)number[i],
                             b->field[0].dim, one);
        for (int k = 0; k < all; k++) change[k * count + i] = one[k];
    }
    for (int f = 0; f < FIELDS; f++)
        REQUIRE(backend_cuda.alloc(
            b->dev, sizeof(float) * (size_t)(numel(b->field[f].dim) * count),
            (void **)&out[f]));
    REQUIRE(resident_gather(b->r, number, count, change, all, out));
    for (int i = 0; i < count; i++) {
        Arena mem = {NULL};
        Sample want = b->sample[number[i]];
        for (int f = 0; f < FIELDS; f++) {
            int64_t size = numel(want.dim[f]);
            float *x = ARENA_NEW(&mem, float, size);
            memcpy(x, want.data[f], (size_t)size * sizeof *x);
            want.data[f] = x;
        }
        REQUIRE(augment_sample(steps, 5, epoch, (uint32_t)number[i], &want));
        for (int f = 0; f < FIELDS; f++) {
            int64_t size = numel(want.dim[f]), wrong = 0, at = 0;
            float *got = ARENA_NEW(&mem, float, size), lo = 0, hi = 0;
            const float *x = want.data[f];
            REQUIRE(backend_cuda.download(b->dev, got, out[f] + i * size,
                                          (size_t)size * sizeof *got));
            for (int64_t e = 0; e < size; e++)
                lo = fminf(lo, x[e]), hi = fmaxf(hi, x[e]);
            float bound = b->field[f].image ? 1e-5f * (hi - lo) : 0;
            for (int64_t e = 0; e < size; e++)
                if (!(fabsf(got[e] - x[e]) <= bound)) wrong++, at = e;
            if (wrong)
                test_failed(__FILE__, __LINE__,
                            "%s, sample %d, field %d: %lld of %lld differ, "
                            "%lld is %g, want %g",
                            what, i, f, (long long)wrong, (long long)size,
                            (long long)at, (double)got[at], (double)x[at]);
        }
        arena_release(&mem);
    }
    for (int f = 0; f < FIELDS; f++) backend_cuda.release(b->dev, out[f]);
}

/* Each step alone, then in company; also places that change twice. */
static const char *const recipe[] = {
    "",
    "flip axis=dhw\n",
    "affine p=0.6 rotate=-40,40 shift=0.2 scale=0.7,1.4\n",
    "contrast range=0.5,2 p=0.7\n",
    "brightness by=3 p=0.7\n",
    "gamma range=0.3,3 p=0.7\n",
    "noise sigma=0.3 p=0.7\n",
    "flip axis=dhw\naffine p=0.6\ncontrast\nbrightness\ngamma p=0.6\n"
    "noise p=0.6\n",
    "affine p=0.6\nflip axis=dhw\nnoise p=0.6\naffine p=0.6\nflip axis=w\n"
    "flip axis=h\ngamma p=1\n",
};
enum { RECIPES = sizeof recipe / sizeof *recipe };

/* Extents of odd numbers, of one voxel, at a block of threads and at a part of
 * a channel's mean, one less and one more. */
TEST(gpu_data_is_what_the_host_makes)
{
    static const struct {
        Dims dim;
        int channels;
    } row[] = {
        {{1, 1, 7, 5, 0}, 1},    {{1, 3, 4, 5, 0}, 3},   {{1, 1, 1, 1, 0}, 1},
        {{1, 1, 16, 16, 0}, 1},  {{1, 1, 1, 257, 0}, 2}, {{1, 1, 64, 64, 0}, 1},
        {{1, 1, 17, 241, 0}, 1}, {{1, 2, 96, 65, 0}, 1}, {{1, 5, 9, 91, 0}, 2},
    };
    static const int32_t number[][3] = {{0}, {2, 0}, {1, 1, 2}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        Both b;
        both_open(&b, row[i].dim, row[i].channels);
        for (uint32_t k = 0; k < RECIPES; k++) {
            Steps s = made_steps(recipe[k]);
            char what[64];
            snprintf(what, sizeof what, "extents %zu, recipe %u", i, k);
            for (int batch = 1; batch <= 3; batch++)
                same_batch(&b, &s, number[batch - 1], batch, k, what);
        }
        both_close(&b);
    }
}

/* A recipe's usual steps for so many epochs that each has its turn. */
TEST(gpu_data_of_many_epochs)
{
    static const int32_t number[] = {0, 1, 2};
    Both b;
    Steps s = made_steps(recipe[7]);
    both_open(&b, (Dims){1, 1, 13, 11, 0}, 1);
    for (uint32_t epoch = 0; epoch < 60; epoch++)
        same_batch(&b, &s, number, 3, epoch, "epoch");
    both_close(&b);
}

/* A constant image stays finite, and is what the host makes of it. */
TEST(gpu_data_of_a_constant_image)
{
    static const int32_t number[] = {0};
    Both b;
    Steps s = made_steps("contrast\ngamma p=1\nbrightness by=0\n");
    both_open(&b, (Dims){1, 1, 6, 7, 0}, 1);
    for (int i = 0; i < 42; i++) b.sample[0].data[0][i] = 3;
    REQUIRE(resident_put(b.r, 0, (const float *const *)b.sample[0].data));
    same_batch(&b, &s, number, 1, 0, "constant");
    both_close(&b);
}

TEST(gpu_data_labels_are_bytes)
{
    Both b;
    size_t bytes;
    both_open(&b, (Dims){1, 1, 6, 7, 0}, 1);
    // two images of 4 bytes, two quantities, a mask of one byte
    EXPECT(resident_bytes(b.field, FIELDS, SAMPLES, &bytes));
    EXPECT_INT(bytes, 3 * 42 * (4 + 2 * 4 + 4 + 1));
    static const float wrong[] = {-1, 256, 0.5f, NAN};
    for (int i = 0; i < 4; i++) {
        b.sample[1].data[3][41] = wrong[i];
        EXPECT_FAIL(
            resident_put(b.r, 1, (const float *const *)b.sample[1].data),
            "wanted a whole number 0 to 255");
        EXPECT_INT(err_kind(), ERR_DATA);
    }
    b.sample[1].data[3][41] = 255;
    EXPECT(resident_put(b.r, 1, (const float *const *)b.sample[1].data));
    both_close(&b);
    ResidentField huge = {.dim = {1, 1 << 20, 1 << 20, 1 << 20, 1}};
    EXPECT(!resident_bytes(&huge, 1, 1 << 30, &bytes));
}

TEST(gpu_data_stays_with_the_loader_on_the_host)
{
    ResidentField f = {.dim = {1, 1, 2, 2, 1}};
    Resident *r = NULL;
    EXPECT_FAIL(resident_open(&backend_cpu, NULL, &f, 1, 1, &r),
                "cpu keeps no data set");
    EXPECT(!r);
}

/* Free memory is what alloc could give, and copies on the device are copies. */
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

/* All that a batch needs of the runtime. */
static bool one_batch(void)
{
    static float zero[4];
    const ResidentField f = {.dim = {1, 1, 2, 2, 1}, .image = true};
    const float *const value[] = {zero};
    const Steps s = made_steps("contrast\nflip p=1\nnoise p=1\n");
    Change change[MAX_STEPS];
    int32_t number = 0;
    void *dev = NULL;
    float *out[1] = {NULL};
    Resident *r = NULL;
    size_t room;
    bool ok = false;
    int steps = augment_decide(&s, 1, 0, 0, f.dim, change);
    TRY(backend_cuda.open(0, 1, &dev));
    TRY(backend_cuda.room(dev, &room));
    TRY(backend_cuda.alloc(dev, sizeof zero, (void **)&out[0]));
    TRY(resident_open(&backend_cuda, dev, &f, 1, 1, &r));
    TRY(resident_put(r, 0, value));
    TRY(resident_gather(r, &number, 1, change, steps, out));
    TRY(backend_cuda.sync(dev));
    ok = true;
done:
    resident_close(r);
    if (dev) backend_cuda.release(dev, out[0]);
    if (dev) backend_cuda.close(dev);
    return ok;
}

TEST(gpu_data_fails_at_every_call)
{
    enum { LAUNCH_FAILURE = 719 };
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
