/* image_type.c -- see image_type.h. Vendor elements are used as dcm2niix
 * (nii_dicom.cpp) documents them; private elements count only after their
 * creator. Elements that are not in the table of tag.h have numbers here, so
 * that no file is refused for their VR. */
#include "data/dicom/image_type.h"
#include <stdio.h>
#include <string.h>

enum {
    VOLUME_CALCULATION = 0x00089207, // VolumeBasedCalculationTechnique
    FRAME_TIME = 0x00181063,
    FRAME_TIME_VECTOR = 0x00181065,
    ACQUISITION_MATRIX = 0x00181310,
    SLICE_VECTOR = 0x00540080,
};

#define AS_PICTURES                                                            \
    "dcm2pnm +on2 (JPEG: dcmj2pnm +on2) makes a PNG of it, which data.images " \
    "reads"

// Is `text` one of the values of a CS, which are separated by backslashes?
static bool has_value(const Walk *w, const WalkElement *e, const char *text)
{
    const char *p = e ? (const char *)w->bytes + e->offset : NULL;
    size_t n = e ? e->length : 0, wanted = strlen(text);

    while (n) {
        const char *bar = memchr(p, '\\', n);
        size_t piece = bar ? (size_t)(bar - p) : n;
        size_t kept = walk_unpadded(p, piece);
        const char *from = p;
        while (kept && *from == ' ') from++, kept--;
        if (kept == wanted && !memcmp(from, text, kept)) return true;
        if (!bar) return false;
        p += piece + 1, n -= piece + 1;
    }
    return false;
}

// the first of `texts` that is a value of ImageType; NULL: none
static const char *type_word(const Walk *w, const char *const *texts)
{
    const WalkElement *e = walk_find(w, WALK_ROOT, TAG_ImageType);
    for (; *texts; texts++)
        if (has_value(w, e, *texts)) return *texts;
    return NULL;
}

// Element `number` of the private block that `creator` has reserved in a group
// (PS3.5 7.8.1); creator NULL: of any block.
static const WalkElement *find_private(const Walk *w, uint32_t group,
                                       const char *creator, uint32_t number)
{
    for (uint32_t block = 0x10; block <= 0xFF; block++) {
        const WalkElement *e = walk_find(w, WALK_ROOT, group << 16 | block);
        if (!e || (creator && !group_says(w, e, creator))) continue;
        e = walk_find(w, WALK_ROOT, group << 16 | block << 8 | number);
        if (e) return e;
    }
    return NULL;
}

// The number of tiles in the picture according to vendor elements; 0: unknown.
static int tiles_said(const Walk *w)
{
    // NumberOfImagesInMosaic, US
    const WalkElement *e = find_private(w, 0x0019, "SIEMENS MR HEADER", 0x0A);
    if (e && e->length == 2)
        return number_u16(w->bytes + e->offset, w->big_endian);

    // for UIH, a DS; dcm2niix recognises the maker by its name
    const WalkElement *maker = walk_find(w, WALK_ROOT, TAG_Manufacturer);
    double n = 0;
    e = maker && maker->length >= 3 &&
                !memcmp(w->bytes + maker->offset, "UIH", 3)
            ? find_private(w, 0x0065, NULL, 0x50)
            : NULL;
    if (e && header_decimal((const char *)w->bytes + e->offset, e->length, &n))
        return n > 0 && n < 65536 ? (int)n : 0;
    return 0;
}

// Is the picture no larger than the acquisition matrix, so that it is one
// slice?
static bool is_one_tile(const Walk *w, const DicomHeader *h)
{
    const WalkElement *e = walk_find(w, WALK_ROOT, ACQUISITION_MATRIX);
    int32_t most = 0;
    for (size_t i = 0; e && i + 2 <= e->length && i < 8; i += 2) {
        int32_t n = number_u16(w->bytes + e->offset + i, w->big_endian);
        if (n > most) most = n;
    }
    return h->rows <= most && h->cols <= most;
}

// Refuses tiles of one picture. An enhanced image may carry the word without
// tiles.
static bool check_tiles(const Walk *w, const DicomHeader *h)
{
    static const char *const words[] = {"MOSAIC", "VFRAME", NULL};
    if (h->frames > 1 || dicom_class_enhanced(h->sop_class)) return true;
    int tiles = tiles_said(w);
    const char *word = type_word(w, words);

    // Anonymisation removes private elements, and tools that split a mosaic
    // keep them. A picture of the size of AcquisitionMatrix is one tile.
    if (tiles == 1 || (!tiles && !word) || is_one_tile(w, h)) return true;
    char number[24] = "several";
    if (tiles) snprintf(number, sizeof number, "%d", tiles);
    return dicom_fail(
        w->path, TAG_ImageType,
        "convert the series with dcm2niix, then data.nifti",
        "%s slices are tiles of one picture of %d x %d pixels%s%s", number,
        h->cols, h->rows, word ? ": ImageType says " : "", word ? word : "");
}

// SOP classes of projection radiographs
static bool is_radiograph(const char *uid)
{
    static const char *const classes[] = {
        "1.2.840.10008.5.1.4.1.1.1",     // CR
        "1.2.840.10008.5.1.4.1.1.1.1",   // DX, for presentation
        "1.2.840.10008.5.1.4.1.1.1.1.1", // DX, for processing
        "1.2.840.10008.5.1.4.1.1.1.2",   // mammography
        "1.2.840.10008.5.1.4.1.1.1.2.1", "1.2.840.10008.5.1.4.1.1.1.3", // IO
        "1.2.840.10008.5.1.4.1.1.1.3.1"};
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++)
        if (!strcmp(uid, classes[i])) return true;
    return false;
}

