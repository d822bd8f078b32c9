/* png.c -- parses the chunks of a PNG file.
 *
 * A PNG is a signature and a sequence of chunks: length, four letters, data,
 * CRC. All are parsed and checked against ISO/IEC 15948 for order, number and
 * size, before png_pixels.c decodes the content. */
#include "data/image/image_format.h"
#include <stdio.h>
#include <string.h>
#include <zlib.h>

enum { SIGNATURE = 8, HEADER = 13, AROUND = 12 };

/* One chunk; `at` is the offset of its length. */
typedef struct Chunk {
    char type[5]; /* printable */
    uint32_t bytes;
    size_t at;
    const uint8_t *data;
} Chunk;

/* Chunks so far that affect the order of later ones. */
typedef struct Seen {
    bool header, palette, idat, idat_over, transparent;
} Seen;

/* Reads the chunk at *at and advances *at past it. */
static bool next_chunk(const ImageFile *f, size_t *at, Chunk *c)
{
    size_t left = f->size - *at;
    *c = (Chunk){.at = *at};
    if (!left) return fail_data("file ends without IEND: it is cut off");
    if (left < AROUND)
        return fail_data("file ends inside a chunk at byte %zu", *at);
    const uint8_t *p = f->bytes + *at;
    c->bytes = number_u32(p, true);

    for (int i = 0; i < 4; i++) {
        bool letter = (p[4 + i] | 32) >= 'a' && (p[4 + i] | 32) <= 'z';
        if (!letter)
            return fail_data("no chunk at byte %zu: its type is %02x %02x %02x "
                             "%02x",
                             *at, p[4], p[5], p[6], p[7]);
        c->type[i] = (char)p[4 + i];
    }

    if (c->bytes > left - AROUND)
        return fail_data("file ends inside the chunk %s at byte %zu: %u bytes, "
                         "only %zu left",
                         c->type, *at, c->bytes, left - AROUND);
    c->data = p + 8;

    // the CRC covers type and data
    uint32_t got = number_u32(c->data + c->bytes, true);
    uint32_t want = (uint32_t)crc32(crc32(0, Z_NULL, 0), p + 4, c->bytes + 4);
    if (got != want)
        return fail_data("chunk %s at byte %zu is damaged: its checksum is "
                         "%08x, need %08x",
                         c->type, *at, got, want);
    *at += AROUND + (size_t)c->bytes;
    return true;
}

/* Reads the extents and the sample format. */
static bool read_header(ImageFile *f, const Chunk *c)
{
    // bit depths of a color type, one bit each; 0: there is no such type
    static const struct {
        uint32_t depths;
        int samples;
    } types[7] = {
        {1 << 1 | 1 << 2 | 1 << 4 | 1 << 8 | 1 << 16, 1}, // grey
        {0, 0},
        {1 << 8 | 1 << 16, 3},                  // red, green, blue
        {1 << 1 | 1 << 2 | 1 << 4 | 1 << 8, 1}, // palette
        {1 << 8 | 1 << 16, 2},                  // grey and alpha
        {0, 0},
        {1 << 8 | 1 << 16, 4}, // colors and alpha
    };
    const uint8_t *p = c->data;
    PngLayout *l = &f->of.png;

    if (strcmp(c->type, "IHDR") || c->bytes != HEADER)
        return fail_data("the first chunk is %s of %u bytes, need IHDR of %d",
                         c->type, c->bytes, HEADER);
    uint32_t w = number_u32(p, true), h = number_u32(p + 4, true);
    f->info.w = w > INT32_MAX ? INT32_MAX : (int32_t)w;
    f->info.h = h > INT32_MAX ? INT32_MAX : (int32_t)h;
    f->info.bits = p[8];
    l->color = p[9];
    if (l->color > 6 || p[8] > 16 || !(types[l->color].depths >> p[8] & 1))
        return fail_data("%d bits with color type %d do not exist in PNG", p[8],
                         l->color);
    if (p[10] || p[11] || p[12] > 1)
        return fail_data("compression %d, filter %d, interlace %d; need 0, 0 "
                         "and 0 or 1",
                         p[10], p[11], p[12]);
    l->interlaced = p[12];
    f->info.kind = 'u';
    f->info.palette = l->color == 3;
    f->info.alpha = l->color == 4 || l->color == 6;
    bool colors =
        l->color == 2 || l->color == 6 || (l->color == 3 && !f->options.label);
    f->info.channels = colors ? 3 : 1;
    return image_extents(f);
}

