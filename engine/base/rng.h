/* rng.h -- counter-based random numbers: Philox 4x32-10.
 *
 * A draw is a pure function of (seed, stream, epoch, sample, op, index). It
 * does not depend on threads, workers or earlier draws, and a resumed run
 * continues with the same numbers. CPU and CUDA share this code. Source: Salmon
 * et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011; checked
 * against its published test vectors. */
#ifndef SEG_ENGINE_BASE_RNG_H
#define SEG_ENGINE_BASE_RNG_H
#include "engine/base/host_device.h"
#include <math.h>
#include <stdint.h>

/* The purpose of the numbers; two streams never share a draw. */
typedef enum RngStream {
    RNG_INIT = 1,    /* parameters; sample = hash of the name             */
    RNG_SHUFFLE = 2, /* order of samples in an epoch                      */
    RNG_SPLIT = 3,   /* assignment of patients */
    RNG_AUGMENT = 4, /* op = position of the step in its pipeline         */
    RNG_DROPOUT = 5, /* epoch = optimiser step, sample = n, op = node     */
    RNG_PHANTOM = 6, /* synthetic patients              */
    RNG_TEST = 7,    /* test inputs                     */
    RNG_USER = 8,    /* seg.random of a recipe          */
    RNG_PATCH = 9,   /* position of a patch; op unused  */
    RNG_GROUP = 10,  /* k-means: first centres, samples */
    RNG_NOISE = 11,  /* seg.normal, uniform of a recipe; as RNG_DROPOUT   */
} RngStream;

/* All inputs of a draw except the index. Words of the counter, highest first:
 * stream and op, epoch, sample, index / 4; the seed is the key. */
typedef struct Rng {
    uint64_t seed;
    uint16_t stream, op;
    uint32_t epoch, sample;
} Rng;

/* Multipliers and Weyl constants of the paper. */
#define RNG_TIMES0 0xD2511F53u
#define RNG_TIMES1 0xCD9E8D57u
#define RNG_WEYL0  0x9E3779B9u
#define RNG_WEYL1  0xBB67AE85u
enum { RNG_ROUNDS = 10 };

/* The highest word of the counter. */
HOST_DEVICE uint32_t rng_purpose(const Rng *r)
{
    return (uint32_t)r->stream << 16 | r->op;
}

/* Four independent words: draws 4*block .. 4*block + 3. */
HOST_DEVICE void rng_block(const Rng *r, uint32_t block, uint32_t out[4])
{
    uint32_t c0 = block, c1 = r->sample, c2 = r->epoch;
    uint32_t c3 = rng_purpose(r);
    uint32_t k0 = (uint32_t)r->seed, k1 = (uint32_t)(r->seed >> 32);
    for (int i = 0; i < RNG_ROUNDS; i++) {
        uint64_t p0 = (uint64_t)RNG_TIMES0 * c0;
        uint64_t p1 = (uint64_t)RNG_TIMES1 * c2;
        uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        uint32_t n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1, c3 = (uint32_t)p0, c0 = n0, c2 = n2;
        k0 += RNG_WEYL0, k1 += RNG_WEYL1;
    }
    out[0] = c0, out[1] = c1, out[2] = c2, out[3] = c3;
}

/* A word as a number in [0, 1), 24 bits: exact in float. */
HOST_DEVICE float rng_unit(uint32_t word)
{
    return (float)(word >> 8) * (1.0f / 16777216.0f);
}

/* Draw `index` in [0, 1). */
HOST_DEVICE float rng_uniform(const Rng *r, uint32_t index)
{
    uint32_t w[4];
    rng_block(r, index / 4, w);
    return rng_unit(w[index % 4]);
}

/* Draw `index` in [lo, hi); rounding to float may return hi itself. */
HOST_DEVICE float rng_range(const Rng *r, uint32_t index, float lo, float hi)
{
    return lo + (hi - lo) * rng_uniform(r, index);
}

/* Draws 4*four .. 4*four + 3 of rng_range, at the cost of one. */
HOST_DEVICE void rng_range4(const Rng *r, uint32_t four, float lo, float hi,
                            float out[4])
{
    uint32_t w[4];
    rng_block(r, four, w);
    for (int i = 0; i < 4; i++) out[i] = lo + (hi - lo) * rng_unit(w[i]);
}

/* Draw `index` as an integer in 0 .. n-1; n >= 1. The bias of the product
 * method is below n / 2^32. */
HOST_DEVICE uint32_t rng_below(const Rng *r, uint32_t index, uint32_t n)
{
    uint32_t w[4];
    rng_block(r, index / 4, w);
    return (uint32_t)((uint64_t)w[index % 4] * n >> 32);
}

/* Draws 2*pair and 2*pair + 1 of a standard normal (Box and Muller). The first
 * uniform draw u is replaced by 1 - u > 0: the logarithm stays finite. */
HOST_DEVICE void rng_normal_pair(const Rng *r, uint32_t pair, float out[2])
{
    uint32_t w[4];
    rng_block(r, pair / 2, w);
    const uint32_t *u = w + 2 * (pair % 2);
    float radius = sqrtf(-2.0f * logf(1.0f - rng_unit(u[0])));
    float angle = 6.28318530717958648f * rng_unit(u[1]);
    out[0] = radius * cosf(angle);
    out[1] = radius * sinf(angle);
}

HOST_DEVICE float rng_normal(const Rng *r, uint32_t index)
{
    float pair[2];
    rng_normal_pair(r, index / 2, pair);
    return pair[index % 2];
}

/* Fills order with a random permutation of 0 .. n-1 (Fisher and Yates). */
HOST_DEVICE void rng_permutation(const Rng *r, uint32_t n, uint32_t *order)
{
    for (uint32_t i = 0; i < n; i++) order[i] = i;
    for (uint32_t i = n; i > 1; i--) {
        uint32_t j = rng_below(r, i - 1, i), t = order[i - 1];
        order[i - 1] = order[j], order[j] = t;
    }
}

/* FNV-1a hash of a name: the `sample` of its stream. */
HOST_DEVICE uint32_t rng_hash(const char *name)
{
    uint32_t h = 2166136261u;
    for (; *name; name++) h = (h ^ (unsigned char)*name) * 16777619u;
    return h;
}
#endif
