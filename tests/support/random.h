/* random.h -- random shapes and numbers for tests, the same in every run. */
#ifndef SEG_TESTS_SUPPORT_RANDOM_H
#define SEG_TESTS_SUPPORT_RANDOM_H
#include "engine/base/mem.h"
#include "engine/base/rng.h"
#include "tests/test.h"

/* A sequence of random numbers in lo .. hi. */
typedef struct Random {
    Rng r;
    uint32_t next;
} Random;

static inline int roll(Random *d, int lo, int hi)
{
    return lo + (int)rng_below(&d->r, d->next++, (uint32_t)(hi - lo + 1));
}

static inline Random dice(uint32_t sample)
{
    return (Random){{.seed = 5, .stream = RNG_TEST, .sample = sample}, 0};
}

/* n normal numbers, the same for the same sample. */
static inline float *numbers(Arena *mem, int64_t n, uint32_t sample)
{
    Rng r = {.seed = 3, .stream = RNG_TEST, .sample = sample};
    float *p = ARENA_NEW(mem, float, n);
    REQUIRE(p);
    for (int64_t i = 0; i < n; i += 2) {
        float pair[2]; // a draw has two numbers
        rng_normal_pair(&r, (uint32_t)(i / 2), pair);
        p[i] = pair[0];
        if (i + 1 < n) p[i + 1] = pair[1];
    }
    return p;
}
#endif
