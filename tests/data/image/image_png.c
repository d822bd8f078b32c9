/* image_png.c -- tests of every pixel format, and of rejected files and their
 * messages. */
#include "tests/support/image_bytes.h"
#include "tests/test.h"

static ImageBytes f; // too large for a stack

/* Expects these values from the file. */
static void expect_values(const ImageOptions *o, Dtype type, int channels,
                          const double *want, int count)
{
    image_bytes_expect(&f, o, type, 0, channels, want, count);
}

static void png(int w, int h, int depth, int color, const char *palette,
                int palette_bytes, const void *rows, size_t count)
{
    image_bytes_png(&f, (uint32_t)w, (uint32_t)h, depth, color, 0);
    if (palette) image_bytes_chunk(&f, "PLTE", palette, (size_t)palette_bytes);
    image_bytes_idat(&f, rows, count);
    image_bytes_chunk(&f, "IEND", "", 0);
}

TEST(image_png_grey)
{
    image_bytes_small_png(&f);
    expect_values(NULL, U8, 1, (double[]){10, 11, 12, 20, 21, 22}, 6);

    // fewer bits are scaled to 0 .. 255, but class numbers are not
    const ImageOptions label = {.label = true};
    png(5, 1, 1, 0, NULL, 0, "\0\xa8", 2);
    expect_values(NULL, U8, 1, (double[]){255, 0, 255, 0, 255}, 5);
    expect_values(&label, U8, 1, (double[]){1, 0, 1, 0, 1}, 5);
    png(5, 1, 2, 0, NULL, 0, "\0\x1b\x80", 3);
    expect_values(NULL, U8, 1, (double[]){0, 85, 170, 255, 170}, 5);
    expect_values(&label, U8, 1, (double[]){0, 1, 2, 3, 2}, 5);
    png(3, 1, 4, 0, NULL, 0, "\0\x1f\x70", 3);
    expect_values(NULL, U8, 1, (double[]){17, 255, 119}, 3);
    expect_values(&label, U8, 1, (double[]){1, 15, 7}, 3);
}

TEST(image_png_16_bits)
{
    const ImageOptions label = {.label = true};
    png(2, 1, 16, 0, NULL, 0, "\0\x01\x02\x7f\xff", 5);
    expect_values(NULL, I16, 1, (double[]){258, 32767}, 2);
    expect_values(&label, I16, 1, (double[]){258, 32767}, 2);
    png(2, 1, 16, 0, NULL, 0, "\0\x01\x02\x80\x00", 5);
    expect_values(NULL, F32, 1, (double[]){258, 32768}, 2);
    expect_values(&label, F32, 1, (double[]){258, 32768}, 2);
    png(1, 1, 16, 2, NULL, 0, "\0\0\1\0\2\xff\xff", 7);
    expect_values(NULL, F32, 3, (double[]){1, 2, 65535}, 3);
}

TEST(image_png_colors_and_palette)
{
    const ImageOptions label = {.label = true};
    png(2, 1, 8, 2, NULL, 0, "\1\1\2\3\4\5\6", 7); // filter "left"
    expect_values(NULL, U8, 3, (double[]){1, 2, 3, 5, 7, 9}, 6);
    EXPECT_REFUSED(&f, &label, "png: 3 channels, class numbers need 1");

    for (int depth = 1; depth <= 8; depth *= 2) {
        // indices 0 1 1 of two colors, the first in the highest bits
        uint8_t row[4] = {0};
        for (int i = 1; i < 3; i++)
            row[1 + i * depth / 8] |=
                (uint8_t)(1 << (8 - depth - i * depth % 8));
        png(3, 1, depth, 3, "\x09\x08\x07\x06\x05\x04", 6, row,
            1 + (size_t)(3 * depth + 7) / 8);
        expect_values(NULL, U8, 3, (double[]){9, 8, 7, 6, 5, 4, 6, 5, 4}, 9);
        expect_values(&label, U8, 1, (double[]){0, 1, 1}, 3);
    }
}

