/* label_maps.c -- segmentation objects of other writers: fractions kept or
 * thresholded, and label maps. */
#include "data/dataset/dataset.h"
#include "tests/support/dicom_damage.h"
#include "tests/support/dicom_make.h"
#include <stdlib.h>

enum { D = 4, H = 5, W = 6, PLANE = H * W };

typedef struct MadeSeg {
    const char *type;   // FRACTIONAL, LABELMAP, BINARY
    int allocated;      // 8
    int most;           // MaximumFractionalValue; 0: not written
    int segments, zero; // described, from 1; also number 0
    int lie;            // value of the first voxel; 0: the correct one
    bool both;          // FRACTIONAL: a second segment on the same slices
    int first;          // number of the first segment; 0: 1
    int again;          // number of the second one; 0: 2
    int of;             // segment number in the frames; 0: the correct one
    bool no_orientation, no_spacing, no_position;
    bool palette;      // PALETTE COLOR: how label maps may be shown
    double aside, far; // offset of frame 1 along x, of the last along z, mm
} MadeSeg;

// the value of voxel i of a frame on slice k
static int value(const MadeSeg *how, int k, int i)
{
    int most = how->most ? how->most : 255;
    if (how->lie && !k && !i) return how->lie;
    if (!strcmp(how->type, "LABELMAP")) return (k + i) % (how->segments + 1);
    return (k * 31 + i * 7) % (most + 1);
}

static void make_seg(const MadeSeg *how, const DicomSeries *image,
                     const Volume *v, const char *path)
{
    Make m;
    bool map = !strcmp(how->type, "LABELMAP");
    int allocated = how->allocated ? how->allocated : 8;
    int frames = how->both ? 2 * D : D;
    double mm[3], o[6];

    volume_spacing_mm(v, mm);
    for (int a = 0; a < 3; a++)
        o[a] = v->affine[a][0] / mm[0], o[3 + a] = v->affine[a][1] / mm[1];
    make_begin(&m, map ? CLASS_LABELMAP : CLASS_SEG, "2.25.66", image);
    make_text(&m, TAG_Modality, "SEG");
    make_text(&m, TAG_SeriesDescription, "labels");
    make_text(&m, TAG_PhotometricInterpretation,
              how->palette ? "PALETTE COLOR" : "MONOCHROME2");
    make_pixels(&m, frames, H, W, allocated, allocated, false);
    make_text(&m, TAG_SegmentationType, "%s", how->type);
    if (how->most) make_u16(&m, TAG_MaximumFractionalValue, how->most);
    make_open(&m, TAG_SegmentSequence);

    for (int n = how->zero ? 0 : 1; n <= how->segments; n++) {
        make_item(&m);
        make_u16(&m, TAG_SegmentNumber,
                 n == 1 && how->first   ? how->first
                 : n == 2 && how->again ? how->again
                                        : n);
        make_text(&m, TAG_SegmentLabel, "part %d", n);
        make_item_end(&m);
    }

    make_close(&m);
    make_in(&m, TAG_SharedFunctionalGroupsSequence);
    make_in(&m, TAG_PlaneOrientationSequence);
    if (!how->no_orientation)
        make_numbers(&m, TAG_ImageOrientationPatient, o, 6);
    make_out(&m);
    make_in(&m, TAG_PixelMeasuresSequence);
    if (!how->no_spacing)
        make_numbers(&m, TAG_PixelSpacing, (double[2]){mm[1], mm[0]}, 2);
    make_out(&m);
    make_out(&m);
    make_open(&m, TAG_PerFrameFunctionalGroupsSequence);

    for (int f = 0; f < frames; f++) {
        double position[3];
        volume_world(v, 0, 0, f % D, position);
        if (f % D == 1) position[0] += how->aside;
        if (f == frames - 1) position[2] += how->far;
        make_item(&m);
        make_in(&m, TAG_PlanePositionSequence);
        if (!how->no_position)
            make_numbers(&m, TAG_ImagePositionPatient, position, 3);
        make_out(&m);
        if (!map) {
            make_in(&m, TAG_SegmentIdentificationSequence);
            make_u16(&m, TAG_ReferencedSegmentNumber,
                     how->of ? how->of : 1 + f / D);
            make_out(&m);
        }
        make_item_end(&m);
    }

    make_close(&m);
    uint8_t pixels[2 * D * PLANE * 2];
    size_t n = 0;
    for (int i = 0; i < frames * PLANE; i++) {
        int x = value(how, i / PLANE % D, i % PLANE);
        pixels[n++] = (uint8_t)x;
        if (allocated == 16) pixels[n++] = (uint8_t)(x >> 8);
    }

    make_put(&m, TAG_PixelData, pixels, n);
    make_save(&m, path);
}

