/* bucket.c -- tests of batches of samples with similar length. */
#include "data/loader/bucket.h"
#include "data/dataset/dataset_list.h"
#include "data/format/npy.h"
#include "data/loader/loader.h"
#include "tests/support/volumes.h"
#include "tests/test.h"
#include <stdio.h>
#include <string.h>

enum { COUNT = 206, BATCH = 8 };

/* lengths from 10 to 109, scattered */
static int32_t length_of(uint32_t i)
{
    return (int32_t)(10 + i * 37 % 100);
}

static Bucket *made_bucket(int32_t count, int batch)
{
    Bucket *b;
    REQUIRE(bucket_new(count, batch, &b));
    for (int32_t i = 0; i < count; i++)
        bucket_set(b, i, length_of((uint32_t)i));
    return b;
}

static void expect_permutation(const uint32_t *order, uint32_t count)
{
    bool seen[COUNT] = {false};
    for (uint32_t i = 0; i < count; i++) {
        REQUIRE(order[i] < count);
        EXPECT(!seen[order[i]]);
        seen[order[i]] = true;
    }
}

/* Returns the voxels along w that are padding in batches of this order. */
static int64_t padding(const uint32_t *order, int32_t count, int batch)
{
    int64_t sum = 0;
    for (int32_t at = 0; at < count; at += batch) {
        int32_t longest = 0;
        const int32_t end = at + batch < count ? at + batch : count;
        for (int32_t i = at; i < end; i++)
            if (length_of(order[i]) > longest) longest = length_of(order[i]);
        for (int32_t i = at; i < end; i++) sum += longest - length_of(order[i]);
    }
    return sum;
}

TEST(bucket_brings_like_lengths_together)
{
    Bucket *b = made_bucket(COUNT, BATCH);
    uint32_t first[COUNT], second[COUNT], plain[COUNT];

    for (uint64_t seed = 0; seed < 5; seed++) {
        Rng r = {.seed = seed, .stream = RNG_SHUFFLE};
        bucket_order(b, &r, first);
        expect_permutation(first, COUNT);
        rng_permutation(&r, COUNT, plain);
        EXPECT(5 * padding(first, COUNT / BATCH * BATCH, BATCH) <
               padding(plain, COUNT / BATCH * BATCH, BATCH));
        // the incomplete batch has the samples that were drawn last
        for (int i = COUNT / BATCH * BATCH; i < COUNT; i++)
            EXPECT_INT(first[i], plain[i]);
        bucket_order(b, &r, second);
        EXPECT(!memcmp(first, second, sizeof first));
        r.epoch = 1;
        bucket_order(b, &r, second);
        expect_permutation(second, COUNT);
        EXPECT(memcmp(first, second, sizeof first));
        // other samples share batches, and batches are not sorted by length
        int met = 0, up = 0;
        for (int i = 0; i < COUNT; i++)
            for (int k = 0; k < COUNT; k++)
                if (first[i] == second[k]) met += first[i ^ 1] == second[k ^ 1];
        EXPECT(met < COUNT / 8);
        for (int at = BATCH; at + BATCH <= COUNT; at += BATCH)
            up += length_of(first[at]) > length_of(first[at - BATCH]);
        EXPECT(up > 5 && up < 20);
    }

    bucket_order(b, NULL, first);
    expect_permutation(first, COUNT);
    for (int i = 1; i < COUNT; i++)
        EXPECT(length_of(first[i - 1]) <= length_of(first[i]));
    bucket_free(b);
}

/* Even if a window contains the whole epoch, batches are random; and an epoch
 * shorter than a batch has an order. */
