/* ophalf.h -- compares an operator on 16-bit tensors with itself in f32.
 *
 * Kernels compute in float for any type in memory. So a call on 16-bit tensors
 * (Storage.narrow) must return the bits of the same call on the same numbers in
 * float, rounded. */
#ifndef SEG_ENGINE_CHECK_OPHALF_H
#define SEG_ENGINE_CHECK_OPHALF_H
#include "engine/check/opcase.h"

/* Multiplies the channels of the case by 1, 2, 4 or 8, so that they divide by
 * NARROW_CHANNELS; false if the operator does not allow it. */
bool opnarrow_case(OpCase *c);
/* Returns the tensors of a case that may be in 16 bits on the device and in the
 * precision under test: bits of Storage.narrow. */
unsigned opnarrow_bits(const OpCase *c, const OpCheck *k);
/* opcase_values, with 16-bit tensors rounded to the format. */
bool opnarrow_values(const OpCase *c, const OpCheck *k, unsigned bits,
                     Arena *mem, OpValues *out);
/* Compares stored and added results, dx[0] separate and in dy's memory if
 * allowed. For conv, upconv and linear also with some tensors in 16 bits: in
 * odd cases only y, in even cases only the operands. */
void opnarrow_agree(const OpCase *c, OpCheck *k);
/* The same with only the result in 16 bits, if the operator allows that. */
void opnarrow_alone(const OpCase *c, OpCheck *k);
#endif
