/* dicom_contour.c -- RT structure sets as masks (DICOM PS3.3 A.19, C.8.8.5,
 * C.8.8.6).
 *
 * A structure set names regions and gives each a list of contours: points in
 * mm of the patient, closed polygons in planes of the image they were drawn
 * on. Each contour is laid into the slice whose plane it lies in; one that lies
 * in none is an error, since what it means between slices would be a guess.
 * Contours are filled by the rule of contour.h; regions become labels like the
 * segments of a SEG. */
#include "contour.h"
#include "dicom_file.h"
#include "dicom_mask.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LABELS = 255 };

// a contour must lie in its slice to this share of the distance of slices
static const double PLANE_SLACK = 0.01;
// points this near to a centre, in voxels, are on it: coordinates are rounded
static const double SNAP = 1e-5;

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

// a whole number; 0 and *found false when it is absent
static bool number_of(const Walk *w, uint32_t item, int tag, int32_t *out,
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
static bool read_regions(Structure *s)
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
        if (!number_of(w, i, TAG_ROINumber, &r->number, &found)) return false;
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
        if (!number_of(w, i, TAG_ReferencedROINumber, &number, &found))
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

// "\"BODY\", \"PTV\", ..." as long as there is room
static const char *list_names(const Structure *s, char *text, size_t room)
{
    size_t used = 0;
    for (int32_t k = 0; k < s->count && used < room; k++) {
        int n = snprintf(text + used, room - used, "%s\"%.40s\"", k ? ", " : "",
                         s->region[k].name);
        if (n > 0) used += (size_t)n;
    }
    return text;
}

// what each region becomes
static bool choose(Structure *s)
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
        int hits = 0;
        for (int32_t k = 0; k < s->count; k++)
            if (!strcmp(s->region[k].name, o->segments[n]))
                s->region[k].label = (uint8_t)(n + 1), hits++;
        if (hits != 1)
            return dicom_fail(s->w->path, TAG_ROIName, NULL,
                              "%d regions called \"%s\", need 1; there are %s",
                              hits, o->segments[n],
                              list_names(s, names, sizeof names));
    }
    return !o->fractions || wanted == 1 ||
           dicom_fail(s->w->path, TAG_StructureSetROISequence,
                      "name the regions: segments = {\"...\"}",
                      "fractions of %d regions at once", wanted);
}

// Does the set say that it was drawn on this series? `any`: on some series.
static bool refers_to(const Walk *w, const char *series_uid, bool *any)
{
    bool hit = false;
    uint32_t end[3], at[3];
    *any = false;
    at[0] = group_items(w, WALK_ROOT, TAG_ReferencedFrameOfReferenceSequence,
                        &end[0]);
    for (; at[0] < end[0]; at[0] = w->element[at[0]].next) {
        at[1] = group_items(w, at[0], TAG_RTReferencedStudySequence, &end[1]);
        for (; at[1] < end[1]; at[1] = w->element[at[1]].next) {
            at[2] =
                group_items(w, at[1], TAG_RTReferencedSeriesSequence, &end[2]);
            for (; at[2] < end[2]; at[2] = w->element[at[2]].next) {
                *any = true;
                hit = hit ||
                      group_says(w, walk_find(w, at[2], TAG_SeriesInstanceUID),
                                 series_uid);
            }
        }
    }
    return hit;
}

// A region in another frame of reference has coordinates that mean another
// place, unless the set names this very series.
static bool check_frames(const Structure *s, const MaskTarget *t)
{
    bool any, ours = refers_to(s->w, t->series->series_uid, &any);
    const char *frame = t->series->frame_uid;
    for (int32_t k = 0; k < s->count && !ours; k++) {
        const Region *r = &s->region[k];
        if (r->label && *frame && *r->frame_uid && strcmp(frame, r->frame_uid))
            return dicom_fail(s->w->path, TAG_ReferencedFrameOfReferenceUID,
                              "take the series that it was drawn on",
                              "region \"%s\" lies in another frame of "
                              "reference than the image",
                              r->name);
    }
    return ours || !any ||
           dicom_note(s->notes, true, s->where, TAG_RTReferencedSeriesSequence,
                      "contours were drawn on another series of this frame of "
                      "reference");
}

// ---- one contour ------------------------------------------------------------

