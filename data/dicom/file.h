/* file.h -- reads a DICOM file into memory and parses it with the walker.
 *
 * If only the header is needed, the front of the file is read, in growing
 * pieces, until the walker reaches PixelData. */
#ifndef SEG_DATA_DICOM_FILE_H
#define SEG_DATA_DICOM_FILE_H
#include "data/dicom/header.h"

typedef struct DicomFile {
    uint8_t *bytes; /* `have` of `size` bytes */
    size_t have, size;
    Walk walk;
} DicomFile;

/* Reads and parses `path`; sets a reason unless it returns WALK_DONE. `path`
 * and `options` (may be NULL) must outlive f. Call dicom_file_close whatever
 * the result. */
WalkResult dicom_file_open(const char *path, const DicomOptions *options,
                           bool header_only, DicomFile *f);
void dicom_file_close(DicomFile *f);
#endif
