/* mask.c -- masks on the slices of their image; here ordinary series. The tool
 * that wrote the mask determines how it can be paired: tools copy the UIDs of
 * the image, refer to the UIDs, keep the position, or keep only the number. The
 * rules are tried in that order of trust, and the first one that pairs every
 * mask slice with an image slice of its own is used. A position in the mask
 * must agree with the image; a difference in geometry is never just a warning
 * (rule G2). */
#include "data/dicom/mask.h"
#include "data/label.h"
#include "engine/base/file.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { NAMED = 10 };

bool mask_planes_agree(const DicomHeader *a, const DicomHeader *b,
                       double slack_mm)
{
    if (a->rows != b->rows || a->cols != b->cols) return false;
    for (int corner = 0; corner < 4; corner++) {
        double far = 0;
        // the four corner pixels; a plane is flat, so they bound all others
        double i = corner & 1 ? a->cols - 1 : 0;
        double j = corner & 2 ? a->rows - 1 : 0;
        for (int x = 0; x < 3; x++) {
            double pa = a->position_mm[x] +
                        i * a->spacing_mm[1] * a->orientation[x] +
                        j * a->spacing_mm[0] * a->orientation[3 + x];
            double pb = b->position_mm[x] +
                        i * b->spacing_mm[1] * b->orientation[x] +
                        j * b->spacing_mm[0] * b->orientation[3 + x];
            far += (pa - pb) * (pa - pb);
        }
        // written so that NaN disagrees
        if (!(sqrt(far) <= slack_mm)) return false;
    }
    return true;
}

int32_t mask_nearest_slice(const MaskTarget *t, const DicomHeader *plane)
{
    // distance along the normal only: the plane may be shifted within itself
    double normal[3], least = HUGE_VAL;
    stack_normal(t->slices->orientation, normal);
    double at = stack_project(normal, plane->position_mm);
    int32_t best = 0;
    for (int32_t k = 0; k < t->grid.d; k++) {
        double far = fabs(stack_project(normal, t->slices[k].position_mm) - at);
        if (far < least) least = far, best = k;
    }
    return best;
}

char *mask_grids_text(const Grid *own, const Grid *image,
                      char text[MASK_GRIDS_TEXT])
{
    // only extents and affine are used
    Volume a = {.voxels = {.dim = {1, own->d, own->h, own->w, 1}}};
    Volume b = {.voxels = {.dim = {1, image->d, image->h, image->w, 1}}};
    char left[VOLUME_TEXT], right[VOLUME_TEXT], what[VOLUME_DIFFERENCES];
    memcpy(a.affine, own->affine, sizeof a.affine);
    memcpy(b.affine, image->affine, sizeof b.affine);
    snprintf(text, MASK_GRIDS_TEXT, "grid %s, image grid %s; they differ in %s",
             volume_text(&a, left), volume_text(&b, right),
             volume_differences(&b, &a, what));
    return text;
}

bool mask_may_resample(const DicomSeries *mask, const Grid *own,
                       const MaskTarget *target, bool resample)
{
    double share;
    if (!grid_share(&target->grid, own, &share)) return false;
    if (share < GRID_LEAST_SHARE)
        return dicom_fail(mask->folder, TAG_ImagePositionPatient, NULL,
                          "mask and image cover different regions: overlap "
                          "%.0f %%",
                          100 * share);

    if (resample) return true;
    char text[MASK_GRIDS_TEXT];
    return dicom_fail(mask->folder, 0,
                      "check that the mask belongs to this image; if it does, "
                      "resample_mask = true",
                      "mask %s", mask_grids_text(own, &target->grid, text));
}

// *mask is unchanged on failure
bool mask_resample(const MaskTarget *target, Volume *mask)
{
    Volume moved;
    if (!volume_resample(mask, &target->grid,
                         mask->unit == UNIT_LABEL ? NEAREST : LINEAR, 0,
                         &moved))
        return false;
    volume_free(mask);
    *mask = moved;
    return true;
}

