/* load.h -- functions for all readers of series: load.c, mask.c, seg.c and the
 * writer of segmentations. */
#ifndef SEG_DATA_DICOM_LOAD_H
#define SEG_DATA_DICOM_LOAD_H
#include "data/dicom/stack.h"

/* The name of a series in errors: its folder, or the path of a multi-frame
 * file. */
const char *load_where(const DicomSeries *series);

/* Reads and checks the headers of all slices of an image series, one by one: of
 * single-frame files in the order of series->paths, of a multi-frame file in
 * the order of its frames. *out has *count headers and lives in the arena. */
bool load_headers(const DicomSeries *series, const DicomOptions *options,
                  Arena *arena, DicomHeader **out, int32_t *count,
                  DicomNotes *notes);

/* load_headers, then stack_order: headers in spatial order and the grid of the
 * slices as stored; stack->grid.d is their number. */
bool load_stack(const DicomSeries *series, const DicomOptions *options,
                Arena *arena, DicomHeader **slices, DicomStack *stack,
                DicomNotes *notes);

/* Reads slices one after the other. The last file stays open and decoded, so
 * that a multi-frame file is read once. Zero-initialise; call slice_close
 * whatever the results. */
typedef struct SliceReader {
    const char *path; /* the open file; NULL: none            */
    DicomHeader now;  /* header of that file                  */
    uint8_t *bytes;   /* its frames as stored                 */
} SliceReader;

/* values[rows * cols] = the stored values of one slice, inverted if
 * h->inverted, then rescaled. `h` is its header from load_headers. */
bool slice_read(SliceReader *r, const DicomHeader *h, const char *where,
                const DicomOptions *options, float *values, DicomNotes *notes);
void slice_close(SliceReader *r);

/* Adds notes about structural anomalies (rows 5, 9, 10 and 12), once per
 * series. */
bool load_oddities(const Walk *w, const char *where, DicomNotes *notes);

/* One stored sample, sign-extended, without the bits above BitsStored. Call
 * after frames_decode. */
int64_t load_stored(const uint8_t *p, const DicomHeader *h);

/* The grid onto which a tilted stack is resampled: same in-plane axes and
 * spacing, slices perpendicular, large enough for all voxels. */
Grid load_straight_grid(const DicomStack *stack);

/* Is the stack tilted so far that dicom_load resamples it? */
bool load_is_tilted(const DicomStack *stack);
#endif
