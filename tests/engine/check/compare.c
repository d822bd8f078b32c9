/* compare.c -- tests of compare.h: accepted and rejected arrays. */
#include "engine/check/compare.h"
#include "tests/test.h"

static bool near(Bound b, double got, double want, double scale)
{
    Judge j = {.bound = b, .scale = &scale, .chain = 27};
    return compare_arrays(&j, &got, &want, 1).ok;
}

static const Bound bounds[] = {BOUND_dot, BOUND_ulp, BOUND_exact, BOUND_nmse};

TEST(judge_nan_never_passes)
{
    for (int i = 0; i < 4; i++) {
        EXPECT(!near(bounds[i], NAN, 1, 1));
        EXPECT(!near(bounds[i], 1, NAN, 1));
        EXPECT(!near(bounds[i], NAN, NAN, 1));
        EXPECT(!near(bounds[i], NAN, 0, 0));
    }

    EXPECT(!near(BOUND_dot, 1, 1.5, NAN));

    // one bad element among good ones, at any index
    for (int at = 0; at < 5; at++) {
        double want[5] = {1, 2, 3, 4, 5}, got[5] = {1, 2, 3, 4, 5};
        got[at] = NAN;
        for (int i = 0; i < 4; i++) {
            Judge j = {.bound = bounds[i], .scale = want};
            Verdict v = compare_arrays(&j, got, want, 5);
            EXPECT(!v.ok);
            EXPECT_INT(v.at, at);
        }
    }
}

TEST(judge_infinity)
{
    EXPECT(near(BOUND_exact, INFINITY, INFINITY, 1));
    EXPECT(near(BOUND_ulp, -INFINITY, -INFINITY, 1));
    EXPECT(!near(BOUND_dot, INFINITY, INFINITY, 1));
    EXPECT(!near(BOUND_nmse, INFINITY, INFINITY, 1));
    for (int i = 0; i < 4; i++) {
        EXPECT(!near(bounds[i], INFINITY, -INFINITY, 1));
        EXPECT(!near(bounds[i], INFINITY, 1, 1));
        EXPECT(!near(bounds[i], 1, INFINITY, 1));
    }
    // an infinite scale must not excuse a NaN
    EXPECT(!near(BOUND_dot, NAN, 1, INFINITY));
}

TEST(judge_zero)
{
    for (int i = 0; i < 4; i++) {
        EXPECT(near(bounds[i], 0, 0, 0));
        EXPECT(near(bounds[i], -0.0, 0, 0));
        EXPECT(near(bounds[i], 0, -0.0, 0));
        EXPECT(!near(bounds[i], 1e-20, 0, 0));
        EXPECT(!near(bounds[i], 0, 1, 1));
    }
}

/* A fraction of the largest element, at any index; NaN and zeros as before. */
TEST(judge_blur)
{
    double want[3] = {1, -1000, 0}, scale[3] = {0}, got[3];
    Judge j = {.bound = BOUND_dot, .scale = scale, .blur = 1e-4};

    for (int i = 0; i < 3; i++) {
        memcpy(got, want, sizeof got);
        got[i] += 0.099;
        EXPECT(compare_arrays(&j, got, want, 3).ok);
        got[i] += 0.002;
        EXPECT(!compare_arrays(&j, got, want, 3).ok);
        got[i] = NAN;
        EXPECT(!compare_arrays(&j, got, want, 3).ok);
    }

    double zero = 0, tiny = 1e-30;
    EXPECT(compare_arrays(&j, &zero, &zero, 1).ok);
    EXPECT(!compare_arrays(&j, &tiny, &zero, 1).ok);
}

/* A result in bf16, rounded to 2^-8 of it, and near 0 to 2^-8 of `least`. */
TEST(judge_stored)
{
    double want = 3, scale = 3, got;
    Judge j = {.bound = BOUND_dot, .scale = &scale, .chain = 1};
    got = 3 + 0.99 * 3 * 0x1p-8;
    EXPECT(!compare_arrays(&j, &got, &want, 1).ok);
    j.stored = 0x1p-8, j.least = 0x1p-14;
    EXPECT(compare_arrays(&j, &got, &want, 1).ok);
    got = 3 + 1.01 * 3 * 0x1p-8;
    EXPECT(!compare_arrays(&j, &got, &want, 1).ok);
    want = scale = 0x1p-30, got = want + 0.99 * 0x1p-22;
    EXPECT(compare_arrays(&j, &got, &want, 1).ok);
    got = want + 1.01 * 0x1p-22;
    EXPECT(!compare_arrays(&j, &got, &want, 1).ok);
    got = NAN;
    EXPECT(!compare_arrays(&j, &got, &want, 1).ok);
}

