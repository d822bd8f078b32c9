/* defects.c -- every kind of damage has its own error text: files.
 *
 * Rows 1 to 30 of tests/shell/defects.csv: structure and transfer syntax. A
 * good series of four slices is written, IM0002.dcm (or all files) is damaged,
 * and the reason must be exactly "PATH: dicom: TEXT". An accepted anomaly must
 * add exactly this text as a note. */
#include "data/dicom/parse.h"
#include "tests/support/dicom_series.h"
#include <sys/stat.h>

// ---- the file ---------------------------------------------------------------

static void cut(KitFile *f, size_t at)
{
    kit_splice(f, at, f->size - at, NULL, 0);
}

static void empty_file(KitFile *f, int n)
{
    (void)n;
    cut(f, 0);
}

static void no_mark(KitFile *f, int n)
{
    (void)n;
    memset(f->bytes, 'x', 200);
}

static void cut_header(KitFile *f, int n)
{
    (void)n;
    size_t at = kit_find(f, TAG_PixelData);
    cut(f, at + 4);
    snprintf(kit_made_text, sizeof kit_made_text,
             "file ends inside an element header at byte %zu", at);
}

static void cut_pixels(KitFile *f, int n)
{
    (void)n;
    size_t at = kit_find(f, TAG_PixelData);
    cut(f, at + 12 + 20);
    snprintf(kit_made_text, sizeof kit_made_text,
             "element says 70 bytes, only 20 left at byte %zu "
             "[tag (7fe0,0010) PixelData]",
             at);
}

static void odd_length(KitFile *f, int n)
{
    (void)n;
    size_t at = kit_find(f, TAG_PatientID);
    f->bytes[at + 6] = 5;
    kit_splice(f, at + 13, 1, NULL, 0);
}

static const uint8_t open_sequence[] = {
    0x08, 0,    0x40, 0x11, 'S', 'Q',  0,    0,    0xFF, 0xFF,
    0xFF, 0xFF, 0xFE, 0xFF, 0,   0xE0, 0xFF, 0xFF, 0xFF, 0xFF};

static void unclosed(KitFile *f, int n)
{
    (void)n;
    size_t at = kit_find(f, TAG_PatientName);
    cut(f, at);
    kit_splice(f, at, 0, open_sequence, sizeof open_sequence);
}

static void deep(KitFile *f, int n)
{
    (void)n;
    size_t at = kit_find(f, TAG_PatientName);
    for (int i = 0; i < 65; i++)
        kit_splice(f, at, 0, open_sequence, sizeof open_sequence);
}

static void stray_delimiter(KitFile *f, int n)
{
    (void)n;
    static const uint8_t end[] = {0xFE, 0xFF, 0x0D, 0xE0, 0, 0, 0, 0};
    size_t at = kit_find(f, TAG_PatientName);
    kit_splice(f, at, 0, end, sizeof end);
    snprintf(kit_made_text, sizeof kit_made_text,
             "item delimiter without item at byte %zu", at);
}

static void trailing(KitFile *f, int n)
{
    (void)n;
    kit_splice(f, f->size, 0, "bytes", 5);
}

static void group_length(KitFile *f, int n)
{
    (void)n;
    kit_insert(f, TAG_PatientName, 0x00100000, "UL", "\x09\0\0\0", 4);
}

static void twice(KitFile *f, int n)
{
    (void)n;
    kit_insert(f, TAG_PatientBirthDate, TAG_PatientID, "LO", "KIT01 ", 6);
}

static void out_of_order(KitFile *f, int n)
{
    (void)n;
    kit_insert(f, TAG_PatientID, 0x00080080, "LO", "Home", 4);
}

static void wrong_vr(KitFile *f, int n)
{
    (void)n;
    f->bytes[kit_find(f, TAG_Rows) + 5] = 'L';
}

static void report(KitFile *f, int n)
{
    (void)n;
    kit_set_text(f, TAG_SOPClassUID, "1.2.840.10008.5.1.4.1.1.481.5");
    cut(f, kit_find(f, TAG_PixelData));
}

