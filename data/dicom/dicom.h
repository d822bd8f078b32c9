/* dicom.h -- medical images in DICOM files.
 *
 * A folder is scanned into series, a series is loaded into a Volume, a mask (an
 * ordinary series or a DICOM SEG) is loaded onto the grid of its image, and a
 * volume or a mask is written as DICOM. Slices are ordered by the projection of
 * ImagePositionPatient on the slice normal, never by name or InstanceNumber.
 * Nothing is guessed: missing or contradictory data is an error of kind
 * ERR_DATA in the form
 *     PATH: dicom: TEXT [tag (gggg,eeee) Name]; fix: WHAT TO DO
 * All errors and warnings are listed in tests/shell/defects.csv; "row 42" in a
 * comment is row 42 of format dicom there. Every file passes the walker of this
 * program (parse.h); DCMTK decodes compressed frames and writes files, and
 * never parses an input file.
 *
 * Threads: all functions may run in several threads at once on different output
 * arguments; a DicomIndex and its DicomSeries are constant once the scan has
 * returned and may be shared. DCMTK is initialised by the first compressed
 * frame or the first file written. */
#ifndef SEG_DATA_DICOM_DICOM_H
#define SEG_DATA_DICOM_DICOM_H
#include "data/volume.h"

/* True if the program was built with DCMTK; else false with a reason that says
 * how to get DCMTK. Without DCMTK a JPEG-compressed file is refused, and only
 * uncompressed files are written. */
bool dicom_ready(void);

/* A slice that is half a slice off could be its neighbour. */
#define MOST_POSITION_TOLERANCE 0.45

/* Reader options; all zero is the strict default. */
typedef struct DicomOptions {
    bool assume_hu;          /* accept CT without RescaleIntercept       */
    bool resample_tilt;      /* resample a tilted stack (linear)         */
    bool assume_implicit_le; /* no transfer syntax: implicit VR LE       */
    bool want_3d;            /* one slice is an error                    */
    bool skip_damaged;       /* dicom_scan: go on past damaged files     */
    /* Allowed deviation of a slice from the regular grid through the first and
     * the last slice, as a fraction of the spacing, because positions are
     * rounded to decimals. 0 selects 0.02; at most MOST_POSITION_TOLERANCE. A
     * missing slice is found with any tolerance. */
    double position_tolerance;
    int64_t max_voxels;     /* 0: 2^33                                  */
    int64_t max_file_bytes; /* 0: 16 GiB                                */
} DicomOptions;

/* ---- finding ----------------------------------------------------------- */

typedef enum DicomKind {
    DICOM_IMAGE,     /* single-frame images, one file a slice              */
    DICOM_MULTI,     /* multi-frame images: one file, a frame a slice      */
    DICOM_SEG,       /* segmentation objects and label maps                */
    DICOM_STRUCTURE, /* RT structure sets: contours, masks             */
    DICOM_DOSE,      /* RT dose: one file, a frame a plane             */
} DicomKind;

/* Files with the same patient, study and SeriesInstanceUID. If such files
 * repeat a SOPInstanceUID in several folders (a mask saved next to its image
 * under the same UIDs), every folder is a series of its own. Text is "" if the
 * element is absent or empty; all text is UTF-8, without padding (charset.h).
 * All pointers are into the arena of the scan. */
typedef struct DicomSeries {
    DicomKind kind;
    const char *patient_id, *study_uid, *series_uid, *description;
    const char *modality, *sop_class; /* "MR"; UID                           */
    const char *frame_uid;            /* FrameOfReferenceUID                 */
    const char *folder;               /* deepest folder with all files       */
    int32_t number;                   /* SeriesNumber; 0 if absent           */
    int32_t rows, cols;               /* of the first file                   */
    int32_t count;                    /* number of files                     */
    int32_t frames;                   /* count, or the sum of NumberOfFrames */
    const char *const *paths;         /* count, sorted by strcmp             */
    /* With skip_damaged: why a file that most likely belongs to this series
     * cannot be read, which makes the series incomplete; NULL if complete. */
    const char *damaged;
} DicomSeries;

