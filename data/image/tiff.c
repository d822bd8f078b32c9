/* tiff.c -- parses the directories of a TIFF file.
 *
 * A TIFF is a chain of directories, one per page: entries of 12 bytes with a
 * tag, a type, a count and the value or its offset. The pixels are stored in
 * strips or tiles ("pieces") anywhere in the file. Every offset is checked
 * against the length of the file before libtiff (tiff_pixels.c) decodes a
 * piece; libtiff gets a directory written by this program, never that of the
 * file. */
#include "data/format/gzip.h"
#include "data/image/image_format.h"
#include <string.h>

enum {
    ENTRY = 12,
    MOST_PAGES = 10000, /* more indicate a cyclic chain */
    NONE = 1,
    LZW = 5,
    DEFLATE = 8,
    PACKBITS = 32773,
    OLD_DEFLATE = 32946,
    TYPES = 19, /* 1 to 13 and 16 to 18 exist */
    XMP = 700,  /* a tag: an XMP packet (XMP specification, part 3, 3.2.3) */
};

/* The tags that are read; the data of others need only lie in the file. */
typedef enum Field {
    WIDTH,
    HEIGHT,
    BITS,
    COMPRESSION,
    PHOTOMETRIC,
    FILL_ORDER,
    STRIP_OFFSETS,
    ORIENTATION,
    SAMPLES,
    STRIP_ROWS,
    STRIP_BYTES,
    PLANES,
    PREDICTOR,
    TILE_WIDTH,
    TILE_HEIGHT,
    TILE_OFFSETS,
    TILE_BYTES,
    EXTRA_SAMPLES,
    SAMPLE_FORMAT,
    FIELDS
} Field;

static const struct {
    int tag;
    const char *name;
} fields[FIELDS] = {
    [WIDTH] = {256, "ImageWidth"},
    [HEIGHT] = {257, "ImageLength"},
    [BITS] = {258, "BitsPerSample"},
    [COMPRESSION] = {259, "Compression"},
    [PHOTOMETRIC] = {262, "PhotometricInterpretation"},
    [FILL_ORDER] = {266, "FillOrder"},
    [STRIP_OFFSETS] = {273, "StripOffsets"},
    [ORIENTATION] = {274, "Orientation"},
    [SAMPLES] = {277, "SamplesPerPixel"},
    [STRIP_ROWS] = {278, "RowsPerStrip"},
    [STRIP_BYTES] = {279, "StripByteCounts"},
    [PLANES] = {284, "PlanarConfiguration"},
    [PREDICTOR] = {317, "Predictor"},
    [TILE_WIDTH] = {322, "TileWidth"},
    [TILE_HEIGHT] = {323, "TileLength"},
    [TILE_OFFSETS] = {324, "TileOffsets"},
    [TILE_BYTES] = {325, "TileByteCounts"},
    [EXTRA_SAMPLES] = {338, "ExtraSamples"},
    [SAMPLE_FORMAT] = {339, "SampleFormat"},
};

/* A value: whole numbers of 1, 2 or 4 bytes at an offset in the file. */
typedef struct Value {
    uint32_t count; /* 0: the tag is absent */
    int bytes;      /* of one number */
    size_t at;
} Value;

typedef struct Directory {
    const ImageFile *f;
    bool big;
    size_t next;           /* offset of the next directory; 0: none */
    size_t xmp, xmp_bytes; /* of the XMP packet; 0 bytes: none */
    Value value[FIELDS];
} Directory;

/* Returns number i of an array of `bytes` bytes each at p. */
static uint32_t number_of(const uint8_t *p, int bytes, uint32_t i, bool big)
{
    p += (size_t)i * (size_t)bytes;
    return bytes == 1   ? *p
           : bytes == 2 ? number_u16(p, big)
                        : number_u32(p, big);
}

/* Returns number i of a value, which has at least i + 1. */
static uint32_t number(const Directory *d, Field k, uint32_t i)
{
    const Value *v = &d->value[k];
    return number_of(d->f->bytes + v->at, v->bytes, i, d->big);
}

/* Returns the number of a tag, or `without` if the tag is absent. */
static uint32_t only(const Directory *d, Field k, uint32_t without)
{
    return d->value[k].count ? number(d, k, 0) : without;
}

