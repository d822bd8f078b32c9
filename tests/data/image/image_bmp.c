/* image_bmp.c -- tests of every depth, and of rejected files and their
 * messages. */
#include "tests/support/image_bytes.h"
#include "tests/test.h"

static ImageBytes f; // too large for a stack

/* 2 x 2 pixels of 24 bits, rows padded to 8 bytes; top row 1 2 3, 4 5 6. */
static void small(int height)
{
    static const char top[] = "\3\2\1\6\5\4\0", low[] = "\x9\x8\7\xc\xb\xa\0";
    image_bytes_bmp(&f, 2, height, 24, NULL, 0);
    image_bytes_add(&f, height < 0 ? top : low, 8);
    image_bytes_add(&f, height < 0 ? low : top, 8);
}

static const uint8_t greys[] = {0, 0, 0, 0, 200, 200, 200, 0};
static const uint8_t colors[] = {3, 2, 1, 0, 6, 5, 4, 0};

TEST(image_bmp_colors)
{
    const double want[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
    small(2);
    image_bytes_expect(&f, NULL, U8, 2, 3, want, 12);
    small(-2);
    image_bytes_expect(&f, NULL, U8, 2, 3, want, 12);
    image_bytes_bmp(&f, 1, 2, 32, NULL, 0);
    image_bytes_add(&f, "\6\5\4\0\3\2\1\0", 8);
    image_bytes_expect(&f, NULL, U8, 1, 3, want, 6);

    // a longer header (color space and so on) has no effect
    small(2);
    uint8_t more[84] = {0};
    image_bytes_insert(&f, 54, more, sizeof more);
    f.bytes[14] = 124, f.bytes[10] = 54 + 84;
    image_bytes_expect(&f, NULL, U8, 2, 3, want, 12);
}

TEST(image_bmp_palette)
{
    const ImageOptions label = {.label = true};
    for (int bits = 1; bits <= 8; bits += bits == 1 ? 3 : 4) {
        uint8_t row[4] = {0};
        for (int i = 1; i < 3; i++) // indices 0 1 1
            row[i * bits / 8] |= (uint8_t)(1 << (8 - bits - i * bits % 8));
        image_bytes_bmp(&f, 3, 1, bits, greys, 2);
        image_bytes_add(&f, row, 4);
        image_bytes_expect(&f, NULL, U8, 3, 1, (double[]){0, 200, 200}, 3);
        image_bytes_expect(&f, &label, U8, 3, 1, (double[]){0, 1, 1}, 3);
        image_bytes_bmp(&f, 3, 1, bits, colors, 2);
        image_bytes_add(&f, row, 4);
        image_bytes_expect(&f, NULL, U8, 3, 3,
                           (double[]){1, 2, 3, 4, 5, 6, 4, 5, 6}, 9);
        image_bytes_expect(&f, &label, U8, 3, 1, (double[]){0, 1, 1}, 3);
    }

    small(2);
    EXPECT_REFUSED(&f, &label, "bmp: 3 channels, class numbers need 1");
}

TEST(image_bmp_fourth_byte)
{
    const ImageOptions drop = {.drop_alpha = true};
    image_bytes_bmp(&f, 2, 1, 32, NULL, 0);
    image_bytes_add(&f, "\3\2\1\xff\6\5\4\xff", 8);
    image_bytes_expect(&f, NULL, U8, 2, 3, (double[]){1, 2, 3, 4, 5, 6}, 6);
    f.bytes[f.size - 1] = 7;
    EXPECT_REFUSED(&f, NULL, "bmp: an alpha channel or transparent color");
    image_bytes_expect(&f, &drop, U8, 2, 3, (double[]){1, 2, 3, 4, 5, 6}, 6);
}

TEST(image_bmp_defects)
{
    static const struct {
        size_t where;
        uint32_t value;
        int bytes;
        const char *reason;
    } row[] = {
        {14, 12, 4, "bmp: a header of 12 bytes (OS/2), need 40 or more"},
        {14, 39, 4, "bmp: a header of 39 bytes, need 40 to 124"},
        {14, 125, 4, "bmp: a header of 125 bytes, need 40 to 124"},
        {14, 124, 4, "file ends inside the header: 70 bytes, need 138"},
        {18, 0, 4, "bmp: 0 x 2 pixels: a side is 0"},
        {22, 0, 4, "bmp: 2 x 0 pixels: a side is 0"},
        {18, 0xfffffffe, 4, "bmp: -2 x 2 pixels: only the height may be negat"},
        {22, 0x80000000, 4, "pixels: only the height may be negative"},
        {18, 65536, 4, "bmp: 65536 x 2 pixels, limit 65535 along a side"},
        {18, 2000, 4, "bmp: 16 bytes of pixels, need 12000: it is cut off"},
        {26, 2, 2, "bmp: 2 planes, need 1"},
        {28, 16, 2, "bmp: 16 bits a pixel, need 1, 4, 8, 24 or 32"},
        {28, 0, 2, "bmp: 0 bits a pixel, need 1, 4, 8, 24 or 32"},
        {30, 1, 4, "bmp: compression RLE of 8 bits is not read"},
        {30, 2, 4, "bmp: compression RLE of 4 bits is not read"},
        {30, 3, 4, "bmp: compression bit fields is not read"},
        {30, 4, 4, "bmp: compression JPEG is not read"},
        {30, 99, 4, "bmp: compression 99 is not known"},
        {10, 53, 4, "bmp: the pixels begin at byte 53, inside the header"},
        {10, 55, 4, "bmp: 15 bytes of pixels, need 16: it is cut off"},
        {10, 0xffffffff, 4, "bmp: 0 bytes of pixels, need 16: it is cut off"},
        {10, 50, 4, "bmp: the pixels begin at byte 50, inside the header"},
    };
    for (size_t r = 0; r < sizeof row / sizeof *row; r++) {
        small(2);
        image_bytes_put(&f, row[r].where, row[r].value, row[r].bytes, false);
        EXPECT_REFUSED(&f, NULL, row[r].reason);
    }

    small(2);
    for (size_t whole = f.size; f.size > 2; f.size--)
        if (f.size < whole) EXPECT_REFUSED(&f, NULL, "bmp: ");
    f.size = 17;
    EXPECT_REFUSED(&f, NULL,
                   "bmp: file ends inside the header: 17 bytes, need");
    small(2);
    image_bytes_add(&f, "x", 1);
    EXPECT_REFUSED(&f, NULL, "bmp: 1 byte after the image, which ends at byt");
}

TEST(image_bmp_palette_defects)
{
    image_bytes_bmp(&f, 3, 1, 4, colors, 2);
    image_bytes_add(&f, "\x01\x20\0\0", 4);
    EXPECT_REFUSED(&f, NULL,
                   "bmp: pixel (2,0) has the color 2 of a palette of ");
    image_bytes_put(&f, 46, 17, 4, false);
    EXPECT_REFUSED(&f, NULL,
                   "bmp: a palette of 17 colors, need at most 16 for ");
    image_bytes_put(&f, 46, 0, 4, false); // means 16
    EXPECT_REFUSED(&f, NULL,
                   "bmp: the palette of 16 colors reaches into the pi");
}
