/* outer_bf16.c -- outer.c for pairs of bf16: two pixels a step. */
#include "cpu/simd/vec.h"

#if LANES == 16
#define DOTS
#include "cpu/simd/outer.h"

void pack_bf16(const PairPack *p);
void outer_bf16(const PairOuter *p);

/* A step is one pair, so the rows of a block are contiguous. */
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

/* Each block of rows is an Outer of whole rows of pairs. */
void outer_bf16(const PairOuter *p)
{
    Outer o = {.x = p->x,
               .rows = p->rows,
               .cols = p->steps,
               .pitch = p->pitch,
               .lda = p->high,
               .ldx = p->ldx,
               .ldo = p->ldo,
               .high = p->high,
               .width = p->width,
               .add = p->add};

    for (int64_t i = 0; i < p->height; i += p->high) {
        o.a = p->a + i / p->high * p->gap;
        o.out = p->out + i * p->ldo;
        o.height = (int)(p->height - i < p->high ? p->height - i : p->high);
        outer_block(&o);
    }
}
#endif
