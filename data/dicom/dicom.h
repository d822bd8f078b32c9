/* dicom.h -- medical images as scanners write them.
 *
 * A folder is scanned into series, a series is loaded into a Volume, a mask
 * (an ordinary series or a DICOM SEG) is loaded onto the grid of its image,
 * and a volume or a mask is written back. Slices are ordered by the
 * projection of ImagePositionPatient on the slice normal, never by name or
 * InstanceNumber. Nothing is guessed: what is missing or contradictory is an
 * error of kind ERR_DATA in the form
 *     PATH: dicom: TEXT [tag (gggg,eeee) Name]; fix: WHAT TO DO
 * Every file passes our own walker (parse.h); DCMTK decodes compressed
 * frames and writes files, and never parses a file that came from outside.
 *
 * Threads: all functions may run in several threads at once on different
 * output arguments; a DicomIndex and its DicomSeries are constant once the
 * scan has returned and may be shared. Nothing of DCMTK starts before the
 * first compressed frame or the first file written. */
#ifndef SEG_DATA_DICOM_DICOM_H
#define SEG_DATA_DICOM_DICOM_H
#include "data/volume.h"

/* True when the program was built with DCMTK; else false with a reason that
 * says what is missing and how to get it. Without it files are scanned and
 * loaded all the same, but a JPEG-compressed one is refused and nothing is
 * written. */
bool dicom_ready(void);

/* Half a slice off could be its neighbour. */
#define MOST_POSITION_TOLERANCE 0.45

/* How files are read; all zero is the strict default. */
typedef struct DicomOptions {
    bool assume_hu;          /* CT without RescaleIntercept is in HU     */
    bool resample_tilt;      /* straighten a tilted stack (linear)       */
    bool assume_implicit_le; /* no transfer syntax: implicit VR LE       */
    bool want_3d;            /* one slice is an error                    */
    bool skip_damaged;       /* dicom_scan: damaged files end no scan    */
    /* How far a slice may be off the regular grid through the first and the
     * last one, as a share of the spacing: positions are rounded to decimals.
     * 0: 0.02; at most MOST_POSITION_TOLERANCE. A missing slice is found
     * with any tolerance. */
    double position_tolerance;
    int64_t max_voxels;     /* 0: 2^33                                  */
    int64_t max_file_bytes; /* 0: 16 GiB                                */
} DicomOptions;

/* ---- finding ----------------------------------------------------------- */

typedef enum DicomKind {
    DICOM_IMAGE,     /* single-frame images, one file a slice              */
    DICOM_MULTI,     /* multi-frame images: one file, a frame a slice      */
    DICOM_SEG,       /* segmentation objects, label maps among them        */
    DICOM_STRUCTURE, /* RT structure sets: contours, a mask            */
    DICOM_DOSE,      /* RT dose: one file, a frame a plane             */
} DicomKind;

/* Files that share patient, study and SeriesInstanceUID. Where such files
 * repeat a SOPInstanceUID in several folders (a mask saved beside its image
 * under the same UIDs), every folder is a series of its own. Text is "" when
 * the element is absent or empty; all text is UTF-8, without padding
 * (charset.h).
 * All of it lives in the arena of the scan. */
typedef struct DicomSeries {
    DicomKind kind;
    const char *patient_id, *study_uid, *series_uid, *description;
    const char *modality, *sop_class; /* "MR"; UID                           */
    const char *frame_uid;            /* FrameOfReferenceUID                 */
    const char *folder;               /* deepest folder holding all files    */
    int32_t number;                   /* SeriesNumber; 0 when absent         */
    int32_t rows, cols;               /* of the first file                   */
    int32_t count;                    /* files                               */
    int32_t frames;                   /* count, or the sum of NumberOfFrames */
    const char *const *paths;         /* count, sorted by strcmp             */
    /* With skip_damaged: why a file that is most likely one of this series
     * cannot be read, so that the series lacks it; NULL: none is. */
    const char *damaged;
} DicomSeries;

