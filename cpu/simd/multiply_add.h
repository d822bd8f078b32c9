/* multiply_add.h -- a step of product.h and outer.h: a multiply-add of floats
 * or, where DOTS is defined, of pairs of bf16 with vdpbf16ps. That adds the
 * products of two neighbours to each lane and takes as long as a multiply-add
 * of floats, so the same blocks of the same registers do twice the work on half
 * the bytes.
 *
 * DOTS is for avx512 only, and reached only where the processor has the
 * instruction: simd.c asks. */
#ifndef SEG_CPU_SIMD_MULTIPLY_ADD_H
#define SEG_CPU_SIMD_MULTIPLY_ADD_H
#include "cpu/simd/vec.h"

#ifdef DOTS
#define TARGET __attribute__((target("avx512bf16")))
#else
#define TARGET
#endif

/* What is at p in all lanes: a number, or a pair. */
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
