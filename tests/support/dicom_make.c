#include "tests/support/dicom_make.h"
#include <stdarg.h>
#include <stdlib.h>

static void add(Make *m, const void *bytes, size_t n)
{
    if (m->size + n > m->room) {
        m->room = 2 * (m->size + n);
        m->bytes = realloc(m->bytes, m->room);
        REQUIRE(m->bytes);
    }
    if (n) memcpy(m->bytes + m->size, bytes, n);
    m->size += n;
}

static void add_u16(Make *m, unsigned v)
{
    const uint8_t b[2] = {(uint8_t)v, (uint8_t)(v >> 8)};
    add(m, b, 2);
}

static void add_tag(Make *m, uint32_t tag)
{
    add_u16(m, tag >> 16);
    add_u16(m, tag & 0xFFFF);
}

static void add_header(Make *m, uint32_t tag, size_t n)
{
    uint16_t vr = dicom_tag(tag)->vr;
    const uint8_t letters[2] = {(uint8_t)(vr >> 8), (uint8_t)vr};
    bool wide = dicom_vr_long(vr);
    // a list of numbers longer than a 16-bit length is written as UN
    add_tag(m, tag);
    add(m, n > 65535 && !wide ? (const uint8_t *)"UN" : letters, 2);
    wide = wide || n > 65535;
    add_u16(m, wide ? 0 : (unsigned)n);
    if (!wide) return;
    add_u16(m, (unsigned)(n & 0xFFFF));
    add_u16(m, (unsigned)(n >> 16));
}

void make_put(Make *m, uint32_t tag, const void *value, size_t n)
{
    uint16_t vr = dicom_tag(tag)->vr;
    bool zero = vr == VR('U', 'I') || dicom_vr_long(vr);
    add_header(m, tag, n + n % 2);
    add(m, value, n);
    if (n % 2) add(m, zero ? "\0" : " ", 1);
}

void make_text(Make *m, uint32_t tag, const char *fmt, ...)
{
    char text[2000];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    make_put(m, tag, text, strlen(text));
}

void make_u16(Make *m, uint32_t tag, int value)
{
    const uint8_t b[2] = {(uint8_t)value, (uint8_t)(value >> 8)};
    make_put(m, tag, b, 2);
}

void make_u32(Make *m, uint32_t tag, uint32_t value)
{
    const uint8_t b[4] = {(uint8_t)value, (uint8_t)(value >> 8),
                          (uint8_t)(value >> 16), (uint8_t)(value >> 24)};
    make_put(m, tag, b, 4);
}

void make_numbers(Make *m, uint32_t tag, const double *v, int n)
{
    char *text = malloc((size_t)n * 32 + 1);
    size_t used = 0;
    REQUIRE(text);
    for (int i = 0; i < n; i++)
        used +=
            (size_t)snprintf(text + used, 32, "%s%.12g", i ? "\\" : "", v[i]);
    make_put(m, tag, text, used);
    free(text);
}

void make_open(Make *m, uint32_t sequence)
{
    add_tag(m, sequence);
    add(m, "SQ\0\0\xFF\xFF\xFF\xFF", 8);
}

void make_item(Make *m)
{
    add_tag(m, TAG_ITEM);
    add(m, "\xFF\xFF\xFF\xFF", 4);
}

void make_item_end(Make *m)
{
    add_tag(m, TAG_ITEM_END);
    add(m, "\0\0\0\0", 4);
}

void make_close(Make *m)
{
    add_tag(m, TAG_SEQUENCE_END);
    add(m, "\0\0\0\0", 4);
}

void make_in(Make *m, uint32_t sequence)
{
    make_open(m, sequence);
    make_item(m);
}

void make_out(Make *m)
{
    make_item_end(m);
    make_close(m);
}

void make_begin(Make *m, const char *sop_class, const char *series_uid,
                const DicomSeries *same_study)
{
    make_begin_of(m, sop_class, series_uid, same_study, 1);
}

