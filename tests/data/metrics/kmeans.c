/* kmeans.c -- tests of clustering, silhouette, and assignment of the groups of
 * two clusterings. */
#include "data/metrics/kmeans.h"
#include "engine/base/rng.h"
#include "tests/test.h"
#include <stdlib.h>

enum { COUNT = 120, DIM = 7, K = 4 };

/* Point i lies within 1 of corner i mod K, corners at distance `apart`. */
static void draw_points(float x[COUNT * DIM], float apart)
{
    Rng r = {.seed = 5, .stream = RNG_TEST};
    for (int i = 0; i < COUNT; i++)
        for (int d = 0; d < DIM; d++)
            x[i * DIM + d] =
                rng_range(&r, (uint32_t)(i * DIM + d), -0.5f, 0.5f) +
                (d == i % K ? apart : 0);
}

TEST(kmeans_finds_planted_groups)
{
    float x[COUNT * DIM];
    draw_points(x, 5);
    Points p = {x, COUNT, DIM};

    for (uint64_t seed = 0; seed < 5; seed++) {
        KMeans how = {.k = K, .starts = 10, .steps = 100, .seed = seed};
        int32_t group[COUNT];
        double spread, apart;
        REQUIRE(kmeans_run(&p, &how, group, &spread));
        // numbered by their first points, whatever the random start
        for (int i = 0; i < COUNT; i++) EXPECT_INT(group[i], i % K);
        // per point, DIM squares of a number in [-1/2, 1/2), mean 1/12
        EXPECT_NEAR(spread / COUNT, DIM / 12.0, 0.1);
        REQUIRE(silhouette(&p, group, K, COUNT, 1, &apart));
        EXPECT(apart > 0.7 && apart < 1);
        double some;
        REQUIRE(silhouette(&p, group, K, COUNT / 2, 1, &some));
        EXPECT_NEAR(some, apart, 0.05);
        EXPECT(some != apart);
    }
}

TEST(kmeans_same_bytes_twice)
{
    float x[COUNT * DIM];
    draw_points(x, 0.3f); // no distinct groups: starts differ
    Points p = {x, COUNT, DIM};
    int32_t a[COUNT], b[COUNT];
    double one, again, more;
    KMeans how = {.k = K, .starts = 1, .steps = 100, .seed = 9};
    REQUIRE(kmeans_run(&p, &how, a, &one) && kmeans_run(&p, &how, b, &again));
    EXPECT(one == again && memcmp(a, b, sizeof a) == 0);
    how.starts = 20;
    REQUIRE(kmeans_run(&p, &how, b, &more));
    EXPECT(more < one);
}

/* On a line: 0 1 | 10 12 | 30. Sums of squares 1/2 + 2, and s by its formula.
 */
TEST(kmeans_by_hand)
{
    const float x[5] = {30, 10, 0, 12, 1};
    Points p = {x, 5, 1};
    KMeans how = {.k = 3, .starts = 10, .steps = 10};
    int32_t group[5];
    const int32_t want[5] = {0, 1, 2, 1, 2};
    double spread, apart;

    REQUIRE(kmeans_run(&p, &how, group, &spread));
    for (int i = 0; i < 5; i++) EXPECT_INT(group[i], want[i]);
    EXPECT_NEAR(spread, 2.5, 1e-12);
    double s = 0 + (9.5 - 2) / 9.5 + (11 - 1) / 11.0 + (11.5 - 2) / 11.5 +
               (10 - 1) / 10.0;
    REQUIRE(silhouette(&p, group, 3, 5, 0, &apart));
    EXPECT_NEAR(apart, s / 5, 1e-12);

    // as many groups as points; and one group
    how.k = 5;
    REQUIRE(kmeans_run(&p, &how, group, &spread));
    for (int i = 0; i < 5; i++) EXPECT_INT(group[i], i);
    EXPECT_NEAR(spread, 0, 0);
    how.k = 1;
    REQUIRE(kmeans_run(&p, &how, group, &spread));
    REQUIRE(silhouette(&p, group, 1, 5, 0, &apart));
    EXPECT_NEAR(apart, 0, 0);
}

