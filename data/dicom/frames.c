/* frames.c -- from PixelData to samples. frames_check proves that all bytes are
 * there and agree with the header; only then may frames_decode run, which
 * relies on it. RLE is therefore decoded twice, the first time without output:
 * it is fast, and no error is found halfway through an image. */
#include "data/dicom/frames.h"
#include "data/dicom/codec.h"
#include <string.h>

enum { RLE_HEADER = 64, RLE_SEGMENTS = 15 };

size_t frames_bytes(const DicomHeader *h)
{
    // header_image has bounded the product
    uint64_t samples = (uint64_t)h->rows * (uint64_t)h->cols *
                       (uint64_t)h->frames * (uint64_t)h->samples;
    return (size_t)((samples * (uint64_t)h->allocated + 7) / 8);
}

// frames_check and frames_decode are called only if there are pixels
static const WalkElement *pixels_of(const Walk *w)
{
    return &w->element[w->pixels];
}

// PackBits: 0 .. 127 copies the next code + 1 bytes, 129 .. 255 repeats the
// next byte 257 - code times, 128 is ignored.
size_t frames_rle_segment(const uint8_t *from, size_t n, size_t want,
                          uint8_t *out, size_t stride)
{
    size_t made = 0, i = 0;
    while (i < n && made < want) {
        uint8_t code = from[i++];
        if (code == 128) continue;
        bool literal = code < 128;
        size_t run = literal ? (size_t)code + 1 : 257 - (size_t)code;
        size_t eats = literal ? run : 1;
        if (n - i < eats) break;
        for (size_t k = 0; k < run && made + k < want && out; k++)
            out[(made + k) * stride] = from[literal ? i + k : i];
        made += run, i += eats;
    }
    return made;
}

// checks rows 26 to 28 for one frame; decodes if out is not NULL
static bool rle_frame(const Walk *w, const DicomHeader *h, const WalkElement *e,
                      uint8_t *out)
{
    const uint8_t *p = w->bytes + e->offset;
    size_t want = (size_t)h->rows * (size_t)h->cols;
    uint32_t bytes = (uint32_t)h->allocated / 8;
    uint32_t segments = e->length >= RLE_HEADER ? number_u32(p, false) : 0;

    if (segments < 1 || segments > RLE_SEGMENTS)
        return dicom_fail(w->path, TAG_PixelData, NULL,
                          "RLE header has %u segments (1 to 15)",
                          (unsigned)segments);
    if (segments != bytes)
        return dicom_fail(w->path, TAG_PixelData, NULL,
                          "RLE header has %u segments, need %u",
                          (unsigned)segments, (unsigned)bytes);

    for (uint32_t i = 0; i < segments; i++) {
        size_t at = number_u32(p + 4 + 4 * i, false), end = e->length;
        if (i + 1 < segments) end = number_u32(p + 8 + 4 * i, false);
        if (at < RLE_HEADER || at >= e->length)
            return dicom_fail(w->path, TAG_PixelData, NULL,
                              "RLE segment %u offset %zu outside frame",
                              (unsigned)i + 1, at);
        if (end <= at || end > e->length)
            return dicom_fail(w->path, TAG_PixelData, NULL,
                              "RLE segment %u offset %zu outside frame",
                              (unsigned)i + 2, end);
        // the first segment holds the most significant bytes
        uint8_t *to = out ? out + (bytes - 1 - i) : NULL;
        size_t got = frames_rle_segment(p + at, end - at, want, to, bytes);
        if (got != want)
            return dicom_fail(w->path, TAG_PixelData, NULL,
                              "RLE segment %u gives %zu bytes, need %zu",
                              (unsigned)i + 1, got, want);
    }
    return true;
}

// fails for a damaged JPEG stream; returns false
static bool jpeg_fail(const Walk *w, const char *text)
{
    return dicom_fail(w->path, TAG_PixelData, NULL, "JPEG inside DICOM: %s",
                      text);
}

