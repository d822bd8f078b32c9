/* dicom_seg.c -- reading DICOM segmentation objects.
 *
 * One file holds a frame for each slice of each segment that has voxels, one
 * bit a voxel, frames packed without gaps. Each frame is placed by its own
 * plane position, whatever order the file has them in. Segments become labels
 * by their number, or by the order in which the recipe names them. */
#include "dicom_file.h"
#include "dicom_frames.h"
#include "dicom_mask.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SEGMENTS = 255 };

// one frame: a plane in space with the number of its segment
typedef struct Frame {
    DicomHeader plane; // rows, cols, position, orientation, spacing
    int32_t segment;   // SegmentNumber
    int32_t slice;     // of the grid it is laid onto
} Frame;

typedef struct Seg {
    const Walk *w;
    const DicomSeries *series;
    DicomHeader header;
    const char *name[SEGMENTS + 1]; // by SegmentNumber; NULL: none
    uint8_t label[SEGMENTS + 1];    // what a segment becomes; 0: not wanted
    Frame *frame;
    int32_t threshold; // fractional: the least value that counts; 0: binary
} Seg;

// element `tag` in the first item of `sequence` in the item `group`: where a
// functional group keeps its attribute. NULL when any of them is absent.
static const WalkElement *in_group(const Walk *w, uint32_t group, int sequence,
                                   int tag)
{
    if (group == WALK_ROOT) return NULL;
    const WalkElement *s = walk_find(w, group, (uint32_t)sequence);
    uint32_t item = s ? walk_item(w, s, 0) : WALK_ROOT;
    return item == WALK_ROOT ? NULL : walk_find(w, item, (uint32_t)tag);
}

// an attribute of a functional group: of the frame, else of all frames
static const WalkElement *of_frame(const Walk *w, uint32_t frame,
                                   uint32_t shared, int sequence, int tag)
{
    const WalkElement *e = in_group(w, frame, sequence, tag);
    return e ? e : in_group(w, shared, sequence, tag);
}

// is the value, without padding, this text? NULL counts as ""
static bool same_text(const Walk *w, const WalkElement *e, const char *text)
{
    size_t n = e ? e->length : 0;
    while (n &&
           (w->bytes[e->offset + n - 1] == ' ' || !w->bytes[e->offset + n - 1]))
        n--;
    return n == strlen(text) && (!n || !memcmp(w->bytes + e->offset, text, n));
}

// BINARY or FRACTIONAL, and the bits that go with it
static bool read_type(Seg *s)
{
    const Walk *w = s->w;
    const WalkElement *e = walk_find(w, WALK_ROOT, TAG_SegmentationType);
    if (same_text(w, e, "BINARY")) {
        if (s->header.allocated == 1) return true;
        return dicom_fail(w->path, TAG_BitsAllocated, NULL,
                          "BitsAllocated %d, need 1 in a binary segmentation",
                          s->header.allocated);
    }
    if (!same_text(w, e, "FRACTIONAL"))
        return dicom_fail(w->path, TAG_SegmentationType, NULL,
                          same_text(w, e, "LABELMAP")
                              ? "segmentation of type LABELMAP not supported"
                              : "segmentation neither BINARY nor FRACTIONAL");
    if (s->header.allocated != 8)
        return dicom_fail(w->path, TAG_BitsAllocated, NULL,
                          "BitsAllocated %d, need 8 in a fractional "
                          "segmentation",
                          s->header.allocated);
    int32_t most = 255;
    bool found;
    e = walk_find(w, WALK_ROOT, TAG_MaximumFractionalValue);
    if (!header_u16(w, e, &most, &found)) return false;
    // one half of the largest value, rounded up, and never 0: that would make
    // every voxel a member
    s->threshold = most / 2 + most % 2;
    if (s->threshold < 1) s->threshold = 1;
    return true;
}

