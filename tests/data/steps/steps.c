/* steps.c -- tests of the table of steps, of preprocessing and augmentation. */
#include "data/preprocess/normalize.h"
#include "data/steps/step.h"
#include "engine/base/rng.h"
#include "tests/support/volumes.h"
#include "tests/test.h"
#include <stdlib.h>

/* ---- the table ---------------------------------------------------------- */

TEST(steps_defaults_are_those_of_the_table)
{
    DataStep s = step_default(STEP_normalize);
    EXPECT_INT(s.normalize.method, NORMALIZE_ZSCORE);
    EXPECT_NEAR(s.normalize.clip[1], 100, 0);
    s = step_default(STEP_gamma);
    EXPECT_NEAR(s.gamma.range[0], 0.9, 0);
    EXPECT_NEAR(s.gamma.range[1], 1.1, 0);
    EXPECT_NEAR(s.gamma.p, 0.3, 0);
    EXPECT_INT(step_info[STEP_normalize].attrs, 5);
    EXPECT_INT(step_info[STEP_flip].attrs, 4);
    EXPECT_INT(step_find("noise"), STEP_noise);
    EXPECT_INT(step_find("nose"), STEP_COUNT);
}

TEST(steps_values_are_checked)
{
    DataStep s = step_default(STEP_fit);
    EXPECT(step_set(&s, "w", &(double){64}, 1));
    EXPECT_NEAR(s.fit.w, 64, 0);
    EXPECT_FAIL(step_set(&s, "w", &(double){1.5}, 1), "whole number");
    EXPECT_FAIL(step_set(&s, "w", &(double){-1}, 1), "wanted 0 to 65535");
    EXPECT_FAIL(step_set(&s, "w", &(double){NAN}, 1), "wanted 0 to 65535");
    EXPECT_FAIL(step_set(&s, "width", &(double){1}, 1),
                "fit has no option \"width\"; it has d, h, w");
    s = step_default(STEP_contrast);
    const double wrong[] = {1.1, 0.9, 1};
    EXPECT_FAIL(step_set(&s, "range", wrong, 2), "lo <= hi");
    EXPECT_FAIL(step_set(&s, "range", wrong, 3),
                "takes {lo, hi}, got 3 numbers");
    EXPECT_FAIL(step_set(&s, "range", (double[]){15}, 1),
                "takes {lo, hi}, got 15");
    s = step_default(STEP_flip);
    EXPECT(step_set_choice(&s, "axis", "dhw"));
    EXPECT_INT(s.flip.axis, FLIP_DHW);
    EXPECT_FAIL(step_set_choice(&s, "axis", "x"), "wanted one of w|h|d|hw");
    EXPECT_FAIL(step_set(&s, "axis", &(double){5}, 1), "wanted 0 to 4");
    EXPECT_FAIL(step_set_choice(&s, "p", "often"), "wanted a number");
    EXPECT_INT(err_kind(), ERR_USAGE);
}

TEST(steps_one_spacing_stands_for_three)
{
    DataStep s = step_default(STEP_resample);
    EXPECT(step_set(&s, "spacing_mm", &(double){1.5}, 1));
    for (int a = 0; a < 3; a++) EXPECT_NEAR(s.resample.spacing_mm[a], 1.5, 0);
}

TEST(steps_order_of_phases)
{
    Steps all = {.count = 0};
    DataStep s = step_default(STEP_slices), n = step_default(STEP_normalize);
    DataStep f = step_default(STEP_flip), r = step_default(STEP_resample);

    EXPECT(steps_add(&all, &n));
    EXPECT(!steps_slices(&all));
    EXPECT(steps_add(&all, &s));
    EXPECT_FAIL(steps_add(&all, &s), "a second slices step");
    EXPECT_FAIL(steps_add(&all, &n), "normalize comes after slices");
    EXPECT(!steps_augment(&all));
    EXPECT(steps_add(&all, &f));
    EXPECT(steps_augment(&all));
    EXPECT_INT(steps_without_augment(&all).count, 2);
    all.count = 0;
    EXPECT_FAIL(steps_add(&all, &r), "spacing_mm is missing");
    for (int i = 0; i < MAX_STEPS; i++) EXPECT(steps_add(&all, &n));
    EXPECT_FAIL(steps_add(&all, &n), "more than 32 steps");
}