/* With a limit of one step, one of the groups loses all its points. */
TEST(kmeans_that_ends_early_has_all_groups)
{
    const float x[24] = {1, 2, 8, 11, 0, 3, 0, 6, 2,  3, 8, 11,
                         0, 2, 5, 8,  7, 6, 9, 4, 10, 2, 8, 6};
    Points p = {x, 12, 2};
    KMeans how = {.k = 3, .starts = 1, .steps = 1, .seed = 56613};
    int32_t group[12];
    int members[3] = {0};
    double spread;
    REQUIRE(kmeans_run(&p, &how, group, &spread));
    for (int i = 0; i < 12; i++) members[group[i]]++;
    for (int g = 0; g < 3; g++) EXPECT(members[g] > 0);
}

TEST(kmeans_refuses)
{
    float x[4] = {1, 1, 1, 2};
    Points p = {x, 4, 1};
    int32_t group[4];
    double spread;
    KMeans how = {.k = 3, .starts = 3, .steps = 10};

    EXPECT_FAIL(kmeans_run(&p, &how, group, &spread),
                "3 groups, but only 2 different points");
    how.k = 5;
    EXPECT_FAIL(kmeans_run(&p, &how, group, &spread), "5 groups of 4 points");
    how.k = 2, x[2] = NAN;
    EXPECT_FAIL(kmeans_run(&p, &how, group, &spread), "number 1 of point 3 is");
    EXPECT(err_kind() == ERR_DIVERGED);
}

TEST(kmeans_without_memory)
{
    float x[COUNT * DIM];
    draw_points(x, 5);
    Points p = {x, COUNT, DIM};
    KMeans how = {.k = K, .starts = 2, .steps = 10};
    int32_t group[COUNT], match[K];
    double spread, mean, count[K * K] = {0};
    long live = mem_live();

    for (long after = 0; after < 2; after++) {
        mem_fail_after(after, true);
        bool ok = kmeans_run(&p, &how, group, &spread);
        mem_fail_after(-1, false);
        EXPECT(ok == (after > 0)); // one block of memory has everything
        mem_fail_after(0, true);
        EXPECT(!assign_groups(count, K, match));
        EXPECT(!silhouette(&p, group, K, COUNT, 0, &mean));
        mem_fail_after(-1, false);
    }
    EXPECT_INT(mem_live(), live);
}

/* The best of all permutations of 0 .. k-1, by exhaustive search. */
static double best_of_all(const double *count, int k, int row, unsigned taken)
{
    if (row == k) return 0;
    double best = -1e300;
    for (int b = 0; b < k; b++) {
        if (taken >> b & 1) continue;
        double sum = count[row * k + b] +
                     best_of_all(count, k, row + 1, taken | 1u << b);
        if (sum > best) best = sum;
    }
    return best;
}

TEST(kmeans_assignment_is_the_best_of_all)
{
    for (int trial = 0; trial < 200; trial++) {
        Rng r = {.seed = 3, .stream = RNG_TEST, .sample = (uint32_t)trial};
        int k = 1 + trial % 6;
        double count[36], sum = 0;
        int32_t match[6];
        for (int i = 0; i < k * k; i++)
            count[i] = rng_below(&r, (uint32_t)i, 9);
        REQUIRE(assign_groups(count, k, match));
        unsigned taken = 0;
        for (int a = 0; a < k; a++) {
            REQUIRE(match[a] >= 0 && match[a] < k);
            taken |= 1u << match[a];
            sum += count[a * k + match[a]];
        }
        EXPECT_INT(taken, (1u << k) - 1); // one to one
        EXPECT_NEAR(sum, best_of_all(count, k, 0, 0), 0);
    }
}
