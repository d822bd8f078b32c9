/* image.c -- decodes the bytes of an image file into a volume.
 *
 * Each format parses its files (NAME_look) and fills an array of samples
 * (NAME_pixels). Shared code is here: detection of the format, limits, checks
 * against the options, conversion of 16-bit numbers, and rotation. */
#include "data/image/image_format.h"
#include "engine/base/file.h"
#include <math.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

static const int32_t most_side = 65535;
static const int64_t most_samples = (int64_t)1 << 29;
static const int64_t most_bytes = (int64_t)1 << 30;

/* Formats by their first bytes. Supported formats have extensions too. */
static const struct {
    const char *name, *endings; /* ".jpg.jpeg." */
    ImageLook *look;            /* NULL: known but unsupported */
    ImagePixels *pixels;
    int at, count; /* offset and number of the bytes */
    const char *magic;
} formats[] = {
    {"png", ".png.", png_look, png_pixels, 0, 4, "\x89PNG"},
    {"jpeg", ".jpg.jpeg.jpe.jfif.", jpeg_look, jpeg_pixels, 0, 3,
     "\xff\xd8\xff"},
    {"bmp", ".bmp.dib.", bmp_look, bmp_pixels, 0, 2, "BM"},
    {"tiff", ".tif.tiff.", tiff_look, tiff_pixels, 0, 4, "II*\0"},
    {"tiff", ".tif.tiff.", tiff_look, tiff_pixels, 0, 4, "MM\0*"},
    {.name = "BigTIFF", .count = 4, .magic = "II+\0"},
    {.name = "BigTIFF", .count = 4, .magic = "MM\0+"},
    {.name = "GIF", .endings = ".gif.", .count = 4, .magic = "GIF8"},
    {.name = "WebP", .endings = ".webp.", .at = 8, .count = 4, .magic = "WEBP"},
    {.name = "HEIC",
     .endings = ".heic.",
     .at = 4,
     .count = 8,
     .magic = "ftypheic"},
    {.name = "HEIC", .at = 4, .count = 8, .magic = "ftypheix"},
    {.name = "HEIF",
     .endings = ".heif.",
     .at = 4,
     .count = 8,
     .magic = "ftypmif1"},
    {.name = "AVIF",
     .endings = ".avif.",
     .at = 4,
     .count = 8,
     .magic = "ftypavif"},
    {.name = "Photoshop (PSD)",
     .endings = ".psd.",
     .count = 4,
     .magic = "8BPS"},
    {.name = "Radiance HDR", .endings = ".hdr.", .count = 3, .magic = "#?R"},
    {.name = "OpenEXR", .endings = ".exr.", .count = 4, .magic = "v/1\1"},
    {.name = "JPEG 2000",
     .endings = ".jp2.",
     .at = 4,
     .count = 4,
     .magic = "jP  "},
    {.name = "JPEG 2000",
     .endings = ".j2k.",
     .count = 4,
     .magic = "\xff\x4f\xff\x51"},
    {.name = "JPEG XL",
     .endings = ".jxl.",
     .at = 4,
     .count = 4,
     .magic = "JXL "},
    {.name = "PNM", .endings = ".pbm.", .count = 2, .magic = "P1"},
    {.name = "PNM", .endings = ".pgm.", .count = 2, .magic = "P2"},
    {.name = "PNM", .endings = ".ppm.", .count = 2, .magic = "P3"},
    {.name = "PNM", .endings = ".pnm.", .count = 2, .magic = "P4"},
    {.name = "PNM", .count = 2, .magic = "P5"},
    {.name = "PNM", .count = 2, .magic = "P6"},
    {.name = "PNM", .endings = ".pam.", .count = 2, .magic = "P7"},
};
enum { FORMATS = sizeof formats / sizeof *formats };

/* Recognises TGA, which has no magic: a type of color map, a type of image, and
 * consistent numbers. */
static bool is_tga(const uint8_t *b, size_t size)
{
    static const char types[] = {1, 2, 3, 9, 10, 11};
    if (size < 18 || b[1] > 1 || !memchr(types, b[2], sizeof types))
        return false;
    bool mapped = b[2] == 1 || b[2] == 9;
    bool depth =
        b[16] == 8 || b[16] == 15 || b[16] == 16 || b[16] == 24 || b[16] == 32;
    return b[1] == mapped && depth && number_u16(b + 12, false) &&
           number_u16(b + 14, false) && !(b[17] & 0xc0);
}

/* Returns the row of the table; -1: none. */
static int find(const uint8_t *bytes, size_t size)
{
    for (int i = 0; i < FORMATS; i++) {
        size_t at = (size_t)formats[i].at, n = (size_t)formats[i].count;
        if (size >= at + n && !memcmp(bytes + at, formats[i].magic, n))
            return i;
    }
    return -1;
}

