/* skip_bad.c -- tests of pipelines that skip unreadable cases: the result is as
 * if these cases did not exist, and each is reported. */
#include "data/dataset/dataset_list.h"
#include "data/format/npy.h"
#include "engine/base/file.h"
#include "engine/base/rng.h"
#include "tests/support/volumes.h"
#include "tests/test.h"

enum { CASES = 7, SIDE = 6, VOXELS = SIDE * SIDE * SIDE };

static const char slices[] = "slices axis=stored keep=foreground\nnoise\n";
static const char patches[] = "patches d=3 h=3 w=3 count=2 foreground=0.5\n";

static void path_of(char path[300], int number, const char *what)
{
    snprintf(path, 300, "%s/skip-%d-%s.npy", test_folder(), number, what);
}

/* Writes image and mask of a case, or the files of a bad one. Only files that
 * change are written: each write waits for the disk. */
static void write_case(int number, bool bad)
{
    static enum { UNKNOWN, GOOD, BAD } state[CASES];
    if (state[number] == (bad ? BAD : GOOD)) return;
    state[number] = bad ? BAD : GOOD;
    char path[300];
    float x[VOXELS];
    const int64_t shape[] = {SIDE, SIDE, SIDE};
    const Rng r = {.seed = 5, .stream = RNG_TEST, .sample = (uint32_t)number};
    for (uint32_t i = 0; i < VOXELS; i++) x[i] = rng_uniform(&r, i);
    path_of(path, number, "image");
    REQUIRE(npy_write(path, 3, shape, x));

    // in some cases the mask is unreadable
    if (bad && number % 2 == 0) REQUIRE(file_replace(path, "damaged", 7));
    for (int i = 0; i < VOXELS; i++) x[i] = i % 40 == number;
    path_of(path, number, "mask");
    REQUIRE(npy_write(path, 3, shape, x));
    if (bad && number % 2) REQUIRE(!remove(path));
}

/* The cases for which `there` is set. */
static Dataset *files(const bool there[CASES])
{
    static const ListField field[] = {
        {.name = "image", .kind = FIELD_IMAGE, .rank = 3, .reader = "npy"},
        {.name = "mask", .kind = FIELD_LABEL, .rank = 3, .reader = "npy"}};
    DatasetBuilder *b;
    Dataset *ds;

    REQUIRE(dataset_list_begin(field, 2, NULL, &b));
    for (int i = 0; i < CASES; i++) {
        char path[2][300], key[8], patient[8];
        if (!there[i]) continue;
        snprintf(key, sizeof key, "c%d", i);
        snprintf(patient, sizeof patient, "p%d", i);
        path_of(path[0], i, "image");
        path_of(path[1], i, "mask");
        ListCase c = {.key = key, .patient = patient};
        for (int f = 0; f < 2; f++)
            c.field[f].path[0] = path[f], c.field[f].paths = 1;
        REQUIRE(dataset_list_add(b, &c));
    }

    REQUIRE(dataset_finish(b, &ds));
    return ds;
}

/* Hashes every number of every sample, with its case. */
static uint64_t samples_hash(Pipeline *p)
{
    uint64_t h = 1;
    for (int32_t i = 0; i < pipeline_samples(p); i++) {
        float x[VOXELS] = {0}, m[VOXELS] = {0};
        float *const out[MAX_FIELDS] = {x, m};
        const SampleId id = pipeline_id(p, i);
        REQUIRE(pipeline_sample(p, i, 2, true, NULL, out));
        h = (h ^ (uint64_t)(id.item * 64 + id.part)) * 0x9E3779B97F4A7C15u;
        for (int k = 0; k < VOXELS; k++) {
            uint32_t bits;
            memcpy(&bits, &x[k], sizeof bits);
            h = (h ^ bits ^ (uint32_t)m[k]) * 0x9E3779B97F4A7C15u;
            h ^= h >> 29;
        }
    }
    return h;
}

static Pipeline *opened(const Dataset *ds, const char *steps, int threads,
                        int64_t cache, const char *store)
{
    const PipelineOptions how = {.threads = threads,
                                 .cache_bytes = cache,
                                 .store = store,
                                 .seed = 3,
                                 .skip_bad = true};
    Steps s = made_steps(steps);
    Pipeline *p;
    REQUIRE(pipeline_open(ds, &s, &how, &p));
    return p;
}

