/* beams.c -- tests of the rays of nine beams through targets with known
 * shadows. */
#include "data/datasets/beams.h"
#include "tests/test.h"
#include <math.h>
#include <string.h>

enum { E = OPENKBP_EDGE, PTV56 = OPENKBP_TARGET, PTV70 = PTV56 + 2 };

static int32_t at(int x, int y, int z)
{
    return z + E * (y + E * x);
}

/* A patient with empty grids. */
static OpenkbpPatient patient(double mm_x, double mm_y)
{
    OpenkbpPatient p = {.spacing_mm = {mm_x, mm_y, 3}};
    return p;
}

TEST(beams_meet_where_the_target_is)
{
    OpenkbpPatient p = patient(4, 4);
    int32_t voxel[2] = {at(20, 90, 7), at(100, 30, 9)};
    Volume v;

    p.grid[PTV70] = (SparseGrid){1, voxel, NULL};
    p.grid[PTV56] = (SparseGrid){1, voxel + 1, NULL};
    REQUIRE(openkbp_beams(&p, &v));
    EXPECT(dims_equal(v.voxels.dim, (Dims){1, E, E, E, 1}));
    EXPECT(v.unit == UNIT_GY);
    const float *b = v.voxels.data;

    // all nine beams pass through the target, one the line behind it, none
    // another slice
    EXPECT_NEAR(b[voxel[0]], 70, 1e-4);
    EXPECT_NEAR(b[voxel[1]], 56, 1e-4);
    EXPECT_NEAR(b[at(110, 90, 7)], 70.0 / 9, 1e-4);
    EXPECT_NEAR(b[at(5, 30, 9)], 56.0 / 9, 1e-4);
    EXPECT_NEAR(b[at(20, 110, 7)], 0, 0);
    double sum[E] = {0};
    for (int32_t i = 0; i < OPENKBP_VOXELS; i++) sum[i % E] += (double)b[i];
    for (int z = 0; z < E; z++) EXPECT((sum[z] > 0) == (z == 7 || z == 9));
    volume_free(&v);
}

/* For a round target, a beam is open up to the radius from its centre, for any
 * angle and voxel size. */
static void expect_round_shadow(double mm_x, double mm_y)
{
    static int32_t voxel[E * E];
    const double radius = 40, cx = 60, cy = 70;
    const double pi = 3.14159265358979323846;
    OpenkbpPatient p = patient(mm_x, mm_y);
    Volume v;
    int32_t n = 0;

    for (int x = 0; x < E; x++)
        for (int y = 0; y < E; y++)
            if (hypot((x - cx) * mm_x, (y - cy) * mm_y) <= radius)
                voxel[n++] = at(x, y, 3);
    p.grid[PTV70] = (SparseGrid){n, voxel, NULL};
    REQUIRE(openkbp_beams(&p, &v));
    const float *b = v.voxels.data;
    const double blur = 2 * fmax(mm_x, mm_y);

    for (int x = 0; x < E; x += 3)
        for (int y = 0; y < E; y += 3) {
            int least = 0, most = 0;
            for (int k = 0; k < BEAMS; k++) {
                // a beam of angle g comes from -cos g along x, sin g along y
                const double g = 40 * k * pi / 180;
                const double ux = cos(g) * (x - cx) * mm_x;
                const double uy = -sin(g) * (y - cy) * mm_y;
                const double along = ux + uy;
                const double far2 = pow((x - cx) * mm_x, 2) +
                                    pow((y - cy) * mm_y, 2) - along * along;
                const double away = sqrt(fmax(far2, 0));
                least += away < radius - blur;
                most += away < radius + blur;
            }
            const double got = (double)b[at(x, y, 3)] * BEAMS / 70;
            EXPECT(got > least - 1e-4 && got < most + 1e-4);
        }
    volume_free(&v);
}

TEST(beams_of_a_round_target)
{
    expect_round_shadow(4, 4);
    expect_round_shadow(2.5, 4);
    expect_round_shadow(5, 3);
}

TEST(beams_see_the_highest_prescription)
{
    OpenkbpPatient p = patient(4, 4);
    // both on one ray along x
    int32_t low = at(30, 64, 50), high = at(80, 64, 50);
    Volume v;

    p.grid[PTV56] = (SparseGrid){1, &low, NULL};
    p.grid[PTV70] = (SparseGrid){1, &high, NULL};
    REQUIRE(openkbp_beams(&p, &v));
    const float *b = v.voxels.data;
    EXPECT_NEAR(b[low], (8 * 56 + 70) / 9.0, 1e-4);
    EXPECT_NEAR(b[high], 70, 1e-4);
    EXPECT_NEAR(b[at(120, 64, 50)], 70.0 / 9, 1e-4);
    volume_free(&v);

    // in a corner no voxel but the two marks; a patient without targets is 0
    low = at(0, 0, 0), high = at(E - 1, E - 1, E - 1);
    REQUIRE(openkbp_beams(&p, &v));
    b = v.voxels.data;
    EXPECT_NEAR(b[low], 56, 1e-4);
    EXPECT_NEAR(b[high], 70, 1e-4);
    volume_free(&v);
    p = patient(4, 4);
    REQUIRE(openkbp_beams(&p, &v));
    for (int32_t i = 0; i < OPENKBP_VOXELS; i++)
        if (((float *)v.voxels.data)[i] != 0) EXPECT(false);
    volume_free(&v);
}

TEST(beams_without_memory)
{
    const OpenkbpPatient p = patient(4, 4);
    const long live = mem_live();
    Volume v;
    int k = 0;

    for (bool ok = false; !ok; k++) {
        mem_fail_after(k, false);
        ok = openkbp_beams(&p, &v);
        mem_fail_after(-1, false);
        if (ok) volume_free(&v);
        EXPECT_INT(mem_live(), live);
    }
    EXPECT(k > 2);
}
