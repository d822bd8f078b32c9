/* patch.c -- tests of patches: positions, random draws, and stitching. */
#include "data/metrics/stitch.h"
#include "tests/support/volumes.h"
#include "tests/test.h"
#include <math.h>
#include <string.h>

static Dims extents(int d, int h, int w)
{
    return (Dims){1, d, h, w, 1};
}

TEST(part_grid_covers_and_overlaps)
{
    // axis, patch, overlap, number of positions and their starts, as in nnU-Net
    static const struct {
        int n, patch;
        double overlap;
        int count, at[5];
    } row[] = {
        {10, 10, 0.5, 1, {0}},          {10, 4, 0, 3, {0, 3, 6}},
        {8, 4, 0, 2, {0, 4}},           {8, 4, 0.5, 3, {0, 2, 4}},
        {9, 4, 0.5, 4, {0, 2, 3, 5}},   {5, 4, 0.9, 2, {0, 1}},
        {110, 64, 0.5, 3, {0, 23, 46}}, {192, 128, 0.5, 2, {0, 64}},
    };

    for (size_t r = 0; r < sizeof row / sizeof *row; r++) {
        char text[80];
        snprintf(text, sizeof text, "patches w=%d h=1 at=grid overlap=%g\n",
                 row[r].patch, row[r].overlap);
        const Steps s = made_steps(text);
        const Dims n = extents(3, 2, row[r].n);
        EXPECT_INT(part_count(&s, n), row[r].count * 2);
        EXPECT(dims_equal(part_dims(&s, n), extents(3, 1, row[r].patch)));
        for (int i = 0; i < row[r].count; i++) {
            // along w first, then h; the whole of d
            const Box box = part_box(&s, n, i),
                      next = part_box(&s, n, row[r].count + i);
            EXPECT_INT(box.from[0], row[r].at[i]);
            EXPECT_INT(next.from[0], row[r].at[i]);
            EXPECT(box.from[1] == 0 && next.from[1] == 1 && box.from[2] == 0);
            EXPECT(box.n[0] == row[r].patch && box.n[1] == 1 && box.n[2] == 3);
        }
    }
}

TEST(part_of_what_is_not_cut_and_of_slices)
{
    const Steps none = made_steps(""), slices = made_steps("slices\n");
    const Dims n = extents(4, 5, 6);
    EXPECT_INT(part_count(&none, n), 1);
    EXPECT_INT(part_count(&slices, n), 4);
    EXPECT(dims_equal(part_dims(&none, n), n));
    EXPECT(dims_equal(part_dims(&slices, n), extents(1, 5, 6)));
    EXPECT(part_rank(&none, 3) == 3 && part_rank(&slices, 3) == 2);
    EXPECT(part_rank(&slices, 1) == 1);
    const Steps flat = made_steps("patches d=1 h=2 w=2\n");
    const Steps deep = made_steps("patches h=2 w=2\n");
    EXPECT(part_rank(&flat, 3) == 2 && part_rank(&deep, 3) == 3);
    EXPECT(part_drawn(&deep) && !patch_wants_class_counts(&deep));
    const Box box = part_box(&slices, n, 2);
    EXPECT(box.from[2] == 2 && box.n[2] == 1 && box.n[1] == 5);
}

TEST(part_one_way_to_cut)
{
    Steps s = made_steps("slices\n");
    const DataStep patches = step_default(STEP_patches);
    EXPECT_FAIL(steps_add(&s, &patches),
                "a second patches step: samples are already slices");
    s = made_steps("");
    EXPECT_FAIL(steps_add(&s, &patches), "patches: one of d, h, w is needed");

    // steps of prediction
    s = made_steps("patches d=8 h=8 w=8 count=9 foreground=0.5 overlap=0.25\n"
                   "flip\n");
    s = steps_for_prediction(&s);
    EXPECT(s.count == 1 && !part_drawn(&s));
    EXPECT(s.step[0].patches.overlap == 0.25 && s.step[0].patches.h == 8);
}

