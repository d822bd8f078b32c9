/* dose.h -- reads an RT dose grid (DICOM PS3.3 A.18, C.8.8.3) from a file that
 * the walker has parsed; dicom_load_dose of dicom.h opens the file. */
#ifndef SEG_DATA_DICOM_DOSE_H
#define SEG_DATA_DICOM_DOSE_H
#include "data/dicom/parse.h"

/* out = F32 in Gy on the grid of the dose; `where` names the file in errors and
 * notes. */
bool dose_read(const Walk *w, const char *where, const DicomOptions *options,
               Volume *out, DicomNotes *notes);
#endif
