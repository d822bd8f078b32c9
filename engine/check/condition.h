/* condition.h -- the rounding error of float arithmetic in one case.
 *
 * A count of terms bounds the rounding of a sum. It does not bound how later
 * steps amplify that rounding: a recurrence multiplies it at each step, a norm
 * of an almost constant row divides it by a small deviation, a logarithm near 1
 * cancels nearly equal numbers. So the amplification in a case is measured: the
 * plain loops of cpu/ref run in double (`ref`) and in float (backend_plain) on
 * the same numbers, and their difference e is the cost of float. */
#ifndef SEG_ENGINE_CHECK_CONDITION_H
#define SEG_ENGINE_CHECK_CONDITION_H
#include "engine/base/mem.h"

/* Returns the error allowed for each element in addition to the operator's own
 * bound:
 *
 *     16 max(e, median of e), at most 2^-10 max(|want|, rms of want)
 *
 * The median replaces an e that is small by chance. A few wrong rows change
 * neither the median nor e of other rows, so they excuse no others. 16: fast
 * kernels add in float where the plain loops add in double. The upper limit
 * makes cases fail in which e is of the size of the result, as they prove
 * nothing. NULL without memory. */
double *condition_room(const double *plain, const double *want, int64_t count,
                       Arena *mem);

/* Returns sqrt(sum e^2 / sum want^2). Beyond CONDITION_MOST the upper limit
 * above is reached. */
double condition_error(const double *plain, const double *want, int64_t count);
#define CONDITION_MOST 0x1p-14
#endif
