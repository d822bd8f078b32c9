/* png_pixels.c -- decodes the pixels of a PNG: zlib inflates, stb_image
 * unfilters.
 *
 * stb_image does not get the file. It gets a PNG of three chunks written here:
 * a header, the rows as inflated and checked by zlib, in stored blocks (which
 * stb only copies), and the end. So its own inflater, palettes and
 * transparency, where vulnerabilities have been found, never process foreign
 * data; palette indices are passed to it as grey and mapped to colors here. */
#include "data/format/gzip.h"
#include "data/image/image_format.h"
#include <limits.h>
#include <string.h>
#include <zlib.h>

/* stb gets memory of mem.h, which is zeroed: a decoder that reads bytes that it
 * never wrote then reads zeros. */
static void *grow(void *old, size_t had, size_t bytes)
{
    void *p = mem_alloc(bytes);
    if (p && old) memcpy(p, old, had < bytes ? had : bytes);
    if (p) mem_free(old);
    return p;
}

#if defined(__GNUC__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"
#pragma GCC diagnostic ignored "-Wunused-parameter"
#pragma GCC diagnostic ignored "-Wsign-compare"
#pragma GCC diagnostic ignored "-Wshadow"
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"
#endif
#define STB_IMAGE_IMPLEMENTATION
#define STB_IMAGE_STATIC
#define STBI_ONLY_PNG
#define STBI_NO_GIF
#define STBI_NO_STDIO
#define STBI_NO_LINEAR
#define STBI_NO_HDR
// stb declares this function under a name that it does not define
#define stbi_set_unpremultiply_on_load_thread stbi__unpremultiply_on_load_thread
#define STBI_MAX_DIMENSIONS                   (1 << 24)
#define STBI_ASSERT(e)                        CHECK(e)
#define STBI_MALLOC(bytes)                    mem_alloc((size_t)(bytes))
#define STBI_REALLOC_SIZED(p, had, bytes)     grow(p, had, bytes)
#define STBI_FREE(p)                          mem_free(p)
#include <stb/stb_image.h>
#if defined(__GNUC__)
#pragma GCC diagnostic pop
#endif

/* Bytes around the rows in the PNG that is made: signature and IHDR; length and
 * type of IDAT, two bytes of zlib; five bytes per stored block; checksum of
 * zlib, CRC, IEND. stb verifies none of the checksums. */
enum { BEFORE = 8 + 25 + 8 + 2, BLOCK = 65535, BLOCK_HEAD = 5, AFTER = 4 + 16 };

/* Consecutive rows of one size: the whole image, or one of the seven passes of
 * Adam7. */
typedef struct Pass {
    size_t rows, row_bytes; /* including the filter byte */
} Pass;

typedef struct Passes {
    Pass pass[7];
    int count;
    size_t bytes; /* of all */
} Passes;

static void passes_of(const ImageFile *f, Passes *p)
{
    // Adam7: origin and pixel distance of each pass
    static const uint8_t x0[] = {0, 4, 0, 2, 0, 1, 0};
    static const uint8_t y0[] = {0, 0, 4, 0, 2, 0, 1};
    static const uint8_t dx[] = {8, 8, 4, 4, 2, 2, 1};
    static const uint8_t dy[] = {8, 8, 8, 4, 4, 2, 2};
    static const uint8_t samples[] = {1, 0, 3, 1, 2, 0, 4};
    const PngLayout *l = &f->of.png;
    size_t bits = (size_t)f->info.bits * samples[l->color];
    *p = (Passes){.count = l->interlaced ? 7 : 1};

    for (int k = 0; k < p->count; k++) {
        size_t w = (size_t)f->info.w, h = (size_t)f->info.h;
        if (l->interlaced) {
            w = w > x0[k] ? (w - x0[k] + dx[k] - 1) / dx[k] : 0;
            h = h > y0[k] ? (h - y0[k] + dy[k] - 1) / dy[k] : 0;
        }
        // a pass without pixels has no bytes
        if (w && h) p->pass[k] = (Pass){h, 1 + (w * bits + 7) / 8};
        p->bytes += p->pass[k].rows * p->pass[k].row_bytes;
    }
}

