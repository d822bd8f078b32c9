/* head.c -- a row of pixels times the weights of few result channels, as in the
 * head of a network with one to HEAD_CO maps; the counterpart of product.c.
 *
 * In product.c the vectors lie along the result channels, and only one lane of
 * 16 would be used. Here they lie along the terms of the sum. 8 sums, of as
 * many pixels as the number of channels allows, are in registers; a step of k
 * loads one vector for each pixel and each channel. At the end the lanes are
 * added, neighbours first: the same tree whichever pixels share a block.
 *
 * Bound by loads: 9 for 8 multiply-adds with one channel, 6 with two or
 * four. */
#include "cpu/simd/vec.h"

enum { SUMS = 8 };

/* Sums of neighbouring lanes of a, then of b. */
INLINE V pair_up(V a, V b)
{
    Vi even, odd;
    UNROLL for (int i = 0; i < LANES; i++) even[i] = 2 * i, odd[i] = 2 * i + 1;
#ifdef __clang__ // clang, for fuzzing only, has no such builtin
    float lane[2 * LANES];
    v_store(lane, a), v_store(lane + LANES, b);
    for (int i = 0; i < LANES; i++) a[i] = lane[even[i]] + lane[odd[i]];
    return a;
#else
    return __builtin_shuffle(a, b, even) + __builtin_shuffle(a, b, odd);
#endif
}

/* to[i] = the sum of the lanes of s[i]. */
INLINE void sum_lanes(V s[SUMS], float to[SUMS + LANES])
{
    int many = SUMS;
    UNROLL for (int lanes = LANES; lanes > 1; lanes /= 2)
    {
        UNROLL for (int i = 0; i < (many + 1) / 2; i++) s[i] =
            pair_up(s[2 * i], s[many > 1 ? 2 * i + 1 : 0]);
        many = (many + 1) / 2;
    }
    UNROLL for (int i = 0; i < many; i++) v_store(to + i * LANES, s[i]);
}

/* `high` pixels from `from` on; high and co are constants, high * co <=
 * SUMS. */
INLINE void block(const PanelGemm *p, int64_t from, int high, int co)
{
    V sum[SUMS];
    UNROLL for (int i = 0; i < SUMS; i++) sum[i] = v_zero();
    const int last = (int)(p->len % LANES);

    for (int64_t r = 0; r < p->runs; r++) {
        const float *a = p->run[r].a + from * p->lda;
        const float *b = p->panel + p->run[r].k;
        int64_t k = 0;
        for (; k + LANES <= p->len; k += LANES) {
            V w[SUMS];
            UNROLL for (int j = 0; j < co; j++) w[j] =
                v_load(b + j * p->ldw + k);
            UNROLL for (int i = 0; i < high; i++)
            {
                V x = v_load(a + i * p->lda + k);
                UNROLL for (int j = 0; j < co; j++) sum[i * co + j] =
                    v_fma(x, w[j], sum[i * co + j]);
            }
        }
        for (int i = 0; last && i < high; i++) {
            V x = v_load_part(a + i * p->lda + k, last);
            for (int j = 0; j < co; j++)
                sum[i * co + j] = v_fma(
                    x, v_load_part(b + j * p->ldw + k, last), sum[i * co + j]);
        }
    }

    float all[SUMS + LANES];
    sum_lanes(sum, all);

    for (int i = 0; i < high; i++)
        for (int j = 0; j < co; j++) {
            float *y = p->y + (from + i) * p->ldy + j;
            float old = p->add ? *y : p->bias ? p->bias[j] : 0;
            *y = all[i * co + j] + old;
        }
}

/* All pixels, as many at a time as the sums hold, then single ones. */
INLINE void row(const PanelGemm *p, int co)
{
    int64_t i = 0;
    for (; i + SUMS / co <= p->cols; i += SUMS / co) block(p, i, SUMS / co, co);
    for (; i < p->cols; i++) block(p, i, 1, co);
}

void ISA_NAME(head)(const PanelGemm *p);
void ISA_NAME(head)(const PanelGemm *p)
{
    switch (p->co) {
    case 1:
        row(p, 1);
        break;
    case 2:
        row(p, 2);
        break;
    case 3:
        row(p, 3);
        break;
    default:
        row(p, 4);
        break;
    }
}
