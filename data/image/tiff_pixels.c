/* tiff_pixels.c -- decodes the pixels of a TIFF with libtiff.
 *
 * libtiff reads a virtual file: a directory of the tags that tiff.c has
 * checked, written here, followed by the whole file. So other tags never reach
 * it. Strips and tiles are requested one by one, and each must give exactly the
 * bytes of its extents. A warning of libtiff reports damage that it worked
 * around, so it is an error here. */
#include "data/image/image_format.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <tiffio.h>

/* The virtual file that libtiff reads. */
typedef struct Seen {
    const ImageFile *f;
    uint8_t *front; /* bytes before the file */
    size_t front_bytes;
    uint64_t at;    /* read position of libtiff */
    char text[200]; /* its first error or warning; "": none */
} Seen;

/* -- a directory ---------------------------------------------------------- */

/* Writes a number in the byte order of the file. */
static void put(const ImageFile *f, uint8_t *p, uint32_t v, int bytes)
{
    for (int i = 0; i < bytes; i++)
        p[i] = (uint8_t)(v >> 8 * (f->of.tiff.big ? bytes - 1 - i : i));
}

enum { HEADER = 8, ENTRY = 12, ENTRIES = 14, SHORT = 3, LONG = 4 };

/* Writes the next entry of the directory at *e; the value is `at`, or the array
 * at offset `at`. */
static void entry(const ImageFile *f, uint8_t **e, uint32_t tag, uint32_t type,
                  uint32_t count, uint32_t at)
{
    put(f, *e, tag, 2);
    put(f, *e + 2, type, 2);
    put(f, *e + 4, count, 4);
    // a 16-bit value is in the first two of the four bytes
    put(f, *e + 8, at, type == SHORT && count == 1 ? 2 : 4);
    *e += ENTRY;
}

static bool make_front(Seen *s)
{
    const ImageFile *f = s->f;
    const TiffLayout *l = &f->of.tiff;
    uint32_t samples = (uint32_t)l->samples;
    // two 16-bit numbers per sample, then two 32-bit numbers per piece
    size_t lists = HEADER + 2 + ENTRY * ENTRIES + 4, arrays;
    size_t pairs = lists + 4 * (size_t)samples;

    if (!size_mul(l->pieces, 8, &arrays) ||
        !size_add(pairs, arrays, &s->front_bytes) ||
        !(s->front = mem_alloc(s->front_bytes)))
        return false;
    uint8_t *p = s->front, *e = p + HEADER + 2;
    memcpy(p, l->big ? "MM\0*" : "II*\0", 4);
    put(f, p + 4, HEADER, 4);
    uint32_t format = f->info.kind == 'u' ? 1 : f->info.kind == 'i' ? 2 : 3;
    for (uint32_t i = 0; i < samples; i++) {
        put(f, p + lists + 2 * i, (uint32_t)f->info.bits, 2);
        put(f, p + lists + 2 * (samples + i), format, 2);
    }

    for (uint32_t i = 0; i < l->pieces; i++) {
        TiffPiece piece = tiff_piece(f, i);
        put(f, p + pairs + 4 * (size_t)i, piece.at + (uint32_t)s->front_bytes,
            4);
        put(f, p + pairs + 4 * ((size_t)l->pieces + i), piece.bytes, 4);
    }

    // up to two 16-bit numbers fit into the entry itself, and so does the
    // offset of a single piece
    uint32_t bits_at = (uint32_t)lists, format_at = bits_at + 2 * samples;
    uint32_t at = (uint32_t)pairs, bytes_at = at + 4 * l->pieces;
    if (l->pieces == 1) {
        TiffPiece piece = tiff_piece(f, 0);
        at = piece.at + (uint32_t)s->front_bytes, bytes_at = piece.bytes;
    }
    if (samples == 1) bits_at = (uint32_t)f->info.bits, format_at = format;
    if (samples == 2) {
        bits_at = (uint32_t)f->info.bits * 0x10001u;
        format_at = format * 0x10001u;
    }
    uint8_t *begin = e;
    entry(f, &e, TIFFTAG_IMAGEWIDTH, LONG, 1, (uint32_t)f->info.w);
    entry(f, &e, TIFFTAG_IMAGELENGTH, LONG, 1, (uint32_t)f->info.h);
    entry(f, &e, TIFFTAG_BITSPERSAMPLE, SHORT, samples, bits_at);
    entry(f, &e, TIFFTAG_COMPRESSION, SHORT, 1, (uint32_t)l->compression);
    entry(f, &e, TIFFTAG_PHOTOMETRIC, SHORT, 1, f->info.channels == 3 ? 2 : 1);
    if (!l->tiled) entry(f, &e, TIFFTAG_STRIPOFFSETS, LONG, l->pieces, at);
    entry(f, &e, TIFFTAG_SAMPLESPERPIXEL, SHORT, 1, samples);
    if (!l->tiled) {
        entry(f, &e, TIFFTAG_ROWSPERSTRIP, LONG, 1, l->piece_h);
        entry(f, &e, TIFFTAG_STRIPBYTECOUNTS, LONG, l->pieces, bytes_at);
    }
    entry(f, &e, TIFFTAG_PLANARCONFIG, SHORT, 1, l->planar ? 2 : 1);
    if (l->predictor > 1)
        entry(f, &e, TIFFTAG_PREDICTOR, SHORT, 1, (uint32_t)l->predictor);

    if (l->tiled) {
        entry(f, &e, TIFFTAG_TILEWIDTH, LONG, 1, l->piece_w);
        entry(f, &e, TIFFTAG_TILELENGTH, LONG, 1, l->piece_h);
        entry(f, &e, TIFFTAG_TILEOFFSETS, LONG, l->pieces, at);
        entry(f, &e, TIFFTAG_TILEBYTECOUNTS, LONG, l->pieces, bytes_at);
    }

    if (f->info.alpha) entry(f, &e, TIFFTAG_EXTRASAMPLES, SHORT, 1, 0);
    entry(f, &e, TIFFTAG_SAMPLEFORMAT, SHORT, samples, format_at);
    put(f, p + HEADER, (uint32_t)((e - begin) / ENTRY), 2);
    CHECK(e <= begin + ENTRY * ENTRIES);
    return true;
}