/* The selection of slices applies to training only: prediction takes all, in
 * the same plane. */
TEST(steps_of_prediction_take_every_slice)
{
    Steps all, whole;
    Arena mem = {NULL};
    REQUIRE(steps_parse("normalize\nslices axis=coronal keep=foreground "
                        "range=0.1,0.9\nflip\n",
                        &all));
    REQUIRE(steps_parse("normalize\nslices axis=coronal\n", &whole));
    all = steps_for_prediction(&all);
    EXPECT_TEXT(steps_print(&all, &mem), steps_print(&whole, &mem));
    arena_release(&mem);
}

static const char every_step[] =
    "orient plane=coronal\n"
    "resample spacing_mm=1,0.90000000000000002,0 method=cubic\n"
    "fit d=0 h=24 w=16 at=start\n"
    "crop to=label margin=3 within=7\n"
    "resize d=0 h=12 w=8 method=smooth\n"
    "select labels=1,2,7\n"
    "clamp range=-100,250.5\n"
    "scale from=-100,250.5 to=-1,1\n"
    "normalize method=percentile per=slice clip=0.5,99.5 nonzero=true "
    "together=true\n"
    "change code=281474976710655 with=7\n"
    "standardize field=image kind=image of=foreground clip=0.5,99.5 "
    "mean=1,2.5 sd=3,0.1 low=-4,0 high=5,1e+20\n"
    "slices axis=stored keep=foreground range=0.1,0.9\n"
    "flip axis=hw p=0.5 negate=1,3 swap=2,5,1,4\n"
    "affine rotate=-10,10 scale=0.9,1.1 shift=0.05 p=0.3 shear=0,0 about=h "
    "step=5\n"
    "elastic spacing=8 amplitude=1,3.2 p=0.5\n"
    "timeshift most=5 beyond=wrap p=1\n"
    "jitter hue=0.5 top=255\n"
    "bias by=0.2 order=2\n"
    "contrast range=0.9,1.1 p=1\n"
    "brightness by=0.30000000000000004 p=1\n"
    "gamma range=0.9,1.1 p=0.3\n"
    "blur sigma=0,2\n"
    "lowres factor=0.4,0.6 up=linear\n"
    "rician sigma=0.1\n"
    "cutout boxes=3\n"
    "timemask spans=2 most=7 fill=mean\n"
    "bands stretch=0.2 shift=2 tilt=0.5 most=6 p=1\n"
    "noise sigma=0.05 p=0.3\n"
    "vary code=1\n";

TEST(steps_text_and_back)
{
    Arena mem = {0};
    Steps a = made_steps(every_step), b;

    // all but one: samples are slices or patches
    EXPECT_INT(a.count, STEP_COUNT - 1);
    char *text = steps_print(&a, &mem);
    REQUIRE(text);
    REQUIRE(steps_parse(text, &b));
    EXPECT(!memcmp(&a, &b, sizeof a));
    b = made_steps("patches h=32 w=48 count=4 foreground=0.25\n");
    text = steps_print(&b, &mem);
    EXPECT_TEXT(text, "patches d=0 h=32 w=48 at=random count=4 "
                      "foreground=0.25 overlap=0.5\n");

    // parameters missing in the text get their defaults, and percentile its own
    // clip
    b = made_steps("normalize method=percentile\n");
    EXPECT_NEAR(b.step[0].normalize.clip[0], 0.5, 0);
    text = steps_print(&b, &mem);
    EXPECT_TEXT(text, "normalize method=percentile per=volume clip=0.5,99.5 "
                      "nonzero=false together=false\n");

    // fractions instead of per cent: rejected in a recipe, accepted in a
    // checkpoint
    b = made_steps("normalize clip=0.01,0.99\n");
    EXPECT_FAIL(step_meant(&b.step[0]), "clip = {0.01, 0.99} is in per cent; "
                                        "did you mean {1, 99}?");
    b = made_steps("normalize clip=0,2\n");
    EXPECT(step_meant(&b.step[0]));
    arena_release(&mem);
}

