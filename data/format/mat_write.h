/* mat_write.h -- writes arrays as a .mat file of MATLAB, version 5.
 *
 * Format: "MATLAB MAT-File Format" of The MathWorks, chapter 1: little endian,
 * uncompressed (-v6), real matrices of two axes. mat.h reads such files. */
#ifndef SEG_DATA_FORMAT_MAT_WRITE_H
#define SEG_DATA_FORMAT_MAT_WRITE_H
#include <stdbool.h>

/* Storage type of a matrix; its class and the type of its numbers agree. */
typedef enum MatKind { MAT_DOUBLE, MAT_SINGLE, MAT_INT16 } MatKind;

typedef struct MatMatrix {
    const char *name; /* at most 63 letters, digits and underscores      */
    MatKind kind;
    int rows, columns;
    const double *x; /* in C order: x[r * columns + c]; each value must fit the
                      * kind */
} MatMatrix;

/* Writes the whole file or none; the same numbers give the same bytes. */
bool mat_write(const char *path, const MatMatrix *list, int count);
#endif
