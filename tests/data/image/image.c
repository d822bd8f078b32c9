/* image.c -- tests of format detection, names, limits, rotation, memory. */
#include "data/image/image.h"
#include "engine/base/file.h"
#include "tests/support/image_bytes.h"
#include "tests/test.h"
#include <stdio.h>
#include <unistd.h>

static ImageBytes f; // too large for a stack

static const char *scratch(const char *name)
{
    static char path[300];
    snprintf(path, sizeof path, "%s/%s", test_folder(), name);
    return path;
}

TEST(image_formats_by_name)
{
    static const struct {
        const char *bytes;
        size_t size;
        const char *reason;
    } row[] = {
        {"", 0, "image: file is empty"},
        {"x", 1, "image: not PNG, JPEG, BMP or TIFF: the first bytes are 78 0"},
        {"GIF89a", 6, "image: GIF is not read, need PNG, JPEG, BMP or TIFF"},
        {"RIFF....WEBPVP8 ", 16, "image: WebP is not read"},
        {"\0\0\0\x18"
         "ftypheic",
         12, "image: HEIC is not read"},
        {"\0\0\0\x18"
         "ftypheix",
         12, "image: HEIC is not read"},
        {"\0\0\0\x18"
         "ftypmif1",
         12, "image: HEIF is not read"},
        {"\0\0\0\x18"
         "ftypavif",
         12, "image: AVIF is not read"},
        {"8BPS\0\1", 6, "image: Photoshop (PSD) is not read"},
        {"#?RADIANCE\n", 11, "image: Radiance HDR is not read"},
        {"#?RGBE\n", 7, "image: Radiance HDR is not read"},
        {"v/1\1", 4, "image: OpenEXR is not read"},
        {"\0\0\0\x0cjP  \r\n", 10, "image: JPEG 2000 is not read"},
        {"\0\0\0\x0cJXL \r\n", 10, "image: JPEG XL is not read"},
        {"P1\n", 3, "image: PNM is not read"},
        {"P5\n", 3, "image: PNM is not read"},
        {"P6\n", 3, "image: PNM is not read"},
        {"P7\n", 3, "image: PNM is not read"},
        {"\0\0\2\0\0\0\0\0\0\0\0\0\4\0\4\0\x18\0", 18,
         "image: TGA is not read"},
        {"\0\1\2\0\0\0\1\x18\0\0\0\0\4\0\4\0\x08\0", 18, "image: not PNG, JP"},
        {"\0\0\2\0\0\0\0\0\0\0\0\0\0\0\4\0\x18\0", 18, "image: not PNG, JPE"},
        {"II+\0\x08\0\0\0", 8, "image: BigTIFF is not read"},
    };
    for (size_t r = 0; r < sizeof row / sizeof *row; r++) {
        f.size = 0;
        image_bytes_add(&f, row[r].bytes, row[r].size);
        EXPECT_REFUSED(&f, NULL, row[r].reason);
    }
}

TEST(image_color_mapped_tga)
{
    // valid depths, with and without a color map; no invalid flip flags
    for (int depth = 0; depth < 256; depth++) {
        bool read = true, is = depth == 8 || depth == 15 || depth == 16 ||
                               depth == 24 || depth == 32;
        uint8_t tga[18] = {[1] = 1, [2] = 9, [12] = 4, [14] = 4};
        tga[16] = (uint8_t)depth;
        const char *name = image_format(tga, sizeof tga, &read);
        EXPECT(!read && (is ? name && !strcmp(name, "TGA") : !name));
        tga[17] = 0x40;
        EXPECT(!image_format(tga, sizeof tga, &read));
    }
}

TEST(image_format_of_files)
{
    bool read = false;
    image_bytes_small_png(&f);
    REQUIRE(file_replace(scratch("any"), f.bytes, f.size));
    EXPECT_TEXT(image_file_format(scratch("any"), &read), "png");
    EXPECT(read);
    REQUIRE(file_replace(scratch("any"), "8BPS", 4));
    EXPECT_TEXT(image_file_format(scratch("any"), &read), "Photoshop (PSD)");
    EXPECT(!read);
    EXPECT(!image_file_format(scratch("none"), &read));
    EXPECT(!image_file_format(test_folder(), &read));
}

TEST(image_name_that_says_something_else)
{
    Volume v;
    ImageInfo info;
    image_bytes_small_png(&f);
    const char *path = scratch("really.jpg");

    // the content determines the format
    REQUIRE(file_replace(path, f.bytes, f.size));
    REQUIRE(image_read(path, NULL, &v));
    EXPECT_INT(v.voxels.dim.w, 3);
    volume_free(&v);
    REQUIRE(image_probe(path, NULL, &info));
    EXPECT_TEXT(info.format, "png");

    // if it cannot be read, the message mentions the name
    REQUIRE(file_replace(path, f.bytes, f.size - 1));
    EXPECT_FAIL(image_read(path, NULL, &v),
                "really.jpg: named as jpeg but holds png: png: file ends ");
    EXPECT_FAIL(image_probe(path, NULL, &info), "named as jpeg but holds png");
    path = scratch("really.PNG");
    REQUIRE(file_replace(path, f.bytes, f.size - 1));
    EXPECT_FAIL(image_read(path, NULL, &v),
                "really.PNG: png: file ends inside");
    path = scratch("photo.jpeg");
    REQUIRE(file_replace(path, "GIF89a", 6));
    EXPECT_FAIL(image_read(path, NULL, &v),
                "photo.jpeg: named as jpeg but holds GIF: image: GIF is not");
    EXPECT_FAIL(image_read(scratch("none.png"), NULL, &v), "none.png: image: ");
    EXPECT_FAIL(image_read(test_folder(), NULL, &v), ": image: ");
    EXPECT(!v.voxels.data);
}

