/* loader.c -- tests of batches: order, threads, resume, errors, ends. */
#include "data/loader/loader.h"
#include "data/dataset/dataset_build.h"
#include "engine/base/clock.h"
#include "engine/base/rng.h"
#include "tests/support/volumes.h"
#include "tests/test.h"
#include <stdlib.h>
#include <time.h>

static const char recipe[] = "normalize\nslices axis=stored\nflip\nnoise\n";

static uint64_t batch_hash(const Batch *b)
{
    uint64_t h = (uint64_t)b->count;
    for (int f = 0; f < b->fields; f++) {
        const float *x = b->field[f].data;
        for (int64_t i = 0; i < numel(b->field[f].dim); i++) {
            uint32_t bits;
            memcpy(&bits, &x[i], sizeof bits);
            h = (h ^ bits) * 0x9E3779B97F4A7C15u;
        }
    }
    return h;
}

static const Batch *next(Loader *l)
{
    const Batch *b;
    REQUIRE(loader_next(l, &b));
    return b;
}

enum { BATCHES = 18 }; // three epochs of 6 cases of 4 slices, 4 per batch

static const LoaderOptions usual = {
    .batch = 4, .shuffle = true, .augment = true, .seed = 8};

TEST(loader_same_bytes_for_any_workers)
{
    static const int workers[] = {0, 1, 4}, prefetch[] = {1, 2, 9};
    Dataset *ds = made_dataset(6, 1, 4, 8, 8);
    Pipeline *p = made_pipeline(ds, recipe);
    uint64_t want[BATCHES];

    for (int k = 0; k < 9; k++) {
        LoaderOptions o = usual;
        Loader *l;
        o.workers = workers[k / 3], o.prefetch = prefetch[k % 3];
        REQUIRE(loader_open(p, &o, &l));
        EXPECT_INT(loader_batches(l), 6);
        for (int i = 0; i < BATCHES; i++) {
            const Batch *b = next(l);
            EXPECT_INT(b->epoch, i / 6);
            EXPECT_INT(b->number, i % 6);
            EXPECT_INT(b->last, i % 6 == 5);
            if (!k) want[i] = batch_hash(b);
            EXPECT(batch_hash(b) == want[i]);
        }
        LoaderStats s = loader_stats(l);
        EXPECT_INT(s.batches, BATCHES);
        EXPECT_INT(s.samples, 4 * BATCHES);
        EXPECT(s.wait_s > 0);
        loader_close(l);
    }

    // epochs differ
    for (int i = 0; i < 6; i++)
        EXPECT(want[i] != want[i + 6] && want[i + 6] != want[i + 12]);
    pipeline_free(p);
    dataset_free(ds);
}

TEST(loader_order_is_a_permutation_of_seed_and_epoch)
{
    Dataset *ds = made_dataset(5, 1, 4, 2, 2);
    Pipeline *p = made_pipeline(ds, "slices\n");
    LoaderOptions o = {.batch = 3, .shuffle = true, .seed = 21};
    Loader *l;

    REQUIRE(loader_open(p, &o, &l));
    EXPECT_INT(loader_batches(l), 7);
    EXPECT_INT(loader_samples(l), 20);

    for (uint32_t epoch = 0; epoch < 2; epoch++) {
        uint32_t order[20];
        const Rng r = {.seed = 21, .stream = RNG_SHUFFLE, .epoch = epoch};
        rng_permutation(&r, 20, order);
        for (int i = 0; i < 7; i++) {
            const Batch *b = next(l);
            EXPECT_INT(b->count, i < 6 ? 3 : 2);
            EXPECT_INT(b->field[0].dim.n, b->count);
            for (int k = 0; k < b->count; k++)
                EXPECT_INT(b->id[k].number, order[3 * i + k]);
        }
    }

    loader_close(l);

    // without shuffle: as listed; drop_last omits the incomplete batch
    o = (LoaderOptions){.batch = 3, .drop_last = true};
    REQUIRE(loader_open(p, &o, &l));
    EXPECT_INT(loader_batches(l), 6);
    EXPECT_INT(loader_samples(l), 18);
    for (int i = 0; i < 12; i++)
        EXPECT_INT(next(l)->id[1].number, i % 6 * 3 + 1);
    loader_close(l);
    pipeline_free(p);
    dataset_free(ds);
}

