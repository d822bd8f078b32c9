/* nifti_header.h -- the fixed part of a NIfTI file, as bytes and as numbers. */
#ifndef SEG_DATA_FORMAT_NIFTI_HEADER_H
#define SEG_DATA_FORMAT_NIFTI_HEADER_H
#include "data/format/nifti.h"
#include "data/format/number.h"

enum {
    NIFTI1_BYTES = 348,
    NIFTI2_BYTES = 540,
    NIFTI_EXTENDER = 4, /* bytes between header and extensions or voxels */
};

/* Parse and check all but the space: extents, type, offset,
 * numbers that must be finite. `pair`: the voxels lie in a file of their own;
 * of the options `channels` and `label` decide about a fourth axis. `type` is
 * the kind of number that the voxels are. */
bool nifti_header_parse(const uint8_t *bytes, size_t count, bool pair,
                        const NiftiOptions *options, NiftiHeader *h,
                        NumberType *type);

/* One more sentence in h->doubt. */
void nifti_doubt(NiftiHeader *h, const char *format, ...) ERR_FORMAT(2, 3);

/* Could a header begin there: is it long enough, and its first number the size
 * of one, in either byte order? */
bool nifti_header_begins(const uint8_t *bytes, size_t count);

/* Extents of the volume, c that of the fourth axis. */
Dims nifti_header_dims(const NiftiHeader *h);

/* Affine (w,h,d,1) -> LPS mm by the rule of options; what the file leaves open
 * is a sentence in h->doubt. */
bool nifti_header_affine(NiftiHeader *h, const NiftiOptions *options,
                         double affine[4][4]);

/* The reverse: codes, quaternion, rows and pixdim of h from an affine. */
void nifti_header_place(NiftiHeader *h, double affine[4][4]);

/* Little-endian header with extender, as a single file; h->version decides
 * which. Returns the number of bytes: 352 or 544, where voxels begin. */
size_t nifti_header_bytes(const NiftiHeader *h,
                          uint8_t bytes[NIFTI2_BYTES + NIFTI_EXTENDER]);
#endif
