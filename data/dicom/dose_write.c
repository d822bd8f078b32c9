/* dose_write.c -- writes a map of Gy as an RT dose for the series that it was
 * predicted from: same patient, study and frame of reference.
 *
 * The file does not depend on the clock or the machine: the same dose of the
 * same series gives the same file. */
#include "data/dicom/header.h"
#include "data/dicom/load.h"
#include "data/dicom/patient.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { HIGHEST = 65535 }; // largest value of 16 bits

typedef struct DoseWriter {
    Elements list;
    const Volume *dose;
    int32_t channel;
    double scaling; // Gy per stored unit
    const DicomSeries *source;
    char series[UID_TEXT], instance[UID_TEXT], plan[UID_TEXT];
} DoseWriter;

static double value_at(const DoseWriter *s, int64_t i)
{
    const Tensor *t = &s->dose->voxels;
    const float x = ((const float *)t->data)[i * t->dim.c + s->channel];
    return x > 0 ? (double)x : 0;
}

// The highest value uses all 16 bits; if all values are 0, the unit is 1 mGy.
static bool find_scaling(DoseWriter *s, const char *path)
{
    const Tensor *t = &s->dose->voxels;
    double highest = 0;

    for (int64_t i = 0; i < positions(t->dim); i++) {
        const float x = ((const float *)t->data)[i * t->dim.c + s->channel];
        if (!isfinite(x))
            return fail_data("%s: dicom: voxel %lld of the dose is not finite",
                             path, (long long)i);
        highest = fmax(highest, (double)x);
    }

    // use the unit as its written text says; rounded up, so that no value is
    // clipped
    char text[DECIMAL_TEXT];
    s->scaling = highest > 0 ? highest / HIGHEST * (1 + 1e-9) : 0.001;
    sscanf(decimal_text(s->scaling, text), "%lf", &s->scaling);
    return true;
}

// Offsets are along the normal of a plane, so slices must be stacked along it.
static bool check_grid(const Volume *v, const char *path, double *step)
{
    double mm[3], orientation[6], normal[3];
    volume_spacing_mm(v, mm);
    for (int r = 0; r < 3; r++) {
        orientation[r] = v->affine[r][0] / mm[0];
        orientation[3 + r] = v->affine[r][1] / mm[1];
    }
    stack_normal(orientation, normal);
    *step = 0;
    for (int r = 0; r < 3; r++) *step += normal[r] * v->affine[r][2];
    return fabs(fabs(*step) - mm[2]) <= 1e-3 * mm[2] ||
           fail_data("%s: dicom: the slices of this grid are sheared, which an "
                     "RT dose cannot represent",
                     path);
}

static void name_file(DoseWriter *s, const uint8_t *pixels, size_t bytes)
{
    static const char *const kinds[] = {"series", "instance", "plan"};
    char *const uids[] = {s->series, s->instance, s->plan};
    uint64_t h = 0xCBF29CE484222325u; // FNV-1a over the stored values
    for (size_t i = 0; i < bytes; i++) h = (h ^ pixels[i]) * 0x100000001B3u;
    for (int i = 0; i < 3; i++) {
        char key[256];
        snprintf(key, sizeof key, "dose-%s|%.100s|%016llx|%.17g", kinds[i],
                 s->source->series_uid, (unsigned long long)h, s->scaling);
        uid_from(key, uids[i]);
    }
}

static void put_document(DoseWriter *s)
{
    Elements *l = &s->list;
    char uid[UID_TEXT], key[UID_TEXT + 8];
    elements_put(l, TAG_SOPClassUID, CLASS_DOSE);
    elements_put(l, TAG_SOPInstanceUID, "%s", s->instance);
    elements_put(l, TAG_Modality, "RTDOSE");
    elements_put(l, TAG_Manufacturer, "segengine");
    elements_put(l, TAG_ManufacturerModelName, "segengine");
    elements_put(l, TAG_SoftwareVersions, "segengine");
    elements_put(l, TAG_OperatorsName, "%s", "");
    elements_put(l, TAG_SeriesDescription, "predicted dose, research use only");
    elements_put(l, TAG_SeriesInstanceUID, "%s", s->series);
    const int32_t number = s->source->number < 1000000 ? s->source->number : 0;
    elements_put(l, TAG_SeriesNumber, "%d", number + 3000);
    elements_put(l, TAG_InstanceNumber, "1");
    if (!*s->source->frame_uid) {
        snprintf(key, sizeof key, "frame|%s", s->source->series_uid);
        elements_put(l, TAG_FrameOfReferenceUID, "%s", uid_from(key, uid));
    }
    elements_put(l, TAG_DoseUnits, "GY");
    elements_put(l, TAG_DoseType, "PHYSICAL");
    elements_put(l, TAG_DoseSummationType, "PLAN");
    elements_put(l, TAG_DoseComment,
                 "predicted by a network, of no plan; research use only");
    elements_open(l, TAG_ReferencedRTPlanSequence);
    elements_item(l);
    elements_put(l, TAG_ReferencedSOPClassUID, CLASS_PLAN);
    elements_put(l, TAG_ReferencedSOPInstanceUID, "%s", s->plan);
    elements_close(l);
}

