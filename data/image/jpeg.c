/* jpeg.c -- parses the markers of a JPEG file.
 *
 * A JPEG is a sequence of segments, each a marker and a length, with compressed
 * pixels after each "start of scan". All segments are parsed here and checked
 * against the sizes in ITU-T T.81; inconsistent tables, which have crashed
 * decoders, are rejected. Supported are baseline, extended with 8 bits, and
 * progressive; the other processes of the standard are rejected by name. */
#include "data/image/image_format.h"
#include <string.h>

enum {
    SOF0 = 0xc0,
    SOF2 = 0xc2,
    DHT = 0xc4,
    DAC = 0xcc,
    RST0 = 0xd0,
    RST7 = 0xd7,
    SOI = 0xd8,
    EOI = 0xd9,
    SOS = 0xda,
    DQT = 0xdb,
    DNL = 0xdc,
    DHP = 0xde,
    DRI = 0xdd,
    APP1 = 0xe1,
    APP14 = 0xee,
    TEM = 0x01,
    MOST_SCANS = 100, /* a few thousand scans make a small file take minutes */
};

/* One segment after its length; `at` is the offset of its marker. */
typedef struct Segment {
    int marker;
    size_t at, bytes;
    const uint8_t *data;
} Segment;

/* A color component of the frame header. */
typedef struct Component {
    int id, h, v, table; /* sampling factors; quantization table */
} Component;

typedef struct Walk {
    ImageFile *f;
    size_t at;
    Component part[4];
    int parts, scans; /* parts 0: no frame yet */
    bool progressive;
    unsigned quant;      /* defined tables, one bit each */
    unsigned huffman[2]; /* of DC and AC */
    size_t packed;       /* bytes of all scans */
} Walk;

static bool next_segment(Walk *w, Segment *s)
{
    const uint8_t *b = w->f->bytes;
    size_t size = w->f->size;
    *s = (Segment){.at = w->at};
    if (w->at < size && b[w->at] != 0xff)
        return fail_data("no marker at byte %zu, but %02x; fix: save it again "
                         "with a program that displays it correctly",
                         w->at, b[w->at]);

    // any number of ff may precede a marker
    while (w->at < size && b[w->at] == 0xff) w->at++;
    if (w->at == size)
        return fail_data("file ends without an end of image: it is cut off");
    s->marker = b[w->at++];
    if (s->marker == EOI) return true;
    if (s->marker == 0 || s->marker == TEM ||
        (s->marker >= RST0 && s->marker <= SOI))
        return fail_data("marker %02x at byte %zu is not allowed there",
                         s->marker, s->at);
    size_t left = size - w->at;
    size_t bytes = left < 2 ? 0 : number_u16(b + w->at, true);
    if (left >= 2 && bytes < 2)
        return fail_data("segment %02x at byte %zu has the length %zu",
                         s->marker, s->at, bytes);
    if (left < 2 || bytes > left)
        return fail_data("file ends inside the segment %02x at byte %zu: %zu "
                         "bytes, only %zu left",
                         s->marker, s->at, bytes, left);
    s->data = b + w->at + 2;
    s->bytes = bytes - 2;
    w->at += bytes;
    return true;
}

/* Reads Huffman tables: a number of codes for each length, then their
 * values. */
static bool read_huffman(Walk *w, const Segment *s)
{
    const uint8_t *p = s->data, *end = p + s->bytes;
    while (p < end) {
        size_t codes = 0, room = 1;
        if (end - p < 17)
            return fail_data("Huffman table at byte %zu is cut off", s->at);
        int kind = p[0] >> 4, number = p[0] & 15;
        if (kind > 1 || number > 3)
            return fail_data("Huffman table at byte %zu is of class %d with "
                             "number %d, need 0 or 1 with 0 to 3",
                             s->at, kind, number);
        // room: codes of this length without a shorter code as prefix
        for (int length = 1; length <= 16; length++) {
            room *= 2;
            codes += p[length];
            if (codes > 256)
                return fail_data("Huffman table at byte %zu has more than 256 "
                                 "codes",
                                 s->at);
            if (p[length] > room)
                return fail_data("Huffman table at byte %zu has %d codes of %d "
                                 "bits, at most %zu fit",
                                 s->at, p[length], length, room);
            room -= p[length];
        }
        if ((size_t)(end - p) < 17 + codes)
            return fail_data("Huffman table at byte %zu has %zu codes, but %zu "
                             "bytes for them",
                             s->at, codes, (size_t)(end - p) - 17);
        p += 17 + codes;
        w->huffman[kind] |= 1u << number;
    }
    return true;
}