// A localizer of CT: value 3 of ImageType (PS3.3 C.8.2.1.1.1). It is never
// axial, so an axial slice with the word is a wrongly labelled slice.
static bool is_localizer(const Walk *w, const DicomHeader *h)
{
    static const char *const words[] = {"LOCALIZER", NULL};
    const double *o = h->orientation;
    double along_z = o[0] * o[4] - o[1] * o[3];
    return !strcmp(h->modality, "CT") && type_word(w, words) &&
           !(along_z > 0.5 || along_z < -0.5);
}

bool image_type_check(const Walk *w, const DicomHeader *h, const char *where,
                      DicomNotes *notes)
{
    static const char *const screens[] = {"SCREEN SAVE",  "SCREEN_SAVE",
                                          "SCREENSAVE",   "SCREEN CAPTURE",
                                          "CT_SOM5 PROT", NULL};
    static const char *const projected[] = {"PROJECTION IMAGE", "MIP", "MNIP",
                                            "MINIP", NULL};
    if (!check_tiles(w, h)) return false;
    const char *word = type_word(w, screens);

    if (word)
        return dicom_fail(w->path, TAG_ImageType,
                          "leave it out; as a picture: " AS_PICTURES,
                          "a picture of a screen, not a slice: ImageType says "
                          "%s",
                          word);

    if (h->has_orientation && is_localizer(w, h) &&
        !dicom_note(notes, true, where, TAG_ImageType,
                    "LOCALIZER: a projection, not a slice"))
        return false;
    if (is_radiograph(h->sop_class) &&
        !dicom_note(notes, true, where, TAG_SOPClassUID,
                    "a radiograph (%.16s): a projection, not a slice",
                    h->modality))
        return false;

    const WalkElement *e = walk_find(w, WALK_ROOT, VOLUME_CALCULATION);
    word = type_word(w, projected);
    if (!word && has_value(w, e, "MAX_IP")) word = "MAX_IP";
    if (!word && has_value(w, e, "MIN_IP")) word = "MIN_IP";
    return !word ||
           dicom_note(notes, true, where, TAG_ImageType,
                      "%s: each slice is a projection of several", word);
}

// are frames indexed by this element?
static bool counts_by(const Walk *w, uint32_t tag)
{
    const WalkElement *e = walk_find(w, WALK_ROOT, TAG_FrameIncrementPointer);
    for (size_t i = 0; e && i + 4 <= e->length; i += 4) {
        const uint8_t *p = w->bytes + e->offset + i;
        if (((uint32_t)number_u16(p, w->big_endian) << 16 |
             number_u16(p + 2, w->big_endian)) == tag)
            return true;
    }
    return false;
}

// the kind of picture of a modality without slices; NULL: it has slices
static const char *shown_by(const DicomHeader *h)
{
    static const struct {
        const char *modality, *what;
    } kinds[] = {
        {"CR", "a projection"}, {"DX", "a projection"}, {"MG", "a projection"},
        {"IO", "a projection"}, {"PX", "a projection"}, {"RG", "a projection"},
        {"RF", "a projection"}, {"XA", "a projection"}, {"NM", "a projection"},
        {"US", "a picture"},    {"IVUS", "a picture"},  {"ES", "a picture"},
        {"XC", "a picture"},    {"GM", "a picture"},    {"SM", "a picture"},
        {"OP", "a picture"},    {"OPT", "a picture"},   {"ECG", "a picture"},
    };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (!strcmp(h->modality, kinds[i].modality)) return kinds[i].what;
    if (is_radiograph(h->sop_class)) return "a projection";
    static const char capture[] = "1.2.840.10008.5.1.4.1.1.7";
    return strncmp(h->sop_class, capture, sizeof capture - 1)
               ? NULL
               : "a secondary capture";
}

bool image_frames_unplaced(const Walk *w, const DicomHeader *h)
{
    const char *what = shown_by(h);
    if (counts_by(w, SLICE_VECTOR))
        return dicom_fail(w->path, TAG_FrameIncrementPointer,
                          "save it as NIfTI, with SimpleITK or 3D Slicer, "
                          "which know where its slices lie",
                          "%d frames of NM, whose slices are not placed by "
                          "frame",
                          h->frames);

    if (counts_by(w, FRAME_TIME) || counts_by(w, FRAME_TIME_VECTOR))
        return dicom_fail(w->path, TAG_FrameIncrementPointer,
                          "dcm2pnm +Fa +on2 makes a PNG of each frame, which "
                          "data.images reads",
                          "%d frames in time (%.16s), not slices of a volume",
                          h->frames, h->modality);

    if (what)
        return dicom_fail(w->path, TAG_PerFrameFunctionalGroupsSequence,
                          "dcm2pnm +Fa +on2 makes a PNG of each frame, which "
                          "data.images reads",
                          "%d frames without a position: %.16s is %s, not read "
                          "as a volume",
                          h->frames, h->modality, what);
    return group_unplaced(w, TAG_PerFrameFunctionalGroupsSequence);
}

bool image_unoriented(const DicomHeader *h)
{
    const char *what = shown_by(h);
    if (!what)
        return dicom_fail(h->path, TAG_ImageOrientationPatient, NULL,
                          "ImageOrientationPatient missing");
    return dicom_fail(h->path, TAG_ImageOrientationPatient, AS_PICTURES,
                      "ImageOrientationPatient missing: %s (%.16s), which is "
                      "not read as a volume",
                      what, *h->modality ? h->modality : "no modality");
}
