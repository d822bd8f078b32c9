/* defects_image.c -- every kind of damage has its own error text: images.
 *
 * Rows 31 to 72 of tests/shell/defects.csv: pixels, rescaling, the geometry of
 * series; see defects.c. */
#include "data/dicom/parse.h"
#include "tests/support/dicom_series.h"

// ---- pixels -----------------------------------------------------------------

#define SETS(name, tag, value)            \
    static void name(KitFile *f, int n)   \
    {                                     \
        (void)n;                          \
        kit_set_u16(f, TAG_##tag, value); \
    }
SETS(rows_0, Rows, 0)
SETS(rows_7, Rows, 7)
SETS(allocated_12, BitsAllocated, 12)
SETS(stored_17, BitsStored, 17)
SETS(high_16, HighBit, 16)
SETS(high_15, HighBit, 15)
SETS(sign_2, PixelRepresentation, 2)
SETS(samples_3, SamplesPerPixel, 3)

#define WRITES(name, tag, value)           \
    static void name(KitFile *f, int n)    \
    {                                      \
        (void)n;                           \
        kit_set_text(f, TAG_##tag, value); \
    }
WRITES(palette, PhotometricInterpretation, "PALETTE COLOR")
WRITES(no_photometric, PhotometricInterpretation, "ARGB")
WRITES(text_position, ImagePositionPatient, "1\\2\\x")
WRITES(two_positions, ImagePositionPatient, "1\\2")
WRITES(is_ct, Modality, "CT")
WRITES(zero_spacing, PixelSpacing, "0\\1")
WRITES(nan_spacing, PixelSpacing, "NaN\\1")
WRITES(other_spacing, PixelSpacing, "2\\1.5")
WRITES(skewed, ImageOrientationPatient, "1\\0\\0\\0.6\\0.8\\0")
WRITES(coronal, ImageOrientationPatient, "1\\0\\0\\0\\0\\-1")
WRITES(same_place, ImagePositionPatient, "-5\\7\\11")
WRITES(uneven, ImagePositionPatient, "-5\\7\\14.1")
WRITES(shifted, ImagePositionPatient, "-4.5\\7\\14")
WRITES(thick, SliceThickness, "4")

#define DELETES(name, tag)              \
    static void name(KitFile *f, int n) \
    {                                   \
        (void)n;                        \
        kit_delete(f, TAG_##tag);       \
    }
DELETES(no_position, ImagePositionPatient)
DELETES(no_orientation, ImageOrientationPatient)
DELETES(no_spacing, PixelSpacing)

static void frames_text(KitFile *f, int n)
{
    (void)n;
    kit_insert(f, TAG_Rows, TAG_NumberOfFrames, "IS", "many", 4);
}

static void two_pixels(KitFile *f, int n)
{
    (void)n;
    uint8_t copy[200];
    size_t at = kit_find(f, TAG_PixelData), size = f->size - at;
    REQUIRE(size < sizeof copy);
    memcpy(copy, f->bytes + at, size);
    kit_splice(f, at, 0, copy, size);
}

static void put_slope(KitFile *f, const char *slope)
{
    kit_insert(f, TAG_PixelData, TAG_RescaleIntercept, "DS", "0 ", 2);
    kit_insert(f, TAG_PixelData, TAG_RescaleSlope, "DS", slope, strlen(slope));
}

static void slope_0(KitFile *f, int n)
{
    (void)n;
    put_slope(f, "0 ");
}

static void slope_nan(KitFile *f, int n)
{
    (void)n;
    put_slope(f, "NaN ");
}

static void slope_text(KitFile *f, int n)
{
    (void)n;
    put_slope(f, "1,25");
}

static void slope_each(KitFile *f, int n)
{
    put_slope(f, n == 2 ? "2 " : "1 ");
}

static void table(KitFile *f, int n)
{
    (void)n;
    static const uint8_t lut[] = {0x28, 0, 0, 0x30, 'S', 'Q', 0, 0, 0, 0, 0, 0};
    kit_splice(f, kit_find(f, TAG_PixelData), 0, lut, sizeof lut);
}

static void constant(KitFile *f, int n)
{
    (void)n;
    size_t at = kit_find(f, TAG_PixelData) + 12;
    memset(f->bytes + at, 3, f->size - at);
}

static void other_rows(KitFile *f, int n)
{
    (void)n;
    kit_set_u16(f, TAG_Rows, 7);
    kit_set_u16(f, TAG_Columns, 5);
}

static void tilt(KitFile *f, int n)
{
    char text[64];
    snprintf(text, sizeof text, "-5\\%g\\%d", 7 + 0.3 * (n - 1),
             11 + 3 * (n - 1));
    kit_set_text(f, TAG_ImagePositionPatient, text);
}

static void lose_second(KitFile *f, int n)
{
    (void)n;
    // as if it were slice 5: a gap at 2
    kit_set_text(f, TAG_ImagePositionPatient, "-5\\7\\23");
}

// read row by row
// clang-format off
static const KitRow rows[] = {
    {31, FILE_LOAD, true, rows_0,
     "Rows or Columns is 0 [tag (0028,0010) Rows]", 0, {0}},
    {32, FILE_LOAD, true, NULL,
     "5 x 7 x 1 x 1 does not fit (limit 34 voxels) [tag (0028,0010) Rows]",
     0, {.max_voxels = 34}},
    {32, FOLDER_LOAD, true, NULL,
     "5 x 7 x 4 x 1 does not fit (limit 139 voxels) [tag (0028,0010) Rows]",
     0, {.max_voxels = 139}},
    {33, FILE_LOAD, false, allocated_12,
     "BitsAllocated 12, need 8, 16 or 32 [tag (0028,0100) BitsAllocated]",
     0, {0}},
    {34, FILE_LOAD, false, stored_17,
     "BitsStored 17 > BitsAllocated 16 [tag (0028,0101) BitsStored]", 0, {0}},
    {35, FILE_LOAD, false, high_16,
     "HighBit 16 >= BitsAllocated 16 [tag (0028,0102) HighBit]", 0, {0}},
    {36, FILE_LOAD, false, high_15,
     "HighBit 15, need BitsStored - 1 [tag (0028,0102) HighBit]", 0, {0}},
    {37, FILE_LOAD, false, sign_2,
     "PixelRepresentation 2, need 0 or 1 [tag (0028,0103) "
     "PixelRepresentation]", 0, {0}},
    {39, FILE_LOAD, false, samples_3,
     "colour is not read from DICOM: 3 samples per pixel (MONOCHROME2) [tag "
     "(0028,0002) SamplesPerPixel]; fix: dcm2pnm +on (JPEG: dcmj2pnm +on) "
     "makes a PNG of it, which data.images reads",
     0, {0}},
    {40, FILE_LOAD, false, palette,
     "colour is not read from DICOM: photometric PALETTE COLOR [tag "
     "(0028,0004) PhotometricInterpretation]; fix: dcm2pnm +on (JPEG: "
     "dcmj2pnm +on) makes a PNG of it, which data.images reads", 0, {0}},
    {40, FILE_LOAD, false, no_photometric,
     "photometric ARGB not supported [tag (0028,0004) "
     "PhotometricInterpretation]", 0, {0}},
    {42, FILE_LOAD, true, rows_7,
     "pixel data has 70 bytes, need 98 [tag (7fe0,0010) PixelData]", 0, {0}},
    {44, FILE_LOAD, false, frames_text,
     "NumberOfFrames \"many\" is not a number from 1 to 16777216 [tag "
     "(0028,0008) NumberOfFrames]", 0, {0}},
    {45, FILE_LOAD, false, two_pixels,
     "two PixelData elements [tag (7fe0,0010) PixelData]", 0, {0}},
    {46, FILE_LOAD, false, slope_0,
     "RescaleSlope is 0 [tag (0028,1053) RescaleSlope]", 0, {0}},
    {46, FILE_LOAD, false, slope_nan,
     "RescaleSlope is NaN [tag (0028,1053) RescaleSlope]", 0, {0}},
    {46, FILE_LOAD, false, slope_text,
     "RescaleSlope is 1,25 [tag (0028,1053) RescaleSlope]", 0, {0}},
    {47, NOTE, true, slope_each,
     "slope differs between slices, applied per slice [tag (0028,1053) "
     "RescaleSlope]", 0, {0}},
    {48, FILE_LOAD, false, table,
     "Modality LUT is not linear [tag (0028,3000) ModalityLUTSequence]",
     0, {0}},
    {49, FILE_LOAD, true, is_ct,
     "CT without RescaleIntercept [tag (0028,1052) RescaleIntercept]; fix: "
     "assume_hu = true", 0, {0}},
    {50, FOLDER_LOAD, true, constant,
     "all 140 voxels are 771 [tag (7fe0,0010) PixelData]", 0, {0}},
    {51, FOLDER_LOAD, false, no_position,
     "ImagePositionPatient missing in 1 of 4 files [tag (0020,0032) "
     "ImagePositionPatient]", 0, {0}},
    {52, FILE_LOAD, false, no_orientation,
     "ImageOrientationPatient missing [tag (0020,0037) "
     "ImageOrientationPatient]", 0, {0}},
    {53, FILE_LOAD, false, skewed,
     "row and column not unit and orthogonal (dot 0.6) [tag (0020,0037) "
     "ImageOrientationPatient]", 0, {0}},
    {54, FOLDER_LOAD, false, coronal,
     "2 orientations in one series (localizer?): IM0001.dcm, IM0002.dcm [tag "
     "(0020,0037) ImageOrientationPatient]", 0, {0}},
    {55, FOLDER_LOAD, false, same_place,
     "slices IM0001.dcm and IM0002.dcm at one position (11 mm) [tag "
     "(0020,0032) ImagePositionPatient]; fix: keep one of them in the folder", 0, {0}},
    {56, FOLDER_LOAD, false, lose_second,
     "slice missing between IM0001.dcm and IM0003.dcm: gap 6 mm, median 3 mm "
     "[tag (0020,0032) ImagePositionPatient]; fix: find the slices; a gap is "
     "never filled", 0, {0}},
    {57, FOLDER_LOAD, false, uneven,
     "spacing varies 2.9 to 3.1 mm: IM0002.dcm is 0.1 mm off the regular grid "
     "of 3 mm (3.3 % of a slice, more than 2 %) [tag (0020,0032) "
     "ImagePositionPatient]; fix: position_tolerance = 0.04 takes the regular "
     "grid, if positions were rounded; else split the series", 0, {0}},
    {58, NOTE, true, thick,
     "SliceThickness 4 differs from spacing 3; spacing used [tag (0018,0050) "
     "SliceThickness]", 0, {0}},
    {59, FILE_LOAD, false, no_spacing,
     "PixelSpacing missing, 0, negative or NaN [tag (0028,0030) PixelSpacing]",
     0, {0}},
    {59, FILE_LOAD, false, zero_spacing,
     "PixelSpacing missing, 0, negative or NaN [tag (0028,0030) PixelSpacing]",
     0, {0}},
    {59, FILE_LOAD, false, nan_spacing,
     "PixelSpacing missing, 0, negative or NaN [tag (0028,0030) PixelSpacing]",
     0, {0}},
    {60, FOLDER_LOAD, false, other_spacing,
     "PixelSpacing differs: IM0001.dcm (2\\1) IM0002.dcm (2\\1.5) [tag "
     "(0028,0030) PixelSpacing]", 0, {0}},
    {61, FOLDER_LOAD, false, other_rows,
     "size differs: IM0001.dcm (5 x 7) IM0002.dcm (7 x 5) [tag (0028,0010) "
     "Rows]", 0, {0}},
    {62, FOLDER_LOAD, true, tilt,
     "tilted stack: shear 5.71 degrees (> 0.5) [tag (0020,0032) "
     "ImagePositionPatient]; fix: resample_tilt = true", 0, {0}},
    {0, FOLDER_LOAD, false, shifted,
     "slice IM0002.dcm shifted in its plane by 0.5 mm (> 10 % of a voxel) "
     "[tag (0020,0032) ImagePositionPatient]", 0, {0}},
    {69, FILE_LOAD, false, text_position,
     "number \"x\" not a decimal string [tag (0020,0032) "
     "ImagePositionPatient]", 0, {0}},
    {70, FILE_LOAD, false, two_positions,
     "2 values, need 3 [tag (0020,0032) ImagePositionPatient]", 0, {0}},
};
// clang-format on

TEST(dicom_defects_of_images_have_exact_words)
{
    kit_defects(rows, sizeof rows / sizeof *rows);
}

// a good series, written with the options `how`, and loaded with this note
static void expect_note(const char *name, const DicomWrite *how,
                        const char *text)
{
    Arena a = {0};
    Volume v, out;
    DicomNotes notes = {0};
    char want[700];
    const char *folder = kit_folder(name);

    kit_volume(&v, KIT_SLICES, KIT_H, KIT_W, false);
    for (int i = 0; how->is_signed && i < KIT_SLICES * KIT_H * KIT_W; i++)
        ((int16_t *)v.voxels.data)[i] -= 2048;
    REQUIRE(dicom_write_series(folder, &v, how));
    REQUIRE(dicom_load(kit_series(&a, folder), NULL, &out, &notes));
    EXPECT(!memcmp(out.voxels.data, v.voxels.data, tensor_bytes(&v.voxels)));
    REQUIRE(notes.count == 1);
    snprintf(want, sizeof want, "%s: dicom: %s", folder, text);
    EXPECT_TEXT(notes.first->text, want);
    EXPECT(!notes.first->warning);
    volume_free(&out);
    volume_free(&v);
    dicom_notes_free(&notes);
    arena_release(&a);
}

TEST(dicom_rows_38_41_and_68_are_conversions)
{
    DicomWrite how = kit_write();
    how.is_signed = true;
    expect_note("defect38", &how,
                "sign extended from 12 bits [tag (0028,0101) BitsStored]");
    how = kit_write(), how.monochrome1 = true;
    expect_note("defect41", &how,
                "MONOCHROME1 inverted [tag (0028,0004) "
                "PhotometricInterpretation]");
    how = kit_write(), how.shuffle = true, how.seed = 8;
    expect_note("defect68", &how,
                "InstanceNumber not in spatial order [tag (0020,0013) "
                "InstanceNumber]");
}

TEST(dicom_defect_43_pad_byte)
{
    Arena a = {0};
    Volume v, out;
    DicomNotes notes = {0};

    kit_volume(&v, 2, 3, 5, false);
    int16_t *p = v.voxels.data;
    for (int i = 0; i < 30; i++) p[i] = (int16_t)i;
    DicomWrite how = kit_write();
    how.bits_stored = 8;
    const char *folder = kit_folder("defect43");
    REQUIRE(dicom_write_series(folder, &v, &how));
    REQUIRE(dicom_load(kit_series(&a, folder), NULL, &out, &notes));
    EXPECT(kit_noted(&notes, "pad byte after an odd number of pixel bytes"));
    EXPECT(!memcmp(out.voxels.data, v.voxels.data, 60));
    volume_free(&out);
    volume_free(&v);
    dicom_notes_free(&notes);
    arena_release(&a);
}

TEST(dicom_defects_63_to_66_of_folders)
{
    Arena a = {0};
    Volume v, out;
    DicomIndex index;
    char want[900];

    kit_volume(&v, 3, 4, 5, false);
    DicomWrite how = kit_write();
    const char *top = kit_folder("defect63");
    REQUIRE(dicom_write_series(kit_folder("defect63/a"), &v, &how));
    how.description = "other";
    REQUIRE(dicom_write_series(kit_folder("defect63/b"), &v, &how));
    REQUIRE(dicom_scan(top, NULL, &a, &index));
    REQUIRE(index.count == 2);
    EXPECT(!dicom_select(&index, NULL));
    snprintf(want, sizeof want,
             "%s: dicom: 2 series in folder: %s (%s), %s (%s) [tag "
             "(0020,000e) SeriesInstanceUID]; fix: series = \"...\"",
             top, index.series[0].series_uid, index.series[0].description,
             index.series[1].series_uid, index.series[1].description);
    EXPECT_TEXT(err_text(), want);
    EXPECT(dicom_select(&index, "other") != NULL);
    EXPECT(dicom_select(&index, "a") != NULL);
    EXPECT(!dicom_select(&index, "c"));
    EXPECT(strstr(err_text(), "no series \"c\" in folder, only: "));

    how.patient_id = "KIT02";
    REQUIRE(dicom_write_series(kit_folder("defect63/c"), &v, &how));
    REQUIRE(dicom_scan(top, NULL, &a, &index));
    EXPECT(!dicom_select(&index, NULL));
    snprintf(want, sizeof want,
             "%s: dicom: 2 patients in folder [tag (0010,0020) PatientID]",
             top);
    EXPECT_TEXT(err_text(), want);

    // the same three positions twice
    const char *times = kit_folder("defect65");
    how.description = "time";
    REQUIRE(dicom_write_series(times, &v, &how));

    for (int i = 1; i <= 3; i++) {
        KitFile f;
        char path[600];
        snprintf(path, sizeof path, "%s/IM%04d.dcm", times, i);
        REQUIRE(kit_read(path, &f));
        snprintf(f.path, sizeof f.path, "%.400s/LATER%04d", times, i);
        snprintf(path, sizeof path, "2.25.%d", i);
        kit_set_text(&f, TAG_SOPInstanceUID, path);
        REQUIRE(kit_save(&f));
    }

    EXPECT_FAIL(dicom_load(kit_series(&a, times), NULL, &out, NULL),
                "2 images at every position [tag (0020,0032) "
                "ImagePositionPatient]; fix: keep one of them in the folder");

    Volume one;
    kit_volume(&one, 1, 4, 5, false);
    const char *single = kit_folder("defect66");
    REQUIRE(dicom_write_series(single, &one, &how));
    DicomOptions deep = {.want_3d = true};
    snprintf(want, sizeof want, "%s: dicom: one slice, recipe needs 3-D",
             single);
    EXPECT(!dicom_load(kit_series(&a, single), &deep, &out, NULL));
    EXPECT_TEXT(err_text(), want);
    REQUIRE(dicom_load(kit_series(&a, single), NULL, &out, NULL));
    EXPECT_NEAR(out.affine[2][2], 3, 1e-12);
    volume_free(&out);
    volume_free(&one);
    volume_free(&v);
    arena_release(&a);
}

TEST(dicom_defect_71_of_segmentations)
{
    Arena a = {0};
    Volume v, mask, out;
    kit_volume(&v, 3, 4, 5, false);
    REQUIRE(volume_new(&mask, v.voxels.dim, U8));
    memcpy(mask.affine, v.affine, sizeof v.affine);
    ((uint8_t *)mask.voxels.data)[30] = 1;
    DicomWrite how = kit_write();
    const char *folder = kit_folder("defect71");
    REQUIRE(dicom_write_series(folder, &v, &how));
    const DicomSeries *image = kit_series(&a, folder);
    char path[600], want[800];
    snprintf(path, sizeof path, "%s/mask.dcm", kit_folder("defect71_seg"));
    const char *names[] = {"tumour"};
    REQUIRE(dicom_write_seg(path, &mask, names, 1, image));
    KitFile f;
    REQUIRE(kit_read(path, &f));
    kit_delete(&f, TAG_PerFrameFunctionalGroupsSequence);
    REQUIRE(kit_save(&f));
    EXPECT(!dicom_load_mask(image, kit_series(&a, path), NULL, &out, NULL));
    snprintf(want, sizeof want,
             "%s: dicom: enhanced multi-frame: per-frame position missing "
             "[tag (5200,9230) PerFrameFunctionalGroupsSequence]",
             path);
    EXPECT_TEXT(err_text(), want);
    volume_free(&v);
    volume_free(&mask);
    arena_release(&a);
}

static void far_away(KitFile *f, int n)
{
    kit_set_text(f, TAG_ImagePositionPatient,
                 n % 2 ? "0\\0\\1e300" : "0\\0\\-1e300");
}

TEST(dicom_positions_beyond_reach_are_refused)
{
    // differences of such numbers are infinite or 0
    const KitRow row = {.all = true,
                        .scope = FILE_LOAD,
                        .edit = far_away,
                        .text = "position 1e+300 mm, need less than 1e+09 "
                                "[tag (0020,0032) ImagePositionPatient]"};
    kit_defects(&row, 1);
}

static void lean(KitFile *f, int n)
{
    // a drift down a column of 0.3 mm per slice; along a row only rounding of
    // text
    char text[80];
    snprintf(text, sizeof text, "%.9f\\%.4f\\%d", -5 + 1e-9 * n, 7 + 0.3 * n,
             11 + 3 * n);
    kit_set_text(f, TAG_ImagePositionPatient, text);
}

TEST(dicom_straightened_stack_gains_no_empty_column)
{
    const KitRow row = {
        .all = true, .edit = lean, .options = {.resample_tilt = true}};
    Arena a = {0};
    Volume out;
    const char *folder = kit_damage(&row, "lean");
    REQUIRE(dicom_load(kit_series(&a, folder), &row.options, &out, NULL));
    EXPECT_INT(out.voxels.dim.h, KIT_H + 1);
    EXPECT_INT(out.voxels.dim.w, KIT_W);
    volume_free(&out);
    arena_release(&a);
}

TEST(dicom_ct_without_intercept_is_read_when_assumed)
{
    const KitRow row = {
        .all = true, .edit = is_ct, .options = {.assume_hu = true}};
    Arena a = {0};
    Volume v, out;
    const char *folder = kit_damage(&row, "assume_hu");

    REQUIRE(dicom_load(kit_series(&a, folder), &row.options, &out, NULL));
    kit_volume(&v, KIT_SLICES, KIT_H, KIT_W, false);
    EXPECT(!memcmp(out.voxels.data, v.voxels.data, tensor_bytes(&v.voxels)));
    EXPECT_INT(out.unit, UNIT_HU);
    volume_free(&out);
    volume_free(&v);
    arena_release(&a);
}

TEST(dicom_tilted_stack_is_straightened_when_asked)
{
    const KitRow row = {
        .all = true, .edit = tilt, .options = {.resample_tilt = true}};
    Arena a = {0};
    Volume v, out;
    const char *folder = kit_damage(&row, "straighten");

    REQUIRE(dicom_load(kit_series(&a, folder), &row.options, &out, NULL));
    kit_volume(&v, KIT_SLICES, KIT_H, KIT_W, false);

    // perpendicular after loading, with one more row for the drift of 0.45 rows
    EXPECT_INT(out.voxels.dim.h, KIT_H + 1);
    EXPECT_NEAR(out.affine[1][2], 0, 1e-12);
    EXPECT_NEAR(out.affine[2][2], 3, 1e-12);
    REQUIRE(out.voxels.type == F32);
    const float *p = out.voxels.data;
    const int16_t *q = v.voxels.data;

    // slice k lies 0.15 k rows further down: row 2 is between its rows 2 and 1
    for (int k = 0; k < KIT_SLICES; k++)
        for (int i = 0; i < KIT_W; i++) {
            const int16_t *s = q + k * KIT_H * KIT_W + i;
            double share = 0.15 * k;
            EXPECT_NEAR(p[(k * (KIT_H + 1) + 2) * KIT_W + i],
                        (1 - share) * s[2 * KIT_W] + share * s[KIT_W], 0.01);
        }

    volume_free(&out);
    volume_free(&v);
    arena_release(&a);
}
