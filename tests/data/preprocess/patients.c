/* patients.c -- tests of normalize per = "patient": statistics over all cases
 * of a patient, and of no other patient. */
#include "data/preprocess/patients.h"
#include "data/dataset/dataset_list.h"
#include "data/format/npy.h"
#include "engine/base/file.h"
#include "tests/support/volumes.h"
#include "tests/test.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { CASES = 7, PEOPLE = 3, WIDE = 16 };

/* Channel c of step k of sequence i, of patient i % PEOPLE: i + 3 steps. */
static float value(int i, int k, int c)
{
    return (float)((i * 7 + k * (k + c)) % 11 * (1 + i % PEOPLE) +
                   100 * (i % PEOPLE) - 50 * c);
}

static Dataset *sequences(int count)
{
    static const ListField field[] = {
        {.name = "x", .kind = FIELD_IMAGE, .rank = 1, .reader = "npy"},
        {.name = "length", .kind = FIELD_LENGTH}};
    DatasetBuilder *b;
    Dataset *ds;

    REQUIRE(dataset_list_begin(field, 2, NULL, &b));
    for (int i = 0; i < count; i++) {
        char path[600], key[16], patient[16];
        float x[2 * WIDE];
        snprintf(path, sizeof path, "%s/patient_%d.npy", test_folder(), i);
        snprintf(key, sizeof key, "s%d", i);
        snprintf(patient, sizeof patient, "p%d", i % PEOPLE);
        for (int k = 0; k < 2 * (i + 3); k++) x[k] = value(i, k / 2, k % 2);
        REQUIRE(npy_write(path, 2, (int64_t[]){i + 3, 2}, x));
        ListCase c = {.key = key, .patient = patient};
        c.field[0].path[0] = path;
        c.field[0].paths = 1;
        REQUIRE(dataset_list_add(b, &c));
    }

    REQUIRE(dataset_finish(b, &ds));
    return ds;
}

/* Mean and deviation of channel c (2: both) of patient `who` in `count`
 * cases. */
static void wanted(int who, int c, int count, double *mean, double *sd)
{
    float all[2 * CASES * WIDE];
    int64_t n = 0;
    for (int i = who; i < count; i += PEOPLE)
        for (int k = 0; k < i + 3; k++)
            for (int j = 0; j < 2; j++)
                if (c == 2 || c == j) all[n++] = value(i, k, j);
    made_moments(all, n, mean, sd);
}

static Pipeline *opened(const Dataset *ds, const char *text,
                        PipelineOptions how)
{
    const Steps s = made_steps(text);
    Pipeline *p;
    REQUIRE(pipeline_open(ds, &s, &how, &p));
    return p;
}

/* Reads all samples of WIDE steps into out (cases, 2, WIDE, in this order). */
static void samples(Pipeline *p, float *out)
{
    for (int i = 0; i < pipeline_samples(p); i++) {
        float length, *const to[MAX_FIELDS] = {out + i * 2 * WIDE, &length};
        REQUIRE(pipeline_sample(p, i, 0, false, NULL, to));
        EXPECT_NEAR(length, i + 3, 0);
    }
}

TEST(patients_are_normalized_by_all_their_cases)
{
    for (int together = 0; together < 2; together++) {
        char text[80];
        float x[CASES * 2 * WIDE], again[CASES * 2 * WIDE];
        Dataset *ds = sequences(CASES);
        // padded before: padding is not counted
        snprintf(text, sizeof text,
                 "fit w=16 at=start\nnormalize per=patient together=%s\n",
                 together ? "true" : "false");
        Pipeline *p =
            opened(ds, text, (PipelineOptions){.cache_bytes = 1 << 20});
        samples(p, x);
        pipeline_free(p);
        for (int i = 0; i < CASES; i++)
            for (int k = 0; k < 2 * (i + 3); k++) {
                double mean, sd;
                wanted(i % PEOPLE, together ? 2 : k % 2, CASES, &mean, &sd);
                EXPECT_NEAR(x[i * 2 * WIDE + k],
                            (value(i, k / 2, k % 2) - mean) / sd, 1e-5);
            }
        // by other threads, and with each case made again
        p = opened(ds, text, (PipelineOptions){.threads = 3});
        samples(p, again);
        EXPECT(!memcmp(x, again, sizeof x));
        pipeline_free(p);
        dataset_free(ds);
    }
}

/* Volumes that all differ: d, h, w, and the c of masks do not mix. */
TEST(patients_of_volumes)
{
    Dataset *ds = made_dataset(4, 2, 3, 4, 5);
    const PipelineOptions how = {.cache_bytes = 1 << 20};
    Pipeline *raw = opened(ds, "slices axis=stored\n", how);
    Pipeline *p =
        opened(ds, "normalize per=patient\nslices axis=stored\n", how);
    float from[6 * 20], to[20], mask[2][20];

    for (int who = 0; who < 2; who++) {
        double mean, sd;
        for (int i = 0; i < 6; i++) {
            float *const out[MAX_FIELDS] = {from + 20 * i, mask[0]};
            REQUIRE(pipeline_sample(raw, 6 * who + i, 0, false, NULL, out));
        }
        made_moments(from, 6 * 20, &mean, &sd);
        for (int i = 0; i < 6; i++) {
            float *const out[MAX_FIELDS] = {to, mask[1]};
            REQUIRE(pipeline_sample(p, 6 * who + i, 0, false, NULL, out));
            for (int k = 0; k < 20; k++)
                EXPECT_NEAR(to[k], (from[20 * i + k] - mean) / sd, 1e-5);
        }
        float *const out[MAX_FIELDS] = {to, mask[0]};
        REQUIRE(pipeline_sample(raw, 6 * who + 5, 0, false, NULL, out));
        EXPECT(!memcmp(mask[0], mask[1], sizeof *mask));
    }

    pipeline_free(raw);
    pipeline_free(p);
    dataset_free(ds);
}

