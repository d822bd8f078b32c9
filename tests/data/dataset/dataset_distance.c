/* dataset_distance.c -- tests of fields of signed distances: against brute
 * force with voxels of unequal edges, absent and full classes, refusals. */
#include "data/dataset/dataset.h"
#include "data/distance.h"
#include "tests/support/volumes.h"
#include "tests/test.h"
#include <math.h>

enum { D = 3, H = 5, W = 6, N = D * H * W };
static const double mm[3] = {0.75, 1.5, 2.5}; // along w, h, d

/* Class numbers from 0 to 2 in blocks; with `full` class 1 fills the image. */
static uint8_t class_at(int i, bool full)
{
    const int w = i % W, h = i / W % H;
    return full ? 1 : (uint8_t)(w > 2 && h < 3 ? 1 : w < 2 && h > 1 ? 2 : 0);
}

static Volume made_classes(bool full)
{
    Volume v;
    REQUIRE(volume_new(&v, (Dims){1, D, H, W, 1}, U8));
    for (int i = 0; i < N; i++)
        ((uint8_t *)v.voxels.data)[i] = class_at(i, full);
    for (int a = 0; a < 3; a++) v.affine[a][a] = mm[a];
    v.unit = UNIT_LABEL;
    return v;
}

/* Two cases with an image and class numbers; class 1 fills the second. */
static Dataset *made_cases(void)
{
    const DatasetOptions o = {.labels = {1, 2, 3}, .label_count = 3};
    DatasetBuilder *b;
    Dataset *ds;
    REQUIRE(dataset_begin(&o, &b));
    for (int i = 0; i < 2; i++) {
        Volume mask = made_classes(i), image = made_image(7, D, H, W, true);
        memcpy(image.affine, mask.affine, sizeof image.affine);
        REQUIRE(dataset_add(b, i ? "full" : "blocks", "p", &image, &mask));
        volume_free(&image);
        volume_free(&mask);
    }
    REQUIRE(dataset_finish(b, &ds));
    return ds;
}

/* By definition: the nearest voxel on the other side. */
static double brute(int k, int i)
{
    const bool inside = class_at(i, false) == k;
    double best = INFINITY;
    for (int j = 0; j < N; j++) {
        const double w = mm[0] * (i % W - j % W);
        const double h = mm[1] * (i / W % H - j / W % H);
        const double d = mm[2] * (i / (W * H) - j / (W * H));
        if ((class_at(j, false) == k) != inside)
            best = fmin(best, sqrt(w * w + h * h + d * d));
    }
    return isinf(best) ? 0 : inside ? -best : best;
}

TEST(distance_field_has_a_channel_for_each_class)
{
    Dataset *ds = made_cases(), *more;
    Volume v;
    REQUIRE(dataset_distance(ds, "mask", "distance", &more));
    dataset_free(ds); // the new set holds what it needs
    EXPECT_INT(dataset_field(more, "distance"), 2);
    EXPECT_INT(more->field[2].kind, FIELD_VALUE);
    EXPECT_INT(more->field[2].rank, 3);

    REQUIRE(case_load(more, 0, 2, NULL, &v, NULL));
    EXPECT_INT(v.voxels.dim.c, 3);
    EXPECT_INT(v.voxels.type, F32);
    double spacing[3];
    volume_spacing_mm(&v, spacing);
    for (int a = 0; a < 3; a++) EXPECT_NEAR(spacing[a], mm[a], 1e-12);
    const float *x = v.voxels.data;
    for (int i = 0; i < N; i++)
        for (int k = 1; k <= 3; k++) // class 3 is absent: 0
            EXPECT_NEAR((double)x[3 * i + k - 1], brute(k, i), 1e-6);
    volume_free(&v);

    REQUIRE(case_load(more, 1, 2, NULL, &v, NULL));
    x = v.voxels.data;
    for (int i = 0; i < 3 * N; i++) EXPECT(x[i] == 0);
    volume_free(&v);
    dataset_free(more);
}

TEST(distance_field_refuses_other_fields_and_names)
{
    Dataset *ds = made_cases(), *more = NULL;
    EXPECT_FAIL(dataset_distance(ds, "image", "d", &more),
                "signed_distance: \"image\" holds no class numbers");
    EXPECT_FAIL(dataset_distance(ds, "lesion", "d", &more),
                "signed_distance: \"lesion\" is no field of the data set");
    EXPECT_FAIL(dataset_distance(ds, "mask", "image", &more),
                "the name \"image\" is that of a field already");
    EXPECT_FAIL(dataset_distance(ds, "mask", "", &more),
                "the name \"\" is empty");
    EXPECT(!more);

    char name[] = "d0";
    for (int i = 0; ds->fields < MAX_FIELDS; i++, name[1]++) {
        REQUIRE(dataset_distance(ds, "mask", name, &more));
        dataset_free(ds);
        ds = more;
    }
    EXPECT_FAIL(dataset_distance(ds, "mask", "more", &more),
                "has 8 fields, the most that it can have");
    dataset_free(ds);
}
