/* dataset.h -- a list of cases, each with named fields that can be loaded.
 *
 * A case is one examination: a unique key, its patient, and a source for each
 * field ("image", "mask"). A source can load one Volume; no file is loaded
 * before case_load. Cases are sorted by key, so results do not depend on the
 * order of directory entries. Files are paired by key, never by position; a
 * file with no partner or two partners is an error that lists the first ten.
 *
 * A Dataset is constant once built and may be shared by threads. Datasets made
 * from one another (splits) share one store with a count of references; the
 * owner of each frees it. */
#ifndef SEG_DATA_DATASET_DATASET_H
#define SEG_DATA_DATASET_DATASET_H
#include "data/dicom/dicom.h"
#include "data/format/nifti.h"

enum {
    MAX_FIELDS = 8,         /* fields of a case            */
    MAX_CHANNELS = 16,      /* sources joined in one field */
    MAX_FEATURES = 1 << 16, /* channels of a field    */
    MAX_SLABS = 4,          /* ranges of slices of a case  */
    MAX_LABELS = 255,       /* label values apart from 0   */
};

/* The meaning of a field, which decides the steps that apply to it. */
typedef enum FieldKind {
    FIELD_IMAGE,  /* intensities: linear, normalised, augmented  */
    FIELD_VALUE,  /* a quantity (dose): linear, never rescaled   */
    FIELD_LABEL,  /* class numbers: nearest neighbour only       */
    FIELD_NUMBER, /* numbers of the case (angles, a class): without a position,
                   * so no step moves them */
    FIELD_LENGTH, /* one number, set when the case is prepared: the length along
                   * w without padding */
} FieldKind;

/* Does it lie on the grid of the case? */
static inline bool field_on_grid(FieldKind kind)
{
    return kind <= FIELD_LABEL;
}

/* The inputs of a source: files, or bytes in memory, and the reader's options
 * as text. */
typedef struct SourceFacts {
    const char *const *file; /* `files` paths */
    int files;
    const void *data;
    size_t bytes;
    const char *asked;
} SourceFacts;

/* How the position of a source's voxels in the patient is known. */
typedef enum SourcePlace {
    PLACE_OWN,   /* from the file                                          */
    PLACE_NONE,  /* unknown: spacing 1, origin 0                           */
    PLACE_FIRST, /* unknown; taken from the first field, voxel by voxel    */
} SourcePlace;

/* One loadable volume: voxels of any type and any number of channels. */
typedef struct Source {
    bool (*load)(const struct Source *s, Volume *out, DicomNotes *notes);
    const char *path;  /* file or folder, for messages                  */
    const void *what;  /* a Volume, a DicomSeries; NULL: path suffices     */
    const void *image; /* DICOM masks: the series of the image           */
    const void *how;   /* options of the reader, shared                  */
    bool labels_ready; /* label i + 1 already stands for labels[i]       */
    SourcePlace place;
    /* Returns the inputs that determine the voxels, in `mem`; NULL: unknown, so
     * that the source cannot be cached from one run to the next. */
    bool (*depends)(const struct Source *s, Arena *mem,
                    struct SourceFacts *out);
} Source;

typedef struct Case {
    const char *key;     /* unique in the dataset              */
    const char *patient; /* equal text: the same person        */
    struct CaseField {
        const Source *source; /* channels, joined in this order */
        int channels;
    } field[MAX_FIELDS]; /* as dataset->field              */
    /* Slices of the prepared volume that belong to this case, as fractions
     * [from, to) of its d; 0 slabs: all slices. */
    double slab[MAX_SLABS][2];
    int slabs;
} Case;

typedef struct DatasetField {
    const char *name;
    FieldKind kind;
    int rank; /* axes of a case without channels: 3 a volume, 2 a picture, 1 a
               * sequence (along w), 0 numbers */
} DatasetField;

typedef struct Dataset {
    DatasetField field[MAX_FIELDS];
    int fields;
    const Case *cases; /* sorted by key */
    int count;
    int skipped; /* cases left out by skip_unmatched   */
    struct DatasetStore *store;
} Dataset;

