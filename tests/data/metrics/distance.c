/* distance.c -- tests of distance transforms, surface distances, ROC curves and
 * dose: against brute force, and against numpy and scipy (measure_golden.h). */
#include "data/distance.h"
#include "data/metrics/dvh.h"
#include "data/metrics/roc.h"
#include "data/metrics/surface.h"
#include "data/percentile.h"
#include "engine/base/rng.h"
#include "tests/golden/measure_golden.h"
#include "tests/test.h"

enum { D = 9, H = 20, W = 17, N = D * H * W };
static const Dims grid = {1, D, H, W, 1};
static const double mm[3] = {1.3, 0.7, 2.5}; // along w, h, d

/* Expects |got - want| to be small relative to want. */
static void expect_close(const char *what, double got, double want, double by)
{
    test_near(__FILE__, __LINE__, what, got, want, by * fmax(1, fabs(want)));
}

/* Sets 1 in the ellipsoid of measure_golden.py. */
static void ellipsoid(uint8_t *x, int cd, int ch, int cw, int rd, int rh,
                      int rw)
{
    for (int i = 0; i < N; i++) {
        const int d = i / (H * W) - cd, h = i / W % H - ch, w = i % W - cw;
        x[i] |= d * d * 3600 / (rd * rd) + h * h * 3600 / (rh * rh) +
                    w * w * 3600 / (rw * rw) <=
                3600;
    }
}

static void make_masks(uint8_t a[N], uint8_t b[N], uint8_t corner[N])
{
    memset(a, 0, N), memset(b, 0, N), memset(corner, 0, N);
    ellipsoid(a, 4, 9, 8, 3, 6, 5);
    ellipsoid(b, 5, 11, 7, 3, 5, 6);
    for (int i = 0; i < N; i++) b[i] |= i * 389 % 1009 < 3;
    ellipsoid(corner, 0, 0, 0, 4, 6, 5);
}

TEST(distance_is_that_of_scipy)
{
    static uint8_t mask[3][N];
    static double out[N];
    make_masks(mask[0], mask[1], mask[2]);

    for (int k = 0; k < 3; k++) {
        int64_t voxels = 0;
        double sum = 0, weighted = 0, most = 0;
        REQUIRE(distance_squared(mask[k], grid, mm, out));
        for (int i = 0; i < N; i++) {
            voxels += mask[k][i];
            sum += out[i];
            weighted += out[i] * (i * 7 % 31);
            most = fmax(most, out[i]);
        }
        EXPECT_INT(voxels, golden_voxels[k]);
        expect_close("sum", sum, golden_distance[3 * k], 1e-11);
        expect_close("weighted", weighted, golden_distance[3 * k + 1], 1e-11);
        expect_close("most", most, golden_distance[3 * k + 2], 1e-12);
    }
}

/* By definition: every voxel against every voxel of the set. */
static double brute(const uint8_t *set, Dims n, const double edge[3], int64_t i)
{
    double best = INFINITY;
    for (int64_t k = 0; k < positions(n); k++) {
        const double w = edge[0] * (double)(i % n.w - k % n.w);
        const double h = edge[1] * (double)(i / n.w % n.h - k / n.w % n.h);
        const double d =
            edge[2] * (double)(i / ((int64_t)n.w * n.h) - k / (n.w * n.h));
        if (set[k]) best = fmin(best, w * w + h * h + d * d);
    }
    return best;
}

TEST(distance_is_that_of_brute_force)
{
    static const struct {
        Dims n;
        double edge[3];
        int below; // of 1000 voxels
    } row[] = {
        {{1, 1, 1, 1, 1}, {1, 1, 1}, 1000}, {{1, 1, 1, 40, 1}, {0.3, 1, 1}, 60},
        {{1, 1, 33, 1, 1}, {1, 2, 1}, 60},  {{1, 12, 1, 1, 1}, {1, 1, 9}, 200},
        {{1, 1, 13, 11, 1}, {1, 3, 1}, 30}, {{1, 7, 9, 8, 1}, {1, 1, 1}, 5},
        {{1, 7, 9, 8, 1}, {0.1, 4, 7}, 20}, {{1, 5, 6, 7, 1}, {2, 2, 2}, 0},
        {{1, 6, 5, 9, 1}, {1, 1, 1}, 900},
    };
    static uint8_t set[1024];
    static double out[1024];

    for (size_t r = 0; r < sizeof row / sizeof *row; r++) {
        const int64_t all = positions(row[r].n);
        const Rng rng = {.seed = 11, .stream = RNG_TEST, .sample = (uint32_t)r};
        for (int64_t i = 0; i < all; i++)
            set[i] = (int)rng_below(&rng, (uint32_t)i, 1000) < row[r].below;
        REQUIRE(distance_squared(set, row[r].n, row[r].edge, out));
        for (int64_t i = 0; i < all; i++) {
            const double want = brute(set, row[r].n, row[r].edge, i);
            if (isinf(want))
                EXPECT(isinf(out[i]) && out[i] > 0);
            else
                expect_close("square", out[i], want, 1e-12);
        }
    }
}

