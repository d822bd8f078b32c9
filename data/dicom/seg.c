/* seg.c -- reads DICOM segmentation objects.
 *
 * One file holds a frame for each slice of each segment that has voxels, one
 * bit per voxel (BINARY; frames packed without gaps) or a byte (FRACTIONAL); or
 * a frame per slice with segment numbers as values (LABELMAP). Each frame is
 * placed by its own plane position, in any file order. Segments become labels
 * by their number, or by the order in which the recipe names them; one segment
 * alone may be kept as fractions. */
#include "data/dicom/file.h"
#include "data/dicom/frames.h"
#include "data/dicom/group.h"
#include "data/dicom/mask.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SEGMENTS = 255 };

// one frame: a plane in space with the number of its segment
typedef struct Frame {
    DicomHeader plane; // rows, cols, position, orientation, spacing
    int32_t segment;   // SegmentNumber
    int32_t slice;     // in the target grid
} Frame;

typedef struct Seg {
    const Walk *w;
    const DicomSeries *series;
    DicomHeader header;
    const char *name[SEGMENTS + 1]; // by SegmentNumber; NULL: none
    uint8_t label[SEGMENTS + 1];    // label of a segment; 0: not selected
    int32_t wanted;                 // number of selected segments
    Frame *frame;
    const char *type; // BINARY, FRACTIONAL, LABELMAP
    bool map;         // LABELMAP: frames belong to no segment
    int32_t most;     // FRACTIONAL: stored value of 1; else 0
} Seg;

// reads the segmentation type and checks its bits
static bool read_type(Seg *s)
{
    static const struct {
        const char *type, *text;
        int32_t bits, or_bits;
    } types[] = {
        {"BINARY", "BitsAllocated %d, need 1 in a binary segmentation", 1, 1},
        {"FRACTIONAL", "BitsAllocated %d, need 8 in a fractional segmentation",
         8, 8},
        {"LABELMAP", "BitsAllocated %d, need 8 or 16 in a label map", 8, 16},
    };
    const Walk *w = s->w;
    const WalkElement *e = walk_find(w, WALK_ROOT, TAG_SegmentationType);
    int32_t bits = s->header.allocated;
    size_t i = 0;

    while (i < 3 && !group_says(w, e, types[i].type)) i++;
    if (i == 3)
        return dicom_fail(w->path, TAG_SegmentationType, NULL,
                          "segmentation neither BINARY, FRACTIONAL nor "
                          "LABELMAP");
    s->type = types[i].type, s->map = i == 2;
    if (bits != types[i].bits && bits != types[i].or_bits)
        return dicom_fail(w->path, TAG_BitsAllocated, NULL, types[i].text,
                          bits);
    if (i != 1) return true;
    bool found;
    s->most = 255;
    e = walk_find(w, WALK_ROOT, TAG_MaximumFractionalValue);
    if (!header_u16(w, e, &s->most, &found)) return false;
    return s->most >= 1 && s->most <= 255
               ? true
               : dicom_fail(w->path, TAG_MaximumFractionalValue, NULL,
                            "MaximumFractionalValue %d, need 1 to 255",
                            s->most);
}

// selects segments: by default all, each with its number
static bool choose_segments(Seg *s, const DicomMaskOptions *o)
{
    MaskPart part[SEGMENTS];
    int32_t count = 0;
    for (int n = 1; n <= SEGMENTS; n++)
        if (s->name[n])
            part[count++] = (MaskPart){.number = n, .name = s->name[n]};
    if (o->segments &&
        !mask_choose(s->w, "segment", TAG_SegmentLabel, o, part, count))
        return false;
    for (int32_t k = 0; k < count; k++) {
        const int32_t n = part[k].number;
        s->label[n] = o->segments ? part[k].label : (uint8_t)n;
        s->wanted += s->label[n] > 0;
    }
    return true;
}

