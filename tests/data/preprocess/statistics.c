/* statistics.c -- tests of statistics of the training cases. */
#include "data/preprocess/statistics.h"
#include "data/dataset/dataset_list.h"
#include "data/dataset/split.h"
#include "data/format/npy.h"
#include "data/steps/standardize.h"
#include "tests/support/volumes.h"
#include "tests/test.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int ascending(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return x < y ? -1 : x > y;
}

/* Expected values, computed by sorting everything. */
typedef struct Want {
    double mean, sd, low, high;
} Want;

static Want by_sorting(float *x, int64_t n, double from, double to)
{
    const double part[2] = {from, to};
    double bound[2], sum = 0, square = 0;
    qsort(x, (size_t)n, sizeof *x, ascending);
    for (int i = 0; i < 2; i++) {
        const double at = part[i] / 100 * (double)(n - 1);
        const int64_t k = (int64_t)at, next = k + 1 < n ? k + 1 : k;
        bound[i] = x[k] + (at - (double)k) * ((double)x[next] - (double)x[k]);
    }

    for (int64_t i = 0; i < n; i++)
        sum += fmin(fmax((double)x[i], bound[0]), bound[1]);
    for (int64_t i = 0; i < n; i++) {
        const double off =
            fmin(fmax((double)x[i], bound[0]), bound[1]) - sum / (double)n;
        square += off * off;
    }

    return (Want){sum / (double)n, sqrt(square / (double)n), bound[0],
                  bound[1]};
}

static Steps fitted(const Dataset *ds, const char *text, int threads,
                    int64_t cache)
{
    Steps steps = made_steps(text);
    Arena mem = {NULL};
    const char *said;
    const PipelineOptions o = {.threads = threads, .cache_bytes = cache};
    REQUIRE(statistics_fit(ds, &steps, &o, &mem, &said));
    arena_release(&mem);
    return steps;
}

static const DataStep *standardize_of(const Steps *steps)
{
    for (int i = 0; i < steps->count; i++)
        if (steps->step[i].id == STEP_standardize) return &steps->step[i];
    return NULL;
}

static void expect_numbers(const Steps *steps, int c, Want want, bool cut)
{
    const DataStep *s = standardize_of(steps);
    const double near = 1e-9 * (1 + fabs(want.mean) + want.sd);
    EXPECT_NEAR(s->standardize.mean[c], want.mean, near);
    EXPECT_NEAR(s->standardize.sd[c], want.sd, near);
    EXPECT_INT(s->standardize.low_count, cut ? s->standardize.mean_count : 0);
    if (!cut) return;
    EXPECT_NEAR(s->standardize.low[c], want.low, 0);
    EXPECT_NEAR(s->standardize.high[c], want.high, 0);
}

/* Returns the voxels of all samples of a pipeline, or of those with a label. */
static float *all_voxels(Pipeline *p, bool foreground, int64_t *n)
{
    const Dims d = pipeline_dims_of(p, 0, 0);
    const int64_t each = positions(d);
    float *x = mem_alloc((size_t)(each * pipeline_samples(p)) * sizeof *x);
    float *image = mem_alloc((size_t)each * sizeof *x);
    float *mask = mem_alloc((size_t)each * sizeof *x);
    float *const out[MAX_FIELDS] = {image, mask};

    *n = 0;
    for (int32_t i = 0; i < pipeline_samples(p); i++) {
        REQUIRE(pipeline_sample(p, i, 0, false, NULL, out));
        for (int64_t k = 0; k < each; k++)
            if (!foreground || mask[k] != 0) x[(*n)++] = image[k];
    }

    mem_free(image);
    mem_free(mask);
    return x;
}

