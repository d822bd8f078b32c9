/* dataset_list.c -- tests of cases listed one by one: files by readers,
 * numbers, lengths. */
#include "data/dataset/dataset_list.h"
#include "data/format/npy.h"
#include "data/loader/loader.h"
#include "tests/support/volumes.h"
#include "tests/test.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

static const double pose[2][3] = {{0.5, -30, 12}, {1, 2, 3}};

/* Writes a sequence of `w` steps of two features: 10 i + c. */
static const char *sequence(int number, int64_t w)
{
    static char path[2][512];
    float x[64];
    CHECK(2 * w <= 64 && number < 2);
    for (int64_t i = 0; i < 2 * w; i++)
        x[i] = (float)(10 * (i / 2) + i % 2 + 100 * number);
    snprintf(path[number], sizeof path[number], "%s/seq_%d.npy", test_folder(),
             number);
    REQUIRE(npy_write(path[number], 2, (int64_t[]){w, 2}, x));
    return path[number];
}

/* Two cases: a sequence of 5 and one of 9 positions along w, each with three
 * numbers (pose) and its length. */
static Dataset *sequences(void)
{
    static const ListField field[] = {
        {.name = "x", .kind = FIELD_IMAGE, .rank = 1, .reader = "npy"},
        {.name = "pose", .kind = FIELD_NUMBER, .numbers = 3},
        {.name = "length", .kind = FIELD_LENGTH}};
    DatasetBuilder *b;
    Dataset *ds;

    REQUIRE(dataset_list_begin(field, 3, NULL, &b));
    for (int i = 0; i < 2; i++) {
        ListCase c = {.key = i ? "b" : "a", .patient = i ? "q" : "p"};
        c.field[0].path[0] = sequence(i, i ? 9 : 5);
        c.field[0].paths = 1;
        c.field[1].number = pose[i];
        REQUIRE(dataset_list_add(b, &c));
    }

    REQUIRE(dataset_finish(b, &ds));
    return ds;
}

TEST(list_of_sequences_gives_numbers_and_lengths)
{
    static const struct {
        const char *steps;
        int w;
        float length[2];
    } row[] = {
        {"fit w=7 at=start\n", 7, {5, 7}},
        {"fit w=12 at=start\n", 12, {5, 9}},
        {"fit w=4\n", 4, {4, 4}},
        {"resize w=20\n", 20, {20, 20}},
        {"resize w=6\nfit w=8 at=start\n", 8, {6, 6}},
    };
    Dataset *ds = sequences();

    for (size_t r = 0; r < sizeof row / sizeof *row; r++) {
        Pipeline *p = made_pipeline(ds, row[r].steps);
        EXPECT_INT(pipeline_samples(p), 2);
        EXPECT_INT(pipeline_rank(p, 0), 1);
        EXPECT_INT(pipeline_rank(p, 1), 0);
        for (int i = 0; i < 2; i++) {
            float x[64], number[3], length;
            float *const out[MAX_FIELDS] = {x, number, &length};
            Dims n = pipeline_dims_of(p, i, 0), m = pipeline_dims_of(p, i, 1);
            EXPECT(dims_equal(n, (Dims){1, 1, 1, row[r].w, 2}));
            EXPECT(dims_equal(m, (Dims){1, 1, 1, 1, 3}));
            REQUIRE(pipeline_sample(p, i, 0, true, NULL, out));
            EXPECT_NEAR(length, row[r].length[i], 0);
            for (int k = 0; k < 3; k++) EXPECT_NEAR(number[k], pose[i][k], 0);
            // the first steps are those of the file, followed by its smallest
            // values
            if (r > 1) continue;
            for (int k = 0; k < 2 * row[r].w; k++) {
                bool own = (float)(k / 2) < length;
                EXPECT_NEAR(x[k], 100 * i + k % 2 + (own ? 10 * (k / 2) : 0),
                            0);
            }
        }
        pipeline_free(p);
    }

    const PipelineOptions options = {.threads = 1};
    Steps s = made_steps("fit w=12\n");
    Pipeline *p;
    EXPECT_FAIL(pipeline_open(ds, &s, &options, &p),
                "a: length: the length is not known: padding comes before the "
                "samples; fix: fit with at = \"start\"");
    dataset_free(ds);
}

