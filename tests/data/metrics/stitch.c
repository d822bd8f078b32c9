/* stitch.c -- tests of stitching in a slab: the same bytes as stitching all
 * samples in one volume, resampled to the grid of the input at once. */
#include "data/metrics/stitch.h"
#include "engine/base/rng.h"
#include "tests/support/volumes.h"
#include "tests/test.h"
#include <math.h>
#include <string.h>

enum { C = 3 };

/* Makes synthetic scores of C classes for sample `number`. */
static void scores(Pipeline *p, int32_t number, float *x)
{
    Dims n = pipeline_dims_of(p, number, 0);
    const Rng draw = {.seed = 5, .sample = (uint32_t)number};
    for (int64_t i = 0; i < numel(n) / n.c * C; i++)
        x[i] = rng_uniform(&draw, (uint32_t)i) - 0.2f;
}

/* Stitches everything in one volume. */
static void in_one(Pipeline *p, int item, const Grid *to, Volume *out)
{
    const Steps *steps = pipeline_steps(p);
    const DataStep *parts = steps_parts(steps);
    const Prepared *like;
    Volume whole;

    REQUIRE(pipeline_get(p, item, &like));
    const Grid *g = &like->grid;
    REQUIRE(volume_new(&whole, (Dims){1, g->d, g->h, g->w, C}, F32));
    memcpy(whole.affine, g->affine, sizeof whole.affine);
    float *x = mem_alloc((size_t)numel(whole.voxels.dim) * sizeof *x);

    for (int32_t i = 0; i < pipeline_samples(p); i++) {
        const SampleId id = pipeline_id(p, i);
        if (id.item != item) continue;
        scores(p, i, x);
        const Box box = part_box(steps, whole.voxels.dim, id.part);
        const int64_t plane = (int64_t)g->h * g->w * C;
        if (parts && parts->id == STEP_patches)
            REQUIRE(part_blend(steps, whole.voxels.dim, id.part, x, 0,
                               whole.voxels.data));
        else
            memcpy((float *)whole.voxels.data + box.from[2] * plane, x,
                   (size_t)(box.n[2] * plane) * sizeof *x);
    }

    REQUIRE(volume_resample(&whole, to ? to : &like->input, LINEAR, 0, out));
    mem_free(x);
    volume_free(&whole);
    pipeline_put(p, like);
}

static StitchResult in_parts(Pipeline *p, int item, const StitchOptions *o,
                             StitchBytes *bytes)
{
    Stitch *m;
    StitchResult r;
    REQUIRE(stitch_new(p, item, o, &m));
    *bytes = stitch_bytes(m);
    float *x =
        mem_alloc((size_t)numel(pipeline_facts(p, item)->dim) * C * sizeof *x);
    for (int32_t i = 0; i < pipeline_samples(p); i++) {
        if (pipeline_id(p, i).item != item) continue;
        scores(p, i, x);
        REQUIRE(stitch_put(m, i, x));
    }

    REQUIRE(stitch_finish(m, &r));
    stitch_free(m);
    mem_free(x);
    return r;
}

static void same(const char *steps, bool flat)
{
    Dataset *ds = made_dataset(2, 1, 20, 12, 14);
    Pipeline *p = made_pipeline(ds, steps);
    const StitchOptions o = {.channels = C,
                             .classes = C,
                             .labels = true,
                             .values = true,
                             .entropy = true};
    Volume want;
    StitchBytes bytes;

    in_one(p, 1, NULL, &want);
    StitchResult got = in_parts(p, 1, &o, &bytes);
    const int64_t n = numel(want.voxels.dim) / C;
    REQUIRE(dims_equal(want.voxels.dim, got.values.voxels.dim));
    EXPECT(!memcmp(want.voxels.data, got.values.voxels.data,
                   (size_t)(n * C) * sizeof(float)));
    EXPECT(!memcmp(want.affine, got.labels.affine, sizeof want.affine));
    const float *v = want.voxels.data;
    int64_t wrong = 0;

    for (int64_t i = 0; i < n; i++, v += C) {
        int best = 0;
        double sum = 0;
        for (int c = 0; c < C; c++) {
            best = v[c] > v[best] ? c : best;
            sum -= v[c] > 0 ? (double)v[c] * log((double)v[c]) : 0;
        }
        wrong += ((uint8_t *)got.labels.voxels.data)[i] != best;
        EXPECT_NEAR(((float *)got.entropy.voxels.data)[i], sum > 0 ? sum : 0,
                    1e-6);
    }

    EXPECT_INT(wrong, 0);
    EXPECT_INT(bytes.results, n * (1 + 4 + 4 * C));

    // much less than a volume of scores
    const Dims all = pipeline_facts(p, 1)->dim;
    if (flat)
        EXPECT((double)bytes.slab <
               0.65 * (double)positions(all) * C * sizeof(float));
    volume_free(&want);
    stitch_result_free(&got);
    pipeline_free(p);
    dataset_free(ds);
}