/* Two voxels of class 1, one of class 2, in a volume of 6 x 7 x 8. */
static Pack labels(float *x)
{
    Pack p;
    memset(x, 0, 6 * 7 * 8 * sizeof *x);
    x[(0 * 7 + 0) * 8 + 0] = 1;
    x[(3 * 7 + 3) * 8 + 4] = 1;
    x[(5 * 7 + 6) * 8 + 7] = 2;
    const Tensor t = {.dim = extents(6, 7, 8), .type = F32, .data = x};
    REQUIRE(pack_make(&t, &p));
    return p;
}

TEST(part_draws_classes_alike)
{
    enum { N = 6000 };
    static float x[6 * 7 * 8];
    Pack label = labels(x);
    PatchClassCounts class_counts;
    const Steps s = made_steps("patches d=3 h=3 w=3 foreground=0.5\n");
    int hit[3] = {0}, at_first = 0;
    REQUIRE(patch_class_counts(&label, &class_counts));
    EXPECT(class_counts.classes == 2 && class_counts.label[1] == 2);
    EXPECT(class_counts.count[0] == 1 && class_counts.count[3] == 1);
    EXPECT(class_counts.count[6 + 5] == 1);

    for (uint32_t i = 0; i < N; i++) {
        const Rng draw = {.seed = 3, .stream = RNG_PATCH, .sample = i};
        Box box, again;
        REQUIRE(part_draw(&s, label.dim, &class_counts, &label, &draw, &box));
        REQUIRE(part_draw(&s, label.dim, &class_counts, &label, &draw, &again));
        EXPECT(!memcmp(&box, &again, sizeof box));
        for (int a = 0; a < 3; a++)
            EXPECT(box.from[a] >= 0 && box.n[a] == 3 &&
                   box.from[a] + 3 <= 8 - a);
        float y[27];
        bool has[3] = {false};
        pack_read_box(&label, &box, y);
        for (int k = 0; k < 27; k++) has[(int)y[k]] = true;
        for (int k = 0; k < 3; k++) hit[k] += has[k];
        at_first += box.from[0] == 0 && box.from[1] == 0 && box.from[2] == 0;
    }

    // half of the draws are foreground, each class equally often; of the other
    // half, the corners are found from one of 4 x 5 x 6 positions, the middle
    // from 27
    const double anywhere = 0.5 / 120;
    EXPECT_NEAR((double)hit[1] / N, 0.25 + 28 * anywhere, 0.025);
    EXPECT_NEAR((double)hit[2] / N, 0.25 + anywhere, 0.025);
    EXPECT_NEAR((double)at_first / N, 0.125 + anywhere, 0.02);
    patch_class_counts_free(&class_counts);
    pack_free(&label);
}

TEST(part_without_foreground_lies_anywhere)
{
    static float x[6 * 7 * 8];
    Pack label = labels(x), empty;
    PatchClassCounts class_counts;
    int seen[6] = {0};

    pack_free(&label);
    memset(x, 0, sizeof x);
    const Tensor t = {.dim = extents(6, 7, 8), .type = F32, .data = x};
    REQUIRE(pack_make(&t, &empty));
    REQUIRE(patch_class_counts(&empty, &class_counts));
    EXPECT_INT(class_counts.classes, 0);
    const Steps s = made_steps("patches d=6 h=7 w=3 foreground=1\n");

    for (uint32_t i = 0; i < 6000; i++) {
        const Rng draw = {.seed = 4, .stream = RNG_PATCH, .sample = i};
        Box box;
        REQUIRE(part_draw(&s, empty.dim, &class_counts, &empty, &draw, &box));
        EXPECT(box.from[1] == 0 && box.from[2] == 0);
        seen[box.from[0]]++;
    }

    for (int i = 0; i < 6; i++) EXPECT_NEAR(seen[i] / 1000.0, 1, 0.15);
    patch_class_counts_free(&class_counts);
    pack_free(&empty);
}

/* Patches of ones blend to one everywhere; a patch has its largest weight at
 * its middle. */