void make_begin_of(Make *m, const char *sop_class, const char *series_uid,
                   const DicomSeries *same_study, int number)
{
    *m = (Make){.bytes = NULL};
    static const uint8_t preamble[128];
    add(m, preamble, sizeof preamble);
    add(m, "DICM", 4);
    make_text(m, TAG_TransferSyntaxUID, "1.2.840.10008.1.2.1");
    make_text(m, TAG_SOPClassUID, "%s", sop_class);
    make_text(m, TAG_SOPInstanceUID, "%s.%d", series_uid, number);
    make_text(m, TAG_PatientID, "%s",
              same_study ? same_study->patient_id : "MADE");
    make_text(m, TAG_StudyInstanceUID, "%s",
              same_study ? same_study->study_uid : "2.25.1");
    make_text(m, TAG_SeriesInstanceUID, "%s", series_uid);
    make_text(m, TAG_FrameOfReferenceUID, "%s",
              same_study ? same_study->frame_uid : "2.25.2");
}

void make_pixels(Make *m, int frames, int rows, int cols, int allocated,
                 int stored, bool is_signed)
{
    make_u16(m, TAG_SamplesPerPixel, 1);
    if (frames) make_text(m, TAG_NumberOfFrames, "%d", frames);
    make_u16(m, TAG_Rows, rows);
    make_u16(m, TAG_Columns, cols);
    make_u16(m, TAG_BitsAllocated, allocated);
    make_u16(m, TAG_BitsStored, stored);
    make_u16(m, TAG_HighBit, stored - 1);
    make_u16(m, TAG_PixelRepresentation, is_signed);
}

void make_save(Make *m, const char *path)
{
    FILE *out = fopen(path, "wb");
    REQUIRE(out && fwrite(m->bytes, 1, m->size, out) == m->size);
    REQUIRE(!fclose(out));
    free(m->bytes);
    *m = (Make){.bytes = NULL};
}

static void put_plane(Make *m, const MadeMulti *how, const double mm[3])
{
    double o[6];
    for (int a = 0; a < 3; a++) {
        o[a] = how->v->affine[a][0] / mm[0];
        o[3 + a] = how->v->affine[a][1] / mm[1];
    }
    if (!how->no_orientation) {
        make_in(m, TAG_PlaneOrientationSequence);
        make_numbers(m, TAG_ImageOrientationPatient, o, 6);
        make_out(m);
    }

    make_in(m, TAG_PixelMeasuresSequence);
    make_numbers(m, TAG_SliceThickness, &mm[2], 1);
    if (!how->no_spacing)
        make_numbers(m, TAG_PixelSpacing, (double[2]){mm[1], mm[0]}, 2);
    make_out(m);
}

static void put_frame(Make *m, const MadeMulti *how, const double mm[3], int i,
                      int slice)
{
    double position[3];
    make_item(m);
    make_in(m, TAG_FrameContentSequence);
    if (how->stacks) make_text(m, TAG_StackID, "%s", how->stacks[i]);
    if (how->times)
        make_u32(m, TAG_TemporalPositionIndex, (uint32_t)(i % how->times) + 1);
    make_out(m);
    volume_world(how->v, 0, 0, slice, position);
    if (i + 1 != how->unplaced) {
        make_in(m, TAG_PlanePositionSequence);
        make_numbers(m, TAG_ImagePositionPatient, position, 3);
        make_out(m);
    }

    if (how->each) put_plane(m, how, mm);
    if (how->slope) {
        make_in(m, TAG_PixelValueTransformationSequence);
        make_numbers(m, TAG_RescaleIntercept, (double[1]){-3}, 1);
        make_numbers(m, TAG_RescaleSlope, &how->slope[i], 1);
        make_out(m);
    }
    make_item_end(m);
}

