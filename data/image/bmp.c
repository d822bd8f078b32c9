/* bmp.c -- reads Windows bitmaps: a header, optionally a palette, rows of
 * pixels.
 *
 * Supports uncompressed files of 1, 4, 8, 24 and 32 bits with the header
 * BITMAPINFOHEADER or an extension of it. Rows are padded to 4 bytes and stored
 * bottom up, or top down when the height is negative. BMP has no grey: it is
 * stored as a palette of only greys, and read as one channel. */
#include "data/image/image_format.h"
#include <string.h>

enum { FILE_HEADER = 14, INFO = 40, SMALLEST = FILE_HEADER + INFO };

/* Reads header and extents. */
static bool read_header(ImageFile *f)
{
    static const char *const compressions[] = {
        NULL, "RLE of 8 bits", "RLE of 4 bits", "bit fields", "JPEG", "PNG"};
    const uint8_t *b = f->bytes, *p = b + FILE_HEADER;
    BmpLayout *l = &f->of.bmp;

    if (f->size < FILE_HEADER + 4)
        return fail_data("file ends inside the header: %zu bytes, need %d",
                         f->size, SMALLEST);
    uint32_t header = number_u32(p, false);
    if (header == 12 || header == 64)
        return fail_data("a header of %u bytes (OS/2), need 40 or more; fix: "
                         "save it as PNG",
                         header);
    if (header < INFO || header > 124)
        return fail_data("a header of %u bytes, need 40 to 124", header);
    if (f->size < FILE_HEADER + header)
        return fail_data("file ends inside the header: %zu bytes, need %u",
                         f->size, FILE_HEADER + header);
    int32_t w = (int32_t)number_u32(p + 4, false);
    int32_t h = (int32_t)number_u32(p + 8, false);
    uint32_t planes = number_u16(p + 12, false);
    uint32_t bits = number_u16(p + 14, false);
    uint32_t packing = number_u32(p + 16, false);
    if (packing && packing < sizeof compressions / sizeof *compressions)
        return fail_data("compression %s is not read; fix: save it as PNG",
                         compressions[packing]);
    if (packing) return fail_data("compression %u is not known", packing);
    if (planes != 1) return fail_data("%u planes, need 1", planes);
    if (bits != 1 && bits != 4 && bits != 8 && bits != 24 && bits != 32)
        return fail_data("%u bits a pixel, need 1, 4, 8, 24 or 32", bits);
    if (w < 0 || h == INT32_MIN)
        return fail_data("%d x %d pixels: only the height may be negative", w,
                         h);
    l->top_down = h < 0;
    f->info.w = w, f->info.h = h < 0 ? -h : h;
    f->info.kind = 'u';
    f->info.bits = bits < 8 ? (int)bits : 8;
    f->info.palette = bits <= 8;
    f->info.channels = f->info.palette && f->options.label ? 1 : 3;
    return image_extents(f);
}

/* Reads the palette, between header and pixels. */
static bool read_palette(ImageFile *f)
{
    const uint8_t *p = f->bytes + FILE_HEADER;
    BmpLayout *l = &f->of.bmp;
    size_t header = number_u32(p, false), used = number_u32(p + 32, false);
    size_t most = (size_t)1 << f->info.bits, at = FILE_HEADER + header;

    if (used > most)
        return fail_data("a palette of %zu colors, need at most %zu for %d "
                         "bits",
                         used, most, f->info.bits);
    if (!used) used = most; // as the format specifies
    if (l->begin < at || 4 * used > l->begin - at)
        return fail_data("the palette of %zu colors reaches into the pixels, "
                         "which begin at byte %zu",
                         used, l->begin);
    l->palette = f->bytes + at;
    l->colors = (int)used;
    bool grey = true;
    for (size_t i = 0; i < used; i++) {
        const uint8_t *c = l->palette + 4 * i;
        grey = grey && c[0] == c[1] && c[1] == c[2];
    }
    if (grey) f->info.channels = 1;
    return true;
}

/* Is there an alpha channel? The fourth byte of 32 bits is specified as unused.
 * If it is not constant, the writer used it. */
static bool fourth_byte(const ImageFile *f)
{
    const uint8_t *p = f->bytes + f->of.bmp.begin;
    size_t n = (size_t)f->info.w * (size_t)f->info.h;
    uint8_t first = p[3];
    for (size_t i = 0; i < n; i++)
        if (p[4 * i + 3] != first) return true;
    return first != 0 && first != 255;
}

bool bmp_look(ImageFile *f)
{
    BmpLayout *l = &f->of.bmp;
    if (!read_header(f)) return false;
    const uint8_t *p = f->bytes + FILE_HEADER;
    size_t bits = number_u16(p + 14, false), rows;
    l->begin = number_u32(f->bytes + 10, false);
    l->row_bytes = ((size_t)f->info.w * bits + 31) / 32 * 4;
    if (!size_mul(l->row_bytes, (size_t)f->info.h, &rows)) return false;
    if (l->begin < FILE_HEADER + number_u32(p, false))
        return fail_data("the pixels begin at byte %zu, inside the header",
                         l->begin);
    if (l->begin > f->size || rows > f->size - l->begin)
        return fail_data("%zu bytes of pixels, need %zu: it is cut off",
                         l->begin < f->size ? f->size - l->begin : 0, rows);

    // the pixels end inside the file, so the palette before them does too
    if (f->info.palette && !read_palette(f)) return false;
    f->info.alpha = bits == 32 && fourth_byte(f);
    return image_trailing(f, l->begin + rows);
}

/* Converts one row with a palette: indices of 1, 4 or 8 bits, the first in the
 * highest bits. */
static bool palette_row(const ImageFile *f, const uint8_t *p, int32_t y,
                        uint8_t *out)
{
    const BmpLayout *l = &f->of.bmp;
    int bits = f->info.bits, channels = f->info.channels;

    for (int32_t x = 0; x < f->info.w; x++, out += channels) {
        int32_t bit = x * bits;
        int color = p[bit / 8] >> (8 - bits - bit % 8) & ((1 << bits) - 1);
        if (color >= l->colors)
            return fail_data("pixel (%d,%d) has the color %d of a palette of "
                             "%d",
                             x, y, color, l->colors);
        const uint8_t *c = l->palette + 4 * color;
        out[0] = f->options.label ? (uint8_t)color : c[2];
        if (channels == 3) out[1] = c[1], out[2] = c[0];
    }
    return true;
}

bool bmp_pixels(const ImageFile *f, void *out)
{
    const BmpLayout *l = &f->of.bmp;
    size_t wide = (size_t)f->info.w * (size_t)f->info.channels;
    // bytes of a pixel without palette: blue, green, red and possibly one more
    size_t step = number_u16(f->bytes + FILE_HEADER + 14, false) / 8;

    for (int32_t y = 0; y < f->info.h; y++) {
        int32_t row = l->top_down ? y : f->info.h - 1 - y;
        const uint8_t *p = f->bytes + l->begin + (size_t)row * l->row_bytes;
        uint8_t *to = (uint8_t *)out + (size_t)y * wide;
        if (f->info.palette) {
            if (!palette_row(f, p, y, to)) return false;
            continue;
        }
        for (int32_t x = 0; x < f->info.w; x++, p += step, to += 3)
            to[0] = p[2], to[1] = p[1], to[2] = p[0];
    }
    return true;
}
