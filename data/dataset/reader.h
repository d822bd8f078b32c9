/* reader.h -- the file readers, by name.
 *
 * A reader makes one Volume of one file; reader.c has the table. Volumes of
 * files without a position in the patient (arrays, photographs) have the
 * identity as affine, so a voxel is 1 mm. */
#ifndef SEG_DATA_DATASET_READER_H
#define SEG_DATA_DATASET_READER_H
#include "data/dataset/dicom_source.h"
#include "data/image/image.h"

typedef struct ReaderOptions {
    NiftiOptions nifti; /* `label` of both is set by the kind of the field */
    ImageOptions image;
    /* Labels, resample_mask and (for masks) the options of the image are set by
     * the data set. */
    DicomRead dicom;
    /* Arrays and photographs: their voxels are the voxels of the first field,
     * by index. */
    bool same_grid;
    /* Arrays: the names of the axes, one letter each of d, h, w and c, in file
     * order ("wc": time, features; "chw"). Axes that are not named have extent
     * 1. "": by the rank and axes of the file, channels last: w wc, hw hwc, dhw
     * dhwc. */
    char axes[8];
} ReaderOptions;

typedef struct Reader {
    const char *name;
    int rank; /* axes of its volumes without channels; -1: set by the options */
    /* as in Source */
    bool (*load)(const Source *s, Volume *out, DicomNotes *notes);
    bool (*depends)(const Source *s, Arena *mem, SourceFacts *out);
    int part;       /* tells apart several readers with the same functions  */
    bool placeless; /* its files give no position in the patient */
    /* NULL: the path suffices. Else called when a case is added: sets *out from
     * the files at `path`, for a case with `first` as its first source (NULL:
     * this one). */
    bool (*find)(const char *path, FieldKind kind, const Source *first,
                 const DicomRead *how, Arena *mem, Source *out);
} Reader;

/* The reader of this name; else NULL with a list of all names (ERR_USAGE). */
const Reader *reader_find(const char *name);

/* Are these letters valid axes of an array of `rank`? ERR_USAGE if not. */
bool reader_axes(const char *axes, int rank);

/* The options of a file (Source.how). */
typedef struct ReaderHow {
    const Reader *reader;
    const ReaderOptions *options;
    FieldKind kind;
    int rank;
} ReaderHow;
#endif
