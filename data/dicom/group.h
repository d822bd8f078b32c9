/* group.h -- functional groups: where multi-frame objects keep what a
 * frame is and where it lies (DICOM PS3.3 C.7.6.16).
 *
 * One item for all frames (shared) and one for each (per frame); each holds
 * sequences of one item, and the attributes are in that item. An attribute of
 * the frame counts before one that is shared. */
#ifndef SEG_DATA_DICOM_GROUP_H
#define SEG_DATA_DICOM_GROUP_H
#include "data/dicom/parse.h"

/* Where the groups of one frame are: items of the walk; WALK_ROOT: none. */
typedef struct FrameGroup {
    uint32_t frame, shared;
} FrameGroup;

/* out[frames], in the order of the file, in the arena. Row 71 when the number
 * of items is not `frames`: then nothing says where a frame lies. */
bool group_list(const Walk *w, int32_t frames, Arena *arena, FrameGroup **out);

/* Element `tag` in the first item of `sequence`; NULL when it is in neither. */
const WalkElement *group_find(const Walk *w, const FrameGroup *g, int sequence,
                              int tag);

/* The same below any item, or below the data set with WALK_ROOT. */
const WalkElement *group_inside(const Walk *w, uint32_t item, int sequence,
                                int tag);

/* The first item of a sequence there, WALK_ROOT when it has none; the next is
 * element[i].next, while that is below *end. */
uint32_t group_items(const Walk *w, uint32_t parent, int sequence,
                     uint32_t *end);

/* Row 71; returns false. */
bool group_unplaced(const Walk *w, uint32_t tag);

/* Is the value, without padding, this text? A NULL element counts as "". */
bool group_says(const Walk *w, const WalkElement *e, const char *text);
#endif
