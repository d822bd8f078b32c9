/* dataset_files.c -- tests of data sets made from NIfTI and DICOM folders. */
#include "data/dataset/split.h"
#include "data/format/nifti.h"
#include "data/loader/loader.h"
#include "data/metrics/stitch.h"
#include "engine/base/file.h"
#include "tests/support/volumes.h"
#include "tests/test.h"
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Returns FOLDER/name in the scratch folder and makes its parents. */
static const char *place(const char *folder, const char *name)
{
    static char path[4][512];
    static int turn;
    char *p = path[turn++ % 4];
    snprintf(p, 512, "%s/%s/%s", test_folder(), folder, name);
    char *slash = strrchr(p, '/');
    *slash = 0;
    REQUIRE(file_mkdirs(p));
    *slash = '/';
    if (!*name) *slash = 0;
    return p;
}

static void put_image(const char *folder, const char *name, uint32_t seed)
{
    Volume v = made_image(seed, 4, 6, 5, true);
    REQUIRE(nifti_write(place(folder, name), &v, NULL));
    volume_free(&v);
}

static void put_mask(const char *folder, const char *name)
{
    Volume v = made_mask(4, 6, 5);
    REQUIRE(nifti_write(place(folder, name), &v, NULL));
    volume_free(&v);
}

static void keys(const Dataset *ds, char *text, size_t room)
{
    *text = 0;
    for (int i = 0; i < ds->count; i++) {
        size_t n = strlen(text);
        snprintf(text + n, room - n, "%s%s=%s", i ? " " : "", ds->cases[i].key,
                 ds->cases[i].patient);
    }
}

/* ---- NIfTI -------------------------------------------------------------- */

static const DatasetNifti nfbs = {
    .image = {"*_T1w"}, .images = 1, .mask = "*_T1w_brainmask"};

/* Files of macOS, Windows and office programs are no cases. */
TEST(files_nifti_pass_over_those_of_systems)
{
    static const char *const junk[] = {
        "._a_T1w.nii.gz", "~$b_T1w.nii", ".hidden_T1w.nii.gz",
        "Thumbs.db",      ".DS_Store",   "__MACOSX/p/._a_T1w.nii.gz"};
    const DatasetNifti how = {.image = {"*_T1w"}, .images = 1};
    Dataset *ds;
    int count = 0;

    put_image("systems", "p/sub-1_T1w.nii.gz", 1);
    for (size_t i = 0; i < sizeof junk / sizeof *junk; i++) {
        const char *path = place("systems", junk[i]);
        REQUIRE(file_replace(path, "x", 1));
    }
    REQUIRE(dataset_nifti(place("systems", ""), &how, &ds));
    EXPECT_INT(ds->count, 1);
    const char *const *ignored = dataset_ignored_files(ds, &count);
    EXPECT_INT(count, 3); // files named like images
    bool found = false;
    for (int i = 0; i < count; i++)
        found = found || !strcmp(ignored[i], "._a_T1w.nii.gz");
    EXPECT(found);
    dataset_free(ds);
}

