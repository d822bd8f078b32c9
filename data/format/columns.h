/* columns.h -- numbers stored with the first axis fastest, read in C order.
 *
 * What Fortran order in .npy and every array in .mat have in common: element
 * (i0, i1, ...) of shape (n0, n1, ...) lies at i0 + n0 * (i1 + n1 * ...). */
#ifndef SEG_DATA_FORMAT_COLUMNS_H
#define SEG_DATA_FORMAT_COLUMNS_H
#include "data/format/number.h"

enum { COLUMNS_AXES = 8 };

/* out[k] = element first + k of the array in C order, as number_to_f32 makes
 * it. Returns the k of the first number beyond float, else -1.
 * 1 <= axes <= COLUMNS_AXES, extents >= 1; the range lies in the array. */
int64_t columns_to_f32(const void *in, NumberType t, int axes,
                       const int64_t *shape, int64_t first, int64_t count,
                       float *out);
#endif
