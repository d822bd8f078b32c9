/* encode.c -- see encode.h.
 *
 * The file is built in memory: the length of a sequence is known, and set, when
 * the sequence ends. */
#include "data/dicom/encode.h"
#include "data/dicom/tag.h"
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

enum {
    PREAMBLE = 128,
    SHORT_LENGTH = 0xFFFE // the largest even length of 16 bits
};

// PS3.5, annex B.2: a UID from a UUID, which anyone may generate once
static const char implementation_uid[] =
    "2.25.120396486513838936458424416462317690143";
static const char implementation_name[] = "SEGENGINE";

// The bytes of a file so far. The first failure sets a reason and `failed`;
// later calls do nothing.
typedef struct Writer {
    Arena *mem;
    uint8_t *bytes;
    size_t count, room;
    bool implicit, big, failed;
} Writer;

static void put(Writer *w, const void *from, size_t count)
{
    if (w->failed || !count) return;
    if (count > w->room - w->count) {
        const size_t room = 2 * w->room + count + 4096;
        uint8_t *grown = arena_alloc(w->mem, room);
        if (!grown) {
            w->failed = true;
            return;
        }
        if (w->count) memcpy(grown, w->bytes, w->count);
        w->bytes = grown, w->room = room;
    }
    memcpy(w->bytes + w->count, from, count);
    w->count += count;
}

// Stores an integer of 2 or 4 bytes at p.
static void store_number(uint8_t *p, uint32_t v, int bytes, bool big)
{
    for (int i = 0; i < bytes; i++)
        p[big ? bytes - 1 - i : i] = (uint8_t)(v >> 8 * i);
}

static void put_number(Writer *w, uint32_t v, int bytes)
{
    uint8_t p[4];
    store_number(p, v, bytes, w->big);
    put(w, p, (size_t)bytes);
}

static void put_tag(Writer *w, uint32_t tag)
{
    put_number(w, tag >> 16, 2);
    put_number(w, tag & 0xFFFF, 2);
}

// The header of an element. A value too long for a length of 16 bits is written
// as UN (PS3.5, 6.2.2, note 1).
static void put_header(Writer *w, uint32_t tag, uint16_t vr, size_t length)
{
    put_tag(w, tag);
    if (w->implicit) {
        put_number(w, (uint32_t)length, 4);
        return;
    }
    if (!dicom_vr_long(vr) && length > SHORT_LENGTH) vr = VR('U', 'N');
    const uint8_t letters[2] = {(uint8_t)(vr >> 8), (uint8_t)vr};
    put(w, letters, 2);
    if (dicom_vr_long(vr)) put_number(w, 0, 2);
    put_number(w, (uint32_t)length, dicom_vr_long(vr) ? 4 : 2);
}

// == values ==================================================================

static size_t count_values(const char *text)
{
    size_t n = *text != 0;
    for (; *text; text++) n += *text == '\\';
    return n;
}

// Reads the number at *text and moves behind the backslash after it; false: it
// is no integer in lo .. hi.
static bool next_number(const char **text, int base, long long lo, long long hi,
                        char stop, long long *out)
{
    char *end;
    *out = strtoll(*text, &end, base);
    if (end == *text || *out < lo || *out > hi) return false;
    if (*end != stop && (*end || stop != '\\')) return false;
    *text = *end ? end + 1 : end;
    return true;
}

static void refuse(Writer *w, const CodecElement *e)
{
    const DicomTag *t = dicom_tag(e->tag);
    if (w->failed) return;
    w->failed = true;
    fail_data("%s (%04X,%04X) with VR %c%c cannot hold \"%.40s\"",
              t ? t->name : "an element", (unsigned)(e->tag >> 16),
              (unsigned)(e->tag & 0xFFFF), e->vr >> 8, e->vr & 0xFF, e->value);
}

// Integers of 2 or 4 bytes: US, SS, UL, SL.
static void put_integers(Writer *w, const CodecElement *e, int bytes,
                         bool is_signed)
{
    const long long half = 1LL << (8 * bytes - 1);
    const char *text = e->value;
    long long v;

    put_header(w, e->tag, e->vr, count_values(text) * (size_t)bytes);
    while (*text) {
        if (!next_number(&text, 10, is_signed ? -half : 0,
                         (is_signed ? half : 2 * half) - 1, '\\', &v)) {
            refuse(w, e);
            return;
        }
        put_number(w, (uint32_t)v, bytes);
    }
}

