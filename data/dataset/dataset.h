/* dataset.h -- a list of cases, each with named fields that can be loaded.
 *
 * A case is one examination: a unique key, the patient it belongs to, and a
 * source for each field ("image", "mask"). A source knows how to load one
 * Volume; nothing is loaded before it is asked for. Cases are sorted by key,
 * so nothing depends on the order of directory entries. Pairs are made by
 * key, never by position; what has no partner or two of them is an error that
 * lists the first ten.
 *
 * A Dataset is constant once built and may be shared by threads. Datasets
 * made from one another (splits) share its store and are each freed by
 * their owner. */
#ifndef SEG_DATA_DATASET_DATASET_H
#define SEG_DATA_DATASET_DATASET_H
#include "data/dicom/dicom.h"
#include "data/format/nifti.h"

enum {
    MAX_FIELDS = 8,         /* fields of a case            */
    MAX_CHANNELS = 16,      /* sources joined in one field */
    MAX_FEATURES = 1 << 16, /* channels of a field    */
    MAX_SLABS = 4,          /* ranges of slices of a case  */
    MAX_LABELS = 255,       /* label values beside 0       */
};

/* What a field means: what steps may do to it. */
typedef enum FieldKind {
    FIELD_IMAGE,  /* intensities: linear, normalised, augmented  */
    FIELD_VALUE,  /* a quantity (dose): linear, values are kept  */
    FIELD_LABEL,  /* class numbers: nearest only                 */
    FIELD_NUMBER, /* numbers of the case (angles, a class): they lie nowhere,
                   * and no step moves them                               */
    FIELD_LENGTH, /* one number, found when the case is prepared: how much of
                   * w is the case's own and no padding                   */
} FieldKind;

/* Does it lie on the grid of the case? */
static inline bool field_on_grid(FieldKind kind)
{
    return kind <= FIELD_LABEL;
}

/* Files, or bytes in memory, and the options of the reader as a text. */
typedef struct SourceFacts {
    const char *const *file; /* (files) */
    int files;
    const void *data;
    size_t bytes;
    const char *asked;
} SourceFacts;

/* Where the voxels of a source lie in the patient. */
typedef enum SourcePlace {
    PLACE_OWN,   /* the file says it                                       */
    PLACE_NONE,  /* it cannot: spacing 1 from the origin                   */
    PLACE_FIRST, /* it cannot; they are those of the first field, by index */
} SourcePlace;

/* One loadable volume: voxels of any type and any number of channels. */
typedef struct Source {
    bool (*load)(const struct Source *s, Volume *out, DicomNotes *notes);
    const char *path;  /* file or folder, for messages                  */
    const void *what;  /* a Volume, a DicomSeries; NULL: the path says all */
    const void *image; /* DICOM masks: the series of the image           */
    const void *how;   /* options of the reader, shared                  */
    bool labels_ready; /* label i + 1 already stands for labels[i]       */
    SourcePlace place;
    /* What its voxels depend on, in `mem`; NULL: not known, so that it cannot
     * be kept from one run to the next. */
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
     * [from, to) of its d; 0 slabs: all of them. */
    double slab[MAX_SLABS][2];
    int slabs;
} Case;

typedef struct DatasetField {
    const char *name;
    FieldKind kind;
    int rank; /* axes of a case beside channels: 3 a volume, 2 a picture,
               * 1 a sequence (along w), 0 numbers */
} DatasetField;

typedef struct Dataset {
    DatasetField field[MAX_FIELDS];
    int fields;
    const Case *cases; /* sorted by key */
    int count;
    int skipped; /* left out because of skip_unmatched */
    struct DatasetStore *store;
} Dataset;

/* Drop this view; the store goes with its last view. NULL is fine. */
void dataset_free(Dataset *ds);

/* Another view of the same cases. */
bool dataset_copy(const Dataset *ds, Dataset **out);

/* Files, and of DICOM also studies, that were left out when the data set was
 * opened, and why; *count of them. They live as long as the data set. */
const DicomLeftOut *dataset_left_out(const Dataset *ds, int *count);

/* Position of field `name`, or -1; of the first one of class numbers, or -1. */
int dataset_field(const Dataset *ds, const char *name);
int dataset_label(const Dataset *ds);

/* The values in files that stand for the classes 1, 2, ...; their number. */
int dataset_labels(const Dataset *ds, int32_t label[MAX_LABELS]);

/* Files below the root that were passed over though they are called as those
 * that are wanted: hidden, or of an operating system (file_of_system). Their
 * paths below the root, *count of them. */
const char *const *dataset_passed(const Dataset *ds, int *count);

/* ---- what all builders share ------------------------------------------- */

typedef struct DatasetOptions {
    /* Values of a label field that may stand beside 0: labels[i] becomes
     * i + 1. Count 0: {1}. Anything else is an error with the value and the
     * number of voxels. */
    int32_t labels[MAX_LABELS];
    int label_count;
    /* Every value but 0 is class 1 (a brain without its skull as mask, say);
     * NIfTI only. */
    bool nonzero;
    /* On another grid than the first image of its case lies, and is brought
     * there instead of being an error: a mask, by nearest neighbour; what else
     * is read (a further channel, another image), linearly. Pictures lie
     * nowhere, so theirs are errors all the same. One whose voxels are the
     * first image's with the axes in another order, or against it, needs no
     * option: they are moved. */
    bool resample_mask;
    bool resample;
    /* Leave out cases that lack a partner instead of failing; dataset->skipped
     * counts them. A double partner is an error all the same. */
    bool skip_unmatched;
} DatasetOptions;

