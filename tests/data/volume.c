/* volume.c -- tests of voxel positions after every change of grid.
 *
 * The phantom contains its own ground truth: its three channels are the patient
 * position of the voxel, so at the position of a landmark on a new grid, the
 * interpolated value must be that position. Four landmarks without any
 * symmetry, for all 48 assignments of voxel axes to patient axes. */
#include "data/resample/crop.h"
#include "engine/base/rng.h"
#include "tests/support/volumes.h"
#include "tests/test.h"

enum { W = 24, H = 20, D = 16, CODES = MADE_CODES, LANDMARKS = 4 };
static const double spacing[3] = {0.9, 1.25, 2.5};
static const double landmark[LANDMARKS][3] = {
    {8, 8, 6}, {14, 9, 7}, {10.25, 12, 6.5}, {9, 10, 10.125}};

static void make(Volume *v, int c, Dtype type, int code, double turn)
{
    REQUIRE(volume_new(v, (Dims){1, D, H, W, c}, type));
    made_affine(code, turn, spacing, v->affine);
}

static void make_phantom(Volume *v, int code, double turn)
{
    make(v, 3, F32, code, turn);
    float *x = v->voxels.data;
    for (int d = 0; d < D; d++)
        for (int h = 0; h < H; h++)
            for (int w = 0; w < W; w++, x += 3) {
                double p[3];
                volume_world(v, w, h, d, p);
                for (int k = 0; k < 3; k++) x[k] = (float)p[k];
            }
}

/* Interpolates v at fractional index `at`, in double, by the textbook
 * formula. */
static double linear_at(const Volume *v, const double at[3], int channel)
{
    Dims n = v->voxels.dim;
    const int32_t extent[3] = {n.w, n.h, n.d};
    double sum = 0;

    for (int corner = 0; corner < 8; corner++) {
        double weight = 1;
        int64_t i[3];
        for (int a = 0; a < 3; a++) {
            double x = fmin(fmax(at[a], 0), extent[a] - 1), lo = floor(x);
            bool up = corner >> a & 1;
            weight *= up ? x - lo : 1 - (x - lo);
            i[a] = (int64_t)fmin(lo + up, extent[a] - 1);
        }
        int64_t e = ((i[2] * n.h + i[1]) * n.w + i[0]) * n.c + channel;
        double x = v->voxels.type == F32   ? ((float *)v->voxels.data)[e]
                   : v->voxels.type == I16 ? ((int16_t *)v->voxels.data)[e]
                                           : ((uint8_t *)v->voxels.data)[e];
        sum += weight * x;
    }
    return sum;
}

/* Computes the index of a patient position on the grid of v. */
static void index_of(Volume *v, const double p[3], double at[3])
{
    double inverse[4][4];
    REQUIRE(affine_invert(v->affine, inverse));
    for (int a = 0; a < 3; a++)
        at[a] = inverse[a][0] * p[0] + inverse[a][1] * p[1] +
                inverse[a][2] * p[2] + inverse[a][3];
}

static void expect_landmarks(const Volume *v, Volume *out)
{
    for (int l = 0; l < LANDMARKS; l++) {
        const double *at = landmark[l];
        double p[3], where[3];
        volume_world(v, at[0], at[1], at[2], p);
        index_of(out, p, where);
        // 1/1000 of the shortest edge
        for (int k = 0; k < 3; k++)
            EXPECT_NEAR(linear_at(out, where, k), p[k], 0.9e-3);
    }
}

/* Returns the grid in the middle of v of a fit step. */
static Grid fitted(const Volume *v, int d, int h, int w)
{
    Box box = volume_box_fit(v, d, h, w, false);
    return volume_grid_cut(v, box.from, box.n);
}

