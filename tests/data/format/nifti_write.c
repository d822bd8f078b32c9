/* nifti_write.c -- tests of written NIfTI files, read back by segengine,
 * nibabel and nifti_tool, and of files of nibabel, read by segengine. Real
 * scans of a data set. */
#include "engine/base/file.h"
#include "engine/base/rng.h"
#include "tests/support/nifti_make.h"
#include "tests/test.h"
#include <dirent.h>
#include <stdlib.h>
#include <sys/stat.h>

static void scratch(char path[300], const char *name)
{
    snprintf(path, 300, "%s/%s", test_folder(), name);
}

/* Makes a small volume with axis code 0 .. 47, rotated by `turn`, and noise. */
static void synthetic(Volume *v, int code, double turn, Dtype type)
{
    static const int order[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
                                    {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    static const double edge[3] = {0.8, 1.1, 2.5};
    double base[4][4] = {{0}}, spin[4][4] = {{0}};

    REQUIRE(volume_new(v, (Dims){1, 3, 4, 5, 1}, type));
    for (int a = 0; a < 3; a++)
        base[order[code / 8][a]][a] = code >> a & 1 ? -edge[a] : edge[a];
    base[0][3] = 12.5, base[1][3] = -40, base[2][3] = 7.75, base[3][3] = 1;
    spin[0][0] = spin[1][1] = cos(turn), spin[2][2] = spin[3][3] = 1;
    spin[0][1] = -sin(turn), spin[1][0] = sin(turn);
    affine_multiply(spin, base, v->affine);
    Rng r = {.seed = 6, .stream = RNG_TEST, .sample = (uint32_t)code};

    for (uint32_t i = 0; i < 60; i++) {
        float x = rng_range(&r, i, 0, 255);
        if (type == U8)
            ((uint8_t *)v->voxels.data)[i] = (uint8_t)x;
        else if (type == I16)
            ((int16_t *)v->voxels.data)[i] = (int16_t)(x * 200 - 25000);
        else
            ((float *)v->voxels.data)[i] = x - 100;
    }
}

static void expect_same(const Volume *got, const Volume *want)
{
    EXPECT_INT(got->voxels.type, want->voxels.type);
    REQUIRE(dims_equal(got->voxels.dim, want->voxels.dim));
    EXPECT(!memcmp(got->voxels.data, want->voxels.data,
                   tensor_bytes(&want->voxels)));
    for (int r = 0; r < 3; r++)
        for (int c = 0; c < 4; c++) // float32; a quaternion near a half turn
            EXPECT_NEAR(got->affine[r][c], want->affine[r][c],
                        5e-6 * (1 + fabs(want->affine[r][c])));
}

TEST(nifti_round_trip_on_48_codes)
{
    static const char *name[] = {"rt.nii", "rt.nii.gz"};
    static const Dtype types[] = {U8, I16, F32};
    static const double turns[] = {0, 0.3, 3};
    char path[300];

    for (int code = 0; code < 48; code++) {
        Volume v, back;
        NiftiHeader h;
        synthetic(&v, code, turns[code % 3], types[code / 3 % 3]);
        scratch(path, name[code % 2]);
        REQUIRE(nifti_write(path, &v, NULL));
        // all three readings of the header: both forms, and each alone
        for (int form = NIFTI_BOTH; form <= NIFTI_QFORM; form++) {
            NiftiOptions o = {.form = (NiftiForm)form};
            REQUIRE(nifti_read(path, &o, &back, &h));
            expect_same(&back, &v);
            volume_free(&back);
        }
        EXPECT_INT(h.qform, 1);
        EXPECT_INT(h.sform, 1);
        EXPECT_INT(h.version, 1);
        // and again with the header that was read
        REQUIRE(nifti_write(path, &v, &h));
        REQUIRE(nifti_read(path, NULL, &back, NULL));
        expect_same(&back, &v);
        volume_free(&back);
        volume_free(&v);
    }
}

TEST(nifti_write_shear_has_no_quaternion)
{
    Volume v, back;
    NiftiHeader h;
    char path[300];

    scratch(path, "shear.nii");
    synthetic(&v, 3, 0.2, U8);
    v.affine[0][2] += 0.4;
    REQUIRE(nifti_write(path, &v, NULL));
    REQUIRE(nifti_read(path, NULL, &back, &h));
    EXPECT_INT(h.qform, 0);
    expect_same(&back, &v);
    volume_free(&back);
    volume_free(&v);
}

/* Returns the bytes of a file; count in *n. Freed with the arena. */
static char *content(Arena *a, const char *path, size_t *n)
{
    char *data = NULL;
    REQUIRE(file_read(path, 1 << 24, a, &data, n));
    return data;
}

static bool contains(const char *data, size_t n, const char *word)
{
    size_t m = strlen(word);
    for (size_t i = 0; i + m <= n; i++)
        if (!memcmp(data + i, word, m)) return true;
    return false;
}

TEST(nifti_write_keeps_the_input_header)
{
    static const struct {
        int qform, sform, units;
        double qfac;
    } row[] = {
        {1, 0, 2, 1},  {0, 4, 0, 1}, {2, 1, 10, 0},
        {1, 0, 3, -1}, {0, 0, 2, 1}, {1, 2, 1, 1},
    };
    char in[300], path[300];

    for (size_t r = 0; r < sizeof row / sizeof *row; r++)
        for (int version = 1; version <= 2; version++) {
            Maker m;
            Volume v, mask, back;
            NiftiHeader h, kept;
            Arena mem = {0};
            size_t n;
            NiftiOptions o = {.assume_spacing = true};
            make(&m, version, r % 2);
            set(&m, &qform, 0, row[r].qform);
            set(&m, &sform, 0, row[r].sform);
            set(&m, &units, 0, row[r].units);
            set(&m, &pixdim, 0, row[r].qfac);
            set(&m, &dim, 0, 4);
            set(&m, &slope, 0, 2);
            // texts that may name a person
            size_t text = version == 1 ? 148 : 240;
            memcpy(m.bytes + text, "MARKER^DESCRIP", 14);
            memcpy(m.bytes + text + 80, "MARKER^AUX", 10);
            memcpy(m.bytes + (version == 1 ? 328 : 508), "MARKER^NAME", 11);
            scratch(in, "like.nii");
            REQUIRE(file_replace(in, m.bytes, m.size));
            REQUIRE(nifti_read(in, &o, &v, &h));
            REQUIRE(volume_new(&mask, v.voxels.dim, U8));
            memcpy(mask.affine, v.affine, sizeof v.affine);
            ((uint8_t *)mask.voxels.data)[7] = 3;
            scratch(path, "kept.nii");
            REQUIRE(nifti_write(path, &mask, &h));
            REQUIRE(nifti_read(path, &o, &back, &kept));
            expect_same(&back, &mask);
            EXPECT(!memcmp(back.affine, v.affine, sizeof v.affine));
            EXPECT_INT(kept.version, version);
            EXPECT_INT(kept.qform, row[r].qform);
            EXPECT_INT(kept.sform, row[r].sform);
            EXPECT_INT(kept.units, row[r].units);
            EXPECT_INT(kept.dim[0], 4);
            EXPECT_INT(kept.datatype, 2);
            EXPECT(kept.slope == 1 && kept.inter == 0);
            EXPECT(!memcmp(kept.quatern, h.quatern, sizeof h.quatern));
            EXPECT(!memcmp(kept.offset, h.offset, sizeof h.offset));
            EXPECT(!memcmp(kept.srow, h.srow, sizeof h.srow));
            EXPECT(!memcmp(kept.pixdim, h.pixdim, sizeof h.pixdim));
            char *data = content(&mem, path, &n);
            EXPECT(!contains(data, n, "MARKER"));
            // a volume at another position
            mask.affine[1][3] += 0.02 * mask.affine[2][2];
            EXPECT_FAIL(nifti_write(path, &mask, &h), "the grids differ");
            arena_release(&mem);
            volume_free(&back);
            volume_free(&mask);
            volume_free(&v);
        }
}

TEST(nifti_write_after_choosing_a_form)
{
    // different forms: a result on either grid keeps both
    Maker m;
    Volume v, back;
    NiftiHeader h;
    char path[300];

    scratch(path, "choice.nii");
    make(&m, 1, false);
    set(&m, &offset, 2, 77);
    REQUIRE(file_replace(path, m.bytes, m.size));

    for (int form = NIFTI_SFORM; form <= NIFTI_QFORM; form++) {
        NiftiOptions o = {.form = (NiftiForm)form};
        REQUIRE(nifti_read(path, &o, &v, &h));
        EXPECT_NEAR(v.affine[2][3], form == NIFTI_SFORM ? 30 : 77, 1e-9);
        REQUIRE(nifti_write(path, &v, &h));
        REQUIRE(nifti_read(path, &o, &back, &h));
        expect_same(&back, &v);
        volume_free(&v);
        EXPECT_FAIL(nifti_read(path, NULL, &v, NULL), "sform and qform differ");
        volume_free(&back);
    }
}

TEST(nifti_write_is_deterministic)
{
    static const char *name[] = {"one.nii.gz", "two.nii.gz"};
    Arena mem = {0};
    Volume v;
    char path[300], *data[2];
    size_t n[2];

    synthetic(&v, 9, 0.3, I16);
    for (int i = 0; i < 2; i++) {
        scratch(path, name[i]);
        REQUIRE(nifti_write(path, &v, NULL));
        data[i] = content(&mem, path, &n[i]);
    }

    REQUIRE(n[0] == n[1]);
    EXPECT(!memcmp(data[0], data[1], n[0]));

    // no flags (so no name), no time
    EXPECT(!memcmp(data[0], "\x1f\x8b\x08\0\0\0\0\0", 8));
    arena_release(&mem);
    volume_free(&v);
}

TEST(nifti_write_large_extents_are_version_2)
{
    Volume v, back;
    NiftiHeader h;
    char path[300];

    scratch(path, "long.nii.gz");
    REQUIRE(volume_new(&v, (Dims){1, 1, 1, 32768, 1}, U8));
    ((uint8_t *)v.voxels.data)[32767] = 9;
    REQUIRE(nifti_write(path, &v, NULL));
    REQUIRE(nifti_read(path, NULL, &back, &h));
    EXPECT_INT(h.version, 2);
    expect_same(&back, &v);
    volume_free(&back);
    volume_free(&v);
}

/* -- other programs ---------------------------------------------------------
 */

/* Reads the first bytes of a command's output; false when it fails. */
static bool output(const char *command, char *text, size_t room)
{
    FILE *p = popen(command, "r");
    if (!p) return false;
    size_t n = fread(text, 1, room - 1, p);
    text[n] = 0;
    while (fgetc(p) != EOF) continue;
    return !pclose(p);
}

static bool has(const char *command)
{
    char text[16];
    return output(command, text, sizeof text);
}

#define PYTHON "/usr/bin/python3 "
static const char *nibabel = PYTHON "-c 'import nibabel' 2> /dev/null";

static double next_number(char **p)
{
    char *end;
    double v = strtod(*p, &end);
    if (end == *p) REQUIRE(!"one more number");
    *p = end;
    return v;
}

/* Compares v with the text of nifti_peer.py; spacing and affine to float
 * precision. */
static void expect_shown(const Volume *v, char *text, const char *name)
{
    Dims n = v->voxels.dim;
    char *p = text, *line = strchr(text, '\n');
    double s[3];

    REQUIRE(line);
    EXPECT_INT(next_number(&p), n.w);
    EXPECT_INT(next_number(&p), n.h);
    EXPECT_INT(next_number(&p), n.d);
    p = strchr(line + 1, '\n');
    REQUIRE(p);
    volume_spacing_mm(v, s);
    for (int a = 0; a < 3; a++) EXPECT_NEAR(next_number(&p), s[a], 1e-5);
    for (int r = 0; r < 3; r++)
        for (int c = 0; c < 4; c++)
            EXPECT_NEAR(next_number(&p),
                        r < 2 ? -v->affine[r][c] : v->affine[r][c], 1e-5);

    for (int64_t i = 0; i < numel(n); i++) {
        double want = next_number(&p), got = voxel(v, i);
        if (isnan(want) ? !isnan(got) : got != (double)(float)want)
            test_failed(__FILE__, __LINE__, "%s: voxel %lld is %g, want %g",
                        name, (long long)i, got, want);
    }
}

TEST(nifti_write_as_nibabel_reads_it)
{
    if (!has(nibabel))
        SKIP("python3-nibabel is not installed (sh vendor/fetch ci)");
    static const Dtype types[] = {U8, I16, F32};
    static const char *name[] = {"nib.nii", "nib.nii.gz"};
    static char text[1 << 16];
    char path[300], command[400];

    for (int k = 0; k < 6; k++) {
        Volume v;
        synthetic(&v, k * 9, k * 0.4, types[k % 3]);
        scratch(path, name[k % 2]);
        REQUIRE(nifti_write(path, &v, NULL));
        snprintf(command, sizeof command,
                 PYTHON "tests/data/format/nifti_peer.py show %s", path);
        REQUIRE(output(command, text, sizeof text));
        expect_shown(&v, text, path);
        EXPECT(strstr(text, "\n1 1 2 "));
        volume_free(&v);
    }
}

TEST(nifti_reads_what_nibabel_writes)
{
    if (!has(nibabel))
        SKIP("python3-nibabel is not installed (sh vendor/fetch ci)");
    Arena mem = {0};
    char path[300], folder[300], command[400];
    size_t n;
    int files = 0;
    scratch(folder, "nibabel");
    REQUIRE(!mkdir(folder, 0700));
    snprintf(command, sizeof command,
             PYTHON "tests/data/format/nifti_peer.py make %s", folder);
    REQUIRE(has(command));
    DIR *dir = opendir(folder);
    REQUIRE(dir);

    for (struct dirent *e; (e = readdir(dir));) {
        char *end = strstr(e->d_name, ".txt");
        Volume v;
        if (!end) continue;
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        char *text = content(&mem, path, &n);
        path[strlen(path) - 4] = 0;
        if (!nifti_read(path, NULL, &v, NULL)) {
            test_failed(__FILE__, __LINE__, "%s", err_text());
            continue;
        }
        expect_shown(&v, text, path);
        volume_free(&v);
        files++;
    }

    closedir(dir);
    arena_release(&mem);

    // the files made, and as many of the four real ones as are installed
    EXPECT(files >= 240 && files <= 244);
    test_compared(files, "NIfTI of nibabel");
}

TEST(nifti_write_as_nifti_tool_reads_it)
{
    if (!has("nifti_tool -ver > /dev/null 2>&1"))
        SKIP("nifti_tool is not installed (sh vendor/fetch test)");
    static char text[1 << 14];
    char path[300], command[400];

    for (int k = 0; k < 4; k++) {
        Volume v;
        synthetic(&v, k * 13, 0.25 * k, k % 2 ? I16 : F32);
        scratch(path, k < 2 ? "tool.nii" : "tool.nii.gz");
        REQUIRE(nifti_write(path, &v, NULL));
        snprintf(command, sizeof command,
                 "nifti_tool -check_hdr -check_nim -infiles %s 2>&1", path);
        REQUIRE(output(command, text, sizeof text));
        EXPECT(strstr(text, "header IS GOOD"));
        EXPECT(strstr(text, "nifti_image IS GOOD"));
        // the position of voxel 0 according to nifti_tool, from the sform
        snprintf(command, sizeof command,
                 "nifti_tool -quiet -disp_nim -field sto_xyz -field datatype "
                 "-infiles %s 2>&1",
                 path);
        REQUIRE(output(command, text, sizeof text));
        char *p = text;
        for (int r = 0; r < 3; r++)
            for (int c = 0; c < 4; c++)
                EXPECT_NEAR(next_number(&p),
                            r < 2 ? -v.affine[r][c] : v.affine[r][c], 1e-4);
        volume_free(&v);
    }
}

/* -- real scans -------------------------------------------------------------
 */

/* Reads image and mask of one study: same grid, labels 0 and 1, and a plausible
 * brain volume. */
static void check_study(const char *image, const char *mask)
{
    Volume v, m;
    NiftiOptions o = {.label = true};
    double s[3], brain = 0;

    REQUIRE(nifti_read(image, NULL, &v, NULL));
    REQUIRE(nifti_read(mask, &o, &m, NULL));
    EXPECT(volume_same_grid(&v, &m));
    EXPECT_INT(v.voxels.type, I16);
    int64_t n = numel(m.voxels.dim), other = 0;
    for (int64_t i = 0; i < n; i++) {
        double label = voxel(&m, i);
        brain += label == 1;
        other += label != 0 && label != 1;
    }

    EXPECT_INT(other, 0);
    volume_spacing_mm(&m, s);
    EXPECT_NEAR(brain * s[0] * s[1] * s[2] / 1000, 1400, 130); // ml
    EXPECT_INT(volume_axis(&v, 2), 2);                         // axial slices
    volume_free(&m);
    volume_free(&v);
}

TEST(nifti_real_skull_stripping)
{
    static const char *study[] = {"MS01/sub-MS01_ses-1", "MS01/sub-MS01_ses-2",
                                  "MS04/sub-MS04_ses-1", "MS12/sub-MS12_ses-1",
                                  "MS12/sub-MS12_ses-2"};
    static const char *kind[][2] = {{"T1w", ".nii.gz"}, {"FLAIR", ".nii"}};
    char image[400], mask[400];
    struct stat st;

    snprintf(image, sizeof image, "%s/skullstrip-ms", test_datasets());
    if (stat(image, &st)) SKIP("datasets/skullstrip-ms is not there");

    for (int i = 0; i < 5; i++)
        for (int k = 0; k < 2; k++) {
            snprintf(image, sizeof image, "%s/skullstrip-ms/%s_%s%s",
                     test_datasets(), study[i], kind[k][0], kind[k][1]);
            snprintf(mask, sizeof mask, "%s/skullstrip-ms/%s_%s_brainmask%s",
                     test_datasets(), study[i], kind[k][0], ".nii.gz");
            check_study(image, mask);
        }
}
