/* dicom_source.c -- tests of DICOM files listed in a list of cases, and of
 * masks of other formats on their grid: the voxels of a NIfTI mask drawn on the
 * slices are the same for any order of its axes. */
#include "data/dataset/dataset_list.h"
#include "data/format/npy.h"
#include "data/preprocess/cache_key.h"
#include "tests/support/dicom_make.h"
#include "tests/support/volumes.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { CODES = 48 };

static const ListField image_field = {
    .name = "image", .kind = FIELD_IMAGE, .rank = 3, .reader = "dicom"};

static ListField mask_field(const char *reader)
{
    return (ListField){
        .name = "mask", .kind = FIELD_LABEL, .rank = 3, .reader = reader};
}

/* Opens a data set of one case with an image and, unless NULL, a second
 * field. */
static bool open_pair(const ListField *second, const char *image,
                      const char *path, const DatasetOptions *o, Dataset **out)
{
    const ListField field[] = {image_field, second ? *second : image_field};
    DatasetBuilder *b;
    ListCase c = {.key = "a", .patient = "p"};
    c.field[0].path[0] = image, c.field[0].paths = 1;
    c.field[1].path[0] = path, c.field[1].paths = 1;
    if (!dataset_list_begin(field, second ? 2 : 1, o, &b)) return false;
    if (!dataset_list_add(b, &c)) {
        dataset_drop(b);
        return false;
    }
    return dataset_finish(b, out);
}

/* Loads field 1 of case `number` on the grid of its field 0. */
static bool load_second(const Dataset *ds, int number, Volume *out)
{
    Volume image;
    REQUIRE(case_load(ds, number, 0, NULL, &image, NULL));
    bool ok = case_load(ds, number, 1, &image, out, NULL);
    if (ok) EXPECT(volume_same_grid(&image, out));
    volume_free(&image);
    return ok;
}

static void expect_equal(const Volume *want, const Volume *got)
{
    REQUIRE(dims_equal(want->voxels.dim, got->voxels.dim));
    REQUIRE(want->voxels.type == got->voxels.type);
    EXPECT(!memcmp(want->voxels.data, got->voxels.data,
                   tensor_bytes(&want->voxels)));
}