TEST(loader_augments_only_when_asked)
{
    Dataset *ds = made_dataset(2, 1, 4, 8, 8);
    Pipeline *p = made_pipeline(ds, "slices\nnoise p=1\n");
    LoaderOptions o = {.batch = 8};
    Loader *l;

    REQUIRE(loader_open(p, &o, &l));
    const Batch *b = next(l);
    const float *x = b->field[0].data;
    for (int64_t i = 0; i < numel(b->field[0].dim); i++)
        EXPECT(x[i] == floorf(x[i]));
    loader_close(l);
    o.augment = true;
    REQUIRE(loader_open(p, &o, &l));
    b = next(l);
    x = b->field[0].data;
    int whole = 0;
    for (int64_t i = 0; i < numel(b->field[0].dim); i++)
        whole += x[i] == floorf(x[i]);
    EXPECT(whole < 20);
    loader_close(l);
    pipeline_free(p);
    dataset_free(ds);
}

TEST(loader_resumes_anywhere)
{
    Dataset *ds = made_dataset(6, 1, 4, 8, 8);
    Pipeline *p = made_pipeline(ds, recipe);
    LoaderOptions o = usual;
    Loader *l;
    uint64_t want[BATCHES];

    REQUIRE(loader_open(p, &o, &l));
    for (int i = 0; i < BATCHES; i++) want[i] = batch_hash(next(l));
    loader_close(l);

    for (o.workers = 0; o.workers < 3; o.workers++) {
        // a new loader at each position, and one that seeks back and forth
        for (int at = 0; at < BATCHES; at++) {
            REQUIRE(loader_open(p, &o, &l));
            REQUIRE(loader_seek(l, (uint32_t)at / 6, at % 6));
            EXPECT(batch_hash(next(l)) == want[at]);
            loader_close(l);
        }
        REQUIRE(loader_open(p, &o, &l));
        for (uint32_t k = 0; k < 40; k++) {
            const Rng r = {.seed = 1, .stream = RNG_TEST};
            int at = (int)rng_below(&r, k, BATCHES - 1);
            REQUIRE(loader_seek(l, (uint32_t)at / 6, at % 6));
            EXPECT(batch_hash(next(l)) == want[at]);
            EXPECT(batch_hash(next(l)) == want[at + 1]);
        }
        // the end of an epoch is the beginning of the next
        REQUIRE(loader_seek(l, 0, 6));
        EXPECT(batch_hash(next(l)) == want[6]);
        EXPECT_FAIL(loader_seek(l, 0, 7), "batch 7 of an epoch of 6");
        loader_close(l);
    }

    pipeline_free(p);
    dataset_free(ds);
}

/* Returns the same samples in the same order and extents, from any position,
 * without memory for the samples. */
TEST(loader_only_names_samples)
{
    Dataset *ds = made_dataset(6, 1, 4, 8, 8);
    Pipeline *p = made_pipeline(ds, recipe);
    LoaderOptions o = usual;
    Loader *l, *ids;

    REQUIRE(loader_open(p, &o, &l));
    o.ids_only = true, o.workers = 3, o.prefetch = 7;
    REQUIRE(loader_open(p, &o, &ids));

    for (int at = 0; at < 2 * BATCHES; at++) {
        // sequentially at first, then at random positions
        int k = at < BATCHES ? at : at * 7 % BATCHES;
        if (at >= BATCHES) {
            REQUIRE(loader_seek(l, (uint32_t)k / 6, k % 6));
            REQUIRE(loader_seek(ids, (uint32_t)k / 6, k % 6));
        }
        const Batch *a = next(l), *b = next(ids);
        EXPECT_INT(b->epoch, a->epoch);
        EXPECT_INT(b->number, a->number);
        EXPECT_INT(b->last, a->last);
        EXPECT_INT(b->count, a->count);
        EXPECT(!memcmp(a->id, b->id, (size_t)a->count * sizeof *a->id));
        for (int f = 0; f < b->fields; f++)
            EXPECT(!b->field[f].data &&
                   dims_equal(a->field[f].dim, b->field[f].dim));
    }

    EXPECT_INT(loader_stats(ids).samples, loader_stats(l).samples);
    loader_close(ids);
    loader_close(l);
    pipeline_free(p);
    dataset_free(ds);
}

