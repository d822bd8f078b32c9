/* peak.c -- multiply-adds and nothing else, to measure the peak of the machine.
 *
 * Twelve independent sums: enough to hide the latency of the multiply-adds on
 * every known processor, and few enough for the registers of all sets. The rate
 * of a kernel is quoted as a fraction of this peak, measured in the same run: a
 * processor at its thermal limit or shared with others has another peak than
 * its data sheet. */
#include "cpu/simd/vec.h"

enum { SUMS = 12 };

double ISA_NAME(peak)(int64_t rounds);
double ISA_NAME(peak)(int64_t rounds)
{
    V sum[SUMS], one = v_set(1), half = v_set(0.5f);
    // operands that the compiler cannot see through
    __asm__ volatile("" : "+x"(one), "+x"(half));
    UNROLL for (int i = 0; i < SUMS; i++) sum[i] = v_zero();

    for (int64_t r = 0; r < rounds; r++) {
        UNROLL for (int i = 0; i < SUMS; i++) sum[i] = v_fma(half, one, sum[i]);
        // keeps sums of one round from being folded into another
        __asm__ volatile("" : "+x"(sum[0]), "+x"(sum[1]), "+x"(sum[2]));
        __asm__ volatile("" : "+x"(sum[3]), "+x"(sum[4]), "+x"(sum[5]));
        __asm__ volatile("" : "+x"(sum[6]), "+x"(sum[7]), "+x"(sum[8]));
        __asm__ volatile("" : "+x"(sum[9]), "+x"(sum[10]), "+x"(sum[11]));
    }
    return 2.0 * LANES * SUMS;
}
