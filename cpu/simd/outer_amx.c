/* outer_amx.c -- outer.c for pairs of bf16, on AMX tiles.
 *
 * Two tiles of rows of dw times two of its columns: see amx.h. A tile of the
 * columns has pairs of pixels as its rows and is read without a copy. A tile of
 * the rows must have pixels along its rows, so dy is transposed when it is
 * packed. */
#include "cpu/simd/vec.h"

#if LANES == 16
#include "cpu/simd/amx.h"

void pack_amx(const PairPack *p);
void outer_amx(const PairOuter *p);

/* Transposes 16 x 16 numbers of 32 bits: within quarters of 4 x 4, then the
 * quarters. */
INLINE void transpose(__m512i r[TILE])
{
    __m512i t[TILE];
    UNROLL for (int i = 0; i < TILE; i += 2)
    {
        t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
    }
    UNROLL for (int i = 0; i < TILE; i += 4) UNROLL for (int k = 0; k < 2; k++)
    {
        r[i + 2 * k] = _mm512_unpacklo_epi64(t[i + k], t[i + 2 + k]);
        r[i + 2 * k + 1] = _mm512_unpackhi_epi64(t[i + k], t[i + 2 + k]);
    }
    UNROLL for (int i = 0; i < 4; i++)
    {
        __m512i even[2], odd[2];
        UNROLL for (int k = 0; k < 2; k++)
        {
            __m512i a = r[8 * k + i], b = r[8 * k + 4 + i];
            even[k] = _mm512_shuffle_i32x4(a, b, 0x88);
            odd[k] = _mm512_shuffle_i32x4(a, b, 0xdd);
        }
        t[i] = _mm512_shuffle_i32x4(even[0], even[1], 0x88);
        t[8 + i] = _mm512_shuffle_i32x4(even[0], even[1], 0xdd);
        t[4 + i] = _mm512_shuffle_i32x4(odd[0], odd[1], 0x88);
        t[12 + i] = _mm512_shuffle_i32x4(odd[0], odd[1], 0xdd);
    }
    UNROLL for (int i = 0; i < TILE; i++) r[i] = t[i];
}

/* The pairs of pixels `first` and the next, for `many` channels from i on. */
INLINE __m512i pair_of(const PairPack *p, int64_t first, int64_t i, int many)
{
    const __mmask16 m = (__mmask16)((1u << many) - 1);
    __m512i pair = _mm512_setzero_si512();
    if (first < p->cols) {
        const uint16_t *a = p->a + first * p->ld + i;
        pair = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(m, a));
    }
    if (first + 1 < p->cols) {
        const uint16_t *a = p->a + (first + 1) * p->ld + i;
        __m512i b = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(m, a));
        pair = _mm512_or_si512(pair, _mm512_slli_epi32(b, 16));
    }
    return pair;
}

void pack_amx(const PairPack *p)
{
    const __mmask16 step = (__mmask16)((1u << p->step) - 1);
    for (int64_t s = 0; s < p->steps; s++)
        for (int64_t i = 0; i < p->height; i += TILE) {
            int64_t left = p->height - i;
            int many = left < TILE ? (int)left : TILE;
            float *to = p->to + i / p->high * p->gap +
                        (s * p->high + i % p->high) * p->step;
            __m512i r[TILE];
            for (int k = 0; k < TILE; k++)
                r[k] = k < p->step ? pair_of(p, 2 * (s * p->step + k), i, many)
                                   : _mm512_setzero_si512();
            transpose(r);
            // a group with fewer rows than a tile has only `many`
            UNROLL for (int k = 0; k < TILE; k++) if (k < many)
                _mm512_mask_storeu_epi32(to + k * p->step, step, r[k]);
        }
}

/* Block number b; `two` and `both` are constants as in product_amx.c. */
INLINE WITH_TILES void block(const PairOuter *p, int64_t b, bool two, bool both)
{
    const ptrdiff_t number = sizeof(float), out = p->ldo * number;
    const ptrdiff_t a_row = p->step * number, x_row = p->ldx * number;
    float *o0 = p->out + b * p->high * p->ldo, *o1 = o0 + TILE * p->ldo;

    if (p->add) {
        _tile_loadd(0, o0, out);
        if (both) _tile_loadd(1, o0 + TILE, out);
        if (two) _tile_loadd(2, o1, out);
        if (two && both) _tile_loadd(3, o1 + TILE, out);
    } else {
        _tile_zero(0);
        if (both) _tile_zero(1);
        if (two) _tile_zero(2);
        if (two && both) _tile_zero(3);
    }

    const float *a = p->a + b * p->gap;
    for (int64_t r = 0; r < p->rows; r++) {
        const float *x = p->x + r * p->pitch;
        for (int64_t s = 0; s < p->steps; s++) {
            _tile_loadd(4, a, a_row);
            _tile_loadd(6, x, x_row);
            _tile_dpbf16ps(0, 4, 6);
            if (both) {
                _tile_loadd(7, x + TILE, x_row);
                _tile_dpbf16ps(1, 4, 7);
            }
            if (two) {
                _tile_loadd(5, a + TILE * p->step, a_row);
                _tile_dpbf16ps(2, 5, 6);
                if (both) _tile_dpbf16ps(3, 5, 7);
            }
            a += p->high * p->step;
            x += p->step * p->ldx;
        }
    }

    _tile_stored(0, o0, out);
    if (both) _tile_stored(1, o0 + TILE, out);
    if (two) _tile_stored(2, o1, out);
    if (two && both) _tile_stored(3, o1 + TILE, out);
}

WITH_TILES void outer_amx(const PairOuter *p)
{
    int set = 0;
    const bool both = p->width > TILE;

    for (int64_t b = 0; b * p->high < p->height; b++) {
        int64_t left = p->height - b * p->high;
        int high = left < p->high ? (int)left : p->high;
        if (high != set) set_shapes(high, p->width, p->step);
        set = high;
        if (high > TILE && both)
            block(p, b, true, true);
        else if (high > TILE)
            block(p, b, true, false);
        else if (both)
            block(p, b, false, true);
        else
            block(p, b, false, false);
    }
    _tile_release();
}
#endif
