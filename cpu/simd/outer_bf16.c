/* outer_bf16.c -- outer.c for pairs of bf16, with vdpbf16ps: the same blocks
 * of the same registers, two pixels an instruction. For which processors see
 * product_bf16.c. */
#include "vec.h"

#if LANES == 16
#define WITH_DOTS __attribute__((target("avx512bf16")))

void pack_bf16(const PairPack *p);
void outer_bf16(const PairOuter *p);

/* A step is one pair, so the rows of a block lie together. */
void pack_bf16(const PairPack *p)
{
    for (int64_t s = 0; s < p->steps; s++) {
        const uint16_t *a = p->a + 2 * s * p->ld, *b = a + p->ld;
        bool two = 2 * s + 1 < p->cols;
        for (int64_t i = 0; i < p->height; i++) {
            uint32_t pair = a[i] | (two ? (uint32_t)b[i] << 16 : 0);
            memcpy(p->to + i / p->high * p->gap + s * p->high + i % p->high,
                   &pair, sizeof pair);
        }
    }
}

enum { WIDE_MAX = OUTER_WIDE / LANES };

/* Rows from .. of dw; high, wide and `part` are constants: see outer.c. */
INLINE WITH_DOTS void block(const PairOuter *p, int64_t from, int high,
                            int wide, bool part)
{
    V sum[OUTER_HIGH][WIDE_MAX];
    const int last = p->width - (wide - 1) * LANES;
    UNROLL for (int i = 0; i < high; i++) UNROLL for (int j = 0; j < wide; j++)
        sum[i][j] = v_zero();
    const float *a = p->a + from / high * p->gap;
    for (int64_t r = 0; r < p->rows; r++) {
        const float *x = p->x + r * p->pitch;
        for (int64_t c = 0; c < p->steps; c++, a += high, x += p->ldx) {
            V row[WIDE_MAX];
            UNROLL for (int j = 0; j < wide; j++) row[j] =
                part && j == wide - 1 ? v_load_part(x + j * LANES, last)
                                      : v_load(x + j * LANES);
            UNROLL for (int i = 0; i < high; i++)
            {
                int32_t pair;
                memcpy(&pair, a + i, sizeof pair);
                __m512bh f = (__m512bh)_mm512_set1_epi32(pair);
                UNROLL for (int j = 0; j < wide; j++) sum[i][j] =
                    (V)_mm512_dpbf16_ps((__m512)sum[i][j], f, (__m512bh)row[j]);
            }
        }
    }
    UNROLL for (int i = 0; i < high; i++)
    {
        if (from + i >= p->height) break;
        float *out = p->out + (from + i) * p->ldo;
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

typedef void Block(const PairOuter *p, int64_t from);

#define BLOCK(high, wide)                                           \
    static WITH_DOTS void whole_##high##x##wide(const PairOuter *p, \
                                                int64_t from)       \
    {                                                               \
        block(p, from, high, wide, false);                          \
    }                                                               \
    static WITH_DOTS void part_##high##x##wide(const PairOuter *p,  \
                                               int64_t from)        \
    {                                                               \
        block(p, from, high, wide, true);                           \
    }
#define ENTRY(high, wide) {whole_##high##x##wide, part_##high##x##wide},
#define HIGHS(B, wide)    B(1, wide) B(2, wide) B(4, wide) B(8, wide)

HIGHS(BLOCK, 1)
HIGHS(BLOCK, 2)
HIGHS(BLOCK, 3)

/* [wide - 1][log2(high)][part] */
static Block *const blocks[WIDE_MAX][4][2] = {
    {HIGHS(ENTRY, 1)}, {HIGHS(ENTRY, 2)}, {HIGHS(ENTRY, 3)}};

void outer_bf16(const PairOuter *p)
{
    int wide = (p->width + LANES - 1) / LANES;
    int high = p->high == 1 ? 0 : p->high == 2 ? 1 : p->high == 4 ? 2 : 3;
    Block *run = blocks[wide - 1][high][p->width % LANES != 0];
    for (int64_t i = 0; i < p->height; i += p->high) run(p, i);
}
#endif
