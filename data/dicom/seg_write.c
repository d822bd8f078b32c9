/* seg_write.c -- writes a mask, or the probabilities from which it was made, as
 * a DICOM segmentation object of the series on which it was drawn: same
 * patient, study, frame of reference and planes.
 *
 * The file is described module by module as a list of elements, which DCMTK
 * sorts by tag. It does not depend on the clock or the machine: the same mask
 * of the same series gives the same file. It is marked AUTOMATIC and "research
 * use only". */
#include "data/dicom/elements.h"
#include "data/dicom/file.h"
#include "data/dicom/load.h"
#include "data/dicom/patient.h"
#include "data/dicom/text.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

// WHOLE is the stored value of 1 in a fractional segmentation
enum { SEGMENTS = 255, WHOLE = 255 };

// the inputs of all parts of the file
typedef struct SegWriter {
    Elements list;
    const Volume *mask; // labels (U8), or fractions (F32)
    bool fractional;
    int32_t first; // for fractions: the channel of segment 1
    const char *const *names;
    int32_t count;
    int32_t beyond_ascii; // number of the first segment with such a name; 0:
                          // none
    const DicomSeries *source;
    const DicomHeader *slices;
    const Grid *grid;
    int32_t frames;
    int32_t *segment, *slice; // of each frame; segments from 1
    char series[UID_TEXT], instance[UID_TEXT], organization[UID_TEXT];
} SegWriter;

// Codes of segment names that recipes use; all others are "Tissue".
static const struct {
    const char *name;
    const char *category, *category_text, *type, *type_text;
} codes[] = {
    {"tumour", "49755003", "Morphologically Abnormal Structure", "108369006",
     "Neoplasm"},
    {"tumor", "49755003", "Morphologically Abnormal Structure", "108369006",
     "Neoplasm"},
    {"lesion", "49755003", "Morphologically Abnormal Structure", "52988006",
     "Lesion"},
    {"oedema", "49755003", "Morphologically Abnormal Structure", "79654002",
     "Edema"},
    {"edema", "49755003", "Morphologically Abnormal Structure", "79654002",
     "Edema"},
    {"brain", "123037004", "Anatomical Structure", "12738006", "Brain"},
    {"hippocampus", "123037004", "Anatomical Structure", "89202009",
     "Hippocampus"},
    {"", "85756007", "Tissue", "85756007", "Tissue"},
};

// writes the general modules of a segmentation: its maker, its series, and the
// list of all slices of the source
static void put_document(SegWriter *s)
{
    Elements *l = &s->list;
    char uid[UID_TEXT], key[UID_TEXT + 8];
    elements_put(l, TAG_ImageType, "DERIVED\\PRIMARY");
    elements_put(l, TAG_SOPClassUID, CLASS_SEG);
    elements_put(l, TAG_SOPInstanceUID, "%s", s->instance);

    // no clock: the same mask of the same series gives the same file
    elements_put(l, TAG_ContentDate, "19700101");
    elements_put(l, TAG_ContentTime, "000000");
    elements_put(l, TAG_Modality, "SEG");
    elements_put(l, TAG_Manufacturer, "segengine");
    elements_put(l, TAG_ManufacturerModelName, "segengine");
    elements_put(l, TAG_DeviceSerialNumber, "0");
    elements_put(l, TAG_SoftwareVersions, "segengine");
    elements_put(l, TAG_SeriesDescription, "%s, research use only",
                 s->fractional ? "probabilities" : "segmentation");
    elements_put(l, TAG_SeriesInstanceUID, "%s", s->series);

    // after the series of the study, with a range of a thousand for each kind
    const int32_t number = s->source->number < 1000000 ? s->source->number : 0;
    elements_put(l, TAG_SeriesNumber, "%d",
                 number + (s->fractional ? 2000 : 1000));
    elements_put(l, TAG_InstanceNumber, "1");
    elements_put(l, TAG_ContentLabel, "SEGMENTATION");
    elements_put(l, TAG_ContentDescription, "by segengine, research use only");
    elements_put(l, TAG_ContentCreatorName, "segengine^segengine");

    // a source without one still needs a common frame for image and mask
    if (!*s->slices->frame_uid) {
        snprintf(key, sizeof key, "frame|%s", s->source->series_uid);
        elements_put(l, TAG_FrameOfReferenceUID, "%s", uid_from(key, uid));
    }

    // references to all slices, also those without a voxel: they identify the
    // image on which the mask was drawn
    elements_open(l, TAG_ReferencedSeriesSequence);
    elements_item(l);
    elements_put(l, TAG_SeriesInstanceUID, "%s", s->source->series_uid);
    elements_open(l, TAG_ReferencedInstanceSequence);

    for (int32_t k = 0; k < s->grid->d; k++) {
        // the frames of a multi-frame image are one instance
        if (k && s->slices[k].path == s->slices[k - 1].path) continue;
        elements_item(l);
        elements_put(l, TAG_ReferencedSOPClassUID, "%s",
                     s->slices[k].sop_class);
        elements_put(l, TAG_ReferencedSOPInstanceUID, "%s",
                     s->slices[k].sop_uid);
        elements_close(l);
    }
    elements_close(l);
}

