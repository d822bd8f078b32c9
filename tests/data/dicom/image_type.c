/* image_type.c -- files with the position of a slice that are not slices:
 * refused files, noted files, and similar files that are ordinary slices. */
#include "data/dicom/tag.h"
#include "tests/support/dicom_make.h"
#include "tests/support/dicom_series.h"

static void set_type(KitFile *f, const char *type)
{
    kit_set_text(f, TAG_ImageType, type);
}

// inserts a private US of group 0019, after this creator
static void put_0019(KitFile *f, const char *creator, int value)
{
    const uint8_t n[2] = {(uint8_t)value, (uint8_t)(value >> 8)};
    kit_insert(f, TAG_StudyInstanceUID, 0x00190010, "LO", creator,
               strlen(creator));
    kit_insert(f, TAG_StudyInstanceUID, 0x0019100A, "US", n, 2);
}

static void mosaic(KitFile *f, int n)
{
    (void)n;
    set_type(f, "ORIGINAL\\PRIMARY\\M\\ND\\MOSAIC");
    put_0019(f, "SIEMENS MR HEADER ", 9);
}

static void stitch_by_count(KitFile *f, int n)
{
    (void)n;
    put_0019(f, "SIEMENS MR HEADER ", 36);
}

static void stitch_by_word(KitFile *f, int n)
{
    (void)n;
    set_type(f, "DERIVED\\PRIMARY\\DIFFUSION\\ADC\\MOSAIC");
}

static void vframe(KitFile *f, int n)
{
    (void)n;
    set_type(f, "ORIGINAL\\PRIMARY\\M\\VFRAME");
    kit_set_text(f, TAG_Manufacturer, "UIH");
    kit_insert(f, TAG_PixelData, 0x00650010, "LO", "Image Private Header", 20);
    kit_insert(f, TAG_PixelData, 0x00651050, "DS", "24", 2);
}

static void screen(KitFile *f, int n)
{
    (void)n;
    set_type(f, "DERIVED\\SECONDARY\\SCREEN SAVE");
}

static void localizer(KitFile *f, int n)
{
    set_type(f, "ORIGINAL\\PRIMARY\\LOCALIZER");
    kit_set_text(f, TAG_Modality, "CT");
    kit_insert(f, TAG_PixelData, TAG_RescaleIntercept, "DS", "0 ", 2);
    kit_set_text(f, TAG_ImageOrientationPatient, "1\\0\\0\\0\\0\\-1");
    char place[32];
    snprintf(place, sizeof place, "0\\%d\\0", 3 * n);
    kit_set_text(f, TAG_ImagePositionPatient, place);
}

static void radiograph(KitFile *f, int n)
{
    (void)n;
    kit_set_text(f, TAG_Modality, "DX");
    kit_set_text(f, TAG_SOPClassUID, "1.2.840.10008.5.1.4.1.1.1.1");
}

static void mip(KitFile *f, int n)
{
    (void)n;
    set_type(f, "DERIVED\\SECONDARY\\PROJECTION IMAGE");
}

#define LEAVE                                                                 \
    " [tag (0008,0008) ImageType]; fix: leave it out; as a picture: dcm2pnm " \
    "+on2 (JPEG: dcmj2pnm +on2) makes a PNG of it, which data.images reads"
#define CONVERT                                                             \
    " [tag (0008,0008) ImageType]; fix: convert the series with dcm2niix, " \
    "then data.nifti"

