/* phantom.c -- tests of synthetic patients: reproducible, readable like real
 * files, and not segmentable by a threshold. */
#include "data/phantom/phantom.h"
#include "data/dataset/dataset.h"
#include "data/phantom/scan.h"
#include "engine/base/file.h"
#include "tests/test.h"
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static Phantom small(const char *format)
{
    return (Phantom){.form = phantom_form(format),
                     .number = {8, 32, 6},
                     .seed = 3,
                     .noise = 0.03,
                     .threads = 2};
}

static const char *scratch(const char *name, char path[512])
{
    snprintf(path, 512, "%s/%s", test_folder(), name);
    return path;
}

static bool same_voxels(const Volume *a, const Volume *b)
{
    return a->voxels.type == b->voxels.type &&
           dims_equal(a->voxels.dim, b->voxels.dim) &&
           !memcmp(a->voxels.data, b->voxels.data,
                   (size_t)numel(a->voxels.dim) *
                       (a->voxels.type == U8 ? 1 : 2));
}

TEST(scan_make_is_a_function_of_its_options)
{
    Phantom how = small("dicom");
    Volume image[4], mask[4];
    REQUIRE(scan_make(&how, HEAD_FLAIR, 1, &image[0], &mask[0]));
    REQUIRE(scan_make(&how, HEAD_FLAIR, 1, &image[1], &mask[1]));
    REQUIRE(scan_make(&how, HEAD_FLAIR, 2, &image[2], &mask[2]));
    how.seed++;
    REQUIRE(scan_make(&how, HEAD_FLAIR, 1, &image[3], &mask[3]));
    EXPECT(same_voxels(&image[0], &image[1]));
    EXPECT(same_voxels(&mask[0], &mask[1]));
    EXPECT(volume_same_grid(&image[0], &mask[0]));
    EXPECT(!same_voxels(&image[0], &image[2]));
    EXPECT(!same_voxels(&image[0], &image[3]));
    for (int i = 0; i < 4; i++) {
        volume_free(&image[i]);
        volume_free(&mask[i]);
    }
}

TEST(scan_make_refuses_options)
{
    Volume image, mask;
    Phantom how = small("dicom");
    how.number[SCAN_SIZE] = 8;
    EXPECT_FAIL(scan_make(&how, HEAD_FLAIR, 0, &image, &mask),
                "size must be from 16");
    how = small("dicom"), how.number[SCAN_SLICES] = 1;
    EXPECT_FAIL(scan_make(&how, HEAD_FLAIR, 0, &image, &mask),
                "slices must be from 2");
    how = small("dicom"), how.noise = NAN;
    EXPECT_FAIL(scan_make(&how, HEAD_FLAIR, 0, &image, &mask), "noise");
    how = small("dicom"), how.number[SCAN_PATIENTS] = 0;
    EXPECT_FAIL(phantom_write("x", &how, NULL), "patients must be from 1");
}

TEST(scan_make_without_memory)
{
    Phantom how = small("dicom");
    Volume image, mask;
    long live = mem_live(), n = 0;

    for (bool ok = false; !ok && n < 20; n += !ok) {
        mem_fail_after(n, false);
        ok = scan_make(&how, HEAD_FLAIR, 0, &image, &mask);
        mem_fail_after(-1, false);
        EXPECT(ok || (!image.voxels.data && !mask.voxels.data));
    }

    EXPECT(n >= 3 && n < 20);
    volume_free(&image);
    volume_free(&mask);
    EXPECT_INT(mem_live(), live);
}

/* Returns the best result of one threshold per patient, found with the ground
 * truth: max over t of Dice({v > t}, mask). */
static double best_threshold(const Volume *image, const Volume *mask)
{
    enum { LEVELS = 4096 };
    static int64_t in[LEVELS], all[LEVELS];
    const int16_t *v = image->voxels.data;
    const uint8_t *m = mask->voxels.data;
    int64_t n = numel(image->voxels.dim), truth = 0, found = 0, both = 0;
    double best = 0;
    memset(in, 0, sizeof in);
    memset(all, 0, sizeof all);
    for (int64_t i = 0; i < n; i++)
        all[v[i]]++, in[v[i]] += m[i], truth += m[i];
    for (int t = LEVELS - 1; t >= 0; t--) {
        found += all[t], both += in[t];
        best = fmax(best, 2.0 * (double)both / (double)(found + truth));
    }
    return best;
}

