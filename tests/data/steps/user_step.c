/* user_step.c -- tests of steps that are user functions, with a C function in
 * their place: their arguments, their random draws, the reports of failures. */
#include "data/steps/user_step.h"
#include "data/dataset/dataset_build.h"
#include "data/loader/loader.h"
#include "tests/support/volumes.h"
#include "tests/test.h"
#include <string.h>
#include <time.h>

/* A function in C; all state that its calls share is atomic. */
typedef struct Fake {
    UserStep user_step;
    atomic_int holders, calls;
    atomic_bool hang; // until `stop`
    double fail_code; // code for which the function fails
} Fake;

static void pause_ms(long ms)
{
    nanosleep(&(struct timespec){0, ms * 1000000}, NULL);
}

/* y = x + code for images, + the first draw, if any. */
static bool fake_run(UserStep *h, double code, double with, UserStepCall *call)
{
    Fake *f = (Fake *)h;
    atomic_fetch_add(&f->calls, 1);
    while (atomic_load(&f->hang)) {
        if (call->stop && atomic_load(call->stop)) return fail("stopped");
        pause_ms(1);
    }
    if (code == f->fail_code) return fail_usage("r.lua:7: as told");

    for (int k = 0; k < call->fields; k++) {
        UserStepField *one = &call->field[k];
        if (one->kind != FIELD_IMAGE || with == 99) continue;
        const float u = call->draw ? rng_uniform(call->draw, CHANGE_DRAWS) : 0;
        float *x = one->x.data;
        for (int64_t i = 0; i < numel(one->x.dim); i++) x[i] += (float)code + u;
        one->changed = true;
    }
    return true;
}

static void fake_hold(UserStep *h)
{
    atomic_fetch_add(&((Fake *)h)->holders, 1);
}

static void fake_drop(UserStep *h)
{
    atomic_fetch_sub(&((Fake *)h)->holders, 1);
}

static Fake fake(void)
{
    return (Fake){.user_step = {fake_run, fake_hold, fake_drop},
                  .fail_code = -1};
}

static Pipeline *open_with(const Dataset *ds, const char *text, Fake *f,
                           int64_t cache)
{
    const PipelineOptions o = {.cache_bytes = cache, .seed = 5};
    Steps s = made_steps(text);
    Pipeline *p;
    if (f) s.user_step = &f->user_step;
    REQUIRE(pipeline_open(ds, &s, &o, &p));
    return p;
}

/* Returns the image of a sample of made_dataset(.., 4, 4, 4) with slices. */
static float first_of(Pipeline *p, int32_t number, uint32_t epoch, bool augment)
{
    float x[16], mask[16];
    float *out[MAX_FIELDS] = {x, mask};
    REQUIRE(pipeline_sample(p, number, epoch, augment, NULL, out));
    return x[0];
}

TEST(user_step_runs_in_its_place_and_is_held)
{
    Dataset *ds = made_dataset(2, 1, 4, 4, 4);
    Fake f = fake();
    Pipeline *plain = open_with(ds, "clamp range=0,5\nslices\n", NULL, 1 << 20);

    // + 3, then clamped to 0 .. 5, then + 100
    Pipeline *p = open_with(
        ds, "change code=3\nclamp range=0,5\nchange code=100\nslices\n", &f,
        1 << 20);

    EXPECT_INT(f.calls, 4); // two per case
    EXPECT_INT(f.holders, 1);
    for (int32_t i = 0; i < pipeline_samples(p); i++) {
        const float x = first_of(plain, i, 0, false);
        const float y = x + 3 < 5 ? x + 3 : 5;
        EXPECT_NEAR(first_of(p, i, 0, false), y + 100, 0);
    }

    EXPECT_INT(f.calls, 4); // the result is cached
    pipeline_free(p);
    pipeline_free(plain);
    EXPECT_INT(f.holders, 0);
    dataset_free(ds);
}

/* The draw depends on (seed, epoch, sample, position of the step), whatever
 * else is drawn for the sample. */
TEST(user_step_draws_by_epoch_and_sample)
{
    Dataset *ds = made_dataset(2, 1, 4, 4, 4);
    Fake f = fake();
    Pipeline *plain = open_with(ds, "slices\n", NULL, 1 << 20);
    Pipeline *p = open_with(ds, "slices\nflip p=0\nvary code=2\n", &f, 0);

    for (uint32_t epoch = 0; epoch < 3; epoch++)
        for (int32_t i = 0; i < pipeline_samples(p); i++) {
            const Rng r = {.seed = 5,
                           .stream = RNG_AUGMENT,
                           .op = 2,
                           .epoch = epoch,
                           .sample = (uint32_t)i};
            EXPECT_NEAR(first_of(p, i, epoch, true),
                        first_of(plain, i, 0, false) + 2 +
                            rng_uniform(&r, CHANGE_DRAWS),
                        0);
            EXPECT_NEAR(first_of(p, i, epoch, false),
                        first_of(plain, i, 0, false), 0);
        }

    pipeline_free(p);
    pipeline_free(plain);
    dataset_free(ds);
}

