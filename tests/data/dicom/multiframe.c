/* multiframe.c -- enhanced multi-frame images: read like the same slices in
 * single-frame files, in any order of frames; refused if the frames are not one
 * stack. */
#include "data/dataset/dataset.h"
#include "tests/support/dicom_damage.h"
#include "tests/support/dicom_make.h"
#include <stdlib.h>

static const int turned[] = {3, 0, 4, 1, 2};

// a new file for this test; `path` gets its name
static void write_multi(const MadeMulti *how, const char *name, char path[600])
{
    snprintf(path, 600, "%s/multi.dcm", kit_folder(name));
    make_multi(how, path);
}

static void expect_volume(const Volume *want, const Volume *got)
{
    EXPECT(volume_same_grid(want, got));
    REQUIRE(got->voxels.type == want->voxels.type);
    EXPECT(!memcmp(want->voxels.data, got->voxels.data,
                   tensor_bytes(&want->voxels)));
}

TEST(dicom_multi_reads_as_single_files_do)
{
    Arena a = {0};
    Volume v, single, multi;

    for (int tilted = 0; tilted < 2; tilted++)
        for (int each = 0; each < 2; each++) {
            char path[600];
            kit_volume(&v, 5, 6, 7, tilted);
            DicomWrite how = kit_write();
            const char *folder = kit_folder("multi_single");
            REQUIRE(dicom_write_series(folder, &v, &how));
            REQUIRE(dicom_load(kit_series(&a, folder), NULL, &single, NULL));
            write_multi(&(MadeMulti){.v = &v, .order = turned, .each = each},
                        "multi_same", path);
            const DicomSeries *s = kit_series(&a, path);
            EXPECT_INT(s->kind, DICOM_MULTI);
            EXPECT_INT(s->frames, 5);
            DicomNotes notes = {0};
            REQUIRE(dicom_load(s, NULL, &multi, &notes));
            // the writer of the files does not sort elements
            EXPECT_INT(notes.count, kit_noted(&notes, "out of order"));
            dicom_notes_free(&notes);
            expect_volume(&single, &multi);
            volume_free(&single);
            volume_free(&multi);
            volume_free(&v);
        }
    arena_release(&a);
}

TEST(dicom_multi_of_one_frame)
{
    Arena a = {0};
    Volume v, got;
    char path[600];
    kit_volume(&v, 1, 6, 7, false);
    write_multi(&(MadeMulti){.v = &v}, "multi_one", path);
    REQUIRE(dicom_load(kit_series(&a, path), NULL, &got, NULL));
    expect_volume(&v, &got);
    volume_free(&got);
    volume_free(&v);
    arena_release(&a);
}

TEST(dicom_multi_rescales_every_frame)
{
    static const double slopes[] = {1, 2, 1, 0.5, 1};
    Arena a = {0};
    Volume v, got;
    DicomNotes notes = {0};
    char path[600];

    kit_volume(&v, 5, 3, 4, false);
    write_multi(&(MadeMulti){.v = &v,
                             .order = turned,
                             .slope = slopes,
                             .modality = "CT",
                             .monochrome1 = true},
                "multi_slope", path);
    REQUIRE(dicom_load(kit_series(&a, path), NULL, &got, &notes));
    EXPECT(kit_noted(&notes, "slope differs between slices, applied per slice "
                             "[tag (0028,1053) RescaleSlope]"));

    // HU apply to the stored value
    EXPECT(kit_noted(&notes, "MONOCHROME1 not inverted: values have a unit by "
                             "Modality"));
    EXPECT_INT(got.unit, UNIT_HU);
    REQUIRE(got.voxels.type == F32);
    const int16_t *p = v.voxels.data;
    for (int i = 0; i < 5; i++)
        for (int j = 0; j < 12; j++)
            EXPECT_NEAR(((float *)got.voxels.data)[turned[i] * 12 + j],
                        p[turned[i] * 12 + j] * slopes[i] - 3, 0);
    volume_free(&got);
    volume_free(&v);
    dicom_notes_free(&notes);
    arena_release(&a);
}

