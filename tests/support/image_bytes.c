/* image_bytes.c -- image files for tests; see image_bytes.h. */
#include "tests/support/image_bytes.h"
#include "tests/test.h"
#include <stdio.h>
#include <stdlib.h>

#include <jpeglib.h>
#include <zlib.h>

void image_bytes_add(ImageBytes *f, const void *bytes, size_t count)
{
    CHECK(count <= IMAGE_BYTES_ROOM - f->size);
    if (count) memcpy(f->bytes + f->size, bytes, count);
    f->size += count;
}

void image_bytes_cut(ImageBytes *f, size_t at, size_t count)
{
    CHECK(at + count <= f->size);
    memmove(f->bytes + at, f->bytes + at + count, f->size - at - count);
    f->size -= count;
}

void image_bytes_insert(ImageBytes *f, size_t at, const void *bytes,
                        size_t count)
{
    CHECK(at <= f->size && count <= IMAGE_BYTES_ROOM - f->size);
    memmove(f->bytes + at + count, f->bytes + at, f->size - at);
    memcpy(f->bytes + at, bytes, count);
    f->size += count;
}

void image_bytes_put(ImageBytes *f, size_t at, uint32_t value, int bytes,
                     bool big)
{
    CHECK(at + (size_t)bytes <= IMAGE_BYTES_ROOM);
    for (int i = 0; i < bytes; i++)
        f->bytes[at + (size_t)i] =
            (uint8_t)(value >> 8 * (big ? bytes - 1 - i : i));
    if (at + (size_t)bytes > f->size) f->size = at + (size_t)bytes;
}

/* -- PNG ------------------------------------------------------------------ */

void image_bytes_chunk(ImageBytes *f, const char *type, const void *data,
                       size_t count)
{
    image_bytes_put(f, f->size, (uint32_t)count, 4, true);
    size_t begin = f->size;
    image_bytes_add(f, type, 4);
    image_bytes_add(f, data, count);
    uint32_t crc = (uint32_t)crc32(0, f->bytes + begin, (uInt)(4 + count));
    image_bytes_put(f, f->size, crc, 4, true);
}

void image_bytes_png(ImageBytes *f, uint32_t w, uint32_t h, int depth,
                     int color, int interlace)
{
    ImageBytes *header = mem_alloc(sizeof *header);
    REQUIRE(header);
    image_bytes_put(header, 0, w, 4, true);
    image_bytes_put(header, 4, h, 4, true);
    image_bytes_put(header, 8, (uint32_t)depth << 8 | (uint32_t)color, 2, true);
    image_bytes_put(header, 10, 0, 2, true);
    image_bytes_put(header, 12, (uint32_t)interlace, 1, true);
    f->size = 0;
    image_bytes_add(f, "\x89PNG\r\n\x1a\n", 8);
    image_bytes_chunk(f, "IHDR", header->bytes, header->size);
    mem_free(header);
}

void image_bytes_idat(ImageBytes *f, const void *rows, size_t count)
{
    uLongf n = compressBound((uLong)count);
    uint8_t *z = mem_alloc(n);
    REQUIRE(z && compress2(z, &n, rows, (uLong)count, 9) == Z_OK);
    image_bytes_chunk(f, "IDAT", z, n);
    mem_free(z);
}

size_t image_bytes_find(const ImageBytes *f, const char *type)
{
    for (size_t at = 4; at + 4 <= f->size; at++)
        if (!memcmp(f->bytes + at, type, 4)) return at - 4;
    REQUIRE(!"a chunk of this type");
    return 0;
}

void image_bytes_mend(ImageBytes *f, const char *type)
{
    size_t at = image_bytes_find(f, type);
    size_t n = 0;
    for (int i = 0; i < 4; i++) n = n << 8 | f->bytes[at + (size_t)i];
    uint32_t crc = (uint32_t)crc32(0, f->bytes + at + 4, (uInt)(4 + n));
    image_bytes_put(f, at + 8 + n, crc, 4, true);
}

void image_bytes_small_png(ImageBytes *f)
{
    image_bytes_png(f, 3, 2, 8, 0, 0);
    image_bytes_idat(f, "\0\x0a\x0b\x0c\0\x14\x15\x16", 8);
    image_bytes_chunk(f, "IEND", "", 0);
}

/* -- JPEG ----------------------------------------------------------------- */

void image_bytes_jpeg(ImageBytes *f, int w, int h, int channels,
                      bool progressive, int restart)
{
    struct jpeg_compress_struct z;
    struct jpeg_error_mgr errors;
    unsigned char *bytes = NULL;
    unsigned long size = 0;
    uint8_t row[4 * 512];

    CHECK(w <= 512);
    z.err = jpeg_std_error(&errors);
    jpeg_create_compress(&z);
    jpeg_mem_dest(&z, &bytes, &size);
    z.image_width = (JDIMENSION)w, z.image_height = (JDIMENSION)h;
    z.input_components = channels;
    z.in_color_space = channels == 1   ? JCS_GRAYSCALE
                       : channels == 3 ? JCS_RGB
                                       : JCS_CMYK;
    jpeg_set_defaults(&z);
    z.restart_interval = (unsigned)restart;
    if (progressive) jpeg_simple_progression(&z);
    jpeg_start_compress(&z, TRUE);

    for (int y = 0; y < h; y++) {
        JSAMPROW p = row;
        for (int x = 0; x < w; x++)
            for (int c = 0; c < channels; c++)
                row[x * channels + c] = (uint8_t)(40 * c + 3 * x + 5 * y);
        jpeg_write_scanlines(&z, &p, 1);
    }

    jpeg_finish_compress(&z);
    jpeg_destroy_compress(&z);
    f->size = 0;
    image_bytes_add(f, bytes, size);
    free(bytes);
}