// reads names and numbers of the segments, and selects
static bool read_segments(Seg *s, const DicomMaskOptions *o, Arena *arena)
{
    const Walk *w = s->w;
    uint32_t end, first = group_items(w, WALK_ROOT, TAG_SegmentSequence, &end);
    if (first == WALK_ROOT)
        return dicom_fail(w->path, TAG_SegmentSequence, NULL,
                          "segmentation without segments");

    for (uint32_t i = first; i < end; i = w->element[i].next) {
        int32_t n = 0;
        bool found;
        if (!header_u16(w, walk_find(w, i, TAG_SegmentNumber), &n, &found))
            return false;
        // the background of a label map may be described like a segment
        if (s->map && found && !n) continue;
        if (n < 1 || n > SEGMENTS)
            return dicom_fail(w->path, TAG_SegmentNumber, NULL,
                              "SegmentNumber %d, need 1 to %d", n, SEGMENTS);
        if (s->name[n])
            return dicom_fail(w->path, TAG_SegmentNumber, NULL,
                              "two segments with number %d", n);
        s->name[n] =
            header_text(w, walk_find(w, i, TAG_SegmentLabel), arena, NULL);
        if (!s->name[n]) return false;
    }

    if (!choose_segments(s, o)) return false;
    if (o->fractions && s->wanted != 1)
        return dicom_fail(w->path, TAG_SegmentSequence,
                          "name the segments: segments = {\"...\"}",
                          "fractions of %d segments at once", s->wanted);
    return true;
}

// Takes the position of a frame from the image slice on which it was drawn; in
// a multi-frame image the frame number is needed too.
static bool borrow_position(const Seg *s, const FrameGroup *g,
                            const MaskTarget *t, Frame *f)
{
    const Walk *w = s->w;
    const WalkElement *source = group_inside(
        w, g->frame, TAG_DerivationImageSequence, TAG_SourceImageSequence);
    uint32_t first = source ? walk_item(w, source, 0) : WALK_ROOT;

    if (first == WALK_ROOT) return group_unplaced(w, TAG_PlanePositionSequence);
    const WalkElement *uid = walk_find(w, first, TAG_ReferencedSOPInstanceUID);
    double number = 0;
    bool found;
    if (!header_numbers(w, walk_find(w, first, TAG_ReferencedFrameNumber), 1,
                        &number, &found))
        return false;

    for (int32_t k = 0; uid && k < t->grid.d; k++) {
        const DicomHeader *h = &t->slices[k];
        if (!group_says(w, uid, h->sop_uid)) continue;
        if (h->frames > 1 && number != h->frame + 1) continue;
        memcpy(f->plane.position_mm, h->position_mm, sizeof h->position_mm);
        return true;
    }
    return group_unplaced(w, TAG_PlanePositionSequence);
}

// Reads one frame from its groups: its segment, and its plane with everything
// that mask_planes_agree compares. The dimension indices are not used: they
// only repeat the order.
static bool read_frame(const Seg *s, const FrameGroup *g, const MaskTarget *t,
                       Frame *f)
{
    const Walk *w = s->w;
    bool found;
    *f = (Frame){.plane = {.rows = s->header.rows, .cols = s->header.cols}};
    const WalkElement *e = group_find(w, g, TAG_SegmentIdentificationSequence,
                                      TAG_ReferencedSegmentNumber);

    // absent stays 0, which the next check refuses
    if (!header_u16(w, e, &f->segment, &found)) return false;

    // the frames of a label map hold all segments
    if (!s->map &&
        (f->segment < 1 || f->segment > SEGMENTS || !s->name[f->segment]))
        return dicom_fail(w->path, TAG_ReferencedSegmentNumber, NULL,
                          "frame of segment %d, which is not described",
                          f->segment);

    if (!header_geometry(w, g, &f->plane)) return false;
    if (!f->plane.has_spacing)
        return dicom_fail(w->path, TAG_PixelSpacing, NULL,
                          "PixelSpacing missing, 0, negative or NaN");
    if (!f->plane.has_orientation)
        return dicom_fail(w->path, TAG_ImageOrientationPatient, NULL,
                          "ImageOrientationPatient missing");

    // older writers name only the image slice on which the frame was drawn
    return f->plane.has_position || borrow_position(s, g, t, f);
}

// reads s->frame: one for each item of the per-frame groups
static bool read_frames(Seg *s, const MaskTarget *t, Arena *arena)
{
    FrameGroup *g;
    int32_t n = s->header.frames;
    if (!group_list(s->w, n, arena, &g)) return false;
    s->frame = ARENA_NEW(arena, Frame, n);
    if (!s->frame) return false;
    for (int32_t i = 0; i < n; i++)
        if (!read_frame(s, &g[i], t, &s->frame[i])) return false;
    return true;
}

