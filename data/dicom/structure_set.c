/* structure_set.c -- RT structure sets as masks (DICOM PS3.3 A.19, C.8.8.5,
 * C.8.8.6).
 *
 * A structure set names regions and gives each a list of contours: points in mm
 * of the patient, closed polygons in planes of the image on which they were
 * drawn. ContourImageSequence names the slice of a contour; without it the
 * plane of the contour decides. A contour between two slices is an error, since
 * its slice would be a guess; a contour beyond the first or the last slice is
 * left out. Contours are filled by the rule of polygon.h; regions become labels
 * like the segments of a SEG. */
#include "data/dicom/file.h"
#include "data/dicom/polygon.h"
#include "data/dicom/roi.h"
#include <math.h>
#include <string.h>

// A contour that names no slice must lie in its slice to this fraction of the
// slice distance. Coordinates may be rounded to one decimal of a mm, so
// ROUNDED_MM is accepted too, but at most a tenth of the distance.
static const double PLANE_SLACK = 0.01, ROUNDED_MM = 0.05;
// points this near to a centre, in voxels, are on it: coordinates are rounded
static const double SNAP = 1e-5;

// Does the set refer to this series as its image? *any: to some series.
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

// Coordinates of a region in another frame of reference mean another place,
// unless the set refers to this series.
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

// the contour that is being read
typedef struct Contour {
    const Region *region;
    int number;    // in its region, from 1
    double *point; // points of x, y, z in mm; to_pixels writes u, v of each in
                   // front
    size_t points;
    int32_t slice;  // -1: beyond the first or the last slice
    double off_mm;  // largest distance of a point from the slice
    double at_mm;   // its middle, from the slice along the normal
    double step_mm; // between slices
} Contour;