TEST(loader_seek_to_what_is_next_keeps_the_ring)
{
    Dataset *ds = made_dataset(6, 1, 4, 8, 8);
    Pipeline *p = made_pipeline(ds, recipe);
    LoaderOptions o = usual;
    Loader *l;

    o.workers = 1, o.prefetch = 4;
    REQUIRE(loader_open(p, &o, &l));
    next(l);

    // until four batches are ready in addition to the current one: 20 samples
    while (pipeline_cache(p).hits < 20)
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    int64_t hits = pipeline_cache(p).hits;
    REQUIRE(loader_seek(l, 0, 1));
    EXPECT_INT(next(l)->number, 1);
    EXPECT(pipeline_cache(p).hits - hits <= 8);
    loader_close(l);
    pipeline_free(p);
    dataset_free(ds);
}

/* The prefetch queue is limited in bytes, but one batch is always
 * prefetched. */
TEST(loader_prefetch_is_bounded_in_bytes)
{
    // 4 slices of 8 x 8, image and mask: 2048 bytes per batch
    static const struct {
        int prefetch, workers;
        int64_t bytes;
        const char *text;
    } row[] = {{0, 1, 0, "2 batches ahead, 0.0 MiB"},
               {9, 1, 4 * 2048, "3 batches ahead, 0.0 MiB"},
               {9, 1, 4 * 2048 - 1, "2 batches ahead, 0.0 MiB"},
               {9, 2, 1, "1 batch ahead, 0.0 MiB"},
               {1000, 1, 0, "1000 batches ahead, 2.0 MiB"},
               {9, 0, 0, "0 batches ahead, 0.0 MiB"}};
    Dataset *ds = made_dataset(6, 1, 4, 8, 8);
    Pipeline *p = made_pipeline(ds, recipe);
    uint64_t want[BATCHES];
    Arena mem = {NULL};

    for (size_t k = 0; k < sizeof row / sizeof *row; k++) {
        LoaderOptions o = usual;
        Loader *l;
        o.prefetch = row[k].prefetch;
        o.workers = row[k].workers;
        o.prefetch_bytes = row[k].bytes;
        REQUIRE(loader_open(p, &o, &l));
        EXPECT_TEXT(loader_report(l, &mem), row[k].text);
        for (int i = 0; i < BATCHES; i++) {
            const Batch *b = next(l);
            if (!k) want[i] = batch_hash(b);
            EXPECT(batch_hash(b) == want[i]);
        }
        loader_close(l);
    }

    arena_release(&mem);
    pipeline_free(p);
    dataset_free(ds);
}

TEST(loader_options_are_checked)
{
    Dataset *ds = made_dataset(1, 1, 4, 2, 2);
    Pipeline *p = made_pipeline(ds, "slices\n");
    Loader *l;
    LoaderOptions o = {.batch = 0};

    EXPECT_FAIL(loader_open(p, &o, &l), "batch is 0, wanted 1 or more");
    o = (LoaderOptions){.batch = 1, .workers = -1};
    EXPECT_FAIL(loader_open(p, &o, &l), "workers is -1");
    o = (LoaderOptions){.batch = 5, .drop_last = true};
    EXPECT_FAIL(loader_open(p, &o, &l), "no batch: 4 samples, batch is 5");
    o.drop_last = false;
    REQUIRE(loader_open(p, &o, &l));
    EXPECT_INT(next(l)->count, 4);
    loader_close(l);
    pipeline_free(p);
    dataset_free(ds);
}

