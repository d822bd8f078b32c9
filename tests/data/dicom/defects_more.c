/* defects_more.c -- further error texts than rows 1 to 72 of
 * tests/shell/defects.csv: structure, compressed pixels, and folders with
 * several kinds of files; see defects.c. */
#include "tests/support/dicom_make.h"
#include <sys/stat.h>

// ---- structure --------------------------------------------------------------

// inserts bytes before an element; the error text names the place `after` the
// bytes
static void put(KitFile *f, const void *bytes, size_t n, size_t after,
                const char *text)
{
    size_t at = kit_find(f, TAG_PatientName);
    kit_splice(f, at, 0, bytes, n);
    snprintf(kit_made_text, sizeof kit_made_text, text, at + after);
}

static void no_item(KitFile *f, int n)
{
    (void)n;
    static const uint8_t open[] = {8,    0,    0x40, 0x11, 'S',  'Q', 0,
                                   0,    0xFF, 0xFF, 0xFF, 0xFF, 8,   0,
                                   0x50, 0x11, 'U',  'I',  0,    0};
    put(f, open, sizeof open, 12,
        "element where a sequence needs an item at byte %zu [tag (0008,1150) "
        "ReferencedSOPClassUID]");
}

static void stray_item(KitFile *f, int n)
{
    (void)n;
    static const uint8_t item[] = {0xFE, 0xFF, 0, 0xE0, 0, 0, 0, 0};
    put(f, item, sizeof item, 0, "item outside a sequence at byte %zu");
}

static void endless_text(KitFile *f, int n)
{
    (void)n;
    static const uint8_t text[] = {8, 0, 0x20, 1,    'U',  'R',
                                   0, 0, 0xFF, 0xFF, 0xFF, 0xFF};
    kit_splice(f, kit_find(f, TAG_PatientName), 0, text, sizeof text);
}

static void odd_letters(KitFile *f, int n)
{
    (void)n;
    kit_insert(f, TAG_PatientName, 0x00080081, "ZZ", "ab", 2);
}

static void wide_rows(KitFile *f, int n)
{
    (void)n;
    kit_set(f, TAG_Rows, "\5\0\0\0", 4);
}

static void wide_index(KitFile *f, int n)
{
    (void)n;
    kit_set(f, TAG_Rows, "\5\0\0\0\0\0", 6);
}

// ---- compressed pixels ------------------------------------------------------

static size_t find_bytes(const KitFile *f, const void *what, size_t n)
{
    for (size_t i = 0; i + n <= f->size; i++)
        if (!memcmp(f->bytes + i, what, n)) return i;
    REQUIRE(!"the bytes are there");
    return 0;
}

// the value of the first fragment; its length precedes it
static uint8_t *fragment(const KitFile *f)
{
    size_t table = kit_find(f, TAG_PixelData) + 12;
    return f->bytes + table + 8 + f->bytes[table + 4] + 8;
}

static size_t fragment_bytes(const KitFile *f)
{
    const uint8_t *p = fragment(f);
    return p[-4] | (size_t)p[-3] << 8;
}

static void one_segment(KitFile *f, int n)
{
    (void)n;
    fragment(f)[0] = 1;
}

static void allocated_32(KitFile *f, int n)
{
    (void)n;
    kit_set_u16(f, TAG_BitsAllocated, 32);
}

static void not_compressed(KitFile *f, int n)
{
    (void)n;
    f->bytes[find_bytes(f, "1.2.840.10008.1.2.5", 19) + 18] = '1';
}

static void near_lossless(KitFile *f, int n)
{
    (void)n;
    f->bytes[find_bytes(f, "1.2.840.10008.1.2.4.80", 22) + 21] = '1';
}

static void no_start(KitFile *f, int n)
{
    (void)n;
    fragment(f)[0] = 0;
}

static void no_marker(KitFile *f, int n)
{
    (void)n;
    fragment(f)[2] = 0;
}

static void outside(KitFile *f, int n)
{
    (void)n;
    fragment(f)[4] = 0xFF;
}

static void other_marker(KitFile *f, int n)
{
    (void)n;
    fragment(f)[3] = 0xC9;
}

// a comment up to the end
static void no_scan(KitFile *f, int n)
{
    (void)n;
    uint8_t *p = fragment(f);
    size_t length = fragment_bytes(f) - 4;
    p[3] = 0xFE, p[4] = (uint8_t)(length >> 8), p[5] = (uint8_t)length;
}

static void short_frame(KitFile *f, int n)
{
    (void)n;
    f->bytes[find_bytes(f, "\xFF\xC3", 2) + 3] = 8;
}