TEST(statistics_are_those_of_all_voxels_for_any_threads)
{
    static const struct {
        const char *steps, *before; /* before: the steps that precede it */
        double clip[2];
        bool foreground;
    } row[] = {
        {"standardize\n", "", {0, 100}, false},
        {"standardize clip=0.5,99.5\n", "", {0.5, 99.5}, false},
        {"standardize clip=0,90\n", "", {0, 90}, false},
        {"standardize clip=40,41\n", "", {40, 41}, false},
        {"standardize of=foreground clip=10,75\n", "", {10, 75}, true},
        {"clamp range=-20,60\nstandardize of=foreground\n",
         "clamp range=-20,60\n",
         {0, 100},
         true},
        {"normalize\nstandardize clip=1,98\nslices keep=foreground\n",
         "normalize\nslices keep=foreground\n",
         {1, 98},
         false},
        {"fit h=7 w=12\nstandardize clip=25,97\npatches d=4 h=5 w=5\n",
         "fit h=7 w=12\n",
         {25, 97},
         false},
    };
    static const int threads[] = {0, 1, 4, 8};
    Dataset *ds = made_dataset(7, 1, 6, 9, 8);

    for (size_t r = 0; r < sizeof row / sizeof *row; r++) {
        Pipeline *p = made_pipeline(ds, row[r].before);
        int64_t n;
        float *x = all_voxels(p, row[r].foreground, &n);
        const Want want = by_sorting(x, n, row[r].clip[0], row[r].clip[1]);
        const Steps first = fitted(ds, row[r].steps, 0, 0);
        expect_numbers(&first, 0, want,
                       row[r].clip[0] > 0 || row[r].clip[1] < 100);
        for (int k = 1; k < 8; k++) {
            const Steps other =
                fitted(ds, row[r].steps, threads[k % 4], k < 4 ? 0 : 1 << 20);
            EXPECT(!memcmp(&first, &other, sizeof first));
        }
        mem_free(x);
        pipeline_free(p);
    }
    dataset_free(ds);
}

/* Negative numbers, many equal ones, and both zeros. */
TEST(statistics_percentiles_are_exact)
{
    DatasetBuilder *b;
    Dataset *ds;
    enum { CASES = 5, EACH = 4 * 9 };
    float all[CASES * EACH];
    REQUIRE(dataset_begin(NULL, &b));

    for (int i = 0; i < CASES; i++) {
        Volume v = made_image((uint32_t)i, 1, 4, 9, true);
        float *x = v.voxels.data;
        char key[8];
        for (int k = 0; k < EACH; k++) {
            const int at = i * EACH + k;
            x[k] = at % 3 == 0 ? 0
                   : at % 3 == 1
                       ? -0.0f
                       : (float)(at - 90) * 1e-3f * (at % 7 ? 1 : 1e6f);
            all[at] = x[k];
        }
        snprintf(key, sizeof key, "k%d", i);
        REQUIRE(dataset_add(b, key, key, &v, NULL));
        volume_free(&v);
    }

    REQUIRE(dataset_finish(b, &ds));
    static const double clip[][2] = {
        {0.1, 99.9}, {3, 50}, {49, 51}, {0, 33}, {99, 100}};

    for (size_t k = 0; k < sizeof clip / sizeof *clip; k++) {
        char text[64];
        snprintf(text, sizeof text, "standardize clip=%g,%g\n", clip[k][0],
                 clip[k][1]);
        Want want = by_sorting(all, CASES * EACH, clip[k][0], clip[k][1]);
        if (want.sd > 0) {
            const Steps s = fitted(ds, text, 2, 1 << 20);
            expect_numbers(&s, 0, want, true);
        }
    }
    dataset_free(ds);
}

/* After the step the training cases have mean 0 and deviation 1, and a case of
 * another set is transformed with the same numbers. */
TEST(statistics_are_used_on_other_cases)
{
    Dataset *train = made_dataset(4, 1, 3, 6, 5);
    Dataset *valid = made_dataset(2, 1, 3, 7, 5);
    Steps steps = fitted(train, "standardize clip=5,95\n", 1, 0);
    Steps other = made_steps("crop\nstandardize clip=5,95\nflip\n");
    const PipelineOptions o = {.threads = 1};
    Pipeline *p, *plain = made_pipeline(valid, "crop\n");
    Arena mem = {NULL};
    double mean, sd;
    int64_t n;

    p = made_pipeline(train, steps_print(&steps, &mem));
    float *x = all_voxels(p, false, &n);
    made_moments(x, n, &mean, &sd);
    EXPECT_NEAR(mean, 0, 1e-6);
    EXPECT_NEAR(sd, 1, 1e-6);
    mem_free(x);
    pipeline_free(p);
    EXPECT_FAIL(pipeline_open(valid, &other, &o, &p),
                "case_00: image: standardize: its mean and sd are not known "
                "yet: they come from the training set");
    REQUIRE(steps_take(&steps, &other));
    const DataStep *s = standardize_of(&other);
    EXPECT(!memcmp(s, standardize_of(&steps), sizeof *s));
    p = made_pipeline(valid, steps_print(&other, &mem));
    const Dims d = pipeline_dims_of(p, 1, 0);
    float *got = mem_alloc((size_t)numel(d) * sizeof *got);
    float *raw = mem_alloc((size_t)numel(d) * sizeof *raw);
    float *const to[MAX_FIELDS] = {got}, *const from[MAX_FIELDS] = {raw};
    REQUIRE(pipeline_sample(p, 1, 0, false, NULL, to));
    REQUIRE(pipeline_sample(plain, 1, 0, false, NULL, from));

    for (int64_t i = 0; i < numel(d); i++) {
        const double cut = fmin(fmax((double)raw[i], s->standardize.low[0]),
                                s->standardize.high[0]);
        EXPECT_NEAR(got[i],
                    (cut - s->standardize.mean[0]) / s->standardize.sd[0],
                    1e-6);
    }

    mem_free(got);
    mem_free(raw);
    pipeline_free(p);
    pipeline_free(plain);
    arena_release(&mem);
    dataset_free(train);
    dataset_free(valid);
}

