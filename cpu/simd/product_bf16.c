/* product_bf16.c -- product.c for pairs of bf16, with vdpbf16ps.
 *
 * One instruction adds the products of two neighbouring channels to each lane
 * and takes as long as a multiply-add of floats, so the same blocks of the
 * same registers do twice the work on half the bytes.
 *
 * Compiled for avx512 only, and reached only where the processor has the
 * instruction: simd.c asks. */
#include "vec.h"

#if LANES == 16
#define WITH_DOTS __attribute__((target("avx512bf16")))

// heights for 1, 2, .. vectors of channels: see product.c
enum { HIGH1 = 12, HIGH2 = 12, HIGH3 = 8, HIGH4 = 6 };
enum { HIGH_MAX = 12, WIDE_MAX = 4 };

/* The pair at p in all lanes. */
INLINE V v_pair(const float *p)
{
    int32_t pair;
    memcpy(&pair, p, sizeof pair);
    return (V)_mm512_set1_epi32(pair);
}

/* One block: pixels from .. from+high-1; high and wide are constants. */
INLINE WITH_DOTS void block(const Product *p, int64_t from, int high, int wide)
{
    V sum[HIGH_MAX][WIDE_MAX];
    UNROLL for (int i = 0; i < high; i++) UNROLL for (int j = 0; j < wide; j++)
        sum[i][j] = v_zero();
    const ptrdiff_t lda = p->lda;
    for (int64_t r = 0; r < p->runs; r++) {
        const float *b = p->panel + p->run[r].k * (wide * LANES);
        const float *a0 = p->run[r].a + from * lda;
        const float *a3 = a0 + 3 * lda, *a6 = a3 + 3 * lda, *a9 = a6 + 3 * lda;
        for (int64_t k = 0; k < p->len; k++, b += wide * LANES) {
            V w[WIDE_MAX];
            UNROLL for (int j = 0; j < wide; j++) w[j] = v_load(b + j * LANES);
            UNROLL for (int i = 0; i < high; i++)
            {
                const float *a = i < 3 ? a0 : i < 6 ? a3 : i < 9 ? a6 : a9;
                V x = v_pair(a + i % 3 * lda + k);
                UNROLL for (int j = 0; j < wide; j++) sum[i][j] =
                    (V)_mm512_dpbf16_ps((__m512)sum[i][j], (__m512bh)x,
                                        (__m512bh)w[j]);
            }
        }
    }
    // results are f32, and stored as product.c stores them
    const int last = p->co - (wide - 1) * LANES;
    UNROLL for (int i = 0; i < high; i++) UNROLL for (int j = 0; j < wide; j++)
    {
        float *at = p->y + (from + i) * p->ldy + j * LANES;
        const float *bias = p->bias ? p->bias + j * LANES : NULL;
        const float *old = p->add ? at : bias;
        if (j < wide - 1 || last == LANES) {
            v_store(at, old ? sum[i][j] + v_load(old) : sum[i][j]);
        } else {
            V other = old ? v_load_part(old, last) : v_zero();
            v_store_part(at, sum[i][j] + other, last);
        }
    }
}

typedef void Block(const Product *p, int64_t from);

#define BLOCK(high, wide)                                         \
    static WITH_DOTS void block_##high##x##wide(const Product *p, \
                                                int64_t from)     \
    {                                                             \
        block(p, from, high, wide);                               \
    }
#define UP_TO_6(B, wide) \
    B(1, wide) B(2, wide) B(3, wide) B(4, wide) B(5, wide) B(6, wide)
#define UP_TO_8(B, wide) UP_TO_6(B, wide) B(7, wide) B(8, wide)
#define UP_TO_12(B, wide) \
    UP_TO_8(B, wide) B(9, wide) B(10, wide) B(11, wide) B(12, wide)
#define ENTRY(high, wide) block_##high##x##wide,

UP_TO_12(BLOCK, 1)
UP_TO_12(BLOCK, 2)
UP_TO_8(BLOCK, 3)
UP_TO_6(BLOCK, 4)
static Block *const blocks[WIDE_MAX][HIGH_MAX] = {{UP_TO_12(ENTRY, 1)},
                                                  {UP_TO_12(ENTRY, 2)},
                                                  {UP_TO_8(ENTRY, 3)},
                                                  {UP_TO_6(ENTRY, 4)}};
static const int highest[WIDE_MAX] = {HIGH1, HIGH2, HIGH3, HIGH4};

/* Ask for the results of the next block, and for its pixels where they are not
 * in a cache, while one runs. */
INLINE void fetch(const Product *p, int64_t from, int64_t high)
{
    enum { LINE = 64 / sizeof(float) };
    for (int64_t i = from; i < from + high; i++) {
        for (int64_t r = 0; p->far && r < p->runs; r++)
            for (int64_t k = 0; k < p->len; k += LINE)
                __builtin_prefetch(p->run[r].a + i * p->lda + k, 0);
        for (int j = 0; j < p->co; j += LINE)
            __builtin_prefetch(p->y + i * p->ldy + j, 1);
    }
}

/* Equal cuts, as in product.c. */
static void product(const Product *p)
{
    int wide = (p->co + LANES - 1) / LANES;
    int64_t cuts = (p->cols + highest[wide - 1] - 1) / highest[wide - 1];
    int64_t high = p->cols / cuts, higher = p->cols % cuts, from = 0;
    for (int64_t i = 0; i < cuts; i++) {
        int64_t h = high + (i < higher);
        if (i + 1 < cuts) fetch(p, from + h, h);
        blocks[wide - 1][h - 1](p, from);
        from += h;
    }
}

/* Of outer_bf16.c. */
void pack_bf16(const PairPack *p);
void outer_bf16(const PairOuter *p);

extern const Pairs pairs_avx512_bf16;
const Pairs pairs_avx512_bf16 = {.text = "vdpbf16ps",
                                 .product = product,
                                 .pack = pack_bf16,
                                 .outer = outer_bf16,
                                 .outer_high = OUTER_HIGH,
                                 .outer_wide = OUTER_WIDE,
                                 .deep = 1};
#endif
