/* windowed.h -- convolutions as table rows, for tests of kernels that take some
 * of the rows. */
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

/* Returns the case of a row. With an odd `number` it has a bias and the
 * gradients `odd`. */
OpCase windowed_case(const Windowed *s, uint32_t number, unsigned odd);
/* Expects that y stored in 16 bits equals y in f32, rounded. */
void windowed_y16(const OpCase *c, OpCheck *k);
#endif