TEST(files_nifti_named_as_nfbs)
{
    put_image("nfbs", "A1/sub-A1_ses-2_T1w.nii.gz", 1);
    put_mask("nfbs", "A1/sub-A1_ses-2_T1w_brainmask.nii.gz");
    put_image("nfbs", "A1/sub-A1_ses-2_T1w_brain.nii.gz", 5); // not matched
    put_image("nfbs", "A1/sub-A1_ses-1_T1w.nii", 2);
    put_mask("nfbs", "A1/sub-A1_ses-1_T1w_brainmask.nii.gz");
    put_image("nfbs", "B7/sub-B7_ses-1_T1w.nii.gz", 3);
    put_mask("nfbs", "B7/sub-B7_ses-1_T1w_brainmask.nii");
    const char *root = place("nfbs", "");
    Dataset *ds;
    char text[512];
    REQUIRE(dataset_nifti(root, &nfbs, &ds));
    keys(ds, text, sizeof text);
    EXPECT_TEXT(text, "A1/sub-A1_ses-1=sub-A1 A1/sub-A1_ses-2=sub-A1 "
                      "B7/sub-B7_ses-1=sub-B7");
    Volume v, want = made_image(3, 4, 6, 5, true), m;
    REQUIRE(case_load(ds, 2, 0, NULL, &v, NULL));
    EXPECT(
        !memcmp(v.voxels.data, want.voxels.data, tensor_bytes(&want.voxels)));
    REQUIRE(case_load(ds, 2, 1, &v, &m, NULL));
    EXPECT_INT(m.voxels.type, U8);
    volume_free(&v);
    volume_free(&m);
    volume_free(&want);
    dataset_free(ds);

    // patients by folder instead
    DatasetNifti how = nfbs;
    how.patient = PATIENT_FOLDER;
    REQUIRE(dataset_nifti(root, &how, &ds));
    EXPECT_TEXT(ds->cases[2].patient, "B7");
    dataset_free(ds);

    // an image without its mask, and a mask without its image
    put_image("nfbs", "C1/sub-C1_T1w.nii.gz", 4);
    put_mask("nfbs", "D1/sub-D1_T1w_brainmask.nii.gz");
    EXPECT_FAIL(dataset_nifti(root, &nfbs, &ds),
                "2 files without a partner: no image (*_T1w) for "
                "D1/sub-D1_T1w_brainmask; no mask (*_T1w_brainmask) for "
                "C1/sub-C1; fix: skip_unmatched = true leaves them out");
    how = nfbs;
    how.all.skip_unmatched = true;
    REQUIRE(dataset_nifti(root, &how, &ds));
    EXPECT_INT(ds->count, 3);
    EXPECT_INT(ds->skipped, 2);
    dataset_free(ds);
}

TEST(files_nifti_in_two_folders)
{
    DatasetNifti how = {
        .image = {"imagesTr/*"}, .images = 1, .mask = "labelsTr/*"};
    put_image("msd", "imagesTr/hip_001.nii.gz", 1);
    put_image("msd", "imagesTr/hip_002.nii.gz", 2);
    put_mask("msd", "labelsTr/hip_001.nii.gz");
    put_mask("msd", "labelsTr/hip_002.nii.gz");
    const char *root = place("msd", "");
    Dataset *ds;
    char text[512];
    EXPECT_FAIL(dataset_nifti(root, &how, &ds), "its patient is not known");
    EXPECT(strstr(err_text(), "fix: patient = \"file\""));
    how.patient = PATIENT_FILE;
    REQUIRE(dataset_nifti(root, &how, &ds));
    keys(ds, text, sizeof text);
    EXPECT_TEXT(text, "hip_001=hip_001 hip_002=hip_002");
    dataset_free(ds);

    // the same name in both formats is ambiguous
    put_image("msd", "imagesTr/hip_002.nii", 2);
    EXPECT_FAIL(dataset_nifti(root, &how, &ds), "are both \"imagesTr/*\" of "
                                                "hip_002");
}