void make_multi(const MadeMulti *how, const char *path)
{
    Make m;
    Dims d = how->v->voxels.dim;
    const char *modality = how->modality ? how->modality : "MR";
    double mm[3];

    volume_spacing_mm(how->v, mm);
    make_begin(&m,
               !strcmp(modality, "CT") ? "1.2.840.10008.5.1.4.1.1.2.1"
                                       : "1.2.840.10008.5.1.4.1.1.4.1",
               how->series_uid ? how->series_uid : "2.25.11", how->same_study);
    make_text(&m, TAG_Modality, "%s", modality);
    make_text(&m, TAG_SeriesDescription, "enhanced");
    make_text(&m, TAG_InstanceNumber, "1");
    if (how->concatenation) {
        make_text(&m, TAG_ConcatenationUID, "%s", how->concatenation);
        make_u16(&m, TAG_InConcatenationNumber, 1);
        make_u16(&m, TAG_InConcatenationTotalNumber, 2);
    }

    make_text(&m, TAG_PhotometricInterpretation, "MONOCHROME%d",
              how->monochrome1 ? 1 : 2);
    make_pixels(&m, d.d, d.h, d.w, 16, 16, true);
    make_in(&m, TAG_SharedFunctionalGroupsSequence);
    if (!how->each) put_plane(&m, how, mm);
    make_out(&m);

    if (!how->no_groups) {
        make_open(&m, TAG_PerFrameFunctionalGroupsSequence);
        for (int i = 0; i < d.d; i++)
            put_frame(&m, how, mm, i, how->order ? how->order[i] : i);
        make_close(&m);
    }

    size_t plane = (size_t)d.h * (size_t)d.w * 2;
    uint8_t *pixels = malloc(plane * (size_t)d.d);
    REQUIRE(pixels);
    for (int i = 0; i < d.d; i++)
        memcpy(pixels + (size_t)i * plane,
               (char *)how->v->voxels.data +
                   (size_t)(how->order ? how->order[i] : i) * plane,
               plane);

    make_put(&m, TAG_PixelData, pixels, plane * (size_t)d.d);
    free(pixels);
    make_save(&m, path);
}

static void put_contour(Make *m, const MadeSet *set, const MadeContour *c)
{
    double *mm = malloc((size_t)c->points * 3 * sizeof *mm + 8);
    REQUIRE(mm);
    for (int i = 0; i < c->points; i++)
        volume_world(set->v, c->uv[2 * i], c->uv[2 * i + 1],
                     c->slice + c->off + (i % 2 ? c->bent : 0), mm + 3 * i);
    make_item(m);
    if (c->drawn) {
        make_in(m, TAG_ContourImageSequence);
        make_text(m, TAG_ReferencedSOPInstanceUID, "%s", c->drawn);
        make_out(m);
    }

    make_text(m, TAG_ContourGeometricType, "%s",
              c->type ? c->type : "CLOSED_PLANAR");
    make_text(m, TAG_NumberOfContourPoints, "%d",
              c->said ? c->said : c->points);
    if (c->text)
        make_text(m, TAG_ContourData, "1\\2\\x");
    else
        make_numbers(m, TAG_ContourData, mm, 3 * c->points);
    make_item_end(m);
    free(mm);
}

void make_set(const MadeSet *set, const char *path)
{
    Make m;
    make_begin(&m, CLASS_STRUCTURE, "2.25.77", set->image);
    make_text(&m, TAG_Modality, "RTSTRUCT");
    make_text(&m, TAG_SeriesDescription, "regions");
    make_text(&m, TAG_StructureSetLabel, "made");

    if (set->series) {
        make_in(&m, TAG_ReferencedFrameOfReferenceSequence);
        make_in(&m, TAG_RTReferencedStudySequence);
        make_in(&m, TAG_RTReferencedSeriesSequence);
        make_text(&m, TAG_SeriesInstanceUID, "%s", set->series);
        make_out(&m);
        make_out(&m);
        make_out(&m);
    }

    make_open(&m, TAG_StructureSetROISequence);
    for (int i = 0; i < set->regions; i++) {
        const MadeRegion *r = &set->region[i];
        make_item(&m);
        if (r->number) make_text(&m, TAG_ROINumber, "%d", r->number);
        make_text(&m, TAG_ReferencedFrameOfReferenceUID, "%s",
                  r->frame ? r->frame : set->image->frame_uid);
        make_text(&m, TAG_ROIName, "%s", r->name);
        make_item_end(&m);
    }

    make_close(&m);
    make_open(&m, TAG_ROIContourSequence);

    for (int i = set->regions - 1; i >= 0; i--) {
        const MadeRegion *r = &set->region[i];
        make_item(&m);
        make_open(&m, TAG_ContourSequence);
        for (int k = 0; k < r->contours; k++)
            put_contour(&m, set, &r->contour[k]);
        make_close(&m);
        make_text(&m, TAG_ReferencedROINumber, "%d",
                  r->drawn_as ? r->drawn_as : r->number);
        make_item_end(&m);
    }

    make_close(&m);
    make_save(&m, path);
}