// names and numbers of the segments, and which of them are wanted
static bool read_segments(Seg *s, const DicomMaskOptions *o, Arena *arena)
{
    const Walk *w = s->w;
    const WalkElement *list = walk_find(w, WALK_ROOT, TAG_SegmentSequence);
    if (!list || walk_item(w, list, 0) == WALK_ROOT)
        return dicom_fail(w->path, TAG_SegmentSequence, NULL,
                          "segmentation without segments");
    for (uint32_t i = walk_item(w, list, 0); i < list->next;
         i = w->element[i].next) {
        int32_t n = 0;
        bool found;
        if (!header_u16(w, walk_find(w, i, TAG_SegmentNumber), &n, &found))
            return false;
        if (n < 1 || n > SEGMENTS)
            return dicom_fail(w->path, TAG_SegmentNumber, NULL,
                              "SegmentNumber %d, need 1 to %d", n, SEGMENTS);
        if (s->name[n])
            return dicom_fail(w->path, TAG_SegmentNumber, NULL,
                              "two segments with number %d", n);
        s->name[n] = header_text(w, walk_find(w, i, TAG_SegmentLabel), arena);
        if (!s->name[n]) return false;
        // without a wish every segment keeps its number
        if (!o->segments) s->label[n] = (uint8_t)n;
    }
    // names are what users know; a name must mean one segment
    for (int32_t k = 0; o->segments && k < o->segment_count; k++) {
        int hits = 0;
        for (int n = 1; n <= SEGMENTS; n++)
            if (s->name[n] && !strcmp(s->name[n], o->segments[k]))
                s->label[n] = (uint8_t)(k + 1), hits++;
        if (hits != 1) {
            const char *have = "";
            for (int n = SEGMENTS; n; n--)
                if (s->name[n])
                    // built from the last to the first, so that it reads in
                    // order
                    have = arena_printf(arena, "\"%s\"%s%s", s->name[n],
                                        *have ? ", " : "", have);
            return dicom_fail(w->path, TAG_SegmentLabel, NULL,
                              "%d segments called \"%s\", need 1; there are %s",
                              hits, o->segments[k], have ? have : "?");
        }
    }
    return true;
}

// the position that a frame borrows from the image slice it was drawn on
static bool borrow_position(const Seg *s, uint32_t item, const MaskTarget *t,
                            Frame *f)
{
    const Walk *w = s->w;
    const WalkElement *source =
        in_group(w, item, TAG_DerivationImageSequence, TAG_SourceImageSequence);
    uint32_t first = source ? walk_item(w, source, 0) : WALK_ROOT;
    const WalkElement *uid =
        first == WALK_ROOT ? NULL
                           : walk_find(w, first, TAG_ReferencedSOPInstanceUID);
    for (int32_t k = 0; uid && k < t->grid.d; k++)
        if (same_text(w, uid, t->slices[k].sop_uid)) {
            const DicomHeader *h = &t->slices[k];
            memcpy(f->plane.position_mm, h->position_mm, sizeof h->position_mm);
            return true;
        }
    return dicom_fail(w->path, TAG_PlanePositionSequence, NULL,
                      "enhanced multi-frame: per-frame position missing");
}