TEST(dicom_multi_defects_have_exact_words)
{
    static const char *const stacks[] = {"1", "1", "b", "b", "b"};
    static const int twice[] = {0, 1, 2, 0, 1, 2}, gap[] = {0, 1, 2, 4};
    static const struct {
        int slices;
        MadeMulti how;
        const char *text;
    } rows[] = {
        {5,
         {.no_groups = true},
         "enhanced multi-frame: per-frame position missing [tag (5200,9230) "
         "PerFrameFunctionalGroupsSequence]"},
        {5,
         {.unplaced = 4},
         "enhanced multi-frame: per-frame position missing [tag (0020,9113) "
         "PlanePositionSequence]"},
        {6,
         {.times = 2},
         "2 time points per position [tag (0020,9128) TemporalPositionIndex]"},
        {6,
         {.order = twice},
         "2 images at every position [tag (0020,0032) ImagePositionPatient]; "
         "fix: keep one of them in the folder"},
        {5,
         {.stacks = stacks},
         "2 stacks in one file: \"1\", \"b\" [tag (0020,9056) StackID]; fix: "
         "write one file for each"},
        {5,
         {.concatenation = "2.25.5"},
         "part 1 of 2 of a concatenation [tag (0020,9161) ConcatenationUID]; "
         "fix: join its parts to one file"},
        {4,
         {.order = gap},
         "slice missing between frame 3 and frame 4: gap 6 mm, median 3 mm "
         "[tag (0020,0032) ImagePositionPatient]; fix: find the slices; a gap "
         "is never filled"},
        {5,
         {.modality = "CT"},
         "CT without RescaleIntercept [tag (0028,1052) RescaleIntercept]; fix: "
         "assume_hu = true"},
        {5,
         {.no_spacing = true},
         "PixelSpacing missing, 0, negative or NaN [tag (0028,0030) "
         "PixelSpacing]"},
        {5,
         {.no_orientation = true},
         "ImageOrientationPatient missing [tag (0020,0037) "
         "ImageOrientationPatient]"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        Arena a = {0};
        Volume v, got;
        MadeMulti how = rows[i].how;
        char path[600], name[40], want[900];
        // voxels for a slice that is in the order but not in the volume
        kit_volume(&v, 6, 4, 5, false);
        v.voxels.dim.d = rows[i].slices;
        how.v = &v;
        snprintf(name, sizeof name, "multi_defect%zu", i);
        write_multi(&how, name, path);
        snprintf(want, sizeof want, "%s: dicom: %s", path, rows[i].text);
        EXPECT(!dicom_load(kit_series(&a, path), NULL, &got, NULL));
        EXPECT_TEXT(err_text(), want);
        EXPECT_INT(err_kind(), ERR_DATA);
        v.voxels.dim.d = 6;
        volume_free(&v);
        arena_release(&a);
    }
}

TEST(dicom_multi_times_of_single_slices_are_an_order)
{
    // a separate index for each frame is the order of acquisition, not a
    // repetition
    Arena a = {0};
    Volume v, got;
    char path[600];

    kit_volume(&v, 5, 4, 5, false);
    write_multi(&(MadeMulti){.v = &v, .times = 5}, "multi_times", path);
    REQUIRE(dicom_load(kit_series(&a, path), NULL, &got, NULL));
    expect_volume(&v, &got);
    volume_free(&got);
    volume_free(&v);
    arena_release(&a);
}

TEST(dicom_multi_files_of_one_series)
{
    Arena a = {0};
    Volume v, got;
    char path[600];

    kit_volume(&v, 5, 4, 5, false);
    const char *folder = kit_folder("multi_two");
    write_multi(&(MadeMulti){.v = &v}, "multi_two", path);
    snprintf(path, sizeof path, "%s/other.dcm", folder);
    make_multi(&(MadeMulti){.v = &v}, path);
    EXPECT_FAIL(dicom_load(kit_series(&a, folder), NULL, &got, NULL),
                "multi_two: dicom: 2 multi-frame files in one series [tag "
                "(0020,000e) SeriesInstanceUID]; fix: keep one of the files");
    volume_free(&v);
    arena_release(&a);
}

TEST(dicom_multi_limit_of_voxels)
{
    Arena a = {0};
    Volume v, got;
    char path[600];

    kit_volume(&v, 5, 4, 5, false);
    write_multi(&(MadeMulti){.v = &v}, "multi_limit", path);
    const DicomSeries *s = kit_series(&a, path);

    for (int64_t limit = 99; limit <= 101; limit++) {
        DicomOptions o = {.max_voxels = limit};
        if (limit < 100) {
            EXPECT_FAIL(dicom_load(s, &o, &got, NULL),
                        "4 x 5 x 5 x 1 does not fit (limit 99 voxels)");
            continue;
        }
        REQUIRE(dicom_load(s, &o, &got, NULL));
        volume_free(&got);
    }

    volume_free(&v);
    arena_release(&a);
}

// labels 1 and 2 in the middle of the volume
static void mark(const Volume *v, Volume *mask)
{
    Dims d = v->voxels.dim;
    REQUIRE(volume_new(mask, d, U8));
    memcpy(mask->affine, v->affine, sizeof v->affine);
    for (int i = 0; i < d.d * d.h * d.w; i++)
        if (i / (d.h * d.w) % (d.d - 1))
            ((uint8_t *)mask->voxels.data)[i] = (uint8_t)(i % 3);
}

TEST(dicom_multi_as_mask)
{
    // a multi-frame image of labels on an image in single files, and back
    Arena a = {0};
    Volume v, mask, labels, got;
    char path[600];

    kit_volume(&v, 5, 6, 7, true);
    mark(&v, &mask);
    kit_volume(&labels, 5, 6, 7, true);
    for (int i = 0; i < 210; i++)
        ((int16_t *)labels.voxels.data)[i] = ((uint8_t *)mask.voxels.data)[i];
    DicomWrite how = kit_write();
    const char *folder = kit_folder("multi_mask_image");
    REQUIRE(dicom_write_series(folder, &v, &how));
    const DicomSeries *image = kit_series(&a, folder);
    write_multi(
        &(MadeMulti){.v = &labels, .same_study = image, .order = turned},
        "multi_mask", path);
    REQUIRE(dicom_load_mask(image, kit_series(&a, path), NULL, &got, NULL));
    EXPECT(!memcmp(got.voxels.data, mask.voxels.data, 210));
    volume_free(&got);

    // single files of labels on the multi-frame image
    write_multi(&(MadeMulti){.v = &v, .order = turned}, "multi_image", path);
    const DicomSeries *multi = kit_series(&a, path);
    how.description = "mask", how.shuffle = true;
    folder = kit_folder("multi_mask_single");
    REQUIRE(dicom_write_series(folder, &mask, &how));
    REQUIRE(dicom_load_mask(multi, kit_series(&a, folder), NULL, &got, NULL));
    EXPECT(!memcmp(got.voxels.data, mask.voxels.data, 210));
    volume_free(&got);
    volume_free(&labels);
    volume_free(&mask);
    volume_free(&v);
    arena_release(&a);
}

TEST(dicom_multi_gets_a_seg)
{
    static const char *const names[] = {"a", "b"};
    Arena a = {0};
    Volume v, mask, got;
    char path[600], seg[600];

    kit_volume(&v, 5, 6, 7, true);
    mark(&v, &mask);
    write_multi(&(MadeMulti){.v = &v, .order = turned}, "multi_seg", path);
    const DicomSeries *image = kit_series(&a, path);
    snprintf(seg, sizeof seg, "%s/seg.dcm", kit_folder("multi_seg_out"));
    REQUIRE(dicom_write_seg(seg, &mask, names, 2, image));
    REQUIRE(dicom_load_mask(image, kit_series(&a, seg), NULL, &got, NULL));
    EXPECT(!memcmp(got.voxels.data, mask.voxels.data, 210));
    volume_free(&got);

    // valid according to another program, if that is installed
    char command[800];
    snprintf(command, sizeof command,
             "! command -v dciodvfy > /dev/null || ! dciodvfy -new %s 2>&1 | "
             "grep '^Error'",
             seg);
    EXPECT(!system(command));

    // without positions, frames are found by instance and number of frame
    KitFile f;
    REQUIRE(kit_read(seg, &f));
    static const uint8_t position[] = {0x20, 0, 0x13, 0x91, 'S', 'Q'};
    int hidden = 0;

    for (size_t i = 0; i + 6 < f.size; i++)
        if (!memcmp(f.bytes + i, position, 6)) {
            // PlaneOrientationVolumeSequence, which the reader does not use
            f.bytes[i + 2] = 0x0F;
            hidden++;
        }

    EXPECT(hidden > 4);
    REQUIRE(kit_save(&f));
    REQUIRE(dicom_load_mask(image, kit_series(&a, seg), NULL, &got, NULL));
    EXPECT(!memcmp(got.voxels.data, mask.voxels.data, 210));
    volume_free(&got);
    volume_free(&mask);
    volume_free(&v);
    arena_release(&a);
}

TEST(dicom_multi_in_a_data_set)
{
    Volume v, got;
    char path[600];
    Dataset *ds;

    kit_volume(&v, 5, 6, 7, true);
    write_multi(&(MadeMulti){.v = &v, .order = turned}, "multi_set", path);
    DatasetDicom how = {.image = {"enhanced"}, .images = 1};
    REQUIRE(dataset_dicom(kit_folder("multi_set"), &how, &ds));
    REQUIRE(case_load(ds, 0, 0, NULL, &got, NULL));
    EXPECT(volume_same_grid(&v, &got));
    for (int i = 0; i < 210; i++)
        EXPECT_NEAR(((float *)got.voxels.data)[i],
                    ((int16_t *)v.voxels.data)[i], 0);
    volume_free(&got);
    volume_free(&v);
    dataset_free(ds);
}

// image, structure set, label map and dose, with the k-th allocation failing
static bool whole_way(const char *folder)
{
    Arena a = {0};
    Volume v = {.unit = UNIT_NONE}, m = {.unit = UNIT_NONE};
    Volume l = {.unit = UNIT_NONE}, d = {.unit = UNIT_NONE};
    DicomIndex index;
    DicomNotes notes = {0};
    const DicomSeries *image, *mask, *map, *dose;

    // inputs of the fuzzer that are valid
    bool ok = dicom_scan(folder, NULL, &a, &index) &&
              (image = dicom_select(&index, "multi")) &&
              (mask = dicom_select(&index, "structure")) &&
              (map = dicom_select(&index, "labelmap")) &&
              (dose = dicom_select(&index, "dose")) &&
              dicom_load(image, NULL, &v, &notes) &&
              dicom_load_mask(image, mask, NULL, &m, &notes) &&
              dicom_load_mask(image, map, NULL, &l, &notes) &&
              dicom_load_dose(dose, image, true, NULL, &d, &notes);

    volume_free(&v);
    volume_free(&m);
    volume_free(&l);
    volume_free(&d);
    dicom_notes_free(&notes);
    arena_release(&a);
    return ok;
}

TEST(dicom_multi_without_memory_fails_and_leaks_nothing)
{
    static const char *const names[] = {"multi", "structure", "labelmap",
                                        "dose"};
    const char *folder = kit_folder("multi_memory");

    for (int i = 0; i < 4; i++) {
        char path[200];
        KitFile f;
        snprintf(path, sizeof path, "tests/fuzz/corpus/dicom/%s", names[i]);
        REQUIRE(kit_read(path, &f));
        snprintf(f.path, sizeof f.path, "%s/%s", folder, names[i]);
        REQUIRE(kit_save(&f));
    }

    REQUIRE(whole_way(folder));
    for (int from_then_on = 0; from_then_on < 2; from_then_on++) {
        long before = mem_live(), k = 0;
        for (bool ok = false; !ok && k < 10000; k++) {
            mem_fail_after(k, from_then_on);
            ok = whole_way(folder);
            mem_fail_after(-1, false);
            EXPECT_INT(mem_live(), before);
            if (!ok) EXPECT(strstr(err_text(), "no memory"));
        }
        EXPECT(k > 30 && k < 10000);
    }
}

static void no_total(KitFile *f)
{
    kit_delete(f, TAG_InConcatenationTotalNumber);
}

static void of_one(KitFile *f)
{
    kit_set_u16(f, TAG_InConcatenationTotalNumber, 1);
}

static void no_uid(KitFile *f)
{
    kit_set(f, TAG_ConcatenationUID, "", 0);
}

static void two_numbers(KitFile *f)
{
    kit_set(f, TAG_InConcatenationNumber, "\1\0\1\0", 4);
}

static void two_totals(KitFile *f)
{
    kit_set(f, TAG_InConcatenationTotalNumber, "\1\0\1\0", 4);
}

TEST(dicom_multi_parts_of_a_concatenation)
{
    static const struct {
        void (*edit)(KitFile *f);
        const char *text; // NULL: the default
    } row[] = {
        {no_total, "part 1 of a concatenation [tag (0020,9161)"},
        {of_one, NULL},
        {no_uid, NULL},
        {two_numbers, "2 values, need 1 [tag (0020,9162)"},
        {two_totals, "2 values, need 1 [tag (0020,9163)"},
    };
    Volume v, got;
    char path[600];

    kit_volume(&v, 3, 6, 7, true);
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        Arena a = {0};
        KitFile f;
        write_multi(&(MadeMulti){.v = &v, .concatenation = "2.25.5"},
                    "multi_parts", path);
        REQUIRE(kit_read(path, &f));
        row[i].edit(&f);
        REQUIRE(kit_save(&f));
        bool ok = dicom_load(kit_series(&a, path), NULL, &got, NULL);
        if (row[i].text)
            EXPECT_FAIL(ok, row[i].text);
        else
            REQUIRE(ok);
        volume_free(&got);
        arena_release(&a);
    }
    volume_free(&v);
}

