/* random.c -- many blocks of the random generator of rng.h at once, and dropout
 * with them.
 *
 * A block is four words and ten rounds of two 32-bit products. Lanes of 64 bits
 * hold one block each; their upper halves are garbage that no product reads.
 * Bound by arithmetic, some 80 operations for two vectors of words. */
#include "cpu/simd/vec.h"

/* LANES_D numbers of 64 bits, one a block. */
typedef uint64_t W __attribute__((vector_size(VEC_BYTES)));
typedef uint64_t Wu
    __attribute__((vector_size(VEC_BYTES), aligned(4), may_alias));

INLINE W w_set(uint64_t a)
{
    return (W){0} + a;
}

/* w_product: product of the lower halves. w_first, w_second: the even (odd)
 * lanes of a and b, interleaved. */
#if LANES == 16
INLINE W w_product(W a, W b)
{
    return (W)_mm512_mul_epu32((__m512i)a, (__m512i)b);
}
INLINE W w_first(W a, W b)
{
    return (W)_mm512_unpacklo_epi64((__m512i)a, (__m512i)b);
}
INLINE W w_second(W a, W b)
{
    return (W)_mm512_unpackhi_epi64((__m512i)a, (__m512i)b);
}
#elif LANES == 8
INLINE W w_product(W a, W b)
{
    return (W)_mm256_mul_epu32((__m256i)a, (__m256i)b);
}
INLINE W w_first(W a, W b)
{
    return (W)_mm256_unpacklo_epi64((__m256i)a, (__m256i)b);
}
INLINE W w_second(W a, W b)
{
    return (W)_mm256_unpackhi_epi64((__m256i)a, (__m256i)b);
}
#else
INLINE W w_product(W a, W b)
{
#if NEON
    return (W)vmull_u32(vmovn_u64((uint64x2_t)a), vmovn_u64((uint64x2_t)b));
#else
    return (a & UINT32_MAX) * (b & UINT32_MAX);
#endif
}
INLINE W w_first(W a, W b)
{
    return (W){a[0], b[0]};
}
INLINE W w_second(W a, W b)
{
    return (W){a[1], b[1]};
}
#endif

/* Values that all blocks of a series share. */
typedef struct Series {
    W lane; /* number of the lane's block in words() */
    W sample, epoch, purpose;
    uint32_t key[RNG_ROUNDS][2];
} Series;

INLINE Series series_of(const Rng *r)
{
    Series s = {.sample = w_set(r->sample),
                .epoch = w_set(r->epoch),
                .purpose = w_set(rng_purpose(r))};
    // the even lanes hold the first half of the blocks, because w_first() puts
    // their words side by side
    for (int i = 0; i < LANES_D; i++)
        s.lane[i] = (uint64_t)(i / 2 + i % 2 * LANES_D / 2);
    uint32_t k0 = (uint32_t)r->seed, k1 = (uint32_t)(r->seed >> 32);
    for (int i = 0; i < RNG_ROUNDS; i++, k0 += RNG_WEYL0, k1 += RNG_WEYL1)
        s.key[i][0] = k0, s.key[i][1] = k1;
    return s;
}

/* The words of LANES_D blocks from `block` on. */
INLINE void words(const Series *s, uint32_t block, uint32_t *word)
{
    W c0 = s->lane + w_set(block), c1 = s->sample, c2 = s->epoch,
      c3 = s->purpose;
    UNROLL for (int i = 0; i < RNG_ROUNDS; i++)
    {
        W p0 = w_product(c0, w_set(RNG_TIMES0));
        W p1 = w_product(c2, w_set(RNG_TIMES1));
        c0 = p1 >> 32 ^ c1 ^ w_set(s->key[i][0]);
        c2 = p0 >> 32 ^ c3 ^ w_set(s->key[i][1]);
        c1 = p1, c3 = p0;
    }
    W low = (c0 & UINT32_MAX) | c1 << 32, high = (c2 & UINT32_MAX) | c3 << 32;
    *(Wu *)word = w_first(low, high);
    *(Wu *)(word + LANES) = w_second(low, high);
}

void ISA_NAME(random_words)(const Rng *r, uint32_t block, int64_t blocks,
                            uint32_t *word);
void ISA_NAME(random_words)(const Rng *r, uint32_t block, int64_t blocks,
                            uint32_t *word)
{
    const Series s = series_of(r);
    int64_t i = 0;
    for (; i + LANES_D <= blocks; i += LANES_D)
        words(&s, block + (uint32_t)i, word + 4 * i);
    for (; i < blocks; i++) rng_block(r, block + (uint32_t)i, word + 4 * i);
}

/* y = x * factor where kept, else 0, or added, for LANES elements; y and add
 * have room for all of them. */
INLINE void keep(Vi kept, V x, D factor, const float *add, float *y)
{
    // a dropped element is 0 even if it is not finite
    float room[LANES];
    v_store(room, v_select(kept, x, v_zero()));
    D a = d_load(room) * factor, b = d_load(room + LANES_D) * factor;
    if (add) a += d_load(add), b += d_load(add + LANES_D);
    d_store(y, a), d_store(y + LANES_D, b);
}

INLINE void row(const uint32_t *word, Vi least, D factor, const float *x,
                int64_t n, float *y, bool add)
{
    typedef uint32_t Words __attribute__((vector_size(VEC_BYTES)));
    typedef uint32_t WordsU
        __attribute__((vector_size(VEC_BYTES), aligned(4), may_alias));
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        Words w = *(const WordsU *)(word + i);
        keep((Vi)(w >> 8) >= least, v_load(x + i), factor, add ? y + i : NULL,
             y + i);
    }

    int rest = (int)(n - i);
    if (!rest) return;
    Words w = {0};
    float to[LANES];
    memcpy(&w, word + i, (size_t)rest * sizeof *word);
    v_store(to, v_load_part(y + i, add ? rest : 0));
    keep((Vi)(w >> 8) >= least, v_load_part(x + i, rest), factor,
         add ? to : NULL, to);
    v_store_part(y + i, v_load(to), rest);
}

void ISA_NAME(drop)(const uint32_t *word, int32_t least, double factor,
                    const float *x, int64_t rows, int64_t n, int64_t ld,
                    float *y, bool add);
void ISA_NAME(drop)(const uint32_t *word, int32_t least, double factor,
                    const float *x, int64_t rows, int64_t n, int64_t ld,
                    float *y, bool add)
{
    const Vi from = (Vi){0} + least;
    const D f = d_set(factor);
    for (; rows > 0; rows--, x += ld, y += ld)
        if (add)
            row(word, from, f, x, n, y, true);
        else
            row(word, from, f, x, n, y, false);
}
