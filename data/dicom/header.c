/* header.c -- reads and checks the numbers and texts of elements. Numbers are
 * parsed here because strtod follows the locale of the host program and accepts
 * "0x10", "inf" and trailing garbage. Rows are those of
 * tests/shell/defects.csv. */
#include "data/dicom/header.h"
#include "data/dicom/charset.h"
#include "data/dicom/text.h"
#include "data/dicom/units.h"
#include <math.h>
#include <string.h>

enum { MAX_FRAMES = 1 << 24, LONGEST_NUMBER = 1 << 16 };

// Parses sign, digits with at most one point, and exponent; mantissa and power
// of ten are combined at the end.
bool header_decimal(const char *text, size_t length, double *out)
{
    // the exponent counts digits in an int; no DS comes near this
    if (length > LONGEST_NUMBER) return false;
    size_t i = 0, end = walk_unpadded(text, length);
    while (i < end && text[i] == ' ') i++;
    bool minus = i < end && text[i] == '-';
    if (i < end && (text[i] == '-' || text[i] == '+')) i++;

    // The value is mantissa * 10^exponent. A digit after the point lowers the
    // exponent by one, a digit that no longer fits raises it: digits beyond 18
    // only move the point.
    uint64_t mantissa = 0;
    int exponent = 0, digits = 0;
    bool point = false;

    for (; i < end; i++) {
        if (text[i] == '.' && !point) {
            point = true;
            continue;
        }
        if (text[i] < '0' || text[i] > '9') break;
        digits++;
        if (mantissa < 100000000000000000u) {
            mantissa = 10 * mantissa + (uint64_t)(text[i] - '0');
            exponent -= point;
        } else {
            exponent += !point;
        }
    }

    if (!digits) return false;
    if (i < end && (text[i] == 'e' || text[i] == 'E')) {
        int e = 0, sign = 1;
        i++;
        if (i < end && (text[i] == '-' || text[i] == '+'))
            sign = text[i++] == '-' ? -1 : 1;
        if (i == end) return false;
        for (; i < end && text[i] >= '0' && text[i] <= '9'; i++)
            if (e < 10000) e = 10 * e + (text[i] - '0');
        exponent += sign * e;
    }

    if (i != end) return false;
    double v = (double)mantissa;

    // powers of ten up to 22 are exact, so one step rounds once
    while (exponent && v > 0 && v < HUGE_VAL) {
        int step = exponent > 22 ? 22 : exponent < -22 ? -22 : exponent;
        v = step > 0 ? v * pow(10, step) : v / pow(10, -step);
        exponent -= step;
    }

    *out = minus ? -v : v;
    return isfinite(v);
}

// The SpecificCharacterSet that applies to e, without padding, "" if there is
// none. An element that comes before it in the file is out of order.
static const char *charset_of(const Walk *w, const WalkElement *e,
                              char text[64])
{
    const WalkElement *set =
        e->charset == WALK_ROOT
            ? walk_find(w, WALK_ROOT, (uint32_t)TAG_SpecificCharacterSet)
            : &w->element[e->charset];
    const uint8_t *p = set ? w->bytes + set->offset : NULL;
    size_t n = walk_unpadded(p, set ? set->length : 0);
    if (n > 63) n = 63;
    if (n) memcpy(text, p, n);
    text[n] = 0;
    return text;
}

// VRs with characters of that set (PS3.5 6.1.2.3); all others are ASCII
static bool has_charset(const WalkElement *e)
{
    const DicomTag *t = dicom_tag(e->tag);
    const uint16_t vr = t ? t->vr : e->vr;
    return vr == VR('L', 'O') || vr == VR('S', 'H') || vr == VR('P', 'N') ||
           vr == VR('L', 'T') || vr == VR('S', 'T') || vr == VR('U', 'T');
}