TEST(bucket_of_few_batches_is_random)
{
    for (int32_t count = 1; count < 5 * BATCH; count++) {
        Bucket *b = made_bucket(count, BATCH);
        uint32_t order[COUNT], other[COUNT];
        Rng r = {.seed = 3, .stream = RNG_SHUFFLE};
        bucket_order(b, &r, order);
        expect_permutation(order, (uint32_t)count);
        if (count >= 2 * BATCH) {
            int same = 0;
            r.epoch = 1;
            bucket_order(b, &r, other);
            for (int i = 0; i < BATCH; i++)
                for (int k = 0; k < count; k++)
                    same += order[i] == other[k] && k / BATCH == 0;
            EXPECT(same < BATCH);
        }
        bucket_free(b);
    }
}

TEST(bucket_pads_and_cuts_at_the_end)
{
    // h 2, w 3, 2 channels; the minima of the channels are -4 and 10
    const float x[12] = {1, 11, 2, 12, 3, 13, -4, 14, 5, 15, 6, 10};
    const Dims from = {1, 1, 2, 3, 2}, longer = {1, 1, 2, 4, 2};
    const Dims shorter = {1, 1, 2, 1, 2};
    float out[16];

    bucket_place(x, from, FIELD_IMAGE, longer, out);
    const float image[16] = {1,  11, 2, 12, 3, 13, -4, 10,
                             -4, 14, 5, 15, 6, 10, -4, 10};
    for (int i = 0; i < 16; i++) EXPECT_NEAR(out[i], image[i], 0);
    bucket_place(x, from, FIELD_VALUE, longer, out);
    for (int i = 0; i < 16; i++)
        EXPECT_NEAR(out[i], i % 8 < 6 ? image[i] : 0, 0);
    bucket_place(x, from, FIELD_LABEL, shorter, out);
    const float cut[4] = {1, 11, -4, 14};
    for (int i = 0; i < 4; i++) EXPECT_NEAR(out[i], cut[i], 0);
}

/* ---- loaders ------------------------------------------------------------ */

/* Makes `count` sequences of length_of(i) / 4 steps of 2 features, with
 * lengths. */
static Dataset *sequences(int count)
{
    static const ListField field[] = {
        {.name = "x", .kind = FIELD_IMAGE, .rank = 1, .reader = "npy"},
        {.name = "number", .kind = FIELD_NUMBER, .numbers = 1},
        {.name = "length", .kind = FIELD_LENGTH}};
    DatasetBuilder *b;
    Dataset *ds;

    REQUIRE(dataset_list_begin(field, 3, NULL, &b));
    for (int i = 0; i < count; i++) {
        char path[600], key[16];
        float x[64];
        const int64_t w = length_of((uint32_t)i) / 4;
        const double number = i;
        snprintf(path, sizeof path, "%s/bucket_%d.npy", test_folder(), i);
        snprintf(key, sizeof key, "s%03d", i);
        for (int64_t k = 0; k < 2 * w; k++) x[k] = (float)(i + 100 * k % 17);
        REQUIRE(npy_write(path, 2, (int64_t[]){w, 2}, x));
        ListCase c = {.key = key, .patient = key};
        c.field[0].path[0] = path;
        c.field[0].paths = 1;
        c.field[1].number = &number;
        REQUIRE(dataset_list_add(b, &c));
    }

    REQUIRE(dataset_finish(b, &ds));
    return ds;
}

static uint64_t batch_hash(const Batch *b)
{
    uint64_t h = (uint64_t)b->count;
    for (int f = 0; f < b->fields; f++) {
        const float *x = b->field[f].data;
        h = (h ^ (uint64_t)b->field[f].dim.w) * 0x9E3779B97F4A7C15u;
        for (int64_t i = 0; i < numel(b->field[f].dim); i++) {
            uint32_t bits;
            memcpy(&bits, &x[i], sizeof bits);
            h = (h ^ bits) * 0x9E3779B97F4A7C15u;
        }
    }
    return h;
}

/* Expects the samples of the pipeline in a batch, padded as by fit to the
 * length of the longest, rounded up. */
