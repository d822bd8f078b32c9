/* pipeline.c -- tests of pipelines: samples, cache, leaks, and restoring. */
#include "data/preprocess/pipeline.h"
#include "data/dataset/relabel.h"
#include "data/dataset/split.h"
#include "data/metrics/stitch.h"
#include "engine/base/rng.h"
#include "tests/support/volumes.h"
#include "tests/test.h"
#include <pthread.h>
#include <stdlib.h>

TEST(pipeline_samples_are_the_slices)
{
    Dataset *ds = made_dataset(3, 1, 4, 6, 5);
    Pipeline *p = made_pipeline(ds, "slices axis=axial\n");
    EXPECT_INT(pipeline_samples(p), 12);
    EXPECT_INT(pipeline_rank(p, 0), 2);
    Dims n;
    REQUIRE(pipeline_dims(p, 0, &n));
    EXPECT(n.n == 1 && n.d == 1 && n.h == 6 && n.w == 5 && n.c == 1);
    float x[30], t[30];
    float *out[MAX_FIELDS] = {x, t};
    Volume v = made_image(1, 4, 6, 5, true), m = made_mask(4, 6, 5);
    REQUIRE(pipeline_sample(p, 6, 0, false, NULL, out));
    EXPECT_INT(pipeline_id(p, 6).item, 1);
    EXPECT_INT(pipeline_id(p, 6).part, 2);
    for (int i = 0; i < 30; i++) {
        EXPECT(x[i] == ((float *)v.voxels.data)[60 + i]);
        EXPECT(t[i] == ((uint8_t *)m.voxels.data)[60 + i]);
    }
    volume_free(&v);
    volume_free(&m);
    const CaseFacts *f = pipeline_facts(p, 1);
    EXPECT_INT(f->slices, 4);
    EXPECT_INT(f->foreground_slices, 2);
    EXPECT_INT(f->voxels[1], 2 * 4 * 1);
    EXPECT_INT(f->voxels[0] + f->voxels[1], 4 * 30);
    Arena mem = {0};
    char *text = pipeline_report(p, &mem);
    REQUIRE(text);
    EXPECT(strstr(text, "input 5 x 6 x 4 voxels of 1 x 1 x 2 mm; class 1 "
                        "6.67 %; 6 of 12 slices with foreground"));
    arena_release(&mem);
    pipeline_free(p);
    dataset_free(ds);
}

TEST(pipeline_which_slices)
{
    Dataset *ds = made_dataset(2, 1, 10, 4, 4);
    Pipeline *p = made_pipeline(ds, "slices axis=stored keep=foreground\n");
    EXPECT_INT(pipeline_samples(p), 12); // 2..7 of each
    EXPECT_INT(pipeline_id(p, 0).part, 2);
    EXPECT_INT(pipeline_id(p, 11).part, 7);
    pipeline_free(p);
    p = made_pipeline(ds, "slices axis=stored range=0.1,0.9\n");
    EXPECT_INT(pipeline_samples(p), 16);
    EXPECT_INT(pipeline_id(p, 0).part, 1);
    pipeline_free(p);

    // 192 slices, the middle 80 %: 153
    Dataset *deep = made_dataset(1, 1, 192, 1, 1);
    p = made_pipeline(deep, "slices axis=stored range=0.1,0.9\n");
    EXPECT_INT(pipeline_samples(p), 153);
    EXPECT_INT(pipeline_id(p, 0).part, 19);
    pipeline_free(p);
    dataset_free(deep);
    Steps s = made_steps("slices axis=stored range=0,0.01\n");
    const PipelineOptions options = {.threads = 0};
    EXPECT_FAIL(pipeline_open(ds, &s, &options, &p), "no samples");
    dataset_free(ds);
}

TEST(pipeline_whole_volumes)
{
    Dataset *ds = made_dataset(2, 1, 3, 4, 5);
    Pipeline *p = made_pipeline(ds, "normalize\nflip axis=dhw\n");
    EXPECT_INT(pipeline_samples(p), 2);
    EXPECT_INT(pipeline_rank(p, 0), 3);
    EXPECT_INT(pipeline_id(p, 1).part, 0);
    Dims n;
    REQUIRE(pipeline_dims(p, 1, &n));
    EXPECT(n.d == 3 && n.h == 4 && n.w == 5);
    pipeline_free(p);
    dataset_free(ds);
}