static void directory(KitFile *f, int n)
{
    (void)n;
    static const uint8_t records[] = {4, 0, 0x20, 0x12, 'S', 'Q',
                                      0, 0, 0,    0,    0,   0};
    size_t at = kit_find(f, TAG_SpecificCharacterSet);
    kit_splice(f, at, 0, records, sizeof records);
}

static void strange_digits(KitFile *f, int n)
{
    (void)n;
    kit_set(f, TAG_SliceThickness, "3\xC3\xA9", 3);
}

static void crowded(KitFile *f, int n)
{
    (void)n;
    enum { MANY = 100000 };
    uint8_t *many = mem_alloc(MANY * 8);
    REQUIRE(many);
    for (int i = 0; i < MANY; i++) {
        uint8_t *p = many + i * 8;
        p[0] = 0x29, p[1] = (uint8_t)(i >> 16), p[2] = (uint8_t)i;
        p[3] = (uint8_t)(i >> 8), p[4] = 'L', p[5] = 'O';
    }

    size_t at = kit_find(f, TAG_PixelData);
    kit_splice(f, at, 0, many, MANY * 8);
    mem_free(many);
}

// ---- transfer syntax --------------------------------------------------------

// the first occurrence of these bytes in the file
static size_t find_bytes(const KitFile *f, const void *what, size_t n)
{
    for (size_t i = 0; i + n <= f->size; i++)
        if (!memcmp(f->bytes + i, what, n)) return i;
    REQUIRE(!"the bytes are there");
    return 0;
}

static void jpeg_2000(KitFile *f, int n)
{
    (void)n;
    size_t at = find_bytes(f, "1.2.840.10008.1.2.1", 20);
    f->bytes[at - 2] = 22;
    kit_splice(f, at, 20, "1.2.840.10008.1.2.4.90", 22);
}

static void no_meta(KitFile *f, int n)
{
    (void)n;
    kit_splice(f, 0, kit_find(f, TAG_SpecificCharacterSet), NULL, 0);
}

static void cut_deflated(KitFile *f, int n)
{
    (void)n;
    cut(f, f->size - 30);
    snprintf(kit_made_text, sizeof kit_made_text,
             "deflated data set is damaged at byte %zu", f->size);
}

// offset of the first fragment's item, after the offset table
static size_t fragment(const KitFile *f)
{
    size_t table = kit_find(f, TAG_PixelData) + 12;
    return table + 8 + f->bytes[table + 4];
}

static void no_fragment(KitFile *f, int n)
{
    (void)n;
    size_t at = fragment(f);
    kit_splice(f, at, f->size - 8 - at, NULL, 0);
}

static void two_fragments(KitFile *f, int n)
{
    (void)n;
    uint8_t copy[400];
    size_t at = fragment(f), size = f->size - 8 - at;
    REQUIRE(size < sizeof copy);
    memcpy(copy, f->bytes + at, size);
    kit_splice(f, at, 0, copy, size);
}

static void bad_offset(KitFile *f, int n)
{
    (void)n;
    size_t table = kit_find(f, TAG_PixelData) + 12;
    if (f->bytes[table + 4] == 0) {
        f->bytes[table + 4] = 4;
        kit_splice(f, table + 8, 0, "\4\0\0\0", 4);
    } else {
        f->bytes[table + 8] = 4;
    }
}

static void segments_16(KitFile *f, int n)
{
    (void)n;
    f->bytes[fragment(f) + 8] = 16;
}

static void segment_outside(KitFile *f, int n)
{
    (void)n;
    f->bytes[fragment(f) + 8 + 4] = 32;
}

static void segments_meet(KitFile *f, int n)
{
    (void)n;
    size_t data = fragment(f) + 8;
    memcpy(f->bytes + data + 8, f->bytes + data + 4, 4);
}

static void segment_short(KitFile *f, int n)
{
    (void)n;
    size_t data = fragment(f) + 8;
    memset(f->bytes + data + 64, 128, f->bytes[data + 8] - 64u);
}

static void jpeg_size(KitFile *f, int n)
{
    (void)n;
    size_t at = find_bytes(f, "\xFF\xC3", 2);
    f->bytes[at + 6]++;
}