TEST(volume_landmarks_on_48_codes)
{
    static const double turns[] = {0, 0.3};
    int cases = 0;

    for (int code = 0; code < CODES; code++)
        for (int t = 0; t < 2; t++) {
            Volume v, out;
            make_phantom(&v, code, turns[t]);
            double at[3] = {1.1, 0, 0.7};
            Grid grid[] = {
                volume_grid(&v),
                volume_grid_at(&v, at),
                fitted(&v, 14, 24, 19),
                volume_grid_resize(&v, 21, 0, 31),
                volume_grid_plane(&v, AXIAL),
                volume_grid_plane(&v, CORONAL),
                volume_grid_plane(&v, SAGITTAL),
            };
            for (size_t g = 0; g < sizeof grid / sizeof *grid; g++) {
                REQUIRE(volume_resample(&v, &grid[g], LINEAR, 0, &out));
                EXPECT_INT(out.voxels.dim.d, grid[g].d);
                EXPECT(!memcmp(out.affine, grid[g].affine, sizeof out.affine));
                expect_landmarks(&v, &out);
                volume_free(&out);
                cases += LANDMARKS;
            }
            // onto the grid of another code, which shares the space but not the
            // axes
            Volume other;
            make(&other, 3, F32, (code + 17) % CODES, 0.15);
            double c[3], d[3];
            volume_world(&v, W / 2.0, H / 2.0, D / 2.0, c);
            volume_world(&other, W / 2.0, H / 2.0, D / 2.0, d);
            for (int k = 0; k < 3; k++) other.affine[k][3] += c[k] - d[k];
            Grid all = fitted(&other, 60, 60, 60);
            REQUIRE(volume_resample(&v, &all, LINEAR, 0, &out));
            expect_landmarks(&v, &out);
            volume_free(&out);
            volume_free(&other);
            volume_free(&v);
        }
    EXPECT_INT(cases, 48 * 2 * 7 * LANDMARKS);
}

static void fill_random(Volume *v, uint32_t sample)
{
    Rng r = {.seed = 1, .stream = RNG_TEST, .sample = sample};
    int64_t count = numel(v->voxels.dim);

    for (int64_t i = 0; i < count; i++) {
        float x = rng_range(&r, (uint32_t)i, -300, 300);
        switch (v->voxels.type) {
        case U8:
            ((uint8_t *)v->voxels.data)[i] = (uint8_t)fabsf(x / 2);
            break;
        case I16:
            ((int16_t *)v->voxels.data)[i] = (int16_t)x;
            break;
        default:
            ((float *)v->voxels.data)[i] = x;
        }
    }
}

TEST(volume_resample_onto_itself_is_bit_equal)
{
    static const Dtype types[] = {F32, I16, U8};
    for (int code = 0; code < CODES; code++)
        for (int t = 0; t < 3; t++)
            for (int c = 1; c < 3; c++) {
                Volume v, out, wide;
                make(&v, c, types[t], code, code * 0.01);
                fill_random(&v, (uint32_t)code);
                if (types[t] == F32) {
                    ((float *)v.voxels.data)[50] = INFINITY;
                    ((float *)v.voxels.data)[777] = NAN;
                    ((float *)v.voxels.data)[999] = -0.0f;
                }
                Grid g = volume_grid(&v);
                REQUIRE(volume_resample(&v, &g, NEAREST, 9, &out));
                EXPECT_INT(out.voxels.type, types[t]);
                EXPECT(!memcmp(out.voxels.data, v.voxels.data,
                               tensor_bytes(&v.voxels)));
                volume_free(&out);
                REQUIRE(volume_resample(&v, &g, LINEAR, 9, &out));
                REQUIRE(volume_to_f32(&v, &wide));
                EXPECT_INT(out.voxels.type, F32);
                EXPECT(!memcmp(out.voxels.data, wide.voxels.data,
                               tensor_bytes(&wide.voxels)));
                volume_free(&wide);
                volume_free(&out);
                volume_free(&v);
            }
}

/* Compares volume_resample with the textbook formula at every voxel of
 * `grid`. */
static void expect_linear(Volume *v, const Grid *grid)
{
    Volume out;
    REQUIRE(volume_resample(v, grid, LINEAR, -7, &out));
    Dims n = v->voxels.dim, m = out.voxels.dim;
    const float *y = out.voxels.data;
    double worst = 0;

    for (int d = 0; d < m.d; d++)
        for (int h = 0; h < m.h; h++)
            for (int w = 0; w < m.w; w++)
                for (int k = 0; k < m.c; k++, y++) {
                    double p[3], at[3];
                    volume_world(&out, w, h, d, p);
                    index_of(v, p, at);
                    const int32_t e[3] = {n.w, n.h, n.d};
                    bool in = true, edge = false;
                    for (int a = 0; a < 3; a++) {
                        in &= at[a] >= -0.5 && at[a] < e[a] - 0.5;
                        edge |= fabs(at[a] + 0.5) < 1e-4 ||
                                fabs(at[a] + 0.5 - e[a]) < 1e-4;
                    }
                    if (edge) continue; // at the border either value is correct
                    double want = in ? linear_at(v, at, k) : -7;
                    worst = fmax(worst, fabs(*y - want));
                }

    // weights in float and positions within 1e-5: 300 * 2^-22 + 600 * 1e-5
    EXPECT_NEAR(worst, 0, 7e-3);
    volume_free(&out);
}

