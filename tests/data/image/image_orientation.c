/* image_orientation.c -- tests of the other sources of an orientation: XMP
 * packets of PNG, JPEG and TIFF, profiles of ImageMagick. */
#include "tests/support/image_bytes.h"
#include "tests/test.h"
#include <stdio.h>
#include <zlib.h>

static ImageBytes f; // too large for a stack

static const char attribute[] =
    "<x:xmpmeta><rdf:Description tiff:Make='a' tiff:Orientation=\"6\"/>";
static const char element[] =
    "<rdf:Description><tiff:Orientation>6</tiff:Orientation>";

/* Makes 2 x 1 pixels, 1 and 2, after a text chunk (`chunk` NULL: none) and an
 * Exif block with this orientation (0: none). */
static void make_png(const char *chunk, const void *text, size_t bytes,
                     int exif)
{
    uint8_t block[26];
    image_bytes_png(&f, 2, 1, 8, 0, 0);
    if (chunk) image_bytes_chunk(&f, chunk, text, bytes);
    if (exif) image_bytes_exif_block(block, exif, true);
    if (exif) image_bytes_chunk(&f, "eXIf", block, sizeof block);
    image_bytes_idat(&f, "\0\1\2", 3);
    image_bytes_chunk(&f, "IEND", "", 0);
}

/* Writes KEYWORD 0 BETWEEN TEXT, the text compressed if `packed`; returns the
 * number of bytes. */
static size_t text_chunk(uint8_t out[1024], const char *keyword,
                         const char *between, size_t n, const void *text,
                         size_t bytes, bool packed)
{
    size_t at = strlen(keyword) + 1;
    memcpy(out, keyword, at);
    memcpy(out + at, between, n);
    at += n;
    uLongf room = 1024 - at;
    if (packed)
        REQUIRE(compress(out + at, &room, text, bytes) == Z_OK);
    else
        memcpy(out + at, text, bytes), room = bytes;
    return at + room;
}

/* Writes a profile as ImageMagick does: name, number of bytes, lines of
 * digits. */
static size_t profile_text(char out[512], const char *name, const void *data,
                           size_t bytes)
{
    int at = snprintf(out, 512, "\n%s\n%8zu\n", name, bytes);
    for (size_t i = 0; i < bytes; i++)
        at += snprintf(out + at, 512 - (size_t)at, "%02x%s",
                       ((const uint8_t *)data)[i], i % 36 == 35 ? "\n" : "");
    return (size_t)at;
}

/* Expects that the image is rotated by a quarter turn on request, unchanged
 * when the orientation is ignored, and rejected without an option. */
static void expect_turned(const char *what, int orientation)
{
    static const struct {
        ImageExif exif;
        int w; // 0: rejected
    } row[] = {
        {IMAGE_EXIF_REFUSE, 0}, {IMAGE_EXIF_APPLY, 1}, {IMAGE_EXIF_IGNORE, 2}};

    for (int k = 0; k < 3; k++) {
        const ImageOptions o = {.exif = row[k].exif};
        const int w = orientation == 6 ? row[k].w : 2;
        Volume v;
        if (image_bytes_decode(&f, &o, &v)) {
            if (v.voxels.dim.w != w)
                test_failed(__FILE__, __LINE__, "%s: %d wide, want %d", what,
                            v.voxels.dim.w, w);
            volume_free(&v);
        } else if (w || !strstr(err_text(), "orientation is 6: the picture")) {
            test_failed(__FILE__, __LINE__, "%s: %s", what, err_text());
        }
    }
}

