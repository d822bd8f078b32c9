/* dicom_load.h -- shared by what reads series: dicom_load.c, dicom_mask.c,
 * dicom_seg.c and the writer of segmentations. */
#ifndef SEG_DICOM_LOAD_H
#define SEG_DICOM_LOAD_H
#include "dicom_stack.h"

/* The headers of all files of a single-frame series, checked one by one, in
 * the order of series->paths; in the arena. */
bool load_headers(const DicomSeries *series, const DicomOptions *options,
                  Arena *arena, DicomHeader **out, DicomNotes *notes);

/* load_headers, then stack_order: headers in the order of slices, and the
 * grid of the slices as stored. */
bool load_stack(const DicomSeries *series, const DicomOptions *options,
                Arena *arena, DicomHeader **slices, DicomStack *stack,
                DicomNotes *notes);

/* values[rows * cols] = stored values of one file, inverted and rescaled as
 * dicom_load says. `h` is that file's header from load_headers. */
bool load_slice(const DicomHeader *h, const char *where,
                const DicomOptions *options, float *values, DicomNotes *notes);

/* The grid that a tilted stack is straightened to: in-plane axes and spacing
 * kept, slices perpendicular, wide enough for all voxels. */
Grid load_straight_grid(const DicomStack *stack);

/* Is the stack tilted so far that dicom_load resamples it? */
bool load_is_tilted(const DicomStack *stack);
#endif