/* Augmentation ends at the end of a sequence, even if its length is no field;
 * numbers change their sign in a mirrored sample. */
TEST(list_changes_end_where_a_sequence_does)
{
    Dataset *ds = sequences();
    Pipeline *p = made_pipeline(
        ds, "fit w=12 at=start\nflip p=1 negate=2\nnoise p=1 sigma=0.01\n");

    for (int i = 0; i < 2; i++) {
        float x[24], number[3];
        float *const out[MAX_FIELDS] = {x, number};
        const int own = i ? 9 : 5;
        REQUIRE(pipeline_sample(p, i, 0, true, NULL, out));
        for (int k = 0; k < 24; k++) {
            const bool inside = k / 2 < own;
            const float at = (float)(inside ? 10 * (own - 1 - k / 2) : 0);
            EXPECT_NEAR(x[k], 100 * i + k % 2 + at, inside ? 0.1 : 0);
        }
        for (int k = 0; k < 3; k++)
            EXPECT_NEAR(number[k], k == 1 ? -pose[i][k] : pose[i][k], 0);
    }

    pipeline_free(p);
    dataset_free(ds);
}

/* Operations without a kernel are named. */
TEST(list_of_changes_that_stay_on_the_host)
{
    static const struct {
        const char *steps, *why; // NULL: runs on a device
    } row[] = {
        {"affine\nelastic\ncontrast\nbrightness\ngamma\n", NULL},
        {"flip axis=h\n", NULL},
        {"flip\n", "flip sequences with a length along w"},
        {"flip axis=h swap=1,2\n", "flip with negate or swap"},
        {"flip axis=h negate=0\n", "flip with negate or swap"},
        {"noise\n", "add noise to sequences with a length"},
        {"timeshift\n", "augment has timeshift"},
        {"jitter\n", "augment has jitter"},
        {"bias\n", "augment has bias"},
        {"contrast\nblur p=0\n", "augment has blur"},
        {"lowres\n", "augment has lowres"},
        {"rician\n", "augment has rician"},
        {"cutout\n", "augment has cutout"},
        {"timemask\n", "augment has timemask"},
        {"vary code=1\n", "augment has vary"},
    };
    Dataset *ds = sequences(), *grid = made_dataset(1, 1, 2, 4, 4);

    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        const Steps s = made_steps(row[i].steps);
        if (row[i].why)
            EXPECT_FAIL(augment_on_device(&s, ds), row[i].why);
        else
            EXPECT(augment_on_device(&s, ds));
    }

    const Steps both = made_steps("normalize\nflip\nnoise\n");
    EXPECT(augment_on_device(&both, grid));
    dataset_free(grid);
    dataset_free(ds);
}

/* Numbers of a case do not depend on the steps of its image; also in batches,
 * and with slices. */