TEST(volume_linear_equals_double_reference)
{
    static const Dtype types[] = {F32, I16, U8};
    static const double fine[3] = {0.37, 1.7, 0}, coarse[3] = {2.2, 0, 1.9};

    for (int code = 0; code < CODES; code += 5)
        for (int t = 0; t < 3; t++) {
            Volume v, rotated, tilted;
            make(&v, 1 + code % 2, types[t], code, 0.2);
            // an invisible rotation: a fiftieth of a voxel at the far end
            make(&tilted, v.voxels.dim.c, U8, code, 0.201);
            fill_random(&v, (uint32_t)code + 100);
            make(&rotated, v.voxels.dim.c, types[t], (code + 7) % CODES, 0.25);
            Grid grid[] = {
                volume_grid_at(&v, fine),
                volume_grid_at(&v, coarse),
                volume_grid_resize(&v, 7, 33, 24),
                volume_grid_plane(&v, SAGITTAL),
                volume_grid(&rotated),
                volume_grid(&tilted),
            };
            // a fraction of a voxel outside on one side, whole voxels on the
            // other
            Grid shifted = fitted(&v, 20, 26, 28);
            for (int r = 0; r < 3; r++)
                shifted.affine[r][3] += 0.3 * v.affine[r][0];
            for (size_t g = 0; g < sizeof grid / sizeof *grid; g++)
                expect_linear(&v, &grid[g]);
            expect_linear(&v, &shifted);
            volume_free(&tilted);
            volume_free(&rotated);
            volume_free(&v);
        }
}

TEST(volume_nearest_keeps_the_label_set)
{
    static const int labels[] = {0, 1, 4, 255};
    for (int code = 0; code < CODES; code++) {
        Volume v, out;
        make(&v, 1, U8, code, 0.1);
        v.unit = UNIT_LABEL;
        uint8_t *x = v.voxels.data;
        Rng r = {.seed = 2, .stream = RNG_TEST, .sample = (uint32_t)code};
        for (int i = 0; i < W * H * D; i++)
            x[i] = (uint8_t)labels[rng_below(&r, (uint32_t)i, 4)];
        double at[3] = {1.3, 0.8, 2.9};
        Grid plane = volume_grid_plane(&v, CORONAL), grid[4];
        grid[0] = volume_grid_at(&v, at);
        grid[1] = volume_grid_resize(&v, 9, 44, 13);
        grid[2] = fitted(&v, 30, 10, 30);
        made_affine(code, 0.4, spacing, v.affine), grid[3] = plane;
        for (int g = 0; g < 4; g++) {
            REQUIRE(volume_resample(&v, &grid[g], NEAREST, 4, &out));
            EXPECT_INT(out.voxels.type, U8);
            EXPECT_INT(out.unit, UNIT_LABEL);
            const uint8_t *y = out.voxels.data;
            int64_t count = numel(out.voxels.dim), bad = 0, fours = 0;
            for (int64_t i = 0; i < count; i++) {
                bad += y[i] != 0 && y[i] != 1 && y[i] != 4 && y[i] != 255;
                fours += y[i] == 4;
            }
            EXPECT_INT(bad, 0);
            EXPECT(fours > 0 && fours < count);
            volume_free(&out);
        }
        volume_free(&v);
    }
}

TEST(volume_nearest_halves_go_up)
{
    // every second centre of a half-spacing grid is halfway: 2 into 1 takes
    // the upper voxel of each pair, whatever the rounding of the affine
    for (int code = 0; code < CODES; code++) {
        Volume v, out;
        make(&v, 1, U8, code, 0.7);
        for (int i = 0; i < W * H * D; i++)
            ((uint8_t *)v.voxels.data)[i] = (uint8_t)(i % W);
        Grid g = volume_grid_resize(&v, 0, 0, W / 2);
        REQUIRE(volume_resample(&v, &g, NEAREST, 0, &out));
        for (int i = 0; i < W / 2 * H * D; i++)
            if (((uint8_t *)out.voxels.data)[i] != i % (W / 2) * 2 + 1)
                REQUIRE(!"upper voxel of the pair");
        volume_free(&out);
        volume_free(&v);
    }
}

