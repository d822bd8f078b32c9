/* encode.c -- files of data/dicom/encode.h, byte by byte. That other programs
 * read them is tested by write.c and tests/shell/dicom*.sh. */
#include "data/dicom/encode.h"
#include "data/dicom/parse.h"
#include "data/dicom/tag.h"
#include "tests/test.h"
#include <string.h>

#define VR_UI VR('U', 'I')
#define VR_US VR('U', 'S')

/* A sequence of two items, the second with a sequence of its own, then an
 * element after them. */
static const CodecElement list[] = {
    {TAG_SOPClassUID, VR_UI, 0, "1.2.3"},
    {TAG_SOPInstanceUID, VR_UI, 0, "1.2.34"},
    {TAG_ReferencedSeriesSequence, VR('S', 'Q'), 0, NULL},
    {TAG_ITEM, 0, 1, NULL},
    {TAG_CodeValue, VR('S', 'H'), 1, "A"},
    {TAG_ITEM, 0, 1, NULL},
    {TAG_ReferencedImageSequence, VR('S', 'Q'), 1, NULL},
    {TAG_ITEM, 0, 2, NULL},
    {TAG_CodeValue, VR('S', 'H'), 2, "BC"},
    {TAG_ReferencedSOPClassUID, VR_UI, 1, ""},
    {TAG_FrameIncrementPointer, VR('A', 'T'), 0, "(3004,000c)\\(0008,0016)"},
    {TAG_Rows, VR_US, 0, "258"},
};
enum { COUNT = sizeof list / sizeof *list };
static const uint8_t words[] = {1, 2, 3, 4}, odd[] = {7, 8, 9};

static CodecPixels form_of(const char *syntax, int allocated)
{
    return (CodecPixels){.syntax_uid = syntax,
                         .rows = 1,
                         .cols = 2,
                         .allocated = (uint16_t)allocated,
                         .stored = (uint16_t)allocated,
                         .frames = 1};
}

/* The offset of the data set: after preamble, mark and meta group. */
static size_t data_at(const uint8_t *file)
{
    REQUIRE(!memcmp(file + 128, "DICM\2\0\0\0UL\4\0", 12));
    return 144 + (size_t)(file[140] | file[141] << 8);
}

static void expect_data(const char *syntax, int allocated,
                        const uint8_t *pixels, size_t pixel_bytes,
                        const char *want, size_t bytes)
{
    Arena mem = {0};
    uint8_t *file;
    size_t count;
    const CodecPixels form = form_of(syntax, allocated);

    REQUIRE(dicom_encode(&form, list, COUNT, pixels, pixel_bytes, &mem, &file,
                         &count));
    const size_t at = data_at(file);
    EXPECT_INT(count - at, bytes);
    for (size_t i = 0; i < bytes && at + i < count; i++)
        if (file[at + i] != (uint8_t)want[i]) {
            test_failed(__FILE__, __LINE__, "%s: byte %zu is %02X, want %02X",
                        syntax, i, file[at + i], (uint8_t)want[i]);
            break;
        }
    arena_release(&mem);
}
#define EXPECT_DATA(syntax, allocated, pixels, want) \
    expect_data(syntax, allocated, pixels, sizeof pixels, want, sizeof want - 1)

// clang-format off
TEST(encode_explicit_little_endian)
{
    static const char want[] =
        "\x08\0\x16\0UI\6\0" "1.2.3\0"
        "\x08\0\x18\0UI\6\0" "1.2.34"
        "\x08\0\x15\x11SQ\0\0\x40\0\0\0"
          "\xFE\xFF\0\xE0\x0A\0\0\0"
            "\x08\0\0\1SH\2\0" "A "
          "\xFE\xFF\0\xE0\x26\0\0\0"
            "\x08\0\x40\x11SQ\0\0\x12\0\0\0"
              "\xFE\xFF\0\xE0\x0A\0\0\0"
                "\x08\0\0\1SH\2\0" "BC"
            "\x08\0\x50\x11UI\0\0"
        "\x28\0\x09\0AT\x08\0\4\x30\x0C\0\x08\0\x16\0"
        "\x28\0\x10\0US\2\0\2\1"
        "\xE0\x7F\x10\0OW\0\0\4\0\0\0\1\2\3\4";
    EXPECT_DATA("1.2.840.10008.1.2.1", 16, words, want);
}

