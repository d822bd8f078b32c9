/* stack.h -- slices in space. It works on headers alone; only to say
 * what images at one position differ in are files opened again.
 *
 * The order is that of the projection of ImagePositionPatient on the normal
 * (row direction x column direction); names and InstanceNumber play no
 * part. Rows 51 to 62, 65 and 66 of the table of defects are found here. */
#ifndef SEG_DATA_DICOM_STACK_H
#define SEG_DATA_DICOM_STACK_H
#include "data/dicom/header.h"

typedef struct DicomStack {
    Grid grid;       /* of the slices as stored, sheared when tilted */
    double tilt_deg; /* angle between the normal and the step        */
    double off_mm;   /* farthest that positions of the files were off the grid
                      * when they were moved onto it; 0: they were not       */
} DicomStack;

/* Sort h[0 .. n-1] along the normal and derive the affine (columns: along a
 * row, down a column, from slice to slice). Positions that are rounded (by no
 * more than options->position_tolerance) are moved onto the grid, in h too.
 * `where` names the series in
 * reasons and notes; options and notes may be NULL. */
bool stack_order(const char *where, DicomHeader *h, int32_t n,
                 const DicomOptions *options, DicomStack *out,
                 DicomNotes *notes);

/* How far a slice may be off the regular grid, as a share of the spacing. */
double stack_tolerance(const DicomOptions *options);

/* normal = row x column; the position of a slice along it in mm. */
void stack_normal(const double orientation[6], double normal[3]);
double stack_project(const double normal[3], const double position_mm[3]);
#endif