TEST(phantom_flair_is_a_task)
{
    enum { PATIENTS = 28, N = 64 };
    Phantom how = {.form = phantom_form("dicom"),
                   .number = {PATIENTS, N, 24},
                   .seed = 42,
                   .noise = 0.03};
    int with = 0, largest = 0;
    double threshold = 0, least = 1e9;

    for (int p = 0; p < PATIENTS; p++) {
        Volume image, mask;
        REQUIRE(scan_make(&how, HEAD_FLAIR, p, &image, &mask));
        const int16_t *v = image.voxels.data;
        const uint8_t *m = mask.voxels.data;
        double ml = 0, spacing[3];
        for (int k = 0; k < how.number[SCAN_SLICES]; k++) {
            int count = 0;
            for (int i = 0; i < N * N; i++) {
                count += m[k * N * N + i];
                if (v[k * N * N + i] > largest) largest = v[k * N * N + i];
                EXPECT(v[k * N * N + i] >= 0);
            }
            with += count > 0;
            ml += count;
            // no tumour in the lowest and the highest slice
            if (k == 0 || k == how.number[SCAN_SLICES] - 1)
                EXPECT_INT(count, 0);
        }
        volume_spacing_mm(&image, spacing);
        least = fmin(least, ml * spacing[0] * spacing[1] * spacing[2] / 1000);
        threshold += best_threshold(&image, &mask) / PATIENTS;
        volume_free(&image);
        volume_free(&mask);
    }

    double share = (double)with / (PATIENTS * how.number[SCAN_SLICES]);
    EXPECT(share > 0.32 && share < 0.48);
    EXPECT(largest <= 4095 && largest > 1500);

    // every patient has a tumour, and a threshold does not segment it
    EXPECT(least > 10);
    EXPECT(threshold < 0.6);
}

TEST(phantom_tumour_stands_out)
{
    // brightness as drawn, and different from the surrounding tissue
    static Head h;

    for (uint32_t p = 0; p < 20; p++) {
        head_draw(&h, 42, p, true);
        EXPECT(h.bright[HEAD_FLAIR][OEDEMA] - h.bright[HEAD_FLAIR][GRAY] >
               0.14);
        EXPECT(h.bright[HEAD_FLAIR][OEDEMA] - h.bright[HEAD_FLAIR][WHITE] >
               0.3);
        head_draw(&h, 42, p, false);
        for (int i = 0; i < 8000; i++) {
            bool brain;
            float at[3] = {(float)(i % 20) * 8 - 80,
                           (float)(i / 20 % 20) * 8 - 80,
                           (float)(i / 400) * 7 - 60};
            EXPECT(head_tissue(&h, at, &brain) < OEDEMA);
        }
    }
}

/* Expects case `p` of the data set to be the result of scan_make. */
static void expect_case(const Dataset *ds, const Phantom *how,
                        HeadContrast contrast, int p)
{
    Volume image, mask, found, truth, want;
    REQUIRE(scan_make(how, contrast, p, &image, &mask));
    REQUIRE(volume_to_f32(&image, &want));
    REQUIRE(case_load(ds, p, 0, NULL, &found, NULL));
    REQUIRE(case_load(ds, p, 1, &found, &truth, NULL));
    EXPECT(same_voxels(&truth, &mask));
    EXPECT(volume_same_grid(&found, &image));

    // every third patient of the T1 set is stored with a scale
    bool scaled = contrast == HEAD_T1 && p % 3 == 2;
    float slope = scaled ? 0.25f : 1, inter = scaled ? 10 : 0;
    const float *a = want.voxels.data, *b = found.voxels.data;
    int64_t wrong = 0;
    for (int64_t i = 0; i < numel(want.voxels.dim); i++)
        wrong += b[i] != slope * a[i] + inter;
    EXPECT_INT(wrong, 0);
    volume_free(&image);
    volume_free(&mask);
    volume_free(&found);
    volume_free(&truth);
    volume_free(&want);
}

TEST(phantom_dicom_reads_back)
{
    char path[512];
    bool made = false;
    Dataset *ds;
    Phantom how = small("dicom");
    DatasetDicom files = {.image = {"FLAIR"}, .images = 1, .mask = "MASK"};

    REQUIRE(phantom_write(scratch("deep/down/flair", path), &how, &made));
    EXPECT(made);
    REQUIRE(dataset_dicom(path, &files, &ds));
    EXPECT_INT(ds->count, how.number[SCAN_PATIENTS]);
    EXPECT_INT(dataset_patients(ds), how.number[SCAN_PATIENTS]);
    EXPECT_TEXT(ds->cases[3].key, "PHANTOM_004");
    for (int p = 0; p < how.number[SCAN_PATIENTS]; p++)
        expect_case(ds, &how, HEAD_FLAIR, p);
    dataset_free(ds);

    // a second call does nothing
    REQUIRE(phantom_write(path, &how, &made));
    EXPECT(!made);
}