bool mask_new(const Grid *g, bool fractions, Volume *out)
{
    if (!volume_new(out, (Dims){1, g->d, g->h, g->w, 1}, fractions ? F32 : U8))
        return false;
    memcpy(out->affine, g->affine, sizeof g->affine);
    out->unit = fractions ? UNIT_NONE : UNIT_LABEL;
    return true;
}

static bool is_number(const char *wanted, int32_t number)
{
    char text[16];
    snprintf(text, sizeof text, "#%d", number);
    return !strcmp(wanted, text);
}

// "\"BODY\", \"PTV\", ..." as far as there is room; with `name`, the numbers of
// the parts with this name
static const char *list_parts(const MaskPart *part, int32_t count,
                              const char *name, char *text, size_t room)
{
    size_t used = 0;
    *text = 0;

    for (int32_t k = 0; k < count && used < room; k++) {
        const MaskPart *m = &part[k];
        const char *comma = used ? ", " : "";
        if (name && strcmp(m->name, name)) continue;
        int n =
            name ? snprintf(text + used, room - used, "%s%d", comma, m->number)
                 : snprintf(text + used, room - used, "%s\"%s\"", comma,
                            m->name);
        if (n > 0) used += (size_t)n;
    }
    return text;
}

bool mask_choose(const Walk *w, const char *what, uint32_t tag,
                 const DicomMaskOptions *o, MaskPart *part, int32_t count)
{
    char list[ERR_MAX / 2];
    for (int32_t n = 0; n < o->segment_count; n++) {
        const char *name = o->segments[n];
        MaskPart *hit = NULL;
        int hits = 0;
        for (int32_t k = 0; k < count; k++)
            if (!strcmp(part[k].name, name)) hit = &part[k], hits++;
        // a name that looks like a number is first compared as a name
        for (int32_t k = 0, none = !hits; none && k < count; k++)
            if (is_number(name, part[k].number)) hit = &part[k], hits++;
        if (hits > 1)
            return dicom_fail(
                w->path, tag,
                "take one by its number: segments = {\"#NUMBER\"}",
                "%d %ss called \"%s\", need 1; their numbers are %s", hits,
                what, name, list_parts(part, count, name, list, sizeof list));
        if (!hits)
            return dicom_fail(
                w->path, tag, NULL, "0 %ss called \"%s\", need 1; there are %s",
                what, name, list_parts(part, count, NULL, list, sizeof list));
        if (hit->label)
            return dicom_fail(w->path, tag, NULL,
                              "%s \"%s\" (number %d) is asked for twice", what,
                              hit->name, hit->number);
        hit->label = (uint8_t)(n + 1);
    }
    return true;
}

bool mask_overlap(const Walk *w, uint32_t tag, const char *a, const char *b,
                  int64_t voxels)
{
    return dicom_fail(w->path, tag,
                      "segments = one of them, or fractions = true",
                      "segments \"%s\" and \"%s\" overlap (%lld voxels)", a, b,
                      (long long)voxels);
}

// counts of the values of a mask
typedef struct ClassCounts {
    bool seen[256]; // declared values, or 0 .. 255 if none are declared
    UndeclaredValues others; // values that are not labels
    Rounded rounded;         // values after a rescale: 255 times 1/255
} ClassCounts;

// Converts n values of a slice to labels and counts them in `c`. It continues
// after an undeclared value, so that the message can name all of them.
static void to_labels(const float *values, int64_t n, const DicomMaskOptions *o,
                      uint8_t *out, ClassCounts *c)
{
    for (int64_t i = 0; i < n; i++) {
        float v = (float)rounded_add(&c->rounded, (double)values[i]);
        int label = -1;
        if (v == 0) label = 0;
        if (!o->labels && v >= 1 && v <= 255 && v == rintf(v)) label = (int)v;
        for (int32_t k = 0; o->labels && k < o->label_count; k++)
            if (v == (float)o->labels[k]) label = k + 1;
        if (label >= 0) {
            c->seen[label] = true;
            out[i] = (uint8_t)label;
            continue;
        }
        undeclared_add(&c->others, v);
    }
}