TEST(user_step_failures_are_named)
{
    Dataset *ds = made_dataset(2, 1, 4, 4, 4);
    const PipelineOptions o = {.seed = 5};
    Fake f = fake();
    Steps s = made_steps("change code=7\n");
    Pipeline *p;

    EXPECT_FAIL(pipeline_open(ds, &s, &o, &p),
                "case_00: change: the step is a function of a recipe");
    f.fail_code = 7;
    s.user_step = &f.user_step;
    EXPECT_FAIL(pipeline_open(ds, &s, &o, &p),
                "case_00: change: r.lua:7: as told");
    EXPECT_INT(f.holders, 0);
    p = open_with(ds, "slices\nvary code=7\n", &f, 0);
    float x[16], mask[16];
    float *out[MAX_FIELDS] = {x, mask};
    EXPECT_FAIL(pipeline_sample(p, 6, 0, true, NULL, out),
                "case_01: slice 3: vary: r.lua:7: as told");
    pipeline_free(p);
    dataset_free(ds);
}

TEST(user_step_of_a_picture_that_is_left_alone)
{
    DatasetBuilder *b;
    Dataset *ds;
    Volume v;

    REQUIRE(volume_new(&v, (Dims){1, 1, 2, 2, 1}, F32));
    ((float *)v.voxels.data)[1] = 255;
    v.unit = UNIT_PIXEL;
    REQUIRE(dataset_begin(NULL, &b));
    REQUIRE(dataset_add(b, "a", "p", &v, NULL));
    REQUIRE(dataset_finish(b, &ds));
    volume_free(&v);
    Fake f = fake();

    // photographs stay whole numbers, unless a function has changed them
    for (int changed = 0; changed < 2; changed++) {
        Pipeline *p = open_with(ds,
                                changed ? "change code=1\nresize h=3 w=3\n"
                                        : "change code=1 with=99\n"
                                          "resize h=3 w=3\n",
                                &f, 0);
        float x[9], *out[MAX_FIELDS] = {x};
        bool whole = true;
        REQUIRE(pipeline_sample(p, 0, 0, false, NULL, out));
        for (int i = 0; i < 9; i++) whole = whole && x[i] == (float)(int)x[i];
        EXPECT(whole == !changed);
        pipeline_free(p);
    }
    dataset_free(ds);
}

static atomic_int reports;

/* Releases the function after it has been reported twice. */
static void tell(void *context, const char *text)
{
    EXPECT(strstr(text, "s for data: worker 1 has been at case_0"));
    if (atomic_fetch_add(&reports, 1) == 1)
        atomic_store((atomic_bool *)context, false);
}

TEST(user_step_that_hangs_is_named_and_ends)
{
    Dataset *ds = made_dataset(2, 1, 4, 4, 4);
    const long before = mem_live();
    Fake f = fake();
    Pipeline *p = open_with(ds, "slices\nvary code=1\n", &f, 1 << 20);
    const LoaderOptions o = {.batch = 2,
                             .workers = 1,
                             .prefetch = 1,
                             .augment = true,
                             .waiting = tell,
                             .context = &f.hang,
                             .patience_s = 0.05};
    const Batch *b;
    Loader *l;

    atomic_store(&reports, 0);
    atomic_store(&f.hang, true);
    REQUIRE(loader_open(p, &o, &l));
    REQUIRE(loader_next(l, &b));
    EXPECT(reports >= 2);

    // the queue is full, and taking a batch makes room for one that hangs
    while (atomic_load(&f.calls) < 4) pause_ms(1);
    atomic_store(&f.hang, true);
    REQUIRE(loader_next(l, &b));
    while (atomic_load(&f.calls) < 5) pause_ms(1);
    loader_close(l);
    pipeline_free(p);
    EXPECT_INT(mem_live(), before);
    EXPECT_INT(f.holders, 0);
    dataset_free(ds);
}

TEST(user_step_same_bytes_for_any_workers)
{
    static const int workers[] = {0, 1, 4, 8};
    Dataset *ds = made_dataset(6, 1, 4, 8, 8);
    uint64_t want = 0;

    for (int k = 0; k < 8; k++) {
        Fake f = fake();
        Pipeline *p = open_with(
            ds, "change code=2\nslices\nflip\nvary code=3\nvary code=4\n", &f,
            k / 4 ? 1 << 20 : 0);
        const LoaderOptions o = {.batch = 4,
                                 .workers = workers[k % 4],
                                 .shuffle = true,
                                 .augment = true,
                                 .seed = 8};
        Loader *l;
        uint64_t h = 1;
        REQUIRE(loader_open(p, &o, &l));
        for (int i = 0; i < 12; i++) {
            const Batch *b;
            REQUIRE(loader_next(l, &b));
            const float *x = b->field[0].data;
            for (int64_t e = 0; e < numel(b->field[0].dim); e++) {
                uint32_t bits;
                memcpy(&bits, &x[e], sizeof bits);
                h = (h ^ bits) * 0x9E3779B97F4A7C15u;
            }
        }
        if (!k) want = h;
        EXPECT(h == want);
        loader_close(l);
        pipeline_free(p);
        EXPECT_INT(f.holders, 0);
    }
    dataset_free(ds);
}