TEST(image_orientation_of_png_texts)
{
    uint8_t chunk[1024], exif[32] = "Exif\0";
    char text[512];
    size_t n;

    image_bytes_exif_block(exif + 6, 6, true);
    for (int packed = 0; packed < 2; packed++) {
        const char *flag = packed ? "\1\0\0\0" : "\0\0\0\0";
        for (int k = 0; k < 2; k++) {
            const char *xmp = k ? element : attribute;
            n = text_chunk(chunk, "XML:com.adobe.xmp", flag, 4, xmp,
                           strlen(xmp), packed);
            make_png("iTXt", chunk, n, 0);
            expect_turned("iTXt", 6);
            // with both, viewers use Exif
            make_png("iTXt", chunk, n, 1);
            expect_turned("iTXt beside eXIf", 1);
        }
        for (int k = 0; k < 4; k++) {
            static const char *const names[] = {"exif", "APP1", "exif", "xmp"};
            char keyword[64];
            snprintf(keyword, sizeof keyword, "Raw profile type %s", names[k]);
            n = k == 3 ? profile_text(text, names[k], attribute,
                                      sizeof attribute - 1)
                       : profile_text(text, names[k], exif + (k == 2 ? 6 : 0),
                                      k == 2 ? 26 : 32);
            n = text_chunk(chunk, keyword, "", packed, text, n, packed);
            make_png(packed ? "zTXt" : "tEXt", chunk, n, 0);
            expect_turned(keyword, 6);
            // truncated anywhere: an error or as stored, and no read out of
            // bounds
            for (size_t m = 0; m < n; m += 7) {
                Volume v;
                make_png(packed ? "zTXt" : "tEXt", chunk, m, 0);
                if (image_bytes_decode(&f, NULL, &v)) volume_free(&v);
            }
        }
    }

    // other texts are not read
    n = text_chunk(chunk, "Comment", "", 0, attribute, sizeof attribute, false);
    make_png("tEXt", chunk, n, 0);
    expect_turned("a comment", 1);
}

TEST(image_orientation_of_jpeg_xmp)
{
    uint8_t segment[256] = "\xff\xe1";
    static const char head[] = "http://ns.adobe.com/xap/1.0/";
    const size_t n = 2 + sizeof head + sizeof attribute - 1;

    segment[3] = (uint8_t)n;
    memcpy(segment + 4, head, sizeof head);
    memcpy(segment + 4 + sizeof head, attribute, sizeof attribute - 1);
    const ImageOptions apply = {.exif = IMAGE_EXIF_APPLY};

    for (int exif = 0; exif < 2; exif++) {
        Volume v;
        image_bytes_jpeg(&f, 24, 16, 1, false, 0);
        image_bytes_insert(&f, 2, segment, n + 2);
        if (exif) image_bytes_exif(&f, 1, false);
        REQUIRE(image_bytes_decode(&f, &apply, &v));
        EXPECT_INT(v.voxels.dim.w, exif ? 24 : 16);
        volume_free(&v);
        if (!exif)
            EXPECT_REFUSED(&f, NULL, "jpeg: orientation is 6: the picture was");
    }
}

TEST(image_orientation_of_tiff_xmp)
{
    uint8_t data[2 + sizeof attribute] = {1, 2};
    memcpy(data + 2, attribute, sizeof attribute);

    for (int with = 0; with < 2; with++) {
        const TiffTag tags[] = {{256, 3, 1, 2},
                                {257, 3, 1, 1},
                                {258, 3, 1, 8},
                                {259, 3, 1, 1},
                                {262, 3, 1, 1},
                                {273, 4, 1, 8},
                                {with ? 274 : 0, 3, 1, 1},
                                {277, 3, 1, 1},
                                {278, 3, 1, 1},
                                {279, 4, 1, 2},
                                {700, 1, sizeof attribute, 10}};
        Volume v;
        image_bytes_tiff(&f, false, data, sizeof data, tags,
                         sizeof tags / sizeof *tags);
        bool read = image_bytes_decode(&f, NULL, &v);
        if (!read && strstr(err_text(), "libtiff"))
            SKIP("built without libtiff");
        if (read) volume_free(&v);
        expect_turned("TIFF", with ? 1 : 6);
    }
}
