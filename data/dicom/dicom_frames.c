/* dicom_frames.c -- from PixelData to samples. frames_check proves that all
 * bytes are there and that nothing contradicts the header; only then may
 * frames_decode run, which relies on it. RLE is decoded twice that way, once
 * without output: it is quick, and no error is found halfway through an image.
 */
#include "dicom_frames.h"
#include "dicom_codec.h"
#include <string.h>

enum { RLE_HEADER = 64, RLE_SEGMENTS = 15 };

size_t frames_bytes(const DicomHeader *h)
{
    // header_image has bounded the product
    uint64_t samples = (uint64_t)h->rows * (uint64_t)h->cols *
                       (uint64_t)h->frames * (uint64_t)h->samples;
    return (size_t)((samples * (uint64_t)h->allocated + 7) / 8);
}

// frames_check and frames_decode are called only when there are pixels
static const WalkElement *pixels_of(const Walk *w)
{
    return &w->element[w->pixels];
}

// PackBits: 0 .. 127 copies the next code + 1 bytes, 129 .. 255 repeats the
// next byte 257 - code times, 128 is nothing.
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

// rows 26 to 28 for one frame; decodes when out is not NULL
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

// one way to say what is wrong inside a JPEG stream; returns false
static bool jpeg_fail(const Walk *w, const char *text)
{
    return dicom_fail(w->path, TAG_PixelData, NULL, "JPEG inside DICOM: %s",
                      text);
}

// does this frame header belong to the transfer syntax?
// SOF markers by process: C0 baseline, C1 extended, C3 lossless, F7 JPEG-LS.
// The last two digits of the UID name the process.
static bool frame_marker_fits(const DicomHeader *h, int marker)
{
    const char *uid = h->transfer->uid;
    size_t n = strlen(uid);
    // every encapsulated UID that is supported has two digits there
    const char *last = uid + n - 2;
    if (!strcmp(last, "80") || !strcmp(last, "81")) return marker == 0xF7;
    if (!strcmp(last, "57") || !strcmp(last, "70")) return marker == 0xC3;
    return marker == 0xC0 || (marker == 0xC1 && !strcmp(last, "51"));
}

// a segment that may stand before the scan: tables, comments, application
static bool is_table_marker(int marker)
{
    return marker == 0xC4 || marker == 0xDB || marker == 0xDD ||
           marker == 0xF8 || marker == 0xFE ||
           (marker >= 0xE0 && marker <= 0xEF);
}

// The frame header of a JPEG or JPEG-LS stream must promise what the DICOM
// header promises: a decoder that believes another size writes elsewhere.
// Only the markers of a plain single-scan stream are let through up to the
// scan: on others DCMTK's search for the frame header may never end.
static bool jpeg_header(const Walk *w, const DicomHeader *h,
                        const WalkElement *e)
{
    const uint8_t *p = w->bytes + e->offset;
    size_t n = e->length, i = 2;
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
            // more bits than are allocated would be written over the next
            // sample
            if (precision < 2 || precision > h->allocated)
                return dicom_fail(w->path, TAG_PixelData, NULL,
                                  "JPEG inside DICOM: %d bits in %d allocated",
                                  precision, h->allocated);
        }
        i += 2 + length;
    }
}

// A stream that was cut off would be filled with grey, not refused: it must
// end with its end marker, at most padded with zeros.
static bool jpeg_end(const Walk *w, const WalkElement *e)
{
    const uint8_t *p = w->bytes + e->offset;
    size_t n = e->length;
    while (n && !p[n - 1]) n--;
    if (n >= 2 && p[n - 2] == 0xFF && p[n - 1] == 0xD9) return true;
    return jpeg_fail(w, "no end of image");
}

// RLE is the one compression that needs no DCMTK
static bool is_rle(const DicomHeader *h)
{
    return h->transfer == dicom_transfer(dicom_syntax_uid(DICOM_RLE));
}

// row 25: every entry is where a fragment starts, in rising order
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