size_t image_bytes_marker(const ImageBytes *f, int marker, int n)
{
    for (size_t at = 0; at + 1 < f->size; at++)
        if (f->bytes[at] == 0xff && f->bytes[at + 1] == marker && !n--)
            return at;
    REQUIRE(!"a marker of this kind");
    return 0;
}

void image_bytes_exif_block(uint8_t block[26], int orientation, bool big)
{
    ImageBytes *f = mem_alloc(sizeof *f);
    REQUIRE(f);
    image_bytes_add(f, big ? "MM\0*" : "II*\0", 4);
    image_bytes_put(f, 4, 8, 4, big);
    image_bytes_put(f, 8, 1, 2, big);
    image_bytes_put(f, 10, 274, 2, big);
    image_bytes_put(f, 12, 3, 2, big);
    image_bytes_put(f, 14, 1, 4, big);
    image_bytes_put(f, 18, (uint32_t)orientation, 2, big);
    image_bytes_put(f, 22, 0, 4, big);
    memcpy(block, f->bytes, 26);
    mem_free(f);
}

void image_bytes_exif(ImageBytes *f, int orientation, bool big)
{
    uint8_t segment[36] = "\xff\xe1\0\x22"
                          "Exif\0";
    image_bytes_exif_block(segment + 10, orientation, big);
    image_bytes_insert(f, 2, segment, sizeof segment);
}

/* -- BMP and TIFF --------------------------------------------------------- */

void image_bytes_bmp(ImageBytes *f, int32_t w, int32_t h, int bits,
                     const uint8_t *palette, int colors)
{
    f->size = 0;
    image_bytes_add(f, "BM", 2);
    image_bytes_put(f, 10, 54 + 4 * (uint32_t)colors, 4, false);
    image_bytes_put(f, 14, 40, 4, false);
    image_bytes_put(f, 18, (uint32_t)w, 4, false);
    image_bytes_put(f, 22, (uint32_t)h, 4, false);
    image_bytes_put(f, 26, 1, 2, false);
    image_bytes_put(f, 28, (uint32_t)bits, 2, false);
    image_bytes_put(f, 30, 0, 4, false);
    image_bytes_put(f, 46, (uint32_t)colors, 4, false);
    image_bytes_put(f, 50, 0, 4, false);
    image_bytes_add(f, palette, 4 * (size_t)colors);
}

void image_bytes_tiff(ImageBytes *f, bool big, const void *data, size_t count,
                      const TiffTag *tag, int tags)
{
    size_t at = 10;
    memset(f, 0, sizeof *f);
    image_bytes_add(f, big ? "MM\0*\0\0\0" : "II*\0\0\0\0", 8);
    image_bytes_add(f, data, count);
    at = f->size;
    image_bytes_put(f, 4, (uint32_t)at, 4, big);
    uint32_t entries = 0;

    for (int i = 0; i < tags; i++) {
        if (!tag[i].tag) continue;
        size_t e = at + 2 + 12 * (size_t)entries++;
        bool shorts = tag[i].type == 3 && tag[i].count == 1;
        image_bytes_put(f, e, (uint32_t)tag[i].tag, 2, big);
        image_bytes_put(f, e + 2, (uint32_t)tag[i].type, 2, big);
        image_bytes_put(f, e + 4, tag[i].count, 4, big);
        image_bytes_put(f, e + 8, 0, 4, big);
        image_bytes_put(f, e + 8, tag[i].value, shorts ? 2 : 4, big);
    }

    image_bytes_put(f, at, entries, 2, big);
    image_bytes_put(f, f->size, 0, 4, big);
}

/* -- reading -------------------------------------------------------------- */

bool image_bytes_decode(const ImageBytes *f, const ImageOptions *o, Volume *v)
{
    uint8_t *copy = malloc(f->size + !f->size);
    REQUIRE(copy);
    memcpy(copy, f->bytes, f->size);
    bool ok = image_decode(copy, f->size, o, v);
    free(copy);
    return ok;
}

void image_bytes_refused(const char *file, int line, const ImageBytes *f,
                         const ImageOptions *o, const char *reason)
{
    Volume v;
    long live = mem_live();
    test_fail(file, line, "decode", image_bytes_decode(f, o, &v), reason);
    if (err_kind() != ERR_DATA || v.voxels.data || mem_live() != live)
        test_failed(file, line, "kind %d, voxels %p, %ld blocks left",
                    err_kind(), v.voxels.data, mem_live() - live);
}

double image_bytes_value(const Volume *v, int64_t i)
{
    return v->voxels.type == U8    ? ((uint8_t *)v->voxels.data)[i]
           : v->voxels.type == I16 ? ((int16_t *)v->voxels.data)[i]
                                   : tensor_get(&v->voxels, i);
}

void image_bytes_expect(const ImageBytes *f, const ImageOptions *o, Dtype type,
                        int w, int channels, const double *want, int count)
{
    Volume v;
    REQUIRE(image_bytes_decode(f, o, &v));
    EXPECT_INT(v.voxels.type, type);
    if (w) EXPECT_INT(v.voxels.dim.w, w);
    EXPECT_INT(v.voxels.dim.c, channels);
    EXPECT_INT(v.voxels.dim.d, 1);
    EXPECT_INT(v.unit, o && o->label ? UNIT_LABEL : UNIT_NONE);
    REQUIRE(numel(v.voxels.dim) == count);
    for (int i = 0; i < count; i++)
        EXPECT_NEAR(image_bytes_value(&v, i), want[i], 0);
    for (int r = 0; r < 4; r++)
        for (int c = 0; c < 4; c++) EXPECT_NEAR(v.affine[r][c], r == c, 0);
    volume_free(&v);
}
