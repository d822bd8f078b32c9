/* pack.h -- the numbers of a volume in as few bytes as keep every one exact.
 *
 * Most of the memory of training is prepared volumes, and most of these are
 * more regular than floats: masks are bits, scans whole numbers, a dose or a
 * structure is zero nearly everywhere. A Pack is one block of memory without
 * addresses, so that it may be written to a file and used where that is mapped.
 *
 * What is read back is equal to what was packed, but that -0 may become 0. */
#ifndef SEG_DATA_PREPROCESS_PACK_H
#define SEG_DATA_PREPROCESS_PACK_H
#include "data/resample/crop.h"

typedef enum PackKind {
    PACK_DENSE, /* one number a voxel and channel, of `type`              */
    PACK_BITS,  /* one bit each, the lowest of a byte first: all 0 or 1   */
    PACK_RUNS,  /* per slice d: stretches that are not 0, values of `type` */
    PACK_KINDS
} PackKind;

typedef struct Pack {
    Dims dim; /* n = 1 */
    PackKind kind;
    Dtype type; /* F32, I16 or U8 */
    void *data; /* (bytes) */
    size_t bytes;
    bool owned; /* data is freed with it; else it lies in a file */
} Pack;

/* The smallest pack of a block of F32 or U8 numbers (n = 1), owned. Fails
 * without memory. */
bool pack_make(const Tensor *x, Pack *out);
void pack_free(Pack *p); /* p is zero again */

/* out = slices d .. d + count - 1 as F32, (count, h, w, c). */
void pack_read(const Pack *p, int32_t d, int32_t count, float *out);

/* out = the voxels of the box as F32 (n[2], n[1], n[0], c); it lies inside. */
void pack_read_box(const Pack *p, const Box *box, float *out);

/* May pack_read use this block, which comes from a file? Looks at extents,
 * sizes and the list of runs, not at the values. ERR_DATA. */
bool pack_check(const Pack *p);
#endif
