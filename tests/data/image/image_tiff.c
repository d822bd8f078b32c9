/* image_tiff.c -- tests of files that are read, and of rejected files and their
 * messages. */
#include "tests/support/image_bytes.h"
#include "tests/test.h"
#include <zlib.h>

static ImageBytes f; // too large for a stack

/* Rows of the directory that small() makes. */
enum {
    WIDTH,
    HEIGHT,
    BITS,
    COMPRESSION,
    PHOTO,
    FILL,
    STRIPS,
    ORIENTATION,
    SAMPLES,
    ROWS,
    BYTES,
    PLANES,
    PREDICTOR,
    TILE_W,
    TILE_H,
    TILES,
    TILE_BYTES,
    EXTRA,
    FORMAT,
    TAGS
};
static TiffTag tag[TAGS];

/* Makes a directory for one strip of `count` bytes at byte 8. */
static void directory(int w, int h, int bits, int samples, size_t count)
{
    const TiffTag rows[TAGS] = {
        [WIDTH] = {256, 3, 1, (uint32_t)w},
        [HEIGHT] = {257, 4, 1, (uint32_t)h},
        [BITS] = {258, 3, 1, (uint32_t)bits},
        [COMPRESSION] = {259, 3, 1, 1},
        [PHOTO] = {262, 3, 1, samples > 2 ? 2 : 1},
        [STRIPS] = {273, 4, 1, 8},
        [SAMPLES] = {277, 3, 1, (uint32_t)samples},
        [ROWS] = {278, 3, 1, (uint32_t)h},
        [BYTES] = {279, 4, 1, (uint32_t)count},
    };
    memcpy(tag, rows, sizeof tag);
}

static const uint8_t pixels[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};

/* 2 x 2 pixels of three colors. */
static void small(void)
{
    directory(2, 2, 8, 3, 12);
}

static void make_tiff(bool big)
{
    image_bytes_tiff(&f, big, pixels, sizeof pixels, tag, TAGS);
}

static bool have(void)
{
    Volume v;
    small();
    make_tiff(false);
    bool ok = image_bytes_decode(&f, NULL, &v);
    if (ok) volume_free(&v);
    return ok || !strstr(err_text(), "built without libtiff");
}
#define NEED_LIBTIFF \
    if (!have()) SKIP("built without libtiff")

TEST(image_tiff_kinds)
{
    NEED_LIBTIFF;
    const double twelve[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};

    for (int big = 0; big < 2; big++) {
        small();
        make_tiff(big);
        image_bytes_expect(&f, NULL, U8, 2, 3, twelve, 12);
        directory(4, 3, 8, 1, 12);
        make_tiff(big);
        image_bytes_expect(&f, NULL, U8, 4, 1, twelve, 12);
        // each color in a plane of its own: three strips of 4 bytes
        small();
        tag[PLANES] = (TiffTag){284, 3, 1, 2};
        tag[STRIPS].count = tag[BYTES].count = 3;
        ImageBytes *lists = mem_alloc(sizeof *lists);
        REQUIRE(lists);
        image_bytes_add(lists, pixels, 12);
        for (uint32_t i = 0; i < 6; i++)
            image_bytes_put(lists, lists->size, i < 3 ? 8 + 4 * i : 4, 4, big);
        tag[STRIPS].value = 20, tag[BYTES].value = 32;
        image_bytes_tiff(&f, big, lists->bytes, lists->size, tag, TAGS);
        image_bytes_expect(&f, NULL, U8, 2, 3,
                           (double[]){1, 5, 9, 2, 6, 10, 3, 7, 11, 4, 8, 12},
                           12);
        mem_free(lists);
        // white is 0
        directory(4, 3, 8, 1, 12);
        tag[PHOTO].value = 0;
        make_tiff(big);
        image_bytes_expect(&f, NULL, U8, 4, 1,
                           (double[]){254, 253, 252, 251, 250, 249, 248, 247,
                                      246, 245, 244, 243},
                           12);
    }
}