/* ---- from memory ------------------------------------------------------- */

/* Begin, add any number of cases, finish. The fields are "image" and, when
 * `mask` is given, "mask"; add copies the volumes. All cases must agree on
 * having a mask. finish sorts, checks keys and gives the dataset; the builder
 * is freed by finish (also when that fails) or by drop. */
typedef struct DatasetBuilder DatasetBuilder;
bool dataset_begin(const DatasetOptions *options, DatasetBuilder **out);
bool dataset_add(DatasetBuilder *b, const char *key, const char *patient,
                 const Volume *image, const Volume *mask);
bool dataset_finish(DatasetBuilder *b, Dataset **out);
void dataset_drop(DatasetBuilder *b);

/* ---- from DICOM -------------------------------------------------------- */

/* How the patient of a file is found. */
typedef enum PatientRule {
    PATIENT_AUTO,   /* DICOM: PatientID. Files: "sub-XX" at the start of the
                     * name, else the folder below the root; else error  */
    PATIENT_FOLDER, /* the folder below the root                          */
    PATIENT_FILE,   /* every case is its own patient: only when the user
                     * says so                                            */
} PatientRule;

typedef struct DatasetDicom {
    DatasetOptions all;
    /* A series is meant by its SeriesDescription, the last part of its folder
     * or its SeriesInstanceUID; case does not count, `*` is any text
     * ("*_mask_slices"). No image: the only series that is not the mask. */
    const char *image[MAX_CHANNELS];
    int images;
    const char *mask; /* series, SEG, structure set; NULL: no mask field */
    const char *dose; /* RT dose; NULL: no dose field                     */
    const char *const *segments; /* SEG, structure set: as dicom.h       */
    int segment_count;
    /* The mask field is FIELD_VALUE: a channel from 0 to 1 for each of the
     * segments, which may overlap. */
    bool fractions;
    bool resample_dose; /* a dose on another grid: linear, instead of error */
    bool partial; /* image slices without a mask slice are background    */
    double contour_tolerance_mm; /* of a structure set, as dicom.h       */
    PatientRule patient;
    DicomOptions files;
} DatasetDicom;

/* One case for each study that holds the image; its key is the patient, and
 * the study's number in order of StudyInstanceUID when a patient has several.
 * The mask is looked for in the frame of reference and study of the image,
 * then in its study, then in all studies of the patient when only one of them
 * has the image. */
bool dataset_dicom(const char *root, const DatasetDicom *how, Dataset **out);

/* The series that is the first channel of a case's first field, on whose grid
 * a result is written; NULL when that is no image in DICOM. */
const DicomSeries *case_series(const Dataset *ds, int number);

/* The header of the NIfTI file that the first field of a case was read from,
 * with its voxels unread: a result is written the way its input was. False, and
 * no failure, when it was none. */
bool case_nifti_header(const Dataset *ds, int number, NiftiHeader *out);

/* ---- from NIfTI -------------------------------------------------------- */

typedef struct DatasetNifti {
    DatasetOptions all;
    /* Patterns without .nii or .nii.gz, `*` for any text without a slash. A
     * pattern without a slash is matched with names of files in any folder
     * ("*_T1w", "*_T1w_brainmask"), one with a slash with the path below the
     * root ("imagesTr/case_*", "labelsTr/case_*"). What the stars match (and,
     * for names, the folder) is the key that pairs files. */
    const char *image[MAX_CHANNELS];
    int images;
    const char *mask; /* NULL: no mask field */
    PatientRule patient;
    NiftiOptions files; /* how images and masks are read; label is set here */
    bool skip_damaged;  /* folders that cannot be opened are left out */
} DatasetNifti;

/* `root` may also be one file; then image and mask are ignored and the file
 * is the image of the only case. */
bool dataset_nifti(const char *root, const DatasetNifti *how, Dataset **out);

/* ---- from other data sets ---------------------------------------------- */

/* The `count` cases at these places, which go up. ERR_DATA for none. */
bool dataset_pick(const Dataset *ds, const int *item, int count, Dataset **out);

/* All cases of all of them. They must have the same fields and options
 * (ERR_USAGE), and keys that tell all cases apart (ERR_DATA). */
bool dataset_concat(const Dataset *const *ds, int count, Dataset **out);

/* The same cases, case i called key[i] and of patient[i]; copied. */
bool dataset_rename(const Dataset *ds, const char *const *key,
                    const char *const *patient, Dataset **out);

/* ---- loading ----------------------------------------------------------- */

/* Field `field` of a case: channels joined; images and values finite (a NaN
 * or an infinity is an error that counts them) and F32, labels U8 class numbers
 * 0 .. label_count, checked. With `like`, the result is on its grid or it
 * fails naming both grids and the way out. The reason begins with the key.
 * `notes` may be NULL. Safe in several threads at once. */
bool case_load(const Dataset *ds, int number, int field, const Volume *like,
               Volume *out, DicomNotes *notes);

/* ---- text -------------------------------------------------------------- */

/* "24 cases of 24 patients; fields image (1 channel), mask (labels 0 1)":
 * loads nothing. NULL when there is no memory. */
char *dataset_report(const Dataset *ds, Arena *mem);

/* Number of distinct patients; 0 with a reason when there is no memory. */
int dataset_patients(const Dataset *ds);

#endif
