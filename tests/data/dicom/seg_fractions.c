/* seg_fractions.c -- probabilities as a SEG: written, read back, valid. */
#include "data/dicom/tag.h"
#include "tests/support/dicom_series.h"
#include <math.h>
#include <stdlib.h>

typedef struct Pair {
    Arena arena;
    Volume image;
    const DicomSeries *series;
} Pair;

// an image series in a new folder of this name
static void write_image(Pair *p, const char *name)
{
    *p = (Pair){.series = NULL};
    kit_volume(&p->image, 5, 6, 7, true);
    DicomWrite how = kit_write();
    how.shuffle = true;
    const char *folder = kit_folder(name);
    REQUIRE(dicom_write_series(folder, &p->image, &how));
    p->series = kit_series(&p->arena, folder);
}

static void free_pair(Pair *p)
{
    volume_free(&p->image);
    arena_release(&p->arena);
}

// Three channels on the grid of a pair's image, a range of slices each, which
// overlap; every value from 0 to 1 that a byte represents, and some between.
static void fractions_on(const Volume *image, Volume *out)
{
    Dims dim = image->voxels.dim;
    dim.c = 3;
    REQUIRE(volume_new(out, dim, F32));
    memcpy(out->affine, image->affine, sizeof out->affine);
    float *x = out->voxels.data;
    for (int i = 0; i < 210; i++)
        for (int c = 0; c < 3; c++) {
            const int k = i / 42;
            const bool in = c == 0 || (c == 1 ? k > 2 : k == 1);
            *x++ = in ? (float)((i * 7 + c * 31) % 211) / 210.0f : 0;
        }
}

TEST(dicom_seg_fractions_come_back)
{
    static const char *const names[] = {"all", "end", "one"};
    Pair p;
    char path[600], command[1400];

    write_image(&p, "fractions");
    Volume x, got;
    fractions_on(&p.image, &x);
    const DicomSeries *image = p.series;
    const char *folder = kit_folder("fractions_seg");
    snprintf(path, sizeof path, "%s/seg.dcm", folder);
    REQUIRE(dicom_write_fractions(path, &x, 0, names, 3, image));
    DicomSegInfo info;
    const DicomSeries *s = kit_series(&p.arena, folder);
    REQUIRE(dicom_seg_info(s, &p.arena, &info));
    EXPECT_TEXT(info.type, "FRACTIONAL");
    EXPECT_INT(info.segments, 3);

    // frames without a voxel are left out
    EXPECT_INT(info.segment[0].frames, 5);
    EXPECT_INT(info.segment[1].frames, 2);
    EXPECT_INT(info.segment[2].frames, 1);

    for (int c = 0; c < 3; c++) {
        const DicomMaskOptions o = {
            .segments = &names[c], .segment_count = 1, .fractions = true};
        REQUIRE(dicom_load_mask(image, s, &o, &got, NULL));
        EXPECT(volume_same_grid(&x, &got));
        for (int i = 0; i < 210; i++)
            EXPECT_NEAR(((float *)got.voxels.data)[i],
                        ((float *)x.voxels.data)[3 * i + c], 1 / 510.0 + 1e-6);
        volume_free(&got);
    }

    // the same arguments give the same bytes; other channels give another file
    KitFile a, b;
    REQUIRE(kit_read(path, &a));
    snprintf(command, sizeof command, "%s/again.dcm", test_folder());
    REQUIRE(dicom_write_fractions(command, &x, 0, names, 3, image));
    REQUIRE(kit_read(command, &b));
    EXPECT(a.size == b.size && !memcmp(a.bytes, b.bytes, a.size));
    mem_free(b.bytes);
    REQUIRE(dicom_write_fractions(command, &x, 1, names, 2, image));
    REQUIRE(kit_read(command, &b));
    EXPECT(a.size != b.size);
    mem_free(a.bytes);
    mem_free(b.bytes);
    volume_free(&x);
    free_pair(&p);
}

TEST(dicom_seg_fractions_are_valid)
{
    if (system("dciodvfy -version >/dev/null 2>&1; test $? -ne 127"))
        SKIP("dciodvfy is not installed (sh vendor/fetch ci)");
    static const char *const names[] = {"tumour", "brain", "c"};
    Pair p;
    char path[600], command[1400];
    write_image(&p, "fractions_valid");
    Volume x;
    fractions_on(&p.image, &x);
    snprintf(path, sizeof path, "%s/fractions_valid.dcm", test_folder());

    // including an odd number of bytes
    for (int count = 1; count <= 3; count++) {
        REQUIRE(
            dicom_write_fractions(path, &x, 3 - count, names, count, p.series));
        snprintf(command, sizeof command, "dciodvfy -new %s > %s/report 2>&1",
                 path, test_folder());
        EXPECT(system(command) != -1);
        snprintf(command, sizeof command, "grep '^Error' %s/report",
                 test_folder());
        EXPECT(system(command) != 0);
        snprintf(command, sizeof command, "grep -q Segmentation %s/report",
                 test_folder());
        EXPECT(system(command) == 0);
    }

    volume_free(&x);
    free_pair(&p);
}