// Does this frame header belong to the transfer syntax? SOF markers by process:
// C0 baseline, C1 extended, C3 lossless, F7 JPEG-LS. The last two digits of the
// UID name the process.
static bool frame_marker_fits(const DicomHeader *h, int marker)
{
    const char *uid = h->transfer->uid;
    size_t n = strlen(uid);
    // every supported encapsulated UID has two digits there
    const char *last = uid + n - 2;
    if (!strcmp(last, "80") || !strcmp(last, "81")) return marker == 0xF7;
    if (!strcmp(last, "57") || !strcmp(last, "70")) return marker == 0xC3;
    return marker == 0xC0 || (marker == 0xC1 && !strcmp(last, "51"));
}

// segments that may come before the scan: tables, comments, application
static bool is_table_marker(int marker)
{
    return marker == 0xC4 || marker == 0xDB || marker == 0xDD ||
           marker == 0xF8 || marker == 0xFE ||
           (marker >= 0xE0 && marker <= 0xEF);
}

// The frame header of a JPEG or JPEG-LS stream must agree with the DICOM
// header: with another size a decoder would write outside its buffer. Only the
// markers of a plain single-scan stream are accepted before the scan: on others
// DCMTK's search for the frame header may never end.
static bool jpeg_header(const Walk *w, const DicomHeader *h, const uint8_t *p,
                        size_t n)
{
    size_t i = 2;
    bool framed = false;

    // SOI, the start of every JPEG
    if (n < 4 || p[0] != 0xFF || p[1] != 0xD8)
        return jpeg_fail(w, "no start of image");

    for (;;) {
        // a marker and its length
        if (n - i < 4) return jpeg_fail(w, "no scan");
        int marker = p[i + 1];
        size_t length = number_u16(p + i + 2, true);
        if (p[i] != 0xFF) return jpeg_fail(w, "marker expected");
        if (length < 2 || n - i - 2 < length)
            return jpeg_fail(w, "marker segment outside the frame");
        if (marker == 0xDA && framed) return true;
        bool frame = !framed && frame_marker_fits(h, marker);
        if (!frame && !is_table_marker(marker))
            return dicom_fail(w->path, TAG_PixelData, NULL,
                              "JPEG inside DICOM: marker FF%02X in %s", marker,
                              h->transfer->name);
        if (frame) {
            framed = true;
            if (length < 11) return jpeg_fail(w, "frame header too short");
            // SOF: length, precision, rows, columns, components
            int precision = p[i + 4], components = p[i + 9];
            int rows = number_u16(p + i + 5, true);
            int cols = number_u16(p + i + 7, true);
            if (rows != h->rows || cols != h->cols || components != 1)
                return dicom_fail(w->path, TAG_PixelData, NULL,
                                  "JPEG inside DICOM: frame of %d x %d x %d, "
                                  "need %d x %d x 1",
                                  rows, cols, components, h->rows, h->cols);
            // more bits than are allocated would overwrite the next sample
            if (precision < 2 || precision > h->allocated)
                return dicom_fail(w->path, TAG_PixelData, NULL,
                                  "JPEG inside DICOM: %d bits in %d allocated",
                                  precision, h->allocated);
        }
        i += 2 + length;
    }
}

// Length of a JPEG stream up to and including its end marker, FFD9; 0 if it
// does not end with one. After it a fragment may be padded to an even length.
// The standard requires 00; FF, a blank and leftover bytes occur too.
static size_t jpeg_bytes(const uint8_t *p, size_t n)
{
    for (int any = 0; any < 2; any++) {
        size_t end = n > (size_t)any ? n - (size_t)any : 0;
        while (end && (!p[end - 1] || p[end - 1] == 0xFF || p[end - 1] == ' '))
            end--;
        if (end >= 2 && p[end - 2] == 0xFF && p[end - 1] == 0xD9) return end;
    }
    return 0;
}

