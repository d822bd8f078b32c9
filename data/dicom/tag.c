/* tag.c -- the tables of tag.h, and the format of all reasons and notes. It
 * opens and parses no file. */
#include "data/dicom/tag.h"
#include "engine/base/utf8.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const DicomTag tags[] = {
#define X(group, element, vr, vr2, name)                  \
    {(uint32_t)group << 16 | element, VR(#vr[0], #vr[1]), \
     VR(#vr2[0], #vr2[1]), #name},
    DICOM_TAGS(X)
#undef X
};

// the table is sorted by number: a binary search finds the first not less
const DicomTag *dicom_tag(uint32_t tag)
{
    size_t lo = 0, hi = sizeof tags / sizeof *tags;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (tags[mid].tag < tag)
            lo = mid + 1;
        else
            hi = mid;
    }
    bool found = lo < sizeof tags / sizeof *tags && tags[lo].tag == tag;
    return found ? &tags[lo] : NULL;
}

// two letters each, in alphabetical order
bool dicom_vr_known(uint16_t vr)
{
    // every VR of the standard, two letters each
    static const char all[] = "AEASATCSDADSDTFDFLISLOLTOBODOFOLOVOWPNSHSLSQSSST"
                              "SVTMUCUIULUNURUSUTUV";
    for (const char *p = all; *p; p += 2)
        if (VR(p[0], p[1]) == vr) return true;
    return false;
}

bool dicom_vr_long(uint16_t vr)
{
    // VRs with two reserved bytes and a length of 32 bits
    static const char all[] = "OBODOFOLOVOWSQSVUCUNURUTUV";
    for (const char *p = all; *p; p += 2)
        if (VR(p[0], p[1]) == vr) return true;
    return false;
}

// the standard numbers its JPEG syntaxes below this root
#define JPEG "1.2.840.10008.1.2.4."
// The first entries are in the order of DicomSyntax, on which dicom_syntax_uid
// relies. Entries that are not supported are named in the error.
static const DicomTransfer transfers[] = {
    {.uid = "1.2.840.10008.1.2.1",
     .name = "explicit little endian",
     .supported = true},
    {.uid = "1.2.840.10008.1.2",
     .name = "implicit little endian",
     .implicit = true,
     .supported = true},
    {.uid = "1.2.840.10008.1.2.2",
     .name = "explicit big endian",
     .big_endian = true,
     .supported = true},
    {.uid = "1.2.840.10008.1.2.1.99",
     .name = "deflated",
     .deflated = true,
     .supported = true},
// UID, name, supported, lossy
#define ENCAPSULATED(id, text, can, loses)                               \
    {                                                                    \
        .uid = id, .name = text, .encapsulated = true, .supported = can, \
        .lossy = loses                                                   \
    }
    ENCAPSULATED("1.2.840.10008.1.2.5", "RLE", true, false),
    ENCAPSULATED(JPEG "70", "JPEG lossless", true, false),
    ENCAPSULATED(JPEG "80", "JPEG-LS lossless", true, false),
    ENCAPSULATED(JPEG "57", "JPEG lossless (process 14)", true, false),
    ENCAPSULATED(JPEG "50", "JPEG baseline", true, true),
    ENCAPSULATED(JPEG "51", "JPEG extended", true, true),
    ENCAPSULATED(JPEG "81", "JPEG-LS near lossless", true, true),
#undef ENCAPSULATED
// UID, name, lossy, program that decompresses it
#define FOREIGN(id, text, loses, by)                                   \
    {                                                                  \
        .uid = id, .name = text, .encapsulated = true, .lossy = loses, \
        .unpack = by                                                   \
    }
#define BY_GDCM "gdcmconv --raw (dcmdjpeg has no JPEG 2000)"
#define BY_PYDICOM                                                           \
    "Dataset.decompress() of pydicom with pylibjpeg-openjpeg, or export it " \
    "uncompressed"
#define EXPORT "export it uncompressed (explicit VR little endian)"
#define VIDEO  "it is a video: take pictures out of it, which data.images reads"
    FOREIGN(JPEG "90", "JPEG 2000 lossless", false, BY_GDCM),
    FOREIGN(JPEG "91", "JPEG 2000", true, BY_GDCM),
    FOREIGN(JPEG "92", "JPEG 2000 part 2 lossless", false, EXPORT),
    FOREIGN(JPEG "93", "JPEG 2000 part 2", true, EXPORT),
    FOREIGN(JPEG "94", "JPIP referenced", false, EXPORT),
    FOREIGN(JPEG "95", "JPIP referenced deflate", false, EXPORT),
    FOREIGN(JPEG "100", "MPEG-2", true, VIDEO),
    FOREIGN(JPEG "100.1", "MPEG-2", true, VIDEO),
    FOREIGN(JPEG "101", "MPEG-2", true, VIDEO),
    FOREIGN(JPEG "101.1", "MPEG-2", true, VIDEO),
    FOREIGN(JPEG "102", "MPEG-4", true, VIDEO),
    FOREIGN(JPEG "102.1", "MPEG-4", true, VIDEO),
    FOREIGN(JPEG "103", "MPEG-4", true, VIDEO),
    FOREIGN(JPEG "103.1", "MPEG-4", true, VIDEO),
    FOREIGN(JPEG "104", "MPEG-4", true, VIDEO),
    FOREIGN(JPEG "104.1", "MPEG-4", true, VIDEO),
    FOREIGN(JPEG "105", "MPEG-4", true, VIDEO),
    FOREIGN(JPEG "105.1", "MPEG-4", true, VIDEO),
    FOREIGN(JPEG "106", "MPEG-4", true, VIDEO),
    FOREIGN(JPEG "106.1", "MPEG-4", true, VIDEO),
    FOREIGN(JPEG "107", "HEVC", true, VIDEO),
    FOREIGN(JPEG "108", "HEVC", true, VIDEO),
    FOREIGN(JPEG "110", "JPEG XL lossless", false, EXPORT),
    FOREIGN(JPEG "111", "JPEG XL of a JPEG", true, EXPORT),
    FOREIGN(JPEG "112", "JPEG XL", true, EXPORT),
    FOREIGN(JPEG "201", "HTJ2K lossless", false, BY_PYDICOM),
    FOREIGN(JPEG "202", "HTJ2K lossless RPCL", false, BY_PYDICOM),
    FOREIGN(JPEG "203", "HTJ2K", true, BY_PYDICOM),
#undef FOREIGN
};

const DicomTransfer *dicom_transfer(const char *uid)
{
    for (size_t i = 0; i < sizeof transfers / sizeof *transfers; i++)
        if (!strcmp(transfers[i].uid, uid)) return &transfers[i];
    return NULL;
}

const char *dicom_syntax_uid(DicomSyntax syntax)
{
    // the table above starts in the order of the enum
    return transfers[syntax].uid;
}

// files that a user may have put among images, by the names of the standard
const char *dicom_class_name(const char *uid)
{
    static const char *const names[][2] = {
        {CLASS_MR, "MR Image Storage"},
        {CLASS_CT, "CT Image Storage"},
        {CLASS_SEG, "Segmentation Storage"},
        {CLASS_DIR, "Media Storage Directory"},
        {"1.2.840.10008.5.1.4.1.1.4.1", "Enhanced MR Image Storage"},
        {"1.2.840.10008.5.1.4.1.1.2.1", "Enhanced CT Image Storage"},
        {"1.2.840.10008.5.1.4.1.1.7", "Secondary Capture Image Storage"},
        {CLASS_LABELMAP, "Label Map Segmentation Storage"},
        {CLASS_DOSE, "RT Dose Storage"},
        {CLASS_STRUCTURE, "RT Structure Set Storage"},
        {"1.2.840.10008.5.1.4.1.1.481.5", "RT Plan Storage"},
        {"1.2.840.10008.5.1.4.1.1.88.11", "Basic Text SR Storage"},
        {"1.2.840.10008.5.1.4.1.1.88.22", "Enhanced SR Storage"},
        {"1.2.840.10008.5.1.4.1.1.88.33", "Comprehensive SR Storage"},
        {"1.2.840.10008.5.1.4.1.1.88.59", "Key Object Selection Storage"},
        {"1.2.840.10008.5.1.4.1.1.104.1", "Encapsulated PDF Storage"},
        {"1.2.840.10008.5.1.4.1.1.11.1", "Presentation State Storage"},
        {"1.2.840.10008.5.1.4.1.1.66", "Raw Data Storage"},
        {"1.2.840.10008.5.1.4.1.1.66.1", "Spatial Registration Storage"},
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(names[i][0], uid)) return names[i][1];
    return *uid ? uid : "no SOP class";
}

bool dicom_class_enhanced(const char *uid)
{
    static const char *const classes[] = {
        "1.2.840.10008.5.1.4.1.1.2.1",   // CT
        "1.2.840.10008.5.1.4.1.1.2.2",   // CT, converted
        "1.2.840.10008.5.1.4.1.1.4.1",   // MR
        "1.2.840.10008.5.1.4.1.1.4.4",   // MR, converted
        "1.2.840.10008.5.1.4.1.1.128.1", // PET, converted
        "1.2.840.10008.5.1.4.1.1.130",   // PET
    };
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++)
        if (!strcmp(classes[i], uid)) return true;
    return false;
}

