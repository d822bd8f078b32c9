/* series.h -- which files belong together: pure, no file is opened. */
#ifndef SEG_DATA_DICOM_SERIES_H
#define SEG_DATA_DICOM_SERIES_H
#include "data/dicom/header.h"

/* Group n headers into series and sort both; out->root and the counts of
 * other files are left alone. `h` is reordered. Strings are shared with the
 * headers, the rest lives in the arena. */
bool series_group(DicomHeader *h, int32_t n, Arena *arena, DicomIndex *out);

/* Do two files lie in one folder? By the text of their paths alone. */
bool path_same_folder(const char *a, const char *b);
#endif