TEST(dicom_multi_of_many_stacks)
{
    enum { STACKS = 14 };
    static char name[STACKS][24];
    const char *stack[STACKS];
    Volume v, got;
    Arena a = {0};
    char path[600];
    kit_volume(&v, STACKS, 6, 7, true);
    for (int i = 0; i < STACKS; i++) {
        snprintf(name[i], sizeof name[i], "stack %d", i % 12);
        stack[i] = name[i];
    }
    write_multi(&(MadeMulti){.v = &v, .stacks = stack}, "multi_many", path);
    EXPECT_FAIL(dicom_load(kit_series(&a, path), NULL, &got, NULL),
                " stacks in one file: \"stack 0\", \"stack 1\", ");
    EXPECT(strstr(err_text(), ", ..."));
    volume_free(&v);
    arena_release(&a);
}

static bool load_damaged(void *ctx)
{
    Arena a = {0};
    DicomIndex index;
    DicomNotes notes = {0};
    Volume got;
    bool ok = dicom_scan(ctx, NULL, &a, &index) &&
              dicom_load(index.series, NULL, &got, &notes);
    if (ok) volume_free(&got);
    dicom_notes_free(&notes);
    arena_release(&a);
    return ok;
}

TEST(dicom_multi_damaged_anywhere_is_refused)
{
    static const char *const stacks[] = {"1", "1", "1", "1", "1"};
    static const double slopes[] = {1, 1, 2, 1, 1};
    Volume v;
    char path[600];

    kit_volume(&v, 5, 6, 7, true);
    for (int each = 0; each < 2; each++) {
        const MadeMulti how = {.v = &v,
                               .order = turned,
                               .each = each,
                               .slope = slopes,
                               .stacks = stacks,
                               .times = 1,
                               .modality = each ? "CT" : "MR"};
        write_multi(&how, each ? "multi_damage2" : "multi_damage", path);
        if (each) EXPECT(damage_elements(path, load_damaged, path) > 100);
        damage_memory(load_damaged, path);
    }
    volume_free(&v);
}
