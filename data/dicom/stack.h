/* stack.h -- orders slices in space. It works on headers alone; files are
 * opened again only to name the differences of images at one position.
 *
 * Slices are sorted by the projection of ImagePositionPatient on the normal
 * (row direction x column direction); file names and InstanceNumber play no
 * part. Rows 51 to 62, 65 and 66 of tests/shell/defects.csv are detected
 * here. */
#ifndef SEG_DATA_DICOM_STACK_H
#define SEG_DATA_DICOM_STACK_H
#include "data/dicom/header.h"

typedef struct DicomStack {
    Grid grid;       /* of the slices as stored; sheared if tilted   */
    double tilt_deg; /* angle between the normal and the step        */
    double off_mm;   /* largest distance by which a position was moved onto the
                      * regular grid; 0: no position was moved */
} DicomStack;

/* Sorts h[0 .. n-1] along the normal and derives the affine (columns: along a
 * row, down a column, from slice to slice). Rounded positions (off by no more
 * than options->position_tolerance) are moved onto the grid, in h too. `where`
 * names the series in errors and notes; options and notes may be NULL. */
bool stack_order(const char *where, DicomHeader *h, int32_t n,
                 const DicomOptions *options, DicomStack *out,
                 DicomNotes *notes);

/* Allowed deviation of a slice from the regular grid, as a fraction of the
 * slice distance. */
double stack_tolerance(const DicomOptions *options);

/* normal = row x column; stack_project: the position of a slice along it in
 * mm. */
void stack_normal(const double orientation[6], double normal[3]);
double stack_project(const double normal[3], const double position_mm[3]);
#endif