TEST(files_nifti_channels_and_single_files)
{
    put_image("multi", "p1/p1_flair.nii.gz", 1);
    put_image("multi", "p1/p1_t1.nii.gz", 2);
    put_mask("multi", "p1/p1_seg.nii.gz");
    DatasetNifti how = {
        .image = {"*_flair", "*_t1"}, .images = 2, .mask = "*_seg"};
    Dataset *ds;
    Volume v, a = made_image(1, 4, 6, 5, true),
              b = made_image(2, 4, 6, 5, true);
    REQUIRE(dataset_nifti(place("multi", ""), &how, &ds));
    REQUIRE(case_load(ds, 0, 0, NULL, &v, NULL));
    EXPECT_INT(v.voxels.dim.c, 2);
    for (int i = 0; i < 120; i++) {
        EXPECT(((float *)v.voxels.data)[2 * i] == ((float *)a.voxels.data)[i]);
        EXPECT(((float *)v.voxels.data)[2 * i + 1] ==
               ((float *)b.voxels.data)[i]);
    }

    volume_free(&v);
    dataset_free(ds);

    // every file that is no mask, and one file by its name
    how = (DatasetNifti){.mask = "*_seg"};
    EXPECT_FAIL(dataset_nifti(place("multi", ""), &how, &ds),
                "without a partner");
    REQUIRE(dataset_nifti(place("multi", "p1/p1_t1.nii.gz"), &how, &ds));
    EXPECT_INT(ds->count, 1);
    EXPECT_INT(ds->fields, 1);
    EXPECT_TEXT(ds->cases[0].key, "p1_t1");
    dataset_free(ds);
    EXPECT_FAIL(dataset_nifti("/nowhere", &how, &ds), "/nowhere: No such");
    how.mask = NULL;
    EXPECT_FAIL(dataset_nifti(place("empty", ""), &how, &ds), "no NIfTI files");
    volume_free(&a);
    volume_free(&b);
}

TEST(files_nifti_which_pattern_a_file_belongs_to)
{
    // a mask matches "*" too, but "*_mask" is more specific; a star does not
    // match a slash
    put_image("stars", "all/k1.nii.gz", 1);
    put_mask("stars", "all/k1_mask.nii.gz");
    put_image("stars", "all/old/k2.nii.gz", 2);
    DatasetNifti how = {.image = {"all/*"},
                        .images = 1,
                        .mask = "all/*_mask",
                        .patient = PATIENT_FILE};
    Dataset *ds;
    REQUIRE(dataset_nifti(place("stars", ""), &how, &ds));
    EXPECT_INT(ds->count, 1);
    EXPECT_TEXT(ds->cases[0].key, "k1");
    dataset_free(ds);
}

/* ---- DICOM -------------------------------------------------------------- */

/* Writes one study: an image and, if `mask`, its mask. */
static void put_study(const char *root, const char *folder, const char *id,
                      uint32_t seed, bool mask)
{
    Volume v = made_image(seed, 4, 6, 5, true), m = made_mask(4, 6, 5), s;
    char name[64];
    DicomWrite w = {.patient_id = id,
                    .description = "FLAIR",
                    .seed = seed,
                    .shuffle = true};

    snprintf(name, sizeof name, "%s/image", folder);
    place(root, folder);
    mkdir(place(root, folder), 0777);
    REQUIRE(dicom_write_series(place(root, name), &v, &w));
    w.description = "ROI", w.series_number = 2, w.references = "FLAIR";
    snprintf(name, sizeof name, "%s/labels", folder);
    if (mask) REQUIRE(dicom_write_series(place(root, name), &m, &w));
    (void)s;
    volume_free(&v);
    volume_free(&m);
}

static const DatasetDicom flair = {
    .image = {"flair"}, .images = 1, .mask = "labels"};

/* Image and mask in one folder with different PatientIDs. */
TEST(files_dicom_of_two_patients_in_one_folder)
{
    Volume v = made_image(1, 4, 6, 5, true), m = made_mask(4, 6, 5);
    DicomWrite w = {.patient_id = "ANON1", .description = "FLAIR", .seed = 1};
    const char *const said = "PatientID is \"ANON1\" in ",
                      *const other = " and \"ANON2\" in ";
    Dataset *ds;
    char root[512];
    place("two_ids", "");
    mkdir(place("two_ids", "p1"), 0777);
    snprintf(root, sizeof root, "%s", place("two_ids", ""));
    REQUIRE(dicom_write_series(place("two_ids", "p1/image"), &v, &w));
    w.patient_id = "ANON2", w.description = "ROI", w.seed = 2;
    REQUIRE(dicom_write_series(place("two_ids", "p1/labels"), &m, &w));
    EXPECT_FAIL(dataset_dicom(root, &flair, &ds), said);
    EXPECT(strstr(err_text(), other));
    EXPECT(strstr(err_text(),
                  "/p1/labels, in one folder; fix: if both are of one patient, "
                  "give them one PatientID: dcmodify -m "
                  "PatientID=ANON1 in the files of the mask"));

    // next to a complete study
    put_study("two_ids", "p2", "PAT2", 3, true);
    EXPECT_FAIL(dataset_dicom(root, &flair, &ds),
                "2 studies are not complete: no image \"flair\" in 1 (");
    EXPECT(strstr(err_text(), said) && strstr(err_text(), other));
    volume_free(&v);
    volume_free(&m);
}