// what is known of the contour that is being read
typedef struct Contour {
    const Region *region;
    int number;    // in its region, from 1
    double *point; // points of x, y, z in mm; then u, v of each in front
    size_t points;
    int32_t slice;
} Contour;

// x, y, z of all points; c->point is ours and grows
static bool read_points(const Structure *s, uint32_t item, size_t *room,
                        Contour *c)
{
    const Walk *w = s->w;
    const WalkElement *e = walk_find(w, item, TAG_ContourData);
    int values = header_values(w, e);
    int32_t said = 0;
    bool found;
    if (!number_of(w, item, TAG_NumberOfContourPoints, &said, &found))
        return false;
    // the number of points is there twice; both must say the same
    int64_t want = found ? 3 * (int64_t)said : values - values % 3;
    if (values != want)
        return dicom_fail(w->path, TAG_ContourData, NULL,
                          "%d values, need %lld", values, (long long)want);
    c->points = (size_t)values / 3;
    if ((size_t)values > *room) {
        double *grown = mem_realloc(c->point, (size_t)values * sizeof *grown);
        if (!grown) return false;
        c->point = grown, *room = (size_t)values;
    }
    if (!values) return true;
    if (!header_numbers(w, e, values, c->point, &found)) return false;
    for (int i = 0; i < values; i++)
        if (!(fabs(c->point[i]) < HEADER_FARTHEST_MM))
            return dicom_fail(w->path, TAG_ContourData, NULL,
                              "position %g mm, need less than %g", c->point[i],
                              HEADER_FARTHEST_MM);
    return true;
}

// The slice that the contour names, if it names one of the image: it must be
// the one it lies in.
static bool check_named_slice(const Structure *s, const MaskTarget *t,
                              uint32_t item, const Contour *c)
{
    const Walk *w = s->w;
    const WalkElement *uid = group_inside(w, item, TAG_ContourImageSequence,
                                          TAG_ReferencedSOPInstanceUID);
    if (!uid || !uid->length) return true;
    int32_t other = -1;
    for (int32_t k = 0; k < t->grid.d; k++) {
        // frames of one file share their UID
        if (!group_says(w, uid, t->slices[k].sop_uid)) continue;
        if (k == c->slice || t->slices[k].frames > 1) return true;
        other = k;
    }
    return other < 0 ||
           dicom_fail(w->path, TAG_ContourImageSequence, NULL,
                      "contour %d of region \"%s\" lies in slice %d, but names "
                      "slice %d",
                      c->number, c->region->name, c->slice + 1, other + 1);
}

// The slice under a contour, and its points as columns and rows of that slice
// (in place: two numbers a point, in front of three).
static bool place(const Structure *s, const MaskTarget *t, Contour *c,
                  bool *beyond)
{
    double normal[3], row[3], col[3], step = 0;
    DicomHeader probe = {.frames = 1};
    memcpy(probe.position_mm, c->point, sizeof probe.position_mm);
    c->slice = mask_nearest_slice(t, &probe);
    const DicomHeader *h = &t->slices[c->slice];
    stack_normal(h->orientation, normal);
    double rr = 0, rc = 0, cc = 0;
    for (int a = 0; a < 3; a++) {
        row[a] = h->orientation[a] * h->spacing_mm[1];
        col[a] = h->orientation[3 + a] * h->spacing_mm[0];
        rr += row[a] * row[a], rc += row[a] * col[a], cc += col[a] * col[a];
        step += t->grid.affine[a][2] * normal[a];
    }
    step = fabs(step);
    for (size_t i = 0; i < c->points; i++) {
        double d[3], off = 0, dr = 0, dc = 0;
        for (int a = 0; a < 3; a++) {
            d[a] = c->point[3 * i + (size_t)a] - h->position_mm[a];
            off += d[a] * normal[a], dr += d[a] * row[a], dc += d[a] * col[a];
        }
        if (!(fabs(off) <= PLANE_SLACK * step))
            return dicom_fail(
                s->w->path, TAG_ContourData,
                "take the series that it was drawn on",
                "contour %d of region \"%s\" lies %.3g mm off the nearest "
                "slice (> 1 %% of %g mm)",
                c->number, c->region->name, fabs(off), step);
        // rows and columns are orthogonal to a thousandth only
        double det = rr * cc - rc * rc;
        double u = (dr * cc - dc * rc) / det, v = (dc * rr - dr * rc) / det;
        *beyond = *beyond || u < -0.5 || u > h->cols - 0.5 || v < -0.5 ||
                  v > h->rows - 0.5;
        c->point[2 * i] = rint(u / SNAP) * SNAP;
        c->point[2 * i + 1] = rint(v / SNAP) * SNAP;
    }
    return true;
}