TEST(list_numbers_of_a_volume_are_those_of_its_slices)
{
    static const ListField field[] = {
        {.name = "image", .kind = FIELD_IMAGE, .rank = 3, .reader = "npy"},
        {.name = "class", .kind = FIELD_NUMBER, .numbers = 1}};
    DatasetBuilder *b;
    Dataset *ds;
    char path[512];
    float x[24];

    for (int i = 0; i < 24; i++) x[i] = (float)i;
    snprintf(path, sizeof path, "%s/volume.npy", test_folder());
    REQUIRE(npy_write(path, 3, (int64_t[]){2, 3, 4}, x));
    REQUIRE(dataset_list_begin(field, 2, NULL, &b));
    ListCase c = {.key = "a", .patient = "p"};
    c.field[0].path[0] = path, c.field[0].paths = 1;
    c.field[1].number = (const double[]){7};
    REQUIRE(dataset_list_add(b, &c));
    REQUIRE(dataset_finish(b, &ds));
    Pipeline *p = made_pipeline(ds, "slices axis=stored\nflip axis=hw p=1\n"
                                    "noise p=1\n");
    EXPECT_INT(pipeline_samples(p), 2);
    EXPECT_INT(pipeline_rank(p, 0), 2);
    Loader *l;
    const Batch *batch;
    const LoaderOptions options = {.batch = 2, .augment = true};
    REQUIRE(loader_open(p, &options, &l));
    REQUIRE(loader_next(l, &batch));
    EXPECT(dims_equal(batch->field[1].dim, (Dims){2, 1, 1, 1, 1}));
    EXPECT_INT(batch->field[1].rank, 0);
    const float *number = batch->field[1].data;
    EXPECT(number[0] == 7 && number[1] == 7);
    loader_close(l);
    pipeline_free(p);
    dataset_free(ds);
}

TEST(list_arrays_have_their_axes_where_they_are_said_to_be)
{
    static const struct {
        const char *axes, *reason;
        int rank, shape[4]; // of the file; a 0 ends it
        Dims dim;
        int at[5]; // voxel d, h, w, c of the volume, and its index in the file
    } row[] = {
        {"", NULL, 2, {3, 4}, {1, 1, 3, 4, 1}, {0, 1, 2, 0, 6}},
        {"", NULL, 2, {3, 4, 2}, {1, 1, 3, 4, 2}, {0, 1, 2, 1, 13}},
        {"chw", NULL, 2, {2, 3, 4}, {1, 1, 3, 4, 2}, {0, 1, 2, 1, 18}},
        {"wh", NULL, 2, {4, 3}, {1, 1, 3, 4, 1}, {0, 1, 2, 0, 7}},
        {"cw", NULL, 1, {2, 4}, {1, 1, 1, 4, 2}, {0, 0, 2, 1, 6}},
        {"", NULL, 1, {4}, {1, 1, 1, 4, 1}, {0, 0, 2, 0, 2}},
        {"whd", NULL, 3, {2, 3, 4}, {1, 4, 3, 2, 1}, {3, 1, 1, 0, 19}},
        {"", "npy: 2 axes, want dhw or dhwc", 3, {3, 4}, {0}, {0}},
        {"chw", "npy: 2 axes, want chw", 2, {3, 4}, {0}, {0}},
        {"", "npy: 3 axes, want w or wc", 1, {2, 3, 4}, {0}, {0}},
    };
    float x[24];
    char path[512];

    for (int i = 0; i < 24; i++) x[i] = (float)i;
    snprintf(path, sizeof path, "%s/axes.npy", test_folder());

    for (size_t r = 0; r < sizeof row / sizeof *row; r++) {
        int64_t shape[4] = {0};
        int axes = 0;
        for (; axes < 4 && row[r].shape[axes]; axes++)
            shape[axes] = row[r].shape[axes];
        REQUIRE(npy_write(path, axes, shape, x));
        ListField field = {.name = "image",
                           .kind = FIELD_IMAGE,
                           .rank = row[r].rank,
                           .reader = "npy"};
        snprintf(field.options.axes, sizeof field.options.axes, "%s",
                 row[r].axes);
        DatasetBuilder *b;
        Dataset *ds;
        Volume v;
        REQUIRE(dataset_list_begin(&field, 1, NULL, &b));
        ListCase c = {.key = "a", .patient = "p"};
        c.field[0].path[0] = path, c.field[0].paths = 1;
        REQUIRE(dataset_list_add(b, &c));
        REQUIRE(dataset_finish(b, &ds));
        if (row[r].reason) {
            EXPECT_FAIL(case_load(ds, 0, 0, NULL, &v, NULL), row[r].reason);
        } else {
            REQUIRE(case_load(ds, 0, 0, NULL, &v, NULL));
            const Dims n = v.voxels.dim;
            const int *at = row[r].at;
            EXPECT(dims_equal(n, row[r].dim));
            int64_t i = ((at[0] * n.h + at[1]) * n.w + at[2]) * n.c + at[3];
            EXPECT_NEAR(((float *)v.voxels.data)[i], at[4], 0);
            volume_free(&v);
        }
        dataset_free(ds);
    }
}