typedef enum DicomLeftOutKind {
    DICOM_LEFT_DAMAGED,  /* DICOM that cannot be read (with skip_damaged)     */
    DICOM_LEFT_FOREIGN,  /* called .dcm, .dicom or .ima, or empty: no DICOM   */
    DICOM_LEFT_NO_IMAGE, /* DICOM without pixels: reports, plans, DICOMDIR    */
    DICOM_LEFT_UNMATCHED /* a study without all series of the data set     */
} DicomLeftOutKind;

/* A file that a scan left out, and why: "PATH: dicom: file is empty". */
typedef struct DicomLeftOut {
    DicomLeftOutKind kind;
    const char *path, *text;
    const char
        *series_uid; /* of its header, as far as that was read, or NULL */
} DicomLeftOut;

typedef struct DicomIndex {
    const char *root;
    const DicomSeries *series;    /* by patient, study, number, UID, folder */
    int32_t count;                /* series                                 */
    int32_t files;                /* image files, all of them in a series   */
    int32_t not_images;           /* DICOM, but reports, plans, DICOMDIR .. */
    int32_t not_dicom;            /* anything else                          */
    const DicomLeftOut *left_out; /* in the order of paths               */
    int32_t left_outs;
} DicomIndex;

/* Everything below `root` (a folder, or one file), whatever the names; links
 * are followed, each folder once. Reads headers only. The order of the result
 * does not depend on the order of directory entries. A file that is DICOM
 * but damaged fails the scan and is named (a silently missing slice would be
 * worse). So does a file that is empty, or is called .dcm, .dicom or .ima and
 * is not DICOM, where its name is that of an image beside it but for the
 * digits: a slice that was lost. Otherwise it is foreign and left out. With
 * options->skip_damaged a file that fails the scan is left out as well, and the
 * series that it is most likely a slice of cannot be loaded: the one that its
 * header names, else the only one with a file of such a name beside it. Where
 * there are several, all of them can be loaded that have no gap, and the reason
 * of the file says that its series is not known. A folder without any DICOM
 * image fails. `options` may be NULL. */
bool dicom_scan(const char *root, const DicomOptions *options, Arena *arena,
                DicomIndex *out);

/* The one series meant by `series`: equal to its series UID, else to its
 * description, else to the last part of its folder; NULL means there must be
 * only one. None or several: fails and lists what there is. The result
 * points into the index. */
const DicomSeries *dicom_select(const DicomIndex *index, const char *series);

/* Cheap: does the file start like DICOM (DICM mark at byte 128, or a group
 * 0002 or 0008 element at byte 0)? False also when it cannot be read; never
 * sets a reason. */
bool dicom_is_file(const char *path);

/* ---- reading ----------------------------------------------------------- */

/* What a reader should tell the user, once a series each. */
typedef struct DicomNote {
    bool warning;     /* else a conversion that was made */
    const char *text; /* "FOLDER: dicom: MONOCHROME1 inverted [tag ...]" */
    struct DicomNote *next;
} DicomNote;

/* Zero-initialise, pass to any number of calls of one thread, free once. */
typedef struct DicomNotes {
    Arena arena;
    DicomNote *first, *last;
    int32_t count;
} DicomNotes;

void dicom_notes_free(DicomNotes *notes);

/* Add a note of any reader, a whole line, unless the same text is there
 * already; notes may be NULL. False only without memory. */
bool dicom_notes_add(DicomNotes *notes, bool warning, const char *line);

/* Voxel (i,j,k) of out = stored value of column i, row j in the k-th slice
 * along the normal, times RescaleSlope plus RescaleIntercept of that slice.
 * MONOCHROME1 is inverted inside the stored range where no slice has a unit;
 * with one (CT, PT, NM, Units, RescaleType, a real-world value mapping or a
 * rescale) values stay as they are: it is about display (PS3.3
 * C.7.6.3.1.2). d = count, h = rows,
 * w = cols, c = 1; I16 when every value is an integer that fits, else F32.
 * Affine columns: row cosine * column spacing, column cosine * row spacing,
 * step between slices (last minus first position over count - 1; one slice:
 * normal * SliceThickness). Unit HU for CT, else none. `options` and `notes`
 * may be NULL. Fails as the table of defects says, also when all voxels of
 * the series are equal. */