/* -- callbacks of libtiff ------------------------------------------------- */

static tsize_t read_bytes(thandle_t h, void *out, tsize_t want)
{
    Seen *s = h;
    size_t done = 0;
    while (done < (size_t)want && s->at < s->front_bytes + s->f->size) {
        bool front = s->at < s->front_bytes;
        size_t at = (size_t)s->at - (front ? 0 : s->front_bytes);
        size_t n = (front ? s->front_bytes : s->f->size) - at;
        if (n > (size_t)want - done) n = (size_t)want - done;
        memcpy((uint8_t *)out + done, (front ? s->front : s->f->bytes) + at, n);
        done += n, s->at += n;
    }
    return (tsize_t)done;
}

static tsize_t write_bytes(thandle_t h, void *p, tsize_t n)
{
    (void)h, (void)p, (void)n;
    return -1;
}

static toff_t size_of(thandle_t h)
{
    Seen *s = h;
    return s->front_bytes + s->f->size;
}

static toff_t seek(thandle_t h, toff_t to, int from)
{
    Seen *s = h;
    s->at = (from == SEEK_CUR ? s->at : from == SEEK_END ? size_of(h) : 0) + to;
    return s->at;
}

static int close_file(thandle_t h)
{
    (void)h;
    return 0;
}

/* Handles errors and warnings; keeps the first one, the cause. Returns 1:
 * libtiff continues without printing. */
static int complain(TIFF *t, void *user, const char *module, const char *fmt,
                    va_list list) ERR_FORMAT(4, 0);
static int complain(TIFF *t, void *user, const char *module, const char *fmt,
                    va_list list)
{
    Seen *s = user;
    (void)t, (void)module;
    if (!*s->text) vsnprintf(s->text, sizeof s->text, fmt, list);
    return 1;
}

/* -- pixels --------------------------------------------------------------- */