TEST(list_says_what_does_not_fit)
{
    const ListField good = {
        .name = "x", .kind = FIELD_IMAGE, .rank = 1, .reader = "npy"};
    const struct {
        ListField field;
        const char *reason;
    } row[] = {
        {{"x", FIELD_IMAGE, 1, "npi", 0, {.axes = ""}},
         "x: there is no reader \"npi\"; there are nifti, dicom, npy, image, "},
        {{"x", FIELD_IMAGE, 2, "nifti", 0, {.axes = ""}},
         "x: rank 2, nifti gives 3"},
        {{"x", FIELD_IMAGE, 4, "npy", 0, {.axes = ""}},
         "x: rank 4, wanted 1 to 3"},
        {{"x", FIELD_IMAGE, 1, "npy", 0, {.axes = "hw"}},
         "x: axes \"hw\": letters out of wc"},
        {{"x", FIELD_IMAGE, 2, "npy", 0, {.axes = "hhw"}},
         "letters out of hwc, each once"},
        {{"x", FIELD_IMAGE, 2, "npy", 0, {.axes = "hc"}},
         "x: axes \"hc\": hw are needed"},
        {{"x", FIELD_NUMBER, 0, NULL, 1, {.axes = ""}},
         "x: the first field must be read from files, not numbers"},
    };
    DatasetBuilder *b;

    for (size_t r = 0; r < sizeof row / sizeof *row; r++) {
        EXPECT_FAIL(dataset_list_begin(&row[r].field, 1, NULL, &b),
                    row[r].reason);
        EXPECT(!b);
    }

    const ListField twice[] = {good, good};
    EXPECT_FAIL(dataset_list_begin(twice, 2, NULL, &b),
                "two fields are called \"x\"");
    const ListField none[] = {good, {.name = "y", .kind = FIELD_NUMBER}};
    EXPECT_FAIL(dataset_list_begin(none, 2, NULL, &b),
                "y: 0 numbers, wanted 1 to");
    EXPECT_FAIL(dataset_list_begin(none, 0, NULL, &b), "0 fields, wanted 1 to");
    const ListField fine[] = {
        good, {.name = "y", .kind = FIELD_NUMBER, .numbers = 1}};
    REQUIRE(dataset_list_begin(fine, 2, NULL, &b));
    ListCase c = {.key = "a", .patient = ""};
    EXPECT_FAIL(dataset_list_add(b, &c), "a case needs a name and a patient");
    c.patient = "p";
    EXPECT_FAIL(dataset_list_add(b, &c), "a: x: no file");
    c.field[0].path[0] = "nowhere.npy", c.field[0].paths = 1;
    c.field[1].number = (const double[]){NAN};
    EXPECT_FAIL(dataset_list_add(b, &c), "a: y: number 1 is ");
    c.field[1].number = (const double[]){1e39};
    EXPECT_FAIL(dataset_list_add(b, &c), "a: y: number 1 is 1e+39");
    dataset_drop(b);
}

/* ---- data sets derived from others --------------------------------------- */

/* Returns the cases of a data set as "key/patient key/patient". */
static const char *cases_text(const Dataset *ds)
{
    static char text[512];
    *text = 0;
    for (int i = 0; i < ds->count; i++) {
        size_t at = strlen(text);
        snprintf(text + at, sizeof text - at, "%s%s/%s", i ? " " : "",
                 ds->cases[i].key, ds->cases[i].patient);
    }
    return text;
}

