/* peer.c -- comparison with pydicom and gdcm: their files as this program reads
 * them; files of this program as pydicom and gdcm read them; and real files of
 * Debian's pydicom, read or refused as tests/data/dicom/real.csv lists. */
#include "data/dicom/tag.h"
#include "tests/support/dicom_series.h"
#include <dirent.h>
#include <stdlib.h>
#include <sys/stat.h>

#define PYTHON "/usr/bin/python3 "

static bool has(const char *command)
{
    return !system(command);
}

static const char *const pydicom =
    PYTHON "-c 'import pydicom, numpy' 2> /dev/null";

static void run(const char *command)
{
    if (system(command)) test_failed(__FILE__, __LINE__, "%s", command);
}

// compares v with a text of peer.py; positions to 1e-5 mm, voxels exactly
static void expect_text(const char *path, const Volume *v, bool placed)
{
    FILE *f = fopen(path, "r");
    int w = 0, h = 0, d = 0;
    double affine[12], x;

    REQUIRE(f && fscanf(f, "%*s %d %d %d", &w, &h, &d) == 3);
    for (int i = 0; i < 12; i++) REQUIRE(fscanf(f, "%lf", &affine[i]) == 1);
    Dims dim = v->voxels.dim;
    REQUIRE(dim.w == w && dim.h == h && dim.d == d);
    for (int i = 0; placed && i < 12; i++)
        EXPECT_NEAR(v->affine[i / 4][i % 4], affine[i], 1e-5);
    Volume same;
    REQUIRE(volume_to_f32(v, &same));
    const float *p = same.voxels.data;
    int differ = 0;
    for (int64_t i = 0; i < (int64_t)w * h * d; i++) {
        REQUIRE(fscanf(f, "%lf", &x) == 1);
        differ += (float)x != p[i];
    }
    if (differ)
        test_failed(__FILE__, __LINE__, "%s: %d voxels differ", path, differ);
    volume_free(&same);
    fclose(f);
}

// compares the case `name` by its kind
static void expect_case(const char *folder, const char *name)
{
    Arena a = {0};
    DicomIndex index;
    Volume v = {.unit = UNIT_NONE};
    char path[700];

    snprintf(path, sizeof path, "%s/%.*s", folder, (int)strlen(name) - 4, name);
    REQUIRE(dicom_scan(path, NULL, &a, &index));
    bool ok;

    if (*name == 'r') {
        // regions and contours of a structure set
        DicomSegInfo info;
        int regions = 0, contours = 0;
        snprintf(path, sizeof path, "%s/%s", folder, name);
        FILE *f = fopen(path, "r");
        REQUIRE(f && fscanf(f, "%d %d", &regions, &contours) == 2);
        fclose(f);
        REQUIRE(dicom_seg_info(index.series, &a, &info));
        EXPECT_INT(info.segments, regions);
        EXPECT_INT(info.frames, contours);
        arena_release(&a);
        return;
    }

    if (*name == 'm')
        ok = dicom_load_mask(dicom_select(&index, "image"),
                             dicom_select(&index, "mask"), NULL, &v, NULL);
    else if (*name == 'd')
        ok = dicom_load_dose(index.series, NULL, false, NULL, &v, NULL);
    else
        ok = dicom_load(index.series, NULL, &v, NULL);

    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (ok)
        expect_text(path, &v, true);
    else
        test_failed(__FILE__, __LINE__, "%s: %s", name, err_text());
    volume_free(&v);
    arena_release(&a);
}

TEST(dicom_peer_reads_what_pydicom_writes)
{
    if (!has(pydicom))
        SKIP("python3-pydicom is not installed (sh vendor/fetch test)");
    char command[900];
    const char *folder = kit_folder("pydicom");
    snprintf(command, sizeof command,
             PYTHON "tests/data/dicom/peer.py make %s > /dev/null", folder);
    run(command);
    DIR *dir = opendir(folder);
    const struct dirent *e;
    int cases = 0;
    REQUIRE(dir);

    while ((e = readdir(dir))) {
        size_t n = strlen(e->d_name);
        if (n < 5 || strcmp(e->d_name + n - 4, ".txt")) continue;
        expect_case(folder, e->d_name);
        cases++;
    }

    closedir(dir);

    // 198 synthetic ones, a real dose and a real structure set
    EXPECT_INT(cases, 202);
    test_compared(cases, "DICOM of pydicom, whole series");
}