typedef struct Desk {
    Arena arena;
    Volume v;
    const DicomSeries *image;
    char path[600];
} Desk;

static void set_up(Desk *d, const char *name)
{
    *d = (Desk){.image = NULL};
    kit_volume(&d->v, D, H, W, true);
    DicomWrite how = kit_write();
    const char *folder = kit_folder(name);
    REQUIRE(dicom_write_series(folder, &d->v, &how));
    d->image = kit_series(&d->arena, folder);
    snprintf(d->path, sizeof d->path, "%s/seg.dcm", folder);
}

static bool load(Desk *d, const MadeSeg *how, const DicomMaskOptions *o,
                 Volume *out)
{
    make_seg(how, d->image, &d->v, d->path);
    return dicom_load_mask(d->image, kit_series(&d->arena, d->path), o, out,
                           NULL);
}

static void clear(Desk *d)
{
    volume_free(&d->v);
    arena_release(&d->arena);
}

TEST(dicom_label_fractions_are_cut_or_kept)
{
    static const int most[] = {255, 100, 1, 0};
    Desk d;
    Volume got;

    set_up(&d, "label_fractions");
    for (int k = 0; k < 4; k++) {
        const MadeSeg how = {
            .type = "FRACTIONAL", .most = most[k], .segments = 1};
        double whole = most[k] ? most[k] : 255;
        REQUIRE(load(&d, &how, NULL, &got));
        for (int i = 0; i < D * PLANE; i++)
            EXPECT_INT(((uint8_t *)got.voxels.data)[i],
                       value(&how, i / PLANE, i % PLANE) / whole >= 0.5);
        volume_free(&got);
        DicomMaskOptions o = {.fractions = true};
        REQUIRE(load(&d, &how, &o, &got));
        REQUIRE(got.voxels.type == F32);
        EXPECT(volume_same_grid(&d.v, &got));
        for (int i = 0; i < D * PLANE; i++)
            EXPECT_NEAR(((float *)got.voxels.data)[i],
                        value(&how, i / PLANE, i % PLANE) / whole, 1e-7);
        volume_free(&got);
    }
    clear(&d);
}

TEST(dicom_label_fractions_become_channels)
{
    static const char *const names[] = {"part 2", "part 1"};
    Desk d;
    Volume got;
    Dataset *ds;
    const MadeSeg how = {.type = "FRACTIONAL", .segments = 2, .both = true};

    set_up(&d, "label_channels");
    make_seg(&how, d.image, &d.v, d.path);
    DatasetDicom set = {.image = {"image"},
                        .images = 1,
                        .mask = "labels",
                        .segments = names,
                        .segment_count = 2,
                        .fractions = true};
    REQUIRE(dataset_dicom(kit_folder("label_channels"), &set, &ds));
    REQUIRE(case_load(ds, 0, 1, NULL, &got, NULL));
    EXPECT_INT(got.voxels.dim.c, 2);
    for (int i = 0; i < D * PLANE * 2; i++)
        EXPECT_NEAR(((float *)got.voxels.data)[i],
                    value(&how, i / 2 / PLANE, i / 2 % PLANE) / 255.0, 1e-7);
    volume_free(&got);
    dataset_free(ds);

    // as labels they overlap, and fractions need a name
    EXPECT_FAIL(load(&d, &how, NULL, &got),
                "segments \"part 1\" and \"part 2\" overlap (");
    DicomMaskOptions o = {.fractions = true};
    EXPECT_FAIL(load(&d, &how, &o, &got),
                "seg.dcm: dicom: fractions of 2 segments at once [tag "
                "(0062,0002) SegmentSequence]; fix: name the segments: "
                "segments = {\"...\"}");
    clear(&d);
}