typedef enum DicomLeftOutKind {
    DICOM_LEFT_DAMAGED,  /* DICOM that cannot be read (with skip_damaged)     */
    DICOM_LEFT_FOREIGN,  /* named .dcm, .dicom, .ima, or empty: no DICOM      */
    DICOM_LEFT_NO_IMAGE, /* DICOM without pixels: reports, plans, DICOMDIR    */
    DICOM_LEFT_UNMATCHED /* a study that lacks a series the data set needs */
} DicomLeftOutKind;

/* A file that a scan left out, and why: "PATH: dicom: file is empty". */
typedef struct DicomLeftOut {
    DicomLeftOutKind kind;
    const char *path, *text;
    const char *series_uid; /* from its header if that was readable, or NULL */
} DicomLeftOut;

typedef struct DicomIndex {
    const char *root;
    const DicomSeries *series;    /* by patient, study, number, UID, folder */
    int32_t count;                /* series                                 */
    int32_t files;                /* image files, each in one series        */
    int32_t not_images;           /* DICOM without an image: reports, plans */
    int32_t not_dicom;            /* all other files                        */
    const DicomLeftOut *left_out; /* sorted by path                      */
    int32_t left_outs;
} DicomIndex;

/* Scans all files below `root` (a folder, or one file), whatever their names;
 * links are followed, each folder once. Reads headers only. The result does not
 * depend on the order of directory entries.
 *
 * A file that is DICOM but damaged fails the scan and is named, because a
 * silently missing slice would be worse. So does a file that is empty, or is
 * named .dcm, .dicom or .ima and is not DICOM, if its name differs only in
 * digits from the name of an image in the same folder: it is a lost slice.
 * Otherwise such a file is foreign and left out.
 *
 * With options->skip_damaged a file that would fail the scan is left out as
 * well, and the series to which it most likely belongs cannot be loaded: the
 * series that its header names, else the only series with a file of a similar
 * name in the folder. If several series have such files, each one without a gap
 * can be loaded, and the reason of the file says that its series is unknown. A
 * folder without any DICOM image fails. `options` may be NULL. */
bool dicom_scan(const char *root, const DicomOptions *options, Arena *arena,
                DicomIndex *out);

/* Selects one series: the one with this series UID, else with this description,
 * else with this last part of its folder; NULL means that the index must have
 * exactly one series. Fails for none or several, and lists the series of the
 * index. The result points into the index. */
const DicomSeries *dicom_select(const DicomIndex *index, const char *series);

/* Cheap test: does the file start like DICOM (DICM mark at byte 128, or a group
 * 0002 or 0008 element at byte 0)? Also false if it cannot be read; never sets
 * a reason. */
bool dicom_is_file(const char *path);

/* ---- reading ----------------------------------------------------------- */