TEST(image_png_alpha)
{
    const ImageOptions drop = {.drop_alpha = true};
    png(2, 1, 8, 6, NULL, 0, "\0\1\2\3\xff\4\5\6\0", 9);
    EXPECT_REFUSED(&f, NULL, "png: an alpha channel or transparent color");
    expect_values(&drop, U8, 3, (double[]){1, 2, 3, 4, 5, 6}, 6);
    png(2, 1, 16, 4, NULL, 0, "\0\0\1\0\2\0\3\0\4", 9);
    EXPECT_REFUSED(&f, NULL, "png: an alpha channel or transparent color");
    expect_values(&drop, I16, 1, (double[]){1, 3}, 2);

    // a transparent color
    image_bytes_png(&f, 2, 1, 8, 0, 0);
    image_bytes_chunk(&f, "tRNS", "\0\7", 2);
    image_bytes_idat(&f, "\0\7\x08", 3);
    image_bytes_chunk(&f, "IEND", "", 0);
    EXPECT_REFUSED(&f, NULL, "png: an alpha channel or transparent color");
    expect_values(&drop, U8, 1, (double[]){7, 8}, 2);
}

TEST(image_png_interlaced)
{
    // 1 x 1 has one pass; 3 x 2 has passes 1, 4, 6 and 7
    image_bytes_png(&f, 1, 1, 8, 0, 1);
    image_bytes_idat(&f, "\0\5", 2);
    image_bytes_chunk(&f, "IEND", "", 0);
    expect_values(NULL, U8, 1, (double[]){5}, 1);
    image_bytes_png(&f, 3, 2, 8, 0, 1);

    // pass 1: (0,0); 4: (2,0); 6: (1,0); 7: row 1
    image_bytes_idat(&f, "\0\1\0\3\0\2\0\4\5\6", 10);
    image_bytes_chunk(&f, "IEND", "", 0);
    expect_values(NULL, U8, 1, (double[]){1, 2, 3, 4, 5, 6}, 6);
    image_bytes_png(&f, 3, 2, 8, 0, 1);
    image_bytes_idat(&f, "\0\1\0\3\0\2\0\4\5", 9);
    image_bytes_chunk(&f, "IEND", "", 0);
    EXPECT_REFUSED(&f, NULL, "png: the packed pixels hold 9 bytes, need 10");
}

TEST(image_png_in_many_chunks)
{
    image_bytes_small_png(&f);
    size_t at = image_bytes_find(&f, "IDAT"), n = f.bytes[at + 3];
    uint8_t packed[64];
    memcpy(packed, f.bytes + at + 8, n);
    f.size = at;

    // one byte per chunk, with empty chunks between
    for (size_t i = 0; i < n; i++) {
        image_bytes_chunk(&f, "IDAT", packed + i, 1);
        image_bytes_chunk(&f, "IDAT", "", 0);
    }
    image_bytes_chunk(&f, "IEND", "", 0);
    expect_values(NULL, U8, 1, (double[]){10, 11, 12, 20, 21, 22}, 6);
}

TEST(image_png_larger_than_a_stored_block)
{
    // 300 rows of 301 bytes: their filter bytes fall on all sides of byte 65535
    enum { SIDE = 300 };
    static uint8_t rows[SIDE][1 + SIDE];
    Volume v;
    for (int y = 0; y < SIDE; y++)
        for (int x = 0; x < SIDE; x++) rows[y][1 + x] = (uint8_t)(x * y);
    png(SIDE, SIDE, 8, 0, NULL, 0, rows, sizeof rows);
    REQUIRE(image_bytes_decode(&f, NULL, &v));
    for (int y = 0; y < SIDE; y++)
        EXPECT(!memcmp((uint8_t *)v.voxels.data + y * SIDE, rows[y] + 1, SIDE));
    volume_free(&v);
    rows[SIDE - 1][0] = 5;
    png(SIDE, SIDE, 8, 0, NULL, 0, rows, sizeof rows);
    EXPECT_REFUSED(&f, NULL, "png: row 299 has the filter 5, need 0 to 4");
}

/* -- rejected files -------------------------------------------------------- */

