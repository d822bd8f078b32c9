/* dose.h -- RT dose grids (DICOM PS3.3 A.18, C.8.8.3): a file that has
 * been walked; dicom_load_dose of dicom.h opens it. */
#ifndef SEG_DATA_DICOM_DOSE_H
#define SEG_DATA_DICOM_DOSE_H
#include "data/dicom/parse.h"

/* out = F32 in Gy on the grid of the dose; `where` names it in reasons and
 * notes. */
bool dose_read(const Walk *w, const char *where, const DicomOptions *options,
               Volume *out, DicomNotes *notes);
#endif
