/* ops_random.c -- the distributions of normal and uniform, and on what their
 * numbers depend. */
#include "cpu/lib/kernels.h"
#include "cpu/lib/thread_pool.h"
#include "engine/base/normal.h"
#include "tests/support/op_call.h"

enum { COUNT = 200000 };

/* Draws COUNT numbers, in two samples; NULL on evaluation. */
static const double *drawn(Op op, bool eval, size_t backend, Arena *mem)
{
    OpValues out;
    OpCase c = {.attr = op_default(op), .rank = 1, .eval = eval};
    float *a = &c.attr.normal.mean;
    a[0] = 3, a[1] = op == OP_normal ? 2 : 5;
    c.x[0] = (Dims){2, 1, 1, COUNT / 8, 4};
    given_run(given_backend(backend), &c, (const double *[MAX_IN]){NULL}, NULL,
              mem, &out);
    return out.y;
}

/* The mean of ((v - mean) / deviation)^power. */
static double moment(const double *v, double mean, double deviation, int power)
{
    double sum = 0;
    for (int i = 0; i < COUNT; i++) {
        double term = 1;
        for (int k = 0; k < power; k++) term *= (v[i] - mean) / deviation;
        sum += term / COUNT;
    }
    return sum;
}

/* Bounds are six standard errors of each moment. */
TEST(moments_of_random_numbers)
{
    static const struct {
        Op op;
        double deviation, fourth;
    } row[2] = {{OP_normal, 2, 3}, {OP_uniform, 0.57735026918962573, 1.8}};
    const double error = 6 / sqrt(COUNT);
    Arena mem = {0};
    for (size_t i = 0; i < 4; i++) {
        const double *v = drawn(row[i / 2].op, false, i % 2, &mem);
        const double mean = row[i / 2].op == OP_normal ? 3 : 4;
        const double deviation = row[i / 2].deviation;
        EXPECT_NEAR(moment(v, mean, deviation, 1), 0, error);
        EXPECT_NEAR(moment(v, mean, deviation, 2), 1, error * 1.5);
        EXPECT_NEAR(moment(v, mean, deviation, 3), 0, error * 4);
        EXPECT_NEAR(moment(v, mean, deviation, 4), row[i / 2].fourth,
                    error * 10);
        // neighbours, and the two samples, have nothing in common
        double near = 0, far = 0;
        for (int k = 0; k < COUNT / 2; k++) {
            const double z = (v[k] - mean) / deviation;
            near += z * (v[k + 1] - mean) / deviation;
            far += z * (v[k + COUNT / 2] - mean) / deviation;
        }
        EXPECT_NEAR(near / (COUNT / 2), 0, error * 1.5);
        EXPECT_NEAR(far / (COUNT / 2), 0, error * 1.5);
        for (int k = 0; k < COUNT && row[i / 2].op == OP_uniform; k++)
            REQUIRE(v[k] >= 3 && v[k] <= 5);
    }
    arena_release(&mem);
}

TEST(random_numbers_in_evaluation)
{
    Arena mem = {0};
    for (size_t i = 0; i < 4; i++) {
        const double *v =
            drawn(i / 2 ? OP_uniform : OP_normal, true, i % 2, &mem);
        for (int k = 0; k < COUNT; k++) REQUIRE(v[k] == (i / 2 ? 4 : 3));
    }
    arena_release(&mem);
}

/* Box and Muller of the C library, at all 24 bits of the logarithm's operand
 * near its ends, and around the circle. */
TEST(normal_pair_is_box_and_muller)
{
    const Rng r = {.seed = 8, .stream = RNG_TEST};
    for (uint32_t i = 0; i < 300000; i++) {
        uint32_t word[2] = {rng_below(&r, 2 * i, 1u << 31) * 2,
                            rng_below(&r, 2 * i + 1, 1u << 31) * 2};
        if (i < 2000) word[0] = i << 8;
        if (i >= 2000 && i < 4000) word[0] = ~(i - 2000) << 8;
        if (i >= 4000 && i < 4256) word[1] = (i - 4000) << 24;
        float got[2];
        normal_pair(word, got);
        const double u = 1 - (double)(word[0] >> 8) / 16777216;
        const double angle =
            6.283185307179586477 * (double)(word[1] >> 8) / 16777216;
        const double radius = sqrt(-2 * log(u));
        REQUIRE(fabs(got[0] - radius * cos(angle)) < 1e-6);
        REQUIRE(fabs(got[1] - radius * sin(angle)) < 1e-6);
    }
}

/* Other numbers for another seed, step, sample of the batch, node, and
 * distribution; the same for the same. */
TEST(random_numbers_depend_on)
{
    enum { N = 64 };
    float v[7][N];
    const Attr attr[2] = {op_default(OP_normal), op_default(OP_uniform)};
    for (int i = 0; i < 7; i++) {
        const Step step = {
            .seed = i == 1, .count = i == 2, .shard = {.first = i == 3}};
        Tensor y = {{1, 1, 1, N, 1}, F32, 1, v[i]};
        Call c = {.attr = &attr[i == 5],
                  .step = &step,
                  .node = i == 4,
                  .train = true,
                  .x = {&y},
                  .y = &y};
        EXPECT(i == 5 ? plain_uniform_fwd(&c) : plain_normal_fwd(&c));
    }
    // a rank with the second sample of a batch draws what one process does
    float both[2][N];
    const Step step = {.seed = 0};
    Tensor y = {{2, 1, 1, N, 1}, F32, 1, both};
    EXPECT(plain_normal_fwd(&(Call){
        .attr = &attr[0], .step = &step, .train = true, .x = {&y}, .y = &y}));
    EXPECT(!memcmp(both[0], v[0], sizeof v[0]));
    EXPECT(!memcmp(both[1], v[3], sizeof v[3]));
    EXPECT(!memcmp(v[0], v[6], sizeof v[0]));
    for (int i = 1; i < 6; i++)
        for (int k = 0; k < N; k++) EXPECT(v[0][k] != v[i][k]);
}