/* Integer distances on isotropic voxels are exact. */
TEST(distance_of_whole_numbers_is_exact)
{
    static uint8_t a[N], b[N], corner[N];
    static double out[N];
    const double one[3] = {1, 1, 1};
    make_masks(a, b, corner);
    REQUIRE(distance_squared(b, grid, one, out));
    for (int i = 0; i < N; i += 7) EXPECT(out[i] == brute(b, grid, one, i));
}

static void expect_surface(const uint8_t *a, const uint8_t *b,
                           const double want[7])
{
    Surface s;
    REQUIRE(surface_compare(a, b, grid, mm, 1.5, &s));
    const double got[7] = {s.hd,     s.hd95, s.hd95_union, s.asd[0],
                           s.asd[1], s.assd, s.within};
    for (int i = 0; i < 7; i++) expect_close("surface", got[i], want[i], 1e-12);
}

TEST(surface_is_that_of_scipy)
{
    static uint8_t a[N], b[N], corner[N];
    make_masks(a, b, corner);
    expect_surface(a, b, golden_surface_ab);
    expect_surface(a, corner, golden_surface_a_corner);
    // the same with both swapped, except for the direction
    Surface s, t;
    REQUIRE(surface_compare(a, b, grid, mm, 1.5, &s));
    REQUIRE(surface_compare(b, a, grid, mm, 1.5, &t));
    EXPECT(s.hd95 == t.hd95 && s.assd == t.assd && s.within == t.within);
    EXPECT(s.asd[0] == t.asd[1] && s.asd[1] == t.asd[0]);
    EXPECT_INT(s.voxels[0], t.voxels[1]);
}

TEST(surface_of_the_same_and_of_nothing)
{
    static uint8_t a[N], b[N], corner[N], none[N];
    Surface s;
    make_masks(a, b, corner);
    REQUIRE(surface_compare(a, a, grid, mm, 0, &s));
    EXPECT(s.hd == 0 && s.hd95 == 0 && s.assd == 0 && s.within == 1);
    REQUIRE(surface_compare(a, none, grid, mm, 1, &s));
    EXPECT(isnan(s.hd) && isnan(s.hd95) && isnan(s.assd) && isnan(s.within));
    EXPECT(s.voxels[0] > 0 && s.voxels[1] == 0);
    REQUIRE(surface_compare(none, none, grid, mm, 1, &s));
    EXPECT(isnan(s.hd95) && s.voxels[0] == 0 && s.voxels[1] == 0);
}

/* Two pixels of a picture, three and four pixels apart; there is no surface
 * across the slice, which has no neighbours. */
TEST(surface_of_pictures)
{
    const Dims n = {1, 1, 10, 10, 1};
    const double edge[3] = {1, 1, 100};
    uint8_t a[100] = {0}, b[100] = {0}, full[100];
    Surface s;

    memset(full, 1, sizeof full);
    a[12] = 1, b[12 + 43] = 1;
    REQUIRE(surface_compare(a, b, n, edge, 4.9, &s));
    EXPECT_NEAR(s.hd95, 5, 1e-12);
    EXPECT_NEAR(s.within, 0, 0);

    // the surface of a full picture is its border, so the middle is 4 away
    a[12] = 0, a[44] = 1;
    REQUIRE(surface_compare(a, full, n, edge, 4, &s));
    EXPECT_NEAR(s.asd[0], 4, 1e-12);
}

TEST(surface_without_memory)
{
    static uint8_t a[N], b[N], corner[N];
    Surface s;
    make_masks(a, b, corner);
    const long live = mem_live();
    for (long k = 0; k < 10; k++) {
        mem_fail_after(k, false);
        EXPECT_FAIL(surface_compare(a, b, grid, mm, 1, &s), "memory");
    }
    mem_fail_after(10, false);
    EXPECT(surface_compare(a, b, grid, mm, 1, &s));
    mem_fail_after(-1, false);
    EXPECT_INT(mem_live(), live);
}

TEST(roc_is_that_of_ranks)
{
    static uint8_t a[N], b[N], corner[N];
    static float score[N];
    double area;

    make_masks(a, b, corner);
    for (int i = 0; i < N; i++) score[i] = (float)(i * 389 % 257) / 256 - 0.25f;
    REQUIRE(roc_area(score, b, N, &area));
    EXPECT_NEAR(area, golden_roc[0], 1e-14);
    for (int i = 0; i < N; i++) score[i] += (float)a[i];
    REQUIRE(roc_area(score, b, N, &area));
    EXPECT_NEAR(area, golden_roc[1], 1e-14);

    // every pair, for some of the scores
    double pairs = 0, right = 0;
    const int n = 1200;

    for (int i = 0; i < n; i++)
        for (int k = 0; k < n; k++) {
            if (!b[i + 900] || b[k + 900]) continue;
            pairs++;
            right += score[i + 900] > score[k + 900]    ? 1
                     : score[i + 900] == score[k + 900] ? 0.5
                                                        : 0;
        }

    REQUIRE(roc_area(score + 900, b + 900, n, &area));
    EXPECT_NEAR(area, right / pairs, 1e-14);
}

