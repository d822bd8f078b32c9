/* simd_random.c -- random words and dropout of each instruction set equal the
 * plain loops bit for bit, also in the tails of vectors, blocks and tasks. */
#include "cpu/lib/thread_pool.h"
#include "tests/support/each_isa.h"
#include "tests/support/op_call.h"
#include <string.h>

/* The words of the generator, without a write after the last. */
static void check_words(const Simd *s, Random *d, Arena *mem)
{
    int blocks = roll(d, 0, 70);
    Rng r = {.seed = (uint64_t)roll(d, 0, 1 << 30) << 33 | 77,
             .stream = RNG_TEST,
             .op = (uint16_t)roll(d, 0, 65535),
             .epoch = (uint32_t)roll(d, -9, 9),
             .sample = (uint32_t)roll(d, -9, 9)};

    // the first block follows the last of a stream
    uint32_t first = (uint32_t)roll(d, -80, 80), want[4];
    uint32_t *word = ARENA_NEW(mem, uint32_t, 4 * blocks + 1);

    REQUIRE(word);
    word[4 * blocks] = 5;
    s->random_words(&r, first, blocks, word);
    for (int i = 0; i < blocks; i++) {
        rng_block(&r, first + (uint32_t)i, want);
        EXPECT(!memcmp(word + 4 * i, want, sizeof want));
    }
    EXPECT(word[4 * blocks] == 5);
}

static void check_drop(const Simd *s, Random *d, Arena *mem)
{
    int n = roll(d, 1, 70), rows = roll(d, 1, 4), ld = n + roll(d, 0, 9);
    bool add = roll(d, 0, 1);
    int32_t least = roll(d, 0, 1 << 24);
    uint32_t word[72];
    Rng r = {.stream = RNG_TEST};

    for (uint32_t i = 0; i < 18; i++) rng_block(&r, i, word + 4 * i);
    float *x = numbers(mem, rows * ld, 1), *y = numbers(mem, rows * ld, 2);
    float *old = numbers(mem, rows * ld, 2);
    for (int i = 0; i < rows * ld; i += 3) x[i] = i % 2 ? INFINITY : NAN;
    s->drop(word, least, 1.7, x, rows, n, ld, y, add);

    for (int i = 0; i < rows * ld; i++) {
        bool kept = (int32_t)(word[i % ld % 72] >> 8) >= least;
        double v = kept ? x[i] * 1.7 : 0;
        float want = i % ld < n ? (float)(add ? old[i] + v : v) : old[i];
        EXPECT(isnan(want) ? isnan(y[i]) : y[i] == want);
    }
}

TEST(simd_kernels_of_chance)
{
    static CheckFn *const check[] = {check_words, check_drop};
    check_sets(check, sizeof check / sizeof *check);
}

/* Samples of one task and of several; few channels, or more channels than words
 * drawn at a time. */
static const Dims shapes[] = {{3, 1, 1, 1, 5},      {2, 1, 7, 9, 3},
                              {2, 1, 1, 16385, 1},  {1, 3, 40, 50, 13},
                              {70, 1, 1, 1, 130},   {2, 1, 3, 5, 2500},
                              {1, 1, 1, 33, 17000}, {1, 1, 1, 1, 1}};

TEST(dropout_has_the_bits_of_the_plain_loops)
{
    static const float p[] = {0, 0.1f, 0.5f, 1};
    static KernelFn *const fn[4][2] = {
        {cpu_dropout_fwd, plain_dropout_fwd},
        {cpu_dropout_bwd, plain_dropout_bwd},
        {cpu_spatial_dropout_fwd, plain_spatial_dropout_fwd},
        {cpu_spatial_dropout_bwd, plain_spatial_dropout_bwd}};
    Pool *pool;

    REQUIRE(pool_open(2, &pool));
    // a sanitized build takes a part of the cases, with all values of each loop
    const size_t stride = given_once() ? 5 : 1;
    Arena all = {0};
    int64_t longest = 0;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        if (numel(shapes[i]) > longest) longest = numel(shapes[i]);
    float *from = numbers(&all, longest, 1), *old = numbers(&all, longest, 2);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes * 32; i += stride) {
        const Dims s = shapes[i / 32];
        const int which = i % 4, add = i / 16 % 2;
        const size_t bytes = (size_t)numel(s) * sizeof(float);
        Arena mem = {0};
        Attr attr = op_default(which / 2 ? OP_spatial_dropout : OP_dropout);
        attr.dropout.p = p[i / 4 % 4]; // the first attribute of both
        Step step = {.seed = 77, .count = 5, .shard = {.first = 3}};
        // of exactly this extent, so that a sanitizer sees a read beyond it
        float *x = ARENA_NEW(&mem, float, numel(s)), *to[2];
        REQUIRE(x);
        memcpy(x, from, bytes);
        for (int k = 0; k < 2; k++) {
            to[k] = ARENA_NEW(&mem, float, numel(s));
            REQUIRE(to[k]);
            memcpy(to[k], old, bytes);
            Tensor in = {.dim = s, .type = F32, .data = x};
            Tensor out = {.dim = s, .type = F32, .data = to[k]};
            Call c = {.attr = &attr,
                      .step = &step,
                      .node = 9,
                      .dev = pool,
                      .train = true,
                      .fresh = !add,
                      .y = &out};
            if (which % 2)
                c.dy = &in, c.y = &in, c.dx[0] = &out;
            else
                c.x[0] = &in;
            EXPECT(fn[which][k](&c));
        }
        EXPECT(!memcmp(to[0], to[1], bytes));
        arena_release(&mem);
    }
    arena_release(&all);
    pool_close(pool);
}