// rule G5: only declared labels are accepted
static bool check_labels(const DicomSeries *mask, const DicomMaskOptions *o,
                         const ClassCounts *c)
{
    if (c->others.count) {
        int32_t known[256];
        int n = 0;
        // declared values, else existing values that could be labels
        for (int v = 1; v < 256 && !o->labels; v++)
            if (c->seen[v]) known[n++] = v;
        char got[UNDECLARED_TEXT], list[UNDECLARED_TEXT];
        bool listed = undeclared_fix(&c->others, o->labels ? o->labels : known,
                                     o->labels ? o->label_count : n, list);
        return dicom_fail(mask->folder, TAG_PixelData,
                          listed ? list : "name the series of the mask",
                          "%s %s", undeclared_text(&c->others, got),
                          c->others.count == 1 ? "is not a declared label"
                                               : "are not declared labels");
    }

    if (o->labels) return true;
    int others = 0;
    for (int v = 1; v < 255; v++) others += c->seen[v];
    if (c->seen[255] && !others)
        return dicom_fail(mask->folder, TAG_PixelData, "labels = {255}",
                          "mask of the values 0 and 255");
    return true;
}

// in the order of trust
typedef enum Rule {
    BY_INSTANCE_UID,
    BY_REFERENCE,
    BY_POSITION,
    BY_NUMBER,
    NO_RULE
} Rule;

static const char *const rule_names[] = {
    "SOPInstanceUID", "ReferencedSOPInstanceUID", "ImagePositionPatient",
    "InstanceNumber"};

// does this mask slice name this image slice, or lie on it?
static bool belongs(Rule rule, const DicomHeader *image,
                    const DicomHeader *mask, double slack_mm)
{
    switch (rule) {
    case BY_INSTANCE_UID:
        return *mask->sop_uid && !strcmp(mask->sop_uid, image->sop_uid);
    case BY_REFERENCE:
        return *mask->reference && !strcmp(mask->reference, image->sop_uid);
    case BY_POSITION:
        return mask->has_position && mask->has_orientation &&
               mask->has_spacing && mask_planes_agree(image, mask, slack_mm);
    case BY_NUMBER:
        return mask->has_instance && image->has_instance &&
               mask->instance == image->instance;
    case NO_RULE:
        break;
    }
    return false;
}

// slot[i] = the image slice of mask file i; true if each has one of its own
static bool pair_by(Rule rule, const MaskTarget *t, const DicomHeader *mask,
                    int32_t n, int32_t *slot)
{
    for (int32_t i = 0; i < n; i++) {
        slot[i] = -1;
        for (int32_t k = 0; k < t->grid.d; k++) {
            if (!belongs(rule, &t->slices[k], &mask[i], t->slack_mm)) continue;
            // two image slices match: no pairing
            if (slot[i] >= 0) return false;
            slot[i] = k;
        }
        if (slot[i] < 0) return false;
        // and no image slice may have two masks
        for (int32_t j = 0; j < i; j++)
            if (slot[j] == slot[i]) return false;
    }
    return true;
}

// pairs by UID or number must also agree in position, as far as the mask has
// one
static bool pairs_agree(const MaskTarget *t, const DicomHeader *mask, int32_t n,
                        const int32_t *slot)
{
    for (int32_t i = 0; i < n; i++) {
        const DicomHeader *image = &t->slices[slot[i]];
        if (mask[i].rows != image->rows || mask[i].cols != image->cols)
            return false;
        bool placed = mask[i].has_position && mask[i].has_orientation &&
                      mask[i].has_spacing;
        if (placed && !mask_planes_agree(image, &mask[i], t->slack_mm))
            return false;
    }
    return true;
}

