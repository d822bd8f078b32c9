/* dose.c -- RT dose grids. The planes of a dose are frames of one file; their
 * positions along the normal are a list of offsets, either relative to the
 * first plane or, for axial planes only, the z coordinate of the patient. The
 * first entry tells which of the two it is. */
#include "data/dicom/dose.h"
#include "data/dicom/file.h"
#include "data/dicom/frames.h"
#include "data/dicom/load.h"
#include "data/dicom/mask.h"
#include <math.h>
#include <string.h>

// positions are rounded decimal text
static const double SAME_MM = 1e-2, SAME_COSINE = 1e-3;

// checks that the numbers are physical or effective dose in Gy
static bool check_units(const Walk *w, const char *where, Arena *arena,
                        DicomNotes *notes)
{
    const char *text[3];
    static const int tags[] = {TAG_DoseUnits, TAG_DoseType,
                               TAG_DoseSummationType};
    for (int i = 0; i < 3; i++)
        if (!(text[i] = header_text(
                  w, walk_find(w, WALK_ROOT, (uint32_t)tags[i]), arena, NULL)))
            return false;
    if (strcmp(text[0], "GY"))
        return dicom_fail(w->path, TAG_DoseUnits, NULL,
                          "DoseUnits \"%.20s\", need GY", text[0]);
    if (!strcmp(text[1], "ERROR"))
        return dicom_fail(w->path, TAG_DoseType, NULL,
                          "DoseType ERROR is a difference, not a dose");
    if (strcmp(text[1], "PHYSICAL") &&
        !dicom_note(notes, true, where, TAG_DoseType, "DoseType is %.20s",
                    *text[1] ? text[1] : "absent"))
        return false;

    // the dose of one beam is not the dose that a patient gets
    return !strcmp(text[2], "PLAN") ||
           dicom_note(notes, true, where, TAG_DoseSummationType,
                      "DoseSummationType is %.20s, not PLAN",
                      *text[2] ? text[2] : "absent");
}

static bool read_scaling(const Walk *w, double *scaling)
{
    bool found;
    const WalkElement *e = walk_find(w, WALK_ROOT, TAG_DoseGridScaling);
    if (!header_numbers(w, e, 1, scaling, &found)) return false;
    return (found && *scaling > 0) ||
           dicom_fail(w->path, TAG_DoseGridScaling, NULL,
                      "DoseGridScaling missing, 0 or negative");
}

// the frames must be indexed by the list of offsets, not by another attribute
static bool check_pointer(const Walk *w)
{
    const WalkElement *e = walk_find(w, WALK_ROOT, TAG_FrameIncrementPointer);
    if (!e || !e->length) return true;
    const uint8_t *p = w->bytes + e->offset;
    uint32_t to = 0;
    if (e->length == 4)
        to = (uint32_t)number_u16(p, w->big_endian) << 16 |
             number_u16(p + 2, w->big_endian);
    return to == (uint32_t)TAG_GridFrameOffsetVector ||
           dicom_fail(w->path, TAG_FrameIncrementPointer, NULL,
                      "frames are counted by (%04x,%04x), need (3004,000c)",
                      to >> 16, to & 0xFFFF);
}

// Computes the position of frame i from offset[i]: relative lists start with 0.
// A list that starts with z of the first plane is absolute; the standard allows
// that for axial planes.
static bool place_frames(const Walk *w, const DicomHeader *h,
                         const double *offset, DicomHeader *frame)
{
    double normal[3];
    stack_normal(h->orientation, normal);
    bool relative = fabs(offset[0]) <= SAME_MM;
    if (!relative && fabs(fabs(normal[2]) - 1) > SAME_COSINE)
        return dicom_fail(w->path, TAG_GridFrameOffsetVector, NULL,
                          "offsets start with %g, need 0 in planes that are "
                          "not axial",
                          offset[0]);

    if (!relative && fabs(offset[0] - h->position_mm[2]) > SAME_MM)
        return dicom_fail(w->path, TAG_GridFrameOffsetVector, NULL,
                          "offsets start with %g, need 0 or the z of the first "
                          "plane, %g",
                          offset[0], h->position_mm[2]);

    for (int32_t i = 0; i < h->frames; i++) {
        for (int a = 0; relative && a < 3; a++)
            frame[i].position_mm[a] += offset[i] * normal[a];
        if (!relative) frame[i].position_mm[2] = offset[i];
    }
    return true;
}

