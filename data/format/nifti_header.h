/* nifti_header.h -- converts the fixed part of a NIfTI file between bytes and
 * numbers. */
#ifndef SEG_DATA_FORMAT_NIFTI_HEADER_H
#define SEG_DATA_FORMAT_NIFTI_HEADER_H
#include "data/format/nifti.h"
#include "data/format/number.h"

enum {
    NIFTI1_BYTES = 348,
    NIFTI2_BYTES = 540,
    NIFTI_EXTENDER = 4, /* bytes between header and extensions or voxels */
};

/* Parses and checks everything except the space: extents, type, offset, and the
 * numbers that must be finite. `pair`: the voxels are in a file of their own.
 * Of the options, `channels` and `label` control a fourth axis. Sets `type` to
 * the number type of the voxels. */
bool nifti_header_parse(const uint8_t *bytes, size_t count, bool pair,
                        const NiftiOptions *options, NiftiHeader *h,
                        NumberType *type);

/* Appends a sentence to h->doubt. */
void nifti_doubt(NiftiHeader *h, const char *format, ...) ERR_FORMAT(2, 3);

/* Could a header begin here: is `count` large enough, and is the first number
 * the size of a header, in either byte order? */
bool nifti_header_begins(const uint8_t *bytes, size_t count);

/* Returns the extents of the volume, c that of the fourth axis. */
Dims nifti_header_dims(const NiftiHeader *h);

/* Computes the affine (w,h,d,1) -> LPS mm by the rule of options; appends a
 * sentence to h->doubt where the file is ambiguous. */
bool nifti_header_affine(NiftiHeader *h, const NiftiOptions *options,
                         double affine[4][4]);

/* The inverse: sets codes, quaternion, rows and pixdim of h from an affine. */
void nifti_header_place(NiftiHeader *h, double affine[4][4]);

/* Writes a little-endian header with extender, for a single file; h->version
 * selects the format. Returns the number of bytes: 352 or 544, where voxels
 * begin. */
size_t nifti_header_bytes(const NiftiHeader *h,
                          uint8_t bytes[NIFTI2_BYTES + NIFTI_EXTENDER]);
#endif