// AT: tags as "(gggg,eeee)".
static void put_tags(Writer *w, const CodecElement *e)
{
    const char *text = e->value;
    long long group, element;

    put_header(w, e->tag, e->vr, count_values(text) * 4);
    while (*text) {
        if (*text++ != '(' || !next_number(&text, 16, 0, 0xFFFF, ',', &group) ||
            !next_number(&text, 16, 0, 0xFFFF, ')', &element)) {
            refuse(w, e);
            return;
        }
        put_tag(w, (uint32_t)(group << 16 | element));
        if (*text == '\\') text++;
    }
}

// Text, padded to an even length: UI with a zero byte, others with a space.
static void put_text(Writer *w, const CodecElement *e)
{
    const size_t length = strlen(e->value);
    put_header(w, e->tag, e->vr, length + length % 2);
    put(w, e->value, length);
    put(w, e->vr == VR('U', 'I') ? "" : " ", length % 2);
}

static void put_value(Writer *w, const CodecElement *e)
{
    switch (e->vr) {
    case VR('U', 'S'):
        put_integers(w, e, 2, false);
        break;
    case VR('S', 'S'):
        put_integers(w, e, 2, true);
        break;
    case VR('U', 'L'):
        put_integers(w, e, 4, false);
        break;
    case VR('S', 'L'):
        put_integers(w, e, 4, true);
        break;
    case VR('A', 'T'):
        put_tags(w, e);
        break;
    case VR('F', 'L'):
    case VR('F', 'D'):
    case VR('O', 'B'):
    case VR('O', 'W'):
    case VR('U', 'N'):
        // no caller writes an element of a binary VR except PixelData
        refuse(w, e);
        break;
    default:
        put_text(w, e);
    }
}

// == the data set ============================================================

// An element with the elements inside of it: entries first .. end - 1 of a
// list.
typedef struct Sibling {
    uint32_t tag;
    int32_t first, end;
} Sibling;

// By tag, as a file has them; equal tags in the order of the list.
static int by_tag(const void *a, const void *b)
{
    const Sibling *x = a, *y = b;
    if (x->tag != y->tag) return x->tag < y->tag ? -1 : 1;
    return x->first < y->first ? -1 : 1;
}

// Sets the 4 bytes of a length at `at`, of all bytes after it.
static void end_length(Writer *w, size_t at)
{
    if (!w->failed)
        store_number(w->bytes + at, (uint32_t)(w->count - at - 4), 4, w->big);
}

// The first entry after `i` that is not inside of entry i; or `end`.
static int32_t next_at(const CodecElement *list, int32_t i, int32_t end)
{
    const int depth = list[i].depth;
    for (i++; i < end && list[i].depth > depth; i++) {
    }
    return i;
}

static void put_siblings(Writer *w, const CodecElement *list, int32_t first,
                         int32_t end);

// A sequence, with its items in list[first + 1 .. end - 1].
static void put_sequence(Writer *w, const CodecElement *list, int32_t first,
                         int32_t end)
{
    put_header(w, list[first].tag, list[first].vr, 0);
    const size_t length_at = w->count - 4;

    for (int32_t i = first + 1; i < end;) {
        CHECK(list[i].tag == TAG_ITEM);
        int32_t stop = i + 1;
        while (stop < end &&
               (list[stop].depth > list[i].depth || list[stop].tag != TAG_ITEM))
            stop++;
        put_tag(w, TAG_ITEM);
        put_number(w, 0, 4);
        const size_t item_at = w->count - 4;
        put_siblings(w, list, i + 1, stop);
        end_length(w, item_at);
        i = stop;
    }
    end_length(w, length_at);
}

// Elements of one data set or item, sorted by tag; of equal tags the last one.
static void put_siblings(Writer *w, const CodecElement *list, int32_t first,
                         int32_t end)
{
    int32_t n = 0;
    if (w->failed || first == end) return;
    Sibling *all = ARENA_NEW(w->mem, Sibling, end - first);
    if (!all) {
        w->failed = true;
        return;
    }

    for (int32_t i = first; i < end; i = all[n++].end)
        all[n] = (Sibling){list[i].tag, i, next_at(list, i, end)};
    qsort(all, (size_t)n, sizeof *all, by_tag);
    for (int32_t i = 0; i < n && !w->failed; i++) {
        const Sibling *e = &all[i];
        if (i + 1 < n && e[1].tag == e->tag) continue;
        if (list[e->first].vr == VR('S', 'Q'))
            put_sequence(w, list, e->first, e->end);
        else
            put_value(w, &list[e->first]);
    }
}