/* A study without PatientID is skipped, and the message has the fix. */
TEST(files_dicom_without_patient_is_left_out)
{
    DatasetDicom how = flair;
    Dataset *ds;
    int count;
    how.files.skip_damaged = true;
    put_study("no_id", "a", "PAT1", 1, true);
    put_study("no_id", "b", "", 2, true);
    REQUIRE(dataset_dicom(place("no_id", ""), &how, &ds));
    const DicomLeftOut *left = dataset_left_out(ds, &count);
    REQUIRE(count == 1);
    EXPECT(strstr(left->text, "/b/image: no PatientID; fix: patient = "
                              "\"folder\" if there is a folder for each"));
    dataset_free(ds);
}

TEST(files_dicom_studies)
{
    put_study("dcm", "b", "PAT2", 1, true);
    put_study("dcm", "a1", "PAT1", 2, true);
    put_study("dcm", "a2", "PAT1", 3, true);
    const char *root = place("dcm", "");
    Dataset *ds;
    char text[512];
    REQUIRE(dataset_dicom(root, &flair, &ds));
    keys(ds, text, sizeof text);
    EXPECT_TEXT(text, "PAT1/1=PAT1 PAT1/2=PAT1 PAT2=PAT2");
    Volume v, m, want = made_image(1, 4, 6, 5, true), mask = made_mask(4, 6, 5);
    REQUIRE(case_load(ds, 2, 0, NULL, &v, NULL));
    REQUIRE(case_load(ds, 2, 1, &v, &m, NULL));
    EXPECT(
        !memcmp(v.voxels.data, want.voxels.data, tensor_bytes(&want.voxels)));
    EXPECT(
        !memcmp(m.voxels.data, mask.voxels.data, tensor_bytes(&mask.voxels)));
    volume_free(&v);
    volume_free(&m);
    dataset_free(ds);
    DatasetDicom how = flair;
    how.patient = PATIENT_FOLDER;
    REQUIRE(dataset_dicom(root, &how, &ds));
    keys(ds, text, sizeof text);
    EXPECT_TEXT(text, "a1=a1 a2=a2 b=b");
    dataset_free(ds);

    // a study without a mask; a name that matches no series
    put_study("dcm", "c", "PAT3", 4, false);
    EXPECT_FAIL(dataset_dicom(root, &flair, &ds), "1 study is not complete: "
                                                  "no mask \"labels\" in 1 (");
    EXPECT_FAIL(dataset_dicom(root, &flair, &ds), " has: FLAIR; fix: ");
    how = flair;
    how.all.skip_unmatched = true;
    REQUIRE(dataset_dicom(root, &how, &ds));
    EXPECT_INT(ds->count, 3);
    EXPECT_INT(ds->skipped, 1);
    dataset_free(ds);
    how.image[0] = "T2";
    EXPECT_FAIL(dataset_dicom(root, &how, &ds),
                "no study has the image \"T2\"; there are: FLAIR, ROI; or by "
                "folder: ");

    // which of two names is wrong; suitable folders are listed
    how.mask = "nosuch";
    EXPECT_FAIL(dataset_dicom(root, &how, &ds),
                "no study has the image \"T2\", mask \"nosuch\"; there are: ");
    how.image[0] = "flair";
    EXPECT_FAIL(
        dataset_dicom(root, &how, &ds),
        "no study has the mask \"nosuch\"; there are: FLAIR, ROI; or by "
        "folder: ");
    EXPECT(strstr(err_text(), "labels"));

    // the series of the mask as its image, also by its folder
    how = flair;
    how.image[0] = how.mask;
    EXPECT_FAIL(dataset_dicom(root, &how, &ds),
                "are the same series; fix: name another series");
    how.image[0] = "ROI";
    EXPECT_FAIL(dataset_dicom(root, &how, &ds),
                "image \"ROI\" and mask \"labels\" are the same series");

    // a channel that no study has, and one that only some studies lack
    how = flair;
    how.image[1] = "T2", how.images = 2;
    EXPECT_FAIL(dataset_dicom(root, &how, &ds),
                "no study has the image \"T2\";");

    // without a mask field, as for prediction; stars in names
    how = (DatasetDicom){.image = {"fl*r"}, .images = 1};
    REQUIRE(dataset_dicom(root, &how, &ds));
    EXPECT_INT(ds->count, 4);
    EXPECT_INT(ds->fields, 1);
    dataset_free(ds);
    volume_free(&want);
    volume_free(&mask);
}