// writes the dimensions that index frames, first the segment, then the
// position; viewers sort frames by index
static void put_dimensions(SegWriter *s)
{
    static const struct {
        const char *index, *group, *label;
    } axes[] = {
        {"(0062,000b)", "(0062,000a)", "ReferencedSegmentNumber"},
        {"(0020,0032)", "(0020,9113)", "ImagePositionPatient"},
    };
    Elements *l = &s->list;
    elements_open(l, TAG_DimensionOrganizationSequence);
    elements_item(l);
    elements_put(l, TAG_DimensionOrganizationUID, "%s", s->organization);
    elements_close(l);
    elements_open(l, TAG_DimensionIndexSequence);

    for (int i = 0; i < 2; i++) {
        elements_item(l);
        elements_put(l, TAG_DimensionOrganizationUID, "%s", s->organization);
        elements_put(l, TAG_DimensionIndexPointer, "%s", axes[i].index);
        elements_put(l, TAG_FunctionalGroupPointer, "%s", axes[i].group);
        elements_put(l, TAG_DimensionDescriptionLabel, "%s", axes[i].label);
        elements_close(l);
    }
}

// one item for each name, numbered from 1
static void put_segments(SegWriter *s)
{
    Elements *l = &s->list;
    elements_put(l, TAG_SegmentationType,
                 s->fractional ? "FRACTIONAL" : "BINARY");
    if (s->fractional) {
        elements_put(l, TAG_SegmentationFractionalType, "PROBABILITY");
        elements_put(l, TAG_MaximumFractionalValue, "%d", WHOLE);
    }
    elements_open(l, TAG_SegmentSequence);

    for (int32_t i = 0; i < s->count; i++) {
        // the last entry has no name and matches all others
        size_t c = 0;
        while (*codes[c].name && strcmp(codes[c].name, s->names[i])) c++;
        elements_item(l);
        elements_code(l, TAG_SegmentedPropertyCategoryCodeSequence,
                      codes[c].category, "SCT", codes[c].category_text);
        elements_put(l, TAG_SegmentNumber, "%d", i + 1);
        elements_put(l, TAG_SegmentLabel, "%s", s->names[i]);
        elements_put(l, TAG_SegmentAlgorithmType, "AUTOMATIC");
        elements_put(l, TAG_SegmentAlgorithmName, "segengine");
        elements_code(l, TAG_SegmentedPropertyTypeCodeSequence, codes[c].type,
                      "SCT", codes[c].type_text);
        elements_close(l);
    }
}

// bits per voxel of the two kinds of segmentation
static int bits_of(const SegWriter *s)
{
    return s->fractional ? 8 : 1;
}

static void put_pixel_module(SegWriter *s)
{
    Elements *l = &s->list;
    elements_put(l, TAG_SamplesPerPixel, "1");
    elements_put(l, TAG_PhotometricInterpretation, "MONOCHROME2");
    elements_put(l, TAG_NumberOfFrames, "%d", s->frames);
    elements_put(l, TAG_Rows, "%d", s->grid->h);
    elements_put(l, TAG_Columns, "%d", s->grid->w);
    elements_put(l, TAG_BitsAllocated, "%d", bits_of(s));
    elements_put(l, TAG_BitsStored, "%d", bits_of(s));
    elements_put(l, TAG_HighBit, "%d", bits_of(s) - 1);
    elements_put(l, TAG_PixelRepresentation, "0");
    elements_put(l, TAG_LossyImageCompression, "00");
}

