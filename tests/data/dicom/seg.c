/* seg.c -- masks: pairing of ordinary series, segmentation objects. */
#include "data/dicom/tag.h"
#include "tests/support/dicom_damage.h"
#include "tests/support/dicom_series.h"
#include <stdlib.h>

// labels 1 and 2 in the middle slices of a kit volume
static void kit_mask(const Volume *image, Volume *mask)
{
    REQUIRE(volume_new(mask, image->voxels.dim, U8));
    memcpy(mask->affine, image->affine, sizeof mask->affine);
    mask->unit = UNIT_LABEL;
    Dims d = image->voxels.dim;
    uint8_t *p = mask->voxels.data;
    for (int k = 1; k + 1 < d.d; k++)
        for (int i = 0; i < d.h * d.w; i++)
            p[k * d.h * d.w + i] = (uint8_t)(i % 5 == k ? 2 : i % 3 == 0);
}

typedef struct Pair {
    Arena arena;
    Volume image, mask;
    const char *image_folder, *mask_folder;
} Pair;

// an image series and its mask series, written with the options mask_how
static void write_pair(Pair *p, const char *name, DicomWrite mask_how)
{
    char folder[64];
    *p = (Pair){.image_folder = NULL};
    kit_volume(&p->image, 5, 6, 7, true);
    kit_mask(&p->image, &p->mask);
    DicomWrite how = kit_write();
    how.shuffle = true;
    snprintf(folder, sizeof folder, "%s_image", name);
    p->image_folder = kit_folder(folder);
    REQUIRE(dicom_write_series(p->image_folder, &p->image, &how));
    snprintf(folder, sizeof folder, "%s_mask", name);
    p->mask_folder = kit_folder(folder);
    REQUIRE(dicom_write_series(p->mask_folder, &p->mask, &mask_how));
}

static DicomWrite mask_write(void)
{
    DicomWrite how = kit_write();
    how.description = "mask", how.series_number = 100, how.shuffle = true;
    how.bits_stored = 8;
    return how;
}

static void free_pair(Pair *p)
{
    volume_free(&p->image);
    volume_free(&p->mask);
    arena_release(&p->arena);
}

static bool load_pair(Pair *p, const DicomMaskOptions *o, Volume *out,
                      DicomNotes *notes)
{
    return dicom_load_mask(kit_series(&p->arena, p->image_folder),
                           kit_series(&p->arena, p->mask_folder), o, out,
                           notes);
}

static void expect_mask(const Volume *want, const Volume *got)
{
    REQUIRE(got->voxels.type == U8);
    EXPECT_INT(got->unit, UNIT_LABEL);
    EXPECT(volume_same_grid(want, got));
    EXPECT(!memcmp(want->voxels.data, got->voxels.data,
                   tensor_bytes(&want->voxels)));
}

// edits files IM0001 to IM000n of a folder
static void edit_all(const char *folder, int n,
                     void (*edit)(KitFile *f, int file))
{
    for (int i = 1; i <= n; i++) {
        char path[600];
        KitFile f;
        snprintf(path, sizeof path, "%s/IM%04d.dcm", folder, i);
        REQUIRE(kit_read(path, &f));
        edit(&f, i);
        REQUIRE(kit_save(&f));
    }
}

TEST(dicom_mask_pairs_by_reference)
{
    Pair p;
    DicomWrite how = mask_write();
    how.references = "image";
    write_pair(&p, "by_reference", how);
    Volume got;
    DicomNotes notes = {0};
    REQUIRE(load_pair(&p, NULL, &got, &notes));
    EXPECT(kit_noted(&notes, "mask paired by ReferencedSOPInstanceUID"));
    expect_mask(&p.mask, &got);
    volume_free(&got);
    dicom_notes_free(&notes);
    free_pair(&p);
}

TEST(dicom_mask_pairs_by_position)
{
    Pair p;
    write_pair(&p, "by_position", mask_write());
    Volume got;
    DicomNotes notes = {0};
    REQUIRE(load_pair(&p, NULL, &got, &notes));
    EXPECT(kit_noted(&notes, "mask paired by ImagePositionPatient"));
    expect_mask(&p.mask, &got);
    volume_free(&got);
    dicom_notes_free(&notes);
    free_pair(&p);
}