const char *image_format(const uint8_t *bytes, size_t size, bool *read)
{
    int i = find(bytes, size);
    *read = i >= 0 && formats[i].look;
    return i >= 0 ? formats[i].name : is_tga(bytes, size) ? "TGA" : NULL;
}

bool image_extents(const ImageFile *f)
{
    const ImageInfo *i = &f->info;
    if (i->w < 1 || i->h < 1)
        return fail_data("%d x %d pixels: a side is 0", i->w, i->h);
    if (i->w > f->options.max_side || i->h > f->options.max_side)
        return fail_data("%d x %d pixels, limit %d along a side", i->w, i->h,
                         f->options.max_side);
    int64_t samples = (int64_t)i->w * i->h * i->channels;
    return samples <= f->options.max_samples ||
           fail_data("%d x %d pixels of %d channels, limit %lld numbers", i->w,
                     i->h, i->channels, (long long)f->options.max_samples);
}

bool image_trailing(const ImageFile *f, size_t end)
{
    size_t zeros = end;
    // a disk or a network may pad the last block
    while (zeros < f->size && !f->bytes[zeros]) zeros++;
    if (f->options.trailing || zeros == f->size) return true;
    return fail_data("%zu byte%s after the image, which ends at byte %zu; fix: "
                     "trailing = true ignores them",
                     f->size - end, f->size - end == 1 ? "" : "s", end);
}

bool image_page(const ImageFile *f)
{
    int page = f->options.page;
    return (page >= 0 && page <= f->info.pages) ||
           fail_data("page %d of %d", page, f->info.pages);
}

bool image_alpha(const ImageFile *f)
{
    if (!f->info.alpha || f->options.drop_alpha) return true;
    return fail_data("an alpha channel or transparent color; fix: alpha = "
                     "\"drop\" takes the colors as stored, or save it without");
}

/* Parses structure and extents; *row of the table. */
static bool look(ImageFile *f, const uint8_t *bytes, size_t size,
                 const ImageOptions *options, int *row)
{
    static const ImageOptions none;
    bool read = false;
    *f = (ImageFile){.bytes = bytes, .size = size};
    ImageOptions *o = &f->options;
    *o = options ? *options : none;
    if (o->max_side <= 0) o->max_side = most_side;
    if (o->max_samples <= 0) o->max_samples = most_samples;
    if (o->max_bytes <= 0) o->max_bytes = most_bytes;
    if (!size) return fail_data("image: file is empty");
    if (size > (size_t)o->max_bytes)
        return fail_data("image: file of %zu bytes, limit %lld", size,
                         (long long)o->max_bytes);
    const char *name = image_format(bytes, size, &read);
    if (!name)
        return fail_data("image: not PNG, JPEG, BMP or TIFF: the first bytes "
                         "are %02x %02x %02x %02x",
                         bytes[0], size > 1 ? bytes[1] : 0,
                         size > 2 ? bytes[2] : 0, size > 3 ? bytes[3] : 0);

    if (!read)
        return fail_data("image: %s is not read, need PNG, JPEG, BMP or TIFF; "
                         "fix: save it as PNG",
                         name);
    *row = find(bytes, size);
    f->info.format = name;
    f->info.pages = 1;
    if (!formats[*row].look(f)) return within("%s", name);
    return (image_page(f) && image_settle_xmp(f)) || within("%s", name);
}

/* Fails if an option forbids the image, before decoding. */
static bool allowed(const ImageFile *f)
{
    const ImageInfo *i = &f->info;
    if (!image_alpha(f)) return false;
    if (f->options.label && i->channels != 1)
        return fail_data("%d channels, class numbers need 1; fix: save the "
                         "mask as grey or with a palette",
                         i->channels);
    return true;
}

/* Converts unsigned 16 bits: to I16 if all values fit, else to F32. */
static bool settle_u16(Volume *v)
{
    const uint16_t *x = v->voxels.data;
    int64_t n = numel(v->voxels.dim), i = 0;
    Volume wide;
    while (i < n && x[i] <= INT16_MAX) i++;
    if (i == n) return true; // the bits of both types are the same then
    if (!volume_new(&wide, v->voxels.dim, F32)) return false;
    float *y = wide.voxels.data;
    for (i = 0; i < n; i++) y[i] = x[i];
    volume_free(v);
    *v = wide;
    return true;
}

/* Applies the orientation. Orientations 1 to 4 mirror along w (2, 3) and h (3,
 * 4); 5 to 8 transpose and then mirror (6, 7 and 7, 8). */
