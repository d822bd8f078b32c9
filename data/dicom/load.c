/* load.c -- loads a series of slices as a volume. Headers are read first and
 * sorted in space; only then pixels, slice by slice, so that one file is in
 * memory at a time (a multi-frame file is one). All sums are in double; values
 * are F32 and converted to I16 at the end if that is lossless, which halves the
 * cache. */
#include "data/dicom/load.h"
#include "data/dicom/file.h"
#include "data/dicom/frames.h"
#include "data/dicom/image_type.h"
#include "data/dicom/multiframe.h"
#include <math.h>
#include <string.h>

// in pixels; straightening may also clip this much at an edge
static const double DRIFT_SLACK = 1e-3;

bool load_oddities(const Walk *w, const char *where, DicomNotes *notes)
{
    if ((w->odd & WALK_TRAILING) &&
        !dicom_note(notes, true, where, 0,
                    "%zu bytes after the last element ignored", w->trailing))
        return false;
    if ((w->odd & WALK_GROUP_LENGTH) &&
        !dicom_note(notes, true, where, w->odd_tag,
                    "group length wrong, ignored"))
        return false;
    if ((w->odd & WALK_ODD_LENGTH) &&
        !dicom_note(notes, true, where, w->odd_length_tag,
                    "value of odd length, read as it is"))
        return false;
    return !(w->odd & WALK_ORDER) ||
           dicom_note(notes, true, where, w->odd_tag, "elements out of order");
}

// fails for kinds that dicom_load cannot load, with the function that can
static bool check_kind(const DicomSeries *s)
{
    static const char *const what[][2] = {
        [DICOM_SEG] = {"a segmentation", "load it as a mask"},
        [DICOM_STRUCTURE] = {"a structure set", "load it as a mask"},
        [DICOM_DOSE] = {"a dose grid", "load it as a dose"},
    };
    if (s->kind != DICOM_IMAGE && s->kind != DICOM_MULTI)
        return dicom_fail(s->folder, TAG_SOPClassUID, what[s->kind][1],
                          "%s, not an image", what[s->kind][0]);

    // each file is an image, and it is unknown which one is meant
    if (s->kind == DICOM_MULTI && s->count != 1)
        return dicom_fail(s->folder, TAG_SeriesInstanceUID,
                          "keep one of the files",
                          "%d multi-frame files in one series", s->count);
    return true;
}

const char *load_where(const DicomSeries *series)
{
    return series->kind == DICOM_MULTI ? series->paths[0] : series->folder;
}

// the frames of the one file of a multi-frame series
static bool load_frames(const DicomSeries *series, const DicomOptions *options,
                        Arena *arena, DicomHeader **out, int32_t *count,
                        DicomNotes *notes)
{
    DicomFile f;
    DicomHeader h = {.frames = 0};
    bool ok =
        dicom_file_open(series->paths[0], options, true, &f) == WALK_DONE &&
        header_identity(&f.walk, arena, &h) &&
        header_pixels(&f.walk, options, false, load_where(series), &h, notes);

    if (ok &&
        !walk_find(&f.walk, WALK_ROOT, TAG_PerFrameFunctionalGroupsSequence) &&
        !dicom_class_enhanced(h.sop_class))
        ok = image_frames_unplaced(&f.walk, &h);
    ok = ok && multi_headers(&f.walk, options, &h, arena, out) &&
         image_type_check(&f.walk, *out, load_where(series), notes);
    dicom_file_close(&f);
    *count = h.frames;
    return ok;
}

