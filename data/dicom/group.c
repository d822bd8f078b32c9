/* group.c -- finds elements in functional groups. The only check here is that
 * there are as many groups as frames. */
#include "data/dicom/group.h"
#include <string.h>

uint32_t group_items(const Walk *w, uint32_t parent, int sequence,
                     uint32_t *end)
{
    const WalkElement *s = walk_find(w, parent, (uint32_t)sequence);
    uint32_t first = s ? walk_item(w, s, 0) : WALK_ROOT;
    *end = first == WALK_ROOT ? first : s->next;
    return first;
}

const WalkElement *group_inside(const Walk *w, uint32_t item, int sequence,
                                int tag)
{
    uint32_t end, first = group_items(w, item, sequence, &end);
    return first == WALK_ROOT ? NULL : walk_find(w, first, (uint32_t)tag);
}

const WalkElement *group_find(const Walk *w, const FrameGroup *g, int sequence,
                              int tag)
{
    const uint32_t items[] = {g->frame, g->shared};
    // WALK_ROOT would search the data set, where the sequence has another
    // meaning
    for (int i = 0; i < 2; i++) {
        const WalkElement *e = items[i] == WALK_ROOT
                                   ? NULL
                                   : group_inside(w, items[i], sequence, tag);
        if (e) return e;
    }
    return NULL;
}

bool group_unplaced(const Walk *w, uint32_t tag)
{
    return dicom_fail(w->path, tag, NULL,
                      "enhanced multi-frame: per-frame position missing");
}

bool group_list(const Walk *w, int32_t frames, Arena *arena, FrameGroup **out)
{
    uint32_t end;
    uint32_t common =
        group_items(w, WALK_ROOT, TAG_SharedFunctionalGroupsSequence, &end);
    uint32_t first =
        group_items(w, WALK_ROOT, TAG_PerFrameFunctionalGroupsSequence, &end);
    int64_t items = 0;

    for (uint32_t i = first; i < end; i = w->element[i].next) items++;

    // counted first: NumberOfFrames alone must not decide the allocation
    if (items != frames)
        return group_unplaced(w, TAG_PerFrameFunctionalGroupsSequence);
    FrameGroup *g = ARENA_NEW(arena, FrameGroup, items);
    *out = g;
    if (!g) return false;
    for (uint32_t i = first; i < end; i = w->element[i].next)
        *g++ = (FrameGroup){.frame = i, .shared = common};
    return true;
}

bool group_says(const Walk *w, const WalkElement *e, const char *text)
{
    const uint8_t *p = e ? w->bytes + e->offset : NULL;
    const size_t n = walk_unpadded(p, e ? e->length : 0);
    return n == strlen(text) && (!n || !memcmp(p, text, n));
}