/* Coronal slices of an axial volume: d runs to posterior, h to inferior. */
TEST(pipeline_slices_across_other_planes)
{
    Dataset *ds = made_dataset(1, 1, 3, 4, 5);
    Pipeline *p = made_pipeline(ds, "slices axis=coronal\n");
    EXPECT_INT(pipeline_samples(p), 4);
    Dims n = pipeline_dims_of(p, 0, 0);
    EXPECT(n.h == 3 && n.w == 5);
    float x[15];
    float *out[MAX_FIELDS] = {x, NULL};
    REQUIRE(pipeline_sample(p, 1, 0, false, NULL, out));
    Volume v = made_image(0, 3, 4, 5, true);
    for (int h = 0; h < 3; h++)
        for (int w = 0; w < 5; w++)
            EXPECT(x[h * 5 + w] ==
                   ((float *)v.voxels.data)[((2 - h) * 4 + 1) * 5 + w]);
    volume_free(&v);
    pipeline_free(p);
    dataset_free(ds);
}

TEST(pipeline_sizes_that_differ_are_named)
{
    DatasetBuilder *b;
    Dataset *ds;
    Volume v = made_image(1, 2, 4, 4, true), w = made_image(2, 2, 4, 6, true);

    REQUIRE(dataset_begin(NULL, &b));
    REQUIRE(dataset_add(b, "a", "p", &v, NULL));
    REQUIRE(dataset_add(b, "b", "q", &w, NULL));
    REQUIRE(dataset_finish(b, &ds));
    Pipeline *p = made_pipeline(ds, "slices\n");
    Dims n;
    EXPECT_FAIL(pipeline_dims(p, 0, &n),
                "samples differ in size: image of a is 1x1x4x4 (N,C,H,W), of "
                "b 1x1x4x6 (N,C,H,W); fix: a fit or resize step");
    pipeline_free(p);
    p = made_pipeline(ds, "resize h=8 w=8\nslices\n");
    EXPECT(pipeline_dims(p, 0, &n));
    pipeline_free(p);
    dataset_free(ds);
    volume_free(&v);
    volume_free(&w);
}

/* The first bad case in order is reported, for any number of threads. */
TEST(pipeline_open_names_the_first_bad_case)
{
    DatasetBuilder *b;
    Dataset *ds;
    REQUIRE(dataset_begin(NULL, &b));

    for (int i = 0; i < 12; i++) {
        Volume v = made_image((uint32_t)i, 2, 4, 4, false);
        char key[16];
        snprintf(key, sizeof key, "k%02d", i);
        if (i >= 5 && i % 2) ((float *)v.voxels.data)[i] = NAN;
        REQUIRE(dataset_add(b, key, key, &v, NULL));
        volume_free(&v);
    }

    REQUIRE(dataset_finish(b, &ds));
    Steps s = made_steps("normalize\nslices\n");

    for (int threads = 0; threads < 5; threads++) {
        const PipelineOptions options = {.threads = threads,
                                         .cache_bytes = 1 << 20};
        Pipeline *p;
        long before = mem_live();
        EXPECT_FAIL(pipeline_open(ds, &s, &options, &p),
                    "k05: image: memory: 1 of 32 voxels are not finite");
        EXPECT_INT(err_kind(), ERR_DATA);
        EXPECT_INT(mem_live(), before);
    }
    dataset_free(ds);
}

/* ---- cache -------------------------------------------------------------- */

static uint64_t samples_hash(Pipeline *p)
{
    uint64_t h = 1;
    float x[64 * 64];
    float *out[MAX_FIELDS] = {x};

    for (int32_t i = 0; i < pipeline_samples(p); i++) {
        REQUIRE(pipeline_sample(p, i, 3, true, NULL, out));
        int64_t n = numel(pipeline_dims_of(p, i, 0));
        for (int64_t k = 0; k < n; k++) {
            uint32_t bits;
            memcpy(&bits, &x[k], 4);
            h = (h ^ bits) * 0x9E3779B97F4A7C15u;
        }
    }
    return h;
}