#define MADE NULL /* the text is kit_made_text */
// read row by row
// clang-format off
static const KitRow rows[] = {
    {1, FILE_SCAN, false, empty_file, "file is empty", 0, {0}},
    {2, FILE_SCAN, false, no_mark,
     "not DICOM: no DICM mark and no readable group 0008", 0, {0}},
    {3, FILE_LOAD, false, cut_header, MADE, 0, {0}},
    {4, FILE_LOAD, false, cut_pixels, MADE, 0, {0}},
    {5, NOTE, true, odd_length,
     "value of odd length, read as it is [tag (0010,0020) PatientID]", 0, {0}},
    {6, FILE_LOAD, false, unclosed,
     "sequence not closed at end of file", 0, {0}},
    {7, FILE_LOAD, false, deep,
     "sequences nested deeper than 64 [tag (0008,1140) "
     "ReferencedImageSequence]", 0, {0}},
    {8, FILE_LOAD, false, stray_delimiter, MADE, 0, {0}},
    {9, NOTE, false, trailing,
     "5 bytes after the last element ignored", 0, {0}},
    {10, NOTE, false, group_length,
     "group length wrong, ignored [tag (0010,0000)]", 0, {0}},
    {11, FILE_LOAD, false, twice,
     "element appears twice [tag (0010,0020) PatientID]", 0, {0}},
    {12, NOTE, false, out_of_order,
     "elements out of order [tag (0008,0080)]", 0, {0}},
    {13, FILE_LOAD, false, wrong_vr,
     "value representation UL, need US [tag (0028,0010) Rows]", 0, {0}},
    {14, FILE_SCAN, false, report,
     "not an image (RT Plan Storage) [tag (0008,0016) SOPClassUID]",
     0, {0}},
    {15, FILE_SCAN, false, directory,
     "DICOMDIR given; pass the folder", 0, {0}},
    {16, FILE_LOAD, false, strange_digits,
     "character set ISO_IR 192 in a number [tag (0018,0050) SliceThickness]",
     0, {0}},
    {17, FILE_LOAD, false, crowded,
     "more than 100000 elements (limit 100000)", 0, {0}},
    {18, FILE_SCAN, false, NULL,
     "file larger than limit 500", 0, {.max_file_bytes = 500}},
    {19, FILE_LOAD, true, jpeg_2000,
     "compression JPEG 2000 lossless (1.2.840.10008.1.2.4.90) not supported "
     "[tag (0002,0010) TransferSyntaxUID]; fix: gdcmconv --raw (dcmdjpeg has no "
     "JPEG 2000)",
     0, {0}},
    {20, FILE_SCAN, false, no_meta,
     "no transfer syntax; assume_implicit_le = true to force [tag "
     "(0002,0010) TransferSyntaxUID]", DICOM_IMPLICIT_LE, {0}},
    {21, FILE_SCAN, false, cut_deflated, MADE, DICOM_DEFLATED, {0}},
    {23, FILE_LOAD, false, no_fragment,
     "pixel fragments missing [tag (7fe0,0010) PixelData]", DICOM_RLE, {0}},
    {24, FILE_LOAD, false, two_fragments,
     "2 fragments for 1 frames [tag (7fe0,0010) PixelData]", DICOM_RLE, {0}},
    {25, FILE_LOAD, false, bad_offset,
     "offset table entry 1 outside pixel data [tag (7fe0,0010) PixelData]",
     DICOM_RLE, {0}},
    {26, FILE_LOAD, false, segments_16,
     "RLE header has 16 segments (1 to 15) [tag (7fe0,0010) PixelData]",
     DICOM_RLE, {0}},
    {27, FILE_LOAD, false, segment_outside,
     "RLE segment 1 offset 32 outside frame [tag (7fe0,0010) PixelData]",
     DICOM_RLE, {0}},
    {27, FILE_LOAD, false, segments_meet,
     "RLE segment 2 offset 64 outside frame [tag (7fe0,0010) PixelData]",
     DICOM_RLE, {0}},
    {28, FILE_LOAD, false, segment_short,
     "RLE segment 1 gives 0 bytes, need 35 [tag (7fe0,0010) PixelData]",
     DICOM_RLE, {0}},
    {29, NOTE, true, NULL,
     "big endian [tag (0002,0010) TransferSyntaxUID]", DICOM_BIG_ENDIAN, {0}},
    {30, FILE_LOAD, false, jpeg_size,
     "JPEG inside DICOM: frame of 6 x 7 x 1, need 5 x 7 x 1 [tag (7fe0,0010) "
     "PixelData]", DICOM_JPEG_LOSSLESS, {0}},
};
// clang-format on

