/* mismatch.c -- tests of an image and a mask on different grids.
 *
 * Twelve kinds of mismatch, as files of a data set: each is rejected, and the
 * text names the properties that differ and no others. */
#include "tests/support/dicom_make.h"
#include "tests/support/volumes.h"
#include <sys/stat.h>

enum { NW = 8, NH = 8, ND = 7 };

/* Makes a mask wrong; before, *m has the grid of the image. */
typedef void Wrong(Volume *m);

static void fewer_slices(Volume *m)
{
    m->voxels.dim.d--;
}

static void thicker_slices(Volume *m)
{
    for (int r = 0; r < 3; r++) m->affine[r][2] *= 1.04;
}

static void half_a_voxel(Volume *m)
{
    for (int r = 0; r < 3; r++) m->affine[r][3] += m->affine[r][0] / 2;
}

/* by a degree about its first voxel */
static void turned(Volume *m)
{
    const double c = cos(0.0175), s = sin(0.0175);
    for (int a = 0; a < 3; a++) {
        double x = m->affine[0][a], y = m->affine[1][a];
        m->affine[0][a] = c * x - s * y;
        m->affine[1][a] = s * x + c * y;
    }
}

/* columns run the other way, and the first voxel stays: if the origin moved to
 * the other side as well, it would be the same voxels in another order */
static void flipped(Volume *m)
{
    for (int r = 0; r < 3; r++) m->affine[r][0] *= -1;
}

/* rows for columns, each with the spacing of the other */
static void swapped(Volume *m)
{
    const double wide = 1, high = 1.5; // of the row of the table
    for (int r = 0; r < 3; r++) {
        double w = m->affine[r][0] / wide;
        m->affine[r][0] = m->affine[r][1] / high * wide;
        m->affine[r][1] = w * high;
    }
}

/* left and right swapped, as when RAS is mistaken for LPS */
static void mirrored(Volume *m)
{
    for (int a = 0; a < 4; a++) m->affine[0][a] *= -1;
}

static Volume image_of(const double mm[3])
{
    Volume v = made_image(1, ND, NH, NW, true);
    made_affine(0, 0.3, mm, v.affine);
    return v;
}

TEST(mismatch_of_nifti_files_is_refused)
{
    static const double mm[3] = {1, 1, 2.5}, tall[3] = {1, 1.5, 2.5};
    static const struct {
        const char *name, *differs;
        Wrong *wrong;
        const double *mm;
    } row[] = {
        {"extents", "extents: 8x8x7, ", fewer_slices, mm},
        {"spacing", "spacing (corners ", thicker_slices, mm},
        {"origin", "origin (corners 0.5 mm apart): ", half_a_voxel, mm},
        {"direction", "directions (corners ", turned, mm},
        {"flipped", "directions (corners ", flipped, mm},
        {"swapped", "directions (corners ", swapped, tall},
        {"mirrored", "directions, origin (corners ", mirrored, mm},
    };

    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        char folder[300], path[400], want[200];
        Volume image = image_of(row[i].mm), mask = made_mask(ND, NH, NW);
        Volume got, labels;
        snprintf(folder, sizeof folder, "%s/mis_%s", test_folder(),
                 row[i].name);
        REQUIRE(!mkdir(folder, 0700));
        memcpy(mask.affine, image.affine, sizeof mask.affine);
        const DatasetNifti how = {.image = {"*_image"},
                                  .images = 1,
                                  .mask = "*_mask",
                                  .patient = PATIENT_FILE};
        Dataset *ds;
        snprintf(path, sizeof path, "%s/a_image.nii", folder);
        REQUIRE(nifti_write(path, &image, NULL));
        // on the same grid it is read; on another it is not
        for (int wrong = 0; wrong < 2; wrong++) {
            if (wrong) row[i].wrong(&mask);
            snprintf(path, sizeof path, "%s/a_mask.nii", folder);
            REQUIRE(nifti_write(path, &mask, NULL));
            REQUIRE(dataset_nifti(folder, &how, &ds));
            REQUIRE(case_load(ds, 0, 0, NULL, &got, NULL));
            bool ok = case_load(ds, 0, 1, &got, &labels, NULL);
            snprintf(want, sizeof want, "/a_mask.nii: the grids differ in %s",
                     row[i].differs);
            if (wrong) {
                EXPECT_FAIL(ok, want);
                EXPECT(
                    strstr(err_text(), "; if it does, resample_mask = true") ||
                    strstr(err_text(), "; they lie apart ("));
                EXPECT_INT(err_kind(), ERR_DATA);
            } else {
                EXPECT(ok);
            }
            if (ok) volume_free(&labels);
            volume_free(&got);
            dataset_free(ds);
        }
        volume_free(&image);
        volume_free(&mask);
    }
}

