/* load.h -- shared by what reads series: load.c, mask.c,
 * seg.c and the writer of segmentations. */
#ifndef SEG_DATA_DICOM_LOAD_H
#define SEG_DATA_DICOM_LOAD_H
#include "data/dicom/stack.h"

/* Names a series in reasons: its folder, of one multi-frame file its path. */
const char *load_where(const DicomSeries *series);

/* The headers of all slices of an image series, checked one by one: of single
 * files in the order of series->paths, of a multi-frame file in the order of
 * its frames; *count of them, in the arena. */
bool load_headers(const DicomSeries *series, const DicomOptions *options,
                  Arena *arena, DicomHeader **out, int32_t *count,
                  DicomNotes *notes);

/* load_headers, then stack_order: headers in the order of slices, and the
 * grid of the slices as stored; stack->grid.d is their number. */
bool load_stack(const DicomSeries *series, const DicomOptions *options,
                Arena *arena, DicomHeader **slices, DicomStack *stack,
                DicomNotes *notes);

/* Reads slices one after the other. The file of the last one stays open and
 * decoded, so that a multi-frame file is read once. Zero-initialise; close in
 * any case. */
typedef struct SliceReader {
    const char *path; /* of the file that is open; NULL: none */
    DicomHeader now;  /* its header                           */
    uint8_t *bytes;   /* its frames as stored                 */
} SliceReader;

/* values[rows * cols] = stored values of one slice, inverted where h->inverted
 * says so, and rescaled. `h` is its header from load_headers. */
bool slice_read(SliceReader *r, const DicomHeader *h, const char *where,
                const DicomOptions *options, float *values, DicomNotes *notes);
void slice_close(SliceReader *r);

/* Rows 9, 10 and 12: oddities of structure as notes, once a series. */
bool load_oddities(const Walk *w, const char *where, DicomNotes *notes);

/* One sample as stored: its bits alone, with its sign. After frames_decode. */
int64_t load_stored(const uint8_t *p, const DicomHeader *h);

/* The grid that a tilted stack is straightened to: in-plane axes and spacing
 * kept, slices perpendicular, wide enough for all voxels. */
Grid load_straight_grid(const DicomStack *stack);

/* Is the stack tilted so far that dicom_load resamples it? */
bool load_is_tilted(const DicomStack *stack);
#endif