bool header_odd_text(uint32_t tag, unsigned odd, const char *where,
                     DicomNotes *notes)
{
    static const struct {
        unsigned odd;
        const char *text;
    } kinds[] = {
        {CHARSET_UNDECLARED,
         "text beyond ASCII without a character set, taken for UTF-8 or "
         "ISO_IR 100"},
        {CHARSET_UNKNOWN, "text in an unknown character set, bytes shown as "
                          "\\xNN"},
        {CHARSET_DAMAGED,
         "text not in its character set, bytes shown as \\xNN"},
        {CHARSET_NO_CONVERTER,
         "text in a character set that this machine cannot convert (no iconv "
         "modules, package libc6 or glibc-gconv-extra), bytes shown as "
         "\\xNN"},
    };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if ((odd & kinds[i].odd) &&
            !dicom_note(notes, true, where, tag, "%s", kinds[i].text))
            return false;
    return true;
}

const char *header_text(const Walk *w, const WalkElement *e, Arena *arena,
                        unsigned *odd)
{
    size_t n = e ? e->length : 0;
    const uint8_t *p = e ? w->bytes + e->offset : NULL;
    // UIDs are padded with a zero, other texts with spaces; bytes after a zero
    // are not text
    const uint8_t *nul = n ? memchr(p, 0, n) : NULL;

    if (nul) n = (size_t)(nul - p);
    while (n && p[n - 1] == ' ') n--;
    while (n && *p == ' ') p++, n--;

    if (!text_is_ascii((const char *)p, n)) {
        char set[64];
        unsigned how;
        const char *utf8 =
            charset_utf8(arena, (const char *)p, n,
                         has_charset(e) ? charset_of(w, e, set) : "",
                         e->vr == VR('P', 'N'), &how);
        if (odd) *odd |= how;
        return utf8;
    }

    char *text = arena_alloc(arena, n + 1);
    if (!text) return NULL;
    for (size_t i = 0; i < n; i++)
        text[i] = p[i] < 32 || p[i] == 127 ? '?' : (char)p[i];
    return text;
}

// a part of a value for an error text: short and printable
static const char *shown(const uint8_t *p, size_t n, char text[24])
{
    // 20 bytes, three dots and the end
    size_t kept = n < 20 ? n : 20;
    for (size_t i = 0; i < kept; i++)
        text[i] = p[i] < 32 || p[i] > 126 ? '?' : (char)p[i];
    memcpy(text + kept, n > kept ? "..." : "", n > kept ? 4 : 1);
    return text;
}

// the value of SpecificCharacterSet for an error text
static const char *charset(const Walk *w, char text[24])
{
    const WalkElement *e =
        walk_find(w, WALK_ROOT, (uint32_t)TAG_SpecificCharacterSet);
    if (!e || !e->length) return "unknown";
    const uint8_t *p = w->bytes + e->offset;
    return shown(p, walk_unpadded(p, e->length), text);
}

// does the value have more than padding?
static bool filled(const Walk *w, const WalkElement *e)
{
    if (!e) return false;
    for (size_t i = 0; i < e->length; i++)
        if (w->bytes[e->offset + i] != ' ' && w->bytes[e->offset + i])
            return true;
    return false;
}

bool header_numbers(const Walk *w, const WalkElement *e, int count, double *out,
                    bool *found)
{
    *found = filled(w, e);
    if (!*found) return true;
    const uint8_t *p = w->bytes + e->offset;
    size_t n = e->length;
    char text[24];
    int values = 1;

    for (size_t i = 0; i < n; i++) {
        // bytes above 127, or an escape: a multi-byte character set, in which a
        // backslash may be half of a character
        values += p[i] == '\\';
        if (p[i] >= 128 || p[i] == 27)
            return dicom_fail(w->path, e->tag, NULL,
                              "character set %s in a number", charset(w, text));
    }

    if (values != count)
        return dicom_fail(w->path, e->tag, NULL, "%d values, need %d", values,
                          count);

    for (int i = 0; i < count; i++) {
        const uint8_t *bar = memchr(p, '\\', n);
        size_t piece = bar ? (size_t)(bar - p) : n;
        if (!header_decimal((const char *)p, piece, &out[i])) {
            return dicom_fail(w->path, e->tag, NULL,
                              "number \"%s\" not a decimal string",
                              shown(p, walk_unpadded(p, piece), text));
        }
        if (bar) n -= piece + 1, p += piece + 1;
    }
    return true;
}