/* A message of a reader to the user, once per series. */
typedef struct DicomNote {
    bool warning;     /* else a conversion               */
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

/* Adds a note of any reader, a whole line, unless the same text is already
 * there; notes may be NULL. False only when memory runs out. */
bool dicom_notes_add(DicomNotes *notes, bool warning, const char *line);

/* Voxel (i,j,k) of out = stored value of column i, row j in the k-th slice
 * along the normal, times RescaleSlope plus RescaleIntercept of that slice.
 * MONOCHROME1 is inverted within the stored range if no slice has a unit; with
 * a unit (CT, PT, NM, Units, RescaleType, a real-world value mapping or a
 * rescale) values are kept, because MONOCHROME1 concerns display alone (PS3.3
 * C.7.6.3.1.2). d = count, h = rows, w = cols, c = 1; I16 if every value is an
 * integer that fits, else F32. Affine columns: row cosine * column spacing,
 * column cosine * row spacing, step between slices ((last - first position) /
 * (count - 1); one slice: normal * SliceThickness). Unit HU for CT, else none.
 * `options` and `notes` may be NULL. Fails with the errors of
 * tests/shell/defects.csv, also if all voxels of the series are equal (row
 * 50). */
bool dicom_load(const DicomSeries *series, const DicomOptions *options,
                Volume *out, DicomNotes *notes);

typedef struct DicomMaskOptions {
    DicomOptions image; /* options for loading the image                  */
    /* Ordinary series: the values that the mask may have apart from 0; value
     * labels[i] becomes i + 1. NULL: values 1 .. 255 are kept, but a mask of 0
     * and 255 alone is refused until 255 is declared. */
    const int32_t *labels;
    int32_t label_count;
    /* SEG: labels of the selected segments; structure set: names of the ROIs;
     * or "#4" for number 4 of either. segments[i] becomes i + 1. NULL: all,
     * with their numbers as labels. */
    const char *const *segments;
    int32_t segment_count;
    bool resample_mask; /* other grid: nearest neighbour, no error          */
    bool partial;       /* image slices without a mask slice are background */
    /* Structure set: allowed distance in mm of a contour that names no slice
     * from the plane of the nearest slice [0: 1 % of the slice distance, but at
     * least 0.05 mm, because coordinates are often rounded to 0.1 mm]. */
    double contour_tolerance_mm;
    /* SEG, structure set: load the one segment that `segments` names, or the
     * only one in the file, as F32 from 0 to 1 instead of labels: the fractions
     * of a fractional SEG, else 0 and 1. */
    bool fractions;
} DicomMaskOptions;

/* out = U8 labels on the grid of `image` (extents and affine of dicom_load with
 * options->image, also after resample_tilt), unit LABEL.
 *
 * Slices of an ordinary series are paired with image slices by SOPInstanceUID,
 * else by ReferencedSOPInstanceUID, else by ImagePositionPatient, else by
 * InstanceNumber; the rule used is a note, and a warning for the last one. A
 * rule is used only if it gives every mask slice its own image slice. Both
 * grids must agree to 1 % of a voxel unless resample_mask.
 *
 * Frames of a SEG (binary, fractional with threshold one half, label map) are
 * placed by their plane position. Slices without a frame are background;
 * overlapping segments are an error unless only one segment is selected.
 *
 * A closed contour of a structure set belongs to the slice that it names if it
 * lies within half the slice distance of it, else to the slice within
 * contour_tolerance_mm, else it is an error; a contour beyond the first or last
 * slice is left out with a note. A voxel belongs to a region if an odd number
 * of its contours encloses the voxel's centre (contour_fill), so that holes are
 * contours too. */
bool dicom_load_mask(const DicomSeries *image, const DicomSeries *mask,
                     const DicomMaskOptions *options, Volume *out,
                     DicomNotes *notes);

/* Contents of a segmentation object or a structure set, without voxels. */
typedef struct DicomSegInfo {
    const char *type; /* BINARY, FRACTIONAL, LABELMAP, RTSTRUCT     */
    int32_t frames;   /* contours of a structure set                */
    bool has_grid;    /* SEG; contours have no grid                 */
    Grid grid;        /* of the frames, with empty slices           */
    int segments;     /* sorted by number                           */
    struct DicomSegment {
        int number;
        const char *label; /* "" if absent        */
        int32_t frames;    /* or contours         */
    } * segment;
} DicomSegInfo;

/* Describes the one file of a series of kind DICOM_SEG or DICOM_STRUCTURE; text
 * and list live in the arena. Fails as dicom_load_mask does, also if frames
 * have no position. */
bool dicom_seg_info(const DicomSeries *seg, Arena *arena, DicomSegInfo *out);

/* out = an RT dose in Gy, F32, with its planes sorted as slices are. Fails for
 * other units, for a dose difference, and for planes without offsets or with
 * uneven spacing. Without `image` the dose keeps its own grid. With `image` it
 * is on the grid of dicom_load(image): unchanged if the grids agree, else by
 * linear interpolation, with 0 outside its own field of view, if `resample`,
 * else an error. Grids of different regions are an error (row 107); a different
 * frame of reference is a warning. */
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

/* Can this build write files of this transfer syntax? Every build writes the
 * uncompressed and the deflated ones. */
bool dicom_writes(DicomSyntax syntax);

/* Options of dicom_write_series. Zero selects the default in brackets.
 * `references` is the description of a series with this patient and seed; each
 * slice written names the slice of that series in ReferencedImageSequence. */
typedef struct DicomWrite {
    const char *patient_id;        /* required                            */
    const char *patient_name;      /* [patient_id]                        */
    const char *study_description; /* [absent]                            */
    const char *description;       /* of the series; required             */
    const char *modality;          /* ["MR"]; also "CT"                   */
    const char *references;        /* [none]                              */
    uint64_t seed;                 /* for all UIDs and random orders      */
    int32_t series_number;         /* [1]                                 */
    DicomSyntax syntax;            /* [explicit little endian]            */
    int32_t bits_stored;           /* 1 .. 16 [16]; <= 8: 8 are allocated */
    bool is_signed, monochrome1;
    double slope, intercept; /* slope 0: neither is written (CT: 1 and 0) */
    bool shuffle; /* random order of file names and of InstanceNumber, from seed
                   * and description */
} DicomWrite;

/* Writes one file per slice, `folder`/IM0001.dcm ..., and makes the folder if
 * absent (its parent must exist). The stored value of v is round((v -
 * intercept) / slope), inverted within the stored range for MONOCHROME1 if
 * dicom_load inverts it back (neither CT nor rescaled). A value that does not
 * fit bits_stored is an error. voxels: U8, I16 or F32, c = 1. Study and frame
 * of reference UIDs are functions of (seed, patient_id), series and instance
 * UIDs also of description and slice: equal arguments give equal bytes, and two
 * series of one patient share study and frame. */
bool dicom_write_series(const char *folder, const Volume *v,
                        const DicomWrite *how);

/* Writes one DICOM SEG to `path`: binary, AUTOMATIC, with a segment for each of
 * `names` (label i + 1 is names[i]; labels beyond `count` are an error), on the
 * slices and in the frame of reference of the series `source`; the elements of
 * patient and study are copied from it. `mask` is U8 on the grid of
 * dicom_load(source); for a tilted stack it is resampled back to the slices
 * (nearest neighbour). Frames without a voxel are left out (an empty segment
 * keeps one empty frame). Names must pass segment_name_check(); a name that is
 * not ASCII makes the file ISO_IR 192, and texts of the source that cannot be
 * converted are then an error. Writes a temporary file and renames it; the same
 * arguments give the same bytes. */
bool dicom_write_seg(const char *path, const Volume *mask,
                     const char *const *names, int32_t count,
                     const DicomSeries *source);

/* The same for fractions: SegmentationType FRACTIONAL, fractional type
 * PROBABILITY, in bytes with 255 for 1, so that values read back are within
 * 1/510. Segment i + 1, names[i], is channel first + i of `fractions`, F32 from
 * 0 to 1 (to 1e-4). Segments may overlap; frames with all bytes 0 are left
 * out. */
bool dicom_write_fractions(const char *path, const Volume *fractions,
                           int32_t first, const char *const *names,
                           int32_t count, const DicomSeries *source);

/* Writes channel `c` of `dose` (F32, in Gy) as one RT dose to `path`, on its
 * own grid, in the frame of reference of the series `source`, from which the
 * elements of patient and study are copied. Values are stored in 16 bits
 * relative to the highest value, so that the error of a value is at most
 * 1/131070 of it; negative values become 0. The standard requires a reference
 * to a plan: DoseSummationType is PLAN, the referenced plan does not exist, and
 * DoseComment calls the dose a prediction. Fails (ERR_DATA) for a grid with
 * sheared slices and for a value that is not finite. The same arguments give
 * the same bytes. */
bool dicom_write_dose(const char *path, const Volume *dose, int32_t c,
                      const DicomSeries *source);

#endif