TEST(pipeline_cache_budget_holds_and_changes_nothing)
{
    Dataset *ds = made_dataset(6, 1, 4, 8, 8);
    Steps s = made_steps("normalize\nslices\nnoise p=1\nflip\n");
    // a prepared case: 256 voxels of F32 and as many bits
    const int64_t each = 256 * 4 + 256 / 8;
    uint64_t want = 0;

    for (int kept = 0; kept <= 6; kept++) {
        const PipelineOptions options = {.threads = 2,
                                         .cache_bytes = each * kept + 7};
        Pipeline *p;
        REQUIRE(pipeline_open(ds, &s, &options, &p));
        uint64_t h = samples_hash(p);
        if (!kept) want = h;
        EXPECT(h == want);
        CacheStats c = pipeline_cache(p);
        EXPECT_INT(c.kept, kept);
        EXPECT_INT(c.bytes, each * kept);
        EXPECT(c.peak <= c.budget && c.peak == c.bytes);
        // with cyclic access, all but one of the cached volumes stay
        int64_t hits = c.hits;
        samples_hash(p);
        c = pipeline_cache(p);
        if (kept == 6) EXPECT_INT(c.misses, 6);
        if (kept)
            EXPECT(c.hits - hits >= 24 - (6 - kept + 1));
        else
            EXPECT_INT(c.hits, 0);
        pipeline_free(p);
    }
    dataset_free(ds);
}

typedef struct Reader {
    pthread_t thread;
    Pipeline *p;
    uint32_t seed;
    bool ok;
} Reader;

static void *read_some(void *context)
{
    Reader *r = context;
    const Rng draw = {.seed = r->seed, .stream = RNG_TEST};
    float a[64], b[64];
    float *out[MAX_FIELDS] = {a};

    r->ok = true;
    for (uint32_t i = 0; i < 300 && r->ok; i++) {
        int32_t k = (int32_t)rng_below(&draw, i, 24);
        r->ok = pipeline_sample(r->p, k, 0, false, NULL, out);
        // with another thread running, the voxels are still those of the case
        Volume v = made_image((uint32_t)k / 4, 4, 8, 8, true);
        memcpy(b, (float *)v.voxels.data + k % 4 * 64, sizeof b);
        r->ok = r->ok && !memcmp(a, b, sizeof a);
        volume_free(&v);
    }
    return NULL;
}

TEST(pipeline_cache_under_threads)
{
    Dataset *ds = made_dataset(6, 1, 4, 8, 8);
    Steps s = made_steps("slices\n");
    const PipelineOptions options = {.cache_bytes = 2 * 256 * 3};
    Pipeline *p;
    Reader reader[4];

    REQUIRE(pipeline_open(ds, &s, &options, &p));
    for (uint32_t i = 0; i < 4; i++) {
        reader[i] = (Reader){.p = p, .seed = i};
        REQUIRE(
            !pthread_create(&reader[i].thread, NULL, read_some, &reader[i]));
    }

    for (int i = 0; i < 4; i++) {
        pthread_join(reader[i].thread, NULL);
        EXPECT(reader[i].ok);
    }
    EXPECT(pipeline_cache(p).peak <= options.cache_bytes);
    pipeline_free(p);
    dataset_free(ds);
}

TEST(pipeline_stops_when_told)
{
    Dataset *ds = made_dataset(3, 1, 2, 4, 4);
    Steps s = made_steps("slices\n");
    atomic_bool stop = true;
    const PipelineOptions options = {.stop = &stop};
    Pipeline *p;
    EXPECT_FAIL(pipeline_open(ds, &s, &options, &p), "stopped");
    dataset_free(ds);
}

/* ---- leakage between parts ---------------------------------------------- */

TEST(pipeline_finds_equal_voxels_on_two_sides)
{
    Dataset *side[2];
    for (int k = 0; k < 2; k++) {
        DatasetBuilder *b;
        REQUIRE(dataset_begin(NULL, &b));
        for (int i = 0; i < 3; i++) {
            // the last case of both parts is one image with two names
            Volume v =
                made_image((uint32_t)(i == 2 ? 9 : 3 * k + i), 2, 4, 4, true);
            char key[16];
            snprintf(key, sizeof key, "%c%d", "ab"[k], i);
            REQUIRE(dataset_add(b, key, key, &v, NULL));
            volume_free(&v);
        }
        REQUIRE(dataset_finish(b, &side[k]));
    }

    EXPECT(dataset_leaks((const Dataset *const *)side, 2));
    const Pipeline *p[2];
    for (int k = 0; k < 2; k++)
        p[k] = made_pipeline(side[k], "normalize\nslices\n");
    EXPECT_FAIL(pipeline_check_leakage(p, 2),
                "a2 and b2 hold the same voxels on two "
                "sides of the split");
    for (int k = 0; k < 2; k++) {
        pipeline_free((Pipeline *)p[k]);
        dataset_free(side[k]);
    }
}

