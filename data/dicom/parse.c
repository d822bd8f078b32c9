/* parse.c -- one pass over the bytes of a file, level by level. walk_level
 * reads elements, walk_items the items of a sequence; they call each other and
 * are bounded by WALK_DEPTH. Every length is compared with the end of the
 * enclosing element before it is used, always as "left = end - at; length >
 * left", which cannot overflow. "Row N" is a row of tests/shell/defects.csv;
 * tests compare the texts word for word. */
#include "data/dicom/parse.h"
#include "data/format/gzip.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

// the 128 bytes before the mark are ignored; a delimiter is a tag and a length
// of 0; a length of all ones means "until the delimiter"
enum { PREAMBLE = 128, UNDEFINED_BYTES = 8 };
static const uint32_t UNDEFINED = 0xFFFFFFFFu;

// state of the walk: one per walk_file, passed down
typedef struct Cursor {
    Walk *w;
    const WalkInput *in;
    WalkLimits limits;
    size_t at, size;  // of the current bytes; size may exceed w->size
    uint32_t charset; // WalkElement.charset of the next element
    bool explicit_le_meta;
    bool more;       // reached the end of the prefix, not of the file
    bool pixels_met; // header_only: stop
} Cursor;

void walk_free(Walk *w)
{
    mem_free(w->inflated);
    mem_free(w->element);
    w->inflated = NULL, w->element = NULL, w->count = 0;
}

bool walk_looks(const uint8_t *bytes, size_t have, bool *marked)
{
    *marked = have >= PREAMBLE + 4 && !memcmp(bytes + PREAMBLE, "DICM", 4);
    if (*marked) return true;
    if (have < 8) return false;

    // an old file starts directly with group 0002 or 0008, in explicit VR with
    // a known VR, or in implicit VR with a small and even length; element
    // number <= 0x18: the first elements of group 0008
    uint16_t group = number_u16(bytes, false),
             element = number_u16(bytes + 2, 0);
    if ((group != 0x0002 && group != 0x0008) || element > 0x0018) return false;
    if (dicom_vr_known(VR(bytes[4], bytes[5]))) return true;
    uint32_t length = number_u32(bytes + 4, false);
    return group == 0x0008 && length <= 64 && length % 2 == 0;
}

// Checks that n bytes at the cursor can be read; else sets `more`, or fails
// with row 3. Callers test `more` to tell the two apart: row 3 is damage,
// `more` means that a longer prefix of the file must be read.
static bool need(Cursor *c, size_t n, size_t end)
{
    if (end - c->at < n)
        return dicom_fail(c->in->path, 0, NULL,
                          "file ends inside an element header at byte %zu",
                          c->at);
    if (c->w->size < c->at || c->w->size - c->at < n) {
        c->more = true;
        return false;
    }
    return true;
}

// Appends an element at the cursor; NULL with a reason. It may move the whole
// list and invalidate pointers into it, so callers keep the index.
static WalkElement *push(Cursor *c, uint32_t tag, int depth)
{
    Walk *w = c->w;
    if (w->count >= c->limits.elements) {
        dicom_fail(c->in->path, 0, NULL, "more than %zu elements (limit %zu)",
                   c->limits.elements, c->limits.elements);
        return NULL;
    }

    if (w->count == w->room) {
        uint32_t room = w->room ? 2 * w->room : 128;
        WalkElement *grown = mem_realloc(w->element, room * sizeof *grown);
        if (!grown) return NULL;
        w->element = grown, w->room = room;
    }

    WalkElement *e = &w->element[w->count++];
    *e = (WalkElement){.tag = tag,
                       .charset = c->charset,
                       .depth = (uint8_t)depth,
                       .at = c->at};
    return e;
}

// the encoding of the elements of one level
typedef struct Layout {
    bool implicit, big;
} Layout;

