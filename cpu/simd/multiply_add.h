/* multiply_add.h -- the multiply-add of product.h and outer.h: of floats or,
 * where DOTS is defined, of pairs of bf16 with vdpbf16ps. That instruction adds
 * the two products of a pair to each lane and takes as long as a multiply-add
 * of floats, so the same register blocks do twice the work on half the bytes.
 *
 * DOTS is for avx512 only, and runs only where simd.c finds the instruction. */
#ifndef SEG_CPU_SIMD_MULTIPLY_ADD_H
#define SEG_CPU_SIMD_MULTIPLY_ADD_H
#include "cpu/simd/vec.h"

#ifdef DOTS
#define TARGET __attribute__((target("avx512bf16")))
#else
#define TARGET
#endif

/* The number or pair at p, in all lanes. */
INLINE V v_each(const float *p)
{
#ifdef DOTS
    int32_t pair;
    memcpy(&pair, p, sizeof pair);
    return (V)_mm512_set1_epi32(pair);
#else
    return v_set(*p);
#endif
}

/* sum + x w */
INLINE TARGET V v_step(V x, V w, V sum)
{
#ifdef DOTS
    return (V)_mm512_dpbf16_ps((__m512)sum, (__m512bh)x, (__m512bh)w);
#else
    return v_fma(x, w, sum);
#endif
}
#endif
