/* Philox against its published vectors, and the properties that training relies
 * on: ranges, uniformity, normal moments, permutations, and streams without
 * common draws. The statistical bounds are five standard errors; the numbers
 * are fixed, so a test passes always or never. */
#include "engine/base/rng.h"
#include "tests/test.h"
#include <stdlib.h>

enum { DRAWS = 200000 };

TEST(rng_known_answers)
{
    // philox4x32, 10 rounds: Random123 1.14, tests/kat_vectors
    static const uint32_t row[][10] = {
        {0, 0, 0, 0, 0, 0, 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8},
        {~0u, ~0u, ~0u, ~0u, ~0u, ~0u, 0x408f276d, 0x41c83b0e, 0xa20bc7c6,
         0x6d5451fd},
        {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344, 0xa4093822, 0x299f31d0,
         0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1},
    };

    for (int r = 0; r < 3; r++) {
        const uint32_t *c = row[r];
        Rng rng = {.seed = (uint64_t)c[5] << 32 | c[4],
                   .stream = (uint16_t)(c[3] >> 16),
                   .op = (uint16_t)c[3],
                   .epoch = c[2],
                   .sample = c[1]};
        uint32_t out[4];
        rng_block(&rng, c[0], out);
        for (int i = 0; i < 4; i++) EXPECT_INT(out[i], c[6 + i]);
    }
}

TEST(rng_unit_range)
{
    EXPECT(rng_unit(0) == 0);
    EXPECT(rng_unit(~0u) < 1 && rng_unit(~0u) > 0.9999999f);
    Rng r = {.seed = 1, .stream = RNG_TEST};
    for (uint32_t i = 0; i < DRAWS; i++) {
        float u = rng_uniform(&r, i), v = rng_range(&r, i, -3, 5);
        if (!(u >= 0 && u < 1 && v >= -3 && v < 5)) REQUIRE(!"in range");
    }
    EXPECT_INT(rng_below(&r, 7, 1), 0);
}

TEST(rng_four_at_once)
{
    Rng r = {.seed = 1, .stream = RNG_TEST};
    for (uint32_t i = 0; i < 1000; i++) {
        float four[4];
        rng_range4(&r, i, -0.1f, 0.3f, four);
        for (uint32_t k = 0; k < 4; k++)
            EXPECT(four[k] == rng_range(&r, 4 * i + k, -0.1f, 0.3f));
    }
}

TEST(rng_uniform_cells)
{
    // chi squared over 256 cells: mean 255, standard deviation 22.6
    enum { CELLS = 256 };
    Rng r = {.seed = 42, .stream = RNG_TEST};
    int unit[CELLS] = {0}, below[CELLS] = {0};

    for (uint32_t i = 0; i < DRAWS; i++) {
        unit[(int)(rng_uniform(&r, i) * CELLS)]++;
        uint32_t b = rng_below(&r, DRAWS + i, CELLS);
        REQUIRE(b < CELLS);
        below[b]++;
    }

    double want = (double)DRAWS / CELLS, x = 0, y = 0;
    for (int i = 0; i < CELLS; i++) {
        x += (unit[i] - want) * (unit[i] - want) / want;
        y += (below[i] - want) * (below[i] - want) / want;
    }
    EXPECT_NEAR(x, 255, 5 * 22.6);
    EXPECT_NEAR(y, 255, 5 * 22.6);
}

TEST(rng_normal_moments)
{
    Rng r = {.seed = 7, .stream = RNG_TEST};
    double m[5] = {0}, lag = 0, last = 0;

    for (uint32_t i = 0; i < DRAWS; i++) {
        double x = rng_normal(&r, i), power = 1;
        REQUIRE(isfinite(x));
        for (int k = 0; k < 5; k++, power *= x) m[k] += power / DRAWS;
        lag += x * last / DRAWS;
        last = x;
    }

    // variances of x, x^2, x^3 and x^4 are 1, 2, 15 and 96
    double se = 1 / sqrt(DRAWS);
    EXPECT_NEAR(m[1], 0, 5 * se);
    EXPECT_NEAR(m[2], 1, 5 * se * sqrt(2));
    EXPECT_NEAR(m[3], 0, 5 * se * sqrt(15));
    EXPECT_NEAR(m[4], 3, 5 * se * sqrt(96));
    EXPECT_NEAR(lag, 0, 5 * se);
}