TEST(dicom_image_type_refuses_what_is_no_slice)
{
    static const KitRow rows[] = {
        {0,
         FILE_LOAD,
         true,
         mosaic,
         "9 slices are tiles of one picture of 7 x 5 pixels: ImageType says "
         "MOSAIC" CONVERT,
         0,
         {0}},
        {0,
         FILE_LOAD,
         true,
         stitch_by_count,
         "36 slices are tiles of one picture of 7 x 5 pixels" CONVERT,
         0,
         {0}},
        {0,
         FILE_LOAD,
         true,
         stitch_by_word,
         "several slices are tiles of one picture of 7 x 5 pixels: ImageType "
         "says MOSAIC" CONVERT,
         0,
         {0}},
        {0,
         FILE_LOAD,
         true,
         vframe,
         "24 slices are tiles of one picture of 7 x 5 pixels: ImageType says "
         "VFRAME" CONVERT,
         0,
         {0}},
        {0,
         FILE_LOAD,
         true,
         screen,
         "a picture of a screen, not a slice: ImageType says SCREEN SAVE" LEAVE,
         0,
         {0}},
        {0,
         NOTE,
         true,
         localizer,
         "LOCALIZER: a projection, not a slice [tag (0008,0008) ImageType]",
         0,
         {0}},
        {0,
         NOTE,
         true,
         radiograph,
         "a radiograph (DX): a projection, not a slice [tag (0008,0016) "
         "SOPClassUID]",
         0,
         {0}},
        {0,
         NOTE,
         true,
         mip,
         "PROJECTION IMAGE: each slice is a projection of several [tag "
         "(0008,0008) ImageType]",
         0,
         {0}},
    };
    kit_defects(rows, sizeof rows / sizeof *rows);
}

// ---- similar but ordinary slices --------------------------------------------

static void one_tile(KitFile *f, int n)
{
    (void)n;
    set_type(f, "ORIGINAL\\PRIMARY\\M\\ND\\MOSAIC");
    put_0019(f, "SIEMENS MR HEADER ", 1);
}

static void sampled_so(KitFile *f, int n)
{
    (void)n;
    set_type(f, "ORIGINAL\\PRIMARY\\M\\ND\\MOSAIC");
    kit_insert(f, TAG_PatientPosition, 0x00181310, "US", "\x07\0\0\0\0\0\x05\0",
               8);
}

// tiles that were split, with the count of their mosaic
static void parted(KitFile *f, int n)
{
    sampled_so(f, n);
    put_0019(f, "SIEMENS MR HEADER ", 9);
}

// the same number of another vendor is another element
static void other_creator(KitFile *f, int n)
{
    (void)n;
    put_0019(f, "GEMS_ACQU_01", 9);
}

static void axial_localizer(KitFile *f, int n)
{
    (void)n;
    set_type(f, "ORIGINAL\\PRIMARY\\LOCALIZER");
    kit_set_text(f, TAG_Modality, "CT");
    kit_insert(f, TAG_PixelData, TAG_RescaleIntercept, "DS", "0 ", 2);
}

// the default of ITK
static void capture(KitFile *f, int n)
{
    (void)n;
    set_type(f, "DERIVED\\SECONDARY");
    kit_set_text(f, TAG_SOPClassUID, "1.2.840.10008.5.1.4.1.1.7");
    kit_set_text(f, TAG_Modality, "OT");
}

static void reformatted(KitFile *f, int n)
{
    (void)n;
    set_type(f, "DERIVED\\SECONDARY\\REFORMATTED\\AVERAGE");
}

static void mr_localizer(KitFile *f, int n)
{
    (void)n;
    set_type(f, "ORIGINAL\\PRIMARY\\LOCALIZER");
    kit_set_text(f, TAG_ImageOrientationPatient, "1\\0\\0\\0\\0\\-1");
    char place[32];
    snprintf(place, sizeof place, "0\\%d\\0", 3 * n);
    kit_set_text(f, TAG_ImagePositionPatient, place);
}

TEST(dicom_image_type_takes_ordinary_slices)
{
    static void (*const edits[])(KitFile *, int) = {
        one_tile,        sampled_so, parted,      other_creator,
        axial_localizer, capture,    reformatted, mr_localizer};

    for (size_t i = 0; i < sizeof edits / sizeof *edits; i++) {
        const KitRow row = {.all = true, .edit = edits[i]};
        char name[40];
        Arena a = {0};
        Volume got = {.unit = UNIT_NONE};
        DicomNotes notes = {0};
        snprintf(name, sizeof name, "slice_kind%zu", i);
        const char *folder = kit_damage(&row, name);
        if (!dicom_load(kit_series(&a, folder), NULL, &got, &notes))
            test_failed(__FILE__, __LINE__, "edit %zu: %s", i, err_text());
        for (const DicomNote *n = notes.first; n; n = n->next)
            test_failed(__FILE__, __LINE__, "edit %zu: %s", i, n->text);
        dicom_notes_free(&notes);
        volume_free(&got);
        arena_release(&a);
    }
}

