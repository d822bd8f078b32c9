/* image_jpeg.c -- tests of supported kinds, and of rejected files and their
 * messages. */
#include "tests/support/image_bytes.h"
#include "tests/test.h"

static ImageBytes f; // too large for a stack

/* Expects the ramp of image_bytes_jpeg, within the loss of JPEG. */
static void expect_ramp(int w, int h, int channels)
{
    Volume v;
    REQUIRE(image_bytes_decode(&f, NULL, &v));
    EXPECT_INT(v.voxels.type, U8);
    EXPECT_INT(v.voxels.dim.w, w);
    EXPECT_INT(v.voxels.dim.h, h);
    REQUIRE(v.voxels.dim.c == channels);
    for (int y = 0, i = 0; y < h; y++)
        for (int x = 0; x < w; x++)
            for (int c = 0; c < channels; c++, i++)
                EXPECT_NEAR(image_bytes_value(&v, i), 40 * c + 3 * x + 5 * y,
                            12);
    volume_free(&v);
}

TEST(image_jpeg_kinds)
{
    for (int kind = 0; kind < 8; kind++) {
        int channels = kind & 1 ? 3 : 1;
        image_bytes_jpeg(&f, 19, 13, channels, kind & 2, kind & 4 ? 1 : 0);
        expect_ramp(19, 13, channels);
    }
}

TEST(image_jpeg_info)
{
    ImageInfo info;
    image_bytes_jpeg(&f, 40, 30, 3, true, 0);
    REQUIRE(image_look(f.bytes, f.size, NULL, &info));
    EXPECT_TEXT(info.format, "jpeg");
    EXPECT_INT(info.w, 40);
    EXPECT_INT(info.h, 30);
    EXPECT_INT(info.channels, 3);
    EXPECT_INT(info.bits, 8);
    EXPECT_INT(info.orientation, 0);
}

TEST(image_jpeg_every_truncation)
{
    image_bytes_jpeg(&f, 24, 16, 3, true, 0);
    for (size_t whole = f.size; f.size > 3;) {
        f.size--;
        EXPECT_REFUSED(&f, NULL, "jpeg: ");
        if (f.size == whole - 1)
            EXPECT_REFUSED(&f, NULL,
                           "jpeg: file ends inside the scan that "
                           "begins at byte");
        if (f.size == whole - 2) EXPECT_REFUSED(&f, NULL, "it is cut off");
    }

    image_bytes_jpeg(&f, 24, 16, 3, false, 0);
    f.size = image_bytes_marker(&f, 0xda, 0);
    EXPECT_REFUSED(&f, NULL,
                   "file ends without an end of image: it is cut off");
    image_bytes_add(&f, "\xff\xd9", 2);
    EXPECT_REFUSED(&f, NULL, "no pixels: the image ends at byte");
    image_bytes_jpeg(&f, 24, 16, 3, false, 0);
    f.size = image_bytes_marker(&f, 0xda, 0) + 5;
    EXPECT_REFUSED(&f, NULL, "file ends inside the segment da at byte");
}