/* Slabs of one volume: no voxel of the other part is read. */
TEST(statistics_keep_to_the_slabs_of_a_side)
{
    Dataset *ds = made_dataset(1, 1, 20, 4, 4), *part[PARTS];
    const SplitSlabs how = {.valid = {0, 0.5}, .gap = 0};
    REQUIRE(dataset_split_slabs(ds, &how, part));
    Pipeline *p = made_pipeline(part[TRAIN_PART], "slices axis=stored\n");
    EXPECT_INT(pipeline_samples(p), 10);
    int64_t n;
    float *x = all_voxels(p, false, &n);
    const Want want = by_sorting(x, n, 2, 98);
    const Steps s = fitted(part[TRAIN_PART],
                           "standardize clip=2,98\nslices axis=stored\n", 1, 0);
    expect_numbers(&s, 0, want, true);
    mem_free(x);
    pipeline_free(p);
    for (int i = 0; i < PARTS; i++) dataset_free(part[i]);
    dataset_free(ds);
}

/* Sequences of i + 3 steps of 2 features, and 2 numbers each. */
static Dataset *sequences(int count)
{
    static const ListField field[] = {
        {.name = "x", .kind = FIELD_IMAGE, .rank = 1, .reader = "npy"},
        {.name = "pose", .kind = FIELD_NUMBER, .numbers = 2},
        {.name = "length", .kind = FIELD_LENGTH}};
    DatasetBuilder *b;
    Dataset *ds;

    REQUIRE(dataset_list_begin(field, 3, NULL, &b));
    for (int i = 0; i < count; i++) {
        char path[600], key[16];
        float x[64];
        const int64_t w = i + 3;
        const double pose[2] = {i * i, 1000 - i};
        snprintf(path, sizeof path, "%s/stat_%d.npy", test_folder(), i);
        snprintf(key, sizeof key, "s%03d", i);
        for (int64_t k = 0; k < 2 * w; k++)
            x[k] = (float)(k % 2 ? 100 * i + k : k * k - 40);
        REQUIRE(npy_write(path, 2, (int64_t[]){w, 2}, x));
        ListCase c = {.key = key, .patient = key};
        c.field[0].path[0] = path;
        c.field[0].paths = 1;
        c.field[1].number = pose;
        REQUIRE(dataset_list_add(b, &c));
    }

    REQUIRE(dataset_finish(b, &ds));
    return ds;
}