// reads x, y, z of all points; c->point belongs to the caller and grows
static bool read_points(const Structure *s, uint32_t item, size_t *room,
                        Contour *c)
{
    const Walk *w = s->w;
    const WalkElement *e = walk_find(w, item, TAG_ContourData);
    int values = header_values(w, e);
    int32_t said = 0;
    bool found;

    if (!roi_number(w, item, TAG_NumberOfContourPoints, &said, &found))
        return false;

    // the number of points is stored twice; both must agree
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

// The image slice that the contour names, else -1: by instance, in a
// multi-frame image also by frame.
static bool find_named(const Structure *s, const MaskTarget *t, uint32_t item,
                       int32_t *named)
{
    const Walk *w = s->w;
    const int images = TAG_ContourImageSequence;
    const WalkElement *uid =
        group_inside(w, item, images, TAG_ReferencedSOPInstanceUID);
    uint32_t end, image = group_items(w, item, images, &end);
    int32_t frame = 0;
    bool found = false;

    *named = -1;
    if (!uid || !uid->length) return true;
    if (!roi_number(w, image, TAG_ReferencedFrameNumber, &frame, &found))
        return false;

    for (int32_t k = 0; k < t->grid.d; k++) {
        const DicomHeader *h = &t->slices[k];
        // frames of one file share their UID
        if (h->frames > 1 && !(found && frame == h->frame + 1)) continue;
        if (group_says(w, uid, h->sop_uid)) *named = k;
    }
    return true;
}

// Millimetres along the normal from slice k to the points of a contour: the
// smallest and the largest.
static void offsets(const MaskTarget *t, int32_t k, const Contour *c,
                    double off[2])
{
    const DicomHeader *h = &t->slices[k];
    double normal[3];
    stack_normal(h->orientation, normal);
    const double plane = stack_project(normal, h->position_mm);
    off[0] = HUGE_VAL, off[1] = -HUGE_VAL;
    for (size_t i = 0; i < c->points; i++) {
        const double d = stack_project(normal, c->point + 3 * i) - plane;
        off[0] = fmin(off[0], d), off[1] = fmax(off[1], d);
    }
}

// Largest distance of the contour from a plane.
static double farthest(const double off[2])
{
    return fmax(fabs(off[0]), fabs(off[1]));
}

// Sets c->slice, the slice of a contour. Planning systems round the positions
// of contours, so it is the slice that the contour names if at most half the
// slice distance away; else the nearest slice, if all points lie in its plane
// within the tolerance. -1: the whole contour is beyond the first or the last
// slice.
static bool find_slice(const Structure *s, const MaskTarget *t, uint32_t item,
                       Contour *c)
{
    const Walk *w = s->w;
    double off[2], normal[3], step = 0;
    int32_t named;

    if (!find_named(s, t, item, &named)) return false;
    stack_normal(t->slices->orientation, normal);
    for (int a = 0; a < 3; a++) step += t->grid.affine[a][2] * normal[a];
    c->step_mm = step = fabs(step);
    double slack = fmax(PLANE_SLACK * step, fmin(ROUNDED_MM, 0.1 * step));

    // beyond half a slice distance another slice would be nearer, or none
    slack = fmax(slack, fmin(s->options->contour_tolerance_mm, 0.5 * step));

    // contours keep the rounded positions of the files of the image
    slack = fmax(slack, PLANE_SLACK * step + t->off_mm);

    if (named >= 0) {
        offsets(t, named, c, off);
        c->off_mm = farthest(off);
        c->at_mm = (off[0] + off[1]) / 2;
        c->slice = named;
        // a half may be rounded up
        if (c->off_mm <= (0.5 + PLANE_SLACK) * step) return true;
    }

    DicomHeader probe = {.frames = 1};
    memcpy(probe.position_mm, c->point, sizeof probe.position_mm);
    c->slice = mask_nearest_slice(t, &probe);
    offsets(t, c->slice, c, off);
    c->off_mm = farthest(off);
    c->at_mm = (off[0] + off[1]) / 2;

    if (c->off_mm <= slack)
        return named < 0 ||
               dicom_fail(w->path, TAG_ContourImageSequence, NULL,
                          "contour %d of region \"%s\" lies in slice %d, but "
                          "names slice %d",
                          c->number, c->region->name, c->slice + 1, named + 1);

    const bool before = c->slice == 0 && off[1] < -0.5 * step;
    const bool behind = c->slice == t->grid.d - 1 && off[0] > 0.5 * step;
    if (before || behind) {
        c->slice = -1;
        return true;
    }
    return dicom_fail(
        w->path, TAG_ContourData,
        "take the series that it was drawn on, or "
        "contour_tolerance = MM",
        "contour %d of region \"%s\" lies %.3g mm off the nearest "
        "slice (> %.3g mm; slices are %g mm apart)",
        c->number, c->region->name, c->off_mm, slack, step);
}

// Converts the points of a contour to columns and rows of its slice (in place:
// two numbers per point, in front of three).
static void to_pixels(const MaskTarget *t, Contour *c, bool *beyond)
{
    const DicomHeader *h = &t->slices[c->slice];
    double row[3], col[3], rr = 0, rc = 0, cc = 0;
    for (int a = 0; a < 3; a++) {
        row[a] = h->orientation[a] * h->spacing_mm[1];
        col[a] = h->orientation[3 + a] * h->spacing_mm[0];
        rr += row[a] * row[a], rc += row[a] * col[a], cc += col[a] * col[a];
    }

    for (size_t i = 0; i < c->points; i++) {
        double dr = 0, dc = 0;
        for (int a = 0; a < 3; a++) {
            const double d = c->point[3 * i + (size_t)a] - h->position_mm[a];
            dr += d * row[a], dc += d * col[a];
        }
        // rows and columns are orthogonal only to a thousandth
        double det = rr * cc - rc * rc;
        double u = (dr * cc - dc * rc) / det, v = (dc * rr - dr * rc) / det;
        *beyond = *beyond || u < -0.5 || u > h->cols - 0.5 || v < -0.5 ||
                  v > h->rows - 0.5;
        c->point[2 * i] = rint(u / SNAP) * SNAP;
        c->point[2 * i + 1] = rint(v / SNAP) * SNAP;
    }
}

// ---- one region -------------------------------------------------------------

// how a contour is drawn
static const char *const types[] = {"CLOSED_PLANAR", "CLOSEDPLANAR_XOR",
                                    "POINT", "OPEN_PLANAR", "OPEN_NONPLANAR"};
enum { TYPES = 5, CLOSED = 2 };

// the index of a contour's type in the list
static bool type_of(const Walk *w, uint32_t item, int *type)
{
    const WalkElement *e = walk_find(w, item, TAG_ContourGeometricType);
    for (*type = 0; *type < TYPES; ++*type)
        if (group_says(w, e, types[*type])) return true;
    return dicom_fail(w->path, TAG_ContourGeometricType, NULL,
                      "contour of a type that is not known");
}

// Contours of a region that were left out, and other anomalies.
typedef struct Oddities {
    int32_t skipped[TYPES];
    int32_t flat;    // contours of one or two points
    int32_t outside; // beyond the first or the last slice
    int32_t moved;   // off their slice by more than the tolerance
    double moved_mm; // the largest distance
    bool beyond;     // points beyond the edges of a slice
} Oddities;

// adds a note for each kind of contours that were left out or moved
static bool note_contours(const Structure *s, const Region *r,
                          const Oddities *o)
{
    for (int i = CLOSED; i < TYPES; i++)
        if (o->skipped[i] &&
            !dicom_note(s->notes, true, s->where, TAG_ContourGeometricType,
                        "region \"%s\": %d contour%s of type %s skipped",
                        r->name, o->skipped[i], o->skipped[i] == 1 ? "" : "s",
                        types[i]))
            return false;

    if (o->flat &&
        !dicom_note(s->notes, true, s->where, TAG_ContourData,
                    "region \"%s\": %d contour%s of fewer than 3 points "
                    "skipped",
                    r->name, o->flat, o->flat == 1 ? "" : "s"))
        return false;

    if (o->outside &&
        !dicom_note(s->notes, true, s->where, TAG_ContourData,
                    "region \"%s\": %d contour%s beyond the first or last "
                    "slice left out",
                    r->name, o->outside, o->outside == 1 ? "" : "s"))
        return false;

    if (o->moved &&
        !dicom_note(s->notes, true, s->where, TAG_ContourData,
                    "region \"%s\": %d contour%s up to %.3g mm off the plane "
                    "of the slice",
                    r->name, o->moved, o->moved == 1 ? "" : "s", o->moved_mm))
        return false;

    return !o->beyond ||
           dicom_note(s->notes, true, s->where, TAG_ContourData,
                      "region \"%s\" reaches beyond the image, cut off",
                      r->name);
}

// Adds one note per anomaly; `drawn` slices of the region have a contour.
static bool note_region(const Structure *s, const Region *r, const Oddities *o,
                        const bool *drawn, int32_t slices)
{
    int32_t first = -1, last = -1, empty = 0, closed = 0;
    for (int32_t k = 0; k < slices; k++) {
        if (!drawn[k]) continue;
        if (first < 0) first = k;
        last = k, closed++;
    }

    if (!note_contours(s, r, o)) return false;
    if (!closed && o->outside && s->options->segments)
        return dicom_fail(s->w->path, TAG_ContourData,
                          "take the series that it was drawn on",
                          "region \"%s\" lies beyond the first or last slice "
                          "with all its %d contours",
                          r->name, o->outside);

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

// Contours of two planes within one slice would be filled together: voxels
// enclosed by both would count as a hole. at_mm[d]: the position of the first
// contour in slice d, if there is one.
static bool check_plane(const Structure *s, const Contour *c, const bool *drawn,
                        double *at_mm)
{
    double slack = fmax(2 * ROUNDED_MM, 2 * PLANE_SLACK * c->step_mm);
    if (!drawn[c->slice]) at_mm[c->slice] = c->at_mm;
    const double gap = fabs(c->at_mm - at_mm[c->slice]);
    return gap <= fmin(slack, 0.25 * c->step_mm) ||
           dicom_fail(
               s->w->path, TAG_ContourData,
               "take the series that it was drawn on, or a series with slices "
               "as close as the contours",
               "contour %d of region \"%s\" falls into slice %d with a contour "
               "that lies %.3g mm off it (slices are %g mm apart)",
               c->number, c->region->name, c->slice + 1, gap, c->step_mm);
}

// Adds all contours of one region to toggle[d][h][w], which is zero; fills
// slice d at the end if drawn[d].
static bool draw(const Structure *s, const MaskTarget *t, const Region *r,
                 uint8_t *toggle, bool *drawn, double *at_mm)
{
    const Walk *w = s->w;
    int32_t h = t->grid.h, cols = t->grid.w;
    size_t plane = (size_t)h * (size_t)cols, room = 0;
    Oddities odd = {.flat = 0};
    bool ok = false;
    Contour c = {.region = r};

    for (uint32_t i = r->first; i < r->end; i = w->element[i].next) {
        int type;
        c.number++;
        TRY(type_of(w, i, &type));
        if (type >= CLOSED) {
            odd.skipped[type]++;
            continue;
        }
        TRY(read_points(s, i, &room, &c));
        if (c.points < 3) {
            odd.flat++;
            continue;
        }
        TRY(find_slice(s, t, i, &c));
        if (c.slice < 0) {
            odd.outside++;
            continue;
        }
        TRY(check_plane(s, &c, drawn, at_mm));
        // more than rounding of decimals
        if (c.off_mm > ROUNDED_MM) {
            odd.moved++;
            odd.moved_mm = fmax(odd.moved_mm, c.off_mm);
        }
        to_pixels(t, &c, &odd.beyond);
        contour_add(toggle + (size_t)c.slice * plane, h, cols, c.point,
                    c.points);
        drawn[c.slice] = true;
    }

    for (int32_t k = 0; k < t->grid.d; k++)
        if (drawn[k]) contour_fill(toggle + (size_t)k * plane, h, cols);
    ok = note_region(s, r, &odd, drawn, t->grid.d);

done:
    mem_free(c.point);
    return ok;
}

// Writes a filled region to the mask; counts voxels that already have a label,
// and *other is the first such label.
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
        // zero for the next region
        if (drawn[k]) memset(from, 0, plane);
    }
    return clashes;
}

// Draws one region after the other, in the order of numbers. Overlaps are
// reported for the first region that has any.
static bool draw_all(Structure *s, const MaskTarget *t, Volume *out)
{
    size_t bytes;
    if (!size_mul((size_t)t->grid.h * (size_t)t->grid.w, (size_t)t->grid.d,
                  &bytes))
        return false;
    uint8_t *toggle = mem_alloc(bytes);
    bool *drawn = ARENA_NEW(&s->arena, bool, t->grid.d), ok = false;
    double *at_mm = ARENA_NEW(&s->arena, double, t->grid.d);
    TRY(toggle && drawn && at_mm);

    for (int32_t k = 0; k < s->count; k++) {
        const Region *r = &s->region[k];
        if (!r->label) continue;
        int other = 0;
        memset(drawn, 0, (size_t)t->grid.d);
        TRY(draw(s, t, r, toggle, drawn, at_mm));
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
    bool ok = roi_read(&s) && roi_choose(&s) && check_frames(&s, target) &&
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
    ok = ok && roi_read(&s);
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