TEST(files_dicom_channels_on_other_grids)
{
    put_study("grids", "p", "PAT1", 1, false);
    Volume v = made_image(9, 8, 3, 4, true), out;
    DicomWrite w = {.patient_id = "PAT1",
                    .description = "T1",
                    .seed = 1,
                    .series_number = 3};
    REQUIRE(dicom_write_series(place("grids", "p/t1"), &v, &w));
    volume_free(&v);
    DatasetDicom how = {.image = {"FLAIR", "T1"}, .images = 2};
    Dataset *ds;

    // the option for masks does not apply to channels
    how.all.resample_mask = true;
    REQUIRE(dataset_dicom(place("grids", ""), &how, &ds));
    EXPECT_FAIL(case_load(ds, 0, 0, NULL, &out, NULL),
                "; fix: resample = true");
    dataset_free(ds);
    how.all = (DatasetOptions){.resample = true};
    REQUIRE(dataset_dicom(place("grids", ""), &how, &ds));
    REQUIRE(case_load(ds, 0, 0, NULL, &out, NULL));
    EXPECT_INT(out.voxels.dim.c, 2);
    EXPECT_INT(out.voxels.dim.d, 4);
    EXPECT_INT(out.voxels.dim.h, 6);
    EXPECT_INT(out.voxels.dim.w, 5);
    volume_free(&out);
    dataset_free(ds);
}

TEST(files_dicom_ambiguous_names)
{
    put_study("twice", "p", "PAT1", 1, true);
    Volume v = made_image(9, 4, 6, 5, true);
    DicomWrite w = {.patient_id = "PAT1",
                    .description = "flair",
                    .seed = 1,
                    .series_number = 3};
    REQUIRE(dicom_write_series(place("twice", "p/other"), &v, &w));
    volume_free(&v);
    Dataset *ds;
    EXPECT_FAIL(dataset_dicom(place("twice", ""), &flair, &ds),
                "2 series are \"flair\" of one study: ");
    EXPECT(strstr(err_text(), "p/other (MR, series 3)"));
    EXPECT(strstr(err_text(), "; fix: name the series by its description, "
                              "folder or UID, or keep one of them below the "
                              "root"));

    // the folder distinguishes the two series
    DatasetDicom how = flair;
    how.image[0] = "other";
    REQUIRE(dataset_dicom(place("twice", ""), &how, &ds));
    EXPECT_INT(ds->count, 1);
    dataset_free(ds);
    how.images = 0;
    EXPECT_FAIL(dataset_dicom(place("twice", ""), &how, &ds),
                "2 series are \"the image\"");

    // identical copies in two folders are not a matter of names
    v = made_image(9, 4, 6, 5, true);
    mkdir(place("copied", ""), 0777);
    REQUIRE(dicom_write_series(place("copied", "a"), &v, &w));
    REQUIRE(dicom_write_series(place("copied", "b"), &v, &w));
    volume_free(&v);
    how = (DatasetDicom){.image = {"flair"}, .images = 1};
    EXPECT_FAIL(dataset_dicom(place("copied", ""), &how, &ds),
                "the same series two times: ");
    EXPECT(strstr(err_text(), "; fix: move one away"));
}