TEST(volume_outside_is_clamped_to_the_type)
{
    static const struct {
        Dtype type;
        float outside;
        double want;
    } row[] = {
        {U8, 300, 255},      {U8, -1, 0},           {U8, 6.6f, 7},
        {U8, NAN, 0},        {I16, -40000, -32768}, {I16, 40000, 32767},
        {I16, -1024, -1024}, {I16, NAN, 0},         {F32, -1000.5f, -1000.5},
    };

    for (size_t r = 0; r < sizeof row / sizeof *row; r++) {
        Volume v, out;
        make(&v, 2, row[r].type, 3, 0);
        Grid g = fitted(&v, D + 4, H + 4, W + 4);
        REQUIRE(volume_resample(&v, &g, NEAREST, row[r].outside, &out));
        const void *y = out.voxels.data;
        size_t inside = (((size_t)2 * (H + 4) + 2) * (W + 4) + 2) * 2;
        for (int k = 0; k < 2; k++) {
            size_t at = k ? inside : 1;
            double got = row[r].type == U8    ? ((const uint8_t *)y)[at]
                         : row[r].type == I16 ? ((const int16_t *)y)[at]
                                              : ((const float *)y)[at];
            EXPECT_NEAR(got, k ? 0 : row[r].want, 0);
        }
        volume_free(&out);
        volume_free(&v);
    }
}

TEST(volume_fit_and_back_is_bit_equal)
{
    // padding to any larger size and fitting back returns every voxel
    for (int n = 1; n < 9; n++) {
        Volume v, padded, back;
        make(&v, 1, I16, n * 5, 0.2);
        fill_random(&v, (uint32_t)n);
        Grid g = fitted(&v, D + n, H + 2 * n - 1, W + n);
        REQUIRE(volume_resample(&v, &g, NEAREST, -99, &padded));
        Grid own = fitted(&padded, D, H, W);
        REQUIRE(volume_resample(&padded, &own, NEAREST, 0, &back));
        EXPECT(volume_same_grid(&v, &back));
        EXPECT(
            !memcmp(v.voxels.data, back.voxels.data, tensor_bytes(&v.voxels)));
        volume_free(&back);
        volume_free(&padded);
        volume_free(&v);
    }
}

TEST(volume_grids_have_the_stated_extents)
{
    Volume v, w;
    make(&v, 1, U8, 0, 0);
    double at[3] = {1.8, 0, 100}, edge[3], p[3], q[3];
    Grid g = volume_grid_at(&v, at);
    EXPECT_INT(g.w, 12);
    EXPECT_INT(g.h, H);
    EXPECT_INT(g.d, 1); // 40 mm of 100
    w = v, memcpy(w.affine, g.affine, sizeof g.affine);
    volume_spacing_mm(&w, edge);
    EXPECT_NEAR(edge[0], 1.8, 1e-12);
    EXPECT_NEAR(edge[1], 1.25, 1e-12);
    volume_world(&v, -0.5, -0.5, -0.5, p);
    volume_world(&w, -0.5, -0.5, -0.5, q);
    for (int k = 0; k < 3; k++) EXPECT_NEAR(p[k], q[k], 1e-9);
    at[0] = 1e-300;
    EXPECT_INT(volume_grid_at(&v, at).w, INT32_MAX);

    g = volume_grid_resize(&v, 5, 7, 9);
    memcpy(w.affine, g.affine, sizeof g.affine);
    volume_world(&v, W - 0.5, H - 0.5, D - 0.5, p);
    volume_world(&w, 8.5, 6.5, 4.5, q);
    for (int k = 0; k < 3; k++) EXPECT_NEAR(p[k], q[k], 1e-9);
    volume_free(&v);
}

TEST(volume_plane_is_as_radiologists_see_it)
{
    // the first column of a picture is the patient's right (or front), its
    // first row the front (or top), for each of the 48 codes
    static const char *want[] = {"LPS", "LIP", "PIL"};

    for (int code = 0; code < CODES; code++)
        for (int plane = AXIAL; plane <= SAGITTAL; plane++) {
            Volume v, out;
            char text[4];
            make(&v, 1, I16, code, 0.1);
            fill_random(&v, 1);
            Grid g = volume_grid_plane(&v, (Plane)plane);
            REQUIRE(volume_resample(&v, &g, NEAREST, 0, &out));
            EXPECT_TEXT(volume_code(&out, text), want[plane]);
            // every voxel occurs once: the sums agree
            int64_t sum[2] = {0};
            for (int i = 0; i < W * H * D; i++) {
                sum[0] += ((int16_t *)v.voxels.data)[i] * (int64_t)1;
                sum[1] += ((int16_t *)out.voxels.data)[i] * (int64_t)1;
            }
            EXPECT_INT(sum[0], sum[1]);
            EXPECT_INT(numel(out.voxels.dim), W * H * D);
            volume_free(&out);
            volume_free(&v);
        }
}