// every image slice needs a mask slice unless `partial`
static bool check_covered(const MaskTarget *t, const DicomSeries *mask,
                          int32_t n, const int32_t *slot, bool partial)
{
    char list[1024] = "";
    size_t used = 0;
    int32_t missing = 0;

    for (int32_t k = 0; k < t->grid.d; k++) {
        bool found = false;
        for (int32_t i = 0; i < n && !found; i++) found = slot[i] == k;
        if (found || missing++ >= NAMED) continue;
        const DicomHeader *h = &t->slices[k];
        int wrote =
            snprintf(list + used, sizeof list - used, "%s%s", used ? ", " : "",
                     h->name ? h->name : path_tail(h->path));
        if (wrote > 0 && used + (size_t)wrote < sizeof list)
            used += (size_t)wrote;
    }

    if (!missing || partial) return true;
    return dicom_fail(mask->folder, 0, "partial = true",
                      "%d of %d image slices have no mask slice: %s%s", missing,
                      t->grid.d, list, missing > NAMED ? ", ..." : "");
}

// reads each of n mask slices into the slice in `slot`; the labels are checked
// over the whole mask after all are read
static bool load_paired(const MaskTarget *t, const DicomSeries *mask,
                        const DicomHeader *h, int32_t n, const int32_t *slot,
                        const DicomOptions *read, const DicomMaskOptions *o,
                        Volume *out, DicomNotes *notes)
{
    SliceReader reader = {.path = NULL};
    int64_t plane = (int64_t)t->grid.h * t->grid.w;
    float *values = mem_alloc((size_t)plane * sizeof *values);
    ClassCounts class_counts = {.others = {.count = 0}};
    bool ok = false;

    TRY(values);
    for (int32_t i = 0; i < n; i++) {
        TRY(slice_read(&reader, &h[i], load_where(mask), read, values, notes));
        to_labels(values, plane, o,
                  (uint8_t *)out->voxels.data + slot[i] * plane, &class_counts);
    }

    char said[ROUNDED_TEXT];
    ok = check_labels(mask, o, &class_counts) &&
         (!class_counts.rounded.voxels ||
          dicom_note(notes, true, mask->folder, TAG_PixelData, "%s",
                     rounded_text(&class_counts.rounded, said)));

done:
    slice_close(&reader);
    mem_free(values);
    return ok;
}

// The values of a mask are class numbers, which MONOCHROME1 does not change.
static bool keep_labels(const DicomSeries *mask, const DicomHeader *h,
                        int32_t n, DicomNotes *notes)
{
    bool any = false;
    for (int32_t i = 0; i < n; i++) any = any || h[i].monochrome1;
    return !any ||
           dicom_note(notes, false, mask->folder, TAG_PhotometricInterpretation,
                      "MONOCHROME1 not inverted: values are labels");
}

// a mask on another grid: read on its own grid, then resampled
static bool load_elsewhere(const MaskTarget *t, const DicomSeries *mask,
                           const DicomOptions *read, const DicomMaskOptions *o,
                           Volume *out, DicomNotes *notes)
{
    Arena scratch = {0};
    DicomHeader *h;
    DicomStack stack;
    int32_t *slot = NULL;
    bool ok = false;

    // `out` was made for the grid of the image; this mask has its own
    volume_free(out);
    TRY(load_stack(mask, read, &scratch, &h, &stack, notes));
    TRY(keep_labels(mask, h, stack.grid.d, notes));
    TRY(mask_may_resample(mask, &stack.grid, t, o->resample_mask));
    const Grid *g = &stack.grid;
    TRY(mask_new(g, false, out));
    TRY(slot = ARENA_NEW(&scratch, int32_t, g->d));
    for (int32_t i = 0; i < g->d; i++) slot[i] = i;
    MaskTarget own = {.series = mask, .slices = h, .grid = *g};
    TRY(load_paired(&own, mask, h, g->d, slot, read, o, out, notes));
    TRY(mask_resample(t, out));
    ok = true;

done:
    arena_release(&scratch);
    return ok;
}