static void expect_batch(Pipeline *p, const Batch *b, int multiple, int most)
{
    int32_t longest = 0;
    for (int i = 0; i < b->count; i++) {
        const int32_t n = length_of((uint32_t)b->id[i].number) / 4;
        if (n > longest) longest = n;
    }
    int32_t w = (longest + multiple - 1) / multiple * multiple;
    if (w > most) w = most;
    EXPECT_INT(b->field[0].dim.w, w);

    for (int i = 0; i < b->count; i++) {
        float own[128], number, length;
        float *const out[MAX_FIELDS] = {own, &number, &length};
        const float *x = (const float *)b->field[0].data + (int64_t)2 * w * i;
        REQUIRE(pipeline_sample(p, b->id[i].number, b->epoch, true, NULL, out));
        EXPECT_NEAR(((const float *)b->field[1].data)[i], number, 0);
        EXPECT_NEAR(((const float *)b->field[2].data)[i], length, 0);
        EXPECT_INT(length, length_of((uint32_t)b->id[i].number) / 4);
        float low[2] = {own[0], own[1]};
        for (int k = 0; k < 2 * (int)length; k++) {
            EXPECT_NEAR(x[k], own[k], 0);
            if (own[k] < low[k % 2]) low[k % 2] = own[k];
        }
        for (int k = 2 * (int)length; k < 2 * w; k++)
            EXPECT_NEAR(x[k], low[k % 2], 0);
    }
}

TEST(loader_buckets_are_the_same_for_any_workers)
{
    static const struct {
        const char *steps;
        int multiple, most;
    } row[] = {{"timeshift\n", 1, 1000},
               {"timeshift\n", 8, 1000},
               {"fit w=27 at=start\n", 4, 27},
               {"fit w=40 at=start\n", 1, 40}};
    static const int workers[] = {0, 1, 4, 8};
    enum { EPOCHS = 2, BATCHES = 9 }; // 35 samples, 4 per batch
    Dataset *ds = sequences(35);

    for (size_t r = 0; r < sizeof row / sizeof *row; r++) {
        Pipeline *p = made_pipeline(ds, row[r].steps);
        uint64_t want[EPOCHS * BATCHES];
        for (int k = 0; k < 4; k++) {
            const LoaderOptions o = {.batch = 4,
                                     .shuffle = true,
                                     .augment = true,
                                     .bucket = true,
                                     .multiple = row[r].multiple,
                                     .workers = workers[k],
                                     .seed = 5};
            Loader *l;
            const Batch *b;
            REQUIRE(loader_open(p, &o, &l));
            EXPECT_INT(loader_batches(l), BATCHES);
            // to the middle of the second epoch and back, like a resumed run
            if (k) {
                REQUIRE(loader_seek(l, 1, 4));
                REQUIRE(loader_next(l, &b));
                EXPECT(batch_hash(b) == want[BATCHES + 4]);
                REQUIRE(loader_seek(l, 0, 0));
            }
            for (int i = 0; i < EPOCHS * BATCHES; i++) {
                REQUIRE(loader_next(l, &b));
                EXPECT_INT(b->epoch, i / BATCHES);
                EXPECT_INT(b->count, i % BATCHES < 8 ? 4 : 3);
                if (!k) want[i] = batch_hash(b);
                EXPECT(batch_hash(b) == want[i]);
                if (k == 1) expect_batch(p, b, row[r].multiple, row[r].most);
                EXPECT(b->field[0].dim.w <= loader_field(l, 0).dim.w);
            }
            loader_close(l);
        }
        pipeline_free(p);
    }
    dataset_free(ds);
}

