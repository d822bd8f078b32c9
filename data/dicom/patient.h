/* patient.h -- copies the patient and study of the source image into a
 * result. */
#ifndef SEG_DATA_DICOM_PATIENT_H
#define SEG_DATA_DICOM_PATIENT_H
#include "data/dicom/elements.h"

/* Appends the patient, study and frame of reference of the file `path`, byte
 * for byte, together with its character set, and no other element of it.
 * `beyond_ascii`: 0, or the number of a segment whose name needs UTF-8; then
 * texts are converted to UTF-8. False if the file can no longer be read or its
 * texts cannot be converted. */
bool patient_copy(Elements *l, const char *path, int32_t beyond_ascii);
#endif