TEST(dicom_label_maps)
{
    static const char *const names[] = {"part 3", "part 1"};
    static const int bits[] = {8, 16};
    Desk d;
    Volume got;

    set_up(&d, "label_maps");
    for (int k = 0; k < 4; k++) {
        const MadeSeg how = {.type = "LABELMAP",
                             .allocated = bits[k % 2],
                             .segments = 3,
                             .zero = k / 2,
                             .palette = k == 3};
        REQUIRE(load(&d, &how, NULL, &got));
        for (int i = 0; i < D * PLANE; i++)
            EXPECT_INT(((uint8_t *)got.voxels.data)[i],
                       value(&how, i / PLANE, i % PLANE));
        volume_free(&got);
        DicomMaskOptions o = {.segments = names, .segment_count = 2};
        REQUIRE(load(&d, &how, &o, &got));
        for (int i = 0; i < D * PLANE; i++) {
            int x = value(&how, i / PLANE, i % PLANE);
            EXPECT_INT(((uint8_t *)got.voxels.data)[i], x == 3   ? 1
                                                        : x == 1 ? 2
                                                                 : 0);
        }
        volume_free(&got);
        o.segment_count = 1, o.fractions = true;
        REQUIRE(load(&d, &how, &o, &got));
        for (int i = 0; i < D * PLANE; i++)
            EXPECT_NEAR(((float *)got.voxels.data)[i],
                        value(&how, i / PLANE, i % PLANE) == 3, 0);
        volume_free(&got);
    }

    DicomSegInfo info;
    REQUIRE(dicom_seg_info(kit_series(&d.arena, d.path), &d.arena, &info));
    EXPECT_TEXT(info.type, "LABELMAP");
    EXPECT_INT(info.segments, 3);
    EXPECT_INT(info.grid.d, D);
    clear(&d);
}

TEST(dicom_label_defects_have_exact_words)
{
    static const struct {
        MadeSeg how;
        const char *text;
    } rows[] = {
        {{.type = "OTHER", .segments = 1},
         "segmentation neither BINARY, FRACTIONAL nor LABELMAP [tag "
         "(0062,0001) SegmentationType]"},
        {{.type = "BINARY", .segments = 1},
         "BitsAllocated 8, need 1 in a binary segmentation [tag (0028,0100) "
         "BitsAllocated]"},
        {{.type = "FRACTIONAL", .segments = 1, .allocated = 16},
         "BitsAllocated 16, need 8 in a fractional segmentation [tag "
         "(0028,0100) BitsAllocated]"},
        {{.type = "FRACTIONAL", .segments = 1, .most = 100, .lie = 101},
         "value 101 above MaximumFractionalValue 100 [tag (7fe0,0010) "
         "PixelData]"},
        {{.type = "FRACTIONAL", .segments = 1, .most = 300},
         "MaximumFractionalValue 300, need 1 to 255 [tag (0062,000e) "
         "MaximumFractionalValue]"},
        {{.type = "LABELMAP", .segments = 2, .lie = 9},
         "value 9 in the label map, which is not described [tag (7fe0,0010) "
         "PixelData]"},
        {{.type = "LABELMAP", .segments = 2, .lie = 300, .allocated = 16},
         "value 300 in the label map, which is not described [tag (7fe0,0010) "
         "PixelData]"},
        {{.type = "FRACTIONAL", .segments = 1, .first = 256},
         "SegmentNumber 256, need 1 to 255 [tag (0062,0004) SegmentNumber]"},
        {{.type = "FRACTIONAL", .segments = 2, .again = 1},
         "two segments with number 1 [tag (0062,0004) SegmentNumber]"},
        {{.type = "FRACTIONAL", .segments = 2, .of = 3},
         "frame of segment 3, which is not described [tag (0062,000b) "
         "ReferencedSegmentNumber]"},
        {{.type = "FRACTIONAL", .segments = 1, .aside = 0.5},
         "frames of the segmentation lie on no even grid [tag (0020,0032) "
         "ImagePositionPatient]"},
        {{.type = "FRACTIONAL", .segments = 1, .far = 9e6},
         "frames 3 mm apart over 7.20001e+06 mm [tag (0020,0032) "
         "ImagePositionPatient]"},
        {{.type = "FRACTIONAL", .segments = 1, .no_orientation = true},
         "ImageOrientationPatient missing [tag (0020,0037) "
         "ImageOrientationPatient]"},
        {{.type = "FRACTIONAL", .segments = 1, .no_spacing = true},
         "PixelSpacing missing, 0, negative or NaN [tag (0028,0030) "
         "PixelSpacing]"},
        {{.type = "FRACTIONAL", .segments = 1, .no_position = true},
         "enhanced multi-frame: per-frame position missing [tag (0020,9113) "
         "PlanePositionSequence]"},
        {{.type = "FRACTIONAL"},
         "segmentation without segments [tag (0062,0002) SegmentSequence]"},
    };
    Desk d;
    set_up(&d, "label_defects");

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        Volume got;
        char want[900];
        snprintf(want, sizeof want, "%s: dicom: %s", d.path, rows[i].text);
        EXPECT(!load(&d, &rows[i].how, NULL, &got));
        EXPECT_TEXT(err_text(), want);
        EXPECT_INT(err_kind(), ERR_DATA);
    }

    // pixels of an ordinary series are not fractions
    Volume got;
    DicomMaskOptions o = {.fractions = true};
    EXPECT_FAIL(dicom_load_mask(d.image, d.image, &o, &got, NULL),
                "fractions are for a SEG or a structure set [tag (0008,0016) "
                "SOPClassUID]");
    clear(&d);
}

