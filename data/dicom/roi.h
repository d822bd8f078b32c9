/* roi.h -- the regions of an RT structure set: their numbers, names, contours,
 * and which of the regions are selected (PS3.3 C.8.8.5, C.8.8.6). */
#ifndef SEG_DATA_DICOM_ROI_H
#define SEG_DATA_DICOM_ROI_H
#include "data/dicom/mask.h"

typedef struct Region {
    int32_t number;
    const char *name, *frame_uid;
    uint32_t first, end; // its contours, as from group_items
    bool drawn;          // has a contour item, empty or not
    uint8_t label;       // label in the mask; 0: not selected
} Region;

typedef struct Structure {
    const Walk *w;
    const DicomMaskOptions *options;
    const char *where; // for notes
    DicomNotes *notes;
    Arena arena;
    Region *region; // sorted by number
    int32_t count;
} Structure;

/* Fills s->region from the sequences of s->w. */
bool roi_read(Structure *s);

/* Sets the label of each region by s->options: its number, or the position of
 * its name in options->segments. */
bool roi_choose(Structure *s);

/* Reads a whole number of an item; 0 and *found = false if it is absent. */
bool roi_number(const Walk *w, uint32_t item, int tag, int32_t *out,
                bool *found);
#endif