TEST(dicom_defects_of_files_have_exact_words)
{
    if (!dicom_ready()) SKIP("built without DCMTK");
    kit_defects(rows, sizeof rows / sizeof *rows);
}

/* Does scanning the folder fail with "PATH: dicom: file is empty"? */
static bool names_empty(const char *folder, const char *path)
{
    Arena a = {0};
    DicomIndex index;
    char want[700];
    snprintf(want, sizeof want, "%s: dicom: file is empty", path);
    bool ok = dicom_scan(folder, NULL, &a, &index);
    arena_release(&a);
    return !ok && !strcmp(err_text(), want);
}

static void make_empty(const char *path)
{
    FILE *f = fopen(path, "wb");
    REQUIRE(f && !fclose(f));
}

TEST(dicom_empty_file_of_a_series_is_named)
{
    const KitRow row = {.row = 1};
    Arena a = {0};
    DicomIndex index;
    const char *folder = kit_damage(&row, "empty");
    char last[600], bare[600], other[600];

    // the last slice: no gap would show that it is missing
    snprintf(last, sizeof last, "%s/IM0004.dcm", folder);
    make_empty(last);
    EXPECT(names_empty(folder, last));
    REQUIRE(!remove(last));

    // the same for the page of a failed download with such a name
    char want[700];
    FILE *page = fopen(last, "wb");
    REQUIRE(page && fputs("<html>404 not found</html>", page) >= 0);
    REQUIRE(!fclose(page));
    snprintf(want, sizeof want, "%s: dicom: not DICOM: no DICM mark", last);
    EXPECT_FAIL(dicom_scan(folder, NULL, &a, &index), want);
    EXPECT_INT(err_kind(), ERR_DATA);
    REQUIRE(!remove(last));

    // not named like the images in the folder: left out with a note; files with
    // other extensions and hidden files are never noted
    snprintf(bare, sizeof bare, "%s/1.2.840.113619", folder);
    make_empty(bare);
    REQUIRE(dicom_scan(folder, NULL, &a, &index));
    EXPECT_INT(index.left_outs, 1);
    EXPECT_INT(index.left_out[0].kind, DICOM_LEFT_FOREIGN);
    snprintf(want, sizeof want, "%s: dicom: file is empty", bare);
    EXPECT_TEXT(index.left_out[0].text, want);
    REQUIRE(!remove(bare));
    static const char *const foreign[] = {".lock", "note.txt", "sub/IM0005",
                                          "._IM0001.dcm"};
    snprintf(other, sizeof other, "%s/sub", folder);
    mkdir(other, 0777);
    for (int i = 0; i < 4; i++) {
        snprintf(other, sizeof other, "%s/%s", folder, foreign[i]);
        make_empty(other);
    }
    EXPECT(dicom_scan(folder, NULL, &a, &index));
    EXPECT_INT(index.not_dicom, 4);

    // with skip_damaged, a lost slice is left out, and its series is incomplete
    make_empty(last);
    EXPECT(names_empty(folder, last));
    const DicomOptions lenient = {.skip_damaged = true};
    REQUIRE(dicom_scan(folder, &lenient, &a, &index));
    EXPECT_INT(index.count, 1);
    snprintf(want, sizeof want, "%s: dicom: file is empty", last);
    EXPECT_TEXT(index.series[0].damaged ? index.series[0].damaged : "", want);
    arena_release(&a);
}

