/* header.h -- what the elements of one file say.
 *
 * Values are taken from a Walk; numbers are parsed here, in no locale, and a
 * text that is not a number is an error, never 0. What may be absent has a
 * flag; whether its absence matters is decided by who needs it. */
#ifndef SEG_DATA_DICOM_HEADER_H
#define SEG_DATA_DICOM_HEADER_H
#include "data/dicom/group.h"

typedef struct DicomHeader {
    const char *path;
    const char *name; /* "frame 3" in a multi-frame file; NULL: the path's  */
    const char *patient_id, *study_uid, *series_uid, *sop_uid, *sop_class;
    const char *frame_uid, *description, *modality; /* "" when absent        */
    const char *reference; /* first ReferencedSOPInstanceUID, "" when absent */
    int32_t number;        /* SeriesNumber; 0 when absent                    */
    int32_t instance;      /* InstanceNumber                                 */
    int32_t rows, cols, frames, samples;
    int32_t frame; /* of the file, from 0: the one this header is about      */
    int32_t allocated, stored, high; /* bits                                 */
    double position_mm[3];           /* centre of the first pixel, LPS       */
    double orientation[6];           /* along a row, then down a column      */
    double spacing_mm[2];            /* between rows, between columns        */
    double thickness_mm;             /* SliceThickness; 0 when absent        */
    double slope, intercept;         /* 1 and 0 when absent                  */
    bool has_instance, has_position, has_orientation, has_spacing;
    bool has_slope, has_intercept;
    unsigned odd_text;       /* CHARSET_... of the texts above              */
    uint32_t odd_text_tag;   /* and the first of them                       */
    bool has_imager_spacing; /* ImagerPixelSpacing                           */
    bool is_signed, monochrome1; /* PixelRepresentation 1; MONOCHROME1     */
    const char *units; /* element by which values are quantities (units_by);
                        * NULL: none, or not asked                         */
    bool inverted;     /* of the slices of an image: dicom_load decides it   */
    bool has_padding;  /* PixelPaddingValue of at most 16 bits               */
    int32_t padding;   /* what is stored where nothing was measured          */
    bool has_pixels;   /* a PixelData element                         */
    const DicomTransfer *transfer; /* NULL: unknown                          */
    char syntax[65];
    /* Of a scan: why another file, most likely of this series, cannot be read;
     * NULL: none is damaged. */
    const char *damaged;
} DicomHeader;

/* Who the file is and what it shows; enough to group it. Texts live in the
 * arena. */
bool header_identity(const Walk *w, Arena *arena, DicomHeader *h);

/* After header_identity: pixels and geometry, checked for one grey image a
 * frame. `segmentation` allows 1 bit. Notes are collected under `where`. */
bool header_image(const Walk *w, const DicomOptions *options, bool segmentation,
                  const char *where, DicomHeader *h, DicomNotes *notes);

/* Its two halves, for objects that keep geometry and rescaling elsewhere:
 * how pixels are stored, and what one frame means and where it lies. `group`
 * NULL: the attributes lie in the data set. */
bool header_pixels(const Walk *w, const DicomOptions *options,
                   bool segmentation, const char *where, DicomHeader *h,
                   DicomNotes *notes);
bool header_frame(const Walk *w, const DicomOptions *options,
                  const FrameGroup *group, DicomHeader *h);

/* *out = the header of frame i, from 0, of the file that *h is of. */
bool header_of_frame(const DicomHeader *h, int32_t i, Arena *arena,
                     DicomHeader *out);

/* Rows 53, 59, 69 and 70 of one frame, without what values mean. */
bool header_geometry(const Walk *w, const FrameGroup *group, DicomHeader *h);

/* Row 53: row and column direction are unit vectors and orthogonal. */
bool header_orthogonal(const char *path, const double orientation[6]);

/* Is the text one decimal number, with optional spaces around? Then *out.
 * Correct to the last bit for up to 15 digits and exponents up to 22. */
bool header_decimal(const char *text, size_t length, double *out);

/* Value of e as text without padding, in UTF-8 by the SpecificCharacterSet of
 * its item (charset_utf8), control characters as '?'; "" when e is NULL. What
 * is odd about it, CHARSET_..., is added to *odd, which may be NULL. NULL only
 * without memory. */
const char *header_text(const Walk *w, const WalkElement *e, Arena *arena,
                        unsigned *odd);

/* Notes of texts in `tag` whose *odd is not 0. */
bool header_odd_text(uint32_t tag, unsigned odd, const char *where,
                     DicomNotes *notes);

/* Exactly `count` decimal numbers (DS or IS) into out. false when
 * there is a reason; *found is false when e is NULL or empty. */
bool header_numbers(const Walk *w, const WalkElement *e, int count, double *out,
                    bool *found);

/* Values of e that backslashes part; 0 when e is NULL or empty. */
int header_values(const Walk *w, const WalkElement *e);

/* One UL as header_u16 reads a US. */
bool header_u32(const Walk *w, const WalkElement *e, uint32_t *out,
                bool *found);

/* Three numbers that are a place in mm, each below HEADER_FARTHEST_MM: beyond
 * it, differences of positions are no longer exact or even finite. */
#define HEADER_FARTHEST_MM 1e9
bool header_position(const Walk *w, const WalkElement *e, double out[3],
                     bool *found);

/* One US; false with a reason when its length is not 2; *found as above. */
bool header_u16(const Walk *w, const WalkElement *e, int32_t *out, bool *found);
#endif