/* The text of an older program lacks the parameters added later. */
TEST(steps_old_text)
{
    const Steps s = made_steps("flip axis=w p=0.5\naffine rotate=-10,10 "
                               "scale=0.9,1.1 shift=0.05 p=0.3\n");
    Arena mem = {0};
    EXPECT_INT(s.step[0].flip.swap_count, 0);
    EXPECT_INT(s.step[0].flip.negate_count, 0);
    EXPECT_NEAR(s.step[1].affine.shear[1], 0, 0);
    EXPECT_TEXT(steps_print(&s, &mem),
                "flip axis=w p=0.5\naffine rotate=-10,10 scale=0.9,1.1 "
                "shift=0.05 p=0.3 shear=0,0 about=all step=0\n");
    arena_release(&mem);
}

TEST(steps_that_contradict_themselves)
{
    Steps s;
    EXPECT_FAIL(steps_parse("flip swap=1,2,3\n", &s), "wanted pairs");
    EXPECT_FAIL(steps_parse("flip swap=1,2,3,1\n", &s), "class 1 twice");
    EXPECT_FAIL(steps_parse("elastic spacing=9\n", &s),
                "amplitude is up to 4, wanted at most");
    EXPECT_FAIL(steps_parse("change\n", &s), "change: code is missing");
    EXPECT_FAIL(steps_parse("vary with=1\n", &s), "vary: code is missing");
    s = made_steps("elastic spacing=5 amplitude=0,2\n");
    EXPECT_INT(s.count, 1);
}

TEST(steps_bad_text)
{
    Steps s;
    EXPECT_FAIL(steps_parse("fit w=8\nsmear by=1\n", &s),
                "line 2: no step \"smear\"");
    EXPECT_FAIL(steps_parse("fit w\n", &s), "not NAME=VALUE");
    EXPECT_FAIL(steps_parse("fit w=8x\n", &s), "not a number");
    EXPECT_FAIL(steps_parse("fit w=\n", &s), "not a number");
    EXPECT_FAIL(steps_parse("slices axis=up\n", &s), "wanted one of");
    EXPECT_FAIL(steps_parse("flip p=2\n", &s), "wanted 0 to 1");
    EXPECT_INT(err_kind(), ERR_DATA);
    char longest[3000] = "select labels=1";
    for (int i = 0; i < 1000; i++) strcat(longest, ",1");
    EXPECT(!steps_parse(longest, &s));
}

/* ---- normalising -------------------------------------------------------- */

/* Makes a data set of one case. */
static Dataset *one_case(const Volume *image, const Volume *mask)
{
    DatasetBuilder *b;
    Dataset *ds;
    REQUIRE(dataset_begin(NULL, &b));
    REQUIRE(dataset_add(b, "one", "p", image, mask));
    REQUIRE(dataset_finish(b, &ds));
    return ds;
}

/* Expects that it cannot be prepared, for this reason. */
static void refused(const Volume *image, const Volume *mask, const char *steps,
                    const char *reason)
{
    Dataset *ds = one_case(image, mask);
    Prepared out;
    Steps s = made_steps(steps);
    EXPECT_FAIL(prepare_case(ds, 0, &s, NULL, NULL, NULL, &out), reason);
    dataset_free(ds);
}

/* Reads the whole of a field. */
static void whole(const Prepared *p, int field, float *out)
{
    pack_read(&p->field[field], 0, p->field[field].dim.d, out);
}

/* Prepares the only case of a data set, which is freed. */
static Prepared prepared(const Volume *image, const Volume *mask,
                         const char *steps)
{
    Dataset *ds = one_case(image, mask);
    Prepared out;
    Steps s = made_steps(steps);
    REQUIRE(prepare_case(ds, 0, &s, NULL, NULL, NULL, &out));
    dataset_free(ds);
    return out;
}

/* Returns slice d of the first field, or (-1) all of it; valid until the next
 * call. */