// every file that this program writes, slice by slice, as pydicom reads it
TEST(dicom_peer_pydicom_reads_our_series)
{
    if (!dicom_ready()) SKIP("built without DCMTK");
    if (!has(pydicom))
        SKIP("python3-pydicom is not installed (sh vendor/fetch test)");

    // the syntaxes that pydicom decodes without other libraries
    static const DicomSyntax syntaxes[] = {DICOM_EXPLICIT_LE, DICOM_IMPLICIT_LE,
                                           DICOM_BIG_ENDIAN, DICOM_DEFLATED,
                                           DICOM_RLE};
    char list[600], path[700], command[900];
    Volume v;
    kit_volume(&v, 3, 5, 6, true);
    snprintf(list, sizeof list, "%s/list", kit_folder("ours"));
    FILE *f = fopen(list, "w");
    REQUIRE(f);

    for (int k = 0; k < 20; k++) {
        DicomWrite how = kit_write();
        how.syntax = syntaxes[k % 5], how.monochrome1 = k / 5 % 2;
        how.is_signed = k / 10, how.bits_stored = how.is_signed ? 15 : 14;
        if (k % 3) how.slope = 0.5, how.intercept = -4;
        char name[40];
        snprintf(name, sizeof name, "ours/%d", k);
        REQUIRE(dicom_write_series(kit_folder(name), &v, &how));
        for (int i = 1; i <= 3; i++)
            fprintf(f, "%s/IM%04d.dcm\t%s/%d.txt\n", kit_folder(name), i,
                    kit_folder(name), i);
    }

    fclose(f);
    snprintf(command, sizeof command, PYTHON "tests/data/dicom/peer.py show %s",
             list);
    run(command);

    for (int k = 0; k < 20; k++)
        for (int i = 0; i < 3; i++) {
            Volume slice = v;
            slice.voxels.dim.d = 1;
            slice.voxels.data = (int16_t *)v.voxels.data + i * 30;
            snprintf(path, sizeof path, "%s/ours/%d/%d.txt", test_folder(), k,
                     i + 1);
            expect_text(path, &slice, false);
        }

    test_compared(20 * 3, "DICOM of ours, as pydicom reads it");
    volume_free(&v);
}

TEST(dicom_peer_pydicom_reads_our_seg)
{
    if (!has(pydicom))
        SKIP("python3-pydicom is not installed (sh vendor/fetch test)");
    static const char *const names[] = {"a", "b", "c"};
    Arena a = {0};
    Volume v, mask;
    char path[600], command[800], frame[64];
    kit_volume(&v, 4, 5, 6, true);
    REQUIRE(volume_new(&mask, v.voxels.dim, U8));
    memcpy(mask.affine, v.affine, sizeof v.affine);
    uint8_t *p = mask.voxels.data;
    for (int i = 0; i < 120; i++) p[i] = (uint8_t)(i * 7 % 11 % 4);
    DicomWrite how = kit_write();
    const char *folder = kit_folder("ours_seg");
    REQUIRE(dicom_write_series(folder, &v, &how));
    snprintf(path, sizeof path, "%s/seg.dcm", kit_folder("ours_seg_out"));
    REQUIRE(dicom_write_seg(path, &mask, names, 3, kit_series(&a, folder)));
    snprintf(command, sizeof command, PYTHON "tests/data/dicom/peer.py seg %s",
             path);
    FILE *f = popen(command, "r");
    int segments = 0, frames = 0, n;
    double at[3], want[3];
    REQUIRE(f && fscanf(f, "%d %d", &segments, &frames) == 2);
    EXPECT_INT(segments, 3);
    EXPECT_INT(frames, 12);

    for (int i = 0; i < frames; i++) {
        REQUIRE(fscanf(f, "%d %lf %lf %lf %63s", &n, &at[0], &at[1], &at[2],
                       frame) == 5);
        // the slice with this position
        int slice = -1;
        for (int k = 0; k < 4; k++) {
            volume_world(&v, 0, 0, k, want);
            if (fabs(want[0] - at[0]) + fabs(want[2] - at[2]) < 1e-5) slice = k;
        }
        REQUIRE(slice >= 0 && strlen(frame) == 30);
        for (int j = 0; j < 30; j++)
            EXPECT_INT(frame[j] == '1', p[slice * 30 + j] == n);
    }

    pclose(f);
    volume_free(&mask);
    volume_free(&v);
    arena_release(&a);
}

