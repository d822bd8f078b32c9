/* npy.h -- .npy files of NumPy: one array of numbers.
 *
 * Versions 1 to 3, integers, floats of 16 to 64 bits and bool, both byte
 * orders, C and Fortran order (numpy/lib/format.py). Numbers become F32 in C
 * order: the first axis slowest, as in NumPy. Pickled objects, text, dates,
 * complex and structured types are rejected by name; nothing in a file is ever
 * evaluated. Reasons read "PATH: npy: PROBLEM; fix: HOW", ERR_DATA. */
#ifndef SEG_DATA_FORMAT_NPY_H
#define SEG_DATA_FORMAT_NPY_H
#include "data/format/map.h"
#include "data/format/number.h"
#include "engine/graph/tensor.h"

enum { NPY_AXES = 8 };

typedef struct NpyArray {
    int axes; /* 0: a scalar */
    int64_t shape[NPY_AXES];
    int64_t count; /* product of shape, at least 1 */
    float *data;   /* from mem_alloc; the caller frees it */
} NpyArray;

/* The header of a file. */
typedef struct NpyHeader {
    NumberType type;
    bool boolean; /* one byte per element, which must be 0 or 1 */
    bool fortran; /* stored with the first axis fastest */
    int axes;
    int64_t shape[NPY_AXES];
    int64_t count; /* product of shape, at least 1 */
    size_t begin;  /* offset of the numbers in the file */
} NpyHeader;

/* -- whole arrays --------------------------------------------------------- */

/* The file must contain exactly the array. On failure *out is zero. */
bool npy_read(const char *path, NpyArray *out);

/* The same from memory, with a limit on the number of elements (0: 2^33).
 * Reasons begin at "npy:". */
bool npy_decode(const uint8_t *bytes, size_t size, int64_t max_elements,
                NpyArray *out);

/* Writes U8, I16 or F32 in C order, version 1, the numbers aligned to 64 bytes
 * as by numpy.save; the whole file or none. axes <= NPY_AXES, extents >= 1. */
bool npy_write_numbers(const char *path, Dtype type, int axes,
                       const int64_t *shape, const void *data);
/* The same for F32. */
bool npy_write(const char *path, int axes, const int64_t *shape,
               const float *data);

/* -- parts of arrays ------------------------------------------------------ */

/* An open file, or a buffer; zero-initialised it is closed. */
typedef struct NpyFile {
    NpyHeader header;
    const uint8_t *numbers; /* header.count of header.type */
    Map map;                /* closed if the source is a buffer */
} NpyFile;

/* Reads only the header, so a file may be larger than memory (at most 2^33
 * elements). On failure *f is closed. */
bool npy_open(const char *path, NpyFile *f);
/* The same from a buffer, which must outlive *f. */
bool npy_open_bytes(const uint8_t *bytes, size_t size, int64_t max_elements,
                    NpyFile *f);
/* Sets out[i] to element first + i in C order, whatever the order of the file.
 * Several threads may read one file. */
bool npy_read_range(const NpyFile *f, int64_t first, int64_t count, float *out);
void npy_close(NpyFile *f);

/* -- headers alone, for archives ------------------------------------------ */

/* Returns the number of bytes of the header, from the first NPY_PREFIX bytes of
 * an array; `have` when these are not sufficient. At most NPY_PREFIX + 2^20. */
enum { NPY_PREFIX = 12 };
size_t npy_header_end(const uint8_t *bytes, size_t have);
/* Parses the header of an array of `size` bytes, of which at least the first
 * npy_header_end() are given. Reasons begin at "npy:". */
bool npy_about(const uint8_t *bytes, size_t have, size_t size,
               int64_t max_elements, NpyHeader *h);
/* Returns the type name of NumPy: "float32", "uint8", "bool". */
const char *npy_type_name(const NpyHeader *h);
#endif