static const float *values(const Prepared *p, int32_t d)
{
    static float x[4 * 6 * 7];
    const Dims n = p->field[0].dim;
    CHECK(numel(n) <= (int64_t)(sizeof x / sizeof *x));
    pack_read(&p->field[0], d < 0 ? 0 : d, d < 0 ? n.d : 1, x);
    return x;
}

TEST(steps_zscore_of_volume_and_slice)
{
    Volume v = made_image(1, 4, 6, 7, false);
    double mean, std;
    Prepared p = prepared(&v, NULL, "normalize method=zscore\n");

    made_moments(values(&p, -1), 4 * 6 * 7, &mean, &std);
    EXPECT_NEAR(mean, 0, 1e-6);
    EXPECT_NEAR(std, 1, 1e-6);

    // the statistics of the volume differ from those of each slice
    made_moments(values(&p, 0), 6 * 7, &mean, &std);
    EXPECT(fabs(mean) > 1e-4);
    prepared_free(&p);
    p = prepared(&v, NULL, "normalize method=zscore per=slice\n");
    for (int d = 0; d < 4; d++) {
        made_moments(values(&p, d), 42, &mean, &std);
        EXPECT_NEAR(mean, 0, 1e-6);
        EXPECT_NEAR(std, 1, 1e-6);
    }

    prepared_free(&p);
    volume_free(&v);
}

TEST(steps_constant_slice_becomes_zero)
{
    Volume v = made_image(1, 2, 3, 4, false);
    float *x = v.voxels.data, out[24];
    for (int i = 0; i < 12; i++) x[i] = 0.1f;
    Prepared p = prepared(&v, NULL, "normalize method=minmax per=slice\n");
    whole(&p, 0, out);
    for (int i = 0; i < 12; i++) EXPECT(out[i] == 0);
    EXPECT(out[12] != out[13]);
    prepared_free(&p);
    volume_free(&v);
}

/* Prepares a volume of one case; the reason of a failure is kept. */
static bool prepares(const Volume *image, const char *steps)
{
    DatasetBuilder *b;
    Dataset *ds;
    Prepared out;
    Steps s = made_steps(steps);
    REQUIRE(dataset_begin(NULL, &b));
    REQUIRE(dataset_add(b, "one", "p", image, NULL));
    REQUIRE(dataset_finish(b, &ds));
    bool ok = prepare_case(ds, 0, &s, NULL, NULL, NULL, &out);
    if (ok) prepared_free(&out);
    dataset_free(ds);
    return ok;
}

TEST(steps_constant_volume_is_refused)
{
    Volume v = made_image(1, 2, 3, 4, false);
    float *x = v.voxels.data;
    for (int i = 0; i < 24; i++) x[i] = 0.25f;
    EXPECT_FAIL(prepares(&v, "normalize method=zscore\n"),
                "one: image: memory: normalize: all 24 voxels are 0.25, there "
                "is nothing to normalize; fix: look at the file");
    EXPECT_INT(err_kind(), ERR_DATA);
    EXPECT_FAIL(prepares(&v, "normalize method=minmax per=slice\n"),
                "all 24 voxels are 0.25");
    EXPECT_FAIL(prepares(&v, "normalize method=percentile nonzero=true\n"),
                "all 24 voxels are 0.25");

    // two values, but one of them is excluded
    for (int i = 0; i < 20; i++) x[i] = 0;
    EXPECT(prepares(&v, "normalize\n"));
    EXPECT_FAIL(prepares(&v, "normalize nonzero=true\n"),
                "all 4 voxels except zeros are 0.25");
    for (int i = 0; i < 24; i++) x[i] = 0;
    EXPECT_FAIL(prepares(&v, "normalize nonzero=true\n"),
                "all 24 voxels are 0,");

    // the percentiles of a nearly empty image are equal
    x[5] = 7;
    EXPECT(prepares(&v, "normalize method=minmax\n"));
    EXPECT_FAIL(prepares(&v, "normalize clip=10,90\n"),
                "values from 0 to 7, but percentiles 10 and 90 are the same; "
                "fix: a wider clip");
    volume_free(&v);

    // of several channels, the faulty one
    REQUIRE(volume_new(&v, (Dims){1, 2, 3, 4, 2}, F32));
    x = v.voxels.data;
    for (int i = 0; i < 24; i++) x[2 * i] = (float)i, x[2 * i + 1] = 3;
    EXPECT_FAIL(prepares(&v, "normalize\n"), "all 24 voxels are 3");
    volume_free(&v);
}