/* ---- DICOM -------------------------------------------------------------- */

typedef struct Pair {
    char root[400], image[420], mask[420];
    Volume v, m;
} Pair;

static void write_mask(Pair *p, const Volume *m)
{
    DicomWrite how = kit_write();
    how.description = "mask", how.series_number = 2, how.bits_stored = 8;
    REQUIRE(dicom_write_series(p->mask, m, &how));
}

static void write_pair(Pair *p, const char *name)
{
    static const double mm[3] = {1, 1, 2.5};
    DicomWrite how = kit_write();
    snprintf(p->root, sizeof p->root, "%s", kit_folder(name));
    snprintf(p->image, sizeof p->image, "%s/image", p->root);
    snprintf(p->mask, sizeof p->mask, "%s/mask", p->root);
    kit_volume(&p->v, ND, NH, NW, false);
    made_affine(0, 0.3, mm, p->v.affine);
    p->m = made_mask(ND, NH, NW);
    memcpy(p->m.affine, p->v.affine, sizeof p->m.affine);
    REQUIRE(dicom_write_series(p->image, &p->v, &how));
    write_mask(p, &p->m);
}

/* Loads the mask of the only case, and frees it. */
static bool load(const Pair *p, const char *mask)
{
    const DatasetDicom how = {.image = {"image"}, .images = 1, .mask = mask};
    Dataset *ds;
    Volume image, labels;
    REQUIRE(dataset_dicom(p->root, &how, &ds));
    REQUIRE(case_load(ds, 0, 0, NULL, &image, NULL));
    bool ok = case_load(ds, 0, 1, &image, &labels, NULL);
    if (ok) volume_free(&labels);
    volume_free(&image);
    dataset_free(ds);
    return ok;
}

static void free_pair(Pair *p)
{
    volume_free(&p->v);
    volume_free(&p->m);
}

TEST(dicom_mismatch_of_pixels_is_refused)
{
    Pair p;
    Volume coarse;
    write_pair(&p, "mis_pixels");
    EXPECT(load(&p, "mask"));
    Grid half = volume_grid_resize(&p.m, 0, NH / 2, NW / 2);
    REQUIRE(volume_resample(&p.m, &half, NEAREST, 0, &coarse));
    write_mask(&p, &coarse);
    EXPECT_FAIL(load(&p, "mask"), "mask: dicom: mask grid 4x4x7, 2x2x2.5 mm, ");
    EXPECT(strstr(err_text(), "; they differ in extents, spacing, origin; fix: "
                              "check that the mask belongs to this image"));
    volume_free(&coarse);
    free_pair(&p);
}

TEST(dicom_mismatch_of_places_is_refused)
{
    Pair p;
    write_pair(&p, "mis_places");
    half_a_voxel(&p.m);
    write_mask(&p, &p.m);
    EXPECT_FAIL(load(&p, "mask"), "; they differ in origin; fix: ");
    free_pair(&p);
}

TEST(dicom_mismatch_of_slices_is_refused)
{
    Pair p;
    char path[500];
    write_pair(&p, "mis_slices");
    snprintf(path, sizeof path, "%s/IM0001.dcm", p.mask);
    REQUIRE(!remove(path));
    EXPECT_FAIL(load(&p, "mask"),
                "1 of 7 image slices have no mask slice: IM0001.dcm");
    free_pair(&p);
}

TEST(dicom_mismatch_of_regions_is_refused)
{
    Pair p;
    write_pair(&p, "mis_regions");
    for (int r = 0; r < 3; r++) p.m.affine[r][3] += 5 * p.m.affine[r][0];
    write_mask(&p, &p.m);
    EXPECT_FAIL(load(&p, "mask"),
                "mask and image cover different regions: overlap 3");
    free_pair(&p);
}

TEST(dicom_mismatch_of_frames_is_refused)
{
    static const double square[] = {2, 2, 5, 2, 5, 5, 2, 5};
    const MadeContour c = {.slice = 3, .points = 4, .uv = square};
    Pair p;
    Arena a = {0};
    char path[500];

    write_pair(&p, "mis_frames");
    const MadeRegion r = {1, "organ", &c, 1, "2.25.99", 0};
    MadeSet set = {.v = &p.v,
                   .image = kit_series(&a, p.image),
                   .region = &r,
                   .regions = 1};
    snprintf(path, sizeof path, "%s/set.dcm", p.root);
    make_set(&set, path);
    EXPECT_FAIL(load(&p, "regions"),
                "region \"organ\" lies in another frame of reference");
    MadeRegion same = r;
    same.frame = NULL, set.region = &same;
    make_set(&set, path);
    EXPECT(load(&p, "regions"));
    arena_release(&a);
    free_pair(&p);
}