TEST(rng_normal_is_its_pair)
{
    Rng r = {.seed = 7, .stream = RNG_TEST};
    float pair[2];
    for (uint32_t i = 0; i < 64; i++) {
        rng_normal_pair(&r, i, pair);
        EXPECT(rng_normal(&r, 2 * i) == pair[0]);
        EXPECT(rng_normal(&r, 2 * i + 1) == pair[1]);
    }
}

TEST(rng_permutation_is_one)
{
    enum { N = 1000 };
    uint32_t order[N], again[N];
    Rng r = {.seed = 5, .stream = RNG_SHUFFLE, .epoch = 3};
    bool seen[N] = {false};
    rng_permutation(&r, N, order);
    int fixed = 0;
    for (uint32_t i = 0; i < N; i++) {
        REQUIRE(order[i] < N && !seen[order[i]]);
        seen[order[i]] = true;
        fixed += order[i] == i;
    }

    EXPECT(fixed < 8); // a random order has one fixed point on average
    rng_permutation(&r, N, again);
    EXPECT(!memcmp(order, again, sizeof order));
    r.epoch = 4;
    rng_permutation(&r, N, again);
    EXPECT(memcmp(order, again, sizeof order));
    rng_permutation(&r, 1, order);
    EXPECT_INT(order[0], 0);
}

TEST(rng_permutation_has_all_orders)
{
    // 24 orders of 4: chi squared with 23 degrees, standard deviation 6.8
    enum { TRIES = 24000 };
    int count[256] = {0};
    double x = 0;

    for (uint32_t e = 0; e < TRIES; e++) {
        Rng r = {.seed = 9, .stream = RNG_SHUFFLE, .epoch = e};
        uint32_t o[4];
        rng_permutation(&r, 4, o);
        count[o[0] | o[1] << 2 | o[2] << 4 | o[3] << 6]++;
    }

    int orders = 0;
    for (int i = 0; i < 256; i++) {
        if (!count[i]) continue;
        orders++;
        x += (count[i] - TRIES / 24.0) * (count[i] - TRIES / 24.0) /
             (TRIES / 24.0);
    }

    EXPECT_INT(orders, 24);
    EXPECT_NEAR(x, 23, 5 * 6.8);
}

static int compare(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;
    return *x < *y ? -1 : *x > *y;
}

TEST(rng_streams_do_not_overlap)
{
    // change one coordinate at a time: the counters differ, so the blocks do.
    // 128-bit blocks are compared by 64 bits; equal halves by chance 1e-12.
    enum { EACH = 1000, KINDS = 6 };
    static uint64_t seen[EACH * KINDS];

    for (uint32_t i = 0; i < EACH * KINDS; i++) {
        uint32_t k = i / KINDS + 1, out[4], block = 0;
        Rng r = {.seed = 3, .stream = RNG_TEST};
        switch (i % KINDS) {
        case 0:
            r.seed += (uint64_t)k << 32;
            break;
        case 1:
            r.stream = (uint16_t)(RNG_USER + k);
            break;
        case 2:
            r.op = (uint16_t)k;
            break;
        case 3:
            r.epoch = k;
            break;
        case 4:
            r.sample = k;
            break;
        default:
            block = k;
        }
        rng_block(&r, block, out);
        seen[i] = (uint64_t)out[0] << 32 | out[1];
    }

    qsort(seen, EACH * KINDS, sizeof *seen, compare);
    for (int i = 1; i < EACH * KINDS; i++)
        if (seen[i] == seen[i - 1]) REQUIRE(!"distinct blocks");
}

TEST(rng_streams_are_not_correlated)
{
    for (int s = RNG_INIT; s < RNG_USER; s++) {
        Rng a = {.seed = 11, .stream = (uint16_t)s};
        Rng b = {.seed = 11, .stream = (uint16_t)(s + 1)};
        double sum = 0;
        for (uint32_t i = 0; i < 20000; i++)
            sum += rng_normal(&a, i) * rng_normal(&b, i);
        EXPECT_NEAR(sum / 20000, 0, 5 / sqrt(20000));
    }
}

TEST(rng_hash_is_fnv1a)
{
    EXPECT_INT(rng_hash(""), 0x811c9dc5);
    EXPECT_INT(rng_hash("a"), 0xe40c292c);
    EXPECT_INT(rng_hash("foobar"), 0xbf9cf968);
}