// Reads the length field after the tag, and the VR: from the file, or from the
// table in tag.h for implicit VR. The cursor ends on the value. Items and
// delimiters have no VR in any encoding.
static bool read_length(Cursor *c, Layout how, size_t end, WalkElement *e,
                        uint32_t *length)
{
    const uint8_t *p = c->w->bytes + c->at + 4;
    if (how.implicit || e->tag >> 16 == 0xFFFE) {
        const DicomTag *t = dicom_tag(e->tag);
        e->vr = t ? t->vr : 0;
        *length = number_u32(p, how.big);
        c->at += 8;
        return true;
    }

    e->vr = VR(p[0], p[1]);
    if (!dicom_vr_long(e->vr)) {
        *length = number_u16(p + 2, how.big);
        c->at += 8;
        return true;
    }

    if (!need(c, 12, end)) return false;
    *length = number_u32(c->w->bytes + c->at + 8, how.big);
    c->at += 12;
    return true;
}

// row 13: a VR of the standard, and the one that it defines for this element;
// UN is accepted for every element
static bool check_vr(const Cursor *c, const WalkElement *e)
{
    char got[3] = {'?', '?', 0};
    for (int i = 0; i < 2; i++) {
        char letter = (char)(i ? e->vr & 0xFF : e->vr >> 8);
        if (letter >= ' ' && letter <= '~') got[i] = letter;
    }
    const DicomTag *t = dicom_tag(e->tag);
    if (!t && dicom_vr_known(e->vr)) return true;
    if (t && (e->vr == t->vr || e->vr == t->vr2)) return true;
    if (t && e->vr == VR('U', 'N')) return true;
    if (!t)
        return dicom_fail(c->in->path, e->tag, NULL,
                          "value representation %s, need one of the standard",
                          got);
    return dicom_fail(c->in->path, e->tag, NULL,
                      "value representation %s, need %c%c", got, t->vr >> 8,
                      t->vr & 0xFF);
}

