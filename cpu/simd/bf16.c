/* bf16.c -- conversions between f32 and bf16.
 *
 * bf16 is the upper half of a float. All sets give the same bits, so a plan's
 * copies are the same everywhere; the conversion instruction of some processors
 * would flush subnormal numbers to 0. Bound by memory, 6 bytes a number, so
 * these are plain loops for the compiler to vectorise. */
#include "cpu/simd/vec.h"

/* Rounds to nearest, ties to even; NaN stays NaN, even if the set
 * bits of its mantissa are cut off. */
INLINE uint16_t round_one(uint32_t bits)
{
    uint32_t near = bits + 0x7fff + (bits >> 16 & 1);
    bool nan = (bits & 0x7fffffff) > 0x7f800000;
    return (uint16_t)((nan ? bits | 0x400000 : near) >> 16);
}

void ISA_NAME(round_bf16)(const float *x, int64_t n, uint16_t *y);
void ISA_NAME(round_bf16)(const float *x, int64_t n, uint16_t *y)
{
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, x + i, sizeof bits);
        y[i] = round_one(bits);
    }
}

void ISA_NAME(widen_bf16)(const uint16_t *x, int64_t n, float *y);
void ISA_NAME(widen_bf16)(const uint16_t *x, int64_t n, float *y)
{
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits = (uint32_t)x[i] << 16;
        memcpy(y + i, &bits, sizeof bits);
    }
}

void ISA_NAME(pair_bf16)(const uint16_t *a, const uint16_t *b, int64_t n,
                         float *y);
void ISA_NAME(pair_bf16)(const uint16_t *a, const uint16_t *b, int64_t n,
                         float *y)
{
    for (int64_t i = 0; i < n; i++) {
        uint32_t pair = a[i] | (uint32_t)b[i] << 16;
        memcpy(y + i, &pair, sizeof pair);
    }
}