TEST(loader_buckets_say_what_they_save)
{
    Dataset *ds = sequences(64);
    Pipeline *p = made_pipeline(ds, "");
    LoaderOptions o = {.batch = 4, .shuffle = true, .bucket = true};
    Arena mem = {NULL};
    Loader *l;
    int least, most, all;
    double bucketed, plain;

    REQUIRE(loader_open(p, &o, &l));
    const char *text = loader_report(l, &mem);
    REQUIRE(text);
    EXPECT_INT(sscanf(text,
                      "%*d batches ahead, %*f MiB; batches of samples of like "
                      "length, w %d to %d: %lf %% of them is padding, %lf %% "
                      "were all %d",
                      &least, &most, &bucketed, &plain, &all),
               5);
    EXPECT(least < 10 && most == 27 && all == 27);
    EXPECT(bucketed > 0 && bucketed < 12 && plain > 40 && plain < 60);
    EXPECT_INT(loader_field(l, 0).dim.w, 27);
    EXPECT_INT(loader_field(l, loader_find(l, "number")).dim.w, 1);
    loader_close(l);

    // without shuffling, in order of length
    o.shuffle = false;
    REQUIRE(loader_open(p, &o, &l));

    for (int i = 0, before = 0; i < loader_batches(l); i++) {
        const Batch *b;
        REQUIRE(loader_next(l, &b));
        EXPECT(b->field[0].dim.w >= before);
        before = b->field[0].dim.w;
    }

    loader_close(l);
    o = (LoaderOptions){.batch = 4};
    EXPECT_FAIL(loader_open(p, &o, &l),
                "fix: a fit or resize step, or batches of 1, or batches "
                "{ bucket = \"length\" }, as only w differs");
    o.multiple = 4;
    EXPECT_FAIL(loader_open(p, &o, &l), "batches are not bucketed");
    o.multiple = -1;
    EXPECT_FAIL(loader_open(p, &o, &l), "multiple is -1, wanted 1 to 65535");
    pipeline_free(p);
    dataset_free(ds);
    arena_release(&mem);
}

/* Volumes of different heights cannot share a batch, whatever their w. */
TEST(loader_buckets_want_equal_heights)
{
    DatasetBuilder *b;
    Dataset *ds;
    Loader *l;

    REQUIRE(dataset_begin(NULL, &b));
    for (int i = 0; i < 3; i++) {
        Volume v = made_image((uint32_t)i, 2, i < 2 ? 4 : 5, 4 + i, true);
        char key[8];
        snprintf(key, sizeof key, "k%d", i);
        REQUIRE(dataset_add(b, key, key, &v, NULL));
        volume_free(&v);
    }

    REQUIRE(dataset_finish(b, &ds));
    Pipeline *p = made_pipeline(ds, "slices axis=stored\n");
    const LoaderOptions o = {.batch = 2, .bucket = true};
    EXPECT_FAIL(loader_open(p, &o, &l),
                "samples differ in size: image of k0 is 1x1x4x4 (N,C,H,W), of "
                "k2 1x1x5x6 (N,C,H,W); fix: a fit or resize step");
    pipeline_free(p);
    const int two[] = {0, 1};
    Dataset *some;
    REQUIRE(dataset_pick(ds, two, 2, &some));
    p = made_pipeline(some, "slices axis=stored\n");
    REQUIRE(loader_open(p, &o, &l));
    const Batch *batch;
    for (int i = 0; i < 2; i++) {
        REQUIRE(loader_next(l, &batch));
        EXPECT_INT(batch->field[0].dim.w, 4 + i);
    }
    loader_close(l);
    pipeline_free(p);
    dataset_free(some);
    dataset_free(ds);
}

/* When any one allocation fails, no memory leaks. */
TEST(loader_buckets_without_memory)
{
    Dataset *ds = sequences(9);
    Pipeline *p = made_pipeline(ds, "");
    const LoaderOptions o = {.batch = 2, .shuffle = true, .bucket = true};
    bool ok = false;
    long n = 0;

    for (; !ok && n < 200; n++) {
        Loader *l;
        const long live = mem_live();
        mem_fail_after(n, false);
        ok = loader_open(p, &o, &l);
        mem_fail_after(-1, false);
        loader_close(l);
        EXPECT_INT(mem_live(), live);
    }

    EXPECT(ok && n > 8);
    pipeline_free(p);
    dataset_free(ds);
}