TEST(volume_axis_of_an_oblique_grid)
{
    // 45 degrees about z: both in-plane axes are equally near to x
    Volume v;
    char code[4], text[VOLUME_TEXT];

    make(&v, 1, U8, 0, 0);
    EXPECT_TEXT(volume_code(&v, code), "LPS");
    EXPECT_TEXT(volume_text(&v, text), "24x20x16, 0.9x1.25x2.5 mm, axial, "
                                       "axes LPS, origin (-31.5 12.2 80.1)");
    double s = sqrt(0.5);
    double m[3][3] = {{s, -s, 0}, {s, s, 0}, {0, 0, 1}};
    for (int r = 0; r < 3; r++) memcpy(v.affine[r], m[r], sizeof m[r]);
    EXPECT_INT(volume_axis(&v, 0) + volume_axis(&v, 1), 1);
    EXPECT_INT(volume_axis(&v, 2), 2);
    volume_free(&v);
}

TEST(volume_same_grid_tolerance)
{
    Volume a, b;
    make(&a, 1, U8, 5, 0.1);
    make(&b, 2, F32, 5, 0.1);
    EXPECT(volume_same_grid(&a, &b));
    b.affine[0][3] += 0.0089; // 1 % of 0.9 mm
    EXPECT(volume_same_grid(&a, &b));
    b.affine[0][3] += 0.0002;
    EXPECT_FAIL(volume_same_grid(&a, &b),
                "the grids differ in origin (corners 0.0091");
    EXPECT(err_kind() == ERR_DATA);
    b.affine[0][3] = NAN;
    EXPECT_FAIL(volume_same_grid(&a, &b), "the grids differ");
    volume_free(&b);

    // a small error of the spacing accumulates over the slices
    make(&b, 1, U8, 5, 0.1);
    for (int r = 0; r < 3; r++) b.affine[r][2] *= 1.0005;
    EXPECT_FAIL(volume_same_grid(&a, &b), "the grids differ");

    // mirrored: same corners, other order
    volume_free(&b);
    make(&b, 1, U8, 4, 0.1);
    EXPECT_FAIL(volume_same_grid(&a, &b), "the grids differ");
    b.voxels.dim.d--;
    EXPECT_FAIL(volume_same_grid(&a, &b), "24x20x16, 0.9x1.25x2.5 mm");
    EXPECT_FAIL(volume_same_grid(&a, &b), "24x20x15, 0.9x1.25x2.5 mm");
    volume_free(&b);
    volume_free(&a);
}

TEST(volume_refuses)
{
    Volume v, out;
    EXPECT_FAIL(volume_new(&v, (Dims){1, 0, 2, 2, 1}, U8), "is empty or");
    EXPECT(!v.voxels.data);
    int32_t big = INT32_MAX;
    EXPECT_FAIL(volume_new(&v, (Dims){1, big, big, big, 1}, F32),
                "larger than this machine");
    make(&v, 1, U8, 0, 0);
    Grid g = volume_grid(&v);
    for (int r = 0; r < 3; r++) v.affine[r][2] = v.affine[r][1];
    EXPECT_FAIL(volume_resample(&v, &g, NEAREST, 0, &out),
                "not three independent");
    v.affine[1][1] = NAN;
    EXPECT_FAIL(volume_resample(&v, &g, NEAREST, 0, &out), "not three");
    EXPECT(!out.voxels.data);
    volume_free(&v);
}

TEST(volume_without_memory)
{
    Volume v, out;
    make(&v, 1, U8, 0, 0);
    long live = mem_live();
    double at[3] = {2, 2, 2};
    Grid g = volume_grid_at(&v, at);
    for (int n = 0; n < 5; n++) {
        mem_fail_after(n, false);
        EXPECT_FAIL(volume_resample(&v, &g, LINEAR, 0, &out), "no memory");
        EXPECT_INT(mem_live(), live);
    }

    mem_fail_after(5, false);
    EXPECT(volume_resample(&v, &g, LINEAR, 0, &out));
    mem_fail_after(-1, false);
    volume_free(&out);
    volume_free(&v);
}

TEST(volume_affine_inverse)
{
    for (int code = 0; code < CODES; code++) {
        Volume v;
        double one[4][4];
        make(&v, 1, U8, code, 0.9);
        REQUIRE(affine_invert(v.affine, one));
        affine_multiply(v.affine, one, one);
        for (int i = 0; i < 4; i++)
            for (int k = 0; k < 4; k++) EXPECT_NEAR(one[i][k], i == k, 1e-12);
        volume_free(&v);
    }
}