TEST(image_jpeg_frame_defects)
{
    // where: offset from the marker of the frame
    static const struct {
        int where, value;
        const char *reason;
    } row[] = {
        {1, 0xc3, "jpeg: lossless is not read, need baseline or progressive"},
        {1, 0xc5, "jpeg: hierarchical is not read"},
        {1, 0xc9, "jpeg: arithmetic coding is not read, need baseline"},
        {1, 0xca, "jpeg: progressive with arithmetic coding is not read"},
        {3, 16, "has 14 bytes, which does not fit its number of colors"},
        {4, 12, "jpeg: 12 bits a sample, need 8; fix: save it as a PNG of 16"},
        {6, 0, "jpeg: 24 x 0 pixels: a side is 0"},
        {8, 0, "jpeg: 0 x 16 pixels: a side is 0"},
        {9, 4, "which does not fit its number of colors"},
        {11, 0x51, "color 1 has the sampling 5 x 1 and the table 0, need 1"},
        {11, 0x10, "color 1 has the sampling 1 x 0 and the table 0, need 1"},
        {12, 4, "color 1 has the sampling 2 x 2 and the table 4, need 1 to 4"},
        {12, 3, "uses the quantization table 3, which was not defined"},
        {13, 1, "jpeg: two colors have the number 1"},
        {13, 9, "is of the color 2, which the frame does not have"},
        // 12 blocks of 8 x 8 become some millions
        {5, 0xff, "bytes of scans cannot hold"},
    };

    for (size_t r = 0; r < sizeof row / sizeof *row; r++) {
        image_bytes_jpeg(&f, 24, 16, 3, false, 0);
        f.bytes[image_bytes_marker(&f, 0xc0, 0) + (size_t)row[r].where] =
            (uint8_t)row[r].value;
        EXPECT_REFUSED(&f, NULL, row[r].reason);
    }

    image_bytes_jpeg(&f, 24, 16, 3, false, 0);
    size_t at = image_bytes_marker(&f, 0xc0, 0);
    image_bytes_insert(&f, at, f.bytes + at, 19);
    EXPECT_REFUSED(&f, NULL, "jpeg: a second frame begins at byte");
    image_bytes_jpeg(&f, 24, 16, 3, false, 0);
    image_bytes_cut(&f, at, 19);
    EXPECT_REFUSED(&f, NULL, "comes before the frame");
    image_bytes_jpeg(&f, 24, 16, 4, false, 0);
    EXPECT_REFUSED(&f, NULL,
                   "jpeg: 4 colors (CMYK or YCCK, for printing), nee");
    image_bytes_jpeg(&f, 24, 16, 1, false, 0);
    at = image_bytes_marker(&f, 0xc0, 0);
    f.bytes[at + 9] = 2, f.bytes[at + 3] = 14;
    image_bytes_insert(&f, at + 13, "\2\x11\0", 3);
    EXPECT_REFUSED(&f, NULL, "jpeg: 2 colors, need 1 or 3");
}

TEST(image_jpeg_table_defects)
{
    // where: offset from the marker of the first Huffman table
    static const struct {
        int where, value;
        const char *reason;
    } row[] = {
        {4, 0x20, "is of class 2 with number 0, need 0 or 1 with 0 to 3"},
        {4, 0x04, "is of class 0 with number 4, need 0 or 1 with 0 to 3"},
        {4, 0x03, "uses the Huffman table 0 of class 0, which was not defined"},
        {4, 0x13, "uses the Huffman table 0 of class 0, which was not defined"},
        {5, 3, "jpeg: Huffman table at byte 102 has 3 codes of 1 bits, at mos"},
        {20, 244, "has 244 codes of 16 bits, at most 128 fit"},
        {20, 20, "has 32 codes, but 12 bytes for them"},
        {3, 18, "Huffman table at byte 102 is cut off"},
    };

    for (size_t r = 0; r < sizeof row / sizeof *row; r++) {
        image_bytes_jpeg(&f, 24, 16, 1, false, 0);
        f.bytes[image_bytes_marker(&f, 0xc4, 0) + (size_t)row[r].where] =
            (uint8_t)row[r].value;
        EXPECT_REFUSED(&f, NULL, row[r].reason);
    }

    // counts with a sum beyond the tables of decoders
    image_bytes_jpeg(&f, 24, 16, 1, false, 0);
    size_t at = image_bytes_marker(&f, 0xc4, 0);
    memset(f.bytes + at + 5, 0, 16);
    f.bytes[at + 19] = 200, f.bytes[at + 20] = 200;
    EXPECT_REFUSED(&f, NULL,
                   "jpeg: Huffman table at byte 102 has more than 256");
    image_bytes_jpeg(&f, 24, 16, 1, false, 0);
    f.bytes[image_bytes_marker(&f, 0xdb, 0) + 4] = 0x05;
    EXPECT_REFUSED(&f, NULL, "jpeg: quantization table at byte 20 is damaged");
    image_bytes_jpeg(&f, 24, 16, 1, false, 0);
    f.bytes[image_bytes_marker(&f, 0xdb, 0) + 4] = 0x10; // 128 bytes, not 64
    EXPECT_REFUSED(&f, NULL, "jpeg: quantization table at byte 20 is damaged");
}

