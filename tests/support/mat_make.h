/* mat_make.h -- MATLAB files for the tests of mat. */
#ifndef SEG_TESTS_SUPPORT_MAT_MAKE_H
#define SEG_TESTS_SUPPORT_MAT_MAKE_H
#include "data/format/mat.h"
#include "tests/test.h"

enum { MAT_ROOM = 4096 };

/* A file under construction. Names of the format: MI are types of elements, MX
 * classes of arrays. */
typedef struct MatMaker {
    uint8_t bytes[MAT_ROOM];
    size_t size;
    bool big;
} MatMaker;

/* Append a number; overwrite one. */
void mat_put(MatMaker *m, uint64_t value, int bytes);
void mat_patch(MatMaker *m, size_t at, uint64_t value, int bytes);

/* The header of a file without variables. */
void mat_begin(MatMaker *m, bool big);
/* An element of `bytes` bytes at p, in the small format if `small`. */
void mat_element(MatMaker *m, int type, const void *p, size_t bytes,
                 bool small);
/* Whole numbers, stored with the type of the element. */
void mat_numbers(MatMaker *m, int type, int width, const int *x, int count,
                 bool small);
/* The elements of a matrix before its numbers; returns the offset of its tag.
 */
size_t mat_matrix(MatMaker *m, int flags, int mx, const int *shape, int axes,
                  const char *name);
/* Ends the matrix: writes its size into its tag. */
void mat_end(MatMaker *m, size_t at);
/* Compresses the element at `at`, which must be the last one. */
void mat_compress(MatMaker *m, size_t at);

extern const int mat_grid[2], mat_counted[6]; /* 2 x 3; 1 to 6 */
/* Matrix "x" of 2 x 3, [1 3 5; 2 4 6], of class mx, stored as type mi; returns
 * its offset. */
size_t mat_make(MatMaker *m, bool big, int mx, int mi, int width);

/* mat_open_bytes of a copy of exactly the size, which stays with the Mat. */
bool mat_copy(const MatMaker *m, uint8_t **copy, Mat *mat);
/* Opens it and reads "x"; false with the reason of the first failure. */
bool mat_read_x(const MatMaker *m);
#endif