TEST(image_png_header_defects)
{
    static const struct {
        uint32_t w, h;
        int depth, color, interlace;
        const char *reason;
    } row[] = {
        {0, 1, 8, 0, 0, "png: 0 x 1 pixels: a side is 0"},
        {1, 0, 8, 0, 0, "png: 1 x 0 pixels: a side is 0"},
        {65536, 1, 8, 0, 0, "png: 65536 x 1 pixels, limit 65535 along a side"},
        {0xffffffff, 1, 8, 0, 0, "pixels, limit 65535 along a side"},
        {30000, 30000, 8, 2, 0,
         "30000 x 30000 pixels of 3 channels, limit 536870912 numbers"},
        {1, 1, 3, 0, 0, "png: 3 bits with color type 0 do not exist in PNG"},
        {1, 1, 16, 3, 0, "16 bits with color type 3 do not exist in PNG"},
        {1, 1, 4, 2, 0, "4 bits with color type 2 do not exist in PNG"},
        {1, 1, 8, 1, 0, "8 bits with color type 1 do not exist in PNG"},
        {1, 1, 8, 7, 0, "8 bits with color type 7 do not exist in PNG"},
        {1, 1, 32, 0, 0, "32 bits with color type 0 do not exist in PNG"},
        {1, 1, 8, 0, 2, "compression 0, filter 0, interlace 2; need 0, 0 and "},
        // 8000 x 8000 at the maximum ratio of deflate need 62 kB
        {8000, 8000, 8, 0, 0, "bytes of packed pixels cannot hold 64008000"},
    };

    for (size_t r = 0; r < sizeof row / sizeof *row; r++) {
        image_bytes_png(&f, row[r].w, row[r].h, row[r].depth, row[r].color,
                        row[r].interlace);
        image_bytes_idat(&f, "\0\0", 2);
        image_bytes_chunk(&f, "IEND", "", 0);
        EXPECT_REFUSED(&f, NULL, row[r].reason);
    }

    image_bytes_small_png(&f);
    f.bytes[26] = 1;
    image_bytes_mend(&f, "IHDR");
    EXPECT_REFUSED(&f, NULL, "compression 1, filter 0, interlace 0; need 0");
}

TEST(image_png_chunk_defects)
{
    uint8_t z[40000] = {0};
    image_bytes_small_png(&f);
    size_t whole = f.size;
    for (size_t n = 0; n < whole; n++) { // every truncation
        f.size = n;
        EXPECT_REFUSED(&f, NULL, n >= 8 ? "png: file ends " : "");
    }
    f.size = whole - 12;
    EXPECT_REFUSED(&f, NULL, "png: file ends without IEND: it is cut off");
    f.size = whole - 1;
    EXPECT_REFUSED(&f, NULL, "png: file ends inside a chunk at byte");
    image_bytes_small_png(&f);
    f.bytes[4] = '\n';
    EXPECT_REFUSED(&f, NULL, "png: the signature is damaged, as by a copy");
    for (size_t i = 8; i < whole; i++) { // every byte matters
        image_bytes_small_png(&f);
        f.bytes[i] ^= 0x80;
        EXPECT_REFUSED(&f, NULL, "png: ");
    }

    image_bytes_small_png(&f);
    f.bytes[16] ^= 1;
    EXPECT_REFUSED(&f, NULL,
                   "chunk IHDR at byte 8 is damaged: its checksum is");
    image_bytes_small_png(&f);
    image_bytes_put(&f, image_bytes_find(&f, "IDAT"), 0x7fffffff, 4, true);
    EXPECT_REFUSED(&f, NULL,
                   "file ends inside the chunk IDAT at byte 33: "
                   "2147483647 bytes, only ");
    image_bytes_small_png(&f);
    f.bytes[image_bytes_find(&f, "IDAT") + 4] = 1;
    EXPECT_REFUSED(&f, NULL, "no chunk at byte 33: its type is 01 44 41 54");
    image_bytes_small_png(&f);
    image_bytes_cut(&f, 8, 25);
    EXPECT_REFUSED(&f, NULL,
                   "png: the first chunk is IDAT of 16 bytes, need "
                   "IHDR of 13");
    image_bytes_small_png(&f);
    image_bytes_add(&f, "\0x", 2);
    EXPECT_REFUSED(&f, NULL, "png: 2 bytes after the image, which ends at");
    const ImageOptions trailing = {.trailing = true};
    expect_values(&trailing, U8, 1, (double[]){10, 11, 12, 20, 21, 22}, 6);
    f.bytes[f.size - 1] = 0; // zeros pad a block
    expect_values(NULL, U8, 1, (double[]){10, 11, 12, 20, 21, 22}, 6);

    // an IEND with data
    image_bytes_small_png(&f);
    f.size -= 12;
    image_bytes_chunk(&f, "IEND", "x", 1);
    EXPECT_REFUSED(&f, NULL, "png: chunk IEND has 1 bytes, need 0");

    // compressed data, but not zlib
    image_bytes_png(&f, 200, 200, 8, 0, 0);
    image_bytes_chunk(&f, "IDAT", z, sizeof z);
    image_bytes_chunk(&f, "IEND", "", 0);
    EXPECT_REFUSED(&f, NULL,
                   "png: the packed pixels are damaged before byte "
                   "40045: unknown compression method");
}