TEST(part_blend_is_a_mean)
{
    static const char *const text[] = {
        "patches d=3 h=4 w=5 at=grid\n",
        "patches d=6 h=4 w=2 at=grid overlap=0.75\n",
        "patches h=3 w=3 at=grid overlap=0\n",
        "patches d=1 h=7 w=8 at=grid overlap=0.9\n",
    };

    for (size_t r = 0; r < sizeof text / sizeof *text; r++) {
        const Steps s = made_steps(text[r]);
        static float sum[6 * 7 * 8], one[6 * 7 * 8];
        const Dims n = extents(6, 7, 8);
        memset(sum, 0, sizeof sum);
        for (int i = 0; i < 6 * 7 * 8; i++) one[i] = 1;
        for (int32_t k = 0; k < part_count(&s, n); k++)
            REQUIRE(part_blend(&s, n, k, one, 0, sum));
        for (int i = 0; i < 6 * 7 * 8; i++) EXPECT_NEAR(sum[i], 1, 1e-5);
    }

    // two patches of 8 over 12 voxels: in the overlap, weighted by distance
    const Steps s = made_steps("patches w=8 at=grid\n");
    float line[12] = {0}, first[8] = {1, 1, 1, 1, 1, 1, 1, 1}, second[8] = {0};
    const Dims n = extents(1, 1, 12);
    EXPECT_INT(part_count(&s, n), 2);
    REQUIRE(part_blend(&s, n, 0, first, 0, line) &&
            part_blend(&s, n, 1, second, 0, line));
    for (int i = 0; i < 12; i++) {
        double a = exp(-0.5 * (i - 3.5) * (i - 3.5));
        double b = exp(-0.5 * (i - 7.5) * (i - 7.5));
        EXPECT_NEAR(line[i], i < 4 ? 1 : i >= 8 ? 0 : a / (a + b), 1e-6);
    }
}

TEST(part_samples_of_a_pipeline)
{
    Dataset *ds = made_dataset(3, 1, 6, 8, 9);
    const Steps s = made_steps("patches d=3 h=10 w=4 count=5 foreground=0.4\n");
    float first[2][120], mask[120], again[120];
    float *out[MAX_FIELDS] = {first[0], mask}, *only[MAX_FIELDS] = {again};
    int differ = 0;
    Dims n;

    // h is padded to 10, and the cache has no effect
    for (int kept = 0; kept < 2; kept++) {
        const PipelineOptions options = {.cache_bytes = kept ? 1 << 20 : 0,
                                         .seed = 7};
        Pipeline *p;
        REQUIRE(pipeline_open(ds, &s, &options, &p));
        EXPECT(pipeline_drawn(p));
        EXPECT_INT(pipeline_samples(p), 15);
        EXPECT(pipeline_id(p, 7).item == 1 && pipeline_id(p, 7).part == 2);
        REQUIRE(pipeline_dims(p, 1, &n));
        EXPECT(dims_equal(n, extents(3, 10, 4)));
        out[0] = first[kept];
        REQUIRE(pipeline_sample(p, 7, 4, false, NULL, out));
        // another epoch, another patch
        for (uint32_t epoch = 5; epoch < 9; epoch++) {
            REQUIRE(pipeline_sample(p, 7, epoch, false, NULL, only));
            differ += memcmp(again, first[kept], sizeof again) != 0;
        }
        const StitchOptions o = {.channels = 1, .values = true};
        Stitch *m;
        EXPECT_FAIL(stitch_new(p, 1, &o, &m),
                    "patches drawn at random do not cover a case; fix: patches "
                    "with at = \"grid\"");
        pipeline_free(p);
    }

    EXPECT(!memcmp(first[0], first[1], sizeof *first));
    EXPECT(differ >= 6);
    dataset_free(ds);
}

TEST(part_wants_labels_for_foreground)
{
    Dataset *ds = made_dataset(1, 1, 6, 8, 9);
    const Steps s = made_steps("patches h=4 foreground=0.4\n");
    const PipelineOptions options = {.seed = 7};
    Pipeline *p;

    ds->fields = 1;
    EXPECT_FAIL(pipeline_open(ds, &s, &options, &p),
                "patches: foreground is 0.4, but the data set has no labels; "
                "fix: foreground = 0");
    ds->fields = 2;
    ds->field[1].kind = FIELD_LENGTH;
    const Steps plain = made_steps("patches h=4\n");
    EXPECT_FAIL(pipeline_open(ds, &plain, &options, &p),
                "patches: the data set has a field of lengths");
    ds->field[1].kind = FIELD_LABEL;
    dataset_free(ds);
}