static bool put_grid(DoseWriter *s, double step)
{
    Elements *l = &s->list;
    const Volume *v = s->dose;
    const Dims n = v->voxels.dim;
    double mm[3], direction[6], origin[3];

    volume_spacing_mm(v, mm);
    for (int r = 0; r < 3; r++) {
        direction[r] = v->affine[r][0] / mm[0];
        direction[3 + r] = v->affine[r][1] / mm[1];
        origin[r] = v->affine[r][3];
    }

    // between rows first, then between columns
    const double spacing[2] = {mm[1], mm[0]};
    double *offset = arena_array(&l->arena, sizeof *offset, (size_t)n.d);
    if (!offset) return false;
    for (int32_t d = 0; d < n.d; d++) offset[d] = d * step;
    elements_decimals(l, TAG_SliceThickness, &mm[2], 1);
    elements_decimals(l, TAG_ImagePositionPatient, origin, 3);
    elements_decimals(l, TAG_ImageOrientationPatient, direction, 6);
    elements_put(l, TAG_SamplesPerPixel, "1");
    elements_put(l, TAG_PhotometricInterpretation, "MONOCHROME2");
    elements_put(l, TAG_NumberOfFrames, "%d", n.d);
    elements_put(l, TAG_FrameIncrementPointer, "(3004,000c)");
    elements_put(l, TAG_Rows, "%d", n.h);
    elements_put(l, TAG_Columns, "%d", n.w);
    elements_decimals(l, TAG_PixelSpacing, spacing, 2);
    elements_put(l, TAG_BitsAllocated, "16");
    elements_put(l, TAG_BitsStored, "16");
    elements_put(l, TAG_HighBit, "15");
    elements_put(l, TAG_PixelRepresentation, "0");
    elements_decimals(l, TAG_GridFrameOffsetVector, offset, n.d);
    elements_decimals(l, TAG_DoseGridScaling, &s->scaling, 1);
    return true;
}

bool dicom_write_dose(const char *path, const Volume *dose, int32_t c,
                      const DicomSeries *source)
{
    const Dims n = dose->voxels.dim;
    const size_t voxels = (size_t)positions(n), bytes = 2 * voxels;
    DoseWriter s = {.dose = dose, .channel = c, .source = source};
    double step;
    uint8_t *pixels = NULL;
    bool ok = false;

    CHECK(dose->voxels.type == F32 && c >= 0 && c < n.c);
    TRY(check_grid(dose, path, &step));
    TRY(find_scaling(&s, path));
    TRY(pixels = mem_alloc(bytes));
    for (size_t i = 0; i < voxels; i++) {
        const double at = value_at(&s, (int64_t)i) / s.scaling;
        const long x = lrint(fmin(at, HIGHEST));
        pixels[2 * i] = (uint8_t)x, pixels[2 * i + 1] = (uint8_t)(x >> 8);
    }

    name_file(&s, pixels, bytes);
    TRY(patient_copy(&s.list, source->paths[0], 0));
    put_document(&s);
    TRY(put_grid(&s, step));
    CodecPixels form = {.syntax_uid = dicom_syntax_uid(DICOM_EXPLICIT_LE),
                        .rows = (uint16_t)n.h,
                        .cols = (uint16_t)n.w,
                        .allocated = 16,
                        .stored = 16,
                        .frames = n.d};
    TRY(elements_write(&s.list, path, &form, pixels, bytes));
    ok = true;

done:
    elements_free(&s.list);
    mem_free(pixels);
    return ok;
}
