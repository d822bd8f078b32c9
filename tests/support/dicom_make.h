/* dicom_make.h -- DICOM files of kinds that the program does not write, built
 * element by element: explicit little endian, sequences and items of undefined
 * length. */
#ifndef SEG_TESTS_SUPPORT_DICOM_MAKE_H
#define SEG_TESTS_SUPPORT_DICOM_MAKE_H
#include "data/dicom/header.h"
#include "tests/support/dicom_series.h"

typedef struct Make {
    uint8_t *bytes;
    size_t size, room;
} Make;

/* Preamble, meta group and identifiers: patient, study and frame of reference
 * of the series `same_study`, or of a new patient. */
void make_begin(Make *m, const char *sop_class, const char *series_uid,
                const DicomSeries *same_study);
/* The same of file `number` of a series of several. */
void make_begin_of(Make *m, const char *sop_class, const char *series_uid,
                   const DicomSeries *same_study, int number);
void make_put(Make *m, uint32_t tag, const void *value, size_t n);
void make_text(Make *m, uint32_t tag, const char *fmt, ...) ERR_FORMAT(3, 4);
void make_u16(Make *m, uint32_t tag, int value);
void make_u32(Make *m, uint32_t tag, uint32_t value);
/* n numbers as DS, with the accuracy of a double */
void make_numbers(Make *m, uint32_t tag, const double *v, int n);
void make_open(Make *m, uint32_t sequence);
void make_item(Make *m);
void make_item_end(Make *m);
void make_close(Make *m);
/* A sequence of one item: begin and end. */
void make_in(Make *m, uint32_t sequence);
void make_out(Make *m);
/* Rows, Columns, NumberOfFrames and the format of pixels. */
void make_pixels(Make *m, int frames, int rows, int cols, int allocated,
                 int stored, bool is_signed);
/* Write and free. */
void make_save(Make *m, const char *path);

/* An enhanced multi-frame image of the voxels of v (I16), and its flaws. */
typedef struct MadeMulti {
    const Volume *v;
    const DicomSeries *same_study;
    const char *modality;   /* "MR"                                      */
    const char *series_uid; /* "2.25.11"                                 */
    const int *order;       /* slice of each frame; NULL: in order       */
    const double *slope;    /* of each frame; NULL: not written          */
    bool each;              /* orientation and spacing in every frame    */
    bool monochrome1;
    int times;                 /* TemporalPositionIndex 1 .. times     */
    const char *const *stacks; /* StackID of each frame                */
    int unplaced;              /* frame without a position, from 1     */
    const char *concatenation; /* its UID: part 1 of 2                 */
    bool no_spacing, no_orientation, no_groups;
} MadeMulti;

void make_multi(const MadeMulti *how, const char *path);

/* ---- a structure set ---------------------------------------------------- */

/* A contour in columns and rows of a slice. */
typedef struct MadeContour {
    const char *type; // NULL: CLOSED_PLANAR
    int slice, points;
    const double *uv;
    double off;        // distance of the plane from the slice, in slices
    double bent;       // distance of every second point only
    const char *drawn; // SOPInstanceUID that it references
    int said;          // NumberOfContourPoints; 0: the true number
    bool text;         // ContourData that is not a number
} MadeContour;

typedef struct MadeRegion {
    int number;
    const char *name;
    const MadeContour *contour;
    int contours;
    const char *frame; // NULL: the image's
    int drawn_as;      // number in the list of contours; 0: its own number
} MadeRegion;

typedef struct MadeSet {
    const Volume *v;
    const DicomSeries *image;
    const MadeRegion *region;
    int regions;
    const char *series; // that it references; NULL: none
} MadeSet;

/* An RT structure set of these regions, drawn on v. */
void make_set(const MadeSet *set, const char *path);
#endif