bool dicom_load(const DicomSeries *series, const DicomOptions *options,
                Volume *out, DicomNotes *notes);

typedef struct DicomMaskOptions {
    DicomOptions image; /* the options that load the image                */
    /* Ordinary series: the values that may stand beside 0; value labels[i]
     * becomes i + 1. NULL: 1 .. 255 stand for themselves, except that
     * values 0 and 255 alone are refused until 255 is declared. */
    const int32_t *labels;
    int32_t label_count;
    /* SEG: labels of the segments wanted, structure set: names of the ROIs, or
     * "#4" for number 4 of either; segments[i] becomes i + 1. NULL: all, by
     * their number. */
    const char *const *segments;
    int32_t segment_count;
    bool resample_mask; /* another grid: nearest neighbour instead of error */
    bool partial;       /* image slices without a mask slice are background */
    /* Structure set: contours that name no slice may lie so far off the plane
     * of the nearest slice [0: 1 % of the distance of slices, or 0.05 mm where
     * that is more, for coordinates are often rounded to 0.1 mm]. */
    double contour_tolerance_mm;
    /* SEG, structure set: the one segment that `segments` names, or the only
     * one there is, as F32 from 0 to 1 instead of labels: what a fractional
     * SEG says, else 0 and 1. */
    bool fractions;
} DicomMaskOptions;

/* out = U8 labels on the grid of `image` (extents and affine of dicom_load
 * with options->image, also after resample_tilt), unit LABEL. Slices of an
 * ordinary series are paired by SOPInstanceUID, else by
 * ReferencedSOPInstanceUID, else by ImagePositionPatient, else by
 * InstanceNumber; the rule is a note, a warning for the last one. A rule
 * counts only when it gives every mask slice its own image slice. Both
 * grids must agree to 1 % of a voxel unless resample_mask. Frames of a SEG
 * (binary, fractional cut at one half, label map) are placed by their plane
 * position; slices without a frame are background, segments that overlap are
 * an error unless one segment alone is asked for. A closed contour of a
 * structure set is of the slice that it names, to half the distance of slices,
 * else of the slice in which it lies to contour_tolerance_mm, else it is an
 * error; one beyond the first or last slice is left out with a note. A voxel
 * belongs to a region when an odd number of its contours has the voxel's centre
 * inside (contour_fill), so that holes are contours too. */
bool dicom_load_mask(const DicomSeries *image, const DicomSeries *mask,
                     const DicomMaskOptions *options, Volume *out,
                     DicomNotes *notes);

/* What a segmentation object or a structure set holds, without its voxels. */
typedef struct DicomSegInfo {
    const char *type; /* BINARY, FRACTIONAL, LABELMAP, RTSTRUCT     */
    int32_t frames;   /* or contours                                */
    bool has_grid;    /* a SEG: contours have none                  */
    Grid grid;        /* that frames lie on, empty slices included  */
    int segments;     /* in the order of their numbers              */
    struct DicomSegment {
        int number;
        const char *label; /* "" when it has none */
        int32_t frames;    /* or contours         */
    } * segment;
} DicomSegInfo;

/* Describe the one file of a series of kind DICOM_SEG or DICOM_STRUCTURE; text
 * and list lie in the arena. Fails as dicom_load_mask does, also where frames
 * have no position of their own. */
bool dicom_seg_info(const DicomSeries *seg, Arena *arena, DicomSegInfo *out);

/* out = an RT dose in Gy, F32, its planes sorted as slices are. Fails on other
 * units, on a dose that is a difference, on planes without offsets or unevenly
 * spaced. Without `image` it is on its own grid. With it, it is on that of
 * dicom_load(image): as it is, else by linear interpolation and 0 outside its
 * own field of view when `resample`, else an error; two different regions are
 * an error (row 72), a frame of reference that differs is a warning. */
bool dicom_load_dose(const DicomSeries *dose, const DicomSeries *image,
                     bool resample, const DicomOptions *options, Volume *out,
                     DicomNotes *notes);

/* ---- writing ----------------------------------------------------------- */

