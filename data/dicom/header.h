/* header.h -- reads the elements of one file into a struct.
 *
 * Values come from a Walk. Numbers are parsed here, independently of the
 * locale; a text that is not a number is an error, never 0. An optional
 * attribute has a flag has_...; the caller decides whether its absence is an
 * error. */
#ifndef SEG_DATA_DICOM_HEADER_H
#define SEG_DATA_DICOM_HEADER_H
#include "data/dicom/group.h"

typedef struct DicomHeader {
    const char *path;
    const char *name; /* "frame 3" of a multi-frame file; else NULL         */
    const char *patient_id, *study_uid, *series_uid, *sop_uid, *sop_class;
    const char *frame_uid, *description, *modality; /* "" if absent          */
    const char *reference; /* first ReferencedSOPInstanceUID or ""           */
    int32_t number;        /* SeriesNumber; 0 if absent                      */
    int32_t instance;      /* InstanceNumber                                 */
    int32_t rows, cols, frames, samples;
    int32_t frame; /* index of the frame in its file, from 0                 */
    int32_t allocated, stored, high; /* bits                                 */
    double position_mm[3];           /* centre of the first pixel, LPS       */
    double orientation[6];           /* along a row, then down a column      */
    double spacing_mm[2];            /* between rows, between columns        */
    double thickness_mm;             /* SliceThickness; 0 if absent          */
    double slope, intercept;         /* 1 and 0 if absent                    */
    bool has_instance, has_position, has_orientation, has_spacing;
    bool has_slope, has_intercept;
    unsigned odd_text;       /* CHARSET_... of all texts above              */
    uint32_t odd_text_tag;   /* first element with such a text              */
    bool has_imager_spacing; /* ImagerPixelSpacing                           */
    bool is_signed, monochrome1; /* PixelRepresentation 1; MONOCHROME1     */
    const char *units; /* element that gives the values a unit (units_by); NULL:
                        * none, or not determined */
    bool inverted;     /* set by dicom_load for all slices of a series       */
    bool has_padding;  /* PixelPaddingValue of at most 16 bits               */
    int32_t padding;   /* stored value of pixels without a measurement       */
    bool has_pixels;   /* has a PixelData element                     */
    const DicomTransfer *transfer; /* NULL: unknown                          */
    char syntax[65];
    /* Set by dicom_scan: why another file, which most likely belongs to this
     * series, cannot be read; NULL: no file is damaged. */
    const char *damaged;
} DicomHeader;

/* Reads identity and kind of the file: the attributes by which files are
 * grouped into series. Texts live in the arena. */
bool header_identity(const Walk *w, Arena *arena, DicomHeader *h);

/* Call after header_identity. Reads pixel format and geometry and checks that
 * each frame is one grey image. `segmentation` allows 1 bit. Notes are
 * collected under `where`. */
bool header_image(const Walk *w, const DicomOptions *options, bool segmentation,
                  const char *where, DicomHeader *h, DicomNotes *notes);

/* The two halves of header_image, for objects with geometry and rescaling in
 * functional groups: header_pixels reads the pixel format, header_frame reads
 * rescaling and position of one frame. `group` NULL: the attributes are in the
 * data set. */
bool header_pixels(const Walk *w, const DicomOptions *options,
                   bool segmentation, const char *where, DicomHeader *h,
                   DicomNotes *notes);
bool header_frame(const Walk *w, const DicomOptions *options,
                  const FrameGroup *group, DicomHeader *h);

/* *out = the header of frame i, from 0, of the file of *h. */
bool header_of_frame(const DicomHeader *h, int32_t i, Arena *arena,
                     DicomHeader *out);

/* Reads and checks the geometry of one frame (rows 53, 59, 69 and 70), without
 * rescaling. */
bool header_geometry(const Walk *w, const FrameGroup *group, DicomHeader *h);

/* Row 53: row and column direction must be orthogonal unit vectors. */
bool header_orthogonal(const char *path, const double orientation[6]);

/* Parses one decimal number with optional spaces around it into *out; false if
 * the text is anything else. Exact to the last bit for up to 15 digits and
 * exponents up to 22. */
bool header_decimal(const char *text, size_t length, double *out);

/* Returns the value of e without padding, converted to UTF-8 by the
 * SpecificCharacterSet of its item (charset_utf8), with control characters as
 * '?'; "" if e is NULL. Adds the anomalies of the text, CHARSET_..., to *odd,
 * which may be NULL. NULL only when memory runs out. */
const char *header_text(const Walk *w, const WalkElement *e, Arena *arena,
                        unsigned *odd);

/* Adds notes about the anomalies `odd` of a text in `tag`; none if odd is 0. */
bool header_odd_text(uint32_t tag, unsigned odd, const char *where,
                     DicomNotes *notes);

/* Reads exactly `count` decimal numbers (DS or IS) into out; false with a
 * reason on failure. *found is false if e is NULL or empty. */
bool header_numbers(const Walk *w, const WalkElement *e, int count, double *out,
                    bool *found);

/* Number of values of e, separated by backslashes; 0 if e is NULL or empty. */
int header_values(const Walk *w, const WalkElement *e);

/* Reads one UL, with the same results as header_u16. */
bool header_u32(const Walk *w, const WalkElement *e, uint32_t *out,
                bool *found);

/* Reads a position in mm: three numbers, each below HEADER_FARTHEST_MM. Beyond
 * that, differences of positions are no longer exact or even finite. */
#define HEADER_FARTHEST_MM 1e9
bool header_position(const Walk *w, const WalkElement *e, double out[3],
                     bool *found);

/* Reads one US; false with a reason if its length is not 2; *found as in
 * header_numbers. */
bool header_u16(const Walk *w, const WalkElement *e, int32_t *out, bool *found);
#endif