TEST(dicom_mask_pairs_by_uid_in_two_folders)
{
    // the same UIDs throughout: only the folder separates image and mask
    Pair p;
    const char *both = kit_folder("by_uid");
    DicomWrite how = mask_write();

    how.description = "image", how.series_number = 1;
    write_pair(&p, "by_uid/x", how);
    DicomIndex index;
    REQUIRE(dicom_scan(both, NULL, &p.arena, &index));
    REQUIRE(index.count == 2);
    EXPECT_TEXT(index.series[0].folder, p.image_folder);
    EXPECT_TEXT(index.series[1].folder, p.mask_folder);
    Volume got;
    DicomNotes notes = {0};
    REQUIRE(load_pair(&p, NULL, &got, &notes));
    EXPECT(kit_noted(&notes, "mask paired by SOPInstanceUID"));
    expect_mask(&p.mask, &got);
    volume_free(&got);
    dicom_notes_free(&notes);
    free_pair(&p);
}

static void drop_place(KitFile *f, int file)
{
    (void)file;
    kit_delete(f, TAG_ImagePositionPatient);
    kit_delete(f, TAG_ImageOrientationPatient);
}

TEST(dicom_mask_pairs_by_number_with_a_warning)
{
    Pair p;
    DicomWrite how = mask_write();
    how.shuffle = false;
    write_pair(&p, "by_number", how);
    DicomWrite plain = kit_write();
    REQUIRE(dicom_write_series(p.image_folder, &p.image, &plain));
    edit_all(p.mask_folder, 5, drop_place);
    Volume got;
    DicomNotes notes = {0};
    REQUIRE(load_pair(&p, NULL, &got, &notes));
    expect_mask(&p.mask, &got);
    bool warned = false;
    for (const DicomNote *n = notes.first; n; n = n->next)
        if (strstr(n->text, "mask paired by InstanceNumber"))
            warned = n->warning;
    EXPECT(warned);
    volume_free(&got);
    dicom_notes_free(&notes);
    free_pair(&p);
}

static void lose_number(KitFile *f, int file)
{
    drop_place(f, file);
    kit_delete(f, TAG_InstanceNumber);
}

TEST(dicom_mask_without_any_key_is_refused)
{
    Pair p;
    write_pair(&p, "no_key", mask_write());
    edit_all(p.mask_folder, 5, lose_number);
    Volume got;
    EXPECT_FAIL(load_pair(&p, NULL, &got, NULL),
                "no_key_mask: dicom: mask slices cannot be paired with the "
                "image ");
    free_pair(&p);
}

TEST(dicom_mask_elsewhere_needs_resampling)
{
    Pair p;
    write_pair(&p, "elsewhere", mask_write());

    // the same position with pixels twice as large: paired by name only
    Grid half = volume_grid_resize(&p.mask, 0, 3, 7);
    Volume coarse, got, want;
    REQUIRE(volume_resample(&p.mask, &half, NEAREST, 0, &coarse));
    const char *folder = kit_folder("elsewhere_coarse");
    DicomWrite how = mask_write();
    REQUIRE(dicom_write_series(folder, &coarse, &how));
    p.mask_folder = folder;
    EXPECT_FAIL(load_pair(&p, NULL, &got, NULL), "image grid 7x6x5");
    EXPECT(strstr(err_text(), "; if it does, resample_mask = true"));
    DicomMaskOptions o = {.resample_mask = true};
    REQUIRE(load_pair(&p, &o, &got, NULL));
    Grid whole = volume_grid(&p.image);
    REQUIRE(volume_resample(&coarse, &whole, NEAREST, 0, &want));
    expect_mask(&want, &got);
    volume_free(&got);
    volume_free(&want);
    volume_free(&coarse);
    free_pair(&p);
}

TEST(dicom_mask_of_another_region_row_72)
{
    Pair p;
    write_pair(&p, "region", mask_write());
    for (int a = 0; a < 3; a++) p.mask.affine[a][3] += 4 * p.mask.affine[a][0];
    DicomWrite how = mask_write();
    REQUIRE(dicom_write_series(p.mask_folder, &p.mask, &how));
    Volume got;
    DicomMaskOptions o = {.resample_mask = true};
    EXPECT_FAIL(load_pair(&p, &o, &got, NULL),
                "mask and image cover different regions: overlap 4");
    free_pair(&p);
}

static void other_frame(KitFile *f, int file)
{
    (void)file;
    kit_set_text(f, TAG_FrameOfReferenceUID, "2.25.99");
}