TEST(loader_batches_of_one_may_differ_in_size)
{
    DatasetBuilder *b;
    Dataset *ds;
    REQUIRE(dataset_begin(NULL, &b));

    for (int i = 0; i < 3; i++) {
        Volume v = made_image((uint32_t)i, 1, 3 + 2 * (i % 2), 4, true);
        char key[8];
        snprintf(key, sizeof key, "k%d", i);
        REQUIRE(dataset_add(b, key, key, &v, NULL));
        volume_free(&v);
    }

    REQUIRE(dataset_finish(b, &ds));
    Pipeline *p = made_pipeline(ds, "slices\n");
    LoaderOptions o = {.batch = 2};
    Loader *l;
    EXPECT_FAIL(loader_open(p, &o, &l), "samples differ in size");
    o.batch = 1;
    REQUIRE(loader_open(p, &o, &l));

    for (int i = 0; i < 3; i++) {
        Volume v = made_image((uint32_t)i, 1, 3 + 2 * (i % 2), 4, true);
        const Batch *t = next(l);
        EXPECT_INT(t->field[0].dim.h, 3 + 2 * (i % 2));
        EXPECT(
            !memcmp(t->field[0].data, v.voxels.data, tensor_bytes(&v.voxels)));
        volume_free(&v);
    }

    loader_close(l);

    // a list of samples longer than the data set: memory for the largest of its
    // samples
    o.only = (const int32_t[]){1, 1, 1, 1, 1}, o.only_count = 5;
    REQUIRE(loader_open(p, &o, &l));
    for (int i = 0; i < 5; i++) EXPECT_INT(next(l)->field[0].dim.h, 5);
    loader_close(l);
    o.only = (const int32_t[]){0, 1}, o.only_count = 1;
    REQUIRE(loader_open(p, &o, &l));
    EXPECT_INT(next(l)->field[0].dim.h, 3);
    loader_close(l);
    pipeline_free(p);
    dataset_free(ds);
}

/* ---- faulty sources ------------------------------------------------------ */

/* Behaviour of the sources of `odd_dataset`; atomic because workers read it. */
static atomic_int loads, done, fail_from, slow_ms, slow_number, slow_number_ms;
static atomic_bool hang;

static void pause_ms(int ms)
{
    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000L}, NULL);
}

static bool load_odd(const Source *s, Volume *out, DicomNotes *notes)
{
    (void)notes;
    int number = *(const int *)s->what;
    int load = atomic_fetch_add(&loads, 1);
    pause_ms(atomic_load(&slow_ms));
    if (number == atomic_load(&slow_number))
        pause_ms(atomic_load(&slow_number_ms));
    while (atomic_load(&hang)) pause_ms(5);
    if (atomic_load(&fail_from) && load >= atomic_load(&fail_from) &&
        number % 2)
        return fail_data("%s: not to be read", s->path);
    *out = made_image((uint32_t)number, 2, 4, 4, true);
    atomic_fetch_add(&done, 1);
    return true;
}

/* Makes eight cases that load as set by the variables above. */
static Dataset *odd_dataset(void)
{
    static const int numbers[8] = {0, 1, 2, 3, 4, 5, 6, 7};
    DatasetBuilder *b;
    Dataset *ds;

    atomic_store(&loads, 0), atomic_store(&done, 0);
    atomic_store(&fail_from, 0), atomic_store(&slow_ms, 0);
    atomic_store(&slow_number, 1);
    atomic_store(&slow_number_ms, 0);
    atomic_store(&hang, false);
    REQUIRE(dataset_begin(NULL, &b));
    builder_field(b, "image", FIELD_IMAGE, 3);

    for (int i = 0; i < 8; i++) {
        char key[16];
        snprintf(key, sizeof key, "odd_%d", i);
        Source *s = builder_sources(b, 1);
        REQUIRE(s);
        *s = (Source){.load = load_odd, .path = "FILE", .what = &numbers[i]};
        Case c = {.key = arena_strdup(&b->store->mem, key),
                  .patient = arena_strdup(&b->store->mem, key),
                  .field[0] = {s, 1}};
        REQUIRE(builder_add(b, &c));
    }

    REQUIRE(dataset_finish(b, &ds));
    return ds;
}

/* Makes a pipeline without cache, so that every sample loads its case again. */
static Pipeline *odd_pipeline(const Dataset *ds)
{
    const PipelineOptions options = {.cache_bytes = 0};
    Steps s = made_steps("slices\n");
    Pipeline *p;
    REQUIRE(pipeline_open(ds, &s, &options, &p));
    return p;
}

