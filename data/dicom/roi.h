/* roi.h -- the regions of an RT structure set: numbers, names, which
 * contours are theirs, and which of them are wanted (PS3.3 C.8.8.5, C.8.8.6).
 */
#ifndef SEG_DATA_DICOM_ROI_H
#define SEG_DATA_DICOM_ROI_H
#include "data/dicom/mask.h"

typedef struct Region {
    int32_t number;
    const char *name, *frame_uid;
    uint32_t first, end; // its contours, as group_items gives them
    bool drawn;          // has an item of contours, empty or not
    uint8_t label;       // what it becomes; 0: not wanted
} Region;

typedef struct Structure {
    const Walk *w;
    const DicomMaskOptions *options;
    const char *where; // for notes
    DicomNotes *notes;
    Arena arena;
    Region *region; // in the order of numbers
    int32_t count;
} Structure;

/* s->region from the sequences of s->w. */
bool roi_read(Structure *s);

/* The label of each region by s->options: its number, or the place of its name
 * among options->segments. */
bool roi_choose(Structure *s);

/* A whole number below `item`; 0 and *found false when it is absent. */
bool roi_number(const Walk *w, uint32_t item, int tag, int32_t *out,
                bool *found);
#endif