TEST(dicom_mask_of_another_frame_row_67)
{
    Pair p;
    write_pair(&p, "frame", mask_write());
    edit_all(p.mask_folder, 5, other_frame);
    Volume got;
    DicomNotes notes = {0};
    REQUIRE(load_pair(&p, NULL, &got, &notes));
    EXPECT(kit_noted(&notes, "FrameOfReference of mask differs "
                             "[tag (0020,0052) FrameOfReferenceUID]"));
    volume_free(&got);
    dicom_notes_free(&notes);
    free_pair(&p);
}

TEST(dicom_mask_with_slices_missing)
{
    Pair p;
    DicomWrite how = mask_write();
    how.shuffle = false;
    write_pair(&p, "missing", how);
    char path[600];
    snprintf(path, sizeof path, "%s/IM0001.dcm", p.mask_folder);
    REQUIRE(!remove(path));
    Volume got;
    EXPECT_FAIL(load_pair(&p, NULL, &got, NULL),
                "1 of 5 image slices have no mask slice: IM000");
    DicomMaskOptions o = {.partial = true};
    REQUIRE(load_pair(&p, &o, &got, NULL));
    expect_mask(&p.mask, &got);
    volume_free(&got);
    free_pair(&p);
}

TEST(dicom_mask_values_must_be_declared)
{
    Pair p;
    write_pair(&p, "values", mask_write());
    uint8_t *v = p.mask.voxels.data;
    int ones = 0;
    for (int i = 0; i < 210; i++) ones += v[i] == 1;
    Volume got;
    const int32_t two[] = {2};
    DicomMaskOptions o = {.labels = two, .label_count = 1};
    char want[150];
    snprintf(want, sizeof want,
             "value 1 in %d voxels is not a declared label [tag (7fe0,0010) "
             "PixelData]; fix: labels = {2, 1}",
             ones);
    EXPECT_FAIL(load_pair(&p, &o, &got, NULL), want);

    // 0 and 255 are accepted as a mask only if 255 is declared
    for (int i = 0; i < 210; i++) v[i] = v[i] ? 255 : 0;
    DicomWrite how = mask_write();
    REQUIRE(dicom_write_series(p.mask_folder, &p.mask, &how));
    EXPECT_FAIL(load_pair(&p, NULL, &got, NULL),
                "mask of the values 0 and 255 [tag (7fe0,0010) PixelData]; "
                "fix: labels = {255}");
    const int32_t white[] = {255};
    o = (DicomMaskOptions){.labels = white, .label_count = 1};
    REQUIRE(load_pair(&p, &o, &got, NULL));
    for (int i = 0; i < 210; i++) v[i] = v[i] == 255;
    expect_mask(&p.mask, &got);
    volume_free(&got);
    free_pair(&p);
}

TEST(dicom_mask_may_be_empty)
{
    // row 50 is for images: a mask without a tumour is valid
    Pair p;
    write_pair(&p, "empty", mask_write());
    memset(p.mask.voxels.data, 0, 210);
    DicomWrite how = mask_write();
    REQUIRE(dicom_write_series(p.mask_folder, &p.mask, &how));
    Volume got;
    REQUIRE(load_pair(&p, NULL, &got, NULL));
    expect_mask(&p.mask, &got);
    volume_free(&got);
    free_pair(&p);
}

// ---- segmentation objects ---------------------------------------------------

static const char *const two_names[] = {"tumour", "spleen"};

// the image of a pair, and its mask as a SEG in a folder of its own
static void write_seg(Pair *p, const char *name, char path[600])
{
    char folder[64];
    write_pair(p, name, mask_write());
    snprintf(folder, sizeof folder, "%s_seg", name);
    p->mask_folder = kit_folder(folder);
    snprintf(path, 600, "%s/mask.dcm", p->mask_folder);
    const DicomSeries *image = kit_series(&p->arena, p->image_folder);
    REQUIRE(dicom_write_seg(path, &p->mask, two_names, 2, image));
}

TEST(dicom_seg_comes_back)
{
    Pair p;
    char path[600];
    write_seg(&p, "seg", path);
    const DicomSeries *s = kit_series(&p.arena, p.mask_folder);
    EXPECT_INT(s->kind, DICOM_SEG);
    EXPECT_TEXT(s->patient_id, "KIT01");
    EXPECT_INT(s->frames, 6);
    Volume got;
    REQUIRE(load_pair(&p, NULL, &got, NULL));
    expect_mask(&p.mask, &got);
    volume_free(&got);

    // one segment selected by its name becomes label 1
    DicomMaskOptions o = {.segments = two_names + 1, .segment_count = 1};
    REQUIRE(load_pair(&p, &o, &got, NULL));
    uint8_t *v = p.mask.voxels.data;
    for (int i = 0; i < 210; i++) v[i] = v[i] == 2;
    expect_mask(&p.mask, &got);
    volume_free(&got);
    const char *unknown[] = {"liver"};
    o.segments = unknown;
    EXPECT_FAIL(load_pair(&p, &o, &got, NULL),
                "0 segments called \"liver\", need 1; there are \"tumour\", "
                "\"spleen\"");
    free_pair(&p);
}