TEST(dicom_peer_gdcm_unpacks_the_same)
{
    if (!dicom_ready()) SKIP("built without DCMTK");
    if (!has("command -v gdcmconv > /dev/null"))
        SKIP("gdcmconv is not installed (sh vendor/fetch test)");
    static const DicomSyntax syntaxes[] = {DICOM_RLE, DICOM_JPEG_LOSSLESS,
                                           DICOM_JPEG_LS, DICOM_DEFLATED};
    Arena a = {0};
    Volume v, one, two;
    kit_volume(&v, 3, 16, 18, false);

    for (int k = 0; k < 8; k++) {
        DicomWrite how = kit_write();
        how.syntax = syntaxes[k % 4], how.bits_stored = k / 4 ? 16 : 12;
        char name[40], raw[40], command[2000];
        snprintf(name, sizeof name, "gdcm%d", k);
        snprintf(raw, sizeof raw, "gdcm_raw%d", k);
        REQUIRE(dicom_write_series(kit_folder(name), &v, &how));
        for (int i = 1; i <= 3; i++) {
            snprintf(command, sizeof command,
                     "gdcmconv --raw %s/IM%04d.dcm %s/IM%04d.dcm",
                     kit_folder(name), i, kit_folder(raw), i);
            run(command);
        }
        REQUIRE(dicom_load(kit_series(&a, kit_folder(name)), NULL, &one, NULL));
        REQUIRE(dicom_load(kit_series(&a, kit_folder(raw)), NULL, &two, NULL));
        EXPECT(
            !memcmp(one.voxels.data, v.voxels.data, tensor_bytes(&v.voxels)));
        EXPECT(
            !memcmp(two.voxels.data, v.voxels.data, tensor_bytes(&v.voxels)));
        volume_free(&one);
        volume_free(&two);
    }

    test_compared(8 * 3, "packed DICOM of ours, as gdcm unpacks it");
    volume_free(&v);
    arena_release(&a);
}

// ---- real files -------------------------------------------------------------

static const char *const real_files =
    "/usr/lib/python3/dist-packages/pydicom/data/test_files";

// "read 64x64x1" or the reason without path and kind
static void outcome_of(const char *path, Volume *v, char text[400])
{
    Arena a = {0};
    DicomIndex index;
    // the files are single slices: do not require HU of a CT
    const DicomOptions o = {.assume_hu = true, .assume_implicit_le = true};

    *v = (Volume){.unit = UNIT_NONE};
    bool ok = dicom_scan(path, &o, &a, &index);

    if (ok && index.series->kind == DICOM_DOSE)
        ok = dicom_load_dose(index.series, NULL, false, &o, v, NULL);
    else if (ok && (index.series->kind == DICOM_STRUCTURE ||
                    index.series->kind == DICOM_SEG)) {
        DicomSegInfo info;
        ok = dicom_seg_info(index.series, &a, &info);
        if (ok) snprintf(text, 400, "%s of %d", info.type, info.segments);
        if (ok) goto done;
    } else if (ok)
        ok = dicom_load(index.series, &o, v, NULL);

    const char *reason = ok ? "" : strstr(err_text(), ": dicom: ");
    if (ok)
        snprintf(text, 400, "read %dx%dx%d", v->voxels.dim.w, v->voxels.dim.h,
                 v->voxels.dim.d);
    else
        snprintf(text, 400, "%s", reason ? reason + 9 : err_text());

done:
    arena_release(&a);
}

TEST(dicom_peer_real_files_of_pydicom)
{
    if (!dicom_ready()) SKIP("built without DCMTK");
    struct stat st;
    if (stat(real_files, &st))
        SKIP("python3-pydicom is not installed (sh vendor/fetch test)");
    FILE *table = fopen("tests/data/dicom/real.csv", "r");
    char line[600], list[600], path[900], command[900], got[400];
    int files = 0, read = 0, compared = 0;
    REQUIRE(table && fgets(line, sizeof line, table));
    snprintf(list, sizeof list, "%s/list", kit_folder("real"));
    FILE *wanted = fopen(list, "w");
    REQUIRE(wanted);

    while (fgets(line, sizeof line, table)) {
        char *comma = strchr(line, ',');
        REQUIRE(comma);
        *comma = 0, line[strcspn(line, "\n")] = 0;
        comma[1 + strcspn(comma + 1, "\n")] = 0;
        snprintf(path, sizeof path, "%s/%s", real_files, line);
        Volume v;
        outcome_of(path, &v, got);
        EXPECT_TEXT(got, comma + 1);
        if (v.voxels.data)
            fprintf(wanted, "%s\t%s/real/%d.txt\n", path, test_folder(),
                    read++);
        volume_free(&v);
        files++;
    }

    fclose(table);
    fclose(wanted);
    EXPECT(files >= 60 && read >= 15);
    if (!has(pydicom)) return;
    snprintf(command, sizeof command, PYTHON "tests/data/dicom/peer.py show %s",
             list);
    run(command);
    FILE *f = fopen(list, "r");
    REQUIRE(f);

    for (int i = 0; i < read; i++) {
        Volume v;
        char text[600], first[8] = "";
        REQUIRE(fgets(line, sizeof line, f));
        *strchr(line, '\t') = 0;
        outcome_of(line, &v, got);
        snprintf(text, sizeof text, "%s/real/%d.txt", test_folder(), i);
        FILE *seen = fopen(text, "r");
        REQUIRE(seen && fgets(first, sizeof first, seen));
        fclose(seen);
        // a compression without a library for this pydicom
        if (strncmp(first, "cannot", 6)) {
            expect_text(text, &v, false);
            compared++;
        }
        volume_free(&v);
    }

    fclose(f);
    EXPECT(compared >= 10);
    test_compared(compared, "real files of pydicom");
}