TEST(image_png_order_defects)
{
    static const struct {
        const char *chunks; // letters of the list below, in order
        int color;
        const char *reason;
    } row[] = {
        {"HE", 0, "png: no pixels: there is no chunk IDAT"},
        {"HHDE", 0, "chunk IHDR at byte 33 is not allowed there"},
        {"HDTDE", 0, "chunk IDAT at byte"},
        {"HPDE", 0, "chunk PLTE at byte 33 is not allowed there"},
        {"HPPDE", 3, "chunk PLTE at byte 48 is not allowed there"},
        {"HDPE", 2, "chunk PLTE at byte"},
        {"HDE", 3, "png: no palette before the pixels"},
        {"HtDE", 3, "chunk tRNS at byte 33 is not allowed there"},
        {"HttDE", 0, "chunk tRNS at byte 47 is not allowed there"},
        {"HDtE", 0, "chunk tRNS at byte"},
        {"HtDE", 4, "chunk tRNS at byte 33 is not allowed there"},
        {"HtDE", 2, "chunk tRNS has 2 bytes, need 6 to 6"},
        {"HQDE", 3, "the palette has 4 bytes, need 3 a color, for 1 to 256"},
        {"HZDE", 3, "the palette has 0 bytes, need 3 a color"},
        {"HXDE", 0, "chunk XxXx at byte 33 is not known, but marked as needed"},
        {"HADE", 0, "png: an animation, need one picture"},
        {"HPDE", 3, "png: pixel (0,0) has the color 7 of a palette of 1"},
        {"HTPDE", 2, NULL},
    };

    for (size_t r = 0; r < sizeof row / sizeof *row; r++) {
        image_bytes_png(&f, 1, 1, 8, row[r].color, 0);
        for (const char *c = row[r].chunks + 1; *c; c++) {
            if (*c == 'H') image_bytes_chunk(&f, "IHDR", f.bytes + 16, 13);
            if (*c == 'P') image_bytes_chunk(&f, "PLTE", "\1\2\3", 3);
            if (*c == 'Q') image_bytes_chunk(&f, "PLTE", "\1\2\3\4", 4);
            if (*c == 'Z') image_bytes_chunk(&f, "PLTE", "", 0);
            if (*c == 't') image_bytes_chunk(&f, "tRNS", "\0\2", 2);
            if (*c == 'T') image_bytes_chunk(&f, "tEXt", "Name\0text", 9);
            if (*c == 'X') image_bytes_chunk(&f, "XxXx", "", 0);
            if (*c == 'A') image_bytes_chunk(&f, "acTL", "\0\0\0\1\0\0\0\0", 8);
            if (*c == 'E') image_bytes_chunk(&f, "IEND", "", 0);
            if (*c == 'D')
                image_bytes_idat(&f, "\0\7\1\1", row[r].color == 2 ? 4 : 2);
        }
        if (row[r].reason)
            EXPECT_REFUSED(&f, NULL, row[r].reason);
        else
            expect_values(NULL, U8, 3, (double[]){7, 1, 1}, 3);
    }
}

