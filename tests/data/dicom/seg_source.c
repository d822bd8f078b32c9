/* seg_source.c -- a SEG and its source: each frame names the slice with the
 * same pixel positions, also if dicom_load straightened the stack. */
#include "data/dicom/file.h"
#include "data/dicom/group.h"
#include "data/dicom/header.h"
#include "data/dicom/stack.h"
#include "tests/support/dicom_make.h"
#include "tests/support/dicom_series.h"

static const char *const names[] = {"tumour", "spleen"};

// a mask of pseudo-random labels 0 to 2 on the grid of an image
static void make_mask(const Volume *image, Volume *mask)
{
    uint32_t seed = 7;
    REQUIRE(volume_new(mask, image->voxels.dim, U8));
    memcpy(mask->affine, image->affine, sizeof image->affine);
    mask->unit = UNIT_LABEL;
    uint8_t *v = mask->voxels.data;
    for (int64_t i = 0; i < positions(mask->voxels.dim); i++) {
        seed = seed * 1664525 + 1013904223;
        v[i] = (uint8_t)((seed >> 24) % 3);
    }
}

// Checks the SEG `path`: every frame names an instance with the same pixel
// positions, for a multi-frame source also the frame number. Returns how many
// frames.
static int expect_sources(const char *path, bool multi)
{
    DicomFile f;
    uint32_t end;
    int frames = 0;

    REQUIRE(dicom_file_open(path, NULL, false, &f) == WALK_DONE);
    const Walk *w = &f.walk;
    uint32_t i =
        group_items(w, WALK_ROOT, TAG_PerFrameFunctionalGroupsSequence, &end);

    for (; i < end; i = w->element[i].next, frames++) {
        const WalkElement *sources = group_inside(
            w, i, TAG_DerivationImageSequence, TAG_SourceImageSequence);
        REQUIRE(sources);
        const uint32_t item = walk_item(w, sources, 0);
        EXPECT(group_says(w, walk_find(w, item, TAG_SpatialLocationsPreserved),
                          "YES"));
        EXPECT(walk_find(w, item, TAG_ReferencedSOPInstanceUID));
        EXPECT_INT(walk_find(w, item, TAG_ReferencedFrameNumber) != NULL,
                   multi);
    }

    dicom_file_close(&f);
    return frames;
}

TEST(dicom_seg_says_that_locations_are_preserved)
{
    for (int multi = 0; multi < 2; multi++) {
        Arena a = {0};
        Volume v, mask;
        char path[600];
        const char *folder = kit_folder(multi ? "kept_multi" : "kept");
        const DicomWrite how = kit_write();
        kit_volume(&v, 4, 6, 7, true);
        snprintf(path, sizeof path, "%s/multi.dcm", folder);
        if (multi)
            make_multi(&(MadeMulti){.v = &v}, path);
        else
            REQUIRE(dicom_write_series(folder, &v, &how));
        make_mask(&v, &mask);
        // slice 2 has no voxel of the first segment, and no frame for it
        uint8_t *label = mask.voxels.data;
        for (int i = 2 * 42; i < 3 * 42; i++) label[i] &= 2;
        snprintf(path, sizeof path, "%s/seg.dcm",
                 kit_folder(multi ? "kept_multi_seg" : "kept_seg"));
        REQUIRE(dicom_write_seg(path, &mask, names, 2, kit_series(&a, folder)));
        EXPECT_INT(expect_sources(path, multi), 7);
        volume_free(&mask);
        volume_free(&v);
        arena_release(&a);
    }
}

