/* phantom_dose.c -- tests of synthetic plans: a function of their numbers, with
 * contours that are sometimes missing and a dose that follows them, in the
 * files of the challenge. */
#include "data/phantom/dose.h"
#include "engine/base/file.h"
#include "tests/test.h"

static Phantom six(void)
{
    return (Phantom){.form = phantom_form("openkbp"),
                     .number = {6},
                     .seed = 3,
                     .noise = 0.02,
                     .threads = 2};
}

/* Mean of a grid over the voxels where another is above 0. */
static double mean_in(const RadioPlan *p, int grid, int where)
{
    double sum = 0, n = 0;
    for (int i = 0; i < OPENKBP_VOXELS; i++)
        if (p->grid[where][i] > 0) sum += (double)p->grid[grid][i], n++;
    return n > 0 ? sum / n : -1;
}

TEST(phantom_dose_is_a_function_of_its_options)
{
    const size_t each = sizeof(float) * OPENKBP_VOXELS;
    Phantom how = six();
    RadioPlan p[4];
    REQUIRE(dose_make(&how, 1, &p[0]) && dose_make(&how, 1, &p[1]) &&
            dose_make(&how, 2, &p[2]));
    how.seed++;
    REQUIRE(dose_make(&how, 1, &p[3]));
    EXPECT(!memcmp(p[0].grid[0], p[1].grid[0], OPENKBP_GRIDS * each));
    EXPECT(memcmp(p[0].grid[OPENKBP_DOSE], p[2].grid[OPENKBP_DOSE], each));
    EXPECT(memcmp(p[0].grid[OPENKBP_DOSE], p[3].grid[OPENKBP_DOSE], each));
    for (int i = 0; i < 4; i++) dose_free(&p[i]);
}

TEST(phantom_dose_follows_the_targets)
{
    enum { CORD = OPENKBP_STRUCTURE + 1, PTV56 = OPENKBP_TARGET };
    Phantom how = six();
    int missing = 0;

    for (int k = 0; k < 6; k++) {
        RadioPlan p;
        REQUIRE(dose_make(&how, k, &p));
        for (int i = 0; i < OPENKBP_VOXELS; i++) {
            const float dose = p.grid[OPENKBP_DOSE][i];
            // dose exactly where it is possible, and inside the body
            EXPECT((dose > 0) == (p.grid[OPENKBP_POSSIBLE][i] > 0));
            EXPECT(dose == 0 || p.grid[OPENKBP_CT][i] > 0);
            EXPECT(dose <= 80);
        }
        for (int g = OPENKBP_STRUCTURE; g < OPENKBP_GRIDS; g++) {
            missing += !p.has[g];
            // missing contours are empty, others have voxels
            EXPECT(p.has[g] == (mean_in(&p, OPENKBP_CT, g) > 0));
        }
        EXPECT(p.has[PTV56 + 2]);
        for (int t = 0; t < 3; t++) {
            const double mean = mean_in(&p, OPENKBP_DOSE, PTV56 + t);
            if (p.has[PTV56 + t]) EXPECT_NEAR(mean, 56 + 7 * t, 3);
        }
        if (p.has[CORD]) EXPECT(mean_in(&p, OPENKBP_DOSE, CORD) < 30);
        dose_free(&p);
    }
    EXPECT(missing >= 6 && missing <= 36);
}

TEST(phantom_dose_without_memory)
{
    Phantom how = six();
    RadioPlan p;
    long live = mem_live(), n = 0;
    for (bool ok = false; !ok && n < 20; n += !ok) {
        mem_fail_after(n, false);
        ok = dose_make(&how, 0, &p);
        mem_fail_after(-1, false);
        if (ok) dose_free(&p);
        EXPECT(mem_live() == live);
    }
    EXPECT(n >= 3 && n < 20);
}

TEST(phantom_dose_reads_back)
{
    char one[512], three[512], path[1024];
    snprintf(one, sizeof one, "%s/plans_1", test_folder());
    snprintf(three, sizeof three, "%s/plans_3", test_folder());
    Phantom how = six();
    how.number[0] = 2, how.threads = 1;
    REQUIRE(phantom_write(one, &how, NULL));
    how.threads = 3;
    REQUIRE(phantom_write(three, &how, NULL));

    for (int k = 0; k < 2; k++) {
        RadioPlan made;
        OpenkbpPatient read;
        static float grid[OPENKBP_VOXELS];
        snprintf(path, sizeof path, "%s/pt_%d", one, k + 1);
        REQUIRE(dose_make(&how, k, &made));
        REQUIRE(openkbp_read(path, OPENKBP_ALL, true, &read));
        for (int g = 0; g < OPENKBP_GRIDS; g++) {
            EXPECT(read.has[g] == made.has[g]);
            memset(grid, 0, sizeof grid);
            openkbp_scatter(&read.grid[g], grid, 1);
            EXPECT(!memcmp(grid, made.grid[g], sizeof grid));
        }
        for (int a = 0; a < 3; a++)
            EXPECT_NEAR(read.spacing_mm[a], made.spacing_mm[a], 0);
        openkbp_free(&read);
        dose_free(&made);
        Arena mem = {0};
        char *a, *b;
        size_t bytes_a, bytes_b;
        snprintf(path, sizeof path, "%s/pt_%d/ct.csv", one, k + 1);
        REQUIRE(file_read(path, 1 << 24, &mem, &a, &bytes_a));
        snprintf(path, sizeof path, "%s/pt_%d/ct.csv", three, k + 1);
        REQUIRE(file_read(path, 1 << 24, &mem, &b, &bytes_b));
        EXPECT(bytes_a == bytes_b && !memcmp(a, b, bytes_a));
        arena_release(&mem);
    }
}