TEST(dicom_seg_is_valid)
{
    if (system("dciodvfy -version >/dev/null 2>&1; test $? -ne 127"))
        SKIP("dciodvfy is not installed (sh vendor/fetch ci)");
    Pair p;
    char path[600], command[1400];
    write_seg(&p, "valid", path);
    snprintf(command, sizeof command,
             "dciodvfy -new %s 2>&1 | tee %s/report | grep -q '^Error'", path,
             test_folder());
    EXPECT(system(command) != 0);
    snprintf(command, sizeof command, "grep '^Error' %s/report", test_folder());
    EXPECT(system(command) != 0);
    snprintf(command, sizeof command, "grep -q Segmentation %s/report",
             test_folder());
    EXPECT(system(command) == 0);
    free_pair(&p);
}

TEST(dicom_seg_same_arguments_same_bytes)
{
    Pair p;
    char path[600], again[600];
    write_seg(&p, "seg_same", path);
    snprintf(again, sizeof again, "%s/../seg_again.dcm", p.mask_folder);
    REQUIRE(dicom_write_seg(again, &p.mask, two_names, 2,
                            kit_series(&p.arena, p.image_folder)));
    KitFile x, y;
    REQUIRE(kit_read(path, &x) && kit_read(again, &y));
    EXPECT(x.size == y.size && !memcmp(x.bytes, y.bytes, x.size));
    mem_free(x.bytes);
    mem_free(y.bytes);
    free_pair(&p);
}

TEST(dicom_seg_of_nothing_keeps_its_segments)
{
    Pair p;
    char path[600];
    write_seg(&p, "seg_empty", path);
    memset(p.mask.voxels.data, 0, 210);
    REQUIRE(dicom_write_seg(path, &p.mask, two_names, 2,
                            kit_series(&p.arena, p.image_folder)));
    Volume got;
    REQUIRE(load_pair(&p, NULL, &got, NULL));
    expect_mask(&p.mask, &got);
    volume_free(&got);
    free_pair(&p);
}

TEST(dicom_seg_refuses_foreign_grids_and_labels)
{
    Pair p;
    char path[600];
    write_seg(&p, "seg_bad", path);
    const DicomSeries *image = kit_series(&p.arena, p.image_folder);
    EXPECT_FAIL(dicom_write_seg(path, &p.mask, two_names, 1, image),
                "label 2, but 1 segments are named");
    p.mask.affine[0][3] += 1;
    EXPECT_FAIL(dicom_write_seg(path, &p.mask, two_names, 2, image),
                "mask is not on the grid of ");
    free_pair(&p);
}

TEST(dicom_seg_of_a_source_with_endless_texts)
{
    // a value that cannot be represented must not end the program
    Pair p;
    write_pair(&p, "endless", mask_write());
    Arena a = {0};
    DicomIndex index;
    REQUIRE(dicom_scan(p.image_folder, NULL, &a, &index));
    DicomSeries source = index.series[0];
    char uid[3000];
    memset(uid, '1', sizeof uid - 1);
    uid[sizeof uid - 1] = 0;
    source.series_uid = uid;
    char path[600];
    snprintf(path, sizeof path, "%s/endless.dcm", p.mask_folder);
    const char *const names[] = {"a", "b", "c"};
    EXPECT_FAIL(dicom_write_seg(path, &p.mask, names, 3, &source),
                "endless.dcm: dicom: SeriesInstanceUID of 2999 bytes, at most "
                "1023 can be copied");
    EXPECT_INT(err_kind(), ERR_DATA);
    arena_release(&a);
    free_pair(&p);
}