/* Every subset of bad cases out of seven, up to half of the cases. */
TEST(skip_bad_is_as_if_they_were_not_there)
{
    static const bool all[CASES] = {1, 1, 1, 1, 1, 1, 1};
    for (int k = 0; k < 1 << CASES; k++) {
        // Gray code: one case changes per step
        const int set = k ^ k >> 1;
        bool good[CASES];
        int bad = 0;
        for (int i = 0; i < CASES; i++) {
            good[i] = !(set >> i & 1);
            bad += !good[i];
            write_case(i, !good[i]);
        }
        if (2 * bad > CASES) continue;
        const char *steps = set % 3 ? slices : patches;
        Dataset *some = files(good), *ds = files(all);
        Pipeline *want = opened(some, steps, 1, 1 << 20, NULL);
        const BadCase *list;
        EXPECT_INT(pipeline_bad(want, &list), 0);
        for (int how = 0; how < 3; how++) {
            // cache of all, some, no cases
            static const int64_t cache[] = {1 << 20, 3000, 0};
            Pipeline *p = opened(ds, steps, 1 + how, cache[how], NULL);
            EXPECT_INT(pipeline_bad(p, &list), bad);
            EXPECT_INT(pipeline_dataset(p)->count, CASES - bad);
            EXPECT_INT(pipeline_samples(p), pipeline_samples(want));
            EXPECT(samples_hash(p) == samples_hash(want));
            for (int i = 0, b = 0, g = 0; i < CASES; i++) {
                char key[8], path[300];
                snprintf(key, sizeof key, "c%d", i);
                path_of(path, i, i % 2 ? "mask" : "image");
                if (good[i]) {
                    EXPECT_TEXT(pipeline_dataset(p)->cases[g].key, key);
                    EXPECT(pipeline_facts(p, g)->hash ==
                           pipeline_facts(want, g)->hash);
                    g++;
                } else {
                    EXPECT_TEXT(list[b].key, key);
                    EXPECT_INT(list[b].patient[1], key[1]);
                    EXPECT(!strncmp(list[b].reason, key, 2) &&
                           strstr(list[b++].reason, path));
                }
            }
            pipeline_free(p);
        }
        pipeline_free(want);
        dataset_free(some);
        dataset_free(ds);
    }
}

static void write_all(int bad)
{
    for (int i = 0; i < CASES; i++) write_case(i, i < bad);
}

TEST(skip_bad_has_a_limit_and_a_default)
{
    static const bool six[CASES] = {1, 1, 1, 1, 1, 1, 0};
    Dataset *ds = files(six);
    Steps s = made_steps(slices);
    PipelineOptions how = {.threads = 2};
    Pipeline *p;
    Arena mem = {NULL};
    const BadCase *list;

    write_all(1);

    // only on request
    EXPECT_FAIL(pipeline_open(ds, &s, &how, &p), "c0: image: ");
    how.skip_bad = true;
    write_all(3);
    REQUIRE(pipeline_open(ds, &s, &how, &p));
    EXPECT_INT(pipeline_bad(p, &list), 3);
    const char *said = pipeline_report(p, &mem);
    EXPECT(said && strstr(said, "; 3 left out, as they cannot be read"));
    arena_release(&mem);
    pipeline_free(p);
    write_all(4);
    EXPECT_FAIL(pipeline_open(ds, &s, &how, &p),
                "skip_bad: 4 of 6 cases cannot be read, more than half; the "
                "first: c0: image: ");
    EXPECT_INT(err_kind(), ERR_DATA);

    // an error of the recipe is not a bad case
    Steps wrong = made_steps("crop to=label\nfit d=4\n");
    static const ListField field = {
        .name = "x", .kind = FIELD_IMAGE, .rank = 3, .reader = "npy"};
    DatasetBuilder *b;
    Dataset *bare;
    char path[300];
    write_all(0);
    path_of(path, 0, "image");
    REQUIRE(dataset_list_begin(&field, 1, NULL, &b));
    ListCase c = {.key = "k", .patient = "k"};
    c.field[0].path[0] = path, c.field[0].paths = 1;
    REQUIRE(dataset_list_add(b, &c) && dataset_finish(b, &bare));
    EXPECT_FAIL(pipeline_open(bare, &wrong, &how, &p), "no labels");
    EXPECT_INT(err_kind(), ERR_USAGE);
    dataset_free(bare);
    dataset_free(ds);
}

/* A file of prepared cases has the good cases only. */
TEST(skip_bad_with_a_store)
{
    static const bool all[CASES] = {1, 1, 1, 1, 1, 1, 1};
    char store[300], *said;
    Arena mem = {NULL};

    snprintf(store, sizeof store, "%s/skip.cases", test_folder());
    write_all(3);
    Dataset *ds = files(all);
    Pipeline *p = opened(ds, slices, 2, 0, store);
    const uint64_t want = samples_hash(p);
    pipeline_free(p);
    p = opened(ds, slices, 2, 0, store);
    EXPECT(samples_hash(p) == want);
    said = pipeline_store(p, &mem);
    EXPECT(said && strstr(said, "prepared cases: 4 found, 0 added"));
    pipeline_free(p);

    // a repaired case is included again
    write_all(2);
    p = opened(ds, slices, 2, 0, store);
    EXPECT_INT(pipeline_dataset(p)->count, 5);
    said = pipeline_store(p, &mem);
    EXPECT(said && strstr(said, "prepared cases: 4 found, 1 added"));
    pipeline_free(p);
    arena_release(&mem);
    dataset_free(ds);
    remove(store);
}

/* Lack of memory is not the fault of a case. */
TEST(skip_bad_without_memory)
{
    static const bool six[CASES] = {1, 1, 1, 1, 1, 1, 0};
    write_all(2);
    Dataset *ds = files(six);
    const long before = mem_live();

    for (long k = 0;; k += 1 + k / 16) {
        const PipelineOptions how = {.cache_bytes = 1 << 20, .skip_bad = true};
        Steps s = made_steps(patches);
        const BadCase *list;
        Pipeline *p = NULL;
        mem_fail_after(k, false);
        const bool ok = pipeline_open(ds, &s, &how, &p);
        mem_fail_after(-1, false);
        if (ok) EXPECT_INT(pipeline_bad(p, &list), 2);
        pipeline_free(p);
        EXPECT_INT(mem_live(), before);
        if (ok) break;
        EXPECT_INT(err_kind(), ERR_FAILURE);
        REQUIRE(k < 10000);
    }
    dataset_free(ds);
}
