/* multiframe.h -- enhanced multi-frame images: one file, one frame per slice.
 *
 * Geometry and rescaling of each frame come from its functional groups
 * (group.h). After that its frames are handled as the slices of a series of
 * single-frame files (stack.h). */
#ifndef SEG_DATA_DICOM_MULTIFRAME_H
#define SEG_DATA_DICOM_MULTIFRAME_H
#include "data/dicom/header.h"

/* out[h->frames]: a copy of h for each frame, with the frame's attributes, in
 * file order, in the arena. `h` has passed header_pixels. Rows 65 and 71,
 * several stacks, and parts of a concatenation are refused here. */
bool multi_headers(const Walk *w, const DicomOptions *options,
                   const DicomHeader *h, Arena *arena, DicomHeader **out);
#endif
