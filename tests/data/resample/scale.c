/* scale.c -- tests of volumes resized by filters: against PyTorch, and of
 * properties along every axis. */
#include "data/resample/scale.h"
#include "tests/support/volumes.h"
#include "tests/test.h"
#include <math.h>
#include <string.h>

static const float line[11] = {0, 5, 0, 2, 2.5f, 1.5f, 7.5f, 3.5f, 6.5f, 8, 8};

/* torch.nn.functional.interpolate(x, (3, m), mode, antialias=True) of PyTorch
 * 1.13, x is three equal rows of `line`; mode bilinear, then bicubic. */
static const struct {
    ScaleFilter filter;
    int m;
    float want[23];
} golden[] = {
    {SCALE_TRIANGLE, 4, {2.129629f, 2.091667f, 4.875f, 7.222221f}},
    {SCALE_TRIANGLE,
     7,
     {2, 1.722222f, 2.09375f, 2.973684f, 5.437501f, 6.416666f, 8}},
    {SCALE_TRIANGLE,
     23,
     {0,         1.086957f, 3.478261f, 4.130435f, 1.73913f,  0.2608695f,
      1.217391f, 2.043478f, 2.282609f, 2.456522f, 1.978261f, 1.5f,
      4.369566f, 7.239132f, 5.76087f,  3.847826f, 4.673913f, 6.108695f,
      7.021739f, 7.73913f,  8,         8,         8}},
    {SCALE_CUBIC, 4, {1.995115f, 1.92117f, 4.928734f, 7.432852f}},
    {SCALE_CUBIC,
     7,
     {2.064206f, 1.764319f, 1.902232f, 3.019294f, 5.396895f, 6.387792f,
      8.119818f}},
    {SCALE_CUBIC,
     23,
     {-0.4537371f, 0.8804038f, 3.927064f, 4.636394f, 1.615846f, -0.07323132f,
      0.9999179f,  2.103024f,  2.466919f, 2.480027f, 1.612107f, 1.5f,
      4.510603f,   7.431702f,  6.08141f,  3.628627f, 4.236378f, 6.130886f,
      7.191872f,   7.846881f,  8.107016f, 8.026008f, 8}},
};

/* Makes a volume with the line along one axis, constant along the others. */
static Volume along(int axis)
{
    Volume v;
    Dims n = {1, 2, 3, 2, 2};
    *(axis == 0 ? &n.w : axis == 1 ? &n.h : &n.d) = 11;
    REQUIRE(volume_new(&v, n, F32));
    float *x = v.voxels.data;
    for (int d = 0; d < n.d; d++)
        for (int h = 0; h < n.h; h++)
            for (int w = 0; w < n.w; w++)
                for (int c = 0; c < 2; c++)
                    *x++ = line[axis == 0 ? w : axis == 1 ? h : d] + 100 * c;
    return v;
}

TEST(scale_gives_pytorchs_numbers_along_every_axis)
{
    for (size_t g = 0; g < sizeof golden / sizeof *golden; g++)
        for (int axis = 0; axis < 3; axis++) {
            const int m = golden[g].m;
            Volume v = along(axis), out;
            Grid grid = volume_grid_resize(
                &v, axis == 2 ? m : 0, axis == 1 ? m : 0, axis == 0 ? m : 0);
            REQUIRE(volume_scale(&v, &grid, golden[g].filter, &out));
            const Dims n = out.voxels.dim;
            const float *y = out.voxels.data;
            EXPECT(!memcmp(out.affine, grid.affine, sizeof grid.affine));
            for (int64_t i = 0; i < numel(n); i++) {
                int64_t p = i / 2, at = axis == 0   ? p % n.w
                                        : axis == 1 ? p / n.w % n.h
                                                    : p / n.w / n.h;
                double want = golden[g].want[at] + (i % 2 ? 100 : 0);
                EXPECT_NEAR(y[i], want, i % 2 ? 2e-5 : 2e-6);
            }
            volume_free(&v);
            volume_free(&out);
        }
}

/* An unchanged size changes no value; a constant stays constant at any size. */
TEST(scale_keeps_what_it_must)
{
    Volume v = made_image(3, 4, 5, 6, false), out;
    Grid same = volume_grid(&v);
    REQUIRE(volume_scale(&v, &same, SCALE_CUBIC, &out));
    EXPECT(!memcmp(v.voxels.data, out.voxels.data, tensor_bytes(&v.voxels)));
    volume_free(&out);
    for (int i = 0; i < 120; i++) ((float *)v.voxels.data)[i] = 3.5f;

    for (int n = 1; n < 40; n += 3) {
        Grid grid = volume_grid_resize(&v, n, 41 - n, 2 * n);
        for (int f = 0; f < 2; f++) {
            REQUIRE(volume_scale(&v, &grid, (ScaleFilter)f, &out));
            for (int64_t i = 0; i < numel(out.voxels.dim); i++)
                EXPECT_NEAR(((float *)out.voxels.data)[i], 3.5, 2e-6);
            volume_free(&out);
        }
    }

    // by spacing, the last voxel may reach beyond the volume
    const double spacing[3] = {1.7, 0.3, 5};
    Grid grid = volume_grid_at(&v, spacing);
    REQUIRE(volume_scale(&v, &grid, SCALE_TRIANGLE, &out));
    for (int64_t i = 0; i < numel(out.voxels.dim); i++)
        EXPECT_NEAR(((float *)out.voxels.data)[i], 3.5, 2e-6);
    volume_free(&out);
    volume_free(&v);
}

/* The steps: images by the method, labels by the nearest voxel, and pictures
 * stay whole numbers from 0 to 255. */
TEST(scale_steps_round_pictures_and_leave_labels)
{
    Volume v = made_image(5, 2, 12, 16, true), m = made_mask(2, 12, 16);
    DatasetBuilder *b;
    Dataset *ds;

    for (int i = 0; i < 2 * 12 * 16; i++)
        ((float *)v.voxels.data)[i] = (float)(i * 37 % 256);

    for (int pixels = 0; pixels < 2; pixels++)
        for (int cubic = 0; cubic < 2; cubic++) {
            v.unit = pixels ? UNIT_PIXEL : UNIT_NONE;
            REQUIRE(dataset_begin(NULL, &b));
            REQUIRE(dataset_add(b, "a", "p", &v, &m));
            REQUIRE(dataset_finish(b, &ds));
            Pipeline *p =
                made_pipeline(ds, cubic ? "resize h=5 w=7 method=cubic\n"
                                        : "resize h=5 w=7 method=smooth\n");
            float x[70], t[70], least = 0, most = 0, off = 0;
            float *const out[MAX_FIELDS] = {x, t};
            REQUIRE(pipeline_sample(p, 0, 0, false, NULL, out));
            for (int i = 0; i < 70; i++) {
                EXPECT(t[i] == 0 || t[i] == 1);
                off = fmaxf(off, fabsf(x[i] - roundf(x[i])));
                least = fminf(least, x[i]), most = fmaxf(most, x[i]);
            }
            EXPECT(pixels ? off == 0 : off > 0.1f);
            EXPECT(!pixels || (least >= 0 && most <= 255));
            const Prepared *kept;
            REQUIRE(pipeline_get(p, 0, &kept));
            EXPECT_INT(kept->field[0].type, pixels ? U8 : F32);
            pipeline_put(p, kept);
            pipeline_free(p);
            dataset_free(ds);
        }

    volume_free(&v);
    volume_free(&m);
}
