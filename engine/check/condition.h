/* condition.h -- what float arithmetic itself is off by, in one case.
 *
 * A count of terms bounds the rounding of a sum. It does not bound what later
 * steps make of that rounding: a recurrence multiplies it at each step, a norm
 * of a row that is almost constant divides it by a small deviation, a logarithm
 * near 1 takes nearly equal numbers from each other. What a case makes of it is
 * measured: the plain loops of cpu/ref run in double (`ref`) and in float
 * (backend_plain) on the same numbers, and their difference e is what float
 * costs there. */
#ifndef SEG_ENGINE_CHECK_CONDITION_H
#define SEG_ENGINE_CHECK_CONDITION_H
#include "engine/base/mem.h"

/* Of each element what it may be off by beside the row's own bound:
 *
 *     16 max(e, median of e), at most 2^-10 max(|want|, rms of want)
 *
 * The median stands in for an e that is small by chance. Neither that nor e is
 * moved by a few bad rows, so those excuse no others. 16: fast kernels add in
 * float what the plain loops add in double. The most is there for cases in
 * which e is of the size of the result: they must fail, as nothing can be said
 * of them. NULL without memory. */
double *condition_room(const double *plain, const double *want, int64_t count,
                       Arena *mem);

/* sqrt(sum e^2 / sum want^2), and from which on the most above is reached. */
double condition_error(const double *plain, const double *want, int64_t count);
#define CONDITION_MOST 0x1p-14
#endif