/* Frees this view; the last view frees the store. NULL is allowed. */
void dataset_free(Dataset *ds);

/* Makes another view of the same cases. */
bool dataset_copy(const Dataset *ds, Dataset **out);

/* Files, and for DICOM also studies, that were left out when the data set was
 * opened, with reasons; *count entries. They live as long as the data set. */
const DicomLeftOut *dataset_left_out(const Dataset *ds, int *count);

/* Index of field `name`, or -1; index of the first field of class numbers, or
 * -1. */
int dataset_field(const Dataset *ds, const char *name);
int dataset_label(const Dataset *ds);

/* The values in files that stand for the classes 1, 2, ...; returns how
 * many. */
int dataset_labels(const Dataset *ds, int32_t label[MAX_LABELS]);

/* Files below the root that were ignored although their names match the
 * pattern: hidden files, and files of an operating system (file_of_system).
 * Their paths relative to the root, *count entries. */
const char *const *dataset_ignored_files(const Dataset *ds, int *count);

/* ---- options of all builders ------------------------------------------- */

typedef struct DatasetOptions {
    /* Values of a label field apart from 0: labels[i] becomes i + 1. Count 0:
     * {1}. Any other value is an error with the value and the number of
     * voxels. */
    int32_t labels[MAX_LABELS];
    int label_count;
    /* Every value except 0 is class 1 (a brain without its skull as mask, say);
     * NIfTI only. */
    bool nonzero;
    /* Resample a file on another grid than the first image of its case instead
     * of failing: resample_mask a mask, by nearest neighbour; resample every
     * other file (a further channel, another image), linearly. Pictures have no
     * position, so a picture of another size stays an error. A file with the
     * voxels of the first image in another order or direction of axes needs no
     * option: its voxels are reordered. */
    bool resample_mask;
    bool resample;
    /* Leave out cases that lack a partner instead of failing; dataset->skipped
     * counts them. Two partners are an error even so. */
    bool skip_unmatched;
} DatasetOptions;

/* ---- from memory ------------------------------------------------------- */

/* Begin, add any number of cases, finish. The fields are "image" and, if `mask`
 * is given, "mask"; dataset_add copies the volumes. Either all cases have a
 * mask or none. dataset_finish sorts, checks keys and returns the dataset. The
 * builder is freed by dataset_finish (also on failure) or by dataset_drop. */
typedef struct DatasetBuilder DatasetBuilder;
bool dataset_begin(const DatasetOptions *options, DatasetBuilder **out);
bool dataset_add(DatasetBuilder *b, const char *key, const char *patient,
                 const Volume *image, const Volume *mask);
bool dataset_finish(DatasetBuilder *b, Dataset **out);
void dataset_drop(DatasetBuilder *b);

/* ---- from DICOM -------------------------------------------------------- */

/* How the patient of a file is determined. */
typedef enum PatientRule {
    PATIENT_AUTO,   /* DICOM: PatientID. Files: "sub-XX" at the start of the
                     * name, else the folder below the root; else error */
    PATIENT_FOLDER, /* the folder below the root                          */
    PATIENT_FILE,   /* every case is a patient of its own: only if the user
                     * selects it */
} PatientRule;

typedef struct DatasetDicom {
    DatasetOptions all;
    /* Selects a series by its SeriesDescription, the last part of its folder or
     * its SeriesInstanceUID; upper and lower case are equal, `*` matches any
     * text ("*_mask_slices"). No image: the only series that is not the
     * mask. */
    const char *image[MAX_CHANNELS];
    int images;
    const char *mask; /* series, SEG, structure set; NULL: no mask field */
    const char *dose; /* RT dose; NULL: no dose field                     */
    const char *const *segments; /* SEG, structure set: as in dicom.h    */
    int segment_count;
    /* The mask field is FIELD_VALUE: a channel from 0 to 1 for each of the
     * segments, which may overlap. */
    bool fractions;
    bool resample_dose; /* a dose on another grid: linear, no error         */
    bool partial; /* image slices without a mask slice are background    */
    double contour_tolerance_mm; /* of a structure set, as in dicom.h    */
    PatientRule patient;
    DicomOptions files;
} DatasetDicom;

