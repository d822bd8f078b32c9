/* nifti.h -- reads NIfTI-1 and NIfTI-2 files into volumes and writes volumes.
 *
 * Reads .nii, .nii.gz and pairs .hdr + .img (.hdr.gz + .img.gz; either name may
 * be given), both byte orders, integers of 8 to 64 bits, float32 and float64.
 * Voxels are not reordered, except that channels, which a file stores one after
 * the other, are interleaved in a volume. The affine is converted from RAS of
 * NIfTI to LPS by negating its first two rows, and back on writing. Nothing is
 * guessed: a file with contradictory information, or none, about the position
 * of its voxels is rejected. Reasons read "PATH: nifti: PROBLEM; fix: HOW",
 * ERR_DATA. */
#ifndef SEG_DATA_FORMAT_NIFTI_H
#define SEG_DATA_FORMAT_NIFTI_H
#include "data/volume.h"

/* Which of the two descriptions of space in a file is used. */
typedef enum NiftiForm {
    NIFTI_BOTH,  /* sform if its code > 0, else qform if its code > 0; both
                  * present must agree within 1 % of a voxel edge */
    NIFTI_SFORM, /* only the sform; a file without it is rejected */
    NIFTI_QFORM, /* only the qform; a file without it is rejected */
    /* The form that is present; of both the first, and NiftiHeader.doubt states
     * if they disagree. */
    NIFTI_SFORM_OR_QFORM,
    NIFTI_QFORM_OR_SFORM,
} NiftiForm;

typedef struct NiftiOptions {
    NiftiForm form;
    bool label;          /* class numbers: unit becomes UNIT_LABEL */
    bool no_voxels;      /* reads extents, type and affine; voxels.data stays
                          * NULL */
    bool assume_spacing; /* neither form present: axes run R, A, S with pixdim
                          * as spacing, voxel 0 at the origin. An assumption, as
                          * in nifti1.h but not in nibabel (L, A, S); a form
                          * that is present takes precedence */
    bool channels;       /* a fourth axis is channels, as for the sequences of
                          * the Medical Segmentation Decathlon; not for class
                          * numbers */
    int64_t max_bytes;   /* of the file; 0: 16 GiB */
    int64_t max_voxels;  /* times channels; 0: 2^33 */
} NiftiOptions;

/* The part of a header that its volume does not represent: kept so that a
 * result can be written like its input. Values as stored, in the units of the
 * file. */
typedef struct NiftiHeader {
    int version; /* 1 or 2 */
    bool big;    /* big endian */
    int64_t dim[8];
    int datatype, bitpix, intent;
    double pixdim[8];
    double vox_offset, slope, inter;
    int units, qform, sform;
    double quatern[3], offset[3], srow[3][4];
    char doubt[512]; /* choices of the reader where the file is ambiguous, for
                      * the user; "": none */
} NiftiHeader;

/* Returns the length of a file name without its extension, .nii, .nii.gz, .hdr
 * or .hdr.gz, also in capitals; 0: another extension. */
size_t nifti_stem(const char *path);

/* Returns the number of files that a path stands for, and their names in `mem`:
 * the file itself, or header and image of a pair, either name of which stands
 * for both. 0: another extension, or no memory (both with a reason). */
int nifti_files(const char *path, Arena *mem, const char *name[2]);

/* U8 and I16 (and int8, as I16) keep their values when slope is 1 and intercept
 * 0, also for slope 0, which means 1; all other types become F32: slope times
 * value plus intercept. A slope or intercept that is not finite is read as 0,
 * so a NaN slope means no scaling. Labels that are whole numbers of 16 bits
 * become U8, or I16 beyond 0 .. 255; other labels stay F32, for the caller who
 * knows the label values. A fourth axis must have extent 1, unless it is
 * channels. NaN in float voxels is accepted. `options` and `header` may be
 * NULL. On failure *out is zero. */
bool nifti_read(const char *path, const NiftiOptions *options, Volume *out,
                NiftiHeader *header);

/* Returns the options as text: files read with equal texts give equal volumes.
 * NULL without memory. */
char *nifti_asked(const NiftiOptions *options, Arena *mem);

/* The same from memory: `file` is the content of a .nii or .hdr file, `image`
 * the content of the .img file, or NULL. Reasons begin at "nifti:". */
typedef struct NiftiBytes {
    const uint8_t *data;
    size_t bytes;
    bool gz; /* the name ends in .gz */
} NiftiBytes;
bool nifti_decode(const NiftiBytes *file, const NiftiBytes *image,
                  const NiftiOptions *options, Volume *out,
                  NiftiHeader *header);

/* Writes v (one channel) as .nii or .nii.gz, by the name of `path`, the whole
 * file or none. With `like` (v must be on its grid) version, codes, quaternion,
 * rows, units and the three extents are taken from it; else NIfTI-1 in mm,
 * sform and, when the axes are orthogonal, qform with code 1. The type is that
 * of v, slope 1. Texts of the input (descrip, aux_file, extensions) may name a
 * patient and are not copied. Equal voxels give equal bytes. */
bool nifti_write(const char *path, const Volume *v, const NiftiHeader *like);
#endif