// Every file is opened again after the scan: a scan keeps only the attributes
// for grouping, and files may have changed since.
bool load_headers(const DicomSeries *series, const DicomOptions *options,
                  Arena *arena, DicomHeader **out, int32_t *count,
                  DicomNotes *notes)
{
    if (!check_kind(series)) return false;
    if (series->kind == DICOM_MULTI)
        return load_frames(series, options, arena, out, count, notes);
    DicomHeader *h = ARENA_NEW(arena, DicomHeader, series->count);
    if (!h) return false;

    for (int32_t i = 0; i < series->count; i++) {
        DicomFile f;
        bool ok =
            dicom_file_open(series->paths[i], options, true, &f) == WALK_DONE &&
            header_identity(&f.walk, arena, &h[i]) &&
            header_image(&f.walk, options, false, series->folder, &h[i],
                         notes) &&
            image_type_check(&f.walk, &h[i], series->folder, notes);
        dicom_file_close(&f);
        if (!ok) return false;
        if (h[i].frames != 1)
            return dicom_fail(h[i].path, TAG_NumberOfFrames, NULL,
                              "%d frames in a series of single slices",
                              h[i].frames);
    }

    *out = h;
    *count = series->count;
    return true;
}

// Decides whether MONOCHROME1 inverts the values, in the same way for all
// slices of a series: if one slice has a unit (a slope other than 1, say), all
// have.
static bool settle_inversion(const DicomSeries *s, DicomHeader *h, int32_t n,
                             DicomNotes *notes)
{
    const char *units = NULL;
    bool any = false;
    for (int32_t i = 0; i < n; i++) {
        if (!units) units = h[i].units;
        any = any || h[i].monochrome1;
    }
    for (int32_t i = 0; i < n; i++) h[i].inverted = h[i].monochrome1 && !units;
    if (!any) return true;
    if (!units)
        return dicom_note(notes, false, load_where(s),
                          TAG_PhotometricInterpretation,
                          "MONOCHROME1 inverted");
    return dicom_note(
        notes, false, load_where(s), TAG_PhotometricInterpretation,
        "MONOCHROME1 not inverted: values have a unit by %s", units);
}

// The limit of voxels is checked here, where the number of slices is known and
// no large block has been allocated.
bool load_stack(const DicomSeries *series, const DicomOptions *options,
                Arena *arena, DicomHeader **slices, DicomStack *stack,
                DicomNotes *notes)
{
    int32_t n;
    const char *where = load_where(series);
    if (!load_headers(series, options, arena, slices, &n, notes)) return false;
    DicomHeader *h = *slices;
    if (!stack_order(where, h, n, options, stack, notes)) return false;

    // compares the product of three without an overflow
    int64_t limit =
        options && options->max_voxels ? options->max_voxels : (int64_t)1 << 33;
    if ((int64_t)h->rows * h->cols > limit / n)
        return dicom_fail(where, TAG_Rows, NULL,
                          "%d x %d x %d x %d does not fit (limit %lld voxels)",
                          h->rows, h->cols, n, h->samples, (long long)limit);

    // one note is enough
    for (int32_t i = 1; i < n; i++)
        if (h[i].slope != h->slope || h[i].intercept != h->intercept)
            return dicom_note(notes, false, where, TAG_RescaleSlope,
                              "slope differs between slices, applied per "
                              "slice");
    return true;
}

int64_t load_stored(const uint8_t *p, const DicomHeader *h)
{
    uint64_t v = p[0];
    for (int b = 1; b < h->allocated / 8; b++) v |= (uint64_t)p[b] << 8 * b;
    // bits above BitsStored may hold anything: overlays did in old files
    uint64_t range = (uint64_t)1 << h->stored;
    v &= range - 1;
    if (h->is_signed && v >= range / 2) return (int64_t)v - (int64_t)range;
    return (int64_t)v;
}

// The same for 16 bits, which nearly all files have: no loop over bytes.
static inline int64_t stored_16(const uint8_t *p, const DicomHeader *h)
{
    const int32_t range = (int32_t)1 << h->stored;
    const int32_t v = (p[0] | p[1] << 8) & (range - 1);
    return h->is_signed && v >= range / 2 ? v - range : v;
}

// the sum of a stored value and its inverted value
static int64_t turn_of(const DicomHeader *h)
{
    return h->is_signed ? -1 : ((int64_t)1 << h->stored) - 1;
}

