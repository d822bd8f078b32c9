/* png_text.c -- the orientation in the texts of a PNG.
 *
 * PNG has had a chunk for Exif only since 2017. Adobe stores XMP in an iTXt
 * named "XML:com.adobe.xmp". ImageMagick and related programs store Exif and
 * XMP as "Raw profile type NAME": a line with the name, a line with the number
 * of bytes, then the bytes as hexadecimal digits. All other texts (comments,
 * dates, names) are skipped unread. */
#include "data/format/gzip.h"
#include "data/image/image_format.h"
#include <string.h>
#include <zlib.h>

/* Only the first MOST bytes of a text are inflated: an orientation is near the
 * start, and a small chunk must not take much memory. */
enum { MOST = 1 << 20, TEXTS = 16, KEYWORD = 79 };

/* A text, after inflating if necessary; `own` is to be freed. */
typedef struct Text {
    const uint8_t *at;
    size_t bytes;
    uint8_t *own;
} Text;

/* Inflates a text, at most MOST bytes; of a damaged stream, the bytes before
 * the damage. Fails only without memory. */
static bool unpack(Text *t)
{
    z_stream z = {.zalloc = gzip_alloc, .zfree = gzip_free};
    if (!(t->own = mem_alloc(MOST))) return false;
    if (inflateInit(&z) != Z_OK) return fail("no memory to read a png");

    // zlib only reads through next_in, although it is not const
    z.next_in = (void *)t->at;
    z.avail_in = (uInt)t->bytes;
    z.next_out = t->own;
    z.avail_out = MOST;
    (void)inflate(&z, Z_SYNC_FLUSH);
    t->at = t->own;
    t->bytes = MOST - z.avail_out;
    inflateEnd(&z);
    return true;
}

/* Converts hexadecimal digits in place and returns the number of bytes; other
 * characters between the digits are skipped. */
static size_t from_hex(const uint8_t *text, size_t bytes, uint8_t *out)
{
    size_t digits = 0;
    for (size_t i = 0; i < bytes; i++) {
        const int c = text[i] | 32;
        const int v = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                             : -1;
        if (v < 0) continue;
        uint8_t *to = out + digits / 2;
        *to = (uint8_t)(digits++ % 2 ? *to | v : v << 4);
    }
    return digits / 2;
}

/* Reads a profile: Exif after "Exif", as in JPEG, or without; else XMP. */
static bool read_profile(ImageFile *f, const Text *t)
{
    // name and number of bytes, one line each
    const uint8_t *p = t->at, *end = p + t->bytes;
    for (int line = 0; line < 2; line++) {
        while (p < end && *p == '\n') p++;
        while (p < end && *p != '\n') p++;
    }
    uint8_t *block = mem_alloc((size_t)(end - p) / 2 + 1);
    if (!block) return false;
    const uint8_t *b = block;
    size_t n = from_hex(p, (size_t)(end - p), block);
    bool ok = true;
    if (n >= 6 && !memcmp(b, "Exif\0", 6)) b += 6, n -= 6;
    if (n >= 4 && (!memcmp(b, "II*\0", 4) || !memcmp(b, "MM\0*", 4)))
        ok = exif_orientation(f, b, n);
    else
        xmp_orientation(f, b, n);
    mem_free(block);
    return ok;
}

/* Returns the byte after the next 0; NULL: there is none. */
static const uint8_t *behind_zero(const uint8_t *p, const uint8_t *end)
{
    const uint8_t *zero = p && p < end ? memchr(p, 0, (size_t)(end - p)) : NULL;
    return zero ? zero + 1 : NULL;
}

bool png_text(ImageFile *f, const char *type, const uint8_t *data, size_t bytes)
{
    static const char *const profiles[] = {"exif", "APP1", "xmp"};
    static const char raw[] = "Raw profile type ";
    const uint8_t *end = data + bytes, *p = behind_zero(data, end);
    const char *word = (const char *)data;

    if (f->options.exif == IMAGE_EXIF_IGNORE || !p || p - data > KEYWORD + 1)
        return true;
    const bool xmp = !strcmp(word, "XML:com.adobe.xmp");
    bool profile = false;
    for (size_t i = 0; i < sizeof profiles / sizeof *profiles; i++)
        profile = profile || (!strncmp(word, raw, sizeof raw - 1) &&
                              !strcmp(word + sizeof raw - 1, profiles[i]));
    if (!xmp && !profile) return true;
    bool packed = !strcmp(type, "zTXt");

    if (packed) {
        p = p < end ? p + 1 : NULL; // compression method
    } else if (!strcmp(type, "iTXt")) {
        packed = p < end && *p;
        // flag and method, then a language and the translated keyword
        p = end - p >= 2 ? behind_zero(behind_zero(p + 2, end), end) : NULL;
    }

    if (!p || (packed && f->texts++ >= TEXTS)) return true;
    Text t = {p, (size_t)(end - p), NULL};
    bool ok = !packed || unpack(&t);
    if (ok && profile)
        ok = read_profile(f, &t);
    else if (ok)
        xmp_orientation(f, t.at, t.bytes);
    mem_free(t.own);
    return ok;
}