// do all selected frames lie on slices of the image?
static bool on_target(Seg *s, const MaskTarget *t)
{
    for (int32_t i = 0; i < s->header.frames; i++) {
        Frame *f = &s->frame[i];
        // the nearest slice, which then must agree in all corners
        f->slice = mask_nearest_slice(t, &f->plane);
        if (!mask_planes_agree(&t->slices[f->slice], &f->plane, t->slack_mm))
            return false;
    }
    return true;
}

// order of two doubles, for qsort
static int compare_doubles(const void *x, const void *y)
{
    double a = *(const double *)x, b = *(const double *)y;
    return (a > b) - (a < b);
}

// The distance of slices in at[n], the sorted positions of frames along the
// normal; 0 if all are in one slice. Positions may be rounded, so the step is
// fitted. First estimate: the mean of the gaps below 1.5 times the smallest.
// Each gap is rounded to a number of such steps; the result is the range
// divided by their sum.
static double fit_step(const double *at, int32_t n)
{
    double least = 0, sum = 0, steps = 0;
    int32_t single = 0;
    for (int32_t i = 1; i < n; i++) {
        double gap = at[i] - at[i - 1];
        // a smaller gap: two frames of one slice (of two segments, say)
        if (gap > 1e-3 && (least == 0 || gap < least)) least = gap;
    }

    if (least == 0) return 0;
    for (int32_t i = 1; i < n; i++) {
        double gap = at[i] - at[i - 1];
        if (gap > 1e-3 && gap < 1.5 * least) sum += gap, single++;
    }
    for (int32_t i = 1; i < n; i++)
        steps += rint((at[i] - at[i - 1]) / (sum / single));
    return (at[n - 1] - at[0]) / steps;
}

// finds the regular grid of the frames, empty slices included; `tolerance` as
// in stack_tolerance
static bool own_grid(Seg *s, double tolerance, Arena *arena, Grid *g)
{
    int32_t n = s->header.frames;
    const DicomHeader *h = &s->frame->plane;
    double normal[3], *at = ARENA_NEW(arena, double, n);

    if (!at) return false;
    stack_normal(h->orientation, normal);
    for (int32_t i = 0; i < n; i++)
        at[i] = stack_project(normal, s->frame[i].plane.position_mm);
    qsort(at, (size_t)n, sizeof *at, compare_doubles);
    double step = fit_step(at, n);
    if (step == 0) step = h->thickness_mm > 0 ? h->thickness_mm : 1;

    // the range is a multiple of the step
    double slices = rint((at[n - 1] - at[0]) / step) + 1;

    // positions are below 1e9 mm and gaps above 1e-3, so this is finite; the
    // limit keeps a grid of mostly empty slices from exhausting memory
    if (slices > 1 << 20)
        return dicom_fail(s->w->path, TAG_ImagePositionPatient, NULL,
                          "frames %g mm apart over %g mm", step,
                          at[n - 1] - at[0]);
    *g = (Grid){(int32_t)slices, h->rows, h->cols, {[3] = {0, 0, 0, 1}}};
    double base = stack_project(normal, h->position_mm);

    for (int a = 0; a < 3; a++) {
        g->affine[a][0] = h->orientation[a] * h->spacing_mm[1];
        g->affine[a][1] = h->orientation[3 + a] * h->spacing_mm[0];
        g->affine[a][2] = normal[a] * step;
        g->affine[a][3] = h->position_mm[a] + normal[a] * (at[0] - base);
    }

    double slack = MASK_CORNER_SLACK *
                   fmin(step, fmin(h->spacing_mm[0], h->spacing_mm[1]));
    slack += tolerance * step;

    for (int32_t i = 0; i < n; i++) {
        Frame *f = &s->frame[i];
        double along = stack_project(normal, f->plane.position_mm) - at[0];
        f->slice = (int32_t)rint(along / step);
        DicomHeader want = *h;
        for (int a = 0; a < 3; a++)
            // the expected position of the frame; spacing and direction are
            // compared too
            want.position_mm[a] = g->affine[a][3] + f->slice * g->affine[a][2];
        if (!mask_planes_agree(&want, &f->plane, slack))
            return dicom_fail(s->w->path, TAG_ImagePositionPatient, NULL,
                              "frames of the segmentation lie on no even grid");
    }
    return true;
}