static bool read_quantization(Walk *w, const Segment *s)
{
    const uint8_t *p = s->data, *end = p + s->bytes;
    while (p < end) {
        size_t bytes = p[0] >> 4 ? 129 : 65;
        if (p[0] >> 4 > 1 || (p[0] & 15) > 3 || (size_t)(end - p) < bytes)
            return fail_data("quantization table at byte %zu is damaged",
                             s->at);
        w->quant |= 1u << (p[0] & 15);
        p += bytes;
    }
    return true;
}

/* Processes by the lower four bits of their marker. */
static const char *const processes[16] = {
    [3] = "lossless",
    [5] = "hierarchical",
    [6] = "hierarchical progressive",
    [7] = "hierarchical lossless",
    [9] = "arithmetic coding",
    [10] = "progressive with arithmetic coding",
    [11] = "lossless with arithmetic coding",
    [13] = "hierarchical with arithmetic coding",
    [14] = "hierarchical progressive with arithmetic coding",
    [15] = "hierarchical lossless with arithmetic coding",
};

static bool read_frame(Walk *w, const Segment *s)
{
    ImageInfo *info = &w->f->info;
    const uint8_t *p = s->data;
    if (processes[s->marker & 15])
        return fail_data("%s is not read, need baseline or progressive; fix: "
                         "save it as such, or as PNG",
                         processes[s->marker & 15]);
    if (w->parts)
        return fail_data("a second frame begins at byte %zu, need one", s->at);
    if (s->bytes < 6 || s->bytes != 6 + 3 * (size_t)p[5])
        return fail_data("the frame at byte %zu has %zu bytes, which does not "
                         "fit its number of colors",
                         s->at, s->bytes);
    if (p[0] != 8)
        return fail_data("%d bits a sample, need 8; fix: save it as a PNG of "
                         "16 bits",
                         p[0]);
    info->bits = 8, info->kind = 'u';
    info->h = (int32_t)number_u16(p + 1, true);
    info->w = (int32_t)number_u16(p + 3, true);
    info->channels = p[5];
    if (p[5] == 4)
        return fail_data("4 colors (CMYK or YCCK, for printing), need grey or "
                         "3 colors; fix: save it as RGB");
    if (p[5] != 1 && p[5] != 3)
        return fail_data("%d colors, need 1 or 3", p[5]);

    for (int i = 0; i < p[5]; i++) {
        const uint8_t *q = p + 6 + 3 * i;
        Component c = {q[0], q[1] >> 4, q[1] & 15, q[2]};
        if (c.h < 1 || c.h > 4 || c.v < 1 || c.v > 4 || c.table > 3)
            return fail_data("color %d has the sampling %d x %d and the "
                             "table %d, need 1 to 4 and 0 to 3",
                             i + 1, c.h, c.v, c.table);
        for (int k = 0; k < i; k++)
            if (w->part[k].id == c.id)
                return fail_data("two colors have the number %d", c.id);
        w->part[i] = c;
    }

    w->parts = p[5];
    w->progressive = s->marker == SOF2;
    return image_extents(w->f);
}

/* Checks that the tables of a scan are defined; decoders would invent one that
 * is not. */
static bool scan_tables(const Walk *w, const Segment *s, const Component *c,
                        int tables)
{
    const uint8_t *last = s->data + s->bytes - 3;
    bool refines = w->progressive && last[2] >> 4;
    bool uses[2] = {last[0] == 0 && !refines, last[1] > 0};

    if (!(w->quant >> c->table & 1))
        return fail_data("the scan at byte %zu uses the quantization table %d, "
                         "which was not defined",
                         s->at, c->table);

    for (int kind = 0; kind < 2; kind++) {
        int number = kind ? tables & 15 : tables >> 4;
        if (uses[kind] && (number > 3 || !(w->huffman[kind] >> number & 1)))
            return fail_data("the scan at byte %zu uses the Huffman table %d "
                             "of class %d, which was not defined",
                             s->at, number, kind);
    }
    return true;
}