// counts the values, of n, that are the converted PixelPaddingValue
static int64_t count_padding(const DicomHeader *h, const float *v, int64_t n,
                             float *padding)
{
    int64_t stored = h->inverted ? turn_of(h) - h->padding : h->padding;
    int64_t count = 0;
    *padding = (float)((double)stored * h->slope + h->intercept);
    for (int64_t i = 0; i < n; i++) count += v[i] == *padding;
    return count;
}

// converts stored samples to quantities, in the order of dicom.h: sign,
// inversion within the stored range (for values without a unit), slope and
// intercept
static void to_values(const uint8_t *bytes, const DicomHeader *h, float *out)
{
    size_t n = (size_t)h->rows * (size_t)h->cols;
    size_t step = (size_t)h->allocated / 8;
    int64_t turn = turn_of(h);
    for (size_t i = 0; i < n; i++) {
        const uint8_t *p = bytes + i * step;
        int64_t v = step == 2 ? stored_16(p, h) : load_stored(p, h);
        if (h->inverted) v = turn - v;
        out[i] = (float)((double)v * h->slope + h->intercept);
    }
}

// Opens and decodes the file of `h`. The header is read again with the pixels
// and must still be the one used for sorting: a file that is being rewritten
// would give an inconsistent volume.
static bool open_slice(SliceReader *r, const DicomHeader *h, const char *where,
                       const DicomOptions *options, DicomNotes *notes)
{
    DicomFile f;
    Arena scratch = {0};
    bool ok = false;

    slice_close(r);
    TRY(dicom_file_open(h->path, options, false, &f) == WALK_DONE);
    TRY(load_oddities(&f.walk, where, notes));
    TRY(header_identity(&f.walk, &scratch, &r->now));
    TRY(header_pixels(&f.walk, options, false, where, &r->now, notes));

    // sorting and extents used the earlier header
    if (r->now.rows != h->rows || r->now.cols != h->cols ||
        r->now.frames != h->frames) {
        fail_data("%s: file changed while it was read", h->path);
        goto done;
    }

    TRY(frames_check(&f.walk, &r->now, where, notes));
    TRY(r->bytes = mem_alloc(frames_bytes(&r->now)));
    TRY(frames_decode(&f.walk, &r->now, r->bytes));
    r->path = h->path;
    ok = true;

done:
    arena_release(&scratch);
    dicom_file_close(&f);
    return ok;
}

bool slice_read(SliceReader *r, const DicomHeader *h, const char *where,
                const DicomOptions *options, float *values, DicomNotes *notes)
{
    // paths come from one scan: different files never have equal text
    if (r->path != h->path && !open_slice(r, h, where, options, notes))
        return false;
    size_t each = frames_bytes(&r->now) / (size_t)r->now.frames;
    // rescale and inversion were read with the position
    r->now.slope = h->slope, r->now.intercept = h->intercept;
    r->now.inverted = h->inverted;
    to_values(r->bytes + (size_t)h->frame * each, &r->now, values);
    return true;
}

void slice_close(SliceReader *r)
{
    mem_free(r->bytes);
    *r = (SliceReader){.path = NULL};
}

bool load_is_tilted(const DicomStack *stack)
{
    return stack->tilt_deg > 0.5;
}

// Column 2 of the affine is the step between slices. Its components along a row
// and down a column are the drift; without the drift it is perpendicular. The
// grid then grows by the whole drift of the last slice, on the side to which it
// drifts: a negative drift moves the origin instead of the far edge.
Grid load_straight_grid(const DicomStack *stack)
{
    Grid g = stack->grid;
    double edge[2] = {0}, drift[2] = {0};
    for (int a = 0; a < 3; a++)
        for (int axis = 0; axis < 2; axis++) {
            edge[axis] += g.affine[a][axis] * g.affine[a][axis];
            drift[axis] += g.affine[a][2] * g.affine[a][axis];
        }

    // drift in pixels per slice; the rest of the step is perpendicular
    for (int axis = 0; axis < 2; axis++) {
        drift[axis] /= edge[axis];
        double whole = drift[axis] * (g.d - 1);
        // a drift from rounding must not add an empty row
        int32_t grow = (int32_t)ceil(fabs(whole) - DRIFT_SLACK);
        for (int a = 0; a < 3; a++) {
            g.affine[a][2] -= drift[axis] * g.affine[a][axis];
            if (whole < 0) g.affine[a][3] -= grow * g.affine[a][axis];
        }
        if (axis)
            g.h += grow;
        else
            g.w += grow;
    }
    return g;
}

