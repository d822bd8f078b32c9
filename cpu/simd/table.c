/* table.c -- the kernels of one instruction set, as a table.
 *
 * Compiled once a set like the rest of this folder; simd.c (compiled once)
 * knows the tables by name and picks one. */
#include "vec.h"

#define K(result, name, args) result ISA_NAME(name) args;
SIMD_KERNELS(K)
#undef K

extern const Simd ISA_NAME(simd);

#define TEXT(s)  TEXT2(s)
#define TEXT2(s) #s

const Simd ISA_NAME(simd) = {.name = TEXT(ISA),
                             .lanes = LANES,
                             .panel = PANEL,
                             .outer_high = OUTER_HIGH,
                             .outer_wide = OUTER_WIDE,
#define K(result, name, args) .name = ISA_NAME(name),
                             SIMD_KERNELS(K)
#undef K
};
