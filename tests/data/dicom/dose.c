/* dose.c -- RT dose: values in Gy, planes positioned by both kinds of offsets,
 * and the field "dose" of a data set. */
#include "data/dataset/dataset.h"
#include "tests/support/dicom_damage.h"
#include "tests/support/dicom_make.h"
#include <stdlib.h>

enum { D = 4, H = 6, W = 7, PLANE = H * W };

typedef struct MadeDose {
    const DicomSeries *same_study;
    const double (*affine)[4]; // of the dose; NULL: dose_affine
    const int *order;          // plane of each frame; NULL: in order
    int allocated;             // 32
    bool absolute;             // offsets are z of the patient
    double shift;              // added to the offsets, which is wrong
    const char *units, *type, *summation; // GY, PHYSICAL, PLAN
    double scaling;                       // 1e-4; below 0: not written
    bool no_offsets, no_position, constant, monochrome1;
    int offsets;      // their number; 0: as many as planes
    uint32_t pointer; // FrameIncrementPointer; 0: GridFrameOffsetVector
    double uneven;    // error of the last plane, mm
} MadeDose;

static const double dose_affine[4][4] = {
    {1.5, 0, 0, -4.5}, {0, 2, 0, 7}, {0, 0, 2.5, 12}, {0, 0, 0, 1}};

static uint32_t stored(const MadeDose *how, int plane, int i)
{
    uint32_t v = (uint32_t)(plane * 1009 + i * 37 + 5);
    if (how->constant) v = 7;
    return how->allocated == 16 ? v : v * 70001;
}

static double scaling_of(const MadeDose *how)
{
    return how->scaling > 0 ? how->scaling : 1e-4;
}

static void make_dose(const MadeDose *how, const char *path)
{
    Make m;
    double affine[4][4], mm[3] = {0}, o[6], normal[3], position[3];
    memcpy(affine, how->affine ? how->affine : dose_affine, sizeof affine);
    for (int x = 0; x < 3; x++) {
        for (int a = 0; a < 3; a++) mm[x] += affine[a][x] * affine[a][x];
        mm[x] = sqrt(mm[x]);
    }
    int first = how->order ? how->order[0] : 0;
    for (int a = 0; a < 3; a++) {
        o[a] = affine[a][0] / mm[0], o[3 + a] = affine[a][1] / mm[1];
        position[a] = affine[a][3] + first * affine[a][2];
    }
    for (int a = 0; a < 3; a++)
        normal[a] = o[(a + 1) % 3] * o[3 + (a + 2) % 3] -
                    o[(a + 2) % 3] * o[3 + (a + 1) % 3];
    make_begin(&m, CLASS_DOSE, "2.25.88", how->same_study);
    make_text(&m, TAG_Modality, "RTDOSE");
    make_text(&m, TAG_SeriesDescription, "dose");
    if (!how->no_position)
        make_numbers(&m, TAG_ImagePositionPatient, position, 3);
    make_numbers(&m, TAG_ImageOrientationPatient, o, 6);
    make_text(&m, TAG_PhotometricInterpretation, "MONOCHROME%d",
              how->monochrome1 ? 1 : 2);
    uint32_t to =
        how->pointer ? how->pointer : (uint32_t)TAG_GridFrameOffsetVector;
    const uint8_t pointer[4] = {(uint8_t)(to >> 16), (uint8_t)(to >> 24),
                                (uint8_t)to, (uint8_t)(to >> 8)};
    make_put(&m, TAG_FrameIncrementPointer, pointer, 4);
    int allocated = how->allocated ? how->allocated : 32;
    make_pixels(&m, D, H, W, allocated, allocated, false);
    make_numbers(&m, TAG_PixelSpacing, (double[2]){mm[1], mm[0]}, 2);
    make_text(&m, TAG_DoseUnits, "%s", how->units ? how->units : "GY");
    make_text(&m, TAG_DoseType, "%s", how->type ? how->type : "PHYSICAL");
    make_text(&m, TAG_DoseSummationType, "%s",
              how->summation ? how->summation : "PLAN");
    double offset[D + 1] = {0};

    for (int i = 0; i < D; i++) {
        int plane = how->order ? how->order[i] : i;
        for (int a = 0; a < 3; a++)
            offset[i] += normal[a] * (plane - first) * affine[a][2];
        if (how->absolute) offset[i] = affine[2][3] + plane * affine[2][2];
        offset[i] += how->shift + (i == D - 1 ? how->uneven : 0);
    }

    if (!how->no_offsets)
        make_numbers(&m, TAG_GridFrameOffsetVector, offset,
                     how->offsets ? how->offsets : D);
    double scaling = scaling_of(how);
    if (how->scaling >= 0) make_numbers(&m, TAG_DoseGridScaling, &scaling, 1);
    uint8_t pixels[D * PLANE * 4];
    size_t n = 0;

    for (int i = 0; i < D * PLANE; i++) {
        int plane = how->order ? how->order[i / PLANE] : i / PLANE;
        uint32_t v = stored(how, plane, i % PLANE);
        for (int b = 0; b < allocated / 8; b++)
            pixels[n++] = (uint8_t)(v >> 8 * b);
    }

    make_put(&m, TAG_PixelData, pixels, n);
    make_save(&m, path);
}

