/* product.h -- the register blocks of product.c (f32) and product_bf16.c (DOTS,
 * see multiply_add.h).
 *
 * A block of `high` pixels by `wide` vectors of result channels stays in
 * registers during the loop over k, the terms of the sum: one broadcast per
 * pixel and one load per vector feed high * wide multiply-adds. The shapes
 * below use 24 of 32 registers (12 of 16 for the smaller sets) for sums.
 *
 * A row is cut into blocks with heights that differ by one at most, rather than
 * into full blocks and a rest: a block of one or two pixels has too few
 * independent sums to hide the latency of the multiply-adds.
 *
 * Bound by multiply-adds from 2 vectors of channels on. A block one vector wide
 * and 12 pixels high loads 13 times (a broadcast is a load) for 12
 * multiply-adds, and processors that do two multiply-adds a cycle load at most
 * two vectors a cycle. */
#ifndef SEG_CPU_SIMD_PRODUCT_H
#define SEG_CPU_SIMD_PRODUCT_H
#include "cpu/simd/multiply_add.h"

#if REGISTERS == 32
// heights for 1, 2, .. vectors of channels
enum { HIGH1 = 12, HIGH2 = 12, HIGH3 = 8, HIGH4 = 6 };
#else
enum { HIGH1 = 10, HIGH2 = 6 };
#endif
enum { HIGH_MAX = 12, WIDE_MAX = 4 };

/* One block: pixels from .. from+high-1. `high` and `wide` are constants at
 * every call, so that the arrays become registers. */
INLINE TARGET void block(const PanelGemm *p, int64_t from, int high, int wide)
{
    V sum[HIGH_MAX][WIDE_MAX];
    UNROLL for (int i = 0; i < high; i++) UNROLL for (int j = 0; j < wide; j++)
        sum[i][j] = v_zero();

    // four base pointers and one distance address twelve pixels
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
                V x = v_each(a + i % 3 * lda + k);
                UNROLL for (int j = 0; j < wide; j++) sum[i][j] =
                    v_step(x, w[j], sum[i][j]);
            }
        }
    }

    // the bias is added last: its rounding error is then relative to the sum,
    // and the loop starts from zeros
    V bias[WIDE_MAX];
    int last = p->co - (wide - 1) * LANES; // lanes of the last vector
    UNROLL for (int j = 0; j < wide; j++) bias[j] =
        !p->bias || p->add ? v_zero()
        : j < wide - 1     ? v_load(p->bias + j * LANES)
                           : v_load_part(p->bias + j * LANES, last);
    UNROLL for (int i = 0; i < high; i++)
    {
        float *y = p->y + (from + i) * p->ldy;
        UNROLL for (int j = 0; j < wide; j++)
        {
            float *at = y + j * LANES;
            if (j < wide - 1 || last == LANES) {
                v_store(at, sum[i][j] + (p->add ? v_load(at) : bias[j]));
            } else {
                V old = p->add ? v_load_part(at, last) : bias[j];
                v_store_part(at, sum[i][j] + old, last);
            }
        }
    }
}

/* The instances, [wide - 1][high - 1]: each height up to the highest, because
 * equal cuts of a row may have any. */
typedef void Block(const PanelGemm *p, int64_t from);

#define BLOCK(high, wide)                                                      \
    static TARGET void block_##high##x##wide(const PanelGemm *p, int64_t from) \
    {                                                                          \
        block(p, from, high, wide);                                            \
    }
#define UP_TO_6(B, wide) \
    B(1, wide) B(2, wide) B(3, wide) B(4, wide) B(5, wide) B(6, wide)
#define UP_TO_8(B, wide)  UP_TO_6(B, wide) B(7, wide) B(8, wide)
#define UP_TO_10(B, wide) UP_TO_8(B, wide) B(9, wide) B(10, wide)
#define UP_TO_12(B, wide) UP_TO_10(B, wide) B(11, wide) B(12, wide)
#define ENTRY(high, wide) block_##high##x##wide,

#if REGISTERS == 32
UP_TO_12(BLOCK, 1)
UP_TO_12(BLOCK, 2)
UP_TO_8(BLOCK, 3)
UP_TO_6(BLOCK, 4)
static Block *const blocks[WIDE_MAX][HIGH_MAX] = {{UP_TO_12(ENTRY, 1)},
                                                  {UP_TO_12(ENTRY, 2)},
                                                  {UP_TO_8(ENTRY, 3)},
                                                  {UP_TO_6(ENTRY, 4)}};
static const int highest[WIDE_MAX] = {HIGH1, HIGH2, HIGH3, HIGH4};
#else
UP_TO_10(BLOCK, 1)
UP_TO_6(BLOCK, 2)
static Block *const blocks[2][HIGH_MAX] = {{UP_TO_10(ENTRY, 1)},
                                           {UP_TO_6(ENTRY, 2)}};
static const int highest[2] = {HIGH1, HIGH2};
#endif

enum { LINE = 64 / sizeof(float) }; // floats of a cache line

/* Prefetches the operand and the result of a block while the previous one runs:
 * a row of the image is read in short pieces, tap after tap, a pattern that
 * hardware prefetchers do not follow. */
INLINE void fetch(const PanelGemm *p, int64_t from, int64_t high)
{
    for (int64_t i = from; i < from + high; i++) {
        if (p->far)
            for (int64_t r = 0; r < p->runs; r++)
                for (int64_t k = 0; k < p->len; k += LINE)
                    __builtin_prefetch(p->run[r].a + i * p->lda + k, 0);
        for (int j = 0; j < p->co; j += LINE)
            __builtin_prefetch(p->y + i * p->ldy + j, 1);
    }
}

/* Equal cuts, no higher than the registers allow: 13 pixels at 12 are 7 + 6. */
static void product_row(const PanelGemm *p)
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
#endif