TEST(encode_implicit_little_endian)
{
    static const char want[] =
        "\x08\0\x16\0\6\0\0\0" "1.2.3\0"
        "\x08\0\x18\0\6\0\0\0" "1.2.34"
        "\x08\0\x15\x11\x3C\0\0\0"
          "\xFE\xFF\0\xE0\x0A\0\0\0"
            "\x08\0\0\1\2\0\0\0" "A "
          "\xFE\xFF\0\xE0\x22\0\0\0"
            "\x08\0\x40\x11\x12\0\0\0"
              "\xFE\xFF\0\xE0\x0A\0\0\0"
                "\x08\0\0\1\2\0\0\0" "BC"
            "\x08\0\x50\x11\0\0\0\0"
        "\x28\0\x09\0\x08\0\0\0\4\x30\x0C\0\x08\0\x16\0"
        "\x28\0\x10\0\2\0\0\0\2\1"
        "\xE0\x7F\x10\0\4\0\0\0\7\x08\x09\0";
    EXPECT_DATA("1.2.840.10008.1.2", 8, odd, want);
}

TEST(encode_explicit_big_endian)
{
    static const char want[] =
        "\0\x08\0\x16UI\0\6" "1.2.3\0"
        "\0\x08\0\x18UI\0\6" "1.2.34"
        "\0\x08\x11\x15SQ\0\0\0\0\0\x40"
          "\xFF\xFE\xE0\0\0\0\0\x0A"
            "\0\x08\1\0SH\0\2" "A "
          "\xFF\xFE\xE0\0\0\0\0\x26"
            "\0\x08\x11\x40SQ\0\0\0\0\0\x12"
              "\xFF\xFE\xE0\0\0\0\0\x0A"
                "\0\x08\1\0SH\0\2" "BC"
            "\0\x08\x11\x50UI\0\0"
        "\0\x28\0\x09" "AT\0\x08\x30\4\0\x0C\0\x08\0\x16"
        "\0\x28\0\x10US\0\2\1\2"
        "\x7F\xE0\0\x10OW\0\0\0\0\0\4\2\1\4\3";
    EXPECT_DATA("1.2.840.10008.1.2.2", 16, words, want);
}
// clang-format on

/* The meta group names class, instance and transfer syntax, and has an even
 * length. */
TEST(encode_meta_group)
{
    Arena mem = {0};
    Walk w;
    uint8_t *file;
    size_t count;
    const CodecPixels form = form_of("1.2.840.10008.1.2.1", 16);

    REQUIRE(dicom_encode(&form, list, COUNT, words, sizeof words, &mem, &file,
                         &count));
    EXPECT(!memcmp(file + 144, "\2\0\1\0OB\0\0\2\0\0\0\0\1", 14));
    EXPECT(!memcmp(file + 158,
                   "\2\0\2\0UI\6\0"
                   "1.2.3\0",
                   14));
    EXPECT(!memcmp(file + 172,
                   "\2\0\3\0UI\6\0"
                   "1.2.34",
                   14));
    EXPECT(!memcmp(file + 186,
                   "\2\0\x10\0UI\x14\0"
                   "1.2.840.10008.1.2.1\0",
                   28));
    EXPECT_INT(data_at(file) % 2, 0);

    const WalkInput in = {
        .path = "encoded", .bytes = file, .have = count, .size = count};
    REQUIRE(walk_file(&in, &w) == WALK_DONE);
    EXPECT_INT(w.odd, 0);
    EXPECT_TEXT(w.syntax, "1.2.840.10008.1.2.1");
    walk_free(&w);
    arena_release(&mem);
}

/* A deflated data set inflates to the bytes of the explicit one. */
TEST(encode_deflated)
{
    Arena mem = {0};
    Walk w;
    uint8_t *plain, *file;
    size_t plain_count, count;
    CodecPixels form = form_of("1.2.840.10008.1.2.1", 16);

    REQUIRE(dicom_encode(&form, list, COUNT, words, sizeof words, &mem, &plain,
                         &plain_count));
    form.syntax_uid = "1.2.840.10008.1.2.1.99";
    REQUIRE(dicom_encode(&form, list, COUNT, words, sizeof words, &mem, &file,
                         &count));
    EXPECT_INT(count % 2, 0);
    const WalkInput in = {
        .path = "deflated", .bytes = file, .have = count, .size = count};
    REQUIRE(walk_file(&in, &w) == WALK_DONE);
    const size_t at = data_at(plain);
    REQUIRE(w.size == plain_count - at);
    EXPECT(!memcmp(w.bytes, plain + at, w.size));
    walk_free(&w);
    arena_release(&mem);
}