/* ---- preparing and restoring --------------------------------------------- */

/* Expects classes 0 .. 3 as label values, in the narrowest type for all. */
static void relabels(const int32_t label[2], Dtype type)
{
    Volume v, out;
    REQUIRE(volume_new(&v, (Dims){1, 1, 1, 4, 1}, U8));
    for (int i = 0; i < 4; i++) ((uint8_t *)v.voxels.data)[i] = (uint8_t)i;
    REQUIRE(volume_relabel(&v, label, 2, &out));
    EXPECT_INT(out.voxels.type, type);

    for (int i = 0; i < 4; i++) {
        // no label for class 3: it keeps its number
        double want = i == 1 || i == 2 ? label[i - 1] : i;
        double got = type == U8    ? ((uint8_t *)out.voxels.data)[i]
                     : type == I16 ? ((int16_t *)out.voxels.data)[i]
                                   : (double)((float *)out.voxels.data)[i];
        EXPECT_NEAR(got, want, 0);
    }

    volume_free(&v);
    volume_free(&out);
}

TEST(prediction_has_the_labels_of_the_files)
{
    relabels((int32_t[]){2, 1}, U8);
    relabels((int32_t[]){255, 4}, U8);
    relabels((int32_t[]){256, 1}, I16);
    relabels((int32_t[]){-1, 1}, I16);
    relabels((int32_t[]){-1, 40000}, F32);
    Volume v, out = {0};
    REQUIRE(volume_new(&v, (Dims){1, 1, 1, 4, 1}, U8));
    EXPECT_FAIL(volume_relabel(&v, (int32_t[]){1, 1 << 25}, 2, &out),
                "label 33554432: a value beyond 2^24");
    volume_free(&v);
}

/* A value that is not finite is rejected, whatever it would be blended with. */
TEST(pipeline_prediction_not_finite)
{
    const char *const steps[] = {"slices axis=stored\n",
                                 "patches d=2 h=4 w=4 at=grid overlap=0.5\n"};
    Dataset *ds = made_dataset(2, 1, 4, 6, 5);

    for (int k = 0; k < 2; k++) {
        Pipeline *p = made_pipeline(ds, steps[k]);
        const int32_t number = pipeline_samples(p) - 1;
        const StitchOptions o = {.channels = 2, .classes = 2, .labels = true};
        Stitch *m;
        float x[64] = {0};
        REQUIRE(stitch_new(p, 1, &o, &m));
        REQUIRE(2 * numel(pipeline_dims_of(p, number, 0)) <= 64);
        EXPECT(stitch_put(m, number - 1, x));
        x[0] = NAN;
        x[2 * numel(pipeline_dims_of(p, number, 0)) - 1] = -INFINITY;
        EXPECT_FAIL(stitch_put(m, number, x),
                    k ? "case_01: 2 of 64 values of the prediction are not "
                        "finite"
                      : "case_01: 2 of 60 values of the prediction are not "
                        "finite");
        EXPECT_INT(err_kind(), ERR_DIVERGED);
        stitch_free(m);
        pipeline_free(p);
    }
    dataset_free(ds);
}

/* Uses the prepared mask as a prediction: restoring gives the mask again. */
static void round_trip(const Dataset *ds, const char *steps, double most)
{
    Pipeline *p = made_pipeline(ds, steps);
    const StitchOptions o = {.channels = 1, .values = true};
    Stitch *m;
    StitchResult back;
    Volume mask;

    REQUIRE(stitch_new(p, 0, &o, &m));
    Dims n = pipeline_dims_of(p, 0, 1);
    float *x = mem_alloc((size_t)numel(n) * sizeof *x);
    float *out[MAX_FIELDS] = {NULL, x};
    for (int32_t i = 0; i < pipeline_samples(p); i++) {
        REQUIRE(pipeline_sample(p, i, 0, false, NULL, out));
        REQUIRE(stitch_put(m, i, x));
    }
    REQUIRE(stitch_finish(m, &back));
    REQUIRE(case_load(ds, 0, 1, NULL, &mask, NULL));
    REQUIRE(volume_same_grid(&mask, &back.values));
    EXPECT(!memcmp(mask.affine, back.values.affine, sizeof mask.affine));
    const uint8_t *want = mask.voxels.data;
    const float *got = back.values.voxels.data;
    int64_t count = numel(mask.voxels.dim), wrong = 0;
    for (int64_t i = 0; i < count; i++) wrong += (got[i] > 0.5f) != want[i];
    EXPECT((double)wrong <= most * (double)count);
    mem_free(x);
    stitch_free(m);
    stitch_result_free(&back);
    volume_free(&mask);
    pipeline_free(p);
}

