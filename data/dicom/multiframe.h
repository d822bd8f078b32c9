/* multiframe.h -- enhanced multi-frame images: one file, a frame a slice.
 *
 * Geometry and rescaling of each frame come from its functional groups
 * (group.h); from there on its frames are slices like those of a series
 * of single files (stack.h). */
#ifndef SEG_DATA_DICOM_MULTIFRAME_H
#define SEG_DATA_DICOM_MULTIFRAME_H
#include "data/dicom/header.h"

/* out[h->frames]: h once for each frame, in the order of the file, in the
 * arena. `h` has passed header_pixels. Rows 65 and 71, several stacks, and
 * parts of a concatenation are refused here. */
bool multi_headers(const Walk *w, const DicomOptions *options,
                   const DicomHeader *h, Arena *arena, DicomHeader **out);
#endif