// order of two tags, for qsort
static int compare_tags(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

// rows 11 and 45 if the order does not show a repetition directly
static bool check_unique(const Cursor *c, uint32_t first)
{
    const Walk *w = c->w;
    uint32_t n = 0, *tags = mem_alloc((w->count - first) * sizeof *tags);
    if (!tags) return false;
    for (uint32_t i = first; i < w->count; i = w->element[i].next)
        tags[n++] = w->element[i].tag;
    qsort(tags, n, sizeof *tags, compare_tags);
    bool ok = true;
    for (uint32_t i = 1; i < n && ok; i++)
        if (tags[i] == tags[i - 1])
            ok = dicom_fail(c->in->path, tags[i], NULL,
                            tags[i] == TAG_PixelData ? "two PixelData elements"
                                                     : "element appears twice");

    mem_free(tags);
    return ok;
}

static bool walk_level(Cursor *c, Layout how, int depth, size_t end,
                       bool undefined);

// The standard requires even lengths. Values of odd length are read with their
// stated length, as pydicom and DCMTK do.
static void note_odd_length(Walk *w, uint32_t tag, uint32_t length)
{
    if (length % 2 == 0) return;
    if (!(w->odd & WALK_ODD_LENGTH)) w->odd_length_tag = tag;
    w->odd |= WALK_ODD_LENGTH;
}

// The encoding inside a sequence with VR UN, at its first item: implicit VR
// little endian by the standard (PS3.5 6.2.2 note 2). Writers that kept
// explicit VR are recognised by the VR of the first element; as a length of
// implicit VR its two letters would be 17 KB at least. Beyond the prefix of the
// file the result does not matter: the walk stops there.
static Layout unknown_layout(const Cursor *c, size_t end)
{
    enum { ITEM_AND_VR = 14 };
    const uint8_t *p = c->w->bytes + c->at;
    const bool there = end - c->at >= ITEM_AND_VR && c->at < c->w->size &&
                       c->w->size - c->at >= ITEM_AND_VR;
    return (Layout){.implicit = !there || !dicom_vr_known(VR(p[12], p[13]))};
}

// Reads the items of a sequence or the fragments of encapsulated pixel data;
// c->at is at the first, `end` bounds both forms.
static bool walk_items(Cursor *c, Layout how, int depth, size_t end,
                       bool undefined, bool fragments)
{
    while (undefined || c->at < end) {
        if (undefined && c->at == end)
            return dicom_fail(c->in->path, 0, NULL,
                              "sequence not closed at end of file");
        if (!need(c, 8, end)) return false;
        const uint8_t *p = c->w->bytes + c->at;
        uint32_t tag =
            (uint32_t)number_u16(p, how.big) << 16 | number_u16(p + 2, how.big);
        uint32_t length = number_u32(p + 4, how.big);
        if (tag == TAG_SEQUENCE_END && undefined) {
            c->at += 8;
            return true;
        }
        if (tag == TAG_ITEM_END)
            return dicom_fail(c->in->path, 0, NULL,
                              "item delimiter without item at byte %zu", c->at);
        if (tag != TAG_ITEM)
            return dicom_fail(
                c->in->path, tag, NULL,
                "element where a sequence needs an item at byte %zu", c->at);
        WalkElement *e = push(c, tag, depth);
        if (!e) return false;
        uint32_t self = c->w->count - 1;
        c->at += 8;
        e->offset = c->at;
        e->undefined = length == UNDEFINED;
        size_t left = end - c->at;
        if ((e->undefined && fragments) || (!e->undefined && length > left))
            return dicom_fail(
                c->in->path, tag, NULL,
                "element says %u bytes, only %zu left at byte %zu",
                (unsigned)length, left, e->at);
        if (fragments) {
            note_odd_length(c->w, TAG_PixelData, length);
            e->length = length;
            c->at += length;
        } else {
            bool open = e->undefined;
            size_t stop = open ? end : c->at + length;
            const uint32_t charset = c->charset;
            if (!walk_level(c, how, depth + 1, stop, open)) return false;
            c->charset = charset;
            e = &c->w->element[self];
            e->length = c->at - e->offset - (open ? UNDEFINED_BYTES : 0);
        }
        c->w->element[self].next = c->w->count;
    }
    return true;
}

// Reads the contents of an element after its header. An encapsulated PixelData
// is parsed like a sequence with fragments as items, whose bytes are not
// parsed. `unknown`: the VR is UN in the file.
static bool walk_value(Cursor *c, Layout how, uint32_t self, uint32_t length,
                       size_t end, bool unknown)
{
    WalkElement *e = &c->w->element[self];
    const char *path = c->in->path;
    e->offset = c->at;
    size_t left = end - c->at;
    if (!e->undefined && length > left)
        return dicom_fail(path, e->tag, NULL,
                          "element says %u bytes, only %zu left at byte %zu",
                          (unsigned)length, left, e->at);
    if (!e->undefined) note_odd_length(c->w, e->tag, length);
    bool pixels = e->tag == TAG_PixelData;

    if (pixels && e->depth == 0) {
        c->w->pixels = self;
        e->length = e->undefined ? 0 : length;
        if (c->in->header_only) {
            c->pixels_met = true;
            return true;
        }
    }

    // Undefined length is for sequences and fragments. In an implicit file a
    // tag outside the table of tag.h has no VR: it is read as a sequence.
    bool sequence = e->vr == VR('S', 'Q') || (e->undefined && !pixels);
    if (!sequence && !e->undefined) {
        e->length = length;
        c->at += length;
        return true;
    }

    if (sequence && e->vr && e->vr != VR('S', 'Q') && !unknown)
        return dicom_fail(path, e->tag, NULL,
                          "undefined length in a value of type %c%c",
                          e->vr >> 8, e->vr & 0xFF);

    // two levels of depth per sequence: the item and its contents
    if (sequence && e->depth / 2 + 1 > WALK_DEPTH)
        return dicom_fail(path, e->tag, NULL, "sequences nested deeper than %d",
                          WALK_DEPTH);
    if (unknown && sequence) how = unknown_layout(c, end);
    bool open = e->undefined;
    e->implicit = how.implicit;

    // an open sequence ends with its delimiter, inside the enclosing element
    size_t stop = open ? end : c->at + length;
    if (!walk_items(c, how, e->depth + 1, stop, open, pixels)) return false;
    e = &c->w->element[self];
    e->length = c->at - e->offset - (open ? UNDEFINED_BYTES : 0);
    return true;
}

// row 10: an open group, to compare its actual length with the stated one
typedef struct Group {
    uint32_t tag;
    size_t start;
    uint64_t says;
    bool open;
} Group;

static void close_group(Cursor *c, Group *g)
{
    if (!g->open) return;
    g->open = false;
    if (c->at - g->start == g->says) return;
    if (!c->w->odd_tag) c->w->odd_tag = g->tag;
    c->w->odd |= WALK_GROUP_LENGTH;
}

// after the pixels: is this the beginning of another element?
static bool another(const Cursor *c, Layout how, size_t end)
{
    if (end - c->at < 8) return false;
    const uint8_t *p = c->w->bytes + c->at;
    uint32_t tag =
        (uint32_t)number_u16(p, how.big) << 16 | number_u16(p + 2, how.big);
    if (tag < (uint32_t)TAG_PixelData) return false;
    return how.implicit || tag >> 16 == 0xFFFE ||
           dicom_vr_known(VR(p[4], p[5]));
}

// reads elements up to `end`, or up to the item delimiter if undefined
static bool walk_level(Cursor *c, Layout how, int depth, size_t end,
                       bool undefined)
{
    uint32_t first = c->w->count, highest = 0;
    bool sorted = true;
    Group group = {0};

    while (undefined || c->at < end) {
        Walk *w = c->w;
        if (undefined && c->at == end)
            return dicom_fail(c->in->path, 0, NULL,
                              "sequence not closed at end of file");
        if (depth == 0 && w->pixels != WALK_ROOT && !another(c, how, end)) {
            w->odd |= WALK_TRAILING;
            w->trailing = end - c->at;
            c->at = end;
            break;
        }
        if (!need(c, 8, end)) return false;
        const uint8_t *p = w->bytes + c->at;
        uint32_t tag =
            (uint32_t)number_u16(p, how.big) << 16 | number_u16(p + 2, how.big);
        if (tag == TAG_ITEM_END && undefined) {
            c->at += 8;
            break;
        }
        if (tag >> 16 == 0xFFFE)
            return dicom_fail(c->in->path, 0, NULL,
                              tag == TAG_ITEM_END
                                  ? "item delimiter without item at byte %zu"
                                  : "item outside a sequence at byte %zu",
                              c->at);
        // the meta group ends at the first element of another group
        if (c->explicit_le_meta && tag >> 16 != 0x0002) break;
        if (group.open && tag >> 16 != group.tag >> 16) close_group(c, &group);
        WalkElement *e = push(c, tag, depth);
        if (!e) return false;
        uint32_t self = w->count - 1, length;
        if (!read_length(c, how, end, e, &length)) return false;
        if (!how.implicit && !check_vr(c, e)) return false;
        e->undefined = length == UNDEFINED;
        const bool unknown = e->vr == VR('U', 'N');
        const DicomTag *known = unknown ? dicom_tag(tag) : NULL;
        if (known) e->vr = known->vr;
        if (!walk_value(c, how, self, length, end, unknown)) return false;
        e = &w->element[self];
        e->next = w->count;
        if (tag == TAG_SpecificCharacterSet && e->length) c->charset = self;
        if (tag <= highest && self != first) {
            if (sorted && !w->odd_tag) w->odd_tag = tag;
            sorted = false;
        }
        if (tag > highest) highest = tag;
        if (c->pixels_met) break;
        if (!(tag & 0xFFFF) && depth == 0 && e->length == 4 &&
            e->offset + 4 <= w->size)
            group = (Group){.tag = tag,
                            .start = c->at,
                            .says = number_u32(w->bytes + e->offset, how.big),
                            .open = true};
    }

    if (!c->pixels_met) close_group(c, &group);
    if (!sorted && !check_unique(c, first)) return false;
    if (!sorted) c->w->odd |= WALK_ORDER;
    return true;
}

// Inflates the data after the meta group into `out`; with NULL it only counts
// the bytes. *bytes is the inflated size.
static bool inflate_into(const Cursor *c, uint8_t *out, size_t *bytes)
{
    enum { PIECE = 1 << 16, MOST = 1 << 30 };
    const Walk *w = c->w;
    const char *path = c->in->path;
    const size_t limit = c->limits.inflated_bytes, room = out ? *bytes : 0;
    const uint8_t *from = w->bytes + c->at;
    size_t left = w->size - c->at, used = 0;
    uint8_t *piece = out ? NULL : mem_alloc(PIECE);
    z_stream z = {.zalloc = gzip_alloc, .zfree = gzip_free};
    int code = Z_OK;
    bool ok = false;
    if (!out && !piece) return false;
    if (inflateInit2(&z, -MAX_WBITS) != Z_OK) {
        mem_free(piece);
        return fail("no memory to inflate %s", path);
    }

    // each turn gives zlib more input, more room, or both
    while (code != Z_STREAM_END) {
        if (!z.avail_in && left) {
            z.next_in = (Bytef *)(uintptr_t)from;
            z.avail_in = left > MOST ? MOST : (uInt)left;
            from += z.avail_in, left -= z.avail_in;
        }
        size_t chunk = !out ? PIECE : room - used > MOST ? MOST : room - used;
        z.next_out = out ? out + used : piece;
        z.avail_out = (uInt)chunk;
        code = inflate(&z, Z_NO_FLUSH);
        used += chunk - z.avail_out;
        if (used > limit) {
            dicom_fail(path, 0, NULL, "deflated data grows beyond %zu", limit);
            goto done;
        }
        // zlib allocates its window only at this point
        if (code == Z_MEM_ERROR) {
            fail("no memory to inflate %s", path);
            goto done;
        }
        if (code != Z_OK && code != Z_STREAM_END) {
            dicom_fail(path, 0, NULL,
                       "deflated data set is damaged at byte %zu",
                       w->size - left - z.avail_in);
            goto done;
        }
    }

    *bytes = used;
    ok = true;

done:
    inflateEnd(&z);
    mem_free(piece);
    return ok;
}

// Rows 21 and 22: inflates the data set after the meta group within the limits.
// The inflated size is not in the file, so it is inflated twice: first only
// counting, which takes no memory for any size, then into a block of that size.
// The compressed bytes stay with the caller; w->inflated is owned by w and
// freed by walk_free also after a failure.
static bool inflate_rest(Cursor *c)
{
    Walk *w = c->w;
    size_t bytes = 0;
    if (!inflate_into(c, NULL, &bytes)) return false;
    if (!(w->inflated = mem_alloc(bytes + 1))) return false;
    bytes++; // room for one excess byte: zlib needs room at the end
    if (!inflate_into(c, w->inflated, &bytes)) return false;
    w->bytes = w->inflated;
    w->size = c->size = bytes;
    c->at = 0;
    return true;
}

// reads the transfer syntax of the meta group, if there is one
static bool read_syntax(Cursor *c)
{
    Walk *w = c->w;
    const WalkElement *e = walk_find(w, WALK_ROOT, TAG_TransferSyntaxUID);
    if (!e) return true;
    if (e->offset + e->length > w->size) {
        c->more = true;
        return false;
    }

    // a longer UID is cut, and then unknown
    size_t n = e->length < sizeof w->syntax ? e->length : sizeof w->syntax - 1;
    memcpy(w->syntax, w->bytes + e->offset, n);
    while (n && (!w->syntax[n - 1] || w->syntax[n - 1] == ' ')) n--;
    w->syntax[n] = 0;
    for (size_t i = 0; i < n; i++)
        if (!strchr("0123456789.", w->syntax[i])) w->syntax[i] = '?';
    w->transfer = dicom_transfer(w->syntax);
    return true;
}

// without a transfer syntax only the option assume_implicit allows reading on
static bool assume_syntax(Cursor *c)
{
    Walk *w = c->w;
    if (*w->syntax) return true;
    if (!c->in->assume_implicit)
        return dicom_fail(
            c->in->path, TAG_TransferSyntaxUID, NULL,
            "no transfer syntax; assume_implicit_le = true to force");
    w->transfer = dicom_transfer("1.2.840.10008.1.2");
    return true;
}

// Parses the whole file: meta group, then the data set in the encoding that the
// meta group names. false: a reason, or c->more.
static bool walk_all(Cursor *c, bool marked)
{
    Walk *w = c->w;
    c->at = marked ? PREAMBLE + 4 : 0;
    if (!need(c, 2, c->size)) return false;

    // the meta group is always explicit little endian
    c->explicit_le_meta = true;
    if (number_u16(w->bytes + c->at, false) == 0x0002 &&
        !walk_level(c, (Layout){0}, 0, c->size, false))
        return false;

    // from here on the encoding of the data set
    c->explicit_le_meta = false;
    if (!read_syntax(c) || !assume_syntax(c)) return false;

    // offsets of the meta group are invalid in an inflated data set
    w->count = 0;
    c->charset = WALK_ROOT;

    if (w->transfer && w->transfer->deflated) {
        if (w->size < c->size) {
            c->more = true;
            return false;
        }
        if (!inflate_rest(c)) return false;
    }

    // Implicit and big endian are known by UID; all others are compressions. An
    // unknown syntax is read as compressed pixels in an explicit data set
    w->implicit = w->transfer && w->transfer->implicit;
    w->big_endian = w->transfer && w->transfer->big_endian;
    Layout how = {w->implicit, w->big_endian};
    if (!walk_level(c, how, 0, c->size, false)) return false;

    // the last value of a file without pixels may end after the prefix
    if (!c->pixels_met && w->size < c->size) c->more = true;
    return !c->more;
}

WalkResult walk_file(const WalkInput *in, Walk *w)
{
    *w = (Walk){.path = in->path,
                .bytes = in->bytes,
                .size = in->have,
                .pixels = WALK_ROOT};
    CHECK(in->have <= in->size && (in->header_only || in->have == in->size));
    Cursor c = {.w = w, .in = in, .size = in->size, .charset = WALK_ROOT};
    if (in->limits) c.limits = *in->limits;

    // defaults for limits of 0; a segmentation of many frames has many
    // elements, but larger pixels
    if (!c.limits.elements)
        c.limits.elements =
            in->size / 64 > WALK_ELEMENTS ? in->size / 64 : WALK_ELEMENTS;
    if (!c.limits.file_bytes) c.limits.file_bytes = (size_t)16 << 30;
    if (!c.limits.inflated_bytes)
        c.limits.inflated_bytes = ((size_t)256 << 20) + 64 * in->size;
    bool marked;
    if (!in->size) {
        dicom_fail(in->path, 0, NULL, "file is empty");
        return WALK_NOT_DICOM;
    }
    if (!walk_looks(in->bytes, in->have, &marked)) {
        dicom_fail(in->path, 0, NULL,
                   "not DICOM: no DICM mark and no readable group 0008");
        return WALK_NOT_DICOM;
    }

    if (in->size > c.limits.file_bytes) {
        dicom_fail(in->path, 0, NULL, "file larger than limit %zu",
                   c.limits.file_bytes);
        return WALK_DAMAGED;
    }

    if (walk_all(&c, marked)) return WALK_DONE;
    return c.more ? WALK_MORE : WALK_DAMAGED;
}

size_t walk_unpadded(const void *value, size_t n)
{
    const char *p = value;
    while (n && (p[n - 1] == ' ' || !p[n - 1])) n--;
    return n;
}

// Steps from sibling to sibling by `next`, which skips their contents.
const WalkElement *walk_find(const Walk *w, uint32_t parent, uint32_t tag)
{
    uint32_t i = 0, end = w->count;
    if (parent != WALK_ROOT) i = parent + 1, end = w->element[parent].next;
    for (; i < end; i = w->element[i].next)
        if (w->element[i].tag == tag) return &w->element[i];
    return NULL;
}

// An element is part of one array, so its index follows from its address.
uint32_t walk_item(const Walk *w, const WalkElement *sequence, uint32_t index)
{
    uint32_t i = (uint32_t)(sequence - w->element) + 1;
    for (; i < sequence->next; i = w->element[i].next)
        if (!index--) return i;
    return WALK_ROOT;
}
