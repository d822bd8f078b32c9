/* nifti.h -- NIfTI-1 and NIfTI-2 files to volumes and back.
 *
 * Read are .nii, .nii.gz and pairs .hdr + .img (.hdr.gz + .img.gz; either
 * name may be given), both byte orders, integers of 8 to 64 bits, float32 and
 * float64. Voxels are not reordered, but that channels, which a file has one
 * behind the other, lie side by side in a volume; the affine goes from NIfTI's
 * RAS to LPS by negating its first two rows, and back on writing. Nothing is
 * guessed: a file that says two things, or nothing, about where its voxels
 * are is refused. Reasons read "PATH: nifti: WHAT; fix: HOW", ERR_DATA. */
#ifndef SEG_DATA_FORMAT_NIFTI_H
#define SEG_DATA_FORMAT_NIFTI_H
#include "data/volume.h"

/* Which of a file's two descriptions of space counts. */
typedef enum NiftiForm {
    NIFTI_BOTH,  /* sform if its code > 0, else qform if its code > 0; both
                  * present must agree within 1 % of a voxel edge */
    NIFTI_SFORM, /* only the sform; a file without one is refused */
    NIFTI_QFORM, /* only the qform; a file without one is refused */
    /* Whichever is there; of both the first, and NiftiHeader.doubt says when
     * they disagree. */
    NIFTI_SFORM_OR_QFORM,
    NIFTI_QFORM_OR_SFORM,
} NiftiForm;

typedef struct NiftiOptions {
    NiftiForm form;
    bool label;          /* class numbers: unit becomes UNIT_LABEL */
    bool no_voxels;      /* extents, type and affine: voxels.data stays NULL */
    bool assume_spacing; /* neither form present: axes run R, A, S with pixdim
                          * as spacing, voxel 0 at the origin. A guess, as
                          * nifti1.h has it and nibabel has it not (L, A, S);
                          * a form that is there counts all the same */
    bool channels;       /* a fourth axis is channels, as the Decathlon has
                          * its sequences; not of class numbers */
    int64_t max_bytes;   /* of the file; 0: 16 GiB */
    int64_t max_voxels;  /* times channels; 0: 2^33 */
} NiftiOptions;

/* What a header says that its volume does not: kept so that a result can be
 * written the way its input was. Values as stored, in the file's units. */
typedef struct NiftiHeader {
    int version; /* 1 or 2 */
    bool big;    /* big endian */
    int64_t dim[8];
    int datatype, bitpix, intent;
    double pixdim[8];
    double vox_offset, slope, inter;
    int units, qform, sform;
    double quatern[3], offset[3], srow[3][4];
    char doubt[512]; /* what the reader chose where the file leaves it open,
                      * for the user; "": nothing */
} NiftiHeader;

/* Length of a file's name without its ending, .nii, .nii.gz, .hdr or .hdr.gz,
 * also in capitals; 0: it is called otherwise. */
size_t nifti_stem(const char *path);

/* The files that a path stands for: itself, or header and image of a pair,
 * either name of which stands for both; in `mem`. 0: it is called otherwise, or
 * no memory (both with a reason). */
int nifti_files(const char *path, Arena *mem, const char *name[2]);

/* U8 and I16 (and int8, as I16) keep their values when slope is 1 and
 * intercept 0, also slope 0, which means 1; all else becomes F32: slope times
 * value plus intercept. Numbers of a scale that are not finite are 0, so NaN as
 * slope means none. Labels that are whole numbers of 16 bits become U8, or I16
 * beyond 0 .. 255; others stay F32, for whoever knows which labels there are. A
 * fourth axis must have extent 1, unless it is channels. Not a number among
 * float voxels passes. `options` and `header` may be NULL. On failure *out is
 * zero. */
bool nifti_read(const char *path, const NiftiOptions *options, Volume *out,
                NiftiHeader *header);

/* Options as a text: files read with equal ones give equal volumes. NULL
 * without memory. */
char *nifti_asked(const NiftiOptions *options, Arena *mem);

/* The same from memory: `file` is the content of a .nii or .hdr file, `image`
 * that of the .img file, or NULL. Reasons begin at "nifti:". */
typedef struct NiftiBytes {
    const uint8_t *data;
    size_t bytes;
    bool gz; /* the name ends in .gz */
} NiftiBytes;
bool nifti_decode(const NiftiBytes *file, const NiftiBytes *image,
                  const NiftiOptions *options, Volume *out,
                  NiftiHeader *header);

/* Write v (one channel) as .nii or .nii.gz, by the name of `path`, whole or not
 * at all. With `like` (v must be on its grid) version, codes, quaternion,
 * rows, units and the three extents are its own; else NIfTI-1 in mm, sform and,
 * when the axes are orthogonal, qform with code 1. The type is v's, slope 1.
 * Texts of the input (descrip, aux_file, extensions) may name a patient and are
 * not copied. Equal voxels give equal bytes. */
bool nifti_write(const char *path, const Volume *v, const NiftiHeader *like);
#endif
