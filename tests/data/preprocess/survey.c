/* survey.c -- tests of the counts of a survey, and that it notes every
 * fault. */
#include "data/preprocess/survey.h"
#include "tests/support/volumes.h"
#include "tests/test.h"
#include <stdlib.h>

/* 5 cases: 1 has a constant image; 2 a duplicate slice and one without
 * contrast; 3 a mask with an undeclared value, and foreground where the image
 * is lowest (0); 4 no foreground. */
static Dataset *odd_dataset(void)
{
    DatasetBuilder *b;
    Dataset *ds;
    REQUIRE(dataset_begin(NULL, &b));

    for (int i = 0; i < 5; i++) {
        char key[8];
        Volume image = made_image((uint32_t)i, 8, 8, 12, true);
        Volume mask = made_mask(8, 8, 12);
        float *x = image.voxels.data;
        uint8_t *y = mask.voxels.data;
        for (int k = 0; k < 8 * 96; k++) {
            if (i == 1) x[k] = 7;
            if (i == 2 && k / 96 == 3) x[k] = 5;
            if (i == 2 && k / 96 == 6) x[k] = x[k - 96 * 4];
            if (i == 3 && k == 0) y[k] = 9;
            if (i == 4) y[k] = 0;
            if (i == 0) x[k] = y[k] ? 0 : x[k] + 1;
        }
        snprintf(key, sizeof key, "c%d", i);
        REQUIRE(dataset_add(b, key, key, &image, &mask));
        volume_free(&image);
        volume_free(&mask);
    }

    REQUIRE(dataset_finish(b, &ds));
    return ds;
}

TEST(survey_counts_and_notes)
{
    Dataset *ds = odd_dataset();
    Steps steps = made_steps("normalize\nslices axis=stored\nnoise\n");

    // the same for any assignment of cases to threads
    for (int threads = 0; threads < 4; threads += 3) {
        const SurveyOptions how = {.threads = threads};
        Survey *s;
        Picture p;
        REQUIRE(survey_open(ds, &steps, &how, &s));
        const SurveyCase *c = survey_case(s, 0);
        EXPECT(!c->fault && !c->field[0].fault && !c->field[1].fault);
        EXPECT_INT(c->grid.w, 12);
        EXPECT_INT(c->constant + c->gaps + c->twice, 0);
        // slices 2 .. 5, rows 2 .. 5, columns 3 .. 5
        EXPECT_INT(c->voxels[1], 4 * 4 * 3);
        EXPECT_INT(c->voxels[0], 8 * 96 - 48);
        EXPECT_INT(c->foreground, 48);
        EXPECT_INT(c->outside, 48);
        EXPECT_INT(c->marked, 4);
        EXPECT_INT(c->left, 48);
        EXPECT_NEAR(c->field[0].lo, 0, 0);
        EXPECT_INT(c->field[0].dim.d, 1);
        EXPECT_INT(c->field[0].dim.w, 12);
        EXPECT_INT(c->field[0].rank, 2);
        c = survey_case(s, 1);
        EXPECT_INT(c->constant, 8);
        EXPECT_INT(c->gaps, 0);
        EXPECT_INT(c->twice, 0);
        EXPECT(c->fault && strstr(c->fault, "nothing to normalize"));
        EXPECT(!survey_picture(s, 1, &p));
        c = survey_case(s, 2);
        EXPECT_INT(c->constant, 1);
        EXPECT_INT(c->gaps, 1);
        EXPECT_INT(c->twice, 1);
        EXPECT_INT(c->pair[0], 2);
        EXPECT_INT(c->pair[1], 6);
        EXPECT_INT(c->outside, 0);
        EXPECT(c->hash != survey_case(s, 0)->hash);
        // the fault of a field; the steps report none
        c = survey_case(s, 3);
        EXPECT(c->field[1].fault && strstr(c->field[1].fault, "wanted 0, 1"));
        EXPECT(!c->fault && !c->field[0].fault && !c->gray);
        EXPECT_INT(c->left, -1);
        EXPECT_INT(survey_case(s, 4)->foreground, 0);
        EXPECT_INT(survey_case(s, 4)->left, 0);
        // the middle of slices 2 .. 5 is the first slice of the second half
        REQUIRE(survey_picture(s, 0, &p));
        EXPECT_INT(p.w, 12 * (SURVEY_SIDE / 12));
        EXPECT_INT(p.h, 8 * (SURVEY_SIDE / 12));
        void *png;
        size_t bytes;
        REQUIRE(picture_png(&p, &png, &bytes));
        EXPECT(bytes > 100 && !memcmp(png, "\x89PNG\r\n\x1a\n", 8));
        mem_free(png);
        picture_free(&p);
        survey_free(s);
    }
    dataset_free(ds);
}

