/* mat_make.h -- MATLAB files made by hand, for the tests of mat. */
#ifndef SEG_TESTS_SUPPORT_MAT_MAKE_H
#define SEG_TESTS_SUPPORT_MAT_MAKE_H
#include "data/format/mat.h"
#include "tests/test.h"

enum { MAT_ROOM = 4096 };

/* A file as it grows. Names of the format: MI are types of elements, MX
 * classes of arrays. */
typedef struct MatMaker {
    uint8_t bytes[MAT_ROOM];
    size_t size;
    bool big;
} MatMaker;

/* The next number, and one in place of what is there. */
void mat_put(MatMaker *m, uint64_t value, int bytes);
void mat_patch(MatMaker *m, size_t at, uint64_t value, int bytes);

/* The header of a file without variables. */
void mat_begin(MatMaker *m, bool big);
/* An element of `bytes` bytes at p, in small form when that is wanted. */
void mat_element(MatMaker *m, int type, const void *p, size_t bytes,
                 bool small);
/* Whole numbers, as elements of a type store them. */
void mat_numbers(MatMaker *m, int type, int width, const int *x, int count,
                 bool small);
/* The parts of a matrix before its numbers; where its tag is. */
size_t mat_matrix(MatMaker *m, int flags, int mx, const int *shape, int axes,
                  const char *name);
/* The matrix ends here: its tag says so. */
void mat_end(MatMaker *m, size_t at);
/* The element at `at`, which is the last, becomes a compressed one. */
void mat_compress(MatMaker *m, size_t at);

extern const int mat_grid[2], mat_counted[6]; /* 2 x 3; 1 to 6 */
/* Matrix "x" of 2 x 3, [1 3 5; 2 4 6], of class mx, stored as type mi; where
 * it begins. */
size_t mat_make(MatMaker *m, bool big, int mx, int mi, int width);

/* mat_open_bytes of a copy of exactly the size, which stays with the Mat. */
bool mat_copy(const MatMaker *m, uint8_t **copy, Mat *mat);
/* Opening it and reading "x" both work, or the first failure is told. */
bool mat_read_x(const MatMaker *m);
#endif