// Words of 16 bits in the byte order of the syntax, or bytes.
static void put_pixels(Writer *w, const CodecPixels *form,
                       const uint8_t *pixels, size_t bytes)
{
    const bool words = form->allocated == 16;
    put_header(w, TAG_PixelData, words ? VR('O', 'W') : VR('O', 'B'),
               bytes + bytes % 2);
    const size_t at = w->count;
    put(w, pixels, bytes);
    put(w, "", bytes % 2);
    if (w->failed || !words || !w->big) return;

    for (size_t i = at; i + 1 < w->count; i += 2) {
        const uint8_t low = w->bytes[i];
        w->bytes[i] = w->bytes[i + 1], w->bytes[i + 1] = low;
    }
}

// == the file ================================================================

static const char *value_of(const CodecElement *list, int32_t count,
                            uint32_t tag)
{
    for (int32_t i = 0; i < count; i++)
        if (list[i].tag == tag && !list[i].depth) return list[i].value;
    return "";
}

// Preamble, mark and meta group, which is explicit little endian always.
static void put_meta(Writer *w, const CodecPixels *form,
                     const CodecElement *list, int32_t count)
{
    static const uint8_t preamble[PREAMBLE] = {0}, version[2] = {0, 1};
    const CodecElement meta[] = {
        {TAG_MediaStorageSOPClassUID, VR('U', 'I'), 0,
         value_of(list, count, TAG_SOPClassUID)},
        {TAG_MediaStorageSOPInstanceUID, VR('U', 'I'), 0,
         value_of(list, count, TAG_SOPInstanceUID)},
        {TAG_TransferSyntaxUID, VR('U', 'I'), 0, form->syntax_uid},
        {TAG_ImplementationClassUID, VR('U', 'I'), 0, implementation_uid},
        {TAG_ImplementationVersionName, VR('S', 'H'), 0, implementation_name}};

    put(w, preamble, sizeof preamble);
    put(w, "DICM", 4);
    put_header(w, TAG_FileMetaInformationGroupLength, VR('U', 'L'), 4);
    const size_t length_at = w->count;
    put_number(w, 0, 4);
    put_header(w, TAG_FileMetaInformationVersion, VR('O', 'B'), 2);
    put(w, version, 2);
    for (size_t i = 0; i < sizeof meta / sizeof *meta; i++)
        put_text(w, &meta[i]);
    if (!w->failed)
        store_number(w->bytes + length_at, (uint32_t)(w->count - length_at - 4),
                     4, false);
}

// Appends the data set of `from`, deflated (RFC 1951), with an even length.
static void put_deflated(Writer *w, const Writer *from)
{
    z_stream z = {0};
    if (from->failed) w->failed = true;
    if (w->failed) return;
    CHECK(from->count <= UINT32_MAX);
    if (deflateInit2(&z, Z_DEFAULT_COMPRESSION, Z_DEFLATED, -MAX_WBITS, 8,
                     Z_DEFAULT_STRATEGY) != Z_OK) {
        w->failed = true;
        fail("no memory to deflate");
        return;
    }

    const uLong most = deflateBound(&z, (uLong)from->count);
    uint8_t *to = arena_alloc(w->mem, most);
    if (to) {
        z.next_in = from->bytes, z.avail_in = (uInt)from->count;
        z.next_out = to, z.avail_out = (uInt)most;
        CHECK(deflate(&z, Z_FINISH) == Z_STREAM_END);
        put(w, to, z.total_out);
        put(w, "", z.total_out % 2);
    }
    w->failed = w->failed || !to;
    deflateEnd(&z);
}

bool dicom_encodes(const char *syntax_uid)
{
    const DicomTransfer *t = dicom_transfer(syntax_uid);
    return t && !t->encapsulated;
}

bool dicom_encode(const CodecPixels *form, const CodecElement *elements,
                  int32_t count, const uint8_t *pixels, size_t bytes,
                  Arena *mem, uint8_t **out, size_t *out_bytes)
{
    const DicomTransfer *t = dicom_transfer(form->syntax_uid);
    CHECK(dicom_encodes(form->syntax_uid));
    // all ones means an undefined length
    if (bytes >= UINT32_MAX - 1)
        return fail_data("%zu bytes of pixels, at most 4294967293 fit one file",
                         bytes);

    Writer file = {.mem = mem};
    put_meta(&file, form, elements, count);
    Writer data = {.mem = mem, .implicit = t->implicit, .big = t->big_endian};
    // the data set follows the meta group in one buffer unless it is deflated
    if (!t->deflated)
        data.bytes = file.bytes, data.count = file.count, data.room = file.room,
        data.failed = file.failed;
    put_siblings(&data, elements, 0, count);
    put_pixels(&data, form, pixels, bytes);
    if (t->deflated)
        put_deflated(&file, &data);
    else
        file = data;
    *out = file.bytes, *out_bytes = file.count;
    return !file.failed;
}