static bool read_entry(Directory *d, const uint8_t *e, int *before)
{
    // 13, a directory, is from TIFF supplement 1; 16 to 18 are from BigTIFF
    static const uint8_t bytes[TYPES] = {0, 1, 1, 2, 4, 8, 1, 1, 2, 4,
                                         8, 4, 8, 4, 0, 0, 8, 8, 8};
    bool wanted = false;
    int tag = (int)number_u16(e, d->big), type = (int)number_u16(e + 2, d->big);
    uint32_t count = number_u32(e + 4, d->big);

    if (tag <= *before)
        return fail_data("tag %d comes after tag %d, need ascending numbers",
                         tag, *before);
    *before = tag;
    for (int k = 0; k < FIELDS; k++) wanted = wanted || fields[k].tag == tag;

    // TIFF 6.0, section 2: fields of unknown type are skipped
    if (type >= TYPES || !bytes[type])
        return !wanted || fail_data("tag %d has the type %d, need a type of "
                                    "TIFF",
                                    tag, type);
    uint64_t all = (uint64_t)count * bytes[type];
    size_t at =
        all <= 4 ? (size_t)(e + 8 - d->f->bytes) : number_u32(e + 8, d->big);
    if (at > d->f->size || all > d->f->size - at)
        return fail_data("tag %d has %llu bytes at byte %zu, outside the file",
                         tag, (unsigned long long)all, at);
    if (tag == XMP && all > 4) d->xmp = at, d->xmp_bytes = (size_t)all;

    for (int k = 0; k < FIELDS; k++) {
        if (fields[k].tag != tag) continue;
        // bytes, or unsigned integers of 16 or 32 bits
        if (!count || (type != 1 && type != 3 && type != 4))
            return fail_data("%s has %u values of type %d, need whole numbers",
                             fields[k].name, count, type);
        d->value[k] = (Value){count, bytes[type], at};
    }
    return true;
}

static bool read_directory(Directory *d, size_t at)
{
    const uint8_t *b = d->f->bytes;
    size_t size = d->f->size;
    int before = -1;

    memset(d->value, 0, sizeof d->value);
    d->xmp_bytes = 0;
    if (at < 8 || at > size || size - at < 2)
        return fail_data("a directory at byte %zu of a file of %zu", at, size);
    uint32_t entries = number_u16(b + at, d->big);
    if (!entries || (size - at - 2) / ENTRY < entries ||
        size - at - 2 - (size_t)entries * ENTRY < 4)
        return fail_data("the directory at byte %zu has %u entries, only %zu "
                         "bytes left",
                         at, entries, size - at - 2);

    for (uint32_t i = 0; i < entries; i++)
        if (!read_entry(d, b + at + 2 + (size_t)i * ENTRY, &before))
            return false;
    d->next = number_u32(b + at + 2 + (size_t)entries * ENTRY, d->big);
    return true;
}

/* Reads the requested page; counts all. */
static bool find_page(ImageFile *f, Directory *d)
{
    int want = f->options.page > 0 ? f->options.page : 1;
    Directory other = {.f = f, .big = d->big};
    size_t at = number_u32(f->bytes + 4, d->big);

    for (f->info.pages = 0; at; at = other.next) {
        if (++f->info.pages > MOST_PAGES)
            return fail_data("more than %d pages: the chain of directories "
                             "has no end",
                             MOST_PAGES);
        if (!read_directory(&other, at)) return false;
        if (f->info.pages == want) *d = other;
    }

    if (!f->info.pages) return fail_data("no pages: there is no directory");
    if (f->info.pages > 1 && !f->options.page)
        return fail_data("%d pages in one file; fix: page = 1, or whichever is "
                         "meant",
                         f->info.pages);
    return image_page(f);
}