// one header for each plane, with its position
static bool make_frames(const Walk *w, const DicomHeader *h, Arena *arena,
                        DicomHeader **out)
{
    const WalkElement *e = walk_find(w, WALK_ROOT, TAG_GridFrameOffsetVector);
    bool found;
    // the pixels bound the number of frames; frames_check has run
    double *offset = ARENA_NEW(arena, double, h->frames);
    DicomHeader *frame = *out = ARENA_NEW(arena, DicomHeader, h->frames);

    if (!offset || !frame) return false;
    if (!header_numbers(w, e, h->frames, offset, &found)) return false;
    if (!found && h->frames > 1)
        return dicom_fail(w->path, TAG_GridFrameOffsetVector, NULL,
                          "GridFrameOffsetVector missing");

    for (int32_t i = 0; i < h->frames; i++) {
        if (!header_of_frame(h, i, arena, &frame[i])) return false;
        if (found && !(fabs(offset[i]) < HEADER_FARTHEST_MM))
            return dicom_fail(w->path, TAG_GridFrameOffsetVector, NULL,
                              "position %g mm, need less than %g", offset[i],
                              HEADER_FARTHEST_MM);
    }
    return !found || place_frames(w, h, offset, frame);
}

// copies the frames in `bytes` to out in spatial order, in Gy
static bool scale(const DicomHeader *h, const DicomHeader *frame,
                  const uint8_t *bytes, double scaling, const char *where,
                  Volume *out)
{
    size_t plane = (size_t)h->rows * (size_t)h->cols;
    size_t step = (size_t)h->allocated / 8;
    float *to = out->voxels.data;
    bool differs = false;

    for (int32_t k = 0; k < h->frames; k++) {
        const uint8_t *from = bytes + (size_t)frame[k].frame * plane * step;
        float *slice = to + (size_t)k * plane;
        for (size_t i = 0; i < plane; i++) {
            slice[i] =
                (float)((double)load_stored(from + i * step, h) * scaling);
            differs = differs || slice[i] != to[0];
        }
    }

    return differs ||
           dicom_fail(where, TAG_PixelData, NULL, "all %zu voxels are %g",
                      plane * (size_t)h->frames, (double)to[0]);
}

bool dose_read(const Walk *w, const char *where, const DicomOptions *options,
               Volume *out, DicomNotes *notes)
{
    Arena scratch = {0};
    DicomHeader h, *frame;
    DicomStack stack;
    double scaling = 0;
    uint8_t *bytes = NULL;
    // one plane is a valid dose, a sheared stack is not
    const DicomOptions even = {.position_tolerance =
                                   options ? options->position_tolerance : 0};
    bool ok = false;

    *out = (Volume){0};
    TRY(header_identity(w, &scratch, &h));
    TRY(header_pixels(w, options, false, where, &h, notes));
    if (h.allocated != 16 && h.allocated != 32) {
        dicom_fail(w->path, TAG_BitsAllocated, NULL,
                   "BitsAllocated %d, need 16 or 32 in a dose", h.allocated);
        goto done;
    }

    // MONOCHROME1 concerns display; the stored values are in Gy
    if (h.monochrome1)
        TRY(dicom_note(notes, false, where, TAG_PhotometricInterpretation,
                       "MONOCHROME1 not inverted: values have a unit by "
                       "DoseUnits"));
    TRY(check_units(w, where, &scratch, notes));
    TRY(read_scaling(w, &scaling));
    TRY(check_pointer(w));
    TRY(header_geometry(w, NULL, &h));
    TRY(frames_check(w, &h, where, notes));
    if (!h.has_position || !h.has_orientation || !h.has_spacing) {
        dicom_fail(w->path, TAG_ImagePositionPatient, NULL,
                   "dose without position, orientation or spacing");
        goto done;
    }

    TRY(make_frames(w, &h, &scratch, &frame));
    TRY(stack_order(where, frame, h.frames, &even, &stack, notes));
    const Grid *g = &stack.grid;
    TRY(volume_new(out, (Dims){1, g->d, g->h, g->w, 1}, F32));
    memcpy(out->affine, g->affine, sizeof out->affine);
    out->unit = UNIT_GY;
    TRY(bytes = mem_alloc(frames_bytes(&h)));
    TRY(frames_decode(w, &h, bytes));
    TRY(scale(&h, frame, bytes, scaling, where, out));
    ok = true;

done:
    if (!ok) volume_free(out);
    mem_free(bytes);
    arena_release(&scratch);
    return ok;
}