TEST(roc_of_one_kind_and_of_zeros)
{
    const float score[4] = {-0.0f, 0.0f, 3, -7};
    const uint8_t all[4] = {1, 1, 1, 1}, some[4] = {1, 0, 1, 0};
    double area;
    REQUIRE(roc_area(score, all, 4, &area));
    EXPECT(isnan(area));
    // of the pairs (-0, 0), (-0, -7), (3, 0), (3, -7) the first is a tie
    REQUIRE(roc_area(score, some, 4, &area));
    EXPECT_NEAR(area, 3.5 / 4, 0);
}

TEST(dvh_is_that_of_the_challenge)
{
    static uint8_t mask[3][N];
    static float dose[N], inside[N];
    static const double volume[3] = {2.5 * 0.7 * 1.3, 0.9 * 0.8 * 0.7, 100};

    make_masks(mask[0], mask[1], mask[2]);
    for (int i = 0; i < N; i++) dose[i] = (float)(i * 241 % 1021) / 16;

    for (int k = 0; k < 3; k++) {
        Dvh v;
        for (int i = 0; i < N; i++) inside[i] = mask[k][i];
        REQUIRE(dvh_points(dose, inside, N, volume[k], &v));
        const double got[5] = {v.d_01cc, v.mean, v.d_99, v.d_95, v.d_1};
        for (int j = 0; j < 5; j++)
            EXPECT_NEAR(got[j], golden_dvh[5 * k + j], 1e-10);
        EXPECT_INT(v.voxels, golden_voxels[k]);
    }

    memset(inside, 0, sizeof inside);
    Dvh v;
    REQUIRE(dvh_points(dose, inside, N, 1, &v));
    EXPECT(v.voxels == 0 && isnan(v.mean));
}

// Of 100 voxels with 0, 1, ... 99 Gy, (100 - d) % receive at least d Gy; of 40
// voxels with one dose, all receive that dose and none more.
TEST(dvh_curve_of_a_ramp_and_of_a_step)
{
    static float dose[140], ramp[140], flat[140], none[140];
    double percent[204];
    for (int i = 0; i < 140; i++) {
        dose[i] = i < 100 ? (float)i : 60;
        ramp[i] = i < 100, flat[i] = i >= 100;
    }
    EXPECT_INT(dvh_curve(dose, ramp, 140, 0, 0.5, 204, percent), 100);
    for (int k = 0; k < 204; k++)
        EXPECT_NEAR(percent[k], fmax(0, 100 - (k + 1) / 2), 0);
    EXPECT_INT(dvh_curve(dose, flat, 140, 0, 0.5, 204, percent), 40);
    for (int k = 0; k < 204; k++)
        EXPECT_NEAR(percent[k], k <= 120 ? 100 : 0, 0);

    // points that begin below and end before the doses; a dose equal to a point
    // counts for that point, however the quotient is rounded
    EXPECT_INT(dvh_curve(dose, flat, 140, -5, 0.1, 3, percent), 40);
    EXPECT_NEAR(percent[0], 100, 0);
    EXPECT_NEAR(percent[2], 100, 0);

    for (int k = 1; k < 200; k++) {
        const double step = 0.1 * k;
        dose[100] = (float)(7 * step);
        flat[100] = 1;
        for (int i = 101; i < 140; i++) flat[i] = 0;
        dvh_curve(dose, flat, 140, 0, step, 20, percent);
        for (int j = 0; j < 20; j++)
            EXPECT_NEAR(percent[j], (double)dose[100] >= j * step ? 100 : 0, 0);
    }

    EXPECT_INT(dvh_curve(dose, none, 140, 0, 1, 2, percent), 0);
    EXPECT(isnan(percent[0]) && isnan(percent[1]));

    // a dose that is not finite counts as none
    dose[0] = NAN, dose[1] = INFINITY;
    none[0] = none[1] = 1;
    dvh_curve(dose, none, 140, 0, 1, 2, percent);
    EXPECT_NEAR(percent[0], 50, 0);
    EXPECT_NEAR(percent[1], 50, 0);
}

TEST(percentile_between_ranks)
{
    double x[5] = {7, 1, 3, 3, -2};
    numbers_sort(x, 5);
    EXPECT_NEAR(percentile_of(x, 5, 0), -2, 0);
    EXPECT_NEAR(percentile_of(x, 5, 100), 7, 0);
    EXPECT_NEAR(percentile_of(x, 5, 95), 3 + 0.8 * 4, 1e-14);
    EXPECT_NEAR(percentile_of(x, 1, 95), -2, 0);
}