// One item of the per-frame groups: its segment, and its plane with everything
// that mask_planes_agree looks at. Not used: the dimension indices, which only
// repeat the order.
static bool read_frame(const Seg *s, uint32_t shared, uint32_t item,
                       const MaskTarget *t, Frame *f)
{
    const Walk *w = s->w;
    bool found;
    *f = (Frame){.plane = {.rows = s->header.rows, .cols = s->header.cols}};
    const WalkElement *e =
        of_frame(w, item, shared, TAG_SegmentIdentificationSequence,
                 TAG_ReferencedSegmentNumber);
    // absent stays 0, which the next check refuses
    if (!header_u16(w, e, &f->segment, &found)) return false;
    if (f->segment < 1 || f->segment > SEGMENTS || !s->name[f->segment])
        return dicom_fail(w->path, TAG_ReferencedSegmentNumber, NULL,
                          "frame of segment %d, which is not described",
                          f->segment);
    e = of_frame(w, item, shared, TAG_PixelMeasuresSequence, TAG_PixelSpacing);
    if (!header_numbers(w, e, 2, f->plane.spacing_mm, &found)) return false;
    if (!found || !(f->plane.spacing_mm[0] > 0) ||
        !(f->plane.spacing_mm[1] > 0))
        return dicom_fail(w->path, TAG_PixelSpacing, NULL,
                          "PixelSpacing missing, 0, negative or NaN");
    e = of_frame(w, item, shared, TAG_PixelMeasuresSequence,
                 TAG_SliceThickness);
    if (!header_numbers(w, e, 1, &f->plane.thickness_mm, &found)) return false;
    e = of_frame(w, item, shared, TAG_PlaneOrientationSequence,
                 TAG_ImageOrientationPatient);
    if (!header_numbers(w, e, 6, f->plane.orientation, &found)) return false;
    if (!found)
        return dicom_fail(w->path, TAG_ImageOrientationPatient, NULL,
                          "ImageOrientationPatient missing");
    if (!header_orthogonal(w->path, f->plane.orientation)) return false;
    e = of_frame(w, item, shared, TAG_PlanePositionSequence,
                 TAG_ImagePositionPatient);
    if (!header_position(w, e, f->plane.position_mm, &found)) return false;
    // older writers name only the image slice that the frame was drawn on
    return found || borrow_position(s, item, t, f);
}

// s->frame: one for each item of the per-frame groups, whose number must be
// NumberOfFrames
static bool read_frames(Seg *s, const MaskTarget *t, Arena *arena)
{
    const Walk *w = s->w;
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
    if (items != s->header.frames)
        return dicom_fail(w->path, TAG_PerFrameFunctionalGroupsSequence, NULL,
                          "enhanced multi-frame: per-frame position missing");
    s->frame = ARENA_NEW(arena, Frame, items);
    if (!s->frame) return false;
    Frame *f = s->frame;
    for (uint32_t i = first; i < list->next; i = w->element[i].next)
        if (!read_frame(s, common, i, t, f++)) return false;
    return true;
}