static bool misplaced(const Chunk *c)
{
    return fail_data("chunk %s at byte %zu is not allowed there", c->type,
                     c->at);
}

static bool read_palette(ImageFile *f, const Chunk *c, Seen *seen)
{
    PngLayout *l = &f->of.png;
    uint32_t most = l->color == 3 ? 1u << f->info.bits : 256;

    // grey has no palette; with true color it is a hint for old displays
    if (seen->palette || seen->idat || seen->transparent || l->color == 0 ||
        l->color == 4)
        return misplaced(c);
    if (!c->bytes || c->bytes % 3 || c->bytes / 3 > most)
        return fail_data("the palette has %u bytes, need 3 a color, for 1 to "
                         "%u colors",
                         c->bytes, most);
    seen->palette = true;
    l->palette = c->data;
    l->colors = (int)(c->bytes / 3);
    return true;
}

/* Reads tRNS: the transparent color, or the alpha of palette colors. */
static bool read_transparent(ImageFile *f, const Chunk *c, Seen *seen)
{
    PngLayout *l = &f->of.png;
    if (seen->transparent || seen->idat || f->info.alpha ||
        (l->color == 3 && !seen->palette))
        return misplaced(c);
    uint32_t most = l->color == 3 ? (uint32_t)l->colors : 6;
    uint32_t least = l->color == 3 ? 1 : most;
    if (l->color == 0) least = most = 2;
    if (c->bytes < least || c->bytes > most)
        return fail_data("chunk tRNS has %u bytes, need %u to %u", c->bytes,
                         least, most);
    seen->transparent = true;
    return true;
}

static bool read_data(ImageFile *f, const Chunk *c, Seen *seen)
{
    PngLayout *l = &f->of.png;
    // the pixels must be complete before
    if (seen->idat_over) return f->options.trailing || misplaced(c);
    if (l->color == 3 && !seen->palette)
        return fail_data("no palette before the pixels, which are numbers of "
                         "its colors");
    if (!seen->idat) l->first_idat = c->at;
    l->idat_bytes += c->bytes;
    seen->idat = true;
    return true;
}

/* Reads any chunk but the first; *end if it was the last. */
static bool read_chunk(ImageFile *f, const Chunk *c, Seen *seen, bool *end)
{
    if (seen->idat && strcmp(c->type, "IDAT")) seen->idat_over = true;
    if (!strcmp(c->type, "IDAT")) return read_data(f, c, seen);
    if (!strcmp(c->type, "PLTE")) return read_palette(f, c, seen);
    if (!strcmp(c->type, "tRNS")) return read_transparent(f, c, seen);
    if (!strcmp(c->type, "eXIf")) return exif_orientation(f, c->data, c->bytes);
    if (!strcmp(c->type, "tEXt") || !strcmp(c->type, "zTXt") ||
        !strcmp(c->type, "iTXt"))
        return png_text(f, c->type, c->data, c->bytes);
    if (!strcmp(c->type, "acTL"))
        return fail_data("an animation, need one picture; fix: save the "
                         "frame that is meant");
    if (!strcmp(c->type, "IHDR")) return misplaced(c);
    if (!strcmp(c->type, "IEND")) {
        *end = true;
        return c->bytes == 0 ||
               fail_data("chunk IEND has %u bytes, need 0", c->bytes);
    }

    // a lower-case first letter: a decoder may ignore an unknown chunk
    if (c->type[0] >= 'a') return true;
    return fail_data("chunk %s at byte %zu is not known, but marked as needed "
                     "to understand the picture",
                     c->type, c->at);
}

bool png_look(ImageFile *f)
{
    static const uint8_t signature[SIGNATURE] = "\x89PNG\r\n\x1a\n";
    size_t at = SIGNATURE;
    Chunk c;
    Seen seen = {.header = false};
    bool end = false;

    if (f->size < SIGNATURE || memcmp(f->bytes, signature, SIGNATURE))
        return fail_data("the signature is damaged, as by a copy that changed "
                         "the ends of lines; fix: copy it again, as binary");
    if (!next_chunk(f, &at, &c) || !read_header(f, &c)) return false;
    while (!end)
        if (!next_chunk(f, &at, &c) || !read_chunk(f, &c, &seen, &end))
            return false;
    if (!seen.idat) return fail_data("no pixels: there is no chunk IDAT");
    f->info.alpha |= seen.transparent;
    return png_holds_rows(f) && image_trailing(f, at);
}