/* Checked before memory for the rows is allocated. */
bool png_holds_rows(const ImageFile *f)
{
    Passes p;
    passes_of(f, &p);
    return p.bytes / GZIP_MOST <= f->of.png.idat_bytes ||
           fail_data("%zu bytes of packed pixels cannot hold %zu",
                     f->of.png.idat_bytes, p.bytes);
}

/* Position of the next row while the data arrive in pieces. */
typedef struct Rows {
    const Passes *of;
    int pass;
    size_t row, at; /* row in the pass; offset in the whole data */
} Rows;

/* Checks the filter byte of each row that begins in bytes [from, from + n). */
static bool check_filters(Rows *r, const uint8_t *p, size_t from, size_t n)
{
    while (r->at < from + n) {
        const Pass *pass = &r->of->pass[r->pass];
        if (r->row == pass->rows) {
            r->pass++, r->row = 0;
            continue;
        }
        if (p[r->at - from] > 4)
            return fail_data("row %zu has the filter %d, need 0 to 4", r->row,
                             p[r->at - from]);
        r->row++, r->at += pass->row_bytes;
    }
    return true;
}

/* The IDAT chunks as one zlib stream. */
typedef struct Packed {
    z_stream z;
    const ImageFile *f;
    size_t next; /* offset of the next chunk in the file */
    size_t left; /* bytes of IDAT not yet passed to z */
    bool ended;
} Packed;

/* Inflates up to `want` bytes (at most BLOCK); fewer only at the end. */
static bool inflate_some(Packed *k, uint8_t *out, size_t want, size_t *got)
{
    z_stream *z = &k->z;
    z->next_out = out;
    z->avail_out = (uInt)want;

    while (z->avail_out && !k->ended) {
        if (!z->avail_in && k->left) {
            // empty chunks are allowed
            z->avail_in = number_u32(k->f->bytes + k->next, true);
            // zlib only reads through next_in, although it is not const
            z->next_in = (void *)(k->f->bytes + k->next + 8);
            k->next += 12 + (size_t)z->avail_in;
            k->left -= z->avail_in;
            continue;
        }
        bool dry = !z->avail_in;
        int r = inflate(z, Z_NO_FLUSH);
        if (r == Z_MEM_ERROR) return fail("no memory to read a png");
        k->ended = r == Z_STREAM_END;
        if (k->ended || (r == Z_OK && !dry)) continue;
        if (dry) break;
        if (r != Z_BUF_ERROR)
            return fail_data("the packed pixels are damaged before byte %zu: "
                             "%s",
                             k->next, z->msg ? z->msg : "preset dictionary");
    }

    *got = want - z->avail_out;
    return true;
}

/* Writes all rows to `at`, in stored blocks. */
static bool store_rows(Packed *k, const Passes *p, uint8_t *at)
{
    Rows rows = {.of = p};
    size_t got;
    uint8_t more;

    for (size_t from = 0; from < p->bytes; from += BLOCK) {
        size_t n = p->bytes - from < BLOCK ? p->bytes - from : BLOCK;
        uint8_t head[BLOCK_HEAD] = {from + n == p->bytes, (uint8_t)n,
                                    (uint8_t)(n >> 8), (uint8_t)~n,
                                    (uint8_t)(~n >> 8)};
        memcpy(at, head, BLOCK_HEAD);
        if (!inflate_some(k, at + BLOCK_HEAD, n, &got)) return false;
        if (got < n)
            return fail_data("the packed pixels hold %zu bytes, need %zu",
                             from + got, p->bytes);
        if (!check_filters(&rows, at + BLOCK_HEAD, from, n)) return false;
        at += BLOCK_HEAD + n;
    }

    // requests one more byte, which must not exist
    if (!inflate_some(k, &more, 1, &got)) return false;
    if (got)
        return k->f->options.trailing ||
               fail_data("the packed pixels hold more than %zu bytes; fix: "
                         "trailing = true ignores the rest",
                         p->bytes);

    if (!k->ended)
        return fail_data("the packed pixels end without their checksum");
    if (k->z.avail_in || k->left)
        return k->f->options.trailing ||
               fail_data("%zu bytes after the packed pixels; fix: trailing = "
                         "true ignores them",
                         k->z.avail_in + k->left);
    return true;
}