/* Copies one decoded piece to its position, without alpha. */
static void place(const ImageFile *f, uint32_t i, const uint8_t *from,
                  uint8_t *out)
{
    const TiffLayout *l = &f->of.tiff;
    size_t wide = (size_t)f->info.bits / 8, w = (size_t)f->info.w;
    size_t h = (size_t)f->info.h, channels = (size_t)f->info.channels;
    uint32_t plane = i / l->per_plane, k = i % l->per_plane;

    if (plane >= channels) return; // a plane of alpha
    size_t x = (size_t)(k % l->across) * l->piece_w;
    size_t y = (size_t)(k / l->across) * l->piece_h;
    size_t cols = w - x < l->piece_w ? w - x : l->piece_w;
    size_t rows = h - y < l->piece_h ? h - y : l->piece_h;
    // bytes of one pixel: copied, and to the next
    size_t take = l->planar ? wide : wide * channels;
    size_t step = l->planar ? wide : wide * (size_t)l->samples;

    for (size_t r = 0; r < rows; r++) {
        const uint8_t *p = from + r * l->piece_w * step;
        uint8_t *q = out + (((y + r) * w + x) * channels + plane) * wide;
        if (take == step && take == wide * channels) {
            memcpy(q, p, cols * take);
            continue;
        }
        for (size_t c = 0; c < cols; c++, p += step, q += wide * channels)
            memcpy(q, p, take);
    }
}

static bool unpack(Seen *s, TIFF *t, uint8_t *out)
{
    const TiffLayout *l = &s->f->of.tiff;
    tsize_t room = l->tiled ? TIFFTileSize(t) : TIFFStripSize(t);
    if (room <= 0) return fail_data("damaged: %s", s->text);
    uint8_t *p = mem_alloc((size_t)room);
    if (!p) return false;
    bool ok = true;

    for (uint32_t i = 0; ok && i < l->pieces; i++) {
        tsize_t want =
            l->tiled ? room : TIFFVStripSize(t, tiff_piece(s->f, i).rows);
        tsize_t got = l->tiled ? TIFFReadEncodedTile(t, i, p, want)
                               : TIFFReadEncodedStrip(t, i, p, want);
        ok = got == want && !*s->text;
        if (ok)
            place(s->f, i, p, out);
        else
            fail_data("%s %u is damaged: %s", l->tiled ? "tile" : "strip", i,
                      *s->text ? s->text : "it ends early");
    }

    mem_free(p);
    return ok;
}

/* Inverts an image with white = 0. */
static void invert(const ImageFile *f, uint8_t *out)
{
    size_t n = (size_t)f->info.w * (size_t)f->info.h * (size_t)f->info.bits / 8;
    // also correct for 16 bits: both bytes are inverted
    for (size_t i = 0; i < n; i++) out[i] = (uint8_t)~out[i];
}

bool tiff_pixels(const ImageFile *f, void *out)
{
    Seen s = {.f = f};
    TIFF *t = NULL;
    TIFFOpenOptions *o = NULL;
    bool ok = false;

    TRY(make_front(&s));
    if (s.front_bytes + f->size > UINT32_MAX) {
        fail_data("%zu bytes are more than a TIFF has offsets for", f->size);
        goto done;
    }
    o = TIFFOpenOptionsAlloc();
    if (!o) {
        fail("no memory to read a tiff");
        goto done;
    }

    // a compressed piece lies in the file; the rest are rows and tables
    TIFFOpenOptionsSetMaxSingleMemAlloc(o, (tmsize_t)f->size + (64 << 20));
    TIFFOpenOptionsSetErrorHandlerExtR(o, complain, &s);
    TIFFOpenOptionsSetWarningHandlerExtR(o, complain, &s);

    // no mapping, and strips unchanged: libtiff would split long ones
    t = TIFFClientOpenExt("image", "rmc", &s, read_bytes, write_bytes, seek,
                          close_file, size_of, NULL, NULL, o);
    ok = t ? unpack(&s, t, out) : fail_data("damaged: %s", s.text);
    if (ok && f->of.tiff.white_zero) invert(f, out);

done:
    if (t) TIFFClose(t);
    if (o) TIFFOpenOptionsFree(o);
    mem_free(s.front);
    return ok;
}
