/* reader.h -- what a file can be read as, by name.
 *
 * A reader makes one Volume of one file; reader.c has the table. Volumes of
 * files that know no place (arrays, photographs) have the identity as affine,
 * so a voxel is 1 mm. */
#ifndef SEG_DATA_DATASET_READER_H
#define SEG_DATA_DATASET_READER_H
#include "data/dataset/dicom_source.h"
#include "data/image/image.h"

typedef struct ReaderOptions {
    NiftiOptions nifti; /* of both label is set by the kind of the field */
    ImageOptions image;
    /* Labels, resample_mask and (of masks) the options of the image are set
     * by the data set. */
    DicomRead dicom;
    /* Of arrays and photographs: their voxels are those of the first field,
     * one by one. */
    bool same_grid;
    /* Of an array: what its axes are, a letter each out of d, h, w and c, in
     * their order in the file ("wc": time, features; "chw"). Axes that are not
     * named have extent 1. "": by rank and axes of the file, channels last:
     * w wc, hw hwc, dhw dhwc. */
    char axes[8];
} ReaderOptions;

typedef struct Reader {
    const char *name;
    int rank; /* axes of what it reads beside channels; -1: as options say */
    /* as in Source */
    bool (*load)(const Source *s, Volume *out, DicomNotes *notes);
    bool (*depends)(const Source *s, Arena *mem, SourceFacts *out);
    int part;       /* of several readers that share their functions: which */
    bool placeless; /* what it reads does not say where it lies */
    /* NULL: the path says all. Else, when a case is added: *out from what lies
     * at `path`, for a case whose first source is `first` (NULL: this one). */
    bool (*find)(const char *path, FieldKind kind, const Source *first,
                 const DicomRead *how, Arena *mem, Source *out);
} Reader;

/* The reader of this name; NULL with the names that there are (ERR_USAGE). */
const Reader *reader_find(const char *name);

/* Are these letters axes that an array of `rank` can have? ERR_USAGE. */
bool reader_axes(const char *axes, int rank);

/* What Source.how of a file points at. */
typedef struct ReaderHow {
    const Reader *reader;
    const ReaderOptions *options;
    FieldKind kind;
    int rank;
} ReaderHow;
#endif