static void new_path(const char *name, char path[600])
{
    snprintf(path, 600, "%s/dose.dcm", kit_folder(name));
}

static void expect_dose(const MadeDose *how, const Volume *got)
{
    const double(*affine)[4] = how->affine ? how->affine : dose_affine;
    REQUIRE(got->voxels.type == F32);
    EXPECT_INT(got->unit, UNIT_GY);
    EXPECT_INT(got->voxels.dim.d, D);
    for (int r = 0; r < 3; r++)
        for (int c = 0; c < 4; c++)
            EXPECT_NEAR(got->affine[r][c], affine[r][c], 1e-9);
    for (int i = 0; i < D * PLANE; i++)
        EXPECT_NEAR(
            ((float *)got->voxels.data)[i],
            (float)(stored(how, i / PLANE, i % PLANE) * scaling_of(how)), 0);
}

TEST(dicom_dose_in_gy)
{
    static const int turned[] = {2, 0, 3, 1}, down[] = {3, 2, 1, 0};
    // the planes of a patient in prone position: rows to the right, columns to
    // the front; and sagittal slices
    static const double prone[4][4] = {
        {-1.5, 0, 0, 9}, {0, -2, 0, 8}, {0, 0, 2.5, -60}, {0, 0, 0, 1}};
    static const double feet_first[4][4] = {
        {1.5, 0, 0, 9}, {0, -2, 0, 8}, {0, 0, -2.5, 70}, {0, 0, 0, 1}};
    static const double oblique[4][4] = {
        {1.2, 0, 1.5, 3}, {0, 2, 0, 4}, {-0.9, 0, 2, 5}, {0, 0, 0, 1}};
    static const MadeDose doses[] = {
        {.allocated = 32},
        {.allocated = 16},
        {.order = turned},
        {.order = down, .allocated = 16},
        {.absolute = true},
        {.absolute = true, .order = down},
        {.monochrome1 = true},
        {.affine = prone},
        {.affine = prone, .absolute = true},
        {.affine = feet_first},
        {.affine = feet_first, .absolute = true, .order = turned},
        {.affine = oblique},
        {.affine = oblique, .order = turned, .scaling = 3.0517578125e-05},
    };

    for (size_t i = 0; i < sizeof doses / sizeof *doses; i++) {
        Arena a = {0};
        Volume got;
        DicomNotes notes = {0};
        char path[600], name[40];
        snprintf(name, sizeof name, "dose%zu", i);
        new_path(name, path);
        make_dose(&doses[i], path);
        const DicomSeries *s = kit_series(&a, path);
        EXPECT_INT(s->kind, DICOM_DOSE);
        REQUIRE(dicom_load_dose(s, NULL, false, NULL, &got, &notes));
        expect_dose(&doses[i], &got);
        EXPECT(kit_noted(&notes, "MONOCHROME1 not inverted") ==
               doses[i].monochrome1);
        EXPECT_INT(notes.count,
                   kit_noted(&notes, "out of order") + doses[i].monochrome1);
        // not loaded as an image, even if the folder has no other series
        Volume image;
        EXPECT_FAIL(dicom_load(s, NULL, &image, NULL),
                    "a dose grid, not an image [tag (0008,0016) SOPClassUID]; "
                    "fix: load it as a dose");
        volume_free(&got);
        dicom_notes_free(&notes);
        arena_release(&a);
    }
}

