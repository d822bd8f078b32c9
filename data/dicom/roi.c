/* roi.c -- see roi.h. */
#include "data/dicom/roi.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LABELS = 255 };

bool roi_number(const Walk *w, uint32_t item, int tag, int32_t *out,
                bool *found)
{
    double v = 0;
    const WalkElement *e = walk_find(w, item, (uint32_t)tag);
    if (!header_numbers(w, e, 1, &v, found)) return false;
    if (v != floor(v) || fabs(v) > INT32_MAX)
        return dicom_fail(w->path, e->tag, NULL,
                          "number \"%g\" not a decimal string", v);
    *out = (int32_t)v;
    return true;
}

// order by number, for qsort
static int compare_regions(const void *x, const void *y)
{
    const Region *a = x, *b = y;
    return (a->number > b->number) - (a->number < b->number);
}

static Region *find_region(const Structure *s, int32_t number)
{
    const Region key = {.number = number};
    return bsearch(&key, s->region, (size_t)s->count, sizeof key,
                   compare_regions);
}

// reads numbers and names, then assigns contours to regions
bool roi_read(Structure *s)
{
    const Walk *w = s->w;
    uint32_t end;
    uint32_t first =
        group_items(w, WALK_ROOT, TAG_StructureSetROISequence, &end);
    bool found;

    for (uint32_t i = first; i < end; i = w->element[i].next) s->count++;
    if (!s->count)
        return dicom_fail(w->path, TAG_StructureSetROISequence, NULL,
                          "structure set without regions");
    Region *r = s->region = ARENA_NEW(&s->arena, Region, s->count);
    if (!r) return false;

    for (uint32_t i = first; i < end; i = w->element[i].next, r++) {
        if (!roi_number(w, i, TAG_ROINumber, &r->number, &found)) return false;
        if (!found)
            return dicom_fail(w->path, TAG_ROINumber, NULL,
                              "region without a number");
        unsigned odd = 0;
        r->name = header_text(w, walk_find(w, i, TAG_ROIName), &s->arena, &odd);
        r->frame_uid =
            header_text(w, walk_find(w, i, TAG_ReferencedFrameOfReferenceUID),
                        &s->arena, NULL);
        if (!r->name || !r->frame_uid ||
            !header_odd_text(TAG_ROIName, odd, s->where, s->notes))
            return false;
    }

    qsort(s->region, (size_t)s->count, sizeof *r, compare_regions);
    for (int32_t k = 1; k < s->count; k++)
        if (s->region[k].number == s->region[k - 1].number)
            return dicom_fail(w->path, TAG_ROINumber, NULL,
                              "two regions with number %d",
                              s->region[k].number);

    first = group_items(w, WALK_ROOT, TAG_ROIContourSequence, &end);
    for (uint32_t i = first; i < end; i = w->element[i].next) {
        int32_t number = 0;
        if (!roi_number(w, i, TAG_ReferencedROINumber, &number, &found))
            return false;
        r = found ? find_region(s, number) : NULL;
        if (!r)
            return dicom_fail(w->path, TAG_ReferencedROINumber, NULL,
                              "contours of region %d, which is not described",
                              number);
        if (r->drawn)
            return dicom_fail(w->path, TAG_ReferencedROINumber, NULL,
                              "contours of region %d appear twice", number);
        r->first = group_items(w, i, TAG_ContourSequence, &r->end);
        r->drawn = true;
    }
    return true;
}

// without names the label of each region is its number
static bool keep_numbers(Structure *s)
{
    for (int32_t k = 0; k < s->count; k++) {
        Region *r = &s->region[k];
        if (r->number < 1 || r->number > LABELS)
            return dicom_fail(s->w->path, TAG_ROINumber,
                              "name the regions: segments = {\"...\"}",
                              "ROINumber %d, need 1 to %d", r->number, LABELS);
        r->label = (uint8_t)r->number;
    }
    return true;
}

bool roi_choose(Structure *s)
{
    const DicomMaskOptions *o = s->options;
    const int32_t wanted = o->segments ? o->segment_count : s->count;

    if (o->segments) {
        MaskPart *part = ARENA_NEW(&s->arena, MaskPart, s->count);
        if (!part) return false;
        for (int32_t k = 0; k < s->count; k++)
            part[k] = (MaskPart){.number = s->region[k].number,
                                 .name = s->region[k].name};
        if (!mask_choose(s->w, "region", TAG_ROIName, o, part, s->count))
            return false;
        for (int32_t k = 0; k < s->count; k++)
            s->region[k].label = part[k].label;
    } else if (!keep_numbers(s)) {
        return false;
    }

    return !o->fractions || wanted == 1 ||
           dicom_fail(s->w->path, TAG_StructureSetROISequence,
                      "name the regions: segments = {\"...\"}",
                      "fractions of %d regions at once", wanted);
}
