/* opfused.h -- agreement of two rows that run as one with both apart. */
#ifndef SEG_ENGINE_CHECK_OPFUSED_H
#define SEG_ENGINE_CHECK_OPFUSED_H
#include "engine/check/opcase.h"

/* With each row that the backend runs in the store of this one the same bits as
 * apart, in tensors that are narrow by these bits of Backend.narrow. */
void opfused_agree(const OpCase *c, OpCheck *k, unsigned bits);
#endif
