/* npy.h -- NumPy's .npy files: one array of numbers.
 *
 * Versions 1 to 3, integers, floats of 16 to 64 bits and bool, both byte
 * orders, C and Fortran order (numpy/lib/format.py). Numbers become F32 and
 * the order C: the first axis slowest, as in NumPy. Pickled objects, text,
 * dates, complex and structured types are refused by name; nothing in a file
 * is ever evaluated. Reasons read "PATH: npy: WHAT; fix: HOW", ERR_DATA. */
#ifndef SEG_DATA_FORMAT_NPY_H
#define SEG_DATA_FORMAT_NPY_H
#include "data/format/map.h"
#include "data/format/number.h"
#include "engine/graph/tensor.h"

enum { NPY_AXES = 8 };

typedef struct NpyArray {
    int axes; /* 0: one number */
    int64_t shape[NPY_AXES];
    int64_t count; /* product of shape, at least 1 */
    float *data;   /* from mem_alloc; the caller frees it */
} NpyArray;

/* What a file says of its array. */
typedef struct NpyHeader {
    NumberType type;
    bool boolean; /* type is that of one byte, of which only 0 and 1 count */
    bool fortran; /* stored with the first axis fastest */
    int axes;
    int64_t shape[NPY_AXES];
    int64_t count; /* product of shape, at least 1 */
    size_t begin;  /* byte of the file that the numbers start at */
} NpyHeader;

/* -- whole arrays --------------------------------------------------------- */

/* The file must hold exactly the array. On failure *out is zero. */
bool npy_read(const char *path, NpyArray *out);

/* The same from memory, with a limit on the number of elements (0: 2^33).
 * Reasons begin at "npy:". */
bool npy_decode(const uint8_t *bytes, size_t size, int64_t max_elements,
                NpyArray *out);

/* Write U8, I16 or F32 in C order, version 1, numbers from a multiple of 64 on,
 * as numpy.save does; whole or not at all. axes <= NPY_AXES, extents >= 1. */
bool npy_write_numbers(const char *path, Dtype type, int axes,
                       const int64_t *shape, const void *data);
/* The same of F32. */
bool npy_write(const char *path, int axes, const int64_t *shape,
               const float *data);

/* -- parts of arrays ------------------------------------------------------ */

/* An open file, or bytes; zeroed it is a closed one. */
typedef struct NpyFile {
    NpyHeader header;
    const uint8_t *numbers; /* header.count of header.type */
    Map map;                /* closed when it is bytes     */
} NpyFile;

/* Look at the header; of the numbers nothing is read, so a file may be larger
 * than memory (at most 2^33 elements). On failure *f is closed. */
bool npy_open(const char *path, NpyFile *f);
/* The same of bytes, which must outlive *f. */
bool npy_open_bytes(const uint8_t *bytes, size_t size, int64_t max_elements,
                    NpyFile *f);
/* out[i] = element first + i in C order, whatever the file's order. Several
 * threads may read one file. */
bool npy_read_range(const NpyFile *f, int64_t first, int64_t count, float *out);
void npy_close(NpyFile *f);

/* -- headers alone, for archives ------------------------------------------ */

/* Bytes that the header takes, from the first NPY_PREFIX bytes of an array;
 * `have` when they cannot tell. At most NPY_PREFIX + 2^20. */
enum { NPY_PREFIX = 12 };
size_t npy_header_end(const uint8_t *bytes, size_t have);
/* The header of an array of `size` bytes, of which the first npy_header_end()
 * are there. Reasons begin at "npy:". */
bool npy_about(const uint8_t *bytes, size_t have, size_t size,
               int64_t max_elements, NpyHeader *h);
/* "float32", "uint8", "bool": as NumPy calls it. */
const char *npy_type_name(const NpyHeader *h);
#endif