TEST(dicom_seg_that_overlaps)
{
    // both segments on the frames of both: turn every 2 into "1 and 2"
    Pair p;
    char path[600];

    write_seg(&p, "overlap", path);
    KitFile f;
    REQUIRE(kit_read(path, &f));

    // fill the pixels: every frame is all ones
    size_t pixels = kit_find(&f, TAG_PixelData) + 12;
    memset(f.bytes + pixels, 255, f.size - pixels);
    REQUIRE(kit_save(&f));
    Volume got;
    EXPECT_FAIL(load_pair(&p, NULL, &got, NULL),
                "segments \"tumour\" and \"spleen\" overlap (126 voxels) "
                "[tag (0062,0002) SegmentSequence]; fix: segments = one of "
                "them");
    DicomMaskOptions o = {.segments = two_names, .segment_count = 1};
    EXPECT(load_pair(&p, &o, &got, NULL));
    volume_free(&got);
    free_pair(&p);
}

TEST(dicom_seg_fractional_is_cut_at_one_half)
{
    Pair p;
    char path[600];
    write_seg(&p, "fraction", path);
    KitFile f;
    REQUIRE(kit_read(path, &f));
    size_t at = kit_find(&f, TAG_PixelData) + 12, plane = 6 * 7;
    uint8_t bytes[6 * 42];
    for (size_t i = 0; i < 6 * plane; i++)
        bytes[i] = f.bytes[at + i / 8] >> i % 8 & 1 ? 50 : 49;
    kit_splice(&f, at, f.size - at, bytes, sizeof bytes);
    f.bytes[at - 4] = sizeof bytes, f.bytes[at - 3] = sizeof bytes >> 8;
    kit_set_u16(&f, TAG_BitsAllocated, 8);
    kit_set_u16(&f, TAG_BitsStored, 8);
    kit_set_u16(&f, TAG_HighBit, 7);
    kit_set_text(&f, TAG_SegmentationType, "FRACTIONAL");
    uint8_t most[2] = {100, 0};
    kit_insert(&f, TAG_SharedFunctionalGroupsSequence,
               TAG_MaximumFractionalValue, "US", most, 2);
    REQUIRE(kit_save(&f));
    Volume got;
    REQUIRE(load_pair(&p, NULL, &got, NULL));
    expect_mask(&p.mask, &got);
    volume_free(&got);
    free_pair(&p);
}

TEST(dicom_seg_on_another_grid_is_resampled)
{
    Pair p;
    char path[600];
    write_seg(&p, "seg_elsewhere", path);

    // the image again with half the pixels: the SEG lies on the old grid
    Grid half = volume_grid_resize(&p.image, 0, 3, 7);
    Volume coarse, got, want;
    REQUIRE(volume_resample(&p.image, &half, NEAREST, 0, &coarse));
    DicomWrite how = kit_write();
    p.image_folder = kit_folder("seg_elsewhere_coarse");
    REQUIRE(dicom_write_series(p.image_folder, &coarse, &how));
    EXPECT_FAIL(load_pair(&p, NULL, &got, NULL),
                "; if it does, resample_mask = true");
    DicomMaskOptions o = {.resample_mask = true};
    REQUIRE(load_pair(&p, &o, &got, NULL));
    REQUIRE(volume_resample(&p.mask, &half, NEAREST, 0, &want));
    expect_mask(&want, &got);
    volume_free(&got);
    volume_free(&want);
    volume_free(&coarse);
    free_pair(&p);
}

static bool load_damaged(void *ctx)
{
    const Pair *p = ctx;
    Arena a = {0};
    DicomIndex image, mask;
    DicomNotes notes = {0};
    Volume got;
    bool ok = dicom_scan(p->image_folder, NULL, &a, &image) &&
              dicom_scan(p->mask_folder, NULL, &a, &mask) &&
              dicom_load_mask(image.series, mask.series, NULL, &got, &notes);

    if (ok) volume_free(&got);
    dicom_notes_free(&notes);
    arena_release(&a);
    return ok;
}

TEST(dicom_mask_damaged_anywhere_is_refused)
{
    Pair p;
    char path[600];
    // a series with damage in both image and mask, and a SEG
    DicomWrite how = mask_write();

    how.shuffle = false, how.references = "image";
    write_pair(&p, "mask_damage", how);
    snprintf(path, sizeof path, "%s/IM0002.dcm", p.mask_folder);
    EXPECT(damage_elements(path, load_damaged, &p) > 100);
    snprintf(path, sizeof path, "%s/IM0003.dcm", p.image_folder);
    EXPECT(damage_elements(path, load_damaged, &p) > 100);
    damage_memory(load_damaged, &p);
    free_pair(&p);
    write_seg(&p, "seg_damage", path);
    EXPECT(damage_elements(path, load_damaged, &p) > 100);
    damage_memory(load_damaged, &p);
    free_pair(&p);
}
