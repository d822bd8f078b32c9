/* dicom_stack.h -- slices in space: pure, works on headers alone.
 *
 * The order is that of the projection of ImagePositionPatient on the normal
 * (row direction x column direction); names and InstanceNumber play no
 * part. Rows 51 to 62, 65 and 66 of the table of defects are found here. */
#ifndef SEG_DICOM_STACK_H
#define SEG_DICOM_STACK_H
#include "dicom_header.h"

typedef struct DicomStack {
    Grid grid;       /* of the slices as stored, sheared when tilted */
    double tilt_deg; /* angle between the normal and the step        */
} DicomStack;

/* Sort h[0 .. n-1] along the normal and derive the affine (columns: along a
 * row, down a column, from slice to slice). `where` names the series in
 * reasons and notes; options and notes may be NULL. */
bool stack_order(const char *where, DicomHeader *h, int32_t n,
                 const DicomOptions *options, DicomStack *out,
                 DicomNotes *notes);

/* normal = row x column; the position of a slice along it in mm. */
void stack_normal(const double orientation[6], double normal[3]);
double stack_project(const double normal[3], const double position_mm[3]);
#endif