/* A new case changes the others of its patient, so their cached results must
 * not be used; results of other patients may. */
TEST(patients_are_part_of_what_is_kept)
{
    char store[600];
    snprintf(store, sizeof store, "%s/patients.cases", test_folder());
    const PipelineOptions how = {.cache_bytes = 1 << 20, .store = store};
    const char *text = "fit w=16 at=start\nnormalize per=patient\n";
    float x[CASES * 2 * WIDE], without[CASES * 2 * WIDE];
    Dataset *few = sequences(CASES - 1), *all = sequences(CASES);
    pipeline_free(opened(few, text, how));
    Pipeline *p = opened(all, text, how);
    samples(p, x);
    Arena mem = {NULL};

    // p1 and p2: two cases each; the new one, s6, is of p0
    EXPECT(strstr(pipeline_store(p, &mem), "4 found, 3 added"));
    pipeline_free(p);
    p = opened(all, text, (PipelineOptions){.cache_bytes = 1 << 20});
    samples(p, without);
    EXPECT(!memcmp(x, without, sizeof x));
    pipeline_free(p);
    arena_release(&mem);
    dataset_free(few);
    dataset_free(all);
}

/* An unreadable case is not counted: the others of its patient are as if it did
 * not exist. */
TEST(patients_without_their_bad_cases)
{
    const char *text = "fit w=16 at=start\nnormalize per=patient\n";
    char path[600];
    float x[CASES * 2 * WIDE], without[CASES * 2 * WIDE];
    Dataset *few = sequences(CASES - 1), *all = sequences(CASES);
    Pipeline *p = opened(few, text, (PipelineOptions){0});

    samples(p, without);
    pipeline_free(p);
    snprintf(path, sizeof path, "%s/patient_%d.npy", test_folder(), CASES - 1);
    REQUIRE(file_replace(path, "no array", 8));
    p = opened(all, text, (PipelineOptions){.skip_bad = true});
    EXPECT_INT(pipeline_samples(p), CASES - 1);
    samples(p, x);
    EXPECT(!memcmp(x, without, (CASES - 1) * 2 * WIDE * sizeof *x));
    pipeline_free(p);
    dataset_free(few);
    dataset_free(all);
}

TEST(patients_that_cannot_be)
{
    Steps s;
    const PipelineOptions how = {.cache_bytes = 1 << 20};
    Pipeline *p;

    EXPECT_FAIL(steps_parse("normalize per=patient method=minmax\n", &s),
                "per = \"patient\" is for zscore of all values alone");
    EXPECT_FAIL(steps_parse("normalize per=patient nonzero=true\n", &s),
                "leave method, clip and nonzero out");
    EXPECT_FAIL(steps_parse("normalize per=patient clip=1,99\n", &s),
                "leave method, clip and nonzero out");
    EXPECT_FAIL(
        steps_parse("normalize per=patient\nnormalize per=patient\n", &s),
        "a second step per patient");

    // one patient without contrast, although others have contrast
    Dataset *ds = sequences(CASES);
    s = made_steps("clamp range=-1000,90\nnormalize per=patient\n");
    EXPECT_FAIL(pipeline_open(ds, &s, &how, &p),
                "channel 1 of x is 90 in all cases of patient p1");
    EXPECT_INT(err_kind(), ERR_DATA);

    // a different number of channels in one of the cases
    char path[600];
    const float one[6] = {0};
    snprintf(path, sizeof path, "%s/patient_4.npy", test_folder());
    REQUIRE(npy_write(path, 2, (int64_t[]){2, 3}, one));
    s = made_steps("normalize per=patient\n");
    EXPECT_FAIL(pipeline_open(ds, &s, &how, &p),
                "x of s0 has 2 channels, of s4 3");
    EXPECT_INT(err_kind(), ERR_DATA);
    dataset_free(ds);
}

TEST(patients_without_memory)
{
    Dataset *ds = sequences(CASES);
    const Steps s = made_steps("normalize per=patient\n");
    const PipelineOptions how = {.cache_bytes = 1 << 20};
    Pipeline *p;
    bool ok = false;
    long n = 0;

    for (; !ok && n < 2000; n++) {
        const long live = mem_live();
        mem_fail_after(n, false);
        ok = pipeline_open(ds, &s, &how, &p);
        mem_fail_after(-1, false);
        if (ok) pipeline_free(p);
        EXPECT_INT(mem_live(), live);
        if (!ok) EXPECT_INT(err_kind(), ERR_FAILURE);
    }

    EXPECT(ok && n > 20);
    dataset_free(ds);
}