TEST(dicom_seg_of_a_tilted_stack_lies_on_its_slices)
{
    // drift in rows per slice: whole voxels and fractions; both directions
    static const double drift[] = {1, -1, 0.4, -0.7};
    const DicomOptions read = {.resample_tilt = true};

    for (int i = 0; i < 4; i++) {
        Arena a = {0};
        Volume v, image, mask, got;
        char name[40], path[600];
        kit_volume(&v, 4, 9, 7, false);
        v.affine[1][2] = 2 * drift[i];
        snprintf(name, sizeof name, "tilted_%d", i);
        const DicomWrite how = kit_write();
        REQUIRE(dicom_write_series(kit_folder(name), &v, &how));
        const DicomSeries *s = kit_series(&a, kit_folder(name));
        REQUIRE(dicom_load(s, &read, &image, NULL));
        const Dims dim = image.voxels.dim;
        EXPECT_INT(dim.h, 9 + (int)ceil(3 * fabs(drift[i])));
        make_mask(&image, &mask);
        // a file on the slices can only hold the rows of the slices
        uint8_t *label = mask.voxels.data;
        for (int k = 0; k < 4; k++)
            for (int j = 0; j < dim.h; j++) {
                // a negative drift adds rows in front
                const int front = drift[i] < 0 ? dim.h - 9 : 0;
                const double row = j - front - k * drift[i];
                if (row < -0.5 || row > 8.5)
                    memset(label + (k * dim.h + j) * 7, 0, 7);
            }
        snprintf(name, sizeof name, "tilted_seg_%d", i);
        snprintf(path, sizeof path, "%s/seg.dcm", kit_folder(name));
        REQUIRE(dicom_write_seg(path, &mask, names, 2, s));
        expect_sources(path, false);
        const DicomMaskOptions o = {.image = read};
        REQUIRE(dicom_load_mask(s, kit_series(&a, path), &o, &got, NULL));
        EXPECT(volume_same_grid(&got, &mask));
        int64_t differ = 0, n = positions(dim);
        const uint8_t *g = got.voxels.data;
        for (int64_t k = 0; k < n; k++) differ += g[k] != label[k];
        // nearest neighbour there and back gives the same voxel
        EXPECT_INT(differ, 0);
        volume_free(&got);
        volume_free(&mask);
        volume_free(&image);
        volume_free(&v);
        arena_release(&a);
    }
}

// position and direction of each frame equal those of the named slice
TEST(dicom_seg_of_a_tilted_stack_has_the_planes_of_its_slices)
{
    Arena a = {0};
    Volume v, image, mask;
    DicomFile f, source;
    DicomHeader h;
    char path[600];
    uint32_t end;

    kit_volume(&v, 4, 9, 7, false);
    v.affine[1][2] = 1.1;
    const DicomWrite how = kit_write();
    REQUIRE(dicom_write_series(kit_folder("planes"), &v, &how));
    const DicomSeries *s = kit_series(&a, kit_folder("planes"));
    REQUIRE(
        dicom_load(s, &(DicomOptions){.resample_tilt = true}, &image, NULL));
    make_mask(&image, &mask);
    snprintf(path, sizeof path, "%s/seg.dcm", kit_folder("planes_seg"));
    REQUIRE(dicom_write_seg(path, &mask, names, 2, s));
    REQUIRE(dicom_file_open(path, NULL, false, &f) == WALK_DONE);
    const Walk *w = &f.walk;
    uint32_t i =
        group_items(w, WALK_ROOT, TAG_PerFrameFunctionalGroupsSequence, &end);
    int frames = 0;

    for (; i < end; i = w->element[i].next, frames++) {
        double at[3];
        bool found;
        REQUIRE(header_position(w,
                                group_inside(w, i, TAG_PlanePositionSequence,
                                             TAG_ImagePositionPatient),
                                at, &found));
        const WalkElement *sources = group_inside(
            w, i, TAG_DerivationImageSequence, TAG_SourceImageSequence);
        const WalkElement *uid = walk_find(w, walk_item(w, sources, 0),
                                           TAG_ReferencedSOPInstanceUID);
        bool hit = false;
        for (int32_t k = 0; k < s->count; k++) {
            REQUIRE(dicom_file_open(s->paths[k], NULL, false, &source) ==
                    WALK_DONE);
            REQUIRE(header_identity(&source.walk, &a, &h));
            REQUIRE(header_geometry(&source.walk, NULL, &h));
            if (group_says(w, uid, h.sop_uid)) {
                hit = true;
                for (int x = 0; x < 3; x++)
                    EXPECT_NEAR(at[x], h.position_mm[x], 1e-9);
            }
            dicom_file_close(&source);
        }
        EXPECT(hit);
    }

    EXPECT_INT(frames, 8);

    // slices are 3 mm apart along the normal, and farther along the step
    const WalkElement *shared = group_inside(
        w,
        walk_item(
            w, walk_find(w, WALK_ROOT, TAG_SharedFunctionalGroupsSequence), 0),
        TAG_PixelMeasuresSequence, TAG_SpacingBetweenSlices);
    double spacing;
    bool found;
    REQUIRE(header_numbers(w, shared, 1, &spacing, &found));
    EXPECT_NEAR(spacing, 3, 1e-9);
    dicom_file_close(&f);
    volume_free(&mask);
    volume_free(&image);
    volume_free(&v);
    arena_release(&a);
}

