/* mat.h -- MATLAB .mat files of version 5 (-v6 and -v7): real arrays.
 *
 * Format: "MATLAB MAT-File Format" of The MathWorks, chapter 1. Both byte
 * orders, plain and compressed elements, small elements, numbers stored in a
 * narrower type than their class. Variables of other kinds (cell, struct, char,
 * sparse, complex, objects) are listed, and reading one fails; their contents
 * are never parsed. Versions 4 and 7.3 (HDF5) are recognised and rejected.
 * Reasons read "PATH: mat: PROBLEM; fix: HOW", ERR_DATA. */
#ifndef SEG_DATA_FORMAT_MAT_H
#define SEG_DATA_FORMAT_MAT_H
#include "data/format/npy.h"

typedef struct MatVariable {
    const char *name;
    const char *class_name; /* "double", "uint8", "logical", "cell", ... */
    bool complex;
    int axes; /* at least 2; 0 for "opaque". More than NPY_AXES are not read */
    int64_t shape[NPY_AXES]; /* as stored by MATLAB; may hold 0 */
    /* location in the file */
    int class_number, flags;
    bool packed; /* the `stored` bytes at `at` are a zlib stream */
    size_t at;   /* offset in the file; of a plain element: after its tag */
    size_t stored;
    size_t bytes; /* size of the element without its tag, uncompressed */
} MatVariable;

/* An open file; zero-initialised it is closed. */
typedef struct Mat {
    const uint8_t *bytes;
    size_t size;
    bool big;
    int variables;
    MatVariable *variable; /* in the order of the file */
    Arena mem;
    Map map; /* closed if the source is a buffer */
} Mat;

/* Lists the variables; of a compressed variable only the start is inflated. On
 * failure *m is closed. */
bool mat_open(const char *path, Mat *m);
/* The same from a buffer, which must outlive *m. Reasons begin at "mat:". */
bool mat_open_bytes(const uint8_t *bytes, size_t size, Mat *m);
void mat_close(Mat *m);

/* Returns why the kind of a variable is not supported, as in "is a cell array,
 * need numbers"; NULL when it is supported. */
const char *mat_refused(const MatVariable *v);

/* Reads the variable `name` as F32: out->shape is the shape in MATLAB, and the
 * numbers are in C order of it, so element (i, j) of an r x c matrix, from 0,
 * is data[i * c + j]. At most `max_elements` (0: 2^33). On failure *out is
 * zero. */
bool mat_read(const Mat *m, const char *name, int64_t max_elements,
              NpyArray *out);
#endif
