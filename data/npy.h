/* npy.h -- NumPy's .npy files: one array of numbers.
 *
 * Versions 1 to 3, integers, floats of 16 to 64 bits and bool, both byte
 * orders, C and Fortran order. Numbers become F32 and the order C: the first
 * axis slowest, as in NumPy. Pickled objects, text, dates, complex and
 * structured types are refused by name; nothing in a file is ever evaluated.
 * Reasons read "PATH: npy: WHAT; fix: HOW", ERR_DATA. */
#ifndef SEG_NPY_H
#define SEG_NPY_H
#include "mem.h"

enum { NPY_AXES = 8 };

typedef struct NpyArray {
    int axes; /* 0: one number */
    int64_t shape[NPY_AXES];
    int64_t count; /* product of shape, at least 1 */
    float *data;   /* from mem_alloc; the caller frees it */
} NpyArray;

/* The file must hold exactly the array. On failure *out is zero. */
bool npy_read(const char *path, NpyArray *out);

/* The same from memory, with a limit on the number of elements (0: 2^33).
 * Reasons begin at "npy:". */
bool npy_decode(const uint8_t *bytes, size_t size, int64_t max_elements,
                NpyArray *out);

/* Write F32 in C order, version 1, numbers from a multiple of 64 on, as
 * numpy.save does; whole or not at all. axes <= NPY_AXES, extents >= 1. */
bool npy_write(const char *path, int axes, const int64_t *shape,
               const float *data);
#endif