TEST(dicom_dose_defects_have_exact_words)
{
    static const double oblique[4][4] = {
        {1.2, 0, 1.5, 3}, {0, 2, 0, 4}, {-0.9, 0, 2, 5}, {0, 0, 0, 1}};
    static const struct {
        MadeDose how;
        const char *text;
    } rows[] = {
        {{.units = "RELATIVE"},
         "DoseUnits \"RELATIVE\", need GY [tag (3004,0002) DoseUnits]"},
        {{.type = "ERROR"},
         "DoseType ERROR is a difference, not a dose [tag (3004,0004) "
         "DoseType]"},
        {{.scaling = -1},
         "DoseGridScaling missing, 0 or negative [tag (3004,000e) "
         "DoseGridScaling]"},
        {{.no_offsets = true},
         "GridFrameOffsetVector missing [tag (3004,000c) "
         "GridFrameOffsetVector]"},
        {{.offsets = 3},
         "3 values, need 4 [tag (3004,000c) GridFrameOffsetVector]"},
        {{.shift = 5},
         "offsets start with 5, need 0 or the z of the first plane, 12 [tag "
         "(3004,000c) GridFrameOffsetVector]"},
        {{.shift = 2e9},
         "position 2e+09 mm, need less than 1e+09 [tag (3004,000c) "
         "GridFrameOffsetVector]"},
        {{.affine = oblique, .absolute = true},
         "offsets start with 5, need 0 in planes that are not axial [tag "
         "(3004,000c) GridFrameOffsetVector]"},
        {{.uneven = 0.5},
         "spacing varies 2.5 to 3 mm: frame 3 is 0.33 mm off the regular grid "
         "of 2.667 mm (12 % of a slice, more than 2 %) [tag (0020,0032) "
         "ImagePositionPatient]; fix: split the series"},
        {{.pointer = TAG_NumberOfFrames},
         "frames are counted by (0028,0008), need (3004,000c) [tag "
         "(0028,0009) FrameIncrementPointer]"},
        {{.no_position = true},
         "dose without position, orientation or spacing [tag (0020,0032) "
         "ImagePositionPatient]"},
        {{.allocated = 8},
         "BitsAllocated 8, need 16 or 32 in a dose [tag (0028,0100) "
         "BitsAllocated]"},
        {{.constant = true, .allocated = 16},
         "all 168 voxels are 0.0007 [tag (7fe0,0010) PixelData]"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        Arena a = {0};
        Volume got;
        char path[600], name[40], want[900];
        snprintf(name, sizeof name, "dose_defect%zu", i);
        new_path(name, path);
        make_dose(&rows[i].how, path);
        snprintf(want, sizeof want, "%s: dicom: %s", path, rows[i].text);
        EXPECT(!dicom_load_dose(kit_series(&a, path), NULL, false, NULL, &got,
                                NULL));
        EXPECT_TEXT(err_text(), want);
        EXPECT_INT(err_kind(), ERR_DATA);
        arena_release(&a);
    }
}

TEST(dicom_dose_oddities_are_noted)
{
    static const struct {
        MadeDose how;
        const char *text;
    } rows[] = {
        {{.summation = "BEAM"},
         "DoseSummationType is BEAM, not PLAN [tag (3004,000a) "
         "DoseSummationType]"},
        {{.type = "EFFECTIVE"},
         "DoseType is EFFECTIVE [tag (3004,0004) DoseType]"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        Arena a = {0};
        Volume got;
        DicomNotes notes = {0};
        char path[600], name[40];
        snprintf(name, sizeof name, "dose_note%zu", i);
        new_path(name, path);
        make_dose(&rows[i].how, path);
        REQUIRE(dicom_load_dose(kit_series(&a, path), NULL, false, NULL, &got,
                                &notes));
        EXPECT(kit_noted(&notes, rows[i].text));
        dicom_notes_free(&notes);
        volume_free(&got);
        arena_release(&a);
    }
}

// an image and a dose in one folder, on different grids
static const char *write_both(const char *name, const MadeDose *more)
{
    Arena a = {0};
    Volume v;
    char path[600];
    const char *folder = kit_folder(name);

    kit_volume(&v, 5, 6, 7, false);
    DicomWrite how = kit_write();
    REQUIRE(dicom_write_series(folder, &v, &how));
    MadeDose dose = *more;
    dose.same_study = kit_series(&a, folder);
    new_path(name, path);
    make_dose(&dose, path);
    volume_free(&v);
    arena_release(&a);
    return folder;
}

TEST(dicom_dose_is_a_field_of_a_data_set)
{
    Volume image, dose, want;
    Dataset *ds;
    Arena a = {0};
    const char *folder = write_both("dose_set", &(MadeDose){.allocated = 16});
    DatasetDicom how = {.image = {"image"}, .images = 1, .dose = "dose"};

    REQUIRE(dataset_dicom(folder, &how, &ds));
    EXPECT_INT(dataset_field(ds, "dose"), 1);
    EXPECT_INT(ds->field[1].kind, FIELD_VALUE);
    REQUIRE(case_load(ds, 0, 0, NULL, &image, NULL));
    EXPECT_FAIL(case_load(ds, 0, 1, &image, &dose, NULL),
                "dose.dcm: dicom: dose grid 7x6x4, 1.5x2x2.5 mm, axial, axes "
                "LPS, origin (-4.5 7.0 12.0), image grid 7x6x5, 1x2x3 mm, "
                "axial, axes LPS, origin (-5.0 7.0 11.0); they differ in "
                "extents, spacing, origin; fix: resample_dose = "
                "true");

    // resample_mask applies to masks only
    dataset_free(ds);
    how.all.resample_mask = true;
    REQUIRE(dataset_dicom(folder, &how, &ds));
    EXPECT_FAIL(case_load(ds, 0, 1, NULL, &dose, NULL),
                "; fix: resample_dose = true");

    // loaded alone, it keeps its own grid
    char path[600];
    snprintf(path, sizeof path, "%s/dose.dcm", folder);
    REQUIRE(
        dicom_load_dose(kit_series(&a, path), NULL, false, NULL, &want, NULL));
    expect_dose(&(MadeDose){.allocated = 16}, &want);
    dataset_free(ds);
    how.resample_dose = true;
    REQUIRE(dataset_dicom(folder, &how, &ds));
    REQUIRE(case_load(ds, 0, 1, &image, &dose, NULL));
    EXPECT(volume_same_grid(&image, &dose));
    Volume moved;
    Grid grid = volume_grid(&image);
    REQUIRE(volume_resample(&want, &grid, LINEAR, 0, &moved));
    EXPECT(!memcmp(moved.voxels.data, dose.voxels.data,
                   tensor_bytes(&moved.voxels)));

    // a name that no series has; the error lists the existing names
    dataset_free(ds);
    how.dose = "plan";
    EXPECT_FAIL(dataset_dicom(folder, &how, &ds),
                "no study has the dose \"plan\"; there are: ");
    how.dose = "image";
    EXPECT_FAIL(dataset_dicom(folder, &how, &ds), "dose \"image\"");
    volume_free(&moved);
    volume_free(&want);
    volume_free(&dose);
    volume_free(&image);
    arena_release(&a);
}

TEST(dicom_dose_on_the_grid_of_its_image)
{
    // bit for bit, without an option
    Arena a = {0};
    Volume v, own, dose;
    char path[600];

    kit_volume(&v, D, H, W, false);
    memcpy(v.affine, dose_affine, sizeof v.affine);
    DicomWrite how = kit_write();
    const char *folder = kit_folder("dose_same_image");
    REQUIRE(dicom_write_series(folder, &v, &how));
    new_path("dose_same", path);
    make_dose(&(MadeDose){.same_study = kit_series(&a, folder)}, path);
    const DicomSeries *s = kit_series(&a, path);
    REQUIRE(dicom_load_dose(s, NULL, false, NULL, &own, NULL));
    REQUIRE(
        dicom_load_dose(s, kit_series(&a, folder), false, NULL, &dose, NULL));
    EXPECT(
        !memcmp(own.voxels.data, dose.voxels.data, tensor_bytes(&own.voxels)));
    volume_free(&own);
    volume_free(&dose);
    volume_free(&v);
    arena_release(&a);
}

TEST(dicom_dose_of_another_frame)
{
    Arena a = {0};
    Volume v, dose;
    DicomNotes notes = {0};
    char path[600];

    kit_volume(&v, 5, 6, 7, false);
    DicomWrite how = kit_write();
    const char *folder = kit_folder("dose_frame_image");
    REQUIRE(dicom_write_series(folder, &v, &how));
    new_path("dose_frame", path);
    make_dose(&(MadeDose){.allocated = 16}, path);
    REQUIRE(dicom_load_dose(kit_series(&a, path), kit_series(&a, folder), true,
                            NULL, &dose, &notes));
    EXPECT(kit_noted(&notes,
                     "dose.dcm: dicom: FrameOfReference of dose differs "
                     "[tag (0020,0052) FrameOfReferenceUID]"));
    EXPECT(volume_same_grid(&v, &dose));
    dicom_notes_free(&notes);
    volume_free(&dose);
    volume_free(&v);
    arena_release(&a);
}

TEST(dicom_dose_of_another_region)
{
    static const double away[4][4] = {
        {1.5, 0, 0, 60}, {0, 2, 0, 7}, {0, 0, 2.5, 12}, {0, 0, 0, 1}};
    Dataset *ds;
    Volume dose;
    const char *folder = write_both("dose_region", &(MadeDose){.affine = away});
    DatasetDicom how = {.image = {"image"}, .images = 1, .dose = "dose"};
    REQUIRE(dataset_dicom(folder, &how, &ds));
    EXPECT_FAIL(case_load(ds, 0, 1, NULL, &dose, NULL),
                "dose and image cover different regions: overlap 0 % [tag "
                "(0020,0032) ImagePositionPatient]");
    dataset_free(ds);
}

TEST(dicom_dose_larger_than_the_limit)
{
    Arena a = {0};
    Volume got;
    char path[600];
    new_path("dose_large", path);
    make_dose(&(MadeDose){.allocated = 16}, path);
    EXPECT_FAIL(dicom_load_dose(kit_series(&a, path), NULL, false,
                                &(DicomOptions){.max_file_bytes = 500}, &got,
                                NULL),
                "dose.dcm: dicom: file larger than limit 500");
    arena_release(&a);
}

/* The dose of a folder, on its own grid or on the grid of the image next to
 * it. */
typedef struct Damaged {
    const char *folder;
    bool onto;
} Damaged;

static bool load_damaged(void *ctx)
{
    const Damaged *d = ctx;
    Arena a = {0};
    DicomIndex index;
    DicomNotes notes = {0};
    Volume got;
    const DicomSeries *dose = NULL, *image = NULL;
    bool ok = dicom_scan(d->folder, NULL, &a, &index);

    if (ok) dose = dicom_select(&index, "dose");
    if (dose) image = dicom_select(&index, "image");
    ok =
        ok && dose && image &&
        dicom_load_dose(dose, d->onto ? image : NULL, true, NULL, &got, &notes);
    if (ok) volume_free(&got);
    dicom_notes_free(&notes);
    arena_release(&a);
    return ok;
}

TEST(dicom_dose_damaged_anywhere_is_refused)
{
    char path[600];
    Damaged d = {write_both("dose_damage", &(MadeDose){.allocated = 16}), true};
    snprintf(path, sizeof path, "%s/dose.dcm", d.folder);
    EXPECT(damage_elements(path, load_damaged, &d) > 100);
    damage_memory(load_damaged, &d);
    d.onto = false;
    damage_memory(load_damaged, &d);
}
