/* dicom_roi.c -- see dicom_roi.h. */
#include "dicom_roi.h"
#include <math.h>
#include <stdio.h>
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

// numbers and names, then which contours belong to which
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
            !header_odd_text(w, TAG_ROIName, odd, s->where, s->notes))
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

bool roi_is_number(const char *wanted, int32_t number)
{
    char text[16];
    snprintf(text, sizeof text, "#%d", number);
    return !strcmp(wanted, text);
}

// "\"BODY\", \"PTV\", ..." as long as there is room; of one `name` alone, the
// numbers of the regions that have it
static const char *list_names(const Structure *s, const char *name, char *text,
                              size_t room)
{
    size_t used = 0;
    *text = 0;
    for (int32_t k = 0; k < s->count && used < room; k++) {
        const Region *r = &s->region[k];
        if (name && strcmp(r->name, name)) continue;
        int n = name ? snprintf(text + used, room - used, "%s%d",
                                used ? ", " : "", r->number)
                     : snprintf(text + used, room - used, "%s\"%.40s\"",
                                used ? ", " : "", r->name);
        if (n > 0) used += (size_t)n;
    }
    return text;
}

// what each region becomes
bool roi_choose(Structure *s)
{
    const DicomMaskOptions *o = s->options;
    int32_t wanted = o->segments ? o->segment_count : s->count;
    char names[400];
    for (int32_t k = 0; !o->segments && k < s->count; k++) {
        Region *r = &s->region[k];
        if (r->number < 1 || r->number > LABELS)
            return dicom_fail(s->w->path, TAG_ROINumber,
                              "name the regions: segments = {\"...\"}",
                              "ROINumber %d, need 1 to %d", r->number, LABELS);
        r->label = (uint8_t)r->number;
    }
    for (int32_t n = 0; o->segments && n < o->segment_count; n++) {
        const char *name = o->segments[n];
        Region *hit = NULL;
        int hits = 0;
        for (int32_t k = 0; k < s->count; k++)
            if (!strcmp(s->region[k].name, name)) hit = &s->region[k], hits++;
        // a name that looks like a number is a name first
        for (int32_t k = 0, none = !hits; none && k < s->count; k++)
            if (roi_is_number(name, s->region[k].number))
                hit = &s->region[k], hits++;
        if (hits > 1)
            return dicom_fail(
                s->w->path, TAG_ROIName,
                "take one by its number: segments = {\"#NUMBER\"}",
                "%d regions called \"%s\", need 1; their numbers are %s", hits,
                name, list_names(s, name, names, sizeof names));
        if (!hits)
            return dicom_fail(s->w->path, TAG_ROIName, NULL,
                              "0 regions called \"%s\", need 1; there are %s",
                              name, list_names(s, NULL, names, sizeof names));
        if (hit->label)
            return dicom_fail(s->w->path, TAG_ROIName, NULL,
                              "region \"%s\" (number %d) is asked for twice",
                              hit->name, hit->number);
        hit->label = (uint8_t)(n + 1);
    }
    return !o->fractions || wanted == 1 ||
           dicom_fail(s->w->path, TAG_StructureSetROISequence,
                      "name the regions: segments = {\"...\"}",
                      "fractions of %d regions at once", wanted);
}
