/* amx.h -- the shapes of AMX tiles, for product_amx.c and outer_amx.c.
 *
 * A tile is up to 16 rows of 64 bytes. One instruction adds the products of 16
 * pairs to each of 16 x 16 results in f32: 16,384 operations in 16 cycles,
 * sixteen times the rate of two multiply-adds of 512 bits a cycle. A block is 2
 * x 2 tiles of results, so two tiles of each operand feed four such
 * instructions and the caches keep up. Tiles 0 to 3 are results, 4 and 5
 * operand a, 6 and 7 operand b. */
#ifndef SEG_CPU_SIMD_AMX_H
#define SEG_CPU_SIMD_AMX_H
#include "cpu/simd/vec.h"

#define WITH_TILES __attribute__((target("amx-tile,amx-bf16")))

enum { TILE = 16 }; /* rows, and numbers of 32 bits in a row */

/* The operand of ldtilecfg. */
typedef struct Shapes {
    uint8_t palette, start, zero[14];
    uint16_t bytes[16]; /* of a row */
    uint8_t rows[16];
} Shapes;

/* Sets shapes for blocks of `high` rows and `wide` columns of results, up to 32
 * each, and steps of `step` pairs, up to 16. It takes some 50 ns: too slow for
 * every block. */
INLINE WITH_TILES void set_shapes(int high, int wide, int step)
{
    const int rows[2] = {high < TILE ? high : TILE,
                         high > TILE ? high - TILE : 0};
    const int cols[2] = {wide < TILE ? wide : TILE,
                         wide > TILE ? wide - TILE : 0};
    Shapes s = {.palette = 1};

    for (int i = 0; i < 2; i++) {
        for (int j = 0; j < 2 && rows[i]; j++) {
            s.rows[2 * i + j] = (uint8_t)(cols[j] ? rows[i] : 0);
            s.bytes[2 * i + j] = (uint16_t)(4 * cols[j]);
        }
        s.rows[4 + i] = (uint8_t)rows[i];
        s.bytes[4 + i] = (uint16_t)(rows[i] ? 4 * step : 0);
        s.rows[6 + i] = (uint8_t)(cols[i] ? step : 0);
        s.bytes[6 + i] = (uint16_t)(4 * cols[i]);
    }

    // GCC 12 assumes that the instruction reads 8 bytes and would not store the
    // rest
    __asm__ volatile("" : : "r"(&s) : "memory");
    _tile_loadconfig(&s);
}
#endif