TEST(image_jpeg_segment_defects)
{
    image_bytes_jpeg(&f, 24, 16, 1, false, 0);
    size_t at = image_bytes_marker(&f, 0xdb, 0);
    f.bytes[at] = 0x7f;
    EXPECT_REFUSED(&f, NULL, "jpeg: no marker at byte 20, but 7f");
    f.bytes[at] = 0xff, f.bytes[at + 1] = 0xd3;
    EXPECT_REFUSED(&f, NULL, "jpeg: marker d3 at byte 20 is not allowed there");
    f.bytes[at + 1] = 0xdb;
    image_bytes_put(&f, at + 2, 1, 2, true);
    EXPECT_REFUSED(&f, NULL, "jpeg: segment db at byte 20 has the length 1");
    image_bytes_put(&f, at + 2, 0xffff, 2, true);
    EXPECT_REFUSED(&f, NULL,
                   "jpeg: file ends inside the segment db at byte 20: "
                   "65535 bytes, only ");
    f.bytes[at + 1] = 0xcc;
    image_bytes_put(&f, at + 2, 67, 2, true);
    EXPECT_REFUSED(&f, NULL,
                   "segment cc at byte 20 belongs to a JPEG process that");
    image_bytes_jpeg(&f, 24, 16, 1, false, 2);
    image_bytes_put(&f, image_bytes_marker(&f, 0xdd, 0) + 2, 3, 2, true);
    image_bytes_insert(&f, image_bytes_marker(&f, 0xdd, 0) + 6, "", 1);
    EXPECT_REFUSED(&f, NULL, "jpeg: the restart interval at byte");

    // any number of ff before a marker is valid
    image_bytes_jpeg(&f, 24, 16, 1, false, 0);
    image_bytes_insert(&f, 20, "\xff\xff\xff", 3);
    expect_ramp(24, 16, 1);

    // bytes after the image
    image_bytes_add(&f, "\0\0", 2);
    expect_ramp(24, 16, 1);
    image_bytes_add(&f, "x", 1);
    EXPECT_REFUSED(&f, NULL,
                   "jpeg: 3 bytes after the image, which ends at byt");
    image_bytes_jpeg(&f, 24, 16, 3, false, 0);
    image_bytes_insert(&f, 2,
                       "\xff\xee\0\x0e"
                       "Adobe\0\x64\0\0\0\0\5",
                       16);
    EXPECT_REFUSED(&f, NULL, "Adobe's color transform 5 is not known, need 0");
}

TEST(image_jpeg_scan_defects)
{
    image_bytes_jpeg(&f, 24, 16, 3, false, 0);
    size_t at = image_bytes_marker(&f, 0xda, 0);
    f.bytes[at + 4] = 2;
    EXPECT_REFUSED(&f, NULL, "does not fit the 3 colors of the frame");
    f.bytes[at + 4] = 3, f.bytes[at + 5] = 7;
    EXPECT_REFUSED(&f, NULL,
                   "is of the color 7, which the frame does not have");
    f.bytes[at + 5] = 1, f.bytes[at + 6] = 0x30;
    EXPECT_REFUSED(&f, NULL,
                   "uses the Huffman table 3 of class 0, which was n");
    f.bytes[at + 6] = 0x02;
    EXPECT_REFUSED(&f, NULL,
                   "uses the Huffman table 2 of class 1, which was n");

    // the compressed pixels end early: libjpeg would fill with grey
    image_bytes_jpeg(&f, 120, 120, 3, false, 0);
    at = image_bytes_marker(&f, 0xda, 0) + 14;
    image_bytes_cut(&f, at + 60, f.size - at - 62);
    EXPECT_REFUSED(&f, NULL, "jpeg: damaged: ");

    // a restart marker with a wrong number
    image_bytes_jpeg(&f, 120, 16, 1, false, 4);
    f.bytes[image_bytes_marker(&f, 0xd1, 0) + 1] = 0xd6;
    EXPECT_REFUSED(&f, NULL, "jpeg: damaged: Corrupt JPEG data: ");

    // two scans although the first is complete
    image_bytes_jpeg(&f, 24, 16, 1, false, 0);
    at = image_bytes_marker(&f, 0xda, 0);
    size_t n = f.size - 2 - at;
    uint8_t scan[1000];
    REQUIRE(n < sizeof scan);
    memcpy(scan, f.bytes + at, n);
    f.size -= 2;
    for (int i = 0; i < 100; i++) image_bytes_add(&f, scan, n);
    image_bytes_add(&f, "\xff\xd9", 2);
    EXPECT_REFUSED(&f, NULL, "jpeg: more than 100 scans");
}

