/* rounded_positions.c -- positions with few decimals: all readers and writers
 * use the regular grid through the first and the last slice; missing slices and
 * a change of spacing are still detected. */
#include "data/dicom/tag.h"
#include "tests/support/dicom_series.h"

/* `n` slices `step` mm apart along the normal, with this number of decimals. */
typedef struct Rounded {
    int n;
    double step, first;
    int decimals;
    bool oblique;
    int lost; // number of a slice that is left out; 0: none
} Rounded;

static double rounded(double mm, int decimals)
{
    double ten = pow(10, decimals);
    return rint(mm * ten) / ten;
}

// position of slice i: along z, or along (0.6, 0, 0.8)
static void place_of(const Rounded *r, int i, double mm[3])
{
    double along = r->first + r->step * i;
    mm[0] = rounded(-10 + (r->oblique ? 0.6 * along : 0), r->decimals);
    mm[1] = -20;
    mm[2] = rounded((r->oblique ? 0.8 : 1) * along, r->decimals);
}

static void write_rounded(const Rounded *r, const char *folder,
                          const Volume *voxels, const DicomWrite *how)
{
    REQUIRE(dicom_write_series(folder, voxels, how));
    for (int i = 0; i < r->n; i++) {
        char path[600], text[80];
        double mm[3];
        KitFile f;
        snprintf(path, sizeof path, "%s/IM%04d.dcm", folder, i + 1);
        if (r->lost && i == r->lost) {
            REQUIRE(!remove(path));
            continue;
        }
        place_of(r, i, mm);
        snprintf(text, sizeof text, "%.3f\\%.3f\\%.3f", mm[0], mm[1], mm[2]);
        REQUIRE(kit_read(path, &f));
        kit_set_text(&f, TAG_ImagePositionPatient, text);
        kit_delete(&f, TAG_SliceThickness);
        if (r->oblique)
            kit_set_text(&f, TAG_ImageOrientationPatient,
                         "0.8\\0\\-0.6\\0\\1\\0");
        REQUIRE(kit_save(&f));
    }
}

static const char *make_rounded(const Rounded *r, const char *name)
{
    Volume v;
    DicomWrite how = kit_write();
    const char *folder = kit_folder(name);
    kit_volume(&v, r->n, 5, 7, false);
    write_rounded(r, folder, &v, &how);
    volume_free(&v);
    return folder;
}

TEST(dicom_rounded_positions_are_fitted)
{
    static const Rounded rows[] = {
        {12, 0.625, -30.03, 2, false, 0},   {12, 0.625, -30.035, 2, false, 0},
        {12, 2.0 / 3, -30.03, 2, false, 0}, {40, 0.5, 10.003, 2, false, 0},
        {12, 0.625, -30.03, 2, true, 0},    {12, 2.0 / 3, 5, 2, true, 0},
        {9, 5.0 / 3, -100, 2, false, 0},
    };

    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        const Rounded *r = &rows[k];
        Arena a = {0};
        Volume got = {.unit = UNIT_NONE};
        DicomNotes notes = {0};
        char name[40];
        double first[3], last[3], at[3];
        snprintf(name, sizeof name, "rounded%zu", k);
        const char *folder = make_rounded(r, name);
        REQUIRE(dicom_load(kit_series(&a, folder), NULL, &got, &notes));
        EXPECT_INT(got.voxels.dim.d, r->n);
        place_of(r, 0, first);
        place_of(r, r->n - 1, last);
        volume_world(&got, 0, 0, r->n / 2, at);
        for (int x = 0; x < 3; x++) {
            EXPECT_NEAR(got.affine[x][2], (last[x] - first[x]) / (r->n - 1),
                        1e-9);
            EXPECT_NEAR(at[x],
                        first[x] +
                            (last[x] - first[x]) * (r->n / 2) / (r->n - 1),
                        1e-9);
        }
        // 0.6245 mm for the series of 0.625 mm with two decimals
        if (k == 0) EXPECT_NEAR(got.affine[2][2], 0.6245, 1e-4);
        // distances of neighbours that differ by more than 1 %
        if (k < 3) EXPECT(kit_noted(&notes, "positions are rounded: up to "));
        dicom_notes_free(&notes);
        volume_free(&got);
        arena_release(&a);
    }
}

TEST(dicom_rounded_further_off_wants_an_option)
{
    const Rounded row = {12, 1.25, -30.03, 1, false, 0};
    const DicomOptions wide = {.position_tolerance = 0.05};
    Arena a = {0};
    Volume got;
    const DicomSeries *s = kit_series(&a, make_rounded(&row, "rounded_far"));

    EXPECT_FAIL(dicom_load(s, NULL, &got, NULL),
                "spacing varies 1.2 to 1.3 mm: IM00");
    EXPECT(strstr(err_text(), " % of a slice, more than 2 %) [tag (0020,0032) "
                              "ImagePositionPatient]; fix: position_tolerance "
                              "= 0.0"));
    REQUIRE(dicom_load(s, &wide, &got, NULL));
    EXPECT_NEAR(got.affine[2][2], 13.7 / 11, 1e-9);
    volume_free(&got);
    arena_release(&a);
}

