/* dicom_group.c -- looking things up in functional groups. Nothing is decided
 * here but whether there are as many groups as frames. */
#include "dicom_group.h"
#include <string.h>

const WalkElement *group_inside(const Walk *w, uint32_t item, int sequence,
                                int tag)
{
    const WalkElement *s = walk_find(w, item, (uint32_t)sequence);
    uint32_t first = s ? walk_item(w, s, 0) : WALK_ROOT;
    return first == WALK_ROOT ? NULL : walk_find(w, first, (uint32_t)tag);
}

const WalkElement *group_find(const Walk *w, const FrameGroup *g, int sequence,
                              int tag)
{
    const uint32_t items[] = {g->frame, g->shared};
    // WALK_ROOT would mean the data set, where such a sequence is another's
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
    const WalkElement *shared =
        walk_find(w, WALK_ROOT, TAG_SharedFunctionalGroupsSequence);
    const WalkElement *list =
        walk_find(w, WALK_ROOT, TAG_PerFrameFunctionalGroupsSequence);
    uint32_t common = shared ? walk_item(w, shared, 0) : WALK_ROOT;
    uint32_t first = list ? walk_item(w, list, 0) : WALK_ROOT;
    int64_t items = 0;
    for (uint32_t i = first; list && i < list->next; i = w->element[i].next)
        items++;
    // counted first: NumberOfFrames alone must not decide what is allocated
    if (items != frames)
        return group_unplaced(w, TAG_PerFrameFunctionalGroupsSequence);
    FrameGroup *g = ARENA_NEW(arena, FrameGroup, items);
    *out = g;
    if (!g) return false;
    for (uint32_t i = first; i < list->next; i = w->element[i].next)
        *g++ = (FrameGroup){.frame = i, .shared = common};
    return true;
}

bool group_says(const Walk *w, const WalkElement *e, const char *text)
{
    size_t n = e ? e->length : 0;
    while (n &&
           (w->bytes[e->offset + n - 1] == ' ' || !w->bytes[e->offset + n - 1]))
        n--;
    return n == strlen(text) && (!n || !memcmp(w->bytes + e->offset, text, n));
}