TEST(files_dicom_by_modality)
{
    Dataset *ds;
    Volume v = made_image(9, 4, 6, 5, true);
    DicomWrite w = {.patient_id = "PAT1", .description = "", .seed = 1};
    mkdir(place("modality", ""), 0777);
    REQUIRE(dicom_write_series(place("modality", "1.2.3"), &v, &w));
    w.modality = "CT", w.seed = 2, w.series_number = 4;
    REQUIRE(dicom_write_series(place("modality", "1.2.4"), &v, &w));
    volume_free(&v);
    DatasetDicom how = {.image = {"CT"}, .images = 1};
    REQUIRE(dataset_dicom(place("modality", ""), &how, &ds));
    EXPECT_INT(ds->count, 1);
    EXPECT_TEXT(case_series(ds, 0)->modality, "CT");
    dataset_free(ds);
    how.image[0] = "PT";
    EXPECT_FAIL(dataset_dicom(place("modality", ""), &how, &ds),
                "no study has the image \"PT\"; there are: (no description); "
                "or by folder: 1.2.3, 1.2.4; or by modality: MR, CT");

    // if a series anywhere has that name, it is a name and no modality
    v = made_image(9, 4, 6, 5, true);
    w.description = "CT", w.modality = "MR", w.patient_id = "PAT2";
    REQUIRE(dicom_write_series(place("modality", "1.2.5"), &v, &w));
    volume_free(&v);
    how.image[0] = "CT";
    EXPECT_FAIL(dataset_dicom(place("modality", ""), &how, &ds), "complete");
}

/* ---- real data ---------------------------------------------------------- */

static const char *real(const char *name)
{
    static char path[512];
    snprintf(path, sizeof path, "%s/%s", test_datasets(), name);
    return access(path, R_OK) ? NULL : path;
}

TEST(files_real_lgg)
{
    const char *root = real("lgg-dicom");
    if (!root) SKIP("no datasets/lgg-dicom");
    const DatasetDicom how = {.image = {"FLAIR"}, .images = 1, .mask = "MASK"};
    const SplitOptions split = {.seed = 42, .part[TEST_PART] = {.count = 6}};
    const PipelineOptions options = {.threads = 2,
                                     .cache_bytes = INT64_C(1) << 30};
    Dataset *ds, *part[PARTS];
    Pipeline *p[PARTS] = {NULL};
    REQUIRE(dataset_dicom(root, &how, &ds));
    EXPECT_INT(ds->count, 24);
    EXPECT_INT(dataset_patients(ds), 24);
    REQUIRE(dataset_split(ds, &split, part));
    Steps s = made_steps("resize h=128 w=128\nnormalize\nslices axis=stored\n"
                         "flip\n");
    int slices = 0, foreground = 0;
    int64_t voxels[2] = {0, 0};

    for (int k = 0; k < PARTS; k++) {
        if (!part[k]) continue;
        REQUIRE(pipeline_open(part[k], &s, &options, &p[k]));
        for (int i = 0; i < part[k]->count; i++) {
            const CaseFacts *f = pipeline_facts(p[k], i);
            slices += f->slices, foreground += f->foreground_slices;
            voxels[0] += f->voxels[0], voxels[1] += f->voxels[1];
        }
    }

    EXPECT_INT(slices, 652);

    // at half resolution a lesion of a few pixels may fall between the samples
    EXPECT(foreground >= 236 && foreground <= 241);
    EXPECT_NEAR((double)voxels[1] / (double)(voxels[0] + voxels[1]), 0.0109,
                2e-4);
    EXPECT(pipeline_check_leakage((const Pipeline *const *)p, PARTS));
    const LoaderOptions batches = {
        .batch = 16, .workers = 2, .shuffle = true, .augment = true, .seed = 1};
    Loader *l;
    const Batch *b;
    REQUIRE(loader_open(p[TRAIN_PART], &batches, &l));
    int count = 0;

    do {
        REQUIRE(loader_next(l, &b));
        count += b->count;
        const float *t = b->field[1].data;
        for (int64_t i = 0; i < numel(b->field[1].dim); i++)
            if (t[i] != 0 && t[i] != 1) EXPECT(!"a label is 0 or 1");
    } while (!b->last);

    EXPECT_INT(count, pipeline_samples(p[TRAIN_PART]));
    loader_close(l);
    for (int k = 0; k < PARTS; k++) {
        pipeline_free(p[k]);
        dataset_free(part[k]);
    }
    dataset_free(ds);
}

