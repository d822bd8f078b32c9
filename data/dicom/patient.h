/* patient.h -- whose a result is: the patient and study of its source. */
#ifndef SEG_DATA_DICOM_PATIENT_H
#define SEG_DATA_DICOM_PATIENT_H
#include "data/dicom/elements.h"

/* Append the patient, study and frame of reference of the file `path`, as it
 * has them, byte for byte: its character set comes along. Nothing else of the
 * image does. `beyond_ascii`: 0, or the number of a segment whose name wants
 * UTF-8; then texts are turned into that. False: the file cannot be read any
 * more, or its texts not be turned. */
bool patient_copy(Elements *l, const char *path, int32_t beyond_ascii);
#endif