// slices of the image under all frames that are wanted?
static bool on_target(Seg *s, const MaskTarget *t)
{
    for (int32_t i = 0; i < s->header.frames; i++) {
        Frame *f = &s->frame[i];
        // the nearest slice, which then must agree in all corners
        f->slice = mask_nearest_slice(t, &f->plane);
        if (!mask_planes_agree(&t->slices[f->slice], &f->plane, t->edge_mm))
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

// the even grid that the frames lie on, empty slices included
static bool own_grid(Seg *s, Arena *arena, Grid *g)
{
    int32_t n = s->header.frames;
    const DicomHeader *h = &s->frame->plane;
    double normal[3], *at = ARENA_NEW(arena, double, n);
    if (!at) return false;
    stack_normal(h->orientation, normal);
    for (int32_t i = 0; i < n; i++)
        at[i] = stack_project(normal, s->frame[i].plane.position_mm);
    qsort(at, (size_t)n, sizeof *at, compare_doubles);
    double step = 0;
    for (int32_t i = 1; i < n; i++) {
        double gap = at[i] - at[i - 1];
        // below that, two frames of one slice (of two segments, say)
        if (gap > 1e-3 && (step == 0 || gap < step)) step = gap;
    }
    if (step == 0) step = h->thickness_mm > 0 ? h->thickness_mm : 1;
    // the smallest gap is the step: frames lie on some multiple of it
    double slices = rint((at[n - 1] - at[0]) / step) + 1;
    // positions are below 1e9 mm and gaps above 1e-3, so this is finite; the
    // bound keeps a grid of mostly empty slices from eating the memory
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
    double edge = fmin(step, fmin(h->spacing_mm[0], h->spacing_mm[1]));
    for (int32_t i = 0; i < n; i++) {
        Frame *f = &s->frame[i];
        double along = stack_project(normal, f->plane.position_mm) - at[0];
        f->slice = (int32_t)rint(along / step);
        DicomHeader want = *h;
        for (int a = 0; a < 3; a++)
            // where the frame should lie if the grid is right; spacing and
            // direction are compared along with it
            want.position_mm[a] = g->affine[a][3] + f->slice * g->affine[a][2];
        if (!mask_planes_agree(&want, &f->plane, edge))
            return dicom_fail(s->w->path, TAG_ImagePositionPatient, NULL,
                              "frames of the segmentation lie on no even grid");
    }
    return true;
}

// frames into labels; rows of bits run on from frame to frame
static bool fill(const Seg *s, const uint8_t *bytes, Volume *out)
{
    size_t plane = (size_t)s->header.rows * (size_t)s->header.cols;
    uint8_t *labels = out->voxels.data;
    int64_t clashes = 0;
    int a = 0, b = 0;
    for (int32_t i = 0; i < s->header.frames; i++) {
        const Frame *f = &s->frame[i];
        uint8_t label = s->label[f->segment];
        if (!label) continue;
        uint8_t *to = labels + (size_t)f->slice * plane;
        size_t base = (size_t)i * plane;
        for (size_t j = 0; j < plane; j++) {
            size_t at = base + j;
            bool in = s->threshold ? bytes[at] >= s->threshold
                                   : bytes[at / 8] >> at % 8 & 1;
            if (!in) continue;
            // the first pair that meets is named, all voxels are counted
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
    return dicom_fail(s->w->path, TAG_SegmentSequence, "segments = one of them",
                      "segments \"%s\" and \"%s\" overlap (%lld voxels)",
                      names[0], names[1], (long long)clashes);
}

// Two ways: frames that all lie on slices of the image are filled in directly;
// else they are filled into a grid of their own and that is resampled, when the
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
    // each step relies on the ones before: sizes, then names, then frames that
    // refer to them
    TRY(read_segments(&s, options, &scratch));
    TRY(frames_check(w, &s.header, mask->folder, notes));
    TRY(read_frames(&s, target, &scratch));
    bool direct = on_target(&s, target);
    if (!direct) {
        Grid g;
        TRY(own_grid(&s, &scratch, &g));
        TRY(mask_may_resample(mask, &g, target, options->resample_mask));
        // `out` was made for the grid of the image
        volume_free(out);
        TRY(volume_new(out, (Dims){1, g.d, g.h, g.w, 1}, U8));
        memcpy(out->affine, g.affine, sizeof g.affine);
        out->unit = UNIT_LABEL;
    }
    TRY(bytes = mem_alloc(frames_bytes(&s.header)));
    TRY(frames_decode(w, &s.header, bytes));
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

// what the functions above have read, as the caller wants it
static bool describe(Seg *s, Arena *arena, DicomSegInfo *out)
{
    *out = (DicomSegInfo){.fractional = s->threshold > 0,
                          .frames = s->header.frames};
    out->segment = ARENA_NEW(arena, struct DicomSegment, SEGMENTS);
    if (!out->segment) return false;
    for (int n = 1; n <= SEGMENTS; n++) {
        if (!s->name[n]) continue;
        struct DicomSegment *g = &out->segment[out->segments++];
        *g = (struct DicomSegment){.number = n, .label = s->name[n]};
        for (int32_t i = 0; i < s->header.frames; i++)
            g->frames += s->frame[i].segment == n;
    }
    return own_grid(s, arena, &out->grid);
}

bool dicom_seg_info(const DicomSeries *seg, Arena *arena, DicomSegInfo *out)
{
    // of no image: a frame must have its own position
    const MaskTarget nowhere = {.slices = NULL};
    const DicomMaskOptions all = {.segments = NULL};
    DicomNotes notes = {{NULL}, NULL, NULL, 0};
    DicomFile f;
    bool ok = false;
    if (seg->count != 1)
        return dicom_fail(seg->folder, TAG_SeriesInstanceUID,
                          "look at one of the files",
                          "%d segmentations in one series", seg->count);
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