TEST(image_limits)
{
    ImageInfo info;
    Volume v;
    image_bytes_small_png(&f); // 3 x 2

    for (int extra = -1; extra <= 1; extra++) {
        const ImageOptions side = {.max_side = 3 + extra};
        const ImageOptions samples = {.max_samples = 6 + extra};
        const ImageOptions bytes = {.max_bytes = (int64_t)f.size + extra};
        if (extra < 0) {
            EXPECT_REFUSED(&f, &side,
                           "png: 3 x 2 pixels, limit 2 along a side");
            EXPECT_REFUSED(&f, &samples,
                           "png: 3 x 2 pixels of 1 channels, limit 5 numbers");
            EXPECT_REFUSED(&f, &bytes, "image: file of");
            continue;
        }
        const ImageOptions *all[] = {&side, &samples, &bytes};
        for (int k = 0; k < 3; k++) {
            REQUIRE(image_bytes_decode(&f, all[k], &v));
            volume_free(&v);
        }
    }

    REQUIRE(file_replace(scratch("limit.png"), f.bytes, f.size));
    const ImageOptions small = {.max_bytes = (int64_t)f.size - 1};
    EXPECT_FAIL(image_read(scratch("limit.png"), &small, &v), " bytes, limit ");
    EXPECT_FAIL(image_probe(scratch("limit.png"), &small, &info), ", limit ");
    EXPECT_REFUSED(&f, &(ImageOptions){.page = 2}, "png: page 2 of 1");
    EXPECT_REFUSED(&f, &(ImageOptions){.page = -1}, "png: page -1 of 1");
}

TEST(image_turned)
{
    // 3 x 2, each orientation as defined by Exif
    static const uint8_t want[9][6] = {
        {0},
        {10, 11, 12, 20, 21, 22}, // as stored
        {12, 11, 10, 22, 21, 20}, // mirrored
        {22, 21, 20, 12, 11, 10}, // half a turn
        {20, 21, 22, 10, 11, 12}, // upside down
        {10, 20, 11, 21, 12, 22}, // transposed
        {20, 10, 21, 11, 22, 12}, // a quarter turn to the right
        {22, 12, 21, 11, 20, 10}, // transposed, from the other corner
        {12, 22, 11, 21, 10, 20}, // a quarter turn to the left
    };
    const ImageOptions apply = {.exif = IMAGE_EXIF_APPLY};
    uint8_t block[26];

    for (int o = 1; o <= 8; o++) {
        Volume v;
        image_bytes_exif_block(block, o, false);
        image_bytes_png(&f, 3, 2, 8, 0, 0);
        image_bytes_chunk(&f, "eXIf", block, sizeof block);
        image_bytes_idat(&f, "\0\x0a\x0b\x0c\0\x14\x15\x16", 8);
        image_bytes_chunk(&f, "IEND", "", 0);
        REQUIRE(image_bytes_decode(&f, &apply, &v));
        EXPECT_INT(v.voxels.dim.w, o > 4 ? 2 : 3);
        EXPECT_INT(v.voxels.dim.h, o > 4 ? 3 : 2);
        if (memcmp(v.voxels.data, want[o], 6))
            test_failed(__FILE__, __LINE__, "orientation %d", o);
        volume_free(&v);
    }
}

TEST(image_without_memory)
{
    // every allocation fails in turn: an error for lack of memory, and no leak
    for (int kind = 0; kind < 4; kind++) {
        if (kind == 0) image_bytes_small_png(&f);
        if (kind == 1) {
            image_bytes_png(&f, 1, 1, 16, 2, 1);
            image_bytes_idat(&f, "\0\x80\0\0\0\0\0", 7);
            image_bytes_chunk(&f, "IEND", "", 0);
        }
        if (kind == 2) {
            image_bytes_jpeg(&f, 24, 16, 3, true, 0);
            image_bytes_exif(&f, 6, false);
        }
        if (kind == 3) {
            const TiffTag tag[] = {
                {256, 3, 1, 4}, {257, 3, 1, 3}, {258, 3, 1, 8},
                {262, 3, 1, 1}, {273, 4, 1, 8}, {279, 4, 1, 12},
            };
            image_bytes_tiff(&f, false, "123456789abc", 12, tag, 6);
        }
        const ImageOptions apply = {.exif = IMAGE_EXIF_APPLY};
        bool ok = false, asked = false;
        for (long n = 0; !ok && n < 1000; n++) {
            Volume v;
            size_t room;
            long live = mem_live();
            mem_fail_after(n, false);
            ok = image_decode(f.bytes, f.size, &apply, &v);
            mem_fail_after(-1, false);
            if (!ok && strstr(err_text(), "built without")) break;
            if (ok)
                volume_free(&v);
            else
                EXPECT(err_kind() == ERR_FAILURE);
            EXPECT(ok || !strstr(err_text(), "(null)"));
            // six blocks of the first color and two of each other one, which
            // libjpeg buffers
            asked = asked || (!ok && err_wanted(&room) == 10 * 64 * 2);
            EXPECT_INT(mem_live(), live);
        }
        EXPECT(asked || kind != 2);
    }
}