bool header_position(const Walk *w, const WalkElement *e, double out[3],
                     bool *found)
{
    if (!header_numbers(w, e, 3, out, found)) return false;
    for (int a = 0; *found && a < 3; a++)
        if (!(fabs(out[a]) < HEADER_FARTHEST_MM))
            return dicom_fail(w->path, e->tag, NULL,
                              "position %g mm, need less than %g", out[a],
                              HEADER_FARTHEST_MM);
    return true;
}

// reads an optional IS
static bool whole(const Walk *w, uint32_t tag, int32_t *out, bool *found)
{
    double v = 0;
    const WalkElement *e = walk_find(w, WALK_ROOT, tag);
    if (!header_numbers(w, e, 1, &v, found)) return false;
    if (!*found) return true;
    char text[24];

    // IS holds whole numbers; some writers give them as 3.0, which is accepted
    if (v != floor(v) || fabs(v) > INT32_MAX)
        return dicom_fail(w->path, tag, NULL,
                          "number \"%s\" not a decimal string",
                          shown(w->bytes + e->offset, e->length, text));
    *out = (int32_t)v;
    return true;
}

bool header_u16(const Walk *w, const WalkElement *e, int32_t *out, bool *found)
{
    *found = e && e->length;
    if (!*found) return true;
    if (e->length != 2)
        return dicom_fail(w->path, e->tag, NULL, "%zu values, need 1",
                          e->length / 2);
    *out = number_u16(w->bytes + e->offset, w->big_endian);
    return true;
}

bool header_u32(const Walk *w, const WalkElement *e, uint32_t *out, bool *found)
{
    *found = e && e->length;
    if (!*found) return true;
    if (e->length != 4)
        return dicom_fail(w->path, e->tag, NULL, "%zu values, need 1",
                          e->length / 4);
    *out = number_u32(w->bytes + e->offset, w->big_endian);
    return true;
}

int header_values(const Walk *w, const WalkElement *e)
{
    if (!filled(w, e)) return 0;
    int n = 1;
    for (size_t i = 0; i < e->length; i++) n += w->bytes[e->offset + i] == '\\';
    return n;
}

// reads a text element of the data set into *out, "" if absent
static bool text_into(const Walk *w, uint32_t tag, Arena *arena, DicomHeader *h,
                      const char **out)
{
    unsigned odd = 0;
    *out = header_text(w, walk_find(w, WALK_ROOT, tag), arena, &odd);
    if (odd && !h->odd_text) h->odd_text_tag = tag;
    h->odd_text |= odd;
    return *out != NULL;
}

// finds the image from which this one was made, or to which it belongs
static bool find_reference(const Walk *w, Arena *arena, DicomHeader *h)
{
    static const int sequences[] = {TAG_ReferencedImageSequence,
                                    TAG_SourceImageSequence};

    // ReferencedImageSequence takes precedence
    h->reference = "";

    for (int i = 0; i < 2 && !*h->reference; i++) {
        const WalkElement *s = walk_find(w, WALK_ROOT, (uint32_t)sequences[i]);
        uint32_t item = s ? walk_item(w, s, 0) : WALK_ROOT;
        if (item == WALK_ROOT) continue;
        h->reference = header_text(
            w, walk_find(w, item, TAG_ReferencedSOPInstanceUID), arena, NULL);
        if (!h->reference) return false;
    }
    return true;
}