TEST(dicom_label_bits_are_not_packed_further)
{
    // an RLE fragment holds bytes; 1-bit frames cannot be stored in it
    static const uint8_t item[] = {0xFE, 0xFF, 0, 0xE0, 0, 0, 0, 0};
    static const uint8_t end[] = {0xFE, 0xFF, 0xDD, 0xE0, 0, 0, 0, 0};
    Desk d;
    KitFile f;
    Volume got;

    set_up(&d, "label_rle");
    make_seg(&(MadeSeg){.type = "FRACTIONAL", .segments = 1}, d.image, &d.v,
             d.path);
    REQUIRE(kit_read(d.path, &f));
    kit_set_text(&f, TAG_SegmentationType, "BINARY");
    kit_set_u16(&f, TAG_BitsAllocated, 1);
    kit_set_u16(&f, TAG_BitsStored, 1);
    kit_set_u16(&f, TAG_HighBit, 0);

    // an empty offset table, and a fragment for each frame
    size_t at = kit_find(&f, TAG_PixelData) + 8;
    kit_splice(&f, at, f.size - at, "\xFF\xFF\xFF\xFF", 4);
    for (int i = 0; i < 1 + D; i++) kit_splice(&f, f.size, 0, item, 8);
    kit_splice(&f, f.size, 0, end, 8);
    for (size_t i = 0; i + 19 < f.size; i++)
        if (!memcmp(f.bytes + i, "1.2.840.10008.1.2.1", 19))
            f.bytes[i + 18] = '5';
    REQUIRE(kit_save(&f));
    EXPECT_FAIL(dicom_load_mask(d.image, kit_series(&d.arena, d.path), NULL,
                                &got, NULL),
                "BitsAllocated 1 in compressed pixels [tag (0028,0100) "
                "BitsAllocated]");
    clear(&d);
}

/* Loads the file of a desk as labels, or one label as fractions. */
typedef struct Damaged {
    const Desk *desk;
    const char *one; /* NULL: all         */
} Damaged;

static bool load_damaged(void *ctx)
{
    const Damaged *d = ctx;
    Arena a = {0};
    DicomIndex index;
    DicomNotes notes = {0};
    DicomSegInfo info;
    Volume got;
    const DicomMaskOptions o = {.segments = &d->one,
                                .segment_count = d->one != NULL,
                                .fractions = d->one != NULL,
                                .resample_mask = true};
    bool ok = dicom_scan(d->desk->path, NULL, &a, &index) &&
              dicom_load_mask(d->desk->image, index.series, d->one ? &o : NULL,
                              &got, &notes);

    if (ok) {
        volume_free(&got);
        ok = dicom_seg_info(index.series, &a, &info);
    }
    dicom_notes_free(&notes);
    arena_release(&a);
    return ok;
}

TEST(dicom_label_damaged_anywhere_is_refused)
{
    static const MadeSeg kind[] = {
        {.type = "FRACTIONAL", .most = 100, .segments = 2, .both = true},
        {.type = "LABELMAP", .segments = 3, .zero = 1, .allocated = 16},
    };
    Desk d;
    set_up(&d, "label_damage");

    for (int k = 0; k < 2; k++) {
        Damaged of = {&d, k ? NULL : "part 2"};
        make_seg(&kind[k], d.image, &d.v, d.path);
        EXPECT(damage_elements(d.path, load_damaged, &of) > 100);
        damage_memory(load_damaged, &of);
    }
    clear(&d);
}
