/* group.h -- functional groups, which hold the attributes and positions of the
 * frames of multi-frame objects (DICOM PS3.3 C.7.6.16).
 *
 * One item applies to all frames (shared), and each frame has one item (per
 * frame). Each item holds sequences of one item, and that item holds the
 * attributes. A per-frame attribute takes precedence over a shared one. */
#ifndef SEG_DATA_DICOM_GROUP_H
#define SEG_DATA_DICOM_GROUP_H
#include "data/dicom/parse.h"

/* The functional groups of one frame: items of the walk; WALK_ROOT if
 * absent. */
typedef struct FrameGroup {
    uint32_t frame, shared;
} FrameGroup;

/* out[frames], in file order, in the arena. Row 71 if the number of items is
 * not `frames`, as then no frame has a known position. */
bool group_list(const Walk *w, int32_t frames, Arena *arena, FrameGroup **out);

/* Element `tag` in the first item of `sequence` of the frame's groups, else of
 * the shared groups; NULL if neither has it. */
const WalkElement *group_find(const Walk *w, const FrameGroup *g, int sequence,
                              int tag);

/* The same in the first item of `sequence` of any item, or of the data set if
 * `item` is WALK_ROOT. */
const WalkElement *group_inside(const Walk *w, uint32_t item, int sequence,
                                int tag);

/* The first item of a sequence of `parent`, WALK_ROOT if it has none. The next
 * item is element[i].next while that is less than *end. */
uint32_t group_items(const Walk *w, uint32_t parent, int sequence,
                     uint32_t *end);

/* Fails with row 71; returns false. */
bool group_unplaced(const Walk *w, uint32_t tag);

/* Does the value, without padding, equal this text? A NULL element equals
 * "". */
bool group_says(const Walk *w, const WalkElement *e, const char *text);
#endif