// ---- one region -------------------------------------------------------------

// how a contour is drawn
static const char *const types[] = {"CLOSED_PLANAR", "CLOSEDPLANAR_XOR",
                                    "POINT", "OPEN_PLANAR", "OPEN_NONPLANAR"};
enum { TYPES = 5, CLOSED = 2 };

// the place of a contour's type in the list
static bool type_of(const Walk *w, uint32_t item, int *type)
{
    const WalkElement *e = walk_find(w, item, TAG_ContourGeometricType);
    for (*type = 0; *type < TYPES; ++*type)
        if (group_says(w, e, types[*type])) return true;
    return dicom_fail(w->path, TAG_ContourGeometricType, NULL,
                      "contour of a type that is not known");
}

// What was left out, and what is odd: one note each. `flat`: contours of one or
// two points; `drawn` slices of the region have a contour, first .. last.
static bool note_region(const Structure *s, const Region *r,
                        const int32_t *skipped, int32_t flat, bool beyond,
                        const bool *drawn, int32_t slices)
{
    int32_t first = -1, last = -1, empty = 0, closed = 0;
    for (int32_t k = 0; k < slices; k++) {
        if (!drawn[k]) continue;
        if (first < 0) first = k;
        last = k, closed++;
    }
    for (int i = CLOSED; i < TYPES; i++)
        if (skipped[i] &&
            !dicom_note(s->notes, true, s->where, TAG_ContourGeometricType,
                        "region \"%s\": %d contour%s of type %s skipped",
                        r->name, skipped[i], skipped[i] == 1 ? "" : "s",
                        types[i]))
            return false;
    if (flat &&
        !dicom_note(s->notes, true, s->where, TAG_ContourData,
                    "region \"%s\": %d contour%s of fewer than 3 points "
                    "skipped",
                    r->name, flat, flat == 1 ? "" : "s"))
        return false;
    if (beyond &&
        !dicom_note(s->notes, true, s->where, TAG_ContourData,
                    "region \"%s\" reaches beyond the image, cut off", r->name))
        return false;
    if (!closed && s->options->segments)
        return dicom_fail(s->w->path, TAG_ContourSequence, NULL,
                          "region \"%s\" has no closed contour", r->name);
    if (!closed)
        return dicom_note(s->notes, true, s->where, TAG_ContourSequence,
                          "region \"%s\" has no closed contour", r->name);
    empty = last - first + 1 - closed;
    return !empty ||
           dicom_note(s->notes, true, s->where, TAG_ContourSequence,
                      "region \"%s\": %d of %d slices between its first and "
                      "last have no contour",
                      r->name, empty, last - first + 1);
}

// all contours of one region into toggle[d][h][w], which is zero; filled at
// the end where drawn[d] says so
static bool draw(const Structure *s, const MaskTarget *t, const Region *r,
                 uint8_t *toggle, bool *drawn)
{
    const Walk *w = s->w;
    int32_t h = t->grid.h, cols = t->grid.w;
    size_t plane = (size_t)h * (size_t)cols, room = 0;
    int32_t skipped[TYPES] = {0}, flat = 0;
    bool beyond = false, ok = false;
    Contour c = {.region = r};
    for (uint32_t i = r->first; i < r->end; i = w->element[i].next) {
        int type;
        c.number++;
        TRY(type_of(w, i, &type));
        if (type >= CLOSED) {
            skipped[type]++;
            continue;
        }
        TRY(read_points(s, i, &room, &c));
        if (c.points < 3) {
            flat++;
            continue;
        }
        TRY(place(s, t, &c, &beyond));
        TRY(check_named_slice(s, t, i, &c));
        contour_add(toggle + (size_t)c.slice * plane, h, cols, c.point,
                    c.points);
        drawn[c.slice] = true;
    }
    for (int32_t k = 0; k < t->grid.d; k++)
        if (drawn[k]) contour_fill(toggle + (size_t)k * plane, h, cols);
    ok = note_region(s, r, skipped, flat, beyond, drawn, t->grid.d);
done:
    mem_free(c.point);
    return ok;
}

