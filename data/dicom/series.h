/* series.h -- groups files into series by their headers; opens no file. */
#ifndef SEG_DATA_DICOM_SERIES_H
#define SEG_DATA_DICOM_SERIES_H
#include "data/dicom/header.h"

/* Groups n headers into series and sorts both; does not set out->root or the
 * counts of other files. `h` is reordered. Strings are shared with the headers,
 * the rest lives in the arena. */
bool series_group(DicomHeader *h, int32_t n, Arena *arena, DicomIndex *out);

/* Are two files in one folder? Compares the texts of their paths. */
bool path_same_folder(const char *a, const char *b);
#endif