/* Makes the PNG of three chunks; *out from mem_alloc. */
static bool assemble(const ImageFile *f, uint8_t **out, size_t *bytes)
{
    const PngLayout *l = &f->of.png;
    Passes p;
    Packed k = {.z = {.zalloc = gzip_alloc, .zfree = gzip_free},
                .f = f,
                .next = l->first_idat,
                .left = l->idat_bytes};

    *out = NULL;
    passes_of(f, &p);

    // with the limits on extents this stays far below 2^32
    size_t blocks = (p.bytes + BLOCK - 1) / BLOCK;
    size_t packed = p.bytes + blocks * BLOCK_HEAD + 2 + 4;
    *bytes = BEFORE - 2 + packed - 4 + AFTER;
    if (*bytes > INT_MAX)
        return fail_data("%zu bytes of rows, limit %d", p.bytes, INT_MAX);
    if (!(*out = mem_alloc(*bytes))) return false;
    if (inflateInit(&k.z) != Z_OK) return fail("no memory to read a png");

    // the header is copied, but a palette becomes grey
    memcpy(*out, f->bytes, 8 + 25);
    if (l->color == 3) (*out)[25] = 0;
    uint8_t *at = *out + 8 + 25;
    for (int i = 0; i < 4; i++) at[i] = (uint8_t)(packed >> (24 - 8 * i));

    // the window size is irrelevant for stored blocks
    memcpy(at + 4, "IDAT\x78\x01", 6);
    bool ok = store_rows(&k, &p, at + 10);
    inflateEnd(&k.z);
    memcpy(*out + *bytes - 8, "IEND", 4);
    return ok;
}

/* Maps indices to colors, or keeps the indices; `pixels` is grey from stb. */
static bool look_up(const ImageFile *f, const uint8_t *pixels, uint8_t *out)
{
    // stb scales 1, 2 and 4 bits to 0 .. 255
    int scale = 255 / ((1 << f->info.bits) - 1);
    const PngLayout *l = &f->of.png;
    size_t n = (size_t)f->info.w * (size_t)f->info.h;

    for (size_t i = 0; i < n; i++) {
        int color = pixels[i] / scale;
        if (color >= l->colors)
            return fail_data("pixel (%zu,%zu) has the color %d of a palette "
                             "of %d",
                             i % (size_t)f->info.w, i / (size_t)f->info.w,
                             color, l->colors);
        if (f->options.label)
            out[i] = (uint8_t)color;
        else
            memcpy(out + 3 * i, l->palette + (size_t)color * 3, 3);
    }
    return true;
}

/* Copies the samples of stb without alpha. */
static bool take(const ImageFile *f, const uint8_t *pixels, int samples,
                 uint8_t *out)
{
    const ImageInfo *info = &f->info;
    size_t n = (size_t)info->w * (size_t)info->h;
    size_t wide = info->bits == 16 ? 2 : 1;
    size_t keep = (size_t)info->channels * wide, all = (size_t)samples * wide;

    if (info->palette) return look_up(f, pixels, out);
    if (keep == all) {
        memcpy(out, pixels, n * all);
    } else {
        for (size_t i = 0; i < n; i++)
            memcpy(out + i * keep, pixels + i * all, keep);
    }

    if (f->options.label && info->bits < 8)
        for (size_t i = 0; i < n; i++)
            out[i] = (uint8_t)(out[i] / (255 / ((1 << info->bits) - 1)));
    return true;
}

bool png_pixels(const ImageFile *f, void *out)
{
    uint8_t *png = NULL;
    void *pixels = NULL;
    size_t bytes = 0;
    int w = 0, h = 0, samples = 0;
    bool ok = assemble(f, &png, &bytes);

    if (ok) {
        pixels =
            f->info.bits == 16
                ? (void *)stbi_load_16_from_memory(png, (int)bytes, &w, &h,
                                                   &samples, 0)
                : stbi_load_from_memory(png, (int)bytes, &w, &h, &samples, 0);
        // everything else has been checked, so only memory can be missing, for
        // which mem_alloc has set the reason
        ok = pixels;
    }

    mem_free(png);
    if (pixels) CHECK(w == f->info.w && h == f->info.h);
    if (ok) ok = take(f, pixels, samples, out);
    mem_free(pixels);
    return ok;
}