// a filled region into the mask; voxels that have a label already are counted,
// and *other is the first of their labels
static int64_t merge(const MaskTarget *t, const Region *r, bool fractions,
                     uint8_t *toggle, const bool *drawn, Volume *out,
                     int *other)
{
    size_t plane = (size_t)t->grid.h * (size_t)t->grid.w;
    int64_t clashes = 0;
    for (int32_t k = 0; k < t->grid.d; k++) {
        uint8_t *from = toggle + (size_t)k * plane;
        size_t base = (size_t)k * plane;
        for (size_t i = 0; drawn[k] && i < plane; i++) {
            if (!from[i]) continue;
            if (fractions) {
                ((float *)out->voxels.data)[base + i] = 1;
                continue;
            }
            uint8_t *to = (uint8_t *)out->voxels.data + base + i;
            if (*to && !clashes++) *other = *to;
            *to = r->label;
        }
        // clean for the next region
        if (drawn[k]) memset(from, 0, plane);
    }
    return clashes;
}

// One region after the other, in the order of numbers. Overlaps are counted
// with the first region that has any.
static bool draw_all(Structure *s, const MaskTarget *t, Volume *out)
{
    size_t bytes;
    if (!size_mul((size_t)t->grid.h * (size_t)t->grid.w, (size_t)t->grid.d,
                  &bytes))
        return false;
    uint8_t *toggle = mem_alloc(bytes);
    bool *drawn = ARENA_NEW(&s->arena, bool, t->grid.d), ok = false;
    TRY(toggle && drawn);
    for (int32_t k = 0; k < s->count; k++) {
        const Region *r = &s->region[k];
        if (!r->label) continue;
        int other = 0;
        memset(drawn, 0, (size_t)t->grid.d);
        TRY(draw(s, t, r, toggle, drawn));
        int64_t clashes =
            merge(t, r, s->options->fractions, toggle, drawn, out, &other);
        if (clashes) {
            const char *first = "?";
            for (int32_t i = 0; i < s->count; i++)
                if (s->region[i].label == other) first = s->region[i].name;
            mask_overlap(s->w, TAG_StructureSetROISequence, first, r->name,
                         clashes);
            goto done;
        }
    }
    ok = true;
done:
    mem_free(toggle);
    return ok;
}

bool contour_place(const Walk *w, const DicomSeries *mask,
                   const MaskTarget *target, const DicomMaskOptions *options,
                   Volume *out, DicomNotes *notes)
{
    Structure s = {
        .w = w, .options = options, .where = mask->folder, .notes = notes};
    bool ok = read_regions(&s) && choose(&s) && check_frames(&s, target) &&
              draw_all(&s, target, out);
    arena_release(&s.arena);
    return ok;
}

bool contour_load(const DicomSeries *mask, const MaskTarget *target,
                  const DicomMaskOptions *options, Volume *out,
                  DicomNotes *notes)
{
    if (mask->count != 1)
        return dicom_fail(mask->folder, TAG_SeriesInstanceUID,
                          "keep one of the files",
                          "%d structure sets in one series", mask->count);
    DicomFile f;
    bool ok = dicom_file_open(mask->paths[0], &options->image, false, &f) ==
                  WALK_DONE &&
              load_oddities(&f.walk, mask->folder, notes) &&
              contour_place(&f.walk, mask, target, options, out, notes);
    dicom_file_close(&f);
    return ok;
}

bool contour_info(const DicomSeries *mask, Arena *arena, DicomSegInfo *out)
{
    DicomFile f;
    Structure s = {.where = mask->folder};
    bool ok = dicom_file_open(mask->paths[0], NULL, false, &f) == WALK_DONE;
    s.w = &f.walk;
    ok = ok && read_regions(&s);
    *out = (DicomSegInfo){.type = "RTSTRUCT", .segments = s.count};
    out->segment = ok ? ARENA_NEW(arena, struct DicomSegment, s.count) : NULL;
    ok = out->segment != NULL;
    for (int32_t k = 0; ok && k < s.count; k++) {
        const Region *r = &s.region[k];
        struct DicomSegment *g = &out->segment[k];
        g->number = r->number;
        g->label = arena_strdup(arena, r->name);
        ok = g->label != NULL;
        for (uint32_t i = r->first; i < r->end; i = f.walk.element[i].next)
            g->frames++;
        out->frames += g->frames;
    }
    arena_release(&s.arena);
    dicom_file_close(&f);
    return ok;
}