/* Makes one case for each study that holds the image; its key is the patient,
 * followed by the study's number in the order of StudyInstanceUID if a patient
 * has several. The mask is searched in the frame of reference and study of the
 * image, then in its study, then in all studies of the patient if only one of
 * them has the image. */
bool dataset_dicom(const char *root, const DatasetDicom *how, Dataset **out);

/* The series that is the first channel of a case's first field, on whose grid a
 * result is written; NULL if that field is not a DICOM image. */
const DicomSeries *case_series(const Dataset *ds, int number);

/* Reads the header, without voxels, of the NIfTI file of a case's first field:
 * a result is written in the format of its input. Returns false without a
 * reason if the field was not read from NIfTI. */
bool case_nifti_header(const Dataset *ds, int number, NiftiHeader *out);

/* ---- from NIfTI -------------------------------------------------------- */

typedef struct DatasetNifti {
    DatasetOptions all;
    /* Patterns without .nii or .nii.gz, `*` for any text without a slash. A
     * pattern without a slash is matched with file names in any folder
     * ("*_T1w", "*_T1w_brainmask"), one with a slash with the path below the
     * root ("imagesTr/case_*", "labelsTr/case_*"). The text that the stars
     * match (and, for names, the folder) is the key that pairs files. */
    const char *image[MAX_CHANNELS];
    int images;
    const char *mask; /* NULL: no mask field */
    PatientRule patient;
    NiftiOptions files; /* reader options; `label` is set here              */
    bool skip_damaged;  /* leave out folders that cannot be opened    */
} DatasetNifti;

/* `root` may also be one file; then image and mask are ignored and the file is
 * the image of the only case. */
bool dataset_nifti(const char *root, const DatasetNifti *how, Dataset **out);

/* ---- from other data sets ---------------------------------------------- */

/* A view of the `count` cases with these indices, which ascend. ERR_DATA for
 * none. */
bool dataset_pick(const Dataset *ds, const int *item, int count, Dataset **out);

/* All cases of several data sets. They must have the same fields and options
 * (ERR_USAGE) and no key twice (ERR_DATA). */
bool dataset_concat(const Dataset *const *ds, int count, Dataset **out);

/* The same cases; case i gets key[i] and patient[i], which are copied. */
bool dataset_rename(const Dataset *ds, const char *const *key,
                    const char *const *patient, Dataset **out);

/* The same cases with one more field `name` of kind FIELD_VALUE: the signed
 * distance in mm from the boundary of each class of field `of`, a channel for
 * each of 1, 2, ... (distance_signed), on the grid of the case. It is computed
 * from the class numbers as they are loaded, before any data step. Fails
 * (ERR_USAGE) unless `of` is a field of class numbers and the name is new. */
bool dataset_distance(const Dataset *ds, const char *of, const char *name,
                      Dataset **out);

/* ---- loading ----------------------------------------------------------- */

/* Loads field `field` of a case: channels joined; images and values F32 and
 * finite (a NaN or an infinity is an error that counts them), labels U8 class
 * numbers 0 .. label_count, checked. With `like`, the result is on its grid, or
 * the call fails with both grids and the fix. The reason begins with the key.
 * `notes` may be NULL. Safe in several threads at once. */
bool case_load(const Dataset *ds, int number, int field, const Volume *like,
               Volume *out, DicomNotes *notes);

/* ---- text -------------------------------------------------------------- */

/* "24 cases of 24 patients; fields image (1 channel), mask (labels 0 1)". Loads
 * no volume. NULL if memory runs out. */
char *dataset_report(const Dataset *ds, Arena *mem);

/* Number of distinct patients; 0 with a reason if memory runs out. */
int dataset_patients(const Dataset *ds);

#endif