// rows 23 to 28 and 30: as many fragments as frames, the table of offsets, and
// each frame by its kind. Item 0 of encapsulated pixels is that table (it may
// be empty), the fragments follow.
static bool check_encapsulated(const Walk *w, const DicomHeader *h)
{
    const WalkElement *pixels = pixels_of(w);
    uint32_t table = walk_item(w, pixels, 0);
    uint32_t first = pixels->undefined ? walk_item(w, pixels, 1) : WALK_ROOT;
    if (first == WALK_ROOT)
        return dicom_fail(w->path, TAG_PixelData, NULL,
                          "pixel fragments missing");
    int64_t fragments = (int64_t)pixels->next - first;
    // one frame may come in pieces; of several each must be one piece, as
    // we could not tell without trusting the table of offsets
    // (RLE has one fragment a frame by definition)
    bool pieces = h->frames == 1 && !is_rle(h);
    if (fragments < h->frames || (fragments > h->frames && !pieces))
        return dicom_fail(w->path, TAG_PixelData, NULL,
                          "%lld fragments for %d frames", (long long)fragments,
                          h->frames);
    if (!check_offsets(w, &w->element[table])) return false;
    if (h->allocated != 8 && h->allocated != 16 && !is_rle(h))
        return dicom_fail(w->path, TAG_BitsAllocated, NULL,
                          "BitsAllocated %d, need 8 or 16 in a JPEG",
                          h->allocated);
    if (h->allocated < 8)
        return dicom_fail(w->path, TAG_BitsAllocated, NULL,
                          "BitsAllocated %d in compressed pixels",
                          h->allocated);
    // distance from the first to the last fragment of a frame: 0 unless one
    // frame comes in pieces
    uint32_t last = pixels->next - first - (uint32_t)h->frames;
    for (int32_t f = 0; f < h->frames; f++) {
        const WalkElement *e = &w->element[first + (uint32_t)f];
        if (is_rle(h) ? !rle_frame(w, h, e, NULL)
                      : !jpeg_header(w, h, e) || !jpeg_end(w, e + last))
            return false;
    }
    return true;
}

bool frames_check(const Walk *w, const DicomHeader *h, const char *where,
                  DicomNotes *notes)
{
    const DicomTransfer *t = h->transfer;
    const WalkElement *pixels = pixels_of(w);
    if (!t || !t->supported)
        return dicom_fail(w->path, TAG_TransferSyntaxUID,
                          "dcmdjpeg or gdcmconv --raw",
                          "compression %s (%s) not supported",
                          t ? t->name : "unknown", h->syntax);
    // JPEG is DCMTK's work; a program built without it still reads the rest
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
    size_t need = frames_bytes(h);
    // a value has even length, so an odd number gets a pad byte
    if (pixels->length != need + need % 2)
        return dicom_fail(w->path, TAG_PixelData, NULL,
                          "pixel data has %zu bytes, need %zu", pixels->length,
                          need);
    return !(need % 2) ||
           dicom_note(notes, true, where, TAG_PixelData,
                      "pad byte after an odd number of pixel bytes");
}

// JPEG and JPEG-LS frames through DCMTK, which gets only the fragments and the
// numbers of the header, never the file
static bool decode_jpegs(const Walk *w, const DicomHeader *h, uint8_t *out)
{
    const WalkElement *pixels = pixels_of(w);
    uint32_t first = walk_item(w, pixels, 1);
    int32_t total = (int32_t)(pixels->next - first);
    int32_t each = h->frames == 1 ? total : 1;
    CodecBytes *pieces = mem_alloc((size_t)total * sizeof *pieces);
    if (!pieces) return false;
    for (int32_t i = 0; i < total; i++) {
        const WalkElement *e = &w->element[first + (uint32_t)i];
        // fragments lie in the bytes of the file
        pieces[i] = (CodecBytes){w->bytes + e->offset, (uint32_t)e->length};
    }
    CodecPixels form = {.syntax_uid = h->syntax,
                        .rows = (uint16_t)h->rows,
                        .cols = (uint16_t)h->cols,
                        .allocated = (uint16_t)h->allocated,
                        .stored = (uint16_t)h->stored,
                        .is_signed = h->is_signed,
                        .frames = 1};
    size_t frame_bytes = frames_bytes(h) / (size_t)h->frames;
    bool ok = true;
    char why[CODEC_WHY];
    for (int32_t f = 0; ok && f < h->frames; f++) {
        CodecResult r = codec_decode(&form, pieces + f, each,
                                     out + (size_t)f * frame_bytes, why);
        if (r == CODEC_REFUSED) ok = jpeg_fail(w, why);
        // not the fault of the file, so not of kind ERR_DATA
        if (r == CODEC_NO_MEMORY)
            ok = fail("%s: dicom: no memory to decode a frame of %d x %d",
                      w->path, h->rows, h->cols);
    }
    mem_free(pieces);
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
    // words turn round with their bytes; single bytes do when they travelled
    // as words
    // 1 bit gives 0 here, which is treated as single bytes
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