TEST(stitch_is_the_whole)
{
    same("", false);
    same("slices axis=stored\n", true);
    same("slices axis=axial\n", true);
    same("slices axis=sagittal\n", true);
    same("fit h=24 w=24\nslices axis=coronal\n", false);
    same("patches d=5 h=6 w=9 at=grid\n", true);
    same("patches d=7 h=12 w=5 at=grid overlap=0.7\n", true);
    same("patches d=4 at=grid overlap=0\n", true);
    same("orient plane=sagittal\npatches d=4 h=7 w=8 at=grid\n", true);
    same("orient plane=coronal\npatches d=3 h=7 at=grid\n", true);
    same("patches d=1 h=5 at=grid\n", true);
    same("fit d=13\npatches d=4 h=7 w=8 at=grid\n", false);
    same("fit d=26\npatches d=4 h=7 w=8 at=grid\n", true);
    same("resample spacing_mm=0.5,0.7,0.4\npatches d=8 h=8 w=8 at=grid\n",
         true);
    same("resample spacing_mm=1.3,0.8,2\npatches d=4 h=8 w=8 at=grid\n", false);
}

TEST(stitch_on_the_prepared_grid)
{
    Dataset *ds = made_dataset(1, 1, 20, 12, 14);
    Pipeline *p = made_pipeline(
        ds, "resample spacing_mm=0.5,0.7,0.4\npatches d=8 h=8 w=8 at=grid\n");
    const StitchOptions o = {
        .channels = C, .classes = 1, .values = true, .prepared = true};
    const Prepared *like;
    Volume want;
    StitchBytes bytes;

    REQUIRE(pipeline_get(p, 0, &like));
    in_one(p, 0, &like->grid, &want);
    StitchResult got = in_parts(p, 0, &o, &bytes);
    EXPECT(!got.labels.voxels.data && !got.entropy.voxels.data);
    REQUIRE(dims_equal(want.voxels.dim, got.values.voxels.dim));
    EXPECT(!memcmp(want.voxels.data, got.values.voxels.data,
                   tensor_bytes(&want.voxels)));
    volume_free(&want);
    stitch_result_free(&got);
    pipeline_put(p, like);
    pipeline_free(p);
    dataset_free(ds);
}

/* Slices without a sample stay 0, wherever they are missing. */
TEST(stitch_of_some_slices)
{
    Dataset *ds = made_dataset(1, 1, 20, 12, 14);
    Pipeline *p = made_pipeline(ds, "slices axis=stored\n");
    const StitchOptions o = {
        .channels = 1, .classes = 1, .labels = true, .threshold = 0.5};
    Stitch *m;
    StitchResult r;
    static float ones[12 * 14];

    for (int i = 0; i < 12 * 14; i++) ones[i] = 1;
    REQUIRE(stitch_new(p, 0, &o, &m));
    const int32_t there[] = {3, 4, 9, 10, 15};
    for (int i = 0; i < 5; i++) REQUIRE(stitch_put(m, there[i], ones));
    REQUIRE(stitch_finish(m, &r));
    const uint8_t *y = r.labels.voxels.data;
    for (int32_t d = 0; d < 20; d++) {
        int want = 0;
        for (int i = 0; i < 5; i++) want |= there[i] == d;
        for (int i = 0; i < 12 * 14; i++) EXPECT_INT(y[d * 12 * 14 + i], want);
    }

    stitch_result_free(&r);
    stitch_free(m);
    pipeline_free(p);
    dataset_free(ds);
}

/* Entropy of one class, from its probability. */
TEST(stitch_entropy_of_one_class)
{
    Dataset *ds = made_dataset(1, 1, 1, 1, 4);
    Pipeline *p = made_pipeline(ds, "");
    const StitchOptions o = {.channels = 1, .classes = 1, .entropy = true};
    Stitch *m;
    StitchResult r;
    const float x[4] = {0, 1, 0.5f, 0.25f};

    REQUIRE(stitch_new(p, 0, &o, &m) && stitch_put(m, 0, x) &&
            stitch_finish(m, &r));
    const float *y = r.entropy.voxels.data;
    EXPECT_NEAR(y[0], 0, 0);
    EXPECT_NEAR(y[1], 0, 0);
    EXPECT_NEAR(y[2], 0.69314718, 1e-6);
    EXPECT_NEAR(y[3], 0.56233514, 1e-6);
    stitch_result_free(&r);
    stitch_free(m);
    pipeline_free(p);
    dataset_free(ds);
}
