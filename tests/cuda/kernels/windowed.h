/* windowed.h -- convolutions with a window as cases of a row, for kernels that
 * take some of them. */
#ifndef SEG_EMU_TEST_WINDOWED_H
#define SEG_EMU_TEST_WINDOWED_H
#include "engine/check/opcase.h"

/* {n,d,h,w,c}, filters, and of each axis that the rank has: kernel, stride,
 * padding on either side, dilation. */
typedef struct Windowed {
    int rank;
    Dims x;
    int filters, kernel, stride, lo, hi, dilation;
} Windowed;

/* That case; an odd `number` has a bias, and the gradients `odd` are wanted. */
OpCase windowed_case(const Windowed *s, uint32_t number, unsigned odd);
/* y in f32, rounded, is y narrow. */
void windowed_narrow(const OpCase *c, OpCheck *k);
#endif