// loads an ordinary series as mask
static bool load_series(const MaskTarget *t, const DicomSeries *mask,
                        const DicomMaskOptions *o, Volume *out,
                        DicomNotes *notes)
{
    Arena scratch = {0};
    DicomHeader *h;
    int32_t n;
    bool ok = false;
    // labels are no quantities: the requirements for HU in a CT do not apply
    DicomOptions read = o->image;

    // a tilted mask is allowed: it is paired, or resampled, slice by slice
    read.assume_hu = read.resample_tilt = true;
    read.want_3d = false;
    TRY(load_headers(mask, &read, &scratch, &h, &n, notes));
    TRY(keep_labels(mask, h, n, notes));
    int32_t *slot = ARENA_NEW(&scratch, int32_t, n);
    TRY(slot);

    // pair_by has filled `slot` by the rule that succeeded
    Rule rule = BY_INSTANCE_UID;
    while (rule < NO_RULE && !pair_by(rule, t, h, n, slot)) rule++;

    // without a position in every slice the mask has no grid of its own
    bool placed = true;
    for (int32_t i = 0; i < n; i++)
        placed = placed && h[i].has_position && h[i].has_orientation &&
                 h[i].has_spacing;

    if (rule == NO_RULE && !placed) {
        dicom_fail(mask->folder, TAG_SOPInstanceUID, NULL,
                   "mask slices cannot be paired with the image %s: no common "
                   "SOPInstanceUID, reference, position or InstanceNumber",
                   t->series->folder);
        goto done;
    }

    if (rule == NO_RULE || !pairs_agree(t, h, n, slot)) {
        ok = load_elsewhere(t, mask, &read, o, out, notes);
        goto done;
    }
    TRY(dicom_note(notes, rule == BY_NUMBER, mask->folder, 0,
                   "mask paired by %s", rule_names[rule]));
    TRY(check_covered(t, mask, n, slot, o->partial));
    TRY(load_paired(t, mask, h, n, slot, &read, o, out, notes));
    ok = true;

done:
    arena_release(&scratch);
    return ok;
}

// A tilted image is paired slice by slice as stored, and the mask is then
// straightened onto the same grid that dicom_load uses.
bool dicom_load_mask(const DicomSeries *image, const DicomSeries *mask,
                     const DicomMaskOptions *options, Volume *out,
                     DicomNotes *notes)
{
    static const DicomMaskOptions strict;
    const DicomMaskOptions *o = options ? options : &strict;
    *out = (Volume){0};
    Arena scratch = {0};
    DicomHeader *slices;
    DicomStack stack;
    bool ok = false;

    // pixels of an ordinary series are labels, not fractions
    if (o->fractions && mask->kind != DICOM_SEG &&
        mask->kind != DICOM_STRUCTURE)
        return dicom_fail(mask->folder, TAG_SOPClassUID, NULL,
                          "fractions are for a SEG or a structure set");

    // loading the image gives the notes about it
    TRY(load_stack(image, &o->image, &scratch, &slices, &stack, NULL));
    MaskTarget t = {.series = image, .slices = slices, .grid = stack.grid};
    // a fraction of the shortest voxel edge of the image, plus the distance of
    // its own positions from the grid
    double s[3];
    grid_spacing_mm(&t.grid, s);
    const double edge_mm = fmin(fmin(s[0], s[1]), s[2]);
    t.off_mm = stack.off_mm;
    t.slack_mm = MASK_CORNER_SLACK * edge_mm + t.off_mm;
    TRY(mask_new(&t.grid, o->fractions, out));
    if (*image->frame_uid && *mask->frame_uid &&
        strcmp(image->frame_uid, mask->frame_uid))
        TRY(dicom_note(notes, true, mask->folder, TAG_FrameOfReferenceUID,
                       "FrameOfReference of mask differs"));

    if (mask->kind == DICOM_SEG)
        TRY(seg_load(mask, &t, o, out, notes));
    else if (mask->kind == DICOM_STRUCTURE)
        TRY(contour_load(mask, &t, o, out, notes));
    else
        TRY(load_series(&t, mask, o, out, notes));

    if (load_is_tilted(&stack)) {
        t.grid = load_straight_grid(&stack);
        TRY(mask_resample(&t, out));
    }
    ok = true;

done:
    if (!ok) volume_free(out);
    arena_release(&scratch);
    return ok;
}