TEST(phantom_nifti_reads_back)
{
    char path[512], code[4];
    Dataset *ds;
    Phantom how = small("nifti");
    DatasetNifti files = {
        .image = {"*_T1w"}, .images = 1, .mask = "*_T1w_brainmask"};

    REQUIRE(phantom_write(scratch("t1", path), &how, NULL));
    REQUIRE(dataset_nifti(path, &files, &ds));
    EXPECT_INT(dataset_patients(ds), how.number[SCAN_PATIENTS]);
    for (int p = 0; p < how.number[SCAN_PATIENTS]; p++)
        expect_case(ds, &how, HEAD_T1, p);

    for (int p = 0; p < 2; p++) {
        Volume v;
        REQUIRE(case_load(ds, p, 0, NULL, &v, NULL));
        EXPECT_TEXT(volume_code(&v, code), p ? "RAS" : "LAS");
        volume_free(&v);
    }
    dataset_free(ds);
}

TEST(phantom_write_has_the_same_bytes_in_any_threads)
{
    char one[512], three[512], path[1024];
    static const char *const name[] = {
        "A00003/sub-A00003_ses-NFB3_T1w.nii.gz",
        "A00008/sub-A00008_ses-NFB3_T1w_brainmask.nii.gz"};
    Phantom how = small("nifti");

    how.threads = 1;
    REQUIRE(phantom_write(scratch("one", one), &how, NULL));
    how.threads = 3;
    REQUIRE(phantom_write(scratch("three", three), &how, NULL));

    for (int i = 0; i < 2; i++) {
        Arena mem = {0};
        char *a, *b;
        size_t bytes_a, bytes_b;
        snprintf(path, sizeof path, "%s/%s", one, name[i]);
        REQUIRE(file_read(path, 1 << 24, &mem, &a, &bytes_a));
        snprintf(path, sizeof path, "%s/%s", three, name[i]);
        REQUIRE(file_read(path, 1 << 24, &mem, &b, &bytes_b));
        EXPECT(bytes_a == bytes_b && !memcmp(a, b, bytes_a));
        arena_release(&mem);
    }
}

TEST(phantom_write_leaves_nothing_half_done)
{
    char path[512], aside[600];
    struct stat st;
    Phantom how = small("nifti");

    scratch("never", path);
    for (long n = 0; n < 60; n += 7) {
        mem_fail_after(n, true);
        EXPECT_FAIL(phantom_write(path, &how, NULL), "");
        mem_fail_after(-1, false);
        snprintf(aside, sizeof aside, "%s.tmp.%ld", path, (long)getpid());
        EXPECT(stat(path, &st) && stat(aside, &st));
    }

    // a file with the name of the folder
    REQUIRE(file_replace(path, "x", 1));
    EXPECT_FAIL(phantom_write(path, &how, NULL), path);
}

static atomic_bool stop;
static const PhantomForm *form;

/* Writes a unit of a form while the program is asked to stop. */
static bool stopped_write(const char *folder, const Phantom *how, int unit)
{
    atomic_store(&stop, true);
    return form->write(folder, how, unit);
}

/* Also in the last unit, after which `stop` is not checked again. */
TEST(phantom_write_stopped_leaves_nothing)
{
    static const char *const format[] = {"faces", "sequences"};
    char path[512], name[32];
    struct stat st;

    for (int i = 0; i < 2; i++) {
        form = phantom_form(format[i]);
        PhantomForm own = *form;
        own.write = stopped_write;
        Phantom how = {.form = &own, .number = {1, 2, 32, 8}, .stop = &stop};
        if (i) how.number[2] = 4;
        atomic_store(&stop, false);
        snprintf(name, sizeof name, "stopped_%s", format[i]);
        EXPECT_FAIL(phantom_write(scratch(name, path), &how, NULL), "stopped");
        EXPECT(stat(path, &st));
    }
}

TEST(phantom_name_tells_data_sets_apart)
{
    char a[PHANTOM_NAME], b[PHANTOM_NAME];
    Phantom how = small("dicom");
    EXPECT(!strncmp(phantom_name(&how, a), "flair-8x32x6-", 13));
    how.threads = 9;
    EXPECT_TEXT(phantom_name(&how, b), a);
    how.seed = 4;
    EXPECT(strcmp(phantom_name(&how, b), a));
    how = small("dicom"), how.noise = 0.02;
    EXPECT(strcmp(phantom_name(&how, b), a));
}
