/* multiframe.c -- the frames of an enhanced image as headers of slices. Other
 * dimensions of frames (echo, b value, cardiac phase) are not read: two such
 * frames are at one position, which stack.c refuses. */
#include "data/dicom/multiframe.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAMED = 10 };

// A concatenation is one image in several files; each file alone would look
// like a shorter image.
static bool check_whole(const Walk *w)
{
    const WalkElement *e = walk_find(w, WALK_ROOT, TAG_ConcatenationUID);
    if (!e || !e->length) return true;
    int32_t part = 0, parts = 0;
    bool found;
    if (!header_u16(w, walk_find(w, WALK_ROOT, TAG_InConcatenationNumber),
                    &part, &found) ||
        !header_u16(w, walk_find(w, WALK_ROOT, TAG_InConcatenationTotalNumber),
                    &parts, &found))
        return false;

    if (parts == 1) return true;
    char of[24] = "";
    if (parts) snprintf(of, sizeof of, " of %d", parts);
    return dicom_fail(w->path, TAG_ConcatenationUID,
                      "join its parts to one file",
                      "part %d%s of a concatenation", part, of);
}

// the FrameContent of one frame
typedef struct Content {
    const char *stack; // StackID, "" if absent
    uint32_t time;     // TemporalPositionIndex, 0 if absent
} Content;

// several stacks are several images; the error names them
static bool check_stacks(const Walk *w, const Content *c, int32_t n)
{
    char list[400] = "";
    const char *known[NAMED];
    size_t used = 0;
    int32_t stacks = 0;

    for (int32_t i = 0; i < n; i++) {
        int32_t k = 0;
        while (k < stacks && strcmp(known[k], c[i].stack)) k++;
        if (k < stacks || k == NAMED) continue;
        known[stacks++] = c[i].stack;
        int wrote = snprintf(list + used, sizeof list - used, "%s\"%.30s\"",
                             used ? ", " : "", c[i].stack);
        if (wrote > 0 && used + (size_t)wrote < sizeof list)
            used += (size_t)wrote;
    }

    return stacks < 2 ||
           dicom_fail(w->path, TAG_StackID, "write one file for each",
                      "%d stacks in one file: %s%s", stacks, list,
                      stacks == NAMED ? ", ..." : "");
}

// order by time, for qsort
static int compare_times(const void *x, const void *y)
{
    const Content *a = x, *b = y;
    return (a->time > b->time) - (a->time < b->time);
}

// Row 65, by the temporal index: also detects a patient that moved between the
// times, so that positions differ. If each frame has an index of its own, it is
// only the order of acquisition. `c` is reordered.
static bool check_times(const Walk *w, Content *c, int32_t n)
{
    int32_t times = 1;
    qsort(c, (size_t)n, sizeof *c, compare_times);
    for (int32_t i = 1; i < n; i++) times += c[i].time != c[i - 1].time;
    return times < 2 || times == n ||
           dicom_fail(w->path, TAG_TemporalPositionIndex, NULL,
                      "%d time points per position", times);
}

bool multi_headers(const Walk *w, const DicomOptions *options,
                   const DicomHeader *h, Arena *arena, DicomHeader **out)
{
    FrameGroup *g;
    int32_t n = h->frames;
    if (!check_whole(w) || !group_list(w, n, arena, &g)) return false;
    DicomHeader *frame = ARENA_NEW(arena, DicomHeader, n);
    Content *content = ARENA_NEW(arena, Content, n);
    if (!frame || !content) return false;

    for (int32_t i = 0; i < n; i++) {
        DicomHeader *f = &frame[i];
        bool found;
        if (!header_of_frame(h, i, arena, f)) return false;
        content[i].stack = header_text(
            w, group_find(w, &g[i], TAG_FrameContentSequence, TAG_StackID),
            arena, NULL);
        if (!content[i].stack ||
            !header_u32(w,
                        group_find(w, &g[i], TAG_FrameContentSequence,
                                   TAG_TemporalPositionIndex),
                        &content[i].time, &found) ||
            !header_frame(w, options, &g[i], f))
            return false;
        if (!f->has_position)
            return group_unplaced(w, TAG_PlanePositionSequence);
    }

    *out = frame;
    return check_stacks(w, content, n) && check_times(w, content, n);
}
