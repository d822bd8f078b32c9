/* table.c -- the kernels of one instruction set, as a table.
 *
 * Compiled once a set like the rest of this folder; simd.c, compiled once,
 * knows the tables by name and selects one. */
#include "cpu/simd/vec.h"

#define K(result, name, args) result ISA_NAME(name) args;
SIMD_KERNELS(K)
#undef K

extern const Simd ISA_NAME(simd);

#define TEXT(s)  TEXT2(s)
#define TEXT2(s) #s

#define K(result, name, args) .name = ISA_NAME(name),
#define TABLE(text, dots)                                                   \
    {                                                                       \
        .name = text, .pairs = dots, .lanes = LANES, .panel = PANEL,        \
        .outer_high = OUTER_HIGH, .outer_wide = OUTER_WIDE, SIMD_KERNELS(K) \
    }

const Simd ISA_NAME(simd) = TABLE(TEXT(ISA), NULL);

#if LANES == 16
// the same kernels, with kernels of pairs: f32 has the same bits in all three
extern const Simd simd_amx, simd_avx512_bf16;
extern const Pairs pairs_amx, pairs_avx512_bf16;
const Simd simd_amx = TABLE("amx", &pairs_amx);
const Simd simd_avx512_bf16 = TABLE("avx512_bf16", &pairs_avx512_bf16);
#endif
