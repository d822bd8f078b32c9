/* outer.h -- the register blocks of outer.c (f32) and outer_bf16.c (DOTS, see
 * multiply_add.h).
 *
 * `high` rows (channels of dy, packed so that the rows of one pixel are
 * contiguous) by `wide` vectors (neighbouring taps and channels of x) stay in
 * registers during the loop over pixels. The vectors lie along the fast axis of
 * the weights, so a block is stored without a transposition.
 *
 * 8 x 3 vectors of sums (AVX-512, NEON), 4 x 3 in the smaller sets: a pixel
 * costs 3 loads and 8 broadcasts for 24 multiply-adds, so the multiply-adds
 * bound the loop as long as x and a stay in L2, for which wgrad.c chooses its
 * regions. Lower blocks (1, 2, 4 rows) are for layers with fewer channels of
 * dy. */
#ifndef SEG_CPU_SIMD_OUTER_H
#define SEG_CPU_SIMD_OUTER_H
#include "cpu/simd/multiply_add.h"

enum { WIDE_MAX = OUTER_WIDE / LANES };

/* high, wide and `part` (the last vector is not full) are constants. */
INLINE TARGET void block(const Outer *p, int high, int wide, bool part)
{
    V sum[OUTER_HIGH][WIDE_MAX];
    int last = p->width - (wide - 1) * LANES;
    UNROLL for (int i = 0; i < high; i++) UNROLL for (int j = 0; j < wide; j++)
        sum[i][j] = v_zero();
    const float *a = p->a;

    for (int64_t r = 0; r < p->rows; r++) {
        const float *x = p->x + r * p->pitch;
        for (int64_t c = 0; c < p->cols; c++, a += p->lda, x += p->ldx) {
            V row[WIDE_MAX];
            UNROLL for (int j = 0; j < wide; j++) row[j] =
                part && j == wide - 1 ? v_load_part(x + j * LANES, last)
                                      : v_load(x + j * LANES);
            UNROLL for (int i = 0; i < high; i++)
            {
                V f = v_each(a + i);
                UNROLL for (int j = 0; j < wide; j++) sum[i][j] =
                    v_step(f, row[j], sum[i][j]);
            }
        }
    }

    UNROLL for (int i = 0; i < high; i++)
    {
        if (i >= p->height) break;
        float *out = p->out + i * p->ldo;
        UNROLL for (int j = 0; j < wide; j++)
        {
            float *at = out + j * LANES;
            if (part && j == wide - 1) {
                V old = p->add ? v_load_part(at, last) : v_zero();
                v_store_part(at, old + sum[i][j], last);
            } else {
                v_store(at, sum[i][j] + (p->add ? v_load(at) : v_zero()));
            }
        }
    }
}

/* The instances: every height and width, with and without a partial last
 * vector. */
typedef void Block(const Outer *p);

#define BLOCK(high, wide)                                    \
    static TARGET void whole_##high##x##wide(const Outer *p) \
    {                                                        \
        block(p, high, wide, false);                         \
    }                                                        \
    static TARGET void part_##high##x##wide(const Outer *p)  \
    {                                                        \
        block(p, high, wide, true);                          \
    }
#define ENTRY(high, wide) {whole_##high##x##wide, part_##high##x##wide},
#if REGISTERS == 32
#define HIGHS(B, wide) B(1, wide) B(2, wide) B(4, wide) B(8, wide)
#else
#define HIGHS(B, wide) B(1, wide) B(2, wide) B(4, wide)
#endif

HIGHS(BLOCK, 1)
HIGHS(BLOCK, 2)
HIGHS(BLOCK, 3)

/* [wide - 1][log2(high)][part] */
static Block *const blocks[WIDE_MAX][4][2] = {
    {HIGHS(ENTRY, 1)}, {HIGHS(ENTRY, 2)}, {HIGHS(ENTRY, 3)}};

/* The instance for this height and width. */
static void outer_block(const Outer *p)
{
    int wide = (p->width + LANES - 1) / LANES;
    int high = p->high == 1 ? 0 : p->high == 2 ? 1 : p->high == 4 ? 2 : 3;
    blocks[wide - 1][high][p->width % LANES != 0](p);
}
#endif