// RLE is the one compression that needs no DCMTK
static bool is_rle(const DicomHeader *h)
{
    return h->transfer == dicom_transfer(dicom_syntax_uid(DICOM_RLE));
}

// row 25: every entry is the start of a fragment, in ascending order
static bool check_offsets(const Walk *w, const WalkElement *table)
{
    uint32_t n = (uint32_t)(table->length / 4);
    // offsets count from the first fragment, not from the table
    uint32_t fragment = table->next;
    size_t base = fragment < w->count ? w->element[fragment].at : 0;

    for (uint32_t i = 0; i < n; i++) {
        size_t at =
            base + number_u32(w->bytes + table->offset + 4 * (size_t)i, false);
        while (fragment < pixels_of(w)->next && w->element[fragment].at < at)
            fragment++;
        if (fragment >= pixels_of(w)->next || w->element[fragment].at != at)
            return dicom_fail(w->path, TAG_PixelData, NULL,
                              "offset table entry %u outside pixel data",
                              (unsigned)i + 1);
    }
    return true;
}

// Does fragment `i` start with SOI, FFD8?
static bool starts_jpeg(const Walk *w, uint32_t i)
{
    const WalkElement *e = &w->element[i];
    const uint8_t *p = w->bytes + e->offset;
    return e->length >= 2 && p[0] == 0xFF && p[1] == 0xD8;
}

// Finds the first fragment of each frame: *start has h->frames + 1 indices of
// fragments and is freed by the caller. Either one fragment per frame, or all
// fragments for one frame. If several JPEG frames have more fragments than
// frames, a frame starts where the offset table says, or without a table at a
// fragment with SOI that follows a fragment with EOI; if there are as many
// starts as frames, the assignment is unambiguous. RLE has one fragment per
// frame by definition (PS3.5 A.4.2). Row 24.
static bool find_frames(const Walk *w, const DicomHeader *h, uint32_t **start)
{
    const WalkElement *pixels = pixels_of(w);
    const WalkElement *table = &w->element[walk_item(w, pixels, 0)];
    const uint32_t first = walk_item(w, pixels, 1), end = pixels->next;
    const int64_t fragments = (int64_t)end - first;
    // allocate by existing fragments, not by the NumberOfFrames of the header
    bool fits = fragments >= h->frames;

    *start = fits ? mem_alloc(((size_t)h->frames + 1) * sizeof **start) : NULL;
    if (fits && !*start) return false;
    int32_t n = 0;
    const bool single = fragments == h->frames;
    const bool listed = table->length / 4 == (size_t)h->frames;
    fits = fits && (single || !is_rle(h));

    for (uint32_t i = first; fits && i < end; i++) {
        bool begins = i == first || single;
        if (!begins && h->frames > 1 && listed)
            begins = w->element[i].at - w->element[first].at ==
                     number_u32(w->bytes + table->offset +
                                    4 * (size_t)(n < h->frames ? n : 0),
                                false);
        if (!begins && h->frames > 1 && !listed)
            begins = starts_jpeg(w, i) &&
                     jpeg_bytes(w->bytes + w->element[i - 1].offset,
                                w->element[i - 1].length);
        if (!begins) continue;
        if (n < h->frames) (*start)[n] = i;
        n++;
    }

    if (fits && n == h->frames) {
        (*start)[n] = end;
        return true;
    }
    mem_free(*start);
    *start = NULL;
    return dicom_fail(w->path, TAG_PixelData, NULL,
                      "%lld fragments for %d frames", (long long)fragments,
                      h->frames);
}

// The bytes of one frame: in the file, or for several fragments joined in
// *joined, which grows and is freed by the caller. NULL if memory runs out.
static const uint8_t *frame_bytes(const Walk *w, const uint32_t *start,
                                  uint8_t **joined, size_t *n)
{
    const WalkElement *e = &w->element[start[0]];
    *n = 0;
    for (uint32_t i = start[0]; i < start[1]; i++) *n += w->element[i].length;
    if (start[1] - start[0] == 1) return w->bytes + e->offset;
    uint8_t *grown = mem_realloc(*joined, *n ? *n : 1);
    if (!grown) return NULL;
    *joined = grown;
    for (uint32_t i = start[0]; i < start[1]; i++, e++) {
        memcpy(grown, w->bytes + e->offset, e->length);
        grown += e->length;
    }
    return *joined;
}