TEST(statistics_of_channels_leave_padding_out)
{
    enum { COUNT = 9 };
    Dataset *ds = sequences(COUNT);
    float all[2][COUNT * 16], pose[2][COUNT];
    int64_t n = 0;

    for (int i = 0; i < COUNT; i++) {
        for (int k = 0; k < i + 3; k++, n++) {
            all[0][n] = (float)(4 * k * k - 40);
            all[1][n] = (float)(100 * i + 2 * k + 1);
        }
        pose[0][i] = (float)(i * i);
        pose[1][i] = (float)(1000 - i);
    }

    Steps s = fitted(ds, "fit w=16 at=start\nstandardize clip=0,80\n", 2, 0);
    EXPECT_INT(standardize_of(&s)->standardize.mean_count, 2);
    for (int c = 0; c < 2; c++)
        expect_numbers(&s, c, by_sorting(all[c], n, 0, 80), true);

    // numbers, with an image that has its own step
    s = fitted(ds, "fit w=16 at=start\nstandardize field=pose\nstandardize\n",
               3, 1 << 20);
    EXPECT_INT(s.step[1].standardize.kind, STANDARDIZE_NUMBERS);
    EXPECT_INT(s.step[2].standardize.kind, STANDARDIZE_IMAGE);
    for (int c = 0; c < 2; c++)
        expect_numbers(&s, c, by_sorting(pose[c], COUNT, 0, 100), false);

    // applied: numbers change, and the length does not
    Arena mem = {NULL};
    Pipeline *p = made_pipeline(ds, steps_print(&s, &mem));
    float x[64], number[2], length;
    float *const out[MAX_FIELDS] = {x, number, &length};
    REQUIRE(pipeline_sample(p, 4, 0, false, NULL, out));
    EXPECT_NEAR(length, 7, 0);
    for (int c = 0; c < 2; c++)
        EXPECT_NEAR(number[c],
                    ((c ? 996 : 16) - s.step[1].standardize.mean[c]) /
                        s.step[1].standardize.sd[c],
                    1e-6);

    pipeline_free(p);

    // images alone, as in a prediction
    DatasetBuilder *b;
    Dataset *images;
    const ListField only[] = {
        {.name = "image", .kind = FIELD_IMAGE, .rank = 1, .reader = "npy"}};
    char path[600];
    snprintf(path, sizeof path, "%s/stat_4.npy", test_folder());
    REQUIRE(dataset_list_begin(only, 1, NULL, &b));
    ListCase c = {.key = "a", .patient = "p"};
    c.field[0].path[0] = path;
    c.field[0].paths = 1;
    REQUIRE(dataset_list_add(b, &c));
    REQUIRE(dataset_finish(b, &images));
    p = made_pipeline(images, steps_print(&s, &mem));
    float again[64];
    float *const alone[MAX_FIELDS] = {again};
    REQUIRE(pipeline_sample(p, 0, 0, false, NULL, alone));
    EXPECT(!memcmp(x, again, 32 * sizeof *x));
    pipeline_free(p);

    // an image with a step must exist
    s = made_steps("standardize field=x mean=1,2 sd=3,4\n");
    const PipelineOptions o = {.threads = 1};
    EXPECT_FAIL(pipeline_open(images, &s, &o, &p),
                "a: standardize: the data set has no field \"x\"");
    s = made_steps("standardize mean=1 sd=3\n");
    EXPECT_FAIL(pipeline_open(images, &s, &o, &p),
                "a: image: standardize: its mean and sd have 1 channel, this "
                "field has 2");
    arena_release(&mem);
    dataset_free(images);
    dataset_free(ds);
}

/* When any one allocation fails, no memory leaks and the steps have no partial
 * numbers. */
TEST(statistics_without_memory)
{
    Dataset *ds = made_dataset(2, 1, 3, 4, 4);
    const PipelineOptions o = {.cache_bytes = 1 << 20};
    Arena mem = {NULL};
    bool ok = false;
    long n = 0;

    for (; !ok && n < 2000; n++) {
        Steps steps = made_steps("standardize of=foreground clip=2,98\n");
        const char *said;
        const long live = mem_live();
        mem_fail_after(n, false);
        ok = statistics_fit(ds, &steps, &o, &mem, &said);
        mem_fail_after(-1, false);
        arena_release(&mem);
        EXPECT_INT(mem_live(), live);
        EXPECT(ok == steps_fitted(&steps.step[0]));
        if (!ok) EXPECT_INT(err_kind(), ERR_FAILURE);
    }

    EXPECT(ok && n > 20);
    dataset_free(ds);
}

static void expect_refused(const Dataset *ds, const char *text, ErrKind kind,
                           const char *why)
{
    Steps steps = made_steps(text);
    Arena mem = {NULL};
    const char *said;
    const PipelineOptions o = {.threads = 1};
    EXPECT_FAIL(statistics_fit(ds, &steps, &o, &mem, &said), why);
    EXPECT_INT(err_kind(), kind);
    arena_release(&mem);
}