static bool turn(Volume *v, int orientation)
{
    Dims from = v->voxels.dim, to = from;
    Volume out;
    bool swap = orientation > 4;
    bool mirror_w = orientation == 2 || orientation == 3 || orientation == 6 ||
                    orientation == 7;
    bool mirror_h = orientation == 3 || orientation == 4 || orientation == 7 ||
                    orientation == 8;

    if (orientation < 2) return true;
    if (swap) to.w = from.h, to.h = from.w;
    if (!volume_new(&out, to, v->voxels.type)) return false;
    size_t pixel = (size_t)from.c * dtype_bytes(v->voxels.type);
    uint8_t *y = out.voxels.data;

    for (int32_t r = 0; r < to.h; r++)
        for (int32_t c = 0; c < to.w; c++, y += pixel) {
            size_t i = (size_t)(mirror_w ? to.w - 1 - c : c);
            size_t j = (size_t)(mirror_h ? to.h - 1 - r : r);
            size_t k = swap ? i * (size_t)from.w + j : j * (size_t)from.w + i;
            memcpy(y, (const uint8_t *)v->voxels.data + k * pixel, pixel);
        }

    volume_free(v);
    *v = out;
    return true;
}

static bool decode(const ImageFile *f, ImagePixels *pixels, Volume *v)
{
    const ImageInfo *i = &f->info;
    Dtype type = i->bits <= 8 ? U8 : i->bits == 16 ? I16 : F32;
    if (!allowed(f) ||
        !volume_new(v, (Dims){1, 1, i->h, i->w, i->channels}, type))
        return false;
    bool ok = pixels(f, v->voxels.data);
    if (ok && i->bits == 16 && i->kind == 'u') ok = settle_u16(v);
    ok = ok && turn(v, i->orientation);
    if (!ok) volume_free(v);
    if (ok && f->options.label) v->unit = UNIT_LABEL;
    return ok;
}

bool image_look(const uint8_t *bytes, size_t size, const ImageOptions *options,
                ImageInfo *info)
{
    ImageFile f;
    int row = 0;
    bool ok = look(&f, bytes, size, options, &row);
    *info = ok ? f.info : (ImageInfo){0};
    return ok;
}

bool image_decode(const uint8_t *bytes, size_t size,
                  const ImageOptions *options, Volume *out)
{
    ImageFile f;
    int row = 0;
    memset(out, 0, sizeof *out);
    if (!look(&f, bytes, size, options, &row)) return false;
    return decode(&f, formats[row].pixels, out) || within("%s", f.info.format);
}

const char *image_file_format(const char *path, bool *read)
{
    uint8_t front[IMAGE_MAGIC];
    uint64_t size;
    int fd;
    *read = false;
    if (!file_open(path, &fd, &size)) return NULL;
    size_t n = size < sizeof front ? (size_t)size : sizeof front;
    bool ok = file_read_at(fd, path, 0, front, n);
    close(fd);
    return ok ? image_format(front, n, read) : NULL;
}

/* Returns the format indicated by the extension of a file; NULL: none. */
static const char *named(const char *path)
{
    const char *dot = strrchr(path, '.');
    size_t n = dot && !strchr(dot, '/') ? strlen(dot) : 0;
    for (int i = 0; i < FORMATS && n; i++)
        for (const char *e = formats[i].endings; e && *e;
             e = strchr(e + 1, '.'))
            if (!strncasecmp(e, dot, n) && e[n] == '.') return formats[i].name;
    return NULL;
}

/* Prefixes the reason with `path`, and with the format of its extension if the
 * content has another format. */
static bool within_path(const char *path, const uint8_t *bytes, size_t size)
{
    bool read;
    const char *says = named(path);
    const char *is = size ? image_format(bytes, size, &read) : NULL;
    if (says && is && strcmp(says, is))
        return within("%s: named as %s but holds %s", path, says, is);
    return within("%s", path);
}

/* Reads a file if its size is within the limit. */
static bool load(const char *path, const ImageOptions *o, Arena *mem,
                 char **data, size_t *size)
{
    int64_t most = o && o->max_bytes > 0 ? o->max_bytes : most_bytes;
    return file_read(path, (size_t)most, mem, data, size) || within("image");
}

bool image_probe(const char *path, const ImageOptions *options, ImageInfo *info)
{
    Arena mem = {0};
    char *data = NULL;
    size_t size = 0;
    *info = (ImageInfo){0};
    bool ok = load(path, options, &mem, &data, &size) &&
              image_look((uint8_t *)data, size, options, info);
    if (!ok) within_path(path, (uint8_t *)data, data ? size : 0);
    arena_release(&mem);
    return ok;
}

bool image_read(const char *path, const ImageOptions *options, Volume *out)
{
    Arena mem = {0};
    char *data = NULL;
    size_t size = 0;
    memset(out, 0, sizeof *out);
    bool ok = load(path, options, &mem, &data, &size) &&
              image_decode((uint8_t *)data, size, options, out);
    if (!ok) within_path(path, (uint8_t *)data, data ? size : 0);
    arena_release(&mem);
    return ok;
}
