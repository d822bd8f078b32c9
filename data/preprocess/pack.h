/* pack.h -- lossless compression of the numbers of a volume.
 *
 * Most of the memory of training is prepared volumes, and most of the volumes
 * are more regular than floats: masks are bits, scans are whole numbers, a dose
 * or a structure is zero nearly everywhere. A Pack is one block of memory
 * without addresses, so that it can be written to a file and used where the
 * file is mapped.
 *
 * The numbers read back equal the packed ones, except that -0 may become 0. */
#ifndef SEG_DATA_PREPROCESS_PACK_H
#define SEG_DATA_PREPROCESS_PACK_H
#include "data/resample/crop.h"

typedef enum PackKind {
    PACK_DENSE, /* one number per voxel and channel, of `type`            */
    PACK_BITS,  /* one bit each, lowest bit of a byte first: all 0 or 1   */
    PACK_RUNS,  /* per slice d: runs of nonzero numbers of `type`          */
    PACK_KINDS
} PackKind;

typedef struct Pack {
    Dims dim; /* n = 1 */
    PackKind kind;
    Dtype type; /* F32, I16 or U8 */
    void *data; /* (bytes) */
    size_t bytes;
    bool owned; /* data is freed with it; else it is in a mapped file */
} Pack;

/* Makes the smallest pack of a block of F32 or U8 numbers (n = 1), owned. Fails
 * only when memory runs out. */
bool pack_make(const Tensor *x, Pack *out);
void pack_free(Pack *p); /* zeroes p        */

/* out = slices d .. d + count - 1 as F32, (count, h, w, c). */
void pack_read(const Pack *p, int32_t d, int32_t count, float *out);

/* out = the voxels of the box as F32 (n[2], n[1], n[0], c); the box must lie
 * inside the volume. */
void pack_read_box(const Pack *p, const Box *box, float *out);

/* Is this block, which comes from a file, safe for pack_read? Checks extents,
 * sizes and the list of runs, not the values. ERR_DATA. */
bool pack_check(const Pack *p);
#endif