/* Returns the voxels of v in one of 48 orders: axes permuted and flipped. */
static Volume reorder(const Volume *v, int code)
{
    static const int order[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
                                    {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    int32_t n[3], m[3];
    double first[3] = {0, 0, 0};
    Grid g = {.affine = {[3] = {0, 0, 0, 1}}};
    Volume out;

    volume_extents(v, n);
    for (int a = 0; a < 3; a++) {
        const int from = order[code / 8][a];
        const bool back = code >> a & 1;
        if (back) first[from] = n[from] - 1;
        for (int r = 0; r < 3; r++)
            g.affine[r][a] = back ? -v->affine[r][from] : v->affine[r][from];
        m[a] = n[from];
    }

    g.w = m[0], g.h = m[1], g.d = m[2];
    for (int r = 0; r < 3; r++)
        g.affine[r][3] = v->affine[r][3] + v->affine[r][0] * first[0] +
                         v->affine[r][1] * first[1] +
                         v->affine[r][2] * first[2];
    REQUIRE(volume_resample(v, &g, NEAREST, 0, &out));
    return out;
}

/* Makes class numbers 0 to 2 without any symmetry on the grid of v. */
static Volume labels_on(const Volume *v)
{
    Volume mask;
    REQUIRE(volume_new(&mask, v->voxels.dim, U8));
    memcpy(mask.affine, v->affine, sizeof mask.affine);
    mask.unit = UNIT_LABEL;
    uint8_t *p = mask.voxels.data;
    for (int64_t i = 0; i < numel(mask.voxels.dim); i++)
        p[i] = (uint8_t)(i * 7 % 11 % 3);
    return mask;
}

/* Writes an oblique series of 5 slices to a folder; *image: as it is read. */
static const char *write_image(const char *name, Volume *image)
{
    Volume v;
    Arena a = {0};
    kit_volume(&v, 5, 6, 7, true);
    DicomWrite how = kit_write();
    how.shuffle = true;
    const char *folder = kit_folder(name);
    REQUIRE(dicom_write_series(folder, &v, &how));
    REQUIRE(dicom_load(kit_series(&a, folder), NULL, image, NULL));
    volume_free(&v);
    arena_release(&a);
    return folder;
}

static const DatasetOptions two = {.labels = {1, 2}, .label_count = 2};

TEST(source_nifti_mask_on_dicom_in_any_order_of_axes)
{
    Volume image, got;
    const char *folder = write_image("source_nifti", &image);
    Volume mask = labels_on(&image);
    const ListField field[] = {image_field, mask_field("nifti")};
    DatasetBuilder *b;
    Dataset *ds;

    REQUIRE(dataset_list_begin(field, 2, &two, &b));
    for (int code = 0; code < CODES; code++) {
        char path[600], key[8];
        snprintf(key, sizeof key, "c%02d", code);
        snprintf(path, sizeof path, "%s/%s.nii.gz", test_folder(), key);
        Volume turned = reorder(&mask, code);
        REQUIRE(nifti_write(path, &turned, NULL));
        volume_free(&turned);
        ListCase c = {.key = key, .patient = key};
        c.field[0].path[0] = folder, c.field[0].paths = 1;
        c.field[1].path[0] = path, c.field[1].paths = 1;
        REQUIRE(dataset_list_add(b, &c));
    }

    REQUIRE(dataset_finish(b, &ds));
    for (int code = 0; code < CODES; code++) {
        REQUIRE(load_second(ds, code, &got));
        expect_equal(&mask, &got);
        volume_free(&got);
    }

    dataset_free(ds);
    volume_free(&mask);
    volume_free(&image);
}

TEST(source_nifti_mask_elsewhere_is_refused)
{
    Volume image, got;
    const char *folder = write_image("source_elsewhere", &image);
    Volume mask = labels_on(&image), turned;
    const ListField nifti = mask_field("nifti");
    char path[600];
    Dataset *ds;

    snprintf(path, sizeof path, "%s/elsewhere.nii.gz", test_folder());
    for (int code = 0; code < CODES; code += 13)
        for (int axis = 0; axis < 3; axis++) {
            turned = reorder(&mask, code);
            // half a voxel, or a whole one: different voxels
            const double shift = code % 2 ? 0.5 : 1;
            for (int r = 0; r < 3; r++)
                turned.affine[r][3] += shift * turned.affine[r][axis];
            REQUIRE(nifti_write(path, &turned, NULL));
            volume_free(&turned);
            REQUIRE(open_pair(&nifti, folder, path, &two, &ds));
            EXPECT_FAIL(load_second(ds, 0, &got), "a: mask: ");
            EXPECT(strstr(err_text(), "the grids differ"));
            EXPECT(strstr(err_text(), "; if it does, resample_mask = true"));
            dataset_free(ds);
        }

    // voxels at the same position, but half as many
    const Grid coarse = volume_grid_resize(&mask, 0, 3, 0);
    REQUIRE(volume_resample(&mask, &coarse, NEAREST, 0, &turned));
    REQUIRE(nifti_write(path, &turned, NULL));
    volume_free(&turned);
    DatasetOptions o = two;
    REQUIRE(open_pair(&nifti, folder, path, &o, &ds));
    EXPECT_FAIL(load_second(ds, 0, &got), "; if it does, resample_mask = true");
    dataset_free(ds);
    o.resample_mask = true;
    REQUIRE(open_pair(&nifti, folder, path, &o, &ds));
    REQUIRE(load_second(ds, 0, &got));
    volume_free(&got);
    dataset_free(ds);
    volume_free(&mask);
    volume_free(&image);
}

/* data.nifti: a mask stored in another order of axes than its image. */
TEST(source_nifti_pairs_in_other_orders_of_axes)
{
    const DatasetNifti how = {.all = two,
                              .image = {"*_x"},
                              .images = 1,
                              .mask = "*_y",
                              .patient = PATIENT_FILE};
    Volume image, got;
    kit_volume(&image, 5, 6, 7, true);
    Volume mask = labels_on(&image);
    char path[600];
    Dataset *ds;
    const char *folder = kit_folder("source_orders");

    for (int code = 0; code < CODES; code += 5) {
        Volume turned = reorder(&mask, code);
        snprintf(path, sizeof path, "%s/%02d_x.nii", folder, code);
        REQUIRE(nifti_write(path, &image, NULL));
        snprintf(path, sizeof path, "%s/%02d_y.nii", folder, code);
        REQUIRE(nifti_write(path, &turned, NULL));
        volume_free(&turned);
    }

    REQUIRE(dataset_nifti(folder, &how, &ds));
    for (int i = 0; i < ds->count; i++) {
        REQUIRE(load_second(ds, i, &got));
        expect_equal(&mask, &got);
        volume_free(&got);
    }

    dataset_free(ds);
    volume_free(&mask);
    volume_free(&image);
}

TEST(source_npy_mask_by_index)
{
    Volume image, got;
    const char *folder = write_image("source_npy", &image);
    Volume mask = labels_on(&image);
    ListField npy = mask_field("npy");
    float x[5 * 6 * 7];
    char path[600];
    Dataset *ds;

    for (int i = 0; i < 5 * 6 * 7; i++)
        x[i] = ((const uint8_t *)mask.voxels.data)[i];
    snprintf(path, sizeof path, "%s/mask.npy", test_folder());
    REQUIRE(npy_write(path, 3, (int64_t[]){5, 6, 7}, x));
    REQUIRE(open_pair(&npy, folder, path, &two, &ds));
    EXPECT_FAIL(load_second(ds, 0, &got),
                "; fix: same_grid = true in its field when its voxels are "
                "those of the first field, one by one");
    dataset_free(ds);
    npy.options.same_grid = true;
    REQUIRE(open_pair(&npy, folder, path, &two, &ds));
    REQUIRE(load_second(ds, 0, &got));
    expect_equal(&mask, &got);
    volume_free(&got);
    dataset_free(ds);
    REQUIRE(npy_write(path, 3, (int64_t[]){6, 5, 7}, x));
    REQUIRE(open_pair(&npy, folder, path, &two, &ds));
    EXPECT_FAIL(load_second(ds, 0, &got),
                "mask.npy: 6 x 5 x 7 voxels (d, h, w), and the first field has "
                "5 x 6 x 7");
    dataset_free(ds);
    ListField nifti = mask_field("nifti");
    nifti.options.same_grid = true;
    EXPECT_FAIL(open_pair(&nifti, folder, path, &two, &ds),
                "mask: same_grid is for files without a position; files of "
                "nifti have one");
    volume_free(&mask);
    volume_free(&image);
}

/* A mask as series, SEG and structure set in separate files. */
TEST(source_dicom_masks_are_those_of_data_dicom)
{
    static const char *const names[] = {"b", "a"};
    const double square[] = {1, 1, 5, 1, 5, 4, 1, 4},
                 other[] = {2, 0, 4, 0, 4, 3};
    const MadeContour one[] = {{.slice = 1, .points = 4, .uv = square}},
                      more[] = {{.slice = 3, .points = 3, .uv = other}};
    const MadeRegion region[] = {{1, "a", one, 1, NULL, 0},
                                 {2, "b", more, 1, NULL, 0}};
    Arena a = {0};
    Volume image, want, got;
    char path[3][600];

    kit_folder("source_masks");
    const char *folder = write_image("source_masks/image", &image);
    const DicomSeries *series = kit_series(&a, folder);
    Volume mask = labels_on(&image);
    DicomWrite how = kit_write();
    how.description = "mask", how.bits_stored = 8;
    snprintf(path[0], 600, "%s", kit_folder("source_masks/mask"));
    REQUIRE(dicom_write_series(path[0], &mask, &how));
    snprintf(path[1], 600, "%s/seg.dcm", kit_folder("source_masks/seg"));
    REQUIRE(dicom_write_seg(path[1], &mask, names, 2, series));
    snprintf(path[2], 600, "%s/set.dcm", kit_folder("source_masks/set"));
    make_set(&(MadeSet){.v = &image,
                        .image = series,
                        .region = region,
                        .regions = 2,
                        .series = series->series_uid},
             path[2]);

    for (int k = 0; k < 3; k++)
        for (int named = 0; named < (k ? 2 : 1); named++) {
            ListField field = mask_field("dicom");
            const DicomMaskOptions o = {.labels = named ? NULL : two.labels,
                                        .label_count =
                                            named ? 0 : two.label_count,
                                        .segments = named ? names + 1 : NULL,
                                        .segment_count = named};
            field.options.dicom.mask.segments = o.segments;
            field.options.dicom.mask.segment_count = o.segment_count;
            Dataset *ds;
            REQUIRE(
                open_pair(&field, folder, path[k], named ? NULL : &two, &ds));
            REQUIRE(load_second(ds, 0, &got));
            REQUIRE(dicom_load_mask(series, kit_series(&a, path[k]), &o, &want,
                                    NULL));
            expect_equal(&want, &got);
            // its files, and the files of the image that defines its grid
            SourceFacts facts;
            const Source *s = ds->cases[0].field[1].source;
            REQUIRE(s->depends(s, &a, &facts));
            EXPECT_INT(facts.files, 5 + (k ? 1 : 5));
            REQUIRE(case_series(ds, 0));
            EXPECT_TEXT(case_series(ds, 0)->series_uid, series->series_uid);
            volume_free(&want);
            volume_free(&got);
            dataset_free(ds);
        }

    volume_free(&mask);
    volume_free(&image);
    arena_release(&a);
}

TEST(source_dicom_says_what_it_finds_instead)
{
    Volume image;
    Dataset *ds;
    char path[600];
    const char *all = kit_folder("source_wrong"),
               *folder = write_image("source_wrong/image", &image);
    Volume mask = labels_on(&image);
    ListField field = mask_field("dicom");
    DicomWrite how = kit_write();

    how.description = "other";
    REQUIRE(dicom_write_series(kit_folder("source_wrong/other"), &image, &how));
    EXPECT_FAIL(open_pair(NULL, all, NULL, NULL, &ds),
                "source_wrong: dicom: 2 series here can be an image: image "
                "(MR), other (MR); fix: the folder, or the file, of one of "
                "them");
    snprintf(path, sizeof path, "%s/seg.dcm", kit_folder("source_wrong/seg"));
    Arena a = {0};
    REQUIRE(dicom_write_seg(path, &mask, (const char *[]){"x", "y"}, 2,
                            kit_series(&a, folder)));
    EXPECT_FAIL(open_pair(NULL, path, NULL, NULL, &ds), "a: image: ");
    EXPECT(strstr(err_text(), "seg.dcm: dicom: no series here can be an image, "
                              "there is segmentation, research use only "
                              "(SEG)"));
    EXPECT_FAIL(open_pair(NULL, "/nowhere/at/all", NULL, NULL, &ds),
                "/nowhere/at/all: cannot open");

    // contours and frames need the slices on which they were drawn
    const ListField lone[] = {
        {.name = "image", .kind = FIELD_IMAGE, .rank = 3, .reader = "npy"},
        field};
    DatasetBuilder *b;
    ListCase c = {.key = "a", .patient = "p"};
    c.field[0].path[0] = "x.npy", c.field[0].paths = 1;
    c.field[1].path[0] = path, c.field[1].paths = 1;
    REQUIRE(dataset_list_begin(lone, 2, NULL, &b));
    EXPECT_FAIL(dataset_list_add(b, &c),
                "a: mask: a mask in DICOM needs the series of its image: the "
                "first field must be an image that is read by \"dicom\", too");
    EXPECT_INT(err_kind(), ERR_USAGE);
    dataset_drop(b);
    arena_release(&a);
    volume_free(&mask);
    volume_free(&image);
}

/* A rewritten slice changes the key of the image, and of the mask. */
TEST(source_dicom_files_are_in_the_cache_key)
{
    Volume image;
    CacheKey common, before, after;
    Dataset *ds;
    const char *folder = write_image("source_stamp", &image);
    const Steps none = made_steps("normalize\n");

    for (int i = 1; i <= 5; i++) {
        char path[600];
        KitFile f;
        REQUIRE(open_pair(NULL, folder, NULL, NULL, &ds));
        REQUIRE(cache_key_begin(ds, &none, &common));
        REQUIRE(cache_key_case(&common, ds, 0, &before));
        snprintf(path, sizeof path, "%s/IM%04d.dcm", folder, i);
        REQUIRE(kit_read(path, &f));
        f.bytes[f.size - 2] ^= 1;
        REQUIRE(kit_save(&f));
        REQUIRE(cache_key_case(&common, ds, 0, &after));
        EXPECT(cache_key_order(&before, &after));
        dataset_free(ds);
    }
    volume_free(&image);
}

TEST(source_dicom_multi_frame_and_loose_options)
{
    Arena a = {0};
    Volume v, got, want;
    Dataset *ds;
    char path[600];

    kit_volume(&v, 5, 6, 7, true);
    snprintf(path, sizeof path, "%s/multi", kit_folder("source_multi"));
    make_multi(&(MadeMulti){.v = &v}, path);
    REQUIRE(dicom_load(kit_series(&a, path), NULL, &want, NULL));
    REQUIRE(open_pair(NULL, path, NULL, NULL, &ds));
    REQUIRE(case_load(ds, 0, 0, NULL, &got, NULL));
    Volume same;
    REQUIRE(volume_to_f32(&want, &same));
    expect_equal(&same, &got);
    volume_free(&same);
    volume_free(&got);
    volume_free(&want);
    dataset_free(ds);

    // a CT without the unit of its values
    DicomWrite how = kit_write();
    how.modality = "CT";
    const char *folder = kit_folder("source_hu");
    REQUIRE(dicom_write_series(folder, &v, &how));

    for (int i = 1; i <= 5; i++) {
        KitFile f;
        snprintf(path, sizeof path, "%s/IM%04d.dcm", folder, i);
        REQUIRE(kit_read(path, &f));
        kit_delete(&f, TAG_RescaleIntercept);
        kit_delete(&f, TAG_RescaleSlope);
        REQUIRE(kit_save(&f));
    }

    ListField ct = image_field;
    for (int hu = 0; hu < 2; hu++) {
        DatasetBuilder *b;
        ListCase c = {.key = "a", .patient = "p"};
        ct.options.dicom.files.assume_hu = hu;
        c.field[0].path[0] = folder, c.field[0].paths = 1;
        REQUIRE(dataset_list_begin(&ct, 1, NULL, &b));
        REQUIRE(dataset_list_add(b, &c));
        REQUIRE(dataset_finish(b, &ds));
        if (hu)
            EXPECT(case_load(ds, 0, 0, NULL, &got, NULL));
        else
            EXPECT_FAIL(case_load(ds, 0, 0, NULL, &got, NULL),
                        "assume_hu = true");
        if (hu) volume_free(&got);
        dataset_free(ds);
    }

    volume_free(&v);
    arena_release(&a);
}

/* ---- real data ---------------------------------------------------------- */

static const char *real(const char *name)
{
    static char path[2][512];
    static int turn;
    turn = !turn;
    snprintf(path[turn], 512, "%s/%s", test_datasets(), name);
    return access(path[turn], R_OK) ? NULL : path[turn];
}

/* The masks of the set as NIfTI, each with another order of axes: the same
 * voxels as the DICOM masks through data.dicom. */
TEST(source_real_lgg_with_masks_in_nifti)
{
    const char *root = real("lgg-dicom");
    if (!root) SKIP("no datasets/lgg-dicom");
    const DatasetDicom how = {.image = {"FLAIR"}, .images = 1, .mask = "MASK"};
    const ListField field[] = {image_field, mask_field("nifti")};
    Dataset *dicom, *list;
    DatasetBuilder *b;
    Volume want, got;
    REQUIRE(dataset_dicom(root, &how, &dicom));
    REQUIRE(dataset_list_begin(field, 2, NULL, &b));
    int64_t tumour = 0;

    for (int i = 0; i < dicom->count; i++) {
        char path[600];
        snprintf(path, sizeof path, "%s/lgg_%02d.nii.gz", test_folder(), i);
        REQUIRE(load_second(dicom, i, &want));
        Volume turned = reorder(&want, (i * 2 + 1) % CODES);
        REQUIRE(nifti_write(path, &turned, NULL));
        volume_free(&turned);
        volume_free(&want);
        ListCase c = {.key = dicom->cases[i].key,
                      .patient = dicom->cases[i].patient};
        c.field[0].path[0] = case_series(dicom, i)->folder;
        c.field[0].paths = 1;
        c.field[1].path[0] = path, c.field[1].paths = 1;
        REQUIRE(dataset_list_add(b, &c));
    }

    REQUIRE(dataset_finish(b, &list));
    EXPECT_INT(list->count, 24);

    for (int i = 0; i < list->count; i++) {
        REQUIRE(load_second(dicom, i, &want));
        REQUIRE(load_second(list, i, &got));
        expect_equal(&want, &got);
        const uint8_t *p = got.voxels.data;
        for (int64_t k = 0; k < numel(got.voxels.dim); k++) tumour += p[k];
        volume_free(&want);
        volume_free(&got);
    }

    // the sum over all files of the set
    EXPECT(tumour > 400000);
    dataset_free(list);
    dataset_free(dicom);
}

/* Oblique slices of a scanner: a mask as SEG and as NIfTI. */
TEST(source_real_pgbm_with_masks_in_nifti_and_seg)
{
    const char *folder = real("dicom-pgbm/PGBM-003/36468-FLAIRreg-58706");
    if (!folder) SKIP("no datasets/dicom-pgbm");
    static const char *const names[] = {"one", "two"};
    Arena a = {0};
    Volume image, want, got;
    Dataset *ds;
    char path[600];
    const DicomSeries *series = kit_series(&a, folder);
    REQUIRE(dicom_load(series, NULL, &image, NULL));
    Volume mask = labels_on(&image);
    snprintf(path, sizeof path, "%s/pgbm.dcm", test_folder());
    REQUIRE(dicom_write_seg(path, &mask, names, 2, series));
    const ListField seg = mask_field("dicom"), nifti = mask_field("nifti");
    REQUIRE(open_pair(&seg, folder, path, &two, &ds));
    REQUIRE(load_second(ds, 0, &want));
    dataset_free(ds);
    expect_equal(&mask, &want);

    for (int code = 0; code < CODES; code += 7) {
        Volume turned = reorder(&want, code);
        snprintf(path, sizeof path, "%s/pgbm.nii", test_folder());
        REQUIRE(nifti_write(path, &turned, NULL));
        volume_free(&turned);
        REQUIRE(open_pair(&nifti, folder, path, &two, &ds));
        REQUIRE(load_second(ds, 0, &got));
        expect_equal(&want, &got);
        volume_free(&got);
        dataset_free(ds);
    }

    volume_free(&want);
    volume_free(&mask);
    volume_free(&image);
    arena_release(&a);
}
