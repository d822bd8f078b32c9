/* product_bf16.c -- product.c for pairs of bf16: two channels a step. */
#include "cpu/simd/vec.h"

#if LANES == 16
#define DOTS
#include "cpu/simd/product.h"

/* Of outer_bf16.c. */
void pack_bf16(const PairPack *p);
void outer_bf16(const PairOuter *p);

extern const Pairs pairs_avx512_bf16;
const Pairs pairs_avx512_bf16 = {.text = "vdpbf16ps",
                                 .product = product_row,
                                 .pack = pack_bf16,
                                 .outer = outer_bf16,
                                 .outer_high = OUTER_HIGH,
                                 .outer_wide = OUTER_WIDE,
                                 .deep = 1};
#endif