// writes the attributes shared by all frames: direction and spacing. The
// thickness is the slice distance, so that frames are read as a solid.
static void put_shared(SegWriter *s)
{
    Elements *l = &s->list;
    // along the normal, as SpacingBetweenSlices is defined (PS3.3 C.7.6.2.1):
    // slices of a tilted stack are farther apart
    double step = 0, normal[3];

    stack_normal(s->slices->orientation, normal);
    for (int a = 0; a < 3; a++) step += s->grid->affine[a][2] * normal[a];
    step = fabs(step);
    elements_open(l, TAG_SharedFunctionalGroupsSequence);
    elements_item(l);
    elements_open(l, TAG_PlaneOrientationSequence);
    elements_item(l);
    elements_decimals(l, TAG_ImageOrientationPatient, s->slices->orientation,
                      6);
    elements_close(l);
    elements_open(l, TAG_PixelMeasuresSequence);
    elements_item(l);
    elements_decimals(l, TAG_SliceThickness, &step, 1);
    elements_decimals(l, TAG_SpacingBetweenSlices, &step, 1);
    elements_decimals(l, TAG_PixelSpacing, s->slices->spacing_mm, 2);
    elements_close(l);
    elements_close(l);
}

// one item per frame: its source slice, its index, its position, its segment
static void put_frames(SegWriter *s)
{
    Elements *l = &s->list;
    elements_open(l, TAG_PerFrameFunctionalGroupsSequence);

    for (int32_t i = 0; i < s->frames; i++) {
        const DicomHeader *h = &s->slices[s->slice[i]];
        elements_item(l);
        elements_open(l, TAG_DerivationImageSequence);
        elements_item(l);
        elements_open(l, TAG_SourceImageSequence);
        elements_item(l);
        elements_put(l, TAG_ReferencedSOPClassUID, "%s", h->sop_class);
        elements_put(l, TAG_ReferencedSOPInstanceUID, "%s", h->sop_uid);
        if (h->frames > 1)
            elements_put(l, TAG_ReferencedFrameNumber, "%d", h->frame + 1);
        // the pixels coincide with those of that slice: readers that open a
        // segmentation by the instances of its image require this
        elements_put(l, TAG_SpatialLocationsPreserved, "YES");
        elements_code(l, TAG_PurposeOfReferenceCodeSequence, "121322", "DCM",
                      "Source image for image processing operation");
        elements_close(l);
        elements_code(l, TAG_DerivationCodeSequence, "113076", "DCM",
                      "Segmentation");
        elements_close(l);
        elements_open(l, TAG_FrameContentSequence);
        elements_item(l);
        elements_put(l, TAG_StackID, "1");
        elements_put(l, TAG_InStackPositionNumber, "%d", s->slice[i] + 1);
        elements_put(l, TAG_DimensionIndexValues, "%d\\%d", s->segment[i],
                     s->slice[i] + 1);
        elements_close(l);
        elements_open(l, TAG_PlanePositionSequence);
        elements_item(l);
        elements_decimals(l, TAG_ImagePositionPatient, h->position_mm, 3);
        elements_close(l);
        elements_open(l, TAG_SegmentIdentificationSequence);
        elements_item(l);
        elements_put(l, TAG_ReferencedSegmentNumber, "%d", s->segment[i]);
        elements_close(l);
        elements_close(l);
    }
}

// the stored value of voxel `at` (over all slices) for a segment
static uint8_t stored_at(const SegWriter *s, int32_t segment, size_t at)
{
    if (!s->fractional)
        return ((const uint8_t *)s->mask->voxels.data)[at] == segment;
    const float *x = s->mask->voxels.data;
    float v = x[at * (size_t)s->mask->voxels.dim.c +
                (size_t)(s->first + segment - 1)];
    // rounding may move a weighted sum outside the range
    return (uint8_t)lrintf(WHOLE * fminf(fmaxf(v, 0), 1));
}

// Checks names as segment labels. ASCII is the same in every character set; for
// other letters the file is written in UTF-8.
static bool check_names(SegWriter *s, const char *path)
{
    for (int32_t i = s->count; i; i--) {
        const char *name = s->names[i - 1];
        if (!text_is_ascii(name, strlen(name))) s->beyond_ascii = i;
    }
    for (int32_t i = 0; i < s->count; i++)
        if (!segment_name_check(s->names[i], strlen(s->names[i]), i + 1))
            return within("%s: dicom", path);
    return true;
}