// row 30: a frame must be a JPEG of the right kind with an end marker. A
// decoder would fill a truncated stream with grey instead of refusing it.
static bool check_jpeg(const Walk *w, const DicomHeader *h,
                       const uint32_t *start, uint8_t **joined)
{
    size_t n;
    const uint8_t *p = frame_bytes(w, start, joined, &n);
    return p && jpeg_header(w, h, p, n) &&
           (jpeg_bytes(p, n) || jpeg_fail(w, "no end of image"));
}

// rows 23 to 28 and 30: as many fragments as frames, the offset table, and each
// frame by its kind. Item 0 of encapsulated pixels is the offset table (it may
// be empty), the fragments follow.
static bool check_encapsulated(const Walk *w, const DicomHeader *h)
{
    const WalkElement *pixels = pixels_of(w);
    uint32_t table = walk_item(w, pixels, 0);
    uint32_t first = pixels->undefined ? walk_item(w, pixels, 1) : WALK_ROOT;

    if (first == WALK_ROOT)
        return dicom_fail(w->path, TAG_PixelData, NULL,
                          "pixel fragments missing");
    if (!check_offsets(w, &w->element[table])) return false;
    if (h->allocated != 8 && h->allocated != 16 && !is_rle(h))
        return dicom_fail(w->path, TAG_BitsAllocated, NULL,
                          "BitsAllocated %d, need 8 or 16 in a JPEG",
                          h->allocated);
    if (h->allocated < 8)
        return dicom_fail(w->path, TAG_BitsAllocated, NULL,
                          "BitsAllocated %d in compressed pixels",
                          h->allocated);
    uint32_t *start;
    uint8_t *joined = NULL;
    if (!find_frames(w, h, &start)) return false;
    bool ok = true;
    for (int32_t f = 0; ok && f < h->frames; f++)
        ok = is_rle(h) ? rle_frame(w, h, &w->element[start[f]], NULL)
                       : check_jpeg(w, h, start + f, &joined);
    mem_free(joined);
    mem_free(start);
    return ok;
}

// rows 42 and 43: bytes after the pixels of the header. A value has an even
// length, so an odd number gets a pad byte; some writers pad more. Additional
// whole frames are not padding: the header and the pixels contradict each
// other.
static bool check_plain(const Walk *w, const DicomHeader *h, const char *where,
                        DicomNotes *notes)
{
    const WalkElement *pixels = pixels_of(w);
    const size_t need = frames_bytes(h), have = pixels->length;
    const size_t frame = need / (size_t)h->frames;
    const size_t more = have > need ? have - need : 0;
    const bool pad = more == 1 && need % 2;

    if (have < need || (frame > 1 && more >= frame && more % frame <= 1))
        return dicom_fail(w->path, TAG_PixelData, NULL,
                          "pixel data has %zu bytes, need %zu", have, need);
    if (pad)
        return dicom_note(notes, true, where, TAG_PixelData,
                          "pad byte after an odd number of pixel bytes");
    return !more || dicom_note(notes, true, where, TAG_PixelData,
                               "%zu bytes after the pixels ignored", more);
}

