/* same_position.h -- names the attributes that tell apart several images at one
 * position. */
#ifndef SEG_DATA_DICOM_SAME_POSITION_H
#define SEG_DATA_DICOM_SAME_POSITION_H
#include "data/dicom/header.h"

enum { REPEAT_TEXT = 400 };

/* Writes the attributes in which n images at one position differ: "EchoTime
 * (10, 20), EchoNumbers (1, 2)", or "" if none differs. Compares the elements
 * in which acquisitions of one series usually differ; the files are opened
 * again for them. At most 8 images and 4 elements are named. *first is the name
 * of the first such element, or "". */
void repeat_differences(const DicomHeader *const *image, int32_t n,
                        char text[REPEAT_TEXT], const char **first);
#endif