static bool read_scan(Walk *w, const Segment *s)
{
    const uint8_t *p = s->data;
    if (!w->parts)
        return fail_data("the scan at byte %zu comes before the frame", s->at);
    if (s->bytes < 6 || p[0] < 1 || p[0] > w->parts ||
        s->bytes != 4 + 2 * (size_t)p[0])
        return fail_data("the scan at byte %zu does not fit the %d colors of "
                         "the frame",
                         s->at, w->parts);

    if (++w->scans > MOST_SCANS)
        return fail_data("more than %d scans", MOST_SCANS);

    for (int i = 0; i < p[0]; i++) {
        int k = 0;
        while (k < w->parts && w->part[k].id != p[1 + 2 * i]) k++;
        if (k == w->parts)
            return fail_data("the scan at byte %zu is of the color %d, which "
                             "the frame does not have",
                             s->at, p[1 + 2 * i]);
        if (!scan_tables(w, s, &w->part[k], p[2 + 2 * i])) return false;
    }

    // compressed pixels, up to an ff that is neither an escaped ff nor a
    // restart
    const uint8_t *b = w->f->bytes, *end = b + w->f->size, *q = b + w->at;
    while ((q = memchr(q, 0xff, (size_t)(end - q)))) {
        if (q + 1 == end) q = NULL;
        if (!q || (q[1] && (q[1] < RST0 || q[1] > RST7))) break;
        q += 2;
    }

    if (!q)
        return fail_data("file ends inside the scan that begins at byte %zu: "
                         "it is cut off",
                         s->at);
    w->packed += (size_t)(q - b) - w->at;
    w->at = (size_t)(q - b);
    return true;
}

/* Reads segments of applications that affect the interpretation of the
 * image. */
static bool read_application(Walk *w, const Segment *s)
{
    if (s->marker == APP1 && s->bytes >= 6 && !memcmp(s->data, "Exif\0", 6))
        return exif_orientation(w->f, s->data + 6, s->bytes - 6);
    static const char xmp[] = "http://ns.adobe.com/xap/1.0/"; // with its final
                                                              // 0
    if (s->marker == APP1 && s->bytes > sizeof xmp &&
        !memcmp(s->data, xmp, sizeof xmp))
        xmp_orientation(w->f, s->data + sizeof xmp, s->bytes - sizeof xmp);
    if (s->marker == APP14 && s->bytes >= 12 && !memcmp(s->data, "Adobe", 5) &&
        s->data[11] > 2)
        return fail_data("Adobe's color transform %d is not known, need 0 to 2",
                         s->data[11]);
    return true;
}

/* A block of 8 x 8 takes at least one bit: memory is allocated only for blocks
 * that the scans can contain. For an image in several scans libjpeg buffers all
 * blocks, with two bytes per coefficient. */
static bool check_packed(Walk *w)
{
    int most_h = 1, most_v = 1;
    uint64_t blocks = 0;
    for (int i = 0; i < w->parts; i++) {
        if (w->part[i].h > most_h) most_h = w->part[i].h;
        if (w->part[i].v > most_v) most_v = w->part[i].v;
    }

    for (int i = 0; i < w->parts; i++) {
        int across = 8 * most_h, down = 8 * most_v;
        uint64_t x = ((uint64_t)w->f->info.w * (uint64_t)w->part[i].h +
                      (uint64_t)across - 1) /
                     (uint64_t)across;
        uint64_t y = ((uint64_t)w->f->info.h * (uint64_t)w->part[i].v +
                      (uint64_t)down - 1) /
                     (uint64_t)down;
        blocks += x * y;
    }

    if (blocks / 8 > w->packed)
        return fail_data("%zu bytes of scans cannot hold %llu blocks of 8 x 8",
                         w->packed, (unsigned long long)blocks);
    if (w->progressive || w->scans > 1)
        w->f->of.jpeg.coefficients = (size_t)blocks * 64 * 2;
    return true;
}

static bool read_segment(Walk *w, const Segment *s)
{
    int m = s->marker;
    if (m == DHT) return read_huffman(w, s);
    if (m == DQT) return read_quantization(w, s);
    if (m == SOS) return read_scan(w, s);
    if (m == DAC || m == DHP || m == DNL)
        return fail_data("segment %02x at byte %zu belongs to a JPEG process "
                         "that is not supported",
                         m, s->at);
    if (m == DRI)
        return s->bytes == 2 ||
               fail_data("the restart interval at byte %zu has %zu bytes, "
                         "need 2",
                         s->at, s->bytes);

    if (m >= SOF0 && m < SOI && m != 0xc8) return read_frame(w, s);
    return read_application(w, s);
}

bool jpeg_look(ImageFile *f)
{
    Walk w = {.f = f, .at = 2};
    Segment s;
    if (f->options.label)
        return fail_data("JPEG changes numbers, class numbers do not survive "
                         "it; fix: save the mask as PNG");
    for (;;) {
        if (!next_segment(&w, &s)) return false;
        if (s.marker == EOI) break;
        if (!read_segment(&w, &s)) return false;
    }

    if (!w.scans)
        return fail_data("no pixels: the image ends at byte %zu without a scan",
                         s.at);
    return check_packed(&w) && image_trailing(f, w.at);
}