// the stored value `at` of all frames: a bit, a byte or a word
static int32_t value_at(const Seg *s, const uint8_t *bytes, size_t at)
{
    switch (s->header.allocated) {
    case 1:
        return bytes[at / 8] >> at % 8 & 1;
    case 8:
        return bytes[at];
    default:
        return number_u16(bytes + 2 * at, false);
    }
}

// No stored value may exceed MaximumFractionalValue, and every value of a label
// map must be a described segment.
static bool check_values(const Seg *s, const uint8_t *bytes, size_t n)
{
    for (size_t i = 0; i < n && (s->map || s->most); i++) {
        int32_t v = value_at(s, bytes, i);
        if (s->map && v && (v > SEGMENTS || !s->name[v]))
            return dicom_fail(s->w->path, TAG_PixelData, NULL,
                              "value %d in the label map, which is not "
                              "described",
                              v);
        if (!s->map && v > s->most)
            return dicom_fail(s->w->path, TAG_PixelData, NULL,
                              "value %d above MaximumFractionalValue %d", v,
                              s->most);
    }
    return true;
}

// The label of value `at` in a frame of `segment`. A fraction of one half or
// more belongs to the segment.
static uint8_t label_at(const Seg *s, const uint8_t *bytes, int32_t segment,
                        size_t at)
{
    int32_t v = value_at(s, bytes, at);
    if (s->map) return v ? s->label[v] : 0;
    return v && 2 * v >= s->most ? s->label[segment] : 0;
}

// writes frames of the one selected segment as values from 0 to 1; if two of
// them lie on one slice, the larger value is used
static void fill_fractions(const Seg *s, const uint8_t *bytes, Volume *out)
{
    size_t plane = (size_t)s->header.rows * (size_t)s->header.cols;
    for (int32_t i = 0; i < s->header.frames; i++) {
        const Frame *f = &s->frame[i];
        float *to = (float *)out->voxels.data + (size_t)f->slice * plane;
        for (size_t j = 0; j < plane; j++) {
            size_t at = (size_t)i * plane + j;
            bool in = label_at(s, bytes, f->segment, at);
            float v = in;
            if (s->most && s->label[f->segment])
                v = (float)value_at(s, bytes, at) / (float)s->most;
            if (v > to[j]) to[j] = v;
        }
    }
}

// writes frames as labels; bits continue from frame to frame without gaps
static bool fill(const Seg *s, const uint8_t *bytes, Volume *out)
{
    size_t plane = (size_t)s->header.rows * (size_t)s->header.cols;
    uint8_t *labels = out->voxels.data;
    int64_t clashes = 0;
    int a = 0, b = 0;

    for (int32_t i = 0; i < s->header.frames; i++) {
        const Frame *f = &s->frame[i];
        uint8_t *to = labels + (size_t)f->slice * plane;
        size_t base = (size_t)i * plane;
        for (size_t j = 0; j < plane; j++) {
            uint8_t label = label_at(s, bytes, f->segment, base + j);
            if (!label) continue;
            // the first pair that overlaps is named, all voxels are counted
            if (to[j] && to[j] != label && !clashes++) a = to[j], b = label;
            to[j] = label;
        }
    }

    if (!clashes) return true;
    const char *names[2] = {"?", "?"};
    for (int n = 1; n <= SEGMENTS; n++) {
        if (s->label[n] == a) names[0] = s->name[n];
        if (s->label[n] == b) names[1] = s->name[n];
    }
    return mask_overlap(s->w, TAG_SegmentSequence, names[0], names[1], clashes);
}