TEST(survey_counts_what_the_steps_leave)
{
    Dataset *ds = made_dataset(1, 1, 4, 6, 6);
    Steps steps = made_steps("select labels=2\n");
    Survey *s;
    REQUIRE(survey_open(ds, &steps, &(SurveyOptions){0}, &s));
    EXPECT(survey_case(s, 0)->foreground > 0);
    EXPECT_INT(survey_case(s, 0)->left, 0);
    survey_free(s);
    dataset_free(ds);
}

TEST(survey_mean_and_range)
{
    Dataset *ds = made_dataset(1, 1, 4, 6, 6);
    Volume v;
    double mean, std;
    Steps steps = made_steps("");
    Survey *s;

    REQUIRE(survey_open(ds, &steps, &(SurveyOptions){0}, &s));
    REQUIRE(case_load(ds, 0, 0, NULL, &v, NULL));
    made_moments(v.voxels.data, 4 * 36, &mean, &std);
    EXPECT_NEAR(survey_case(s, 0)->field[0].mean, mean, 1e-9);
    EXPECT_NEAR(survey_case(s, 0)->field[0].sd, std, 1e-9);

    // without a slices step a sample is the volume
    EXPECT_INT(survey_case(s, 0)->field[0].dim.d, 4);
    EXPECT_INT(survey_case(s, 0)->field[0].rank, 3);
    volume_free(&v);
    survey_free(s);
    dataset_free(ds);
}

TEST(survey_large_slices_are_shown_small)
{
    Dataset *ds = made_dataset(1, 1, 2, 100, 401);
    Steps steps = made_steps("");
    Survey *s;
    Picture p;
    REQUIRE(survey_open(ds, &steps, &(SurveyOptions){0}, &s));
    REQUIRE(survey_picture(s, 0, &p));
    EXPECT_INT(p.w, SURVEY_SIDE);
    EXPECT_INT(p.h, 39);
    picture_free(&p);
    survey_free(s);
    dataset_free(ds);
}

TEST(survey_stops)
{
    Dataset *ds = made_dataset(3, 1, 2, 4, 4);
    Steps steps = made_steps("");
    atomic_bool stop = true;
    Survey *s = NULL;
    EXPECT(!survey_open(ds, &steps, &(SurveyOptions){2, &stop}, &s));
    EXPECT(!s && strstr(err_text(), "stopped"));
    dataset_free(ds);
}

TEST(survey_survives_no_memory)
{
    Dataset *ds = made_dataset(2, 1, 2, 4, 4);
    Steps steps = made_steps("fit h=4 w=4\nnormalize clip=1,99\nslices\n");
    const long before = mem_live();

    for (long k = 0;; k++) {
        Survey *s = NULL;
        Picture p = {0, 0, NULL};
        void *png = NULL;
        size_t bytes;
        mem_fail_after(k, false);
        bool ok = survey_open(ds, &steps, &(SurveyOptions){0}, &s) &&
                  survey_picture(s, 1, &p) && picture_png(&p, &png, &bytes);
        mem_fail_after(-1, false);
        mem_free(png);
        picture_free(&p);
        survey_free(s);
        EXPECT_INT(mem_live(), before);
        if (ok) break;
        EXPECT(strstr(err_text(), "no memory"));
        REQUIRE(k < 500);
    }
    dataset_free(ds);
}