/* Child directories (type 13, of supplement 1), types of BigTIFF and unknown
 * types, for tags that do not affect the pixels. */
TEST(image_tiff_fields_of_other_types)
{
    NEED_LIBTIFF;
    static const struct {
        TiffTag with;
        const char *reason; // NULL: accepted
    } row[] = {{{330, 13, 1, 8}, NULL},
               {{330, 13, 2, 8}, NULL},
               {{700, 16, 1, 8}, NULL},
               {{700, 18, 1, 8}, NULL},
               {{700, 14, 9, 1 << 30}, NULL},
               {{700, 0, 1, 0}, NULL},
               {{700, 999, 1, 0}, NULL},
               {{330, 13, 9, 1 << 20}, "tag 330 has 36 bytes at byte 1048576"},
               {{700, 17, 1, 1 << 20}, "tag 700 has 8 bytes at byte 1048576"}};

    for (int big = 0; big < 2; big++)
        for (size_t r = 0; r < sizeof row / sizeof *row; r++) {
            small();
            // in place of EXTRA, with a tag number in sort order
            tag[EXTRA] = (TiffTag){0};
            tag[FORMAT] = row[r].with;
            make_tiff(big);
            if (row[r].reason)
                EXPECT_REFUSED(&f, NULL, row[r].reason);
            else
                image_bytes_expect(
                    &f, NULL, U8, 2, 3,
                    (double[]){1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, 12);
        }
}

TEST(image_tiff_wide_numbers)
{
    NEED_LIBTIFF;
    static const uint8_t u[] = {0, 1, 0xff, 0x7f}, s[] = {0, 1, 0xff, 0xff};
    static const float x[] = {0.5f, -7e9f};
    directory(2, 1, 16, 1, 4);
    image_bytes_tiff(&f, false, u, 4, tag, TAGS);
    image_bytes_expect(&f, NULL, I16, 2, 1, (double[]){256, 32767}, 2);
    image_bytes_tiff(&f, true, u, 4, tag, TAGS);
    image_bytes_expect(&f, NULL, F32, 2, 1, (double[]){1, 65407}, 2);
    tag[FORMAT] = (TiffTag){339, 3, 1, 2};
    image_bytes_tiff(&f, false, s, 4, tag, TAGS);
    image_bytes_expect(&f, NULL, I16, 2, 1, (double[]){256, -1}, 2);
    directory(2, 1, 32, 1, 8);
    tag[FORMAT] = (TiffTag){339, 3, 1, 3};
    image_bytes_tiff(&f, false, x, 8, tag, TAGS);
    image_bytes_expect(&f, NULL, F32, 2, 1, (double[]){0.5, -7e9}, 2);

    // the caller who knows the labels decides if these are labels
    image_bytes_expect(&f, &(ImageOptions){.label = true}, F32, 2, 1,
                       (double[]){0.5, -7e9}, 2);
}

TEST(image_tiff_as_the_lgg_set_has_it)
{
    // 256 x 256, three channels of 8 bits, and a mask of 0 and 255
    NEED_LIBTIFF;
    static uint8_t photo[256 * 256 * 3], packed[256 * 256 * 4], mask[256 * 256];
    const ImageOptions label = {.label = true};
    Volume v;
    for (size_t i = 0; i < sizeof photo; i++) photo[i] = (uint8_t)(i / 100);
    for (size_t i = 0; i < sizeof mask; i++) mask[i] = i / 256 % 3 ? 255 : 0;

    for (int way = 0; way < 4; way++) {
        bool kind = way & 1, plain = way & 2;
        const uint8_t *from = kind ? mask : photo;
        size_t bytes = kind ? sizeof mask : sizeof photo;
        uLongf n = sizeof packed;
        REQUIRE(compress2(packed, &n, from, bytes, 6) == Z_OK);
        if (plain) memcpy(packed, from, n = bytes);
        directory(256, 256, 8, kind ? 1 : 3, n);
        tag[COMPRESSION].value = plain ? 1 : 8;
        image_bytes_tiff(&f, false, packed, n, tag, TAGS);
        REQUIRE(image_bytes_decode(&f, kind ? &label : NULL, &v));
        EXPECT_INT(v.voxels.dim.c, kind ? 1 : 3);
        EXPECT_INT(v.unit, kind ? UNIT_LABEL : UNIT_NONE);
        EXPECT(!memcmp(v.voxels.data, from, bytes));
        volume_free(&v);
    }
}

TEST(image_tiff_tiles)
{
    NEED_LIBTIFF;

    // 17 x 3 pixels in two tiles of 16 x 16; padding is 99
    static uint8_t tiles[512 + 16];
    double want[51];
    memset(tiles, 99, 512);
    for (int y = 0; y < 3; y++)
        for (int x = 0; x < 17; x++) {
            int at = (x / 16) * 256 + y * 16 + x % 16;
            tiles[at] = (uint8_t)(want[y * 17 + x] = 20 * y + x);
        }

    memcpy(tiles + 512, "\x08\0\0\0\x08\1\0\0\0\1\0\0\0\1\0\0", 16);
    directory(17, 3, 8, 1, 0);
    tag[STRIPS].tag = tag[ROWS].tag = tag[BYTES].tag = 0;
    tag[TILE_W] = (TiffTag){322, 3, 1, 16};
    tag[TILE_H] = (TiffTag){323, 3, 1, 16};
    tag[TILES] = (TiffTag){324, 4, 2, 520};
    tag[TILE_BYTES] = (TiffTag){325, 4, 2, 528};
    image_bytes_tiff(&f, false, tiles, sizeof tiles, tag, TAGS);
    image_bytes_expect(&f, NULL, U8, 17, 1, want, 51);
    tag[TILE_W].value = 24;
    image_bytes_tiff(&f, false, tiles, sizeof tiles, tag, TAGS);
    EXPECT_REFUSED(&f, NULL,
                   "tiff: tiles of 24 x 16 pixels, need multiples of");
    tag[TILE_W].value = 0;
    image_bytes_tiff(&f, false, tiles, sizeof tiles, tag, TAGS);
    EXPECT_REFUSED(&f, NULL, "tiff: tiles of 0 x 16 pixels");
    tag[TILE_W].value = tag[TILE_H].value = 65520;
    image_bytes_tiff(&f, false, tiles, sizeof tiles, tag, TAGS);
    EXPECT_REFUSED(&f, NULL,
                   "tiff: tiles of 65520 x 65520 pixels, need multip");
    tag[TILE_W].value = 32, tag[TILE_H].value = 16;
    image_bytes_tiff(&f, false, tiles, sizeof tiles, tag, TAGS);
    EXPECT_REFUSED(&f, NULL, "tiff: TileOffsets has 2 numbers, need 1");
}

TEST(image_tiff_alpha_and_orientation)
{
    NEED_LIBTIFF;
    const ImageOptions drop = {.drop_alpha = true};
    directory(3, 1, 8, 4, 12);
    tag[EXTRA] = (TiffTag){338, 3, 1, 2};
    make_tiff(false);
    EXPECT_REFUSED(&f, NULL, "tiff: an alpha channel or transparent color");
    image_bytes_expect(&f, &drop, U8, 3, 3,
                       (double[]){1, 2, 3, 5, 6, 7, 9, 10, 11}, 9);
    directory(6, 1, 8, 2, 12);
    make_tiff(true);
    EXPECT_REFUSED(&f, NULL, "tiff: an alpha channel or transparent color");
    image_bytes_expect(&f, &drop, U8, 6, 1, (double[]){1, 3, 5, 7, 9, 11}, 6);
    directory(12, 1, 8, 1, 12);
    tag[ORIENTATION] = (TiffTag){274, 3, 1, 2};
    make_tiff(false);
    EXPECT_REFUSED(&f, NULL,
                   "tiff: orientation is 2: the picture was taken tu");
    image_bytes_expect(&f, &(ImageOptions){.exif = IMAGE_EXIF_APPLY}, U8, 12, 1,
                       (double[]){12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1}, 12);
    image_bytes_expect(&f, &(ImageOptions){.exif = IMAGE_EXIF_IGNORE}, U8, 12,
                       1, (double[]){1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12},
                       12);
}

TEST(image_tiff_pages)
{
    NEED_LIBTIFF;
    ImageInfo info;
    directory(2, 1, 8, 1, 2);
    make_tiff(false);

    // the second page is the same directory with other pixels
    size_t first = 20, n = f.size - first, second = f.size;
    image_bytes_add(&f, f.bytes + first, n);
    image_bytes_put(&f, second - 4, (uint32_t)second, 4, false);
    for (size_t e = second + 2; e < f.size - 4; e += 12)
        if (f.bytes[e] == (273 & 255)) image_bytes_put(&f, e + 8, 10, 4, false);
    EXPECT_REFUSED(&f, NULL, "tiff: 2 pages in one file; fix: page = 1, or");
    image_bytes_expect(&f, &(ImageOptions){.page = 1}, U8, 2, 1,
                       (double[]){1, 2}, 2);
    image_bytes_expect(&f, &(ImageOptions){.page = 2}, U8, 2, 1,
                       (double[]){3, 4}, 2);
    EXPECT_REFUSED(&f, &(ImageOptions){.page = 3}, "tiff: page 3 of 2");
    EXPECT(image_look(f.bytes, f.size, &(ImageOptions){.page = 1}, &info));
    EXPECT_INT(info.pages, 2);

    // a cyclic chain
    image_bytes_put(&f, f.size - 4, (uint32_t)first, 4, false);
    EXPECT_REFUSED(&f, NULL,
                   "tiff: more than 10000 pages: the chain of direct");
    image_bytes_put(&f, f.size - 4, 1 << 20, 4, false);
    EXPECT_REFUSED(&f, NULL, "tiff: a directory at byte 1048576 of a file of ");
}

/* -- rejected files -------------------------------------------------------- */

TEST(image_tiff_tag_defects)
{
    static const struct {
        int tag;
        TiffTag with;
        const char *reason;
    } row[] = {
        {WIDTH, {0}, "tiff: tag 256 (ImageWidth) is missing"},
        {HEIGHT, {0}, "tiff: tag 257 (ImageLength) is missing"},
        {PHOTO, {0}, "tag 262 (PhotometricInterpretation) is missing"},
        {STRIPS, {0}, "tiff: StripOffsets has 0 numbers, need 1"},
        {BYTES, {0}, "tiff: StripByteCounts has 0 numbers, need 1"},
        {WIDTH, {256, 4, 1, 0}, "tiff: 0 x 2 pixels: a side is 0"},
        {HEIGHT, {257, 4, 1, 0}, "tiff: 2 x 0 pixels: a side is 0"},
        {WIDTH, {256, 4, 1, 65536}, "65536 x 2 pixels, limit 65535 along a"},
        {HEIGHT, {257, 4, 1, 0xffffffff}, "pixels, limit 65535 along a side"},
        {HEIGHT, {257, 4, 1, 3}, "StripOffsets has 1 numbers, need 2"},
        {WIDTH, {256, 13, 1, 2}, "ImageWidth has 1 values of type 13, need w"},
        {WIDTH, {256, 14, 1, 2}, "tiff: tag 256 has the type 14, need a type "},
        {WIDTH,
         {256, 0, 1, 2},
         "tiff: tag 256 has the type 0, need a type of "},
        {WIDTH,
         {256, 5, 1, 8},
         "ImageWidth has 1 values of type 5, need whole"},
        {WIDTH,
         {256, 3, 0, 8},
         "ImageWidth has 0 values of type 3, need whole"},
        {WIDTH, {300, 3, 1, 2}, "tiff: tag 257 comes after tag 300, need as"},
        {BITS, {258, 3, 3, 1000}, "tag 258 has 6 bytes at byte 1000, outside"},
        {BITS, {258, 4, 0x40000000, 8}, "tag 258 has 4294967296 bytes at byte"},
        {BITS, {258, 3, 1, 4}, "samples of 4 bits in the format 1, need 8 or"},
        {BITS, {258, 3, 1, 32}, "samples of 32 bits in the format 1, need 8 o"},
        {BITS, {258, 3, 2, 0x80004}, "samples of 4 and 8 bits in one pixel"},
        {FORMAT,
         {339, 3, 1, 3},
         "samples of 8 bits in the format 3, need 8 or"},
        {FORMAT,
         {339, 3, 1, 6},
         "samples of 8 bits in the format 6, need 8 or"},
        {FORMAT, {339, 3, 2, 0x20001}, "of the formats 1 and 2 in one pixel"},
        {PHOTO, {262, 3, 1, 3}, "a palette (PhotometricInterpretation 3), nee"},
        {PHOTO, {262, 3, 1, 5}, "tiff: CMYK (PhotometricInterpretation 5), ne"},
        {PHOTO, {262, 3, 1, 6}, "tiff: YCbCr (PhotometricInterpretation 6)"},
        {PHOTO, {262, 3, 1, 9}, "unknown colors (PhotometricInterpretation 9)"},
        {SAMPLES, {277, 3, 1, 2}, "2 samples a pixel, need 3, or one more for"},
        {SAMPLES, {277, 3, 1, 5}, "5 samples a pixel, need 3, or one more for"},
        {COMPRESSION, {259, 3, 1, 7}, "compression JPEG is not read, need no"},
        {COMPRESSION, {259, 3, 1, 4}, "compression CCITT fax 4 is not read"},
        {COMPRESSION, {259, 4, 1, 50000}, "compression Zstandard is not read"},
        {COMPRESSION, {259, 3, 1, 99}, "tiff: compression 99 is not known"},
        {FILL, {266, 3, 1, 2}, "tiff: FillOrder is 2, need 1"},
        {PLANES, {284, 3, 1, 3}, "tiff: PlanarConfiguration is 3, need 1 or 2"},
        {ORIENTATION, {274, 3, 1, 0}, "tiff: orientation is 0, need 1 to 8"},
        {ROWS, {278, 3, 1, 0}, "tiff: strips of 2 x 0 pixels"},
        {ROWS, {278, 3, 1, 1}, "StripOffsets has 1 numbers, need 2"},
        {STRIPS, {273, 4, 2, 8}, "StripOffsets has 2 numbers, need 1"},
        {STRIPS, {273, 4, 1, 1 << 20}, "strip 0 has 12 bytes at byte 1048576,"},
        {BYTES, {279, 4, 1, 11}, "tiff: strip 0 has 11 bytes, need 12"},
        {BYTES, {279, 4, 1, 13}, "tiff: strip 0 has 13 bytes, need 12"},
        {BYTES, {279, 4, 1, 0xffffffff}, "strip 0 has 4294967295 bytes at by"},
    };

    for (int big = 0; big < 2; big++)
        for (size_t r = 0; r < sizeof row / sizeof *row; r++) {
            small();
            tag[row[r].tag] = row[r].with;
            // two 16-bit numbers in one value are in the order of the file
            if (big && row[r].with.type == 3 && row[r].with.count == 2)
                tag[row[r].tag].value =
                    row[r].with.value << 16 | row[r].with.value >> 16;
            make_tiff(big);
            EXPECT_REFUSED(&f, NULL, row[r].reason);
        }

    small();
    tag[COMPRESSION].value = 5;
    tag[PREDICTOR] = (TiffTag){317, 3, 1, 4};
    make_tiff(false);
    EXPECT_REFUSED(&f, NULL,
                   "tiff: Predictor is 4, need 1 or 2, or 3 for floa");
    tag[PREDICTOR].value = 3;
    make_tiff(false);
    EXPECT_REFUSED(&f, NULL,
                   "tiff: Predictor is 3, need 1 or 2, or 3 for floa");
    directory(4, 3, 8, 1, 12);
    tag[PHOTO].value = 0;
    make_tiff(false);
    EXPECT_REFUSED(&f, &(ImageOptions){.label = true},
                   "tiff: white is 0 (PhotometricInterpretation 0), which has");
}

TEST(image_tiff_frame_defects)
{
    small();
    make_tiff(false);
    for (size_t whole = f.size; f.size > 4; f.size--)
        if (f.size < whole) EXPECT_REFUSED(&f, NULL, "tiff: ");
    f.size = 7;
    EXPECT_REFUSED(&f, NULL,
                   "tiff: file ends inside the header: 7 bytes, need ");
    make_tiff(false);
    f.size -= 1;
    EXPECT_REFUSED(&f, NULL,
                   "tiff: the directory at byte 20 has 9 entries, onl");
    make_tiff(false);
    image_bytes_put(&f, 20, 0, 2, false);
    EXPECT_REFUSED(&f, NULL, "tiff: the directory at byte 20 has 0 entries");
    image_bytes_put(&f, 4, 4, 4, false);
    EXPECT_REFUSED(&f, NULL, "tiff: a directory at byte 4 of a file of");
    image_bytes_put(&f, 4, 0, 4, false);
    EXPECT_REFUSED(&f, NULL, "tiff: no pages: there is no directory");
    make_tiff(false);
    f.bytes[2] = 43;
    EXPECT_REFUSED(&f, NULL,
                   "image: BigTIFF is not read, need PNG, JPEG, BMP ");

    // a small file that declares a large image
    directory(60000, 2000, 8, 1, 12);
    for (int k = 0; k < 3; k++) {
        tag[COMPRESSION].value = k == 0 ? 8 : k == 1 ? 5 : 32773;
        make_tiff(false);
        EXPECT_REFUSED(&f, NULL, "strip 0 of 12 bytes cannot hold 120000000");
    }

    // strips that share the same bytes
    enum { COUNT = 30 };
    static uint8_t lists[12 + 8 * COUNT];
    for (int i = 0; i < COUNT; i++) {
        lists[12 + 4 * i] = 8;
        lists[12 + 4 * (COUNT + i)] = 40;
    }
    directory(12, COUNT, 8, 1, 12);
    tag[ROWS].value = 1;
    tag[STRIPS].count = tag[BYTES].count = COUNT;
    tag[STRIPS].value = 20, tag[BYTES].value = 20 + 4 * COUNT;
    tag[COMPRESSION].value = 5;
    image_bytes_tiff(&f, false, lists, sizeof lists, tag, TAGS);
    EXPECT_REFUSED(&f, NULL,
                   "tiff: the strips together have more bytes than th");
}

TEST(image_tiff_packed_defects)
{
    NEED_LIBTIFF;
    static uint8_t packed[256];
    uLongf n = sizeof packed;
    REQUIRE(compress2(packed, &n, pixels, 12, 9) == Z_OK);

    for (size_t cut = 0; cut < n; cut++) {
        small();
        tag[COMPRESSION].value = 8, tag[BYTES].value = (uint32_t)cut;
        image_bytes_tiff(&f, false, packed, n, tag, TAGS);
        if (cut < 14) EXPECT_REFUSED(&f, NULL, "tiff: strip 0 ");
    }

    small();
    tag[COMPRESSION].value = 32773;
    make_tiff(false); // a PackBits run that is too long, then one too short
    EXPECT_REFUSED(&f, NULL, "tiff: strip 0 is damaged: ");
    tag[COMPRESSION].value = 5;
    make_tiff(false);
    EXPECT_REFUSED(&f, NULL, "tiff: strip 0 is damaged: ");
    tag[COMPRESSION].value = 8;
    make_tiff(false);
    EXPECT_REFUSED(&f, NULL, "tiff: strip 0 is damaged: ");
}