/* Reads the sample format. */
static bool read_samples(ImageFile *f, const Directory *d)
{
    TiffLayout *l = &f->of.tiff;
    ImageInfo *info = &f->info;
    static const char kinds[] = "uif";

    for (int k = 0; k < FIELDS; k++) {
        bool needed = k == WIDTH || k == HEIGHT || k == PHOTOMETRIC;
        if (needed && !d->value[k].count)
            return fail_data("tag %d (%s) is missing", fields[k].tag,
                             fields[k].name);
    }

    uint32_t samples = only(d, SAMPLES, 1), photo = only(d, PHOTOMETRIC, 0);
    uint32_t bits = only(d, BITS, 1), format = only(d, SAMPLE_FORMAT, 1);
    uint32_t w = only(d, WIDTH, 0), h = only(d, HEIGHT, 0);
    info->w = w > INT32_MAX ? INT32_MAX : (int32_t)w;
    info->h = h > INT32_MAX ? INT32_MAX : (int32_t)h;
    for (uint32_t i = 1; i < d->value[BITS].count; i++)
        if (number(d, BITS, i) != bits)
            return fail_data("samples of %u and %u bits in one pixel", bits,
                             number(d, BITS, i));
    for (uint32_t i = 1; i < d->value[SAMPLE_FORMAT].count; i++)
        if (number(d, SAMPLE_FORMAT, i) != format)
            return fail_data("samples of the formats %u and %u in one pixel",
                             format, number(d, SAMPLE_FORMAT, i));

    if (format < 1 || format > 3 ||
        !((bits == 8 && format == 1) || (bits == 16 && format < 3) ||
          (bits == 32 && format == 3)))
        return fail_data("samples of %u bits in the format %u, need 8 or 16 "
                         "bits without sign, 16 with sign, or 32-bit floats; "
                         "fix: save it as such",
                         bits, format);

    info->bits = (int)bits;
    info->kind = kinds[format - 1];

    if (photo > 2)
        return fail_data("%s (PhotometricInterpretation %u), need grey or RGB; "
                         "fix: save it as such",
                         photo == 3   ? "a palette"
                         : photo == 4 ? "a transparency mask"
                         : photo == 5 ? "CMYK"
                         : photo == 6 ? "YCbCr"
                                      : "unknown colors",
                         photo);

    info->channels = photo == 2 ? 3 : 1;
    l->white_zero = photo == 0;
    uint32_t extra = samples - (uint32_t)info->channels;
    if (samples < (uint32_t)info->channels || extra > 1)
        return fail_data("%u samples a pixel, need %d, or one more for alpha",
                         samples, info->channels);

    // an extra sample that no tag describes has an unknown meaning, but is no
    // color
    info->alpha = extra == 1;
    l->samples = (int)samples;
    if (l->white_zero && (info->kind != 'u' || f->options.label))
        return fail_data("white is 0 (PhotometricInterpretation 0), which has "
                         "no meaning for %s; fix: save it with black as 0",
                         f->options.label ? "class numbers"
                                          : "numbers with a sign");
    return image_extents(f);
}

/* Reads compression, predictor and orientation. */
static bool read_packing(ImageFile *f, const Directory *d)
{
    static const struct {
        uint32_t number;
        const char *name;
    } refused[] = {
        {2, "CCITT RLE"}, {3, "CCITT fax 3"}, {4, "CCITT fax 4"},
        {6, "old JPEG"},  {7, "JPEG"},        {34712, "JPEG 2000"},
        {34887, "LERC"},  {34925, "LZMA"},    {50000, "Zstandard"},
        {50001, "WebP"},  {34661, "JBIG"},    {32809, "ThunderScan"}};
    TiffLayout *l = &f->of.tiff;
    uint32_t c = only(d, COMPRESSION, NONE), planes = only(d, PLANES, 1);
    uint32_t predictor = only(d, PREDICTOR, 1), fill = only(d, FILL_ORDER, 1);

    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (refused[i].number == c)
            return fail_data("compression %s is not read, need none, LZW, "
                             "deflate or PackBits; fix: tiffcp -c lzw",
                             refused[i].name);

    if (c != NONE && c != LZW && c != DEFLATE && c != PACKBITS &&
        c != OLD_DEFLATE)
        return fail_data("compression %u is not known", c);
    if (planes < 1 || planes > 2)
        return fail_data("PlanarConfiguration is %u, need 1 or 2", planes);
    if (fill != 1) return fail_data("FillOrder is %u, need 1", fill);

    // without LZW or deflate the tag has no meaning
    bool predicts = c == LZW || c == DEFLATE || c == OLD_DEFLATE;
    if (predicts && (predictor < 1 || predictor > 3 ||
                     (predictor == 3 && f->info.kind != 'f')))
        return fail_data("Predictor is %u, need 1 or 2, or 3 for floats",
                         predictor);
    l->compression = (int)c;
    l->predictor = predicts ? (int)predictor : 1;
    l->planar = planes == 2 && l->samples > 1;

    // without the tag, the orientation of XMP is used, else 1
    if (d->xmp_bytes) xmp_orientation(f, f->bytes + d->xmp, d->xmp_bytes);
    const bool said = d->value[ORIENTATION].count || !f->xmp_orientation;
    uint32_t turned = only(d, ORIENTATION, 1);
    return !said || image_orientation(f, turned > 8 ? 9 : (int)turned);
}