/* Derives each way; a source lives as long as a data set derived from it. */
TEST(dataset_of_others)
{
    Dataset *a = made_dataset(3, 1, 2, 4, 4), *b, *c, *d, *e;
    const char *const key[] = {"z", "y", "x"}, *const who[] = {"q", "q", "r"};
    Volume v;

    EXPECT_TEXT(cases_text(a), "case_00/p0 case_01/p1 case_02/p2");
    REQUIRE(dataset_pick(a, (const int[]){0, 2}, 2, &b));
    EXPECT_TEXT(cases_text(b), "case_00/p0 case_02/p2");
    EXPECT_FAIL(dataset_pick(a, NULL, 0, &c), "the data set has no cases");
    REQUIRE(dataset_rename(a, key, who, &c));
    EXPECT_TEXT(cases_text(c), "x/r y/q z/q");
    EXPECT_FAIL(dataset_concat((const Dataset *const[]){a, b}, 2, &d),
                "2 names stand for more than one case: case_00, case_02");
    EXPECT(!d);
    REQUIRE(dataset_concat((const Dataset *const[]){b, c}, 2, &d));
    EXPECT_TEXT(cases_text(d), "case_00/p0 case_02/p2 x/r y/q z/q");
    REQUIRE(dataset_rename(b, (const char *const[]){"one", "two"},
                           (const char *const[]){"p", "p"}, &e));
    dataset_free(b);
    dataset_free(c);
    dataset_free(a);
    REQUIRE(case_load(d, 2, 0, NULL, &v, NULL));
    volume_free(&v);

    // x was the third case
    Volume third = made_image(2, 2, 4, 4, true);
    REQUIRE(case_load(d, 1, 0, NULL, &v, NULL));
    EXPECT(!memcmp(v.voxels.data, third.voxels.data, tensor_bytes(&v.voxels)));
    volume_free(&v);
    volume_free(&third);
    dataset_free(d);
    EXPECT_TEXT(cases_text(e), "one/p two/p");
    EXPECT_FAIL(dataset_rename(e, (const char *const[]){"one", ""},
                               (const char *const[]){"p", "p"}, &d),
                "two: a case needs a name and a patient, got \"\" and \"p\"");
    dataset_free(e);
}

TEST(dataset_concat_wants_the_same_fields)
{
    Dataset *a = made_dataset(1, 1, 2, 4, 4), *s = sequences(), *d;
    const DatasetOptions other = {.labels = {2}, .label_count = 1};
    DatasetBuilder *b;
    Dataset *labels, *alone;
    Volume v = made_image(1, 2, 4, 4, true), m = made_mask(2, 4, 4);

    REQUIRE(dataset_begin(&other, &b));
    REQUIRE(dataset_add(b, "k", "p", &v, &m) && dataset_finish(b, &labels));
    REQUIRE(dataset_begin(NULL, &b));
    REQUIRE(dataset_add(b, "k", "p", &v, NULL) && dataset_finish(b, &alone));
    const Dataset *pair[2] = {a, s};
    EXPECT_FAIL(dataset_concat(pair, 2, &d),
                "one data set has 2 fields, another 3");
    pair[1] = alone;
    EXPECT_FAIL(dataset_concat(pair, 2, &d),
                "one data set has 2 fields, another 1");
    pair[0] = s, pair[1] = labels;
    EXPECT_FAIL(dataset_concat(pair, 2, &d), "3 fields, another 2");
    pair[0] = a;
    EXPECT_FAIL(dataset_concat(pair, 2, &d),
                "concat: labels are {1} in one data set and {2} in another");
    volume_free(&v);
    volume_free(&m);
    dataset_free(a);
    dataset_free(s);
    dataset_free(labels);
    dataset_free(alone);
}