TEST(loader_error_of_a_worker_reaches_the_caller)
{
    static const int workers[] = {0, 1, 4};
    for (int k = 0; k < 3; k++) {
        Dataset *ds = odd_dataset();
        Pipeline *p = odd_pipeline(ds);
        LoaderOptions o = {.batch = 8, .workers = workers[k]};
        Loader *l;
        const Batch *b;
        long before = mem_live();
        REQUIRE(loader_open(p, &o, &l));
        atomic_store(&fail_from, 1);
        atomic_store(&slow_number_ms, 20);
        // cases 1 and 3 are both bad; the first is reported, although it is
        // slow
        for (int again = 0; again < 3; again++) {
            EXPECT_FAIL(loader_next(l, &b),
                        "odd_1: image: FILE: not to be read");
            EXPECT_INT(err_kind(), ERR_DATA);
            EXPECT(!b);
        }
        loader_close(l);
        EXPECT_INT(mem_live(), before);
        pipeline_free(p);
        dataset_free(ds);
    }
}

/* The same when a pipeline is opened, whichever of the two cases is slower. */
TEST(loader_opening_names_the_first_bad_case)
{
    for (int slow = 1; slow <= 3; slow += 2) {
        Dataset *ds = odd_dataset();
        Steps s = made_steps("slices\n");
        const PipelineOptions options = {.threads = 4};
        Pipeline *p;
        atomic_store(&loads, 1);
        atomic_store(&fail_from, 1);
        atomic_store(&slow_ms, 5);
        atomic_store(&slow_number, slow);
        atomic_store(&slow_number_ms, 40);
        EXPECT_FAIL(pipeline_open(ds, &s, &options, &p), "odd_1: image: FILE");
        dataset_free(ds);
    }
}

TEST(loader_files_that_change_are_an_error)
{
    Dataset *ds = made_dataset(2, 1, 2, 4, 4);
    const PipelineOptions options = {.cache_bytes = 0};
    Steps s = made_steps("slices\n");
    Pipeline *p;

    REQUIRE(pipeline_open(ds, &s, &options, &p));
    Volume *v = (Volume *)ds->cases[1].field[0].source->what;
    ((float *)v->voxels.data)[3] += 1;
    float x[16];
    float *out[MAX_FIELDS] = {x};
    EXPECT(pipeline_sample(p, 0, 0, false, NULL, out));
    EXPECT_FAIL(pipeline_sample(p, 2, 0, false, NULL, out),
                "case_01: the files have changed since the run began");
    pipeline_free(p);
    dataset_free(ds);
}

TEST(loader_closes_at_any_moment)
{
    Dataset *ds = odd_dataset();
    Pipeline *p = odd_pipeline(ds);
    atomic_store(&slow_ms, 3);

    for (int k = 0; k < 60; k++) {
        LoaderOptions o = {.batch = 4, .workers = k % 5, .prefetch = 1 + k % 3};
        Loader *l;
        REQUIRE(loader_open(p, &o, &l));
        for (int i = 0; i < k % 4; i++) next(l);
        double begin = clock_s();
        loader_close(l);
        EXPECT(clock_s() - begin < 0.5);
    }

    pipeline_free(p);
    dataset_free(ds);
}

static int reports;
static char report_text[512];

static void tell(void *context, const char *text)
{
    reports++;
    snprintf(report_text, sizeof report_text, "%s", text);
    if (reports == 2) atomic_store((atomic_bool *)context, false);
}

TEST(loader_names_the_case_that_hangs)
{
    Dataset *ds = odd_dataset();
    Pipeline *p = odd_pipeline(ds);
    LoaderOptions o = {.batch = 4,
                       .workers = 2,
                       .waiting = tell,
                       .context = &hang,
                       .patience_s = 0.05};
    Loader *l;

    reports = 0;
    atomic_store(&hang, true);
    REQUIRE(loader_open(p, &o, &l));

    // the second call of `tell` releases the source
    next(l);
    EXPECT(reports >= 2);
    EXPECT(strstr(report_text, "s for data: worker 1 has been at odd_"));
    loader_close(l);
    pipeline_free(p);
    dataset_free(ds);
}