TEST(pipeline_prediction_lies_on_the_input)
{
    Dataset *ds = made_dataset(1, 1, 12, 16, 20);

    // moves, crops and pads are reversed exactly
    round_trip(ds, "", 0);
    round_trip(ds, "slices axis=axial\n", 0);
    round_trip(ds, "slices axis=sagittal\n", 0);
    round_trip(ds, "fit h=24 w=24\nslices axis=coronal\n", 0);
    round_trip(ds, "fit d=7 h=13 w=31\nfit d=20 h=20 w=20\n", 0.06);

    // overlapping patches; patches larger than the volume
    round_trip(ds, "patches d=5 h=6 w=9 at=grid\n", 0);
    round_trip(ds, "fit h=24\npatches d=16 h=8 w=24 at=grid overlap=0\n", 0);

    // other spacings up to the edge of the box
    round_trip(ds, "resample spacing_mm=0.5,0.5,1\n", 0);
    round_trip(ds, "resample spacing_mm=1.3,0.8,2\nfit h=24 w=20\nslices\n",
               0.05);
    round_trip(ds, "resize h=32 w=32\nslices axis=axial\n", 0.03);
    dataset_free(ds);
}

/* The steps in a checkpoint prepare like the steps they were printed from. */
TEST(pipeline_steps_from_text_prepare_alike)
{
    Dataset *ds = made_dataset(2, 1, 4, 9, 7);
    const char *text = "resample spacing_mm=1.1,0.9,0\nfit h=8 w=8\n"
                       "normalize method=percentile\nslices axis=axial\n";
    Arena mem = {0};
    Steps a = made_steps(text);
    Pipeline *p = made_pipeline(ds, text);
    Pipeline *q = made_pipeline(ds, steps_print(&a, &mem));

    EXPECT(samples_hash(p) == samples_hash(q));
    pipeline_free(p);
    pipeline_free(q);
    arena_release(&mem);
    dataset_free(ds);
}

TEST(pipeline_survives_no_memory)
{
    Dataset *ds = made_dataset(2, 1, 2, 4, 4);
    Steps s = made_steps("resample spacing_mm=2,2,2\nfit h=4 w=4\n"
                         "normalize clip=1,99\nslices\nnoise\n");
    const PipelineOptions options = {.cache_bytes = 100};
    long before = mem_live();

    for (long k = 0;; k++) {
        Pipeline *p = NULL;
        float x[16];
        float *out[MAX_FIELDS] = {x};
        mem_fail_after(k, false);
        bool ok = pipeline_open(ds, &s, &options, &p) &&
                  pipeline_sample(p, 0, 0, true, NULL, out);
        mem_fail_after(-1, false);
        pipeline_free(p);
        EXPECT_INT(mem_live(), before);
        if (ok) break;
        EXPECT(strstr(err_text(), "no memory"));
        REQUIRE(k < 500);
    }
    dataset_free(ds);
}

/* The hash of a case depends on every voxel and extent, and on their order. */
TEST(pipeline_hash_of_a_case)
{
    enum { MOST = 21 };
    uint64_t seen[400];
    int count = 0;

    for (int w = 1; w <= MOST; w++)
        for (int change = -1; change < w; change++) {
            DatasetBuilder *b;
            Dataset *ds;
            Volume v;
            REQUIRE(volume_new(&v, (Dims){1, 1, 1, w, 1}, F32));
            float *x = v.voxels.data;
            for (int i = 0; i < w; i++) x[i] = (float)(i + 1);
            if (change >= 0 && change % 2) x[change] += 1;
            if (change > 0 && change % 2 == 0)
                x[change] = x[0], x[0] = (float)(change + 1);
            REQUIRE(dataset_begin(NULL, &b));
            REQUIRE(dataset_add(b, "k", "p", &v, NULL));
            REQUIRE(dataset_finish(b, &ds));
            Pipeline *p = made_pipeline(ds, "");
            if (change) seen[count++] = pipeline_facts(p, 0)->hash;
            pipeline_free(p);
            dataset_free(ds);
            volume_free(&v);
        }

    for (int i = 0; i < count; i++)
        for (int k = 0; k < i; k++) EXPECT(seen[i] != seen[k]);
}
