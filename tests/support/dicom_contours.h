/* dicom_contours.h -- for tests of structure sets: an image on disk, and
 * contours on it. */
#ifndef SEG_TESTS_SUPPORT_DICOM_CONTOURS_H
#define SEG_TESTS_SUPPORT_DICOM_CONTOURS_H
#include "tests/support/dicom_make.h"

enum { D = 5, H = 12, W = 14, PLANE = H * W };

typedef struct Desk {
    Arena arena;
    Volume v;
    const DicomSeries *image;
    char path[600]; // of the structure set
} Desk;

/* An image of D slices, 3 mm apart; with `affine` unless that is NULL. */
void desk_set_up(Desk *d, const char *name, const double (*affine)[4]);
void desk_clear(Desk *d);

/* Loads a structure set of these regions on the grid of the image. */
bool desk_load(Desk *d, const MadeRegion *r, int n, const char *series,
               const DicomMaskOptions *o, Volume *out, DicomNotes *notes);

/* The expected mask of the contours, computed from columns and rows. */
void desk_expect(const MadeContour *c, int n, int label, uint8_t *want);

/* Contours of 5 and of 4 points. */
extern const double desk_big[10], desk_hole[8];
#endif
