/* same_position.h -- several images at one position: what tells them apart. */
#ifndef SEG_DATA_DICOM_SAME_POSITION_H
#define SEG_DATA_DICOM_SAME_POSITION_H
#include "data/dicom/header.h"

enum { REPEAT_TEXT = 400 };

/* What differs between n images of one position, from their files, which are
 * opened once more: "EchoTime (10, 20), EchoNumbers (1, 2)", the elements in
 * which acquisitions of one series usually differ; "" when none of them does.
 * At most 8 images and 4 elements are named. `first` is the name of the first
 * element, "" too. */
void repeat_differences(const DicomHeader *const *image, int32_t n,
                        char text[REPEAT_TEXT], const char **first);
#endif