// Runs on every file of a scan: reads the attributes for grouping and sorting,
// and checks only that numbers are numbers.
bool header_identity(const Walk *w, Arena *arena, DicomHeader *h)
{
    *h = (DicomHeader){.path = w->path,
                       .slope = 1,
                       .frames = 1,
                       .has_pixels = w->pixels != WALK_ROOT,
                       .transfer = w->transfer};
    memcpy(h->syntax, w->syntax, sizeof h->syntax);
    const struct {
        int tag;
        const char **out;
    } texts[] = {
        {TAG_PatientID, &h->patient_id},
        {TAG_StudyInstanceUID, &h->study_uid},
        {TAG_SeriesInstanceUID, &h->series_uid},
        {TAG_SOPInstanceUID, &h->sop_uid},
        {TAG_SOPClassUID, &h->sop_class},
        {TAG_FrameOfReferenceUID, &h->frame_uid},
        {TAG_SeriesDescription, &h->description},
        {TAG_Modality, &h->modality},
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (!text_into(w, (uint32_t)texts[i].tag, arena, h, texts[i].out))
            return false;

    // a structure set has the frame of reference in a sequence
    if (!*h->frame_uid && !strcmp(h->sop_class, CLASS_STRUCTURE)) {
        h->frame_uid = header_text(
            w,
            group_inside(w, WALK_ROOT, TAG_ReferencedFrameOfReferenceSequence,
                         TAG_FrameOfReferenceUID),
            arena, NULL);
        if (!h->frame_uid) return false;
    }

    bool found;
    const WalkElement *frames = walk_find(w, WALK_ROOT, TAG_NumberOfFrames);
    double n = 1;
    char text[24];

    if (filled(w, frames) &&
        (!header_decimal((const char *)w->bytes + frames->offset,
                         frames->length, &n) ||
         n != floor(n) || n < 1 || n > MAX_FRAMES)) {
        const uint8_t *p = w->bytes + frames->offset;
        size_t length = frames->length;
        while (length && p[length - 1] <= ' ') length--;
        return dicom_fail(w->path, TAG_NumberOfFrames, NULL,
                          "NumberOfFrames \"%s\" is not a number from 1 to %d",
                          shown(p, length, text), MAX_FRAMES);
    }

    h->frames = (int32_t)n;
    return whole(w, TAG_SeriesNumber, &h->number, &found) &&
           whole(w, TAG_InstanceNumber, &h->instance, &h->has_instance) &&
           header_u16(w, walk_find(w, WALK_ROOT, TAG_Rows), &h->rows, &found) &&
           header_u16(w, walk_find(w, WALK_ROOT, TAG_Columns), &h->cols,
                      &found) &&
           find_reference(w, arena, h);
}

// all zero: the defaults of dicom.h
static const DicomOptions strict;

// Reads PixelPaddingValue, one US or SS, signed like the pixels; by number, so
// that no file is refused for its VR.
static void read_padding(const Walk *w, DicomHeader *h)
{
    const WalkElement *e = walk_find(w, WALK_ROOT, 0x00280120);
    h->has_padding = e && e->length == 2;
    if (!h->has_padding) return;
    int32_t v = number_u16(w->bytes + e->offset, w->big_endian);
    h->padding = h->is_signed && v > INT16_MAX ? v - 65536 : v;
}

// rows 31 to 41: how pixels are stored
bool header_pixels(const Walk *w, const DicomOptions *options,
                   bool segmentation, const char *where, DicomHeader *h,
                   DicomNotes *notes)
{
    const DicomOptions *o = options ? options : &strict;
    const char *path = w->path;
    if (!h->has_pixels)
        return dicom_fail(path, TAG_SOPClassUID, NULL, "not an image (%s)",
                          dicom_class_name(h->sop_class));
    if (!header_odd_text(h->odd_text_tag, h->odd_text, where, notes))
        return false;
    int32_t sign = 0;

    // SamplesPerPixel may be absent in old files
    h->samples = 1;
    const struct {
        int tag;
        int32_t *out;
    } numbers[] = {
        {TAG_SamplesPerPixel, &h->samples}, {TAG_BitsAllocated, &h->allocated},
        {TAG_BitsStored, &h->stored},       {TAG_HighBit, &h->high},
        {TAG_PixelRepresentation, &sign},
    };
    bool found;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (!header_u16(w, walk_find(w, WALK_ROOT, (uint32_t)numbers[i].tag),
                        numbers[i].out, &found))
            return false;
    if (!h->rows || !h->cols)
        return dicom_fail(path, h->rows ? TAG_Columns : TAG_Rows, NULL,
                          "Rows or Columns is 0");
    int64_t limit = o->max_voxels ? o->max_voxels : (int64_t)1 << 33;
    // two factors of at most 2^16 and 2^24 * 2^16: no product overflows
    int64_t plane = (int64_t)h->rows * h->cols;
    int64_t deep = (int64_t)h->frames * h->samples;
    if (deep && plane > limit / deep)
        return dicom_fail(path, TAG_Rows, NULL,
                          "%d x %d x %d x %d does not fit (limit %lld voxels)",
                          h->rows, h->cols, h->frames, h->samples,
                          (long long)limit);

    // binary segmentations are packed, images never
    bool one_bit = segmentation && h->allocated == 1;
    if (h->allocated != 8 && h->allocated != 16 && h->allocated != 32 &&
        !one_bit)
        return dicom_fail(path, TAG_BitsAllocated, NULL,
                          "BitsAllocated %d, need 8, 16 or 32", h->allocated);
    if (h->stored > h->allocated)
        return dicom_fail(path, TAG_BitsStored, NULL,
                          "BitsStored %d > BitsAllocated %d", h->stored,
                          h->allocated);
    if (h->high >= h->allocated)
        return dicom_fail(path, TAG_HighBit, NULL,
                          "HighBit %d >= BitsAllocated %d", h->high,
                          h->allocated);
    if (h->high != h->stored - 1)
        return dicom_fail(path, TAG_HighBit, NULL,
                          "HighBit %d, need BitsStored - 1", h->high);
    if (sign > 1)
        return dicom_fail(path, TAG_PixelRepresentation, NULL,
                          "PixelRepresentation %d, need 0 or 1", sign);
    const WalkElement *e =
        walk_find(w, WALK_ROOT, TAG_PhotometricInterpretation);
    const uint8_t *p = e ? w->bytes + e->offset : NULL;
    const size_t n = walk_unpadded(p, e ? e->length : 0);
    char text[24];
    static const char pictures[] = "dcm2pnm +on (JPEG: dcmj2pnm +on) makes a "
                                   "PNG of it, which data.images reads";
    if (h->samples != 1)
        return dicom_fail(path, TAG_SamplesPerPixel, pictures,
                          "colour is not read from DICOM: %d samples per pixel "
                          "(%s)",
                          h->samples, n ? shown(p, n, text) : "no photometric");

    // the values of a label map are segment numbers, with any palette (PS3.3
    // C.8.20.2)
    bool labels = segmentation && !strcmp(h->sop_class, CLASS_LABELMAP) &&
                  n == 13 && !memcmp(p, "PALETTE COLOR", 13);
    if (!labels && n >= 3 &&
        (!memcmp(p, "RGB", 3) || !memcmp(p, "YBR", 3) || !memcmp(p, "PAL", 3)))
        return dicom_fail(path, TAG_PhotometricInterpretation, pictures,
                          "colour is not read from DICOM: photometric %s",
                          shown(p, n, text));

    bool grey = n == 11 && !memcmp(p, "MONOCHROME", 10) &&
                (p[10] == '1' || p[10] == '2');
    if (!grey && !labels)
        return dicom_fail(path, TAG_PhotometricInterpretation, NULL,
                          "photometric %s not supported",
                          n ? shown(p, n, text) : "(none)");
    h->is_signed = sign, h->monochrome1 = grey && p[10] == '1';
    read_padding(w, h);
    if (h->is_signed && h->stored < h->allocated &&
        !dicom_note(notes, false, where, TAG_BitsStored,
                    "sign extended from %d bits", h->stored))
        return false;
    return true;
}

// an attribute of a single image, or of a frame from its group
static const WalkElement *find(const Walk *w, const FrameGroup *g, int sequence,
                               int tag)
{
    return g ? group_find(w, g, sequence, tag)
             : walk_find(w, WALK_ROOT, (uint32_t)tag);
}

// rows 46 to 49: from stored values to quantities
static bool check_rescale(const Walk *w, const DicomOptions *o,
                          const FrameGroup *g, DicomHeader *h)
{
    // a table instead of slope and intercept; applying one of two that
    // contradict each other would be a guess
    if (walk_find(w, WALK_ROOT, TAG_ModalityLUTSequence))
        return dicom_fail(w->path, TAG_ModalityLUTSequence, NULL,
                          "Modality LUT is not linear");
    const int group = TAG_PixelValueTransformationSequence;
    const WalkElement *e = find(w, g, group, TAG_RescaleSlope);
    double slope = 1;
    char text[24];

    if (filled(w, e)) {
        const uint8_t *p = w->bytes + e->offset;
        size_t n = walk_unpadded(p, e->length);
        while (n && *p == ' ') p++, n--;
        if (!header_decimal((const char *)p, n, &slope) || slope == 0)
            return dicom_fail(w->path, TAG_RescaleSlope, NULL,
                              "RescaleSlope is %s",
                              slope == 0 ? "0" : shown(p, n, text));
        h->has_slope = true;
    }

    h->slope = slope;
    if (!header_numbers(w, find(w, g, group, TAG_RescaleIntercept), 1,
                        &h->intercept, &h->has_intercept))
        return false;

    // without it air could be 0 or -1024, which cannot be told apart
    if (!strcmp(h->modality, "CT") && !h->has_intercept && !o->assume_hu)
        return dicom_fail(w->path, TAG_RescaleIntercept, "assume_hu = true",
                          "CT without RescaleIntercept");
    h->units = units_by(w, g, h);
    return true;
}

// rows 53, 59, 69 and 70: the position of the slice
bool header_geometry(const Walk *w, const FrameGroup *g, DicomHeader *h)
{
    const int measures = TAG_PixelMeasuresSequence;
    const WalkElement *e = find(w, g, measures, TAG_PixelSpacing);
    static const char bad[] = "PixelSpacing missing, 0, negative or NaN";
    bool found;

    // at the detector of a radiograph, so larger than in the patient
    h->has_imager_spacing = filled(w, walk_find(w, WALK_ROOT, 0x00181164));

    // some writers put NaN for an unknown spacing; as a text it would only be
    // "not a decimal string"
    if (filled(w, e) && e->length >= 3) {
        const char *p = (const char *)w->bytes + e->offset;
        if ((p[0] | 32) == 'n' && (p[1] | 32) == 'a' && (p[2] | 32) == 'n')
            return dicom_fail(w->path, e->tag, NULL, bad);
    }

    if (!header_numbers(w, e, 2, h->spacing_mm, &h->has_spacing)) return false;
    if (h->has_spacing && (!(h->spacing_mm[0] > 0) || !(h->spacing_mm[1] > 0)))
        return dicom_fail(w->path, e->tag, NULL, bad);
    if (!header_numbers(w, find(w, g, measures, TAG_SliceThickness), 1,
                        &h->thickness_mm, &found))
        return false;
    e = find(w, g, TAG_PlanePositionSequence, TAG_ImagePositionPatient);
    if (!header_position(w, e, h->position_mm, &h->has_position)) return false;
    e = find(w, g, TAG_PlaneOrientationSequence, TAG_ImageOrientationPatient);
    if (!header_numbers(w, e, 6, h->orientation, &h->has_orientation))
        return false;
    return !h->has_orientation || header_orthogonal(w->path, h->orientation);
}

bool header_orthogonal(const char *path, const double o[6])
{
    // squared lengths, and the cosine between the two
    double row = o[0] * o[0] + o[1] * o[1] + o[2] * o[2];
    double col = o[3] * o[3] + o[4] * o[4] + o[5] * o[5];
    double dot = o[0] * o[3] + o[1] * o[4] + o[2] * o[5];
    // rounding of cosines with four decimals
    const double slack = 1e-3;
    if (fabs(row - 1) > slack || fabs(col - 1) > slack || fabs(dot) > slack)
        return dicom_fail(path, TAG_ImageOrientationPatient, NULL,
                          "row and column not unit and orthogonal (dot %.4g)",
                          dot);
    return true;
}

bool header_of_frame(const DicomHeader *h, int32_t i, Arena *arena,
                     DicomHeader *out)
{
    *out = *h;
    out->frame = i;
    // the number is of the file: frames have none
    out->has_instance = false;
    out->name = arena_printf(arena, "frame %d", i + 1);
    return out->name != NULL;
}

bool header_frame(const Walk *w, const DicomOptions *options,
                  const FrameGroup *group, DicomHeader *h)
{
    return check_rescale(w, options ? options : &strict, group, h) &&
           header_geometry(w, group, h);
}

// Checks in the order that suits a reader of the messages: is it an image, how
// is it stored, what do its values mean, where is it.
bool header_image(const Walk *w, const DicomOptions *options, bool segmentation,
                  const char *where, DicomHeader *h, DicomNotes *notes)
{
    return header_pixels(w, options, segmentation, where, h, notes) &&
           (segmentation ? header_geometry(w, NULL, h)
                         : header_frame(w, options, NULL, h));
}