/* The same while cases are opened, in any of the threads. */
TEST(loader_opening_names_the_case_that_hangs)
{
    for (int threads = 0; threads < 3; threads++) {
        Dataset *ds = odd_dataset();
        Steps s = made_steps("slices\n");
        const PipelineOptions options = {.threads = threads,
                                         .waiting = tell,
                                         .context = &hang,
                                         .patience_s = 0.05};
        const long before = mem_live();
        Pipeline *p;
        reports = 0;
        atomic_store(&hang, true);
        // the second call of `tell` releases the source
        REQUIRE(pipeline_open(ds, &s, &options, &p));
        EXPECT(reports >= 2);
        EXPECT(strstr(report_text, "waiting for odd_"));
        pipeline_free(p);
        EXPECT_INT(mem_live(), before);
        dataset_free(ds);
    }
}

TEST(loader_leaves_a_hung_worker_behind)
{
    Dataset *ds = odd_dataset();
    Pipeline *p = odd_pipeline(ds);
    LoaderOptions o = {.batch = 1, .workers = 1, .prefetch = 4};
    Loader *l;
    long before = mem_live();

    REQUIRE(loader_open(p, &o, &l));
    next(l);

    // 8 loads to open and 5 batches of one: the queue is full (one worker,
    // because two may share a load). A load already started could still hang
    while (atomic_load(&done) < 13) pause_ms(1);
    atomic_store(&hang, true);

    // returns a slot, so that the worker starts another sample and hangs
    next(l);
    while (atomic_load(&loads) < 14) pause_ms(1);
    double begin = clock_s();
    loader_close(l);
    EXPECT(clock_s() - begin < 1);

    // the worker keeps its memory, and frees it when the source returns
    EXPECT(mem_live() > before);
    atomic_store(&hang, false);
    for (int i = 0; i < 400 && mem_live() != before; i++) pause_ms(5);
    EXPECT_INT(mem_live(), before);
    pipeline_free(p);
    dataset_free(ds);
}

TEST(loader_survives_no_memory)
{
    Dataset *ds = made_dataset(2, 1, 4, 4, 4);
    Pipeline *p = made_pipeline(ds, "slices\n");
    long before = mem_live();

    for (long k = 0;; k++) {
        LoaderOptions o = {.batch = 3, .workers = 1, .shuffle = true};
        Loader *l = NULL;
        const Batch *b;
        mem_fail_after(k, false);
        bool ok = loader_open(p, &o, &l) && loader_next(l, &b);
        mem_fail_after(-1, false);
        loader_close(l);
        EXPECT_INT(mem_live(), before);
        if (ok) break;
        REQUIRE(k < 100);
    }

    pipeline_free(p);
    dataset_free(ds);
}

/* Many samples through a queue of one batch, with a cache that always
 * evicts. */
TEST(loader_soak)
{
    Dataset *ds = made_dataset(4, 1, 5, 4, 4);
    const PipelineOptions options = {.cache_bytes = 2 * 80 * 5, .seed = 1};
    Steps s = made_steps(recipe);
    int wanted = getenv("SEG_SOAK") ? 100000 : 4000, wrong = 0;
    Pipeline *p;
    Loader *l[2];

    REQUIRE(pipeline_open(ds, &s, &options, &p));
    for (int k = 0; k < 2; k++) {
        LoaderOptions o = usual;
        o.batch = 3, o.prefetch = 1, o.workers = 3 * k;
        REQUIRE(loader_open(p, &o, &l[k]));
    }

    for (int n = 0; n < wanted;) {
        uint64_t want = batch_hash(next(l[0]));
        const Batch *b = next(l[1]);
        wrong += batch_hash(b) != want;
        n += b->count;
    }

    EXPECT_INT(wrong, 0);
    EXPECT(pipeline_cache(p).peak <= options.cache_bytes);
    loader_close(l[0]);
    loader_close(l[1]);
    pipeline_free(p);
    dataset_free(ds);
}