TEST(dicom_image_type_of_frames_may_say_mosaic)
{
    Arena a = {0};
    Volume v, got;
    char path[600];
    KitFile f;

    snprintf(path, sizeof path, "%s/multi.dcm", kit_folder("frames_mosaic"));
    kit_volume(&v, 5, 3, 4, false);
    make_multi(&(MadeMulti){.v = &v}, path);
    REQUIRE(kit_read(path, &f));
    kit_insert(&f, TAG_SOPClassUID, TAG_ImageType, "CS",
               "ORIGINAL\\PRIMARY\\M\\MOSAIC ", 26);
    REQUIRE(kit_save(&f));
    REQUIRE(dicom_load(kit_series(&a, path), NULL, &got, NULL));
    EXPECT(!memcmp(v.voxels.data, got.voxels.data, tensor_bytes(&v.voxels)));
    volume_free(&v);
    volume_free(&got);
    arena_release(&a);
}

// ---- radiographs, films and pictures ----------------------------------------

static const char *wanted_modality, *wanted_pointer;

static void unoriented(KitFile *f, int n)
{
    (void)n;
    kit_set_text(f, TAG_Modality, wanted_modality);
    kit_delete(f, TAG_ImageOrientationPatient);
    kit_delete(f, TAG_ImagePositionPatient);
}

// the rows of a slice as frames of one row
static void film(KitFile *f, int n)
{
    (void)n;
    kit_set_text(f, TAG_Modality, wanted_modality);
    kit_set_u16(f, TAG_Rows, 1);
    kit_insert(f, TAG_Rows, TAG_NumberOfFrames, "IS", "5 ", 2);
    if (wanted_pointer)
        kit_insert(f, TAG_Rows, TAG_FrameIncrementPointer, "AT", wanted_pointer,
                   4);
}

static void expect_text(void (*edit)(KitFile *, int), const char *modality,
                        const char *text)
{
    const KitRow row = {.edit = edit, .all = true};
    char name[40];
    Arena a = {0};
    Volume got;
    wanted_modality = modality;
    snprintf(name, sizeof name, "no_slice_%s", modality);
    const char *folder = kit_damage(&row, name);
    char file[600];
    snprintf(file, sizeof file, "%s/IM0001.dcm", folder);
    EXPECT_FAIL(dicom_load(kit_series(&a, file), NULL, &got, NULL), text);
    arena_release(&a);
}

TEST(dicom_image_type_names_the_way_for_pictures)
{
#define PICTURE                                                                \
    ", which is not read as a volume [tag (0020,0037) "                        \
    "ImageOrientationPatient]; fix: dcm2pnm +on2 (JPEG: dcmj2pnm +on2) makes " \
    "a PNG of it, which data.images reads"
    expect_text(unoriented, "CR",
                "ImageOrientationPatient missing: a projection (CR)" PICTURE);
    expect_text(unoriented, "MG",
                "ImageOrientationPatient missing: a projection (MG)" PICTURE);
    expect_text(unoriented, "US",
                "ImageOrientationPatient missing: a picture (US)" PICTURE);
    wanted_pointer = "\x18\0\x63\x10";
    expect_text(film, "XA",
                "5 frames in time (XA), not slices of a volume "
                "[tag (0028,0009) FrameIncrementPointer]; fix: "
                "dcm2pnm +Fa +on2 makes a PNG of each frame");
    wanted_pointer = "\x54\0\x80\0";
    expect_text(film, "NM",
                "5 frames of NM, whose slices are not placed by "
                "frame [tag (0028,0009) FrameIncrementPointer]; "
                "fix: save it as NIfTI");
    wanted_pointer = NULL;
    expect_text(film, "ES",
                "5 frames without a position: ES is a picture, not "
                "read as a volume");
}

static void at_detector(KitFile *f, int n)
{
    (void)n;
    kit_delete(f, TAG_PixelSpacing);
    kit_insert(f, TAG_PatientPosition, 0x00181164, "DS", "0.2\\0.2 ", 8);
}

TEST(dicom_image_type_spacing_of_the_detector_is_not_taken)
{
    expect_text(at_detector, "DX",
                "PixelSpacing missing, 0, negative or NaN; ImagerPixelSpacing "
                "is that of the detector, not of the patient [tag (0028,0030) "
                "PixelSpacing]; fix: dcmodify -i");
}
