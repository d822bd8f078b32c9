/* ophalf.h -- agreement of a row on tensors in 16 bits with itself in f32.
 *
 * Kernels compute in float whatever the type in memory is. So what a call makes
 * of narrow tensors (Backend.narrow) is what it makes of the same numbers in
 * float, rounded: the same bits. */
#ifndef SEG_ENGINE_CHECK_OPHALF_H
#define SEG_ENGINE_CHECK_OPHALF_H
#include "engine/check/opcase.h"

/* The same case with 1, 2, 4 or 8 times the channels, so that they divide by
 * NARROW_CHANNELS; false where the row cannot have them. */
bool opnarrow_case(OpCase *c);
/* What of a case may be narrow on the device and in the precision that are
 * checked: bits as of Backend.narrow. */
unsigned opnarrow_bits(const OpCase *c, const OpCheck *k);
/* opcase_values, of which those that are narrow have no more bits. */
bool opnarrow_values(const OpCase *c, const OpCheck *k, unsigned bits,
                     Arena *mem, OpValues *out);
/* Stored or added, dx[0] apart and in dy's memory where the row allows it; of
 * a row that multiplies operand and result by turns. */
void opnarrow_agree(const OpCase *c, OpCheck *k);
/* Likewise of a result that is narrow alone, where the row has one. */
void opnarrow_alone(const OpCase *c, OpCheck *k);
#endif