typedef enum DicomSyntax {
    DICOM_EXPLICIT_LE,
    DICOM_IMPLICIT_LE,
    DICOM_BIG_ENDIAN,
    DICOM_DEFLATED,
    DICOM_RLE,
    DICOM_JPEG_LOSSLESS, /* process 14, selection value 1 */
    DICOM_JPEG_LS,       /* lossless                      */
    DICOM_SYNTAX_COUNT
} DicomSyntax;

/* How a series is written. Zero means the default in brackets. `references`
 * is the description of a series of this patient and seed whose slices these
 * name in ReferencedImageSequence, slice by slice. */
typedef struct DicomWrite {
    const char *patient_id;        /* required                            */
    const char *patient_name;      /* [patient_id]                        */
    const char *study_description; /* [absent]                            */
    const char *description;       /* of the series; required             */
    const char *modality;          /* ["MR"]; also "CT"                   */
    const char *references;        /* [none]                              */
    uint64_t seed;                 /* of all UIDs and orders              */
    int32_t series_number;         /* [1]                                 */
    DicomSyntax syntax;            /* [explicit little endian]            */
    int32_t bits_stored;           /* 1 .. 16 [16]; <= 8: 8 are allocated */
    bool is_signed, monochrome1;
    double slope, intercept; /* slope 0: neither is written (CT: 1 and 0) */
    bool shuffle; /* file names and InstanceNumber in two orders drawn from
                   * seed and description */
} DicomWrite;

/* One file a slice, `folder`/IM0001.dcm ..., the folder made when absent
 * (its parent must exist). The stored value of v is round((v - intercept) /
 * slope), inverted inside the stored range for MONOCHROME1 where dicom_load
 * turns it back (neither CT nor rescaled); one that
 * bits_stored cannot hold is an error. voxels: U8, I16 or F32, c = 1. Study,
 * frame of reference, series and instance UIDs are functions of (seed,
 * patient_id), and further of description and slice, so equal arguments give
 * equal bytes and two series of one patient share study and frame. */
bool dicom_write_series(const char *folder, const Volume *v,
                        const DicomWrite *how);

/* `path` = one DICOM SEG, binary, AUTOMATIC, with a segment for each of
 * `names` (label i + 1 is names[i]; labels beyond `count` are an error), on
 * the slices of the series `source` and in its frame of reference; the elements
 * of patient and study are copied from it. `mask` is U8 on the grid of
 * dicom_load(source), which of a tilted stack is put back to its slices
 * (nearest neighbour). Frames without a voxel are left out (an empty segment
 * keeps one empty frame). Names are those of segment_name_check(); one beyond
 * ASCII makes the file ISO_IR 192, and texts of the source that cannot be
 * written so are an error. Written aside and renamed; the same arguments give
 * the same bytes. */
bool dicom_write_seg(const char *path, const Volume *mask,
                     const char *const *names, int32_t count,
                     const DicomSeries *source);

/* The same of fractions: SegmentationType FRACTIONAL, of type PROBABILITY, in
 * bytes of which 255 is 1, so that they come back within 1/510. Segment i + 1,
 * names[i], is channel first + i of `fractions`, F32 from 0 to 1 (to 1e-4).
 * Segments may overlap; frames whose bytes are all 0 are left out. */
bool dicom_write_fractions(const char *path, const Volume *fractions,
                           int32_t first, const char *const *names,
                           int32_t count, const DicomSeries *source);

/* `path` = one RT dose in Gy of the channel `c` of `dose` (F32), on its own
 * grid, in the frame of reference of the series `source`, from which the
 * elements of patient and study are copied: 16 bits of the highest value, so
 * that the error of a value is at most 1/131070 of it; negative values become
 * 0. The standard requires a reference to a plan: DoseSummationType is PLAN,
 * the referenced plan is not there, and DoseComment calls the dose a
 * prediction. Fails (ERR_DATA) on a grid with sheared slices and on a value
 * that is not finite. The same arguments give the same bytes. */
bool dicom_write_dose(const char *path, const Volume *dose, int32_t c,
                      const DicomSeries *source);

#endif