// Writes "PATH: dicom: TEXT [tag (gggg,eeee) Name]; fix: FIX" to line. If a
// part is too long it is cut and the line stays complete: its size is ERR_MAX,
// of which the text gets half.
static void compose(char line[ERR_MAX], const char *path, uint32_t tag,
                    const char *fix, const char *fmt, va_list ap)
{
    // where: the tag in its usual form, and its name if known
    char text[ERR_MAX / 2], where[96] = "";
    vsnprintf(text, sizeof text, fmt, ap);

    // vsnprintf cuts at a byte: remove half a character
    utf8_mend(text);
    if (tag) {
        const DicomTag *t = dicom_tag(tag);
        snprintf(where, sizeof where, " [tag (%04x,%04x)%s%s]", tag >> 16,
                 tag & 0xFFFF, t ? " " : "", t ? t->name : "");
    }

    // a long path must not displace the reason
    snprintf(line, ERR_MAX, "%.700s: dicom: %s%s%s%s", path, text, where,
             fix ? "; fix: " : "", fix ? fix : "");
}

bool dicom_fail(const char *path, uint32_t tag, const char *fix,
                const char *fmt, ...)
{
    char line[ERR_MAX];
    va_list ap;
    va_start(ap, fmt);
    compose(line, path, tag, fix, fmt, ap);
    va_end(ap);
    return fail_data("%s", line);
}

bool dicom_note(DicomNotes *notes, bool warning, const char *path, uint32_t tag,
                const char *fmt, ...)
{
    if (!notes) return true;
    char line[ERR_MAX];
    va_list ap;
    va_start(ap, fmt);
    compose(line, path, tag, NULL, fmt, ap);
    va_end(ap);
    return dicom_notes_add(notes, warning, line);
}

bool dicom_notes_add(DicomNotes *notes, bool warning, const char *line)
{
    if (!notes) return true;

    // a series of 300 slices repeats the same note
    for (const DicomNote *n = notes->first; n; n = n->next)
        if (!strcmp(n->text, line)) return true;

    // text and note live as long as `notes`
    DicomNote *n = ARENA_NEW(&notes->arena, DicomNote, 1);
    char *text = arena_strdup(&notes->arena, line);
    if (!n || !text) return false;
    *n = (DicomNote){.warning = warning, .text = text};

    // in the order of arrival
    if (notes->last)
        notes->last->next = n;
    else
        notes->first = n;
    notes->last = n;
    notes->count++;
    return true;
}

void dicom_notes_free(DicomNotes *notes)
{
    arena_release(&notes->arena);
    *notes = (DicomNotes){0};
}