// Two series in one folder, and a damaged file that may belong to either: both
// are found, and the file is named once. A slice that is missing inside a
// series is a gap.
TEST(dicom_damaged_file_of_an_unknown_series)
{
    const DicomOptions lenient = {.skip_damaged = true};
    const KitRow row = {.row = 1};
    Arena a = {0};
    DicomIndex index;
    Volume v;
    KitFile f;
    char path[600], to[600], want[800];
    const char *folder = kit_damage(&row, "flat");

    for (int i = 1; i <= 4; i++) {
        snprintf(path, sizeof path, "%s/IM%04d.dcm", folder, i);
        snprintf(to, sizeof to, "%s/IM%04d.dcm", folder, i + 5);
        REQUIRE(kit_read(path, &f));
        snprintf(f.path, sizeof f.path, "%.500s", to);
        kit_set_text(&f, TAG_SeriesInstanceUID, "1.2.3.4");
        REQUIRE(kit_save(&f));
    }

    snprintf(path, sizeof path, "%s/IM0005.dcm", folder);
    make_empty(path);
    REQUIRE(dicom_scan(folder, &lenient, &a, &index));
    REQUIRE(index.count == 2 && index.left_outs == 1);
    EXPECT(!index.series[0].damaged && !index.series[1].damaged);
    snprintf(want, sizeof want,
             "%s: dicom: file is empty; its header does not say which of the "
             "series in this folder lacks it",
             path);
    EXPECT_TEXT(index.left_out[0].text, want);
    for (int i = 0; i < 2; i++) {
        EXPECT(dicom_load(&index.series[i], NULL, &v, NULL));
        volume_free(&v);
    }

    // a lost slice in the middle is reported as a gap
    snprintf(path, sizeof path, "%s/IM0007.dcm", folder);
    make_empty(path);
    REQUIRE(dicom_scan(folder, &lenient, &a, &index));
    REQUIRE(index.count == 2 && index.left_outs == 2);
    const DicomSeries *other = !strcmp(index.series[0].series_uid, "1.2.3.4")
                                   ? &index.series[0]
                                   : &index.series[1];
    EXPECT_FAIL(dicom_load(other, NULL, &v, NULL),
                "spacing varies 3 to 6 mm: IM0008.dcm is");
    arena_release(&a);
}

TEST(dicom_defect_22_inflation_is_bounded)
{
    Volume v;
    kit_volume(&v, 1, 64, 64, false);
    memset(v.voxels.data, 0, 64 * 64 * 2 - 2);
    DicomWrite how = kit_write();
    how.syntax = DICOM_DEFLATED, how.bits_stored = 16;
    const char *folder = kit_folder("defect22");
    REQUIRE(dicom_write_series(folder, &v, &how));
    volume_free(&v);
    char path[600];
    KitFile f;
    snprintf(path, sizeof path, "%s/IM0001.dcm", folder);
    REQUIRE(kit_read(path, &f));

    // exactly the needed size passes, one byte less does not
    for (size_t limit = 16384; limit > 64; limit /= 2) {
        Walk w;
        WalkLimits limits = {.inflated_bytes = limit};
        WalkInput in = {.path = path,
                        .bytes = f.bytes,
                        .have = f.size,
                        .size = f.size,
                        .limits = &limits};
        WalkResult result = walk_file(&in, &w);
        if (limit > 8192) {
            EXPECT_INT(result, WALK_DONE);
        } else {
            char want[700];
            snprintf(want, sizeof want,
                     "%s: dicom: deflated data grows beyond %zu", path, limit);
            EXPECT_INT(result, WALK_DAMAGED);
            EXPECT_TEXT(err_text(), want);
            EXPECT(!w.inflated); // nothing was allocated for refused data
        }
        walk_free(&w);
    }
    mem_free(f.bytes);
}

TEST(dicom_without_syntax_is_read_when_assumed)
{
    const KitRow row = {.all = true,
                        .edit = no_meta,
                        .syntax = DICOM_IMPLICIT_LE,
                        .options = {.assume_implicit_le = true}};
    Arena a = {0};
    Volume v, out;
    DicomIndex index;
    const char *folder = kit_damage(&row, "assume_implicit");

    REQUIRE(dicom_scan(folder, &row.options, &a, &index));
    REQUIRE(dicom_load(index.series, &row.options, &out, NULL));
    kit_volume(&v, KIT_SLICES, KIT_H, KIT_W, false);
    EXPECT(!memcmp(out.voxels.data, v.voxels.data, tensor_bytes(&v.voxels)));
    volume_free(&out);
    volume_free(&v);
    arena_release(&a);
}