TEST(dicom_seg_fractions_are_from_0_to_1)
{
    static const char *const names[] = {"a", "b", "c"};
    static const float bad[] = {1.01f, -0.01f, NAN, INFINITY};
    Pair p;
    char path[600], want[100];

    write_image(&p, "fractions_bad");
    Volume x, got;
    fractions_on(&p.image, &x);
    const DicomSeries *image = p.series;
    snprintf(path, sizeof path, "%s/bad.dcm", kit_folder("fractions_bad_seg"));
    float *v = &((float *)x.voxels.data)[100];

    for (int i = 0; i < 4; i++) {
        *v = bad[i];
        snprintf(want, sizeof want,
                 "a fraction of segment \"b\" is %g, need 0 "
                 "to 1",
                 (double)bad[i]);
        EXPECT_FAIL(dicom_write_fractions(path, &x, 0, names, 3, image), want);
    }

    // channels that are not written are not checked; rounding is no fault
    REQUIRE(dicom_write_fractions(path, &x, 2, names, 1, image));
    *v = 1.00001f;
    REQUIRE(dicom_write_fractions(path, &x, 0, names, 3, image));
    x.affine[0][3] += 1;
    EXPECT_FAIL(dicom_write_fractions(path, &x, 0, names, 3, image),
                "mask is not on the grid of ");
    x.affine[0][3] -= 1;

    // without a voxel above 0 a segment keeps one empty frame
    memset(x.voxels.data, 0, tensor_bytes(&x.voxels));
    REQUIRE(dicom_write_fractions(path, &x, 0, names, 1, image));
    const DicomMaskOptions o = {.fractions = true};
    const DicomSeries *s = kit_series(&p.arena, path);
    REQUIRE(dicom_load_mask(image, s, &o, &got, NULL));
    for (int i = 0; i < 210; i++)
        EXPECT_NEAR(((float *)got.voxels.data)[i], 0, 0);
    volume_free(&got);
    volume_free(&x);
    free_pair(&p);
}

// as an independent reader sees it: bytes, types and the segment of each frame
TEST(dicom_seg_fractions_as_pydicom_reads_them)
{
    if (system("/usr/bin/python3 -c 'import pydicom, numpy' 2> /dev/null"))
        SKIP("python3-pydicom is not installed (sh vendor/fetch test)");
    static const char *const names[] = {"all", "end", "one"};
    Pair p;
    char path[600], command[800], type[2][32];
    write_image(&p, "fractions_peer");
    Volume x;
    fractions_on(&p.image, &x);
    snprintf(path, sizeof path, "%s/peer.dcm", test_folder());
    REQUIRE(dicom_write_fractions(path, &x, 0, names, 3, p.series));
    snprintf(command, sizeof command,
             "/usr/bin/python3 tests/data/dicom/peer.py fractions %s", path);
    FILE *f = popen(command, "r");
    int frames = 0, most = 0, n, byte;
    double at[3], want[3];
    REQUIRE(f && fscanf(f, "%31s %31s %d %d", type[0], type[1], &most,
                        &frames) == 4);
    EXPECT_TEXT(type[0], "FRACTIONAL");
    EXPECT_TEXT(type[1], "PROBABILITY");
    EXPECT_INT(most, 255);
    EXPECT_INT(frames, 8);

    for (int i = 0; i < frames; i++) {
        REQUIRE(fscanf(f, "%d %lf %lf %lf", &n, &at[0], &at[1], &at[2]) == 4);
        int slice = -1;
        for (int k = 0; k < 5; k++) {
            volume_world(&p.image, 0, 0, k, want);
            if (fabs(want[0] - at[0]) + fabs(want[2] - at[2]) < 1e-5) slice = k;
        }
        REQUIRE(slice >= 0 && n >= 1 && n <= 3);
        for (int j = 0; j < 42; j++) {
            const float v =
                ((float *)x.voxels.data)[3 * (slice * 42 + j) + n - 1];
            REQUIRE(fscanf(f, "%d", &byte) == 1);
            EXPECT_INT(byte, lrintf(255 * v));
        }
    }

    pclose(f);
    volume_free(&x);
    free_pair(&p);
}