TEST(dicom_fractions_of_a_tilted_stack_lie_on_its_slices)
{
    Arena a = {0};
    Volume v, image, fractions, got;
    char path[600];
    const DicomOptions read = {.resample_tilt = true};

    kit_volume(&v, 4, 9, 7, false);
    v.affine[1][2] = 2;
    const DicomWrite how = kit_write();
    REQUIRE(dicom_write_series(kit_folder("soft"), &v, &how));
    const DicomSeries *s = kit_series(&a, kit_folder("soft"));
    REQUIRE(dicom_load(s, &read, &image, NULL));
    const Dims dim = image.voxels.dim;
    REQUIRE(volume_new(&fractions, dim, F32));
    memcpy(fractions.affine, image.affine, sizeof image.affine);

    // drift of one row per slice: row j of slice k is row j - k of the file
    float *x = fractions.voxels.data;
    for (int k = 0; k < 4; k++)
        for (int j = k; j < k + 9; j++)
            for (int i = 0; i < 7; i++)
                x[(k * dim.h + j) * 7 + i] = (float)((i + j) % 5) / 5;
    snprintf(path, sizeof path, "%s/seg.dcm", kit_folder("soft_seg"));
    REQUIRE(dicom_write_fractions(path, &fractions, 0, names, 1, s));
    const DicomMaskOptions o = {.image = read, .fractions = true};
    REQUIRE(dicom_load_mask(s, kit_series(&a, kit_folder("soft_seg")), &o, &got,
                            NULL));
    const float *y = got.voxels.data;
    for (int64_t i = 0; i < positions(dim); i++)
        EXPECT_NEAR(y[i], x[i], 1.0 / 500);
    volume_free(&got);
    volume_free(&fractions);
    volume_free(&image);
    volume_free(&v);
    arena_release(&a);
}

static void no_meta(KitFile *f, int file)
{
    (void)file;
    kit_splice(f, 0, kit_find(f, TAG_SpecificCharacterSet), NULL, 0);
}

TEST(dicom_seg_of_a_source_without_transfer_syntax)
{
    const DicomOptions assumed = {.assume_implicit_le = true};
    static const KitRow row = {
        .all = true, .edit = no_meta, .syntax = DICOM_IMPLICIT_LE};
    Arena a = {0};
    DicomIndex index;
    Volume image, mask;
    char path[600];

    REQUIRE(dicom_scan(kit_damage(&row, "no_syntax"), &assumed, &a, &index));
    REQUIRE(dicom_load(index.series, &assumed, &image, NULL));
    make_mask(&image, &mask);
    snprintf(path, sizeof path, "%s/seg.dcm", kit_folder("no_syntax_seg"));
    REQUIRE(dicom_write_seg(path, &mask, names, 2, index.series));
    expect_sources(path, false);
    volume_free(&mask);
    volume_free(&image);
    arena_release(&a);
}

TEST(dicom_seg_segment_by_its_number)
{
    static const char *const alike[] = {"GTV", "GTV"}, *const second[] = {"#2"},
                             *const twice[] = {"GTV_2", "#2"},
                             *const apart[] = {"GTV", "GTV_2"};
    Arena a = {0};
    Volume v, mask, got;
    char path[600];

    kit_volume(&v, 3, 6, 7, false);
    const DicomWrite how = kit_write();
    REQUIRE(dicom_write_series(kit_folder("alike"), &v, &how));
    const DicomSeries *s = kit_series(&a, kit_folder("alike"));
    make_mask(&v, &mask);
    snprintf(path, sizeof path, "%s/seg.dcm", kit_folder("alike_seg"));
    REQUIRE(dicom_write_seg(path, &mask, alike, 2, s));
    const DicomSeries *seg = kit_series(&a, kit_folder("alike_seg"));
    const DicomMaskOptions by_name = {.segments = alike, .segment_count = 1};
    EXPECT_FAIL(
        dicom_load_mask(s, seg, &by_name, &got, NULL),
        "2 segments called \"GTV\", need 1; their numbers are 1, 2 [tag "
        "(0062,0005) SegmentLabel]; fix: take one by its number: "
        "segments = {\"#NUMBER\"}");
    const DicomMaskOptions by_number = {.segments = second, .segment_count = 1};
    REQUIRE(dicom_load_mask(s, seg, &by_number, &got, NULL));
    const uint8_t *g = got.voxels.data, *m = mask.voxels.data;
    for (int64_t i = 0; i < positions(v.voxels.dim); i++)
        EXPECT_INT(g[i], m[i] == 2);
    volume_free(&got);
    REQUIRE(dicom_write_seg(path, &mask, apart, 2, s));
    const DicomMaskOptions both = {.segments = twice, .segment_count = 2};
    EXPECT_FAIL(dicom_load_mask(s, seg, &both, &got, NULL),
                "segment \"GTV_2\" (number 2) is asked for twice");
    volume_free(&mask);
    volume_free(&v);
    arena_release(&a);
}