TEST(statistics_that_cannot_be)
{
    Dataset *ds = sequences(2), *volumes = made_dataset(2, 1, 4, 4, 4);
    expect_refused(ds, "standardize field=angle\n", ERR_USAGE,
                   "standardize: the training set has no field \"angle\"");
    expect_refused(ds, "standardize field=length\n", ERR_USAGE,
                   "standardize: length is neither an image nor numbers");
    expect_refused(ds, "standardize of=foreground\n", ERR_USAGE,
                   "standardize: of = \"foreground\", but the training set has "
                   "no labels");
    expect_refused(ds, "standardize field=pose of=foreground\n", ERR_USAGE,
                   "standardize: pose has no foreground");
    expect_refused(volumes, "clamp range=3,3\nstandardize\n", ERR_DATA,
                   "standardize: channel 1 of image is 3 in all of the "
                   "training set, there is nothing");

    // so many zeros that both percentiles are 0
    expect_refused(volumes,
                   "clamp range=0,1\nfit d=40 h=40 w=40\nstandardize "
                   "clip=50,50.0001\n",
                   ERR_DATA,
                   "in all of the training set once it is cut by clip");
    expect_refused(volumes, "select labels=7\nstandardize of=foreground\n",
                   ERR_DATA,
                   "standardize: image of the training set has no voxel with a "
                   "label");
    expect_refused(volumes,
                   "select labels=7\nstandardize of=foreground clip=1,99\n",
                   ERR_DATA, "no voxel with a label");
    dataset_free(volumes);
    dataset_free(ds);
    Steps s;
    EXPECT_FAIL(steps_parse("standardize mean=1\n", &s),
                "1 numbers in mean, 0 in sd");
    EXPECT_FAIL(steps_parse("standardize mean=1 sd=0\n", &s),
                "sd is 0, wanted more");
    EXPECT_FAIL(steps_parse("standardize mean=1 sd=2 low=3 high=4\n", &s),
                "wanted none without clip");
    EXPECT_FAIL(steps_parse("standardize clip=1,99 mean=1 sd=2\n", &s),
                "wanted as many, for clip");
    EXPECT_FAIL(
        steps_parse("standardize clip=1,99 mean=1 sd=2 low=3 high=2\n", &s),
        "low is 3, high 2");
    EXPECT_FAIL(
        steps_parse("standardize\nclamp\nstandardize of=foreground\n", &s),
        "a second standardize of the same field");
    EXPECT_FAIL(steps_parse("standardize field=a/b\n", &s),
                "field is \"a/b\", wanted a name of up to 36 letters");
    DataStep one = step_default(STEP_standardize);
    EXPECT_FAIL(step_set(&one, "field", &(double){1}, 1),
                "field takes a name, got 1");
}

TEST(statistics_are_taken_by_like_steps)
{
    static const char from[] = "standardize field=a_name.of-36-letters-and-"
                               "digits_0123 mean=1 sd=2\n"
                               "standardize clip=1,99 mean=-3,1e-7 sd=4,5 "
                               "low=-9,0.1 high=9,0.2\n";
    static const struct {
        const char *to, *why;
    } row[] = {
        {"standardize of=foreground\n", "computed with other options"},
        {"standardize field=b\n", "computed with other options"},
        {"standardize field=a_name.of-36-letters-and-digits_0123\n"
         "standardize clip=1,98\n",
         "computed with other options"},
        {"standardize field=a_name.of-36-letters-and-digits_0123 mean=2 sd=2\n",
         "its mean and sd differ from the training set"},
        {"standardize field=a_name.of-36-letters-and-digits_0123\n"
         "standardize clip=1,99\nstandardize field=c\n",
         "has fewer such steps"},
    };
    Steps a = made_steps(from), b;
    Arena mem = {NULL};
    char name[STEP_NAME];

    EXPECT_TEXT(step_name(a.step[0].standardize.field, name),
                "a_name.of-36-letters-and-digits_0123");
    REQUIRE(steps_parse(steps_print(&a, &mem), &b));
    EXPECT(!memcmp(&a, &b, sizeof a));
    for (size_t r = 0; r < sizeof row / sizeof *row; r++) {
        b = made_steps(row[r].to);
        EXPECT_FAIL(steps_take(&a, &b), row[r].why);
    }
    b = made_steps("clamp\nstandardize "
                   "field=a_name.of-36-letters-and-digits_0123\nfit w=2\n"
                   "standardize clip=1,99\n");
    REQUIRE(steps_take(&a, &b));
    EXPECT(!memcmp(&b.step[3], &a.step[1], sizeof(DataStep)));
    b = made_steps("standardize\n");
    const Steps none = made_steps("standardize\n");
    EXPECT_FAIL(steps_take(&none, &b), "its mean and sd are not known yet");
    arena_release(&mem);
}