// every label must have a name, and fractions must be in range
static bool check_voxels(const SegWriter *s, const char *path)
{
    static const float slack = 1e-4f;
    const size_t n = (size_t)positions(s->mask->voxels.dim);
    const uint8_t *labels = s->mask->voxels.data;

    for (size_t i = 0; !s->fractional && i < n; i++)
        if (labels[i] > s->count)
            return fail("%s: dicom: label %d, but %d segments are named", path,
                        labels[i], s->count);
    const float *x = s->mask->voxels.data;
    const size_t c = (size_t)s->mask->voxels.dim.c, from = (size_t)s->first;

    for (size_t i = 0; s->fractional && i < n; i++)
        for (size_t k = from; k < from + (size_t)s->count; k++)
            // written so that NaN is refused
            if (!(x[i * c + k] >= -slack && x[i * c + k] <= 1 + slack))
                return fail("%s: dicom: a fraction of segment \"%.64s\" is %g, "
                            "need 0 to 1",
                            path, s->names[k - from], (double)x[i * c + k]);
    return true;
}

// Lists the frames: slices of a segment with a voxel, and one empty frame for a
// segment without any, because the standard requires its description.
static bool find_frames(SegWriter *s)
{
    const uint8_t *labels = s->mask->voxels.data;
    size_t plane = (size_t)s->grid->h * (size_t)s->grid->w;
    // every slice of every segment; `there` marks (segment, slice)
    size_t depth = (size_t)s->grid->d, most = depth * (size_t)s->count;

    s->segment = ARENA_NEW(&s->list.arena, int32_t, most);
    s->slice = ARENA_NEW(&s->list.arena, int32_t, most);
    bool *there = ARENA_NEW(&s->list.arena, bool, most);
    if (!s->segment || !s->slice || !there) return false;

    for (size_t i = 0; i < depth * plane; i++) {
        if (!s->fractional && labels[i])
            there[(size_t)(labels[i] - 1) * depth + i / plane] = true;
        for (int32_t n = 0; s->fractional && n < s->count; n++)
            if (stored_at(s, n + 1, i))
                there[(size_t)n * depth + i / plane] = true;
    }

    for (int32_t n = 0; n < s->count; n++) {
        int32_t before = s->frames;
        for (int32_t k = 0; k < s->grid->d; k++)
            if (there[(size_t)n * depth + (size_t)k]) {
                s->segment[s->frames] = n + 1;
                s->slice[s->frames++] = k;
            }
        // slice 0, without a voxel set
        if (s->frames == before) s->segment[s->frames++] = n + 1;
    }
    return true;
}

// Frames follow without gaps: a byte per voxel, or one bit, lowest first.
static uint8_t *pack_frames(SegWriter *s, size_t *bytes)
{
    size_t plane = (size_t)s->grid->h * (size_t)s->grid->w, voxels;
    if (!size_mul(plane, (size_t)s->frames, &voxels)) return NULL;
    *bytes = s->fractional ? voxels : (voxels + 7) / 8;
    uint8_t *out = arena_alloc(&s->list.arena, *bytes);

    for (int32_t f = 0; out && f < s->frames; f++) {
        const size_t from = (size_t)s->slice[f] * plane;
        // a frame begins at the bit after the frame before
        size_t at = (size_t)f * plane;
        for (size_t i = 0; i < plane; i++, at++) {
            const uint8_t v = stored_at(s, s->segment[f], from + i);
            if (s->fractional)
                out[at] = v;
            else
                out[at / 8] |= (uint8_t)(v << at % 8);
        }
    }
    return out;
}