// row 50: a constant series is a fault, not an image
static bool check_contrast(const DicomSeries *s, const float *v, int64_t n,
                           float *lowest)
{
    *lowest = v[0];
    bool differs = false;
    for (int64_t i = 1; i < n; i++) {
        differs = differs || v[i] != v[0];
        if (v[i] < *lowest) *lowest = v[i];
    }
    if (differs) return true;
    return dicom_fail(load_where(s), TAG_PixelData, NULL,
                      "all %lld voxels are %g", (long long)n, (double)v[0]);
}

// converts F32 voxels to I16 if that is lossless
static bool narrow(Volume *v)
{
    int64_t n = positions(v->voxels.dim);
    const float *from = v->voxels.data;
    for (int64_t i = 0; i < n; i++)
        if (!(from[i] >= INT16_MIN && from[i] <= INT16_MAX) ||
            from[i] != (float)(int16_t)from[i])
            return true;
    Volume small;
    if (!volume_new(&small, v->voxels.dim, I16)) return false;
    int16_t *to = small.voxels.data;
    for (int64_t i = 0; i < n; i++) to[i] = (int16_t)from[i];
    memcpy(small.affine, v->affine, sizeof v->affine);
    small.unit = v->unit;
    volume_free(v);
    *v = small;
    return true;
}

// Linear, within the plane only, as slices keep their position along the
// normal. `outside` fills the corners that no slice covers: the smallest value
// of the series, usually air.
static bool straighten(const DicomStack *stack, float outside, Volume *v)
{
    Grid grid = load_straight_grid(stack);
    Volume straight;
    if (!volume_resample(v, &grid, LINEAR, outside, &straight)) return false;
    volume_free(v);
    *v = straight;
    return true;
}

// Contrast is checked on the stored slices, before straightening can add a
// border of another value.
bool dicom_load(const DicomSeries *series, const DicomOptions *options,
                Volume *out, DicomNotes *notes)
{
    *out = (Volume){0};
    Arena scratch = {0};
    DicomHeader *slices;
    DicomStack stack;
    SliceReader reader = {.path = NULL};
    float lowest;
    bool ok = false;
    TRY(load_stack(series, options, &scratch, &slices, &stack, notes));
    TRY(settle_inversion(series, slices, stack.grid.d, notes));
    const Grid *g = &stack.grid;
    TRY(volume_new(out, (Dims){1, g->d, g->h, g->w, 1}, F32));
    memcpy(out->affine, g->affine, sizeof out->affine);

    // only CT has a unit that is valid outside the scanner
    out->unit = strcmp(slices->modality, "CT") ? UNIT_NONE : UNIT_HU;
    int64_t plane = (int64_t)g->h * g->w;
    float *values = out->voxels.data;
    int64_t padded = 0;
    float padding = 0;

    for (int32_t i = 0; i < g->d; i++) {
        TRY(slice_read(&reader, &slices[i], load_where(series), options,
                       values + i * plane, notes));
        if (slices[i].has_padding)
            padded +=
                count_padding(&slices[i], values + i * plane, plane, &padding);
    }

    // kept, as other readers do: a replacement value would be a guess
    if (padded)
        TRY(dicom_note(notes, false, load_where(series), 0,
                       "%lld voxels are PixelPaddingValue, %g here: nothing "
                       "was measured there",
                       (long long)padded, (double)padding));

    TRY(check_contrast(series, values, g->d * plane, &lowest));
    if (load_is_tilted(&stack)) TRY(straighten(&stack, lowest, out));
    TRY(narrow(out));
    ok = true;

done:
    slice_close(&reader);
    if (!ok) volume_free(out);
    arena_release(&scratch);
    return ok;
}