static void deep_frame(KitFile *f, int n)
{
    (void)n;
    f->bytes[find_bytes(f, "\xFF\xC3", 2) + 4] = 17;
}

static void no_end(KitFile *f, int n)
{
    (void)n;
    memset(fragment(f) + fragment_bytes(f) - 4, 1, 4);
}

#define PIXELS " [tag (7fe0,0010) PixelData]"
// read row by row
// clang-format off
static const KitRow rows[] = {
    {0, FILE_LOAD, false, no_item, NULL, 0, {0}},
    {0, FILE_LOAD, false, stray_item, NULL, 0, {0}},
    {0, FILE_LOAD, false, endless_text,
     "undefined length in a value of type UR [tag (0008,0120)]", 0, {0}},
    {0, FILE_LOAD, false, odd_letters,
     "value representation ZZ, need one of the standard [tag (0008,0081)]",
     0, {0}},
    {0, FILE_LOAD, false, wide_rows,
     "2 values, need 1 [tag (0028,0010) Rows]", 0, {0}},
    {0, FILE_LOAD, false, wide_index,
     "3 values, need 1 [tag (0028,0010) Rows]", 0, {0}},
    {0, FILE_LOAD, false, one_segment,
     "RLE header has 1 segments, need 2" PIXELS, DICOM_RLE, {0}},
    {0, FILE_LOAD, false, allocated_32,
     "BitsAllocated 32, need 8 or 16 in a JPEG [tag (0028,0100) "
     "BitsAllocated]", DICOM_JPEG_LOSSLESS, {0}},
    {0, FILE_LOAD, false, not_compressed,
     "pixel data in fragments, but transfer syntax explicit little endian"
     PIXELS, DICOM_RLE, {0}},
    {0, NOTE, true, near_lossless,
     "pixels went through lossy JPEG-LS near lossless [tag (0002,0010) "
     "TransferSyntaxUID]", DICOM_JPEG_LS, {0}},
    {0, FILE_LOAD, false, no_start,
     "JPEG inside DICOM: no start of image" PIXELS, DICOM_JPEG_LOSSLESS, {0}},
    {0, FILE_LOAD, false, no_marker,
     "JPEG inside DICOM: marker expected" PIXELS, DICOM_JPEG_LOSSLESS, {0}},
    {0, FILE_LOAD, false, outside,
     "JPEG inside DICOM: marker segment outside the frame" PIXELS,
     DICOM_JPEG_LOSSLESS, {0}},
    {0, FILE_LOAD, false, other_marker,
     "JPEG inside DICOM: marker FFC9 in JPEG lossless" PIXELS,
     DICOM_JPEG_LOSSLESS, {0}},
    {0, FILE_LOAD, false, no_scan,
     "JPEG inside DICOM: no scan" PIXELS, DICOM_JPEG_LOSSLESS, {0}},
    {0, FILE_LOAD, false, short_frame,
     "JPEG inside DICOM: frame header too short" PIXELS, DICOM_JPEG_LOSSLESS,
     {0}},
    {0, FILE_LOAD, false, deep_frame,
     "JPEG inside DICOM: 17 bits in 16 allocated" PIXELS, DICOM_JPEG_LOSSLESS,
     {0}},
    {0, FILE_LOAD, false, no_end,
     "JPEG inside DICOM: no end of image" PIXELS, DICOM_JPEG_LOSSLESS, {0}},
};
// clang-format on

TEST(dicom_defects_beside_the_table_have_exact_words)
{
    if (!dicom_ready()) SKIP("built without DCMTK");
    kit_defects(rows, sizeof rows / sizeof *rows);
}

// ---- folders ----------------------------------------------------------------