// Two ways: frames that all lie on slices of the image are written directly;
// else they are written to a grid of their own, which is resampled if the
// caller allows it.
bool seg_place(const Walk *w, const DicomSeries *mask, const MaskTarget *target,
               const DicomMaskOptions *options, Volume *out, DicomNotes *notes)
{
    Arena scratch = {0};
    Seg s = {.w = w, .series = mask};
    uint8_t *bytes = NULL;
    bool ok = false;

    TRY(header_identity(w, &scratch, &s.header));
    TRY(header_image(w, &options->image, true, mask->folder, &s.header, notes));
    TRY(read_type(&s));

    // each step relies on the steps before: sizes, then names, then frames that
    // refer to names
    TRY(read_segments(&s, options, &scratch));
    TRY(frames_check(w, &s.header, mask->folder, notes));
    TRY(read_frames(&s, target, &scratch));
    bool direct = on_target(&s, target);

    if (!direct) {
        Grid g;
        TRY(own_grid(&s, stack_tolerance(&options->image), &scratch, &g));
        TRY(mask_may_resample(mask, &g, target, options->resample_mask));
        // `out` was made for the grid of the image
        volume_free(out);
        TRY(mask_new(&g, options->fractions, out));
    }

    TRY(bytes = mem_alloc(frames_bytes(&s.header)));
    TRY(frames_decode(w, &s.header, bytes));
    TRY(check_values(&s, bytes,
                     (size_t)s.header.rows * (size_t)s.header.cols *
                         (size_t)s.header.frames));
    if (options->fractions)
        fill_fractions(&s, bytes, out);
    else
        TRY(fill(&s, bytes, out));
    ok = direct || mask_resample(target, out);

done:
    mem_free(bytes);
    arena_release(&scratch);
    return ok;
}

bool seg_load(const DicomSeries *mask, const MaskTarget *target,
              const DicomMaskOptions *options, Volume *out, DicomNotes *notes)
{
    if (mask->count != 1)
        return dicom_fail(mask->folder, TAG_SeriesInstanceUID,
                          "keep one of the files",
                          "%d segmentations in one series", mask->count);
    DicomFile f;
    bool ok = dicom_file_open(mask->paths[0], &options->image, false, &f) ==
                  WALK_DONE &&
              seg_place(&f.walk, mask, target, options, out, notes);
    dicom_file_close(&f);
    return ok;
}

// Describes the result for the caller; a frame of a label map counts for each
// segment.
static bool describe(Seg *s, Arena *arena, DicomSegInfo *out)
{
    *out = (DicomSegInfo){
        .type = s->type, .frames = s->header.frames, .has_grid = true};
    out->segment = ARENA_NEW(arena, struct DicomSegment, SEGMENTS);
    if (!out->segment) return false;

    for (int n = 1; n <= SEGMENTS; n++) {
        if (!s->name[n]) continue;
        struct DicomSegment *g = &out->segment[out->segments++];
        *g = (struct DicomSegment){.number = n, .label = s->name[n]};
        for (int32_t i = 0; i < s->header.frames; i++)
            g->frames += s->map || s->frame[i].segment == n;
    }
    return own_grid(s, stack_tolerance(NULL), arena, &out->grid);
}

bool dicom_seg_info(const DicomSeries *seg, Arena *arena, DicomSegInfo *out)
{
    // without an image a frame must have its own position
    const MaskTarget nowhere = {.slices = NULL};
    const DicomMaskOptions all = {.segments = NULL};
    DicomNotes notes = {{NULL}, NULL, NULL, 0};
    DicomFile f;
    bool ok = false;

    if (seg->count != 1)
        return dicom_fail(seg->folder, TAG_SeriesInstanceUID,
                          "look at one of the files",
                          "%d segmentations in one series", seg->count);
    if (seg->kind == DICOM_STRUCTURE) return contour_info(seg, arena, out);

    if (dicom_file_open(seg->paths[0], &all.image, false, &f) == WALK_DONE) {
        Seg s = {.w = &f.walk, .series = seg};
        ok = header_identity(s.w, arena, &s.header) &&
             header_image(s.w, &all.image, true, seg->folder, &s.header,
                          &notes) &&
             read_type(&s) && read_segments(&s, &all, arena) &&
             frames_check(s.w, &s.header, seg->folder, &notes) &&
             read_frames(&s, &nowhere, arena) && describe(&s, arena, out);
    }

    dicom_file_close(&f);
    dicom_notes_free(&notes);
    return ok;
}