TEST(dicom_rounded_gap_is_no_rounding)
{
    static const Rounded rows[] = {{12, 0.625, -30.03, 2, false, 5},
                                   {12, 2.0 / 3, 0, 1, false, 5},
                                   {12, 2.0 / 3, 3, 2, true, 5},
                                   {12, 3, 0, 0, false, 5}};
    const DicomOptions widest = {.position_tolerance = MOST_POSITION_TOLERANCE};

    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++)
        for (int wide = 0; wide < 2; wide++) {
            Arena a = {0};
            Volume got;
            char name[40];
            snprintf(name, sizeof name, "rounded_gap%zu_%d", k, wide);
            EXPECT_FAIL(
                dicom_load(kit_series(&a, make_rounded(&rows[k], name)),
                           wide ? &widest : NULL, &got, NULL),
                "slice missing between IM0005.dcm and IM0007.dcm: gap ");
            arena_release(&a);
        }
}

// masks of this image lie on the fitted grid, for every kind of position
TEST(dicom_rounded_masks_lie_on_the_image)
{
    const Rounded row = {12, 0.625, -30.03, 2, false, 0};
    Arena a = {0};
    Volume v, labels, mask, got;
    char path[600];
    const char *names[] = {"tumour"};
    const DicomSeries *image = kit_series(&a, make_rounded(&row, "rounded_im"));

    REQUIRE(dicom_load(image, NULL, &v, NULL));
    REQUIRE(volume_new(&labels, v.voxels.dim, U8));
    memcpy(labels.affine, v.affine, sizeof v.affine);
    uint8_t *p = labels.voxels.data;
    for (int i = 0; i < 12 * 35; i++) p[i] = i % 5 == 0 && i / 35 > 2;

    // a SEG of this program: its frames are evenly spaced, with exact positions
    snprintf(path, sizeof path, "%s/seg.dcm", kit_folder("rounded_seg"));
    REQUIRE(dicom_write_seg(path, &labels, names, 1, image));
    const DicomSeries *seg = kit_series(&a, path);
    DicomSegInfo info;
    REQUIRE(dicom_seg_info(seg, &a, &info));
    EXPECT_INT(info.grid.d, 9);
    EXPECT_NEAR(info.grid.affine[2][2], v.affine[2][2], 1e-6);
    EXPECT_NEAR(info.grid.affine[2][3], v.affine[2][3] + 3 * v.affine[2][2],
                1e-6);
    REQUIRE(dicom_load_mask(image, seg, NULL, &mask, NULL));
    EXPECT(volume_same_grid(&v, &mask));
    EXPECT(!memcmp(mask.voxels.data, p, 12 * 35));
    volume_free(&mask);

    // a series with the same rounded positions and no other relation to the
    // image
    DicomWrite how = kit_write();
    DicomNotes notes = {0};
    how.description = "mask";
    how.seed = 8;
    const char *folder = kit_folder("rounded_mask");
    write_rounded(&row, folder, &labels, &how);
    REQUIRE(dicom_load_mask(image, kit_series(&a, folder), NULL, &got, &notes));
    EXPECT(kit_noted(&notes, "mask paired by ImagePositionPatient"));
    EXPECT(volume_same_grid(&v, &got));
    EXPECT(!memcmp(got.voxels.data, p, 12 * 35));
    dicom_notes_free(&notes);
    volume_free(&got);
    volume_free(&labels);
    volume_free(&v);
    arena_release(&a);
}

// ---- runs of slices with a spacing of their own -----------------------------

static const double *wanted_z;

static void put_z(KitFile *f, int n)
{
    char text[64];
    snprintf(text, sizeof text, "-5\\7\\%g", wanted_z[n - 1]);
    kit_set_text(f, TAG_ImagePositionPatient, text);
}

TEST(dicom_rounded_runs_of_another_spacing_are_named)
{
    static const double head[] = {0,  2.5,  5,    7.5,  10,  12.5,
                                  15, 17.5, 22.5, 27.5, 32.5};
    static const double ct[] = {0, 4, 8, 12, 19, 26, 33};
    static const double alternate[] = {0, 3, 6, 12, 18, 21, 24};
    static const struct {
        const double *z;
        int n;
        const char *text;
    } rows[] = {
        {head, 11,
         "2 spacings in one series: 7 of 2.5 mm (IM0001.dcm to IM0008.dcm), 3 "
         "of 5 mm (IM0008.dcm to IM0011.dcm) [tag (0020,0032) "
         "ImagePositionPatient]; fix: make a volume of even slices of it, as "
         "dcm2niix does (_Eq), or keep the files of one run"},
        {ct, 7,
         "2 spacings in one series: 3 of 4 mm (IM0001.dcm to IM0004.dcm), 3 of "
         "7 mm (IM0004.dcm to IM0007.dcm)"},
        // every second slice is missing for a while
        {alternate, 7,
         "slice missing between IM0003.dcm and IM0004.dcm: gap 6 mm, median 3 "
         "mm"},
    };

    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        Arena a = {0};
        Volume v, got;
        char name[40], path[600];
        DicomWrite how = kit_write();
        snprintf(name, sizeof name, "runs%zu", k);
        const char *folder = kit_folder(name);
        kit_volume(&v, rows[k].n, 3, 4, false);
        REQUIRE(dicom_write_series(folder, &v, &how));
        wanted_z = rows[k].z;
        for (int i = 1; i <= rows[k].n; i++) {
            KitFile f;
            snprintf(path, sizeof path, "%s/IM%04d.dcm", folder, i);
            REQUIRE(kit_read(path, &f));
            put_z(&f, i);
            REQUIRE(kit_save(&f));
        }
        EXPECT_FAIL(dicom_load(kit_series(&a, folder), NULL, &got, NULL),
                    rows[k].text);
        volume_free(&v);
        arena_release(&a);
    }
}