TEST(judge_empty)
{
    double one = 1;
    for (int i = 0; i < 4; i++) {
        Judge j = {.bound = bounds[i], .scale = &one};
        EXPECT(!compare_arrays(&j, &one, &one, 0).ok);
    }
}

TEST(judge_exact)
{
    EXPECT(near(BOUND_exact, (float)0.1, 0.1, 1));
    EXPECT(!near(BOUND_exact, 0.1, 0.1, 1)); // not a float
    EXPECT(!near(BOUND_exact, nextafterf(0.1f, 1), 0.1, 1));
}

TEST(judge_ulp)
{
    double u = 0x1p-23;
    EXPECT(near(BOUND_ulp, 1 + 4 * u, 1, 1));
    EXPECT(!near(BOUND_ulp, 1 + 5 * u, 1, 1));
    EXPECT(near(BOUND_ulp, -1 - 4 * u, -1, 1));
    EXPECT(!near(BOUND_ulp, 1, -1, 1));
    EXPECT(near(BOUND_ulp, 0x1p-149, 0, 1)); // below the smallest normal float
    EXPECT_NEAR(float_spacing(1), 0x1p-23, 0);
    EXPECT_NEAR(float_spacing(1.99), 0x1p-23, 0);
    EXPECT_NEAR(float_spacing(-2), 0x1p-22, 0);
    EXPECT_NEAR(float_spacing(0x1p-126), 0x1p-149, 0);
    EXPECT_NEAR(float_spacing(0), 0x1p-149, 0);
}

TEST(judge_dot)
{
    // u (4 sqrt(chain) + 8) scale, with 1024 the longest chain
    double u = 0x1p-24, want = 0, scale = 2, got = 12 * u * 2;
    Judge j = {.bound = BOUND_dot, .scale = &scale, .chain = 1};

    EXPECT(compare_arrays(&j, &got, &want, 1).ok);
    got *= 1.001;
    EXPECT(!compare_arrays(&j, &got, &want, 1).ok);
    j.chain = 1e9, got = 136 * u * 2;
    EXPECT(compare_arrays(&j, &got, &want, 1).ok);
    got *= 1.001;
    EXPECT(!compare_arrays(&j, &got, &want, 1).ok);

    // rounding of a large result
    EXPECT(near(BOUND_dot, 1e6 + 0.05, 1e6, 0));
    EXPECT(!near(BOUND_dot, 1e6 + 0.07, 1e6, 0));
}

TEST(judge_nmse)
{
    double want[4] = {1, -1, 1, -1}, got[4] = {1, -1, 1, -1};
    Judge j = {.bound = BOUND_nmse};
    got[2] += 1.9e-5; // of 2e-5 = sqrt(1e-10 * 4)
    EXPECT(compare_arrays(&j, got, want, 4).ok);
    got[2] += 2e-6;
    EXPECT(!compare_arrays(&j, got, want, 4).ok);
    j.floor = 2e-5;
    EXPECT(compare_arrays(&j, got, want, 4).ok);
    got[0] = 2;
    EXPECT(!compare_arrays(&j, got, want, 4).ok);
}

/* The allowed error of an element is subtracted from its error, not from
 * others. */
TEST(judge_nmse_room)
{
    double want[4] = {1, -1, 1, -1}, got[4] = {1, -1, 1.001, -1};
    double room[4] = {0, 0, 0.001, 0};
    Judge j = {.bound = BOUND_nmse};

    EXPECT(!compare_arrays(&j, got, want, 4).ok);
    j.room = room;
    EXPECT(compare_arrays(&j, got, want, 4).ok);
    got[2] += 2.1e-5;
    EXPECT(!compare_arrays(&j, got, want, 4).ok);
    got[2] = 1, got[1] = -1.001;
    EXPECT(!compare_arrays(&j, got, want, 4).ok);
    got[1] = NAN, room[1] = INFINITY;
    EXPECT(!compare_arrays(&j, got, want, 4).ok);
}

/* A result below the smallest positive float is 0 in float. */
TEST(judge_below_the_least_float)
{
    for (int i = 0; i < 4; i++) {
        EXPECT(near(bounds[i], 0, 1e-50, 1e-50));
        EXPECT(!near(bounds[i], 0, 1e-40, 0) || bounds[i] == BOUND_ulp);
    }
}