/* Reads the size of the pieces and their number. */
static bool read_pieces(ImageFile *f, const Directory *d)
{
    TiffLayout *l = &f->of.tiff;
    uint32_t w = (uint32_t)f->info.w, h = (uint32_t)f->info.h;
    l->tiled = d->value[TILE_WIDTH].count;
    Field at = l->tiled ? TILE_OFFSETS : STRIP_OFFSETS;
    Field bytes = l->tiled ? TILE_BYTES : STRIP_BYTES;
    l->piece_w = only(d, TILE_WIDTH, w);
    l->piece_h = l->tiled ? only(d, TILE_HEIGHT, 0) : only(d, STRIP_ROWS, h);
    if (!l->tiled && l->piece_h > h) l->piece_h = h;

    // a tile may be larger than the image, but not than the limit
    uint64_t most = (uint64_t)f->options.max_samples;

    if (!l->piece_w || !l->piece_h ||
        (l->tiled && (l->piece_w % 16 || l->piece_h % 16 ||
                      l->piece_h > most / 4 / l->piece_w)))
        return fail_data("%s of %u x %u pixels%s",
                         l->tiled ? "tiles" : "strips", l->piece_w, l->piece_h,
                         l->tiled ? ", need multiples of 16 within the limit"
                                  : "");

    l->across = (w + l->piece_w - 1) / l->piece_w;
    uint32_t down = (h + l->piece_h - 1) / l->piece_h;
    uint64_t planes = l->planar ? (uint64_t)l->samples : 1;
    uint64_t pieces = planes * l->across * down;

    for (int k = 0; k < 2; k++) {
        Field field = k ? bytes : at;
        if (d->value[field].count != pieces)
            return fail_data("%s has %u numbers, need %llu", fields[field].name,
                             d->value[field].count, (unsigned long long)pieces);
    }

    // the file has that many offsets and byte counts
    l->pieces = (uint32_t)pieces;
    l->per_plane = (uint32_t)(pieces / planes);
    l->offsets = d->value[at].at, l->offset_bytes = d->value[at].bytes;
    l->counts = d->value[bytes].at, l->count_bytes = d->value[bytes].bytes;
    return true;
}

TiffPiece tiff_piece(const ImageFile *f, uint32_t i)
{
    const TiffLayout *l = &f->of.tiff;
    const uint8_t *b = f->bytes;
    TiffPiece p = {
        .at = number_of(b + l->offsets, l->offset_bytes, i, l->big),
        .bytes = number_of(b + l->counts, l->count_bytes, i, l->big),
        .rows = l->piece_h,
    };
    if (!l->tiled) { // the last strip of a plane
        uint32_t left = (uint32_t)f->info.h - i % l->per_plane * l->piece_h;
        if (left < p.rows) p.rows = left;
    }
    return p;
}

/* Checks that every piece lies in the file and is large enough for its rows. */
static bool check_pieces(const ImageFile *f)
{
    const TiffLayout *l = &f->of.tiff;
    const char *name = l->tiled ? "tile" : "strip";

    // maximum number of bytes that one byte expands to
    uint64_t most = l->compression == NONE       ? 1
                    : l->compression == PACKBITS ? 64
                    : l->compression == LZW      ? 4096
                                                 : GZIP_MOST;
    uint64_t samples = l->planar ? 1 : (uint64_t)l->samples;
    uint64_t row = samples * l->piece_w * (uint64_t)f->info.bits / 8;
    uint64_t all = 0;

    for (uint32_t i = 0; i < l->pieces; i++) {
        TiffPiece p = tiff_piece(f, i);
        uint64_t need = row * p.rows;
        if (p.at > f->size || p.bytes > f->size - p.at)
            return fail_data("%s %u has %u bytes at byte %u, outside the file "
                             "of %zu: it is cut off",
                             name, i, p.bytes, p.at, f->size);
        if (l->compression == NONE && p.bytes != need)
            return fail_data("%s %u has %u bytes, need %llu", name, i, p.bytes,
                             (unsigned long long)need);
        if (need / most > p.bytes)
            return fail_data("%s %u of %u bytes cannot hold %llu", name, i,
                             p.bytes, (unsigned long long)need);
        // overlapping pieces would expand a small file to a large image
        all += p.bytes;
        if (all > f->size)
            return fail_data("the %ss together have more bytes than the file",
                             name);
    }
    return true;
}

bool tiff_look(ImageFile *f)
{
    Directory d = {.f = f};
    if (f->size < 8)
        return fail_data("file ends inside the header: %zu bytes, need 8",
                         f->size);
    f->of.tiff.big = d.big = f->bytes[0] == 'M';
    return find_page(f, &d) && read_samples(f, &d) && read_packing(f, &d) &&
           read_pieces(f, &d) && check_pieces(f);
}