/* A value of 64 KiB and more is UN in an explicit file, with a length of 32
 * bits. */
TEST(encode_long_value)
{
    enum { LENGTH = 65535 };
    static char text[LENGTH + 1];
    Arena mem = {0};
    uint8_t *file;
    size_t count;
    const CodecElement one[] = {{TAG_SOPClassUID, VR_UI, 0, "1"},
                                {TAG_SeriesDescription, VR('L', 'O'), 0, text}};
    const CodecPixels form = form_of("1.2.840.10008.1.2.1", 16);

    memset(text, 'x', LENGTH);
    REQUIRE(
        dicom_encode(&form, one, 2, words, sizeof words, &mem, &file, &count));
    const uint8_t *p = file + data_at(file) + 10;
    EXPECT(!memcmp(p, "\x08\0\x3E\x10UN\0\0\0\0\1\0xx", 14));
    EXPECT_INT(p[12 + LENGTH], ' ');
    arena_release(&mem);
}

/* A file has its elements sorted by tag; the last of two with the same tag. */
TEST(encode_sorts)
{
    static const CodecElement mixed[] = {
        {TAG_Rows, VR_US, 0, "1"},
        {TAG_ReferencedSeriesSequence, VR('S', 'Q'), 0, NULL},
        {TAG_ITEM, 0, 1, NULL},
        {TAG_CodeMeaning, VR('L', 'O'), 1, "m"},
        {TAG_CodeValue, VR('S', 'H'), 1, "v"},
        {TAG_SOPClassUID, VR_UI, 0, "1.2"},
        {TAG_Rows, VR_US, 0, "2"},
    };
    static const char want[] = "\x08\0\x16\0UI\4\0"
                               "1.2\0"
                               "\x08\0\x15\x11SQ\0\0\x1C\0\0\0"
                               "\xFE\xFF\0\xE0\x14\0\0\0"
                               "\x08\0\0\1SH\2\0v "
                               "\x08\0\4\1LO\2\0m "
                               "\x28\0\x10\0US\2\0\2";
    Arena mem = {0};
    uint8_t *file;
    size_t count;
    const CodecPixels form = form_of("1.2.840.10008.1.2.1", 16);

    REQUIRE(dicom_encode(&form, mixed, sizeof mixed / sizeof *mixed, words,
                         sizeof words, &mem, &file, &count));
    EXPECT(!memcmp(file + data_at(file), want, sizeof want));
    arena_release(&mem);
}

TEST(encode_refuses)
{
    static const struct {
        uint16_t vr;
        const char *value, *want;
    } rows[] = {
        {VR_US, "65536", "Rows (0028,0010) with VR US cannot hold \"65536\""},
        {VR_US, "-1", "cannot hold \"-1\""},
        {VR_US, "1\\", NULL},
        {VR_US, "1x", "cannot hold \"1x\""},
        {VR('S', 'S'), "-32768\\32767", NULL},
        {VR('S', 'S'), "32768", "cannot hold"},
        {VR('U', 'L'), "4294967295", NULL},
        {VR('U', 'L'), "4294967296", "cannot hold"},
        {VR('S', 'L'), "-2147483649", "cannot hold"},
        {VR('A', 'T'), "0028,0010", "cannot hold"},
        {VR('A', 'T'), "(0028,0010", "cannot hold"},
        {VR('F', 'D'), "1.5", "with VR FD cannot hold \"1.5\""},
    };
    const CodecPixels form = form_of("1.2.840.10008.1.2.1", 16);

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const CodecElement one = {TAG_Rows, rows[i].vr, 0, rows[i].value};
        Arena mem = {0};
        uint8_t *file;
        size_t count;
        const bool ok = dicom_encode(&form, &one, 1, words, sizeof words, &mem,
                                     &file, &count);
        EXPECT(ok == !rows[i].want);
        if (!ok && rows[i].want) EXPECT(strstr(err_text(), rows[i].want));
        arena_release(&mem);
    }
    EXPECT(!dicom_encodes("1.2.840.10008.1.2.5")); // RLE
    EXPECT(!dicom_encodes("1.2.3"));
}