bool frames_check(const Walk *w, const DicomHeader *h, const char *where,
                  DicomNotes *notes)
{
    const DicomTransfer *t = h->transfer;
    const WalkElement *pixels = pixels_of(w);

    if (!t || !t->supported)
        return dicom_fail(w->path, TAG_TransferSyntaxUID,
                          t ? t->unpack
                            : "gdcmconv --raw, or export it uncompressed",
                          "compression %s (%s) not supported",
                          t ? t->name : "unknown", h->syntax);

    // DCMTK decodes JPEG; a program built without it reads all else
    if (t->encapsulated && !is_rle(h) && !dicom_ready())
        return dicom_fail(w->path, TAG_TransferSyntaxUID,
                          "dcmdjpeg or gdcmconv --raw, or build with DCMTK",
                          "compression %s (%s) not supported: this program "
                          "was built without DCMTK",
                          t->name, h->syntax);

    if (t->lossy && !dicom_note(notes, true, where, TAG_TransferSyntaxUID,
                                "pixels went through lossy %s", t->name))
        return false;
    if (t->big_endian &&
        !dicom_note(notes, false, where, TAG_TransferSyntaxUID, "big endian"))
        return false;
    if (t->encapsulated) return check_encapsulated(w, h);
    if (pixels->undefined)
        return dicom_fail(w->path, TAG_PixelData, NULL,
                          "pixel data in fragments, but transfer syntax %s",
                          t->name);
    return check_plain(w, h, where, notes);
}

// Decodes JPEG and JPEG-LS frames with DCMTK, which gets only the fragments and
// the numbers of the header, never the file.
static bool decode_jpegs(const Walk *w, const DicomHeader *h, uint8_t *out)
{
    uint32_t *start;
    uint8_t *joined = NULL;
    if (!find_frames(w, h, &start)) return false;
    CodecPixels form = {.syntax_uid = h->syntax,
                        .rows = (uint16_t)h->rows,
                        .cols = (uint16_t)h->cols,
                        .allocated = (uint16_t)h->allocated,
                        .stored = (uint16_t)h->stored,
                        .is_signed = h->is_signed,
                        .frames = 1};
    const size_t each = frames_bytes(h) / (size_t)h->frames;
    bool ok = true;
    char why[CODEC_WHY];

    for (int32_t f = 0; ok && f < h->frames; f++) {
        size_t n;
        const uint8_t *p = frame_bytes(w, start + f, &joined, &n);
        if (!p) {
            ok = false;
            break;
        }
        // decoders fail on padding after the end marker
        const CodecBytes piece = {p, (uint32_t)jpeg_bytes(p, n)};
        CodecResult r =
            codec_decode(&form, &piece, 1, out + (size_t)f * each, why);
        if (r == CODEC_REFUSED) ok = jpeg_fail(w, why);
        // not the fault of the file, so not of kind ERR_DATA
        if (r == CODEC_NO_MEMORY)
            ok = fail("%s: dicom: no memory to decode a frame of %d x %d; fix: "
                      "end other programs, or raise the limit (ulimit -v)",
                      w->path, h->rows, h->cols);
    }

    mem_free(joined);
    mem_free(start);
    return ok;
}

bool frames_decode(const Walk *w, const DicomHeader *h, uint8_t *out)
{
    const WalkElement *pixels = pixels_of(w);
    size_t bytes = frames_bytes(h);
    if (h->transfer->encapsulated && !is_rle(h)) return decode_jpegs(w, h, out);

    if (is_rle(h)) {
        uint32_t first = walk_item(w, pixels, 1);
        size_t each = bytes / (size_t)h->frames;
        for (int32_t f = 0; f < h->frames; f++)
            if (!rle_frame(w, h, &w->element[first + (uint32_t)f],
                           out + (size_t)f * each))
                return false;
        return true;
    }

    const uint8_t *from = w->bytes + pixels->offset;
    // the bytes of words are swapped; single bytes are swapped only if they are
    // stored as OW. 1 bit gives 0 here and is handled as single bytes
    size_t word = (size_t)h->allocated / 8;
    if (word < 2) word = pixels->vr == VR('O', 'W') ? 2 : 1;
    if (!w->big_endian || word == 1) {
        memcpy(out, from, bytes);
        return true;
    }
    for (size_t i = 0; i < bytes; i++)
        out[i] = from[i / word * word + (word - 1 - i % word)];
    return true;
}