// the UIDs are functions of the contents of the file
static void name_file(SegWriter *s)
{
    int64_t n = positions(s->mask->voxels.dim);
    // FNV-1a over labels (or the bytes of fractions) and names
    uint64_t h = 0xCBF29CE484222325u;
    const uint8_t *labels = s->mask->voxels.data;

    for (int64_t i = 0; !s->fractional && i < n; i++)
        h = (h ^ labels[i]) * 0x100000001B3u;
    for (int32_t k = 1; s->fractional && k <= s->count; k++)
        for (int64_t i = 0; i < n; i++)
            h = (h ^ stored_at(s, k, (size_t)i)) * 0x100000001B3u;
    for (int32_t i = 0; i < s->count; i++)
        for (const char *p = s->names[i]; *p; p++)
            h = (h ^ (unsigned char)*p) * 0x100000001B3u;
    static const char *const kinds[] = {"series", "instance", "organization"};
    char *const uids[] = {s->series, s->instance, s->organization};

    for (int i = 0; i < 3; i++) {
        char key[256];
        snprintf(key, sizeof key, "%s-%s|%.100s|%016llx|%d",
                 s->fractional ? "fractions" : "seg", kinds[i],
                 s->source->series_uid, (unsigned long long)h, s->count);
        uid_from(key, uids[i]);
    }
}

// Brings the voxels onto the slices of the source, which are those of
// dicom_load except for a tilted stack: that was straightened and is resampled
// into *back, labels by nearest neighbour (the two grids differ within the
// planes only), fractions linearly.
static bool on_slices(SegWriter *s, const DicomStack *stack, const char *path,
                      Volume *back)
{
    const Volume on = volume_of_grid(&stack->grid);
    if (volume_same_grid(&on, s->mask)) return true;
    const Grid straight = load_straight_grid(stack);
    const Volume level = volume_of_grid(&straight);
    if (!load_is_tilted(stack) || !volume_same_grid(&level, s->mask))
        return within("%s: dicom: mask is not on the grid of %s", path,
                      s->source->folder);
    if (!volume_resample(s->mask, &stack->grid,
                         s->fractional ? LINEAR : NEAREST, 0, back))
        return false;
    s->mask = back;
    return true;
}

// writes the file for the inputs in *s
static bool write_seg(SegWriter *s, const char *path)
{
    CHECK(s->count >= 1 && s->count <= SEGMENTS);
    if (!check_names(s, path)) return false;

    // the source is only used for the positions of its slices
    const DicomOptions loose = {.assume_hu = true,
                                .resample_tilt = true,
                                .assume_implicit_le = true,
                                .position_tolerance = MOST_POSITION_TOLERANCE};
    Volume back = {.unit = UNIT_NONE};
    Arena scratch = {0};
    DicomHeader *slices;
    DicomStack stack;
    bool ok = false;
    TRY(load_stack(s->source, &loose, &scratch, &slices, &stack, NULL));

    // both live until this function returns, as does the list
    s->slices = slices;
    s->grid = &stack.grid;
    TRY(check_voxels(s, path));
    TRY(on_slices(s, &stack, path, &back));
    TRY(find_frames(s));
    size_t bytes;
    const uint8_t *pixels = pack_frames(s, &bytes);
    TRY(pixels);
    name_file(s);
    TRY(patient_copy(&s->list, s->slices->path, s->beyond_ascii));
    put_document(s);
    put_dimensions(s);
    put_segments(s);
    put_pixel_module(s);
    put_shared(s);
    put_frames(s);
    CodecPixels form = {.syntax_uid = dicom_syntax_uid(DICOM_EXPLICIT_LE),
                        .rows = (uint16_t)stack.grid.h,
                        .cols = (uint16_t)stack.grid.w,
                        .allocated = (uint16_t)bits_of(s),
                        .stored = (uint16_t)bits_of(s),
                        .frames = s->frames};
    TRY(elements_write(&s->list, path, &form, pixels, bytes));
    ok = true;

done:
    volume_free(&back);
    elements_free(&s->list);
    arena_release(&scratch);
    return ok;
}

bool dicom_write_seg(const char *path, const Volume *mask,
                     const char *const *names, int32_t count,
                     const DicomSeries *source)
{
    CHECK(mask->voxels.type == U8);
    SegWriter s = {
        .mask = mask, .names = names, .count = count, .source = source};
    return write_seg(&s, path);
}

bool dicom_write_fractions(const char *path, const Volume *fractions,
                           int32_t first, const char *const *names,
                           int32_t count, const DicomSeries *source)
{
    CHECK(fractions->voxels.type == F32 && first >= 0 &&
          first + count <= fractions->voxels.dim.c);
    SegWriter s = {.mask = fractions,
                   .fractional = true,
                   .first = first,
                   .names = names,
                   .count = count,
                   .source = source};
    return write_seg(&s, path);
}