static int float_order(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

TEST(steps_percentiles_are_exact)
{
    // against a full sort, for ties, odd and even counts
    for (int round = 0; round < 20; round++) {
        int n = 40 + round;
        Volume v = made_image((uint32_t)round, 1, 1, n, false);
        float *x = v.voxels.data, sorted[64];
        for (int i = 0; i < n; i++) x[i] = floorf(x[i] / (round % 2 ? 100 : 1));
        memcpy(sorted, x, (size_t)n * sizeof *x);
        qsort(sorted, (size_t)n, sizeof *sorted, float_order);
        double at[2] = {0.05 * (n - 1), 0.9 * (n - 1)}, cut[2];
        for (int k = 0; k < 2; k++) {
            int i = (int)at[k];
            cut[k] = (double)sorted[i] +
                     (at[k] - i) * (double)(sorted[i + 1] - sorted[i]);
        }
        Prepared p = prepared(&v, NULL, "normalize method=minmax clip=5,90\n");
        float y[64];
        whole(&p, 0, y);
        for (int i = 0; i < n; i++) {
            double want = ((double)x[i] - cut[0]) / (cut[1] - cut[0]);
            EXPECT_NEAR(y[i], fmin(fmax(want, 0), 1), 1e-6);
        }
        prepared_free(&p);
        volume_free(&v);
    }
}

TEST(steps_scale_is_the_same_for_all)
{
    Volume v = made_image(4, 2, 3, 4, true);
    float *x = v.voxels.data, y[24];
    Prepared p = prepared(&v, NULL,
                          "clamp range=10,30\nscale from=10,30 "
                          "to=-1,3\n");

    whole(&p, 0, y);
    for (int i = 0; i < 24; i++) {
        const double cut = fmin(fmax((double)x[i], 10), 30);
        EXPECT(y[i] == (float)(-1 + (cut - 10) / 5));
    }
    prepared_free(&p);
    volume_free(&v);
    DataStep s = step_default(STEP_scale);
    Steps all = {.count = 0};
    REQUIRE(step_set(&s, "from", (double[]){7, 7}, 2));
    EXPECT_FAIL(steps_add(&all, &s), "scale: from is {7, 7}, wanted a range");
}

TEST(steps_nonzero_keeps_the_background)
{
    Volume v = made_image(3, 2, 8, 8, false);
    float *x = v.voxels.data, inside[128];
    int n = 0;

    for (int i = 0; i < 128; i++) {
        if (i % 3 == 0)
            x[i] = 0;
        else
            x[i] += 1;
    }

    Prepared p = prepared(&v, NULL, "normalize method=zscore nonzero=true\n");
    float y[128];
    whole(&p, 0, y);

    for (int i = 0; i < 128; i++) {
        if (i % 3 == 0)
            EXPECT(y[i] == 0);
        else
            inside[n++] = y[i];
    }

    double mean, std;
    made_moments(inside, n, &mean, &std);
    EXPECT_NEAR(mean, 0, 1e-6);
    EXPECT_NEAR(std, 1, 1e-6);
    prepared_free(&p);
    volume_free(&v);
}

/* One mean and sd for all channels: their differences are kept. */
TEST(steps_together_keeps_channels_apart)
{
    static const Dims dim = {1, 1, 1, 50, 3};
    float x[150];
    double mean, std;
    Volume v = {.voxels = {dim, F32, 1, x}};

    for (int i = 0; i < 150; i++) x[i] = (float)(i % 7 + 100 * (i % 3));
    const float before = (x[4] - x[3]) / (x[5] - x[4]);
    Steps s = made_steps("normalize together=true\n");
    int channel;
    EXPECT(normalize_volume(&s.step[0], &v, &channel));
    made_moments(x, 150, &mean, &std);
    EXPECT_NEAR(mean, 0, 1e-6);
    EXPECT_NEAR(std, 1, 1e-6);
    EXPECT_NEAR((x[4] - x[3]) / (x[5] - x[4]), before, 1e-4);

    // a constant channel next to others is accepted
    for (int i = 0; i < 150; i += 3) x[i] = 5;
    EXPECT(normalize_volume(&s.step[0], &v, &channel));
    for (int i = 0; i < 150; i++) x[i] = 5;
    EXPECT_FAIL(normalize_volume(&s.step[0], &v, &channel),
                "all 150 voxels are 5");
}

/* ---- geometry ----------------------------------------------------------- */

/* A bounding box of an image and of a mask, in voxels of the volume. */
TEST(steps_crop_to_what_is_there)
{
    Volume v = made_image(2, 6, 7, 9, true), m = made_mask(6, 7, 9);
    float *x = v.voxels.data;
    uint8_t *t = m.voxels.data;

    // image: one row of voxels above the rest; mask: two corners of a box
    for (int i = 0; i < 6 * 7 * 9; i++) x[i] = -5, t[i] = 0;
    for (int w = 2; w < 5; w++) x[(3 * 7 + 4) * 9 + w] = (float)w;
    t[(1 * 7 + 2) * 9 + 3] = 1, t[(4 * 7 + 5) * 9 + 3] = 1;
    static const struct {
        const char *steps;
        Dims dim;
        int from[3]; // d, h, w
    } row[] = {
        {"crop\n", {1, 1, 1, 3, 1}, {3, 4, 2}},
        {"crop margin=1\n", {1, 3, 3, 5, 1}, {2, 3, 1}},
        {"crop margin=3\n", {1, 6, 6, 8, 1}, {0, 1, 0}},
        {"crop within=1.5\n", {1, 1, 1, 2, 1}, {3, 4, 3}},
        {"crop within=99\n", {1, 1, 1, 3, 1}, {3, 4, 2}},
        {"crop to=label\n", {1, 4, 4, 1, 1}, {1, 2, 3}},
        {"crop to=label margin=65535\n", {1, 6, 7, 9, 1}, {0, 0, 0}},
        // one after the other: the second box is found inside the first
        {"crop to=label margin=1\ncrop\n", {1, 1, 1, 3, 1}, {3, 4, 2}},
    };

    for (size_t r = 0; r < sizeof row / sizeof *row; r++) {
        Prepared p = prepared(&v, &m, row[r].steps);
        Dims n = p.field[0].dim;
        float y[6 * 7 * 9], z[6 * 7 * 9];
        EXPECT(dims_equal(n, row[r].dim) && dims_equal(p.field[1].dim, n));
        whole(&p, 0, y);
        whole(&p, 1, z);
        const int *from = row[r].from;
        for (int d = 0; d < n.d; d++)
            for (int h = 0; h < n.h; h++)
                for (int w = 0; w < n.w; w++) {
                    int at =
                        ((d + from[0]) * 7 + h + from[1]) * 9 + w + from[2];
                    int i = (d * n.h + h) * n.w + w;
                    EXPECT(y[i] == x[at] && z[i] == t[at]);
                }
        double here[3], there[3];
        Volume cut = {.voxels = {.dim = n}};
        memcpy(cut.affine, p.grid.affine, sizeof cut.affine);
        volume_world(&cut, 0, 0, 0, here);
        volume_world(&v, from[2], from[1], from[0], there);
        for (int k = 0; k < 3; k++) EXPECT_NEAR(here[k], there[k], 1e-12);
        prepared_free(&p);
    }

    memset(t, 0, 6 * 7 * 9);
    for (int i = 0; i < 6 * 7 * 9; i++) x[i] = 4;
    refused(&v, &m, "crop\n",
            "one: crop: no voxel is above 4: there is nothing");
    refused(&v, &m, "crop to=label\n", "one: crop: no voxel is above 0");
    refused(&v, NULL, "crop to=label\n", "the data set has no labels");
    volume_free(&v);
    volume_free(&m);
}

TEST(steps_fit_pads_with_the_smallest_value_and_back)
{
    Volume v = made_image(2, 3, 6, 5, true), m = made_mask(3, 6, 5);
    for (int i = 0; i < 90; i++) ((float *)v.voxels.data)[i] += 7;
    Prepared p = prepared(&v, &m, "fit h=4 w=8\n");
    Dims n = p.field[0].dim;
    EXPECT(n.d == 3 && n.h == 4 && n.w == 8);
    float lowest = INFINITY, y[96], t[96];
    for (int i = 0; i < 90; i++)
        lowest = fminf(lowest, ((float *)v.voxels.data)[i]);
    whole(&p, 0, y);
    whole(&p, 1, t);

    // 5 columns in 8: one of padding, then 5, then two (rounded toward zero)
    const float *x = v.voxels.data;

    for (int d = 0; d < 3; d++)
        for (int h = 0; h < 4; h++)
            for (int w = 0; w < 8; w++) {
                int i = (d * 4 + h) * 8 + w, s = w - 1;
                bool in = s >= 0 && s < 5;
                EXPECT_NEAR(y[i], in ? x[(d * 6 + h + 1) * 5 + s] : lowest, 0);
                if (!in) EXPECT(t[i] == 0);
            }

    // every voxel keeps its position
    double a[3], b[3];
    Volume fitted = {.voxels = {.dim = p.field[0].dim}};
    memcpy(fitted.affine, p.grid.affine, sizeof fitted.affine);
    volume_world(&fitted, 1, 0, 2, a);
    volume_world(&v, 0, 1, 2, b);
    for (int k = 0; k < 3; k++) EXPECT_NEAR(a[k], b[k], 1e-12);
    prepared_free(&p);
    volume_free(&v);
    volume_free(&m);
}

TEST(steps_labels_stay_labels)
{
    // 10^3 random masks through every geometric step: no new label values
    for (uint32_t round = 0; round < 1000; round++) {
        Volume v = made_image(round, 3, 7, 6, false), m = made_mask(3, 7, 6);
        const Rng r = {.seed = 3, .stream = RNG_TEST, .sample = round};
        uint8_t *x = m.voxels.data;
        for (uint32_t i = 0; i < 126; i++) x[i] = rng_below(&r, i, 2) != 0;
        Prepared p = prepared(&v, &m,
                              "resample spacing_mm=0.7,1.3,0\n"
                              "resize h=9 w=5\nfit h=6 w=8\n");
        float y[3 * 6 * 8];
        whole(&p, 1, y);
        for (int i = 0; i < 3 * 6 * 8; i++) EXPECT(y[i] == 0 || y[i] == 1);
        prepared_free(&p);
        volume_free(&v);
        volume_free(&m);
    }
}

TEST(steps_select_and_clamp)
{
    Volume v = made_image(1, 1, 2, 4, true), m = made_mask(1, 2, 4);
    DatasetOptions o = {.labels = {3, 9, 5}, .label_count = 3};
    const uint8_t stored[8] = {0, 3, 9, 5, 5, 3, 0, 9};

    memcpy(m.voxels.data, stored, 8);
    DatasetBuilder *b;
    Dataset *ds;
    Prepared p;
    REQUIRE(dataset_begin(&o, &b));
    REQUIRE(dataset_add(b, "one", "p", &v, &m));
    REQUIRE(dataset_finish(b, &ds));
    Steps s = made_steps("select labels=1,3\nclamp range=100,200\n");
    REQUIRE(prepare_case(ds, 0, &s, NULL, NULL, NULL, &p));

    // 3 -> class 1, 9 -> class 2, 5 -> class 3, in the order of `labels`
    const float want[8] = {0, 1, 0, 1, 1, 1, 0, 0};
    float y[8], t[8];
    whole(&p, 0, y);
    whole(&p, 1, t);
    for (int i = 0; i < 8; i++) {
        EXPECT_NEAR(t[i], want[i], 0);
        EXPECT_NEAR(y[i], fmin(fmax(((float *)v.voxels.data)[i], 100), 200), 0);
    }
    prepared_free(&p);
    dataset_free(ds);
    volume_free(&v);
    volume_free(&m);
}
