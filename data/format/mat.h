/* mat.h -- MATLAB's .mat files of version 5 (-v6 and -v7): real arrays.
 *
 * Format: "MATLAB MAT-File Format" of The MathWorks, chapter 1. Both byte
 * orders, plain and compressed elements, small elements, numbers stored in a
 * narrower type than their class. Variables of other kinds (cell, struct,
 * char, sparse, complex, objects) are listed, and refused when one is asked
 * for; their insides are never entered. Versions 4 and 7.3 (HDF5) are refused
 * by name. Reasons read "PATH: mat: WHAT; fix: HOW", ERR_DATA. */
#ifndef SEG_DATA_FORMAT_MAT_H
#define SEG_DATA_FORMAT_MAT_H
#include "data/format/npy.h"

typedef struct MatVariable {
    const char *name;
    const char *class_name; /* "double", "uint8", "logical", "cell", ... */
    bool complex;
    int axes; /* at least 2; 0 for "opaque". Beyond NPY_AXES not read */
    int64_t shape[NPY_AXES]; /* as MATLAB writes it; may hold 0        */
    /* how it is stored */
    int class_number, flags;
    bool packed; /* `stored` bytes at `at` are a zlib stream            */
    size_t at;   /* in the file; of a plain one: behind its tag         */
    size_t stored;
    size_t bytes; /* of the element without its tag, unpacked            */
} MatVariable;

/* An open file; zeroed it is a closed one. */
typedef struct Mat {
    const uint8_t *bytes;
    size_t size;
    bool big;
    int variables;
    MatVariable *variable; /* in the order of the file */
    Arena mem;
    Map map; /* closed when it is bytes */
} Mat;

/* List the variables; of a compressed one only the start is unpacked. On
 * failure *m is closed. */
bool mat_open(const char *path, Mat *m);
/* The same of bytes, which must outlive *m. Reasons begin at "mat:". */
bool mat_open_bytes(const uint8_t *bytes, size_t size, Mat *m);
void mat_close(Mat *m);

/* Why a variable's kind is not read, as in "is a cell array, need numbers";
 * NULL when it is. */
const char *mat_refused(const MatVariable *v);

/* The variable called `name` as F32: out->shape is MATLAB's, and the numbers
 * are in C order of it, so element (i, j) of an r x c matrix, from 0, is
 * data[i * c + j]. At most `max_elements` (0: 2^33). On failure *out is
 * zero. */
bool mat_read(const Mat *m, const char *name, int64_t max_elements,
              NpyArray *out);
#endif