TEST(files_real_lgg_channels)
{
    const char *root = real("lgg-dicom");
    if (!root) SKIP("no datasets/lgg-dicom");
    DatasetDicom how = {
        .image = {"FLAIR", "T1pre", "T1post"}, .images = 3, .mask = "MASK"};
    Dataset *ds;
    EXPECT_FAIL(dataset_dicom(root, &how, &ds),
                "18 studies are not complete: no "
                "image \"T1pre\" in ");
    EXPECT(strstr(err_text(), "no image \"T1post\" in "));
    how.all.skip_unmatched = true;
    REQUIRE(dataset_dicom(root, &how, &ds));
    EXPECT_INT(ds->count, 6);
    Volume v;
    REQUIRE(case_load(ds, 0, 0, NULL, &v, NULL));
    EXPECT_INT(v.voxels.dim.c, 3);
    volume_free(&v);
    dataset_free(ds);
}

TEST(files_real_skullstrip)
{
    const char *root = real("skullstrip-ms");
    if (!root) SKIP("no datasets/skullstrip-ms");
    Dataset *ds;
    char text[512];
    REQUIRE(dataset_nifti(root, &nfbs, &ds));
    keys(ds, text, sizeof text);
    EXPECT_TEXT(text, "MS01/sub-MS01_ses-1=sub-MS01 "
                      "MS01/sub-MS01_ses-2=sub-MS01 "
                      "MS04/sub-MS04_ses-1=sub-MS04 "
                      "MS12/sub-MS12_ses-1=sub-MS12 "
                      "MS12/sub-MS12_ses-2=sub-MS12");
    Pipeline *p = made_pipeline(ds, "resample spacing_mm=1,1,0\n"
                                    "fit h=256 w=256\n"
                                    "normalize method=percentile\n"
                                    "slices axis=axial\n");
    EXPECT_INT(pipeline_samples(p), 231);

    // the mask through preparation and back
    const StitchOptions o = {.channels = 1, .values = true};
    Stitch *m;
    StitchResult back;
    Volume mask;
    REQUIRE(stitch_new(p, 0, &o, &m));
    Dims n = pipeline_dims_of(p, 0, 1);
    float *x = mem_alloc((size_t)numel(n) * sizeof *x);
    float *out[MAX_FIELDS] = {NULL, x};
    for (int32_t d = 0; d < pipeline_facts(p, 0)->dim.d; d++) {
        REQUIRE(pipeline_sample(p, d, 0, false, NULL, out));
        REQUIRE(stitch_put(m, d, x));
    }
    REQUIRE(stitch_finish(m, &back));
    REQUIRE(case_load(ds, 0, 1, NULL, &mask, NULL));
    EXPECT(volume_same_grid(&mask, &back.values));
    int64_t both = 0, sum = 0;
    for (int64_t i = 0; i < numel(mask.voxels.dim); i++) {
        bool a = ((uint8_t *)mask.voxels.data)[i];
        bool b = ((float *)back.values.voxels.data)[i] > 0.5f;
        both += a && b, sum += a + b;
    }

    EXPECT(2.0 * (double)both / (double)sum > 0.985);
    mem_free(x);
    stitch_free(m);
    stitch_result_free(&back);
    volume_free(&mask);
    pipeline_free(p);
    dataset_free(ds);
}
