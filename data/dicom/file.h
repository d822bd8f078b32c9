/* file.h -- a file in memory, walked.
 *
 * For a header only the front of the file is read, growing until the walker
 * has met the pixels. */
#ifndef SEG_DATA_DICOM_FILE_H
#define SEG_DATA_DICOM_FILE_H
#include "data/dicom/header.h"

typedef struct DicomFile {
    uint8_t *bytes; /* have of size bytes */
    size_t have, size;
    Walk walk;
} DicomFile;

/* Read and walk `path`; a reason is set unless WALK_DONE. `path` and
 * `options` (may be NULL) must outlive f. dicom_file_close in any case. */
WalkResult dicom_file_open(const char *path, const DicomOptions *options,
                           bool header_only, DicomFile *f);
void dicom_file_close(DicomFile *f);
#endif