TEST(dicom_defects_of_names_and_counts)
{
    Arena a = {0};
    Volume v, out;
    DicomIndex index;
    DicomNotes notes = {0};
    char path[600], want[900];
    // no DICOM file
    const char *empty = kit_folder("more_empty");

    snprintf(path, sizeof path, "%s/note.txt", empty);
    FILE *f = fopen(path, "w");
    REQUIRE(f && !fclose(f));
    snprintf(want, sizeof want,
             "%s: dicom: no DICOM image here (0 DICOM files without pixels, 1 "
             "other files)",
             empty);
    EXPECT(!dicom_scan(empty, NULL, &a, &index));
    EXPECT_TEXT(err_text(), want);

    // two series with one name
    kit_volume(&v, 2, 4, 5, false);
    const char *top = kit_folder("more_twins");
    DicomWrite how = kit_write();
    REQUIRE(dicom_write_series(kit_folder("more_twins/a"), &v, &how));
    how.seed++;
    REQUIRE(dicom_write_series(kit_folder("more_twins/b"), &v, &how));
    REQUIRE(dicom_scan(top, NULL, &a, &index));
    EXPECT(!dicom_select(&index, "image"));
    EXPECT(
        strstr(err_text(), ": dicom: 2 series called \"image\" in folder: "));
    EXPECT(strstr(err_text(), "; fix: series = one of the UIDs"));

    // a series that is not a dose
    snprintf(want, sizeof want,
             "%s: dicom: not a dose (MR Image Storage) [tag (0008,0016) "
             "SOPClassUID]",
             index.series->folder);
    EXPECT(!dicom_load_dose(index.series, NULL, false, NULL, &out, NULL));
    EXPECT_TEXT(err_text(), want);

    // a file that became multi-frame after the scan
    KitFile k;
    REQUIRE(kit_read(index.series->paths[1], &k));
    kit_insert(&k, TAG_Rows, TAG_NumberOfFrames, "IS", "2 ", 2);
    REQUIRE(kit_save(&k));
    snprintf(want, sizeof want,
             "%s: dicom: 2 frames in a series of single slices [tag "
             "(0028,0008) NumberOfFrames]",
             index.series->paths[1]);
    EXPECT(!dicom_load(index.series, NULL, &out, NULL));
    EXPECT_TEXT(err_text(), want);
    volume_free(&v);

    // one slice without SliceThickness
    kit_volume(&v, 1, 4, 5, false);
    const char *thin = kit_folder("more_thin");
    REQUIRE(dicom_write_series(thin, &v, &how));
    snprintf(path, sizeof path, "%s/IM0001.dcm", thin);
    REQUIRE(kit_read(path, &k));
    kit_delete(&k, TAG_SliceThickness);
    REQUIRE(kit_save(&k));
    REQUIRE(dicom_load(kit_series(&a, thin), NULL, &out, &notes));
    EXPECT(kit_noted(&notes, "more_thin: dicom: one slice without thickness: 1 "
                             "mm taken [tag (0018,0050) SliceThickness]"));
    EXPECT_NEAR(out.affine[2][2], 1, 0);
    dicom_notes_free(&notes);
    volume_free(&out);
    volume_free(&v);
    arena_release(&a);
}

// a second file of the series in the same folder as `path`
static void copy_file(const char *path)
{
    KitFile f;
    REQUIRE(kit_read(path, &f));
    strcat(f.path, ".more");
    REQUIRE(kit_save(&f));
}

TEST(dicom_defects_of_objects_that_come_twice)
{
    static const uint8_t seg[] = {0};
    static const struct {
        const char *sop_class, *text;
    } twice[] = {
        {CLASS_SEG, "2 segmentations in one series"},
        {CLASS_STRUCTURE, "2 structure sets in one series"},
        {CLASS_DOSE, "2 dose grids in one series"},
    };
    Arena a = {0};
    Volume v, out;

    kit_volume(&v, 2, 4, 5, false);
    DicomWrite how = kit_write();
    const char *folder = kit_folder("twice_image");
    REQUIRE(dicom_write_series(folder, &v, &how));
    const DicomSeries *image = kit_series(&a, folder);

    for (int i = 0; i < 3; i++) {
        char name[40], path[600], want[700];
        Make m;
        snprintf(name, sizeof name, "twice%d", i);
        snprintf(path, sizeof path, "%s/one", kit_folder(name));
        make_begin(&m, twice[i].sop_class, "2.25.40", image);
        if (i != 1) make_put(&m, TAG_PixelData, seg, 1);
        make_save(&m, path);
        copy_file(path);
        const DicomSeries *s = kit_series(&a, kit_folder(name));
        snprintf(want, sizeof want,
                 "%s: dicom: %s [tag (0020,000e) SeriesInstanceUID]; fix: keep "
                 "one of the files",
                 kit_folder(name), twice[i].text);
        EXPECT(!(i < 2 ? dicom_load_mask(image, s, NULL, &out, NULL)
                       : dicom_load_dose(s, image, false, NULL, &out, NULL)));
        EXPECT_TEXT(err_text(), want);
        if (i == 2) continue;
        DicomSegInfo info;
        EXPECT_FAIL(dicom_seg_info(s, &a, &info),
                    "in one series [tag (0020,000e) SeriesInstanceUID]; fix: "
                    "look at one of the files");
    }

    volume_free(&v);
    arena_release(&a);
}