TEST(image_jpeg_exif)
{
    const ImageOptions ignore = {.exif = IMAGE_EXIF_IGNORE};
    const ImageOptions apply = {.exif = IMAGE_EXIF_APPLY};
    Volume v;

    for (int big = 0; big < 2; big++) {
        image_bytes_jpeg(&f, 24, 16, 1, false, 0);
        image_bytes_exif(&f, 1, big);
        expect_ramp(24, 16, 1);
        image_bytes_jpeg(&f, 24, 16, 1, false, 0);
        image_bytes_exif(&f, 8, big);
        EXPECT_REFUSED(&f, NULL,
                       "jpeg: orientation is 8: the picture was taken "
                       "turned or mirrored; fix: exif = \"apply\"");
        REQUIRE(image_bytes_decode(&f, &ignore, &v));
        EXPECT_INT(v.voxels.dim.w, 24);
        volume_free(&v);
        REQUIRE(image_bytes_decode(&f, &apply, &v));
        EXPECT_INT(v.voxels.dim.w, 16);
        volume_free(&v);
        for (int bad = 0; bad < 10; bad += 9) {
            image_bytes_jpeg(&f, 24, 16, 1, false, 0);
            image_bytes_exif(&f, bad, big);
            EXPECT_REFUSED(&f, &apply,
                           bad ? "orientation is 9, need 1 to 8"
                               : "orientation is 0, need 1 to 8");
        }
    }

    // a block without an orientation is valid
    image_bytes_jpeg(&f, 24, 16, 1, false, 0);
    image_bytes_exif(&f, 6, false);
    f.bytes[22] = 0; // tag 274 becomes 256
    expect_ramp(24, 16, 1);
    image_bytes_jpeg(&f, 24, 16, 1, false, 0);
    image_bytes_exif(&f, 9, false);
    image_bytes_exif(&f, 3, false);
    EXPECT_REFUSED(&f, &apply, "orientation is 9, need 1 to 8");
    image_bytes_jpeg(&f, 24, 16, 1, false, 0);
    image_bytes_exif(&f, 2, false);
    image_bytes_exif(&f, 3, false);
    EXPECT_REFUSED(&f, &apply, "jpeg: two orientations, 3 and 2; fix: exif = ");

    // a damaged block does not define the orientation
    static const struct {
        int where, value;
        const char *reason;
    } row[] = {
        {0, 'X', "jpeg: the Exif block is damaged, so how the picture"},
        {2, 41, "jpeg: the Exif block is damaged, so how the picture"},
        {4, 25, "the directory of the Exif block lies outside it"},
        {8, 2, "the directory of the Exif block lies outside it"},
        {12, 4, "the orientation in the Exif block is not one 16-bit number"},
        {14, 2, "the orientation in the Exif block is not one 16-bit number"},
    };

    for (size_t r = 0; r < sizeof row / sizeof *row; r++) {
        image_bytes_jpeg(&f, 24, 16, 1, false, 0);
        image_bytes_exif(&f, 1, false);
        f.bytes[12 + row[r].where] = (uint8_t)row[r].value;
        EXPECT_REFUSED(&f, NULL, row[r].reason);
        REQUIRE(image_bytes_decode(&f, &ignore, &v));
        volume_free(&v);
    }
}

TEST(image_jpeg_is_no_mask)
{
    const ImageOptions label = {.label = true};
    image_bytes_jpeg(&f, 24, 16, 1, false, 0);
    EXPECT_REFUSED(&f, &label,
                   "jpeg: JPEG changes numbers, class numbers do no");
}

TEST(image_jpeg_any_changed_byte)
{
    // every damaged file is either read or rejected, without a read out of
    // bounds
    Volume v;

    for (int kind = 0; kind < 2; kind++) {
        image_bytes_jpeg(&f, 30, 17, 3, kind, 0);
        for (size_t i = 0; i < f.size; i++)
            for (int bit = 0; bit < 8; bit += 3) {
                f.bytes[i] ^= (uint8_t)(1 << bit);
                if (image_bytes_decode(&f, NULL, &v)) volume_free(&v);
                f.bytes[i] ^= (uint8_t)(1 << bit);
            }
        expect_ramp(30, 17, 3);
    }
}
