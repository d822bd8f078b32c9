/* product_amx.c -- product.c for pairs of bf16, on AMX tiles.
 *
 * Two tiles of pixels times two of weights: see amx.h. Rows of a tile are `lda`
 * apart, so a strip or the image itself is read without a copy, and a panel as
 * it is packed. Results start from the bias or from y and are stored to y tile
 * by tile.
 *
 * The shapes of the tiles are set once per call, and once more for the last
 * pixels of a row. A run is cut into equal parts of at most 16 pairs, one
 * product of tiles each; if its length has no such divisor, the parts get
 * short, down to one pair, and slow.
 *
 * Compiled for avx512 only, and runs only where simd.c has found tiles and the
 * system has enabled them. */
#include "cpu/simd/vec.h"

#if LANES == 16
#include "cpu/simd/amx.h"

/* Initial value of a tile of results: 0, the bias for all pixels, or y. */
#define BEGIN(tile, at, from)                                        \
    do {                                                             \
        if (p->add)                                                  \
            _tile_loadd(tile, at, p->ldy *(ptrdiff_t)sizeof(float)); \
        else if (p->bias)                                            \
            _tile_loadd(tile, from, 0);                              \
        else                                                         \
            _tile_zero(tile);                                        \
    } while (0)

/* Pixels from .. on, channels co .. on; `two` and `both`: two tiles along each.
 * They are constants, so the loop has no branches. */
INLINE WITH_TILES void block(const PanelGemm *p, int64_t from, int co, int step,
                             bool two, bool both)
{
    const int width = (p->co + LANES - 1) / LANES * LANES;
    const ptrdiff_t row = width * (ptrdiff_t)sizeof(float);
    const ptrdiff_t pixel = p->lda * (ptrdiff_t)sizeof(float);
    const ptrdiff_t result = p->ldy * (ptrdiff_t)sizeof(float);
    float *y0 = p->y + from * p->ldy + co, *y1 = y0 + TILE * p->ldy;
    const float *bias = p->bias ? p->bias + co : NULL;

    BEGIN(0, y0, bias);
    if (both) BEGIN(1, y0 + TILE, bias + TILE);
    if (two) BEGIN(2, y1, bias);
    if (two && both) BEGIN(3, y1 + TILE, bias + TILE);

    for (int64_t r = 0; r < p->runs; r++) {
        const float *a = p->run[r].a + from * p->lda;
        const float *b = p->panel + p->run[r].k * width + co;
        for (int64_t k = 0; k < p->len; k += step, b += step * width) {
            _tile_loadd(4, a + k, pixel);
            _tile_loadd(6, b, row);
            _tile_dpbf16ps(0, 4, 6);
            if (both) {
                _tile_loadd(7, b + TILE, row);
                _tile_dpbf16ps(1, 4, 7);
            }
            if (two) {
                _tile_loadd(5, a + TILE * p->lda + k, pixel);
                _tile_dpbf16ps(2, 5, 6);
                if (both) _tile_dpbf16ps(3, 5, 7);
            }
        }
    }

    _tile_stored(0, y0, result);
    if (both) _tile_stored(1, y0 + TILE, result);
    if (two) _tile_stored(2, y1, result);
    if (two && both) _tile_stored(3, y1 + TILE, result);
}

/* The instance for these shapes. */
static WITH_TILES void run_block(const PanelGemm *p, int64_t from, int co,
                                 int64_t high, int wide, int step)
{
    if (high > TILE && wide > TILE)
        block(p, from, co, step, true, true);
    else if (high > TILE)
        block(p, from, co, step, true, false);
    else if (wide > TILE)
        block(p, from, co, step, false, true);
    else
        block(p, from, co, step, false, false);
}

/* The largest number of pairs, up to a tile's, that divides a run. */
static int step_of(int64_t len)
{
    for (int step = TILE; step > 1; step--)
        if (len % step == 0) return step;
    return 1;
}

static WITH_TILES void product(const PanelGemm *p)
{
    const int step = step_of(p->len);
    int64_t set_high = 0;
    int set_wide = 0;

    for (int64_t from = 0; from < p->cols; from += 2 * TILE)
        for (int co = 0; co < p->co; co += 2 * TILE) {
            int64_t high = p->cols - from;
            int wide = p->co - co;
            if (high > 2 * TILE) high = 2 * TILE;
            if (wide > 2 * TILE) wide = 2 * TILE;
            if (high != set_high || wide != set_wide)
                set_shapes((int)high, wide, step);
            set_high = high, set_wide = wide;
            run_block(p, from, co, high, wide, step);
        }
    _tile_release();
}

/* Of outer_amx.c. */
void pack_amx(const PairPack *p);
void outer_amx(const PairOuter *p);

extern const Pairs pairs_amx;
const Pairs pairs_amx = {.text = "AMX tiles",
                         .tiles = true,
                         .product = product,
                         .pack = pack_amx,
                         .outer = outer_amx,
                         .outer_high = 2 * TILE,
                         .outer_wide = 2 * TILE,
                         .deep = TILE};
#endif