TEST(image_png_packed_defects)
{
    static const uint8_t pixels[] = {0, 1, 2, 3, 0, 4, 5, 6, 0};
    static const double small[] = {10, 11, 12, 20, 21, 22};
    const ImageOptions trailing = {.trailing = true};

    for (size_t n = 7; n <= 9; n++) {
        png(3, 2, 8, 0, NULL, 0, pixels, n);
        if (n == 7)
            EXPECT_REFUSED(&f, NULL, "the packed pixels hold 7 bytes, need 8");
        else if (n == 9)
            EXPECT_REFUSED(&f, NULL, "the packed pixels hold more than 8 byte");
        if (n == 7)
            EXPECT_REFUSED(&f, &trailing, "hold 7 bytes, need 8");
        else if (n == 9)
            expect_values(&trailing, U8, 1, (double[]){1, 2, 3, 4, 5, 6}, 6);
        else
            expect_values(NULL, U8, 1, (double[]){1, 2, 3, 4, 5, 6}, 6);
    }

    // a zlib stream without its last byte, and with one extra byte
    image_bytes_small_png(&f);
    size_t at = image_bytes_find(&f, "IDAT"), n = f.bytes[at + 3];
    uint8_t packed[64] = {0};
    memcpy(packed, f.bytes + at + 8, n);

    for (size_t more = 0; more < 3; more++) {
        f.size = at;
        image_bytes_chunk(&f, "IDAT", packed, n - 1 + more);
        image_bytes_chunk(&f, "IEND", "", 0);
        if (more == 0)
            EXPECT_REFUSED(&f, NULL,
                           "packed pixels end without their checksum");
        if (more == 2) {
            EXPECT_REFUSED(&f, NULL,
                           "png: 1 bytes after the packed pixels; "
                           "fix: trailing = true");
            expect_values(&trailing, U8, 1, small, 6);
        }
    }

    // a further chunk of pixels, after the others or after another chunk: the
    // image is complete without it
    for (int between = 0; between < 2; between++) {
        f.size = at;
        image_bytes_chunk(&f, "IDAT", packed, n);
        if (between) image_bytes_chunk(&f, "tEXt", "a\0b", 3);
        image_bytes_chunk(&f, "IDAT", packed, 5);
        image_bytes_chunk(&f, "IEND", "", 0);
        EXPECT_REFUSED(&f, NULL,
                       between ? "png: chunk IDAT at byte"
                               : "5 bytes after the packed pixels");
        expect_values(&trailing, U8, 1, small, 6);
    }

    packed[n - 1] ^= 1;
    f.size = at;
    image_bytes_chunk(&f, "IDAT", packed, n);
    image_bytes_chunk(&f, "IEND", "", 0);
    EXPECT_REFUSED(&f, NULL,
                   "are damaged before byte 61: incorrect data check");
    png(3, 2, 8, 0, NULL, 0, "\0\1\2\3\5\4\5\6", 8);
    EXPECT_REFUSED(&f, NULL, "png: row 1 has the filter 5, need 0 to 4");
}

TEST(image_png_bomb_costs_nothing)
{
    // 64 MB of zeros after one pixel: one byte more than declared is inflated
    enum { ZEROS = 1 << 26 };
    uint8_t *zeros = mem_alloc(ZEROS);
    REQUIRE(zeros);
    png(1, 1, 8, 0, NULL, 0, zeros, ZEROS);
    mem_free(zeros);
    EXPECT_REFUSED(&f, NULL, "the packed pixels hold more than 2 bytes");

    // 74 bytes that declare 529 MB: no memory is allocated for pixels
    ImageInfo info;
    image_bytes_png(&f, 23000, 23000, 8, 0, 0);
    image_bytes_idat(&f, "\0\1\2", 3);
    image_bytes_chunk(&f, "IEND", "", 0);
    EXPECT(!image_look(f.bytes, f.size, NULL, &info));
    EXPECT(strstr(err_text(), "packed pixels cannot hold 529023000"));
}

TEST(image_png_orientation)
{
    uint8_t block[26];
    image_bytes_exif_block(block, 6, true);
    image_bytes_png(&f, 2, 1, 8, 0, 0);
    image_bytes_chunk(&f, "eXIf", block, sizeof block);
    image_bytes_idat(&f, "\0\1\2", 3);
    image_bytes_chunk(&f, "IEND", "", 0);
    EXPECT_REFUSED(&f, NULL,
                   "png: orientation is 6: the picture was taken tur");
    const ImageOptions apply = {.exif = IMAGE_EXIF_APPLY};
    Volume v;
    REQUIRE(image_bytes_decode(&f, &apply, &v));
    EXPECT_INT(v.voxels.dim.w, 1);
    EXPECT_INT(v.voxels.dim.h, 2);
    volume_free(&v);
}
