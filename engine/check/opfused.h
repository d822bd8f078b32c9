/* opfused.h -- compares a fused activation with two separate calls. */
#ifndef SEG_ENGINE_CHECK_OPFUSED_H
#define SEG_ENGINE_CHECK_OPFUSED_H
#include "engine/check/opcase.h"

/* For each activation that the backend fuses with this operator, checks that
 * the bits equal those of separate calls, with 16-bit tensors for `bits` of
 * Storage.narrow. */
void opfused_agree(const OpCase *c, OpCheck *k, unsigned bits);
#endif