// Resamples onto the grid that dicom_load gives the image. A dose outside the
// image would be 0 everywhere, so it is refused.
static bool onto_image(const DicomSeries *dose, const DicomSeries *image,
                       bool resample, const DicomOptions *options, Volume *v,
                       DicomNotes *notes)
{
    Arena scratch = {0};
    DicomHeader *slices;
    DicomStack stack;
    DicomOptions loose = options ? *options : (DicomOptions){0};
    Grid own = volume_grid(v);
    Volume moved;
    double share = 0;
    bool ok = false;

    // the values of the image are not used
    loose.assume_hu = true;
    TRY(load_stack(image, &loose, &scratch, &slices, &stack, NULL));
    Grid g = load_is_tilted(&stack) ? load_straight_grid(&stack) : stack.grid;
    TRY(grid_share(&g, &own, &share));

    if (share < GRID_LEAST_SHARE) {
        dicom_fail(dose->paths[0], TAG_ImagePositionPatient, NULL,
                   "dose and image cover different regions: overlap %.0f %%",
                   100 * share);
        goto done;
    }

    if (*image->frame_uid && *dose->frame_uid &&
        strcmp(image->frame_uid, dose->frame_uid))
        TRY(dicom_note(notes, true, dose->paths[0], TAG_FrameOfReferenceUID,
                       "FrameOfReference of dose differs"));

    // a volume without voxels: only its grid is compared
    Volume on = {.voxels = {.dim = {1, g.d, g.h, g.w, 1}}};
    memcpy(on.affine, g.affine, sizeof on.affine);
    if (volume_same_grid(&on, v)) {
        ok = true;
        goto done;
    }

    if (!resample) {
        char text[MASK_GRIDS_TEXT];
        dicom_fail(dose->paths[0], 0, "resample_dose = true", "dose %s",
                   mask_grids_text(&own, &g, text));
        goto done;
    }

    TRY(volume_resample(v, &g, LINEAR, 0, &moved));
    volume_free(v);
    *v = moved;
    ok = true;

done:
    arena_release(&scratch);
    return ok;
}

bool dicom_load_dose(const DicomSeries *dose, const DicomSeries *image,
                     bool resample, const DicomOptions *options, Volume *out,
                     DicomNotes *notes)
{
    *out = (Volume){0};
    if (dose->kind != DICOM_DOSE)
        return dicom_fail(dose->folder, TAG_SOPClassUID, NULL,
                          "not a dose (%s)", dicom_class_name(dose->sop_class));
    if (dose->count != 1)
        return dicom_fail(dose->folder, TAG_SeriesInstanceUID,
                          "keep one of the files",
                          "%d dose grids in one series", dose->count);
    DicomFile f;
    const char *path = dose->paths[0];
    bool ok = dicom_file_open(path, options, false, &f) == WALK_DONE &&
              load_oddities(&f.walk, path, notes) &&
              dose_read(&f.walk, path, options, out, notes);
    dicom_file_close(&f);
    if (ok && image) {
        ok = onto_image(dose, image, resample, options, out, notes);
        if (!ok) volume_free(out);
    }
    return ok;
}
