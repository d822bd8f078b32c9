/* columns.h -- reads arrays in C order that are stored with the first axis
 * fastest.
 *
 * Fortran order in .npy and every array in .mat store element (i0, i1, ...) of
 * shape (n0, n1, ...) at i0 + n0 * (i1 + n1 * ...). */
#ifndef SEG_DATA_FORMAT_COLUMNS_H
#define SEG_DATA_FORMAT_COLUMNS_H
#include "data/format/number.h"

enum { COLUMNS_AXES = 8 };

/* Sets out[k] to element first + k of the array in C order, converted as by
 * number_to_f32. Returns the k of the first number beyond float, else -1. 1 <=
 * axes <= COLUMNS_AXES, extents >= 1; the range lies in the array. */
int64_t columns_to_f32(const void *in, NumberType t, int axes,
                       const int64_t *shape, int64_t first, int64_t count,
                       float *out);
#endif
