/* nifti.c -- tests of values, geometry and files of NIfTI. */
#include "data/format/gzip.h"
#include "engine/base/file.h"
#include "tests/support/nifti_make.h"
#include "tests/test.h"
#include <sys/stat.h>

TEST(nifti_reads_versions_and_byte_orders)
{
    for (int version = 1; version <= 2; version++)
        for (int big = 0; big < 2; big++) {
            Maker m;
            Volume v;
            make(&m, version, big);
            REQUIRE(decode(&m, NULL, &v));
            EXPECT_INT(v.voxels.type, I16);
            EXPECT(dims_equal(v.voxels.dim, (Dims){1, D, H, W, 1}));
            for (int i = 0; i < COUNT; i++) EXPECT_INT(voxel(&v, i), 100 + i);
            expect_affine(&v, made_lps, 1e-6);
            EXPECT_INT(v.unit, UNIT_NONE);
            volume_free(&v);
        }
}

TEST(nifti_reads_every_type)
{
    static const struct {
        int code, bits;
        char letter;
        Dtype want;
        double value[3];
    } row[] = {
        {2, 8, 'b', U8, {0, 1, 255}},
        {4, 16, 's', I16, {-32768, 1, 32767}},
        {8, 32, 'i', F32, {-2147483648.0, 1, 16777216}},
        {16, 32, 'f', F32, {-0.1f, 1, 3e38f}},
        {64, 64, 'd', F32, {-0.1f, 1, 3e38f}},
        {256, 8, 'b', I16, {128, 1, 127}}, // 128 is -128
        {512, 16, 's', F32, {-1, 1, 2}},   // -1 is 65535
        {768, 32, 'i', F32, {-1, 1, 2}},
        {1024, 64, 'l', F32, {-9e15, 1, 16777216}},
        {1280, 64, 'l', F32, {0, 1, 9e15}},
    };

    for (size_t r = 0; r < sizeof row / sizeof *row; r++)
        for (int big = 0; big < 2; big++) {
            Maker m;
            Volume v;
            make(&m, 1, big);
            set(&m, &datatype, 0, row[r].code);
            set(&m, &bitpix, 0, row[r].bits);
            set(&m, &dim, 1, 3), set(&m, &dim, 2, 1), set(&m, &dim, 3, 1);
            size_t bytes = (size_t)row[r].bits / 8;
            for (size_t i = 0; i < 3; i++)
                put(&m, 352 + i * bytes, row[r].letter, row[r].value[i]);
            m.size = 352 + 3 * bytes;
            REQUIRE(decode(&m, NULL, &v));
            EXPECT_INT(v.voxels.type, row[r].want);
            double first = row[r].code == 256   ? -128
                           : row[r].code == 512 ? 65535
                           : row[r].code == 768 ? (double)4294967295.0f
                                                : row[r].value[0];
            EXPECT_NEAR(voxel(&v, 0), (double)(float)first, 0);
            for (int i = 1; i < 3; i++)
                EXPECT_NEAR(voxel(&v, i), (double)(float)row[r].value[i], 0);
            volume_free(&v);
        }
}

TEST(nifti_scales)
{
    static const struct {
        double slope, inter;
        Dtype type;
        double first;
    } row[] = {
        {1, 0, I16, 100},        {0, 0, I16, 100}, {0, 7, I16, 100},
        {0.5, -3, F32, 47},      {1, 3, F32, 103}, {2, 0, F32, 200},
        {-1, -1024, F32, -1124},
    };

    for (size_t r = 0; r < sizeof row / sizeof *row; r++) {
        Maker m;
        Volume v;
        make(&m, 1, false);
        set(&m, &slope, 0, row[r].slope);
        set(&m, &inter, 0, row[r].inter);
        REQUIRE(decode(&m, NULL, &v));
        EXPECT_INT(v.voxels.type, row[r].type);
        EXPECT_NEAR(voxel(&v, 0), row[r].first, 0);
        volume_free(&v);
    }
}

TEST(nifti_labels)
{
    Maker m;
    Volume v;
    NiftiOptions o = {.label = true};

    make(&m, 1, false);
    REQUIRE(decode(&m, &o, &v));
    EXPECT_INT(v.voxels.type, I16); // unchanged, although 100..159 fit in U8
    EXPECT_INT(v.unit, UNIT_LABEL);
    volume_free(&v);

    // float32 labels of a small file
    set(&m, &datatype, 0, 16), set(&m, &bitpix, 0, 32);
    set(&m, &dim, 1, 3), set(&m, &dim, 2, 1), set(&m, &dim, 3, 1);
    m.size = 352 + 12;
    static const struct {
        double value;
        Dtype type;
    } row[] = {
        {255, U8},
        {256, I16},
        {-1, I16},
        {32767, I16},
        // left to the caller who knows the labels
        {32768, F32},
        {0.5, F32},
        {NAN, F32},
    };

    for (size_t r = 0; r < sizeof row / sizeof *row; r++) {
        put(&m, 352, 'f', 0), put(&m, 356, 'f', row[r].value);
        put(&m, 360, 'f', 1);
        REQUIRE(decode(&m, &o, &v));
        EXPECT_INT(v.voxels.type, row[r].type);
        if (isnan(row[r].value))
            EXPECT(isnan(voxel(&v, 1)));
        else
            EXPECT_NEAR(voxel(&v, 1), row[r].value, 0);
        EXPECT_INT(v.unit, UNIT_LABEL);
        volume_free(&v);
    }

    make(&m, 1, false);

    // the first voxel is stored as 100
    static const double scale[][3] = {
        {2, 0, 200}, {1, 1, 101}, {0.01, 0, 1}, {0, 0, 100}, {0, 5, 100}};

    for (size_t r = 0; r < sizeof scale / sizeof *scale; r++) {
        set(&m, &slope, 0, scale[r][0]), set(&m, &inter, 0, scale[r][1]);
        REQUIRE(decode(&m, &o, &v));
        EXPECT_NEAR(voxel(&v, 0), scale[r][2], 1e-6);
        EXPECT_INT(v.unit, UNIT_LABEL);
        volume_free(&v);
    }
}

/* As in nifti_clib: a slope or intercept that is not finite is read as 0, and a
 * slope of 0 means no scaling. */
TEST(nifti_scale_that_is_not_finite)
{
    static const struct {
        double slope, inter, first; // for a stored 100
        const char *doubt;
    } row[] = {{NAN, NAN, 100, ""},
               {NAN, 7, 100, ""},
               {INFINITY, 0, 100, ""},
               {-INFINITY, NAN, 100, ""},
               {0, INFINITY, 100, ""},
               {2, NAN, 200, "scl_slope is 2 and scl_inter nan"},
               {1, INFINITY, 100, "scl_inter inf, which is taken as 0"}};

    for (int version = 1; version <= 2; version++)
        for (size_t r = 0; r < sizeof row / sizeof *row; r++)
            for (int label = 0; label < 2; label++) {
                const NiftiOptions o = {.label = label};
                Maker m;
                Volume v;
                NiftiHeader h;
                make(&m, version, r % 2);
                set(&m, &slope, 0, row[r].slope);
                set(&m, &inter, 0, row[r].inter);
                REQUIRE(nifti_decode(&(NiftiBytes){m.bytes, m.size, false},
                                     NULL, &o, &v, &h));
                EXPECT_NEAR(voxel(&v, 0), row[r].first, 0);
                EXPECT(strstr(h.doubt, row[r].doubt));
                EXPECT(!*h.doubt == !*row[r].doubt);
                volume_free(&v);
            }
}

TEST(nifti_not_a_number_passes)
{
    Maker m;
    Volume v;
    make(&m, 1, false);
    set(&m, &datatype, 0, 16), set(&m, &bitpix, 0, 32);
    set(&m, &dim, 3, 1);
    m.size = 352 + 4 * W * H;
    put(&m, 352, 'f', NAN), put(&m, 356, 'f', -INFINITY);
    REQUIRE(decode(&m, NULL, &v));
    EXPECT(isnan(voxel(&v, 0)) && voxel(&v, 1) == -INFINITY);
    volume_free(&v);
}

/* -- positions of voxels -------------------------------------------------- */

TEST(nifti_units)
{
    static const struct {
        int code;
        double mm;
    } row[] = {{0, 1}, {1, 1000}, {2, 1}, {3, 1e-3}, {10, 1}, {8 + 3, 1e-3}};

    for (size_t r = 0; r < sizeof row / sizeof *row; r++) {
        Maker m;
        Volume v;
        make(&m, 1 + (int)r % 2, false);
        set(&m, &units, 0, row[r].code);
        REQUIRE(decode(&m, NULL, &v));
        EXPECT_NEAR(v.affine[2][2], 2 * row[r].mm, 1e-12);
        EXPECT_NEAR(v.affine[0][3], -10 * row[r].mm, 1e-12);
        volume_free(&v);
    }
}

TEST(nifti_axes_of_one)
{
    // 4-D with one volume, and 2-D with a missing third spacing
    Maker m;
    Volume v;
    NiftiOptions spacing = {.assume_spacing = true};

    make(&m, 1, false);
    set(&m, &dim, 0, 4);
    REQUIRE(decode(&m, NULL, &v));
    EXPECT_INT(numel(v.voxels.dim), COUNT);
    volume_free(&v);
    set(&m, &dim, 0, 2), set(&m, &dim, 3, 0);
    set(&m, &pixdim, 3, 0);
    set(&m, &qform, 0, 0), set(&m, &sform, 0, 0);
    m.size = 352 + 2 * W * H;
    REQUIRE(decode(&m, &spacing, &v));
    EXPECT(dims_equal(v.voxels.dim, (Dims){1, 1, H, W, 1}));
    EXPECT_NEAR(v.affine[2][2], 1, 0);
    volume_free(&v);
}

/* Channels are stored one after the other in the file, interleaved in a
 * volume. */
TEST(nifti_fourth_axis_as_channels)
{
    enum { C = 3 };
    const NiftiOptions channels = {.channels = true},
                       text = {.channels = true, .no_voxels = true},
                       label = {.channels = true, .label = true},
                       few = {.channels = true, .max_voxels = C * COUNT - 1};

    for (int version = 1; version <= 2; version++)
        for (int scaled = 0; scaled < 2; scaled++) {
            Maker m;
            Volume v, part;
            NiftiHeader like;
            make(&m, version, version == 2);
            const size_t first = m.size - 2 * COUNT;
            set(&m, &dim, 0, 4), set(&m, &dim, 4, C);
            set(&m, &slope, 0, scaled ? 0.5 : 1);
            for (size_t i = 0; i < C * COUNT; i++)
                put(&m, first + 2 * i, 's', 7 * (double)i);
            m.size = first + 2 * C * COUNT;
            EXPECT_FAIL(decode(&m, NULL, &v), "dim[4] is 3: several volumes in "
                                              "one file, need one; fix: "
                                              "channels = true when");
            EXPECT_FAIL(decode(&m, &label, &v),
                        "dim[4] is 3: several volumes in one file, need one; "
                        "fix: split it");
            EXPECT_FAIL(decode(&m, &few, &v),
                        "5 x 4 x 3 voxels of 3 channels, limit 179");
            REQUIRE(decode(&m, &text, &v));
            EXPECT(dims_equal(v.voxels.dim, (Dims){1, D, H, W, C}));
            REQUIRE(decode(&m, &channels, &v));
            EXPECT(dims_equal(v.voxels.dim, (Dims){1, D, H, W, C}));
            expect_affine(&v, made_lps, 1e-6);
            for (int i = 0; i < COUNT; i++)
                for (int c = 0; c < C; c++)
                    EXPECT_NEAR(voxel(&v, i * C + c),
                                7 * (c * COUNT + i) * (scaled ? 0.5 : 1), 0);
            volume_free(&v);
            // a result of one channel, written like its input
            char path[600];
            const NiftiBytes bytes = {m.bytes, m.size, false};
            snprintf(path, sizeof path, "%s/channels.nii", test_folder());
            REQUIRE(nifti_decode(&bytes, NULL, &channels, &v, &like));
            REQUIRE(volume_new(&part, (Dims){1, D, H, W, 1}, U8));
            memcpy(part.affine, v.affine, sizeof part.affine);
            REQUIRE(nifti_write(path, &part, &like));
            volume_free(&v);
            REQUIRE(nifti_read(path, NULL, &v, NULL));
            EXPECT(volume_same_grid(&v, &part));
            volume_free(&v);
            volume_free(&part);
            set(&m, &dim, 0, 5), set(&m, &dim, 5, 2);
            EXPECT_FAIL(
                decode(&m, &channels, &v),
                "dim[5] is 2: several volumes in one file, need one; fix: "
                "split it");
        }
}

TEST(nifti_passes_over_extensions)
{
    // two extensions of 16 and 32 bytes, then the voxels
    for (int big = 0; big < 2; big++) {
        Maker m;
        Volume v;
        make(&m, 1, big);
        memmove(m.bytes + 400, m.bytes + 352, 2 * COUNT);
        memset(m.bytes + 352, 0, 48);
        m.bytes[348] = 1;
        put(&m, 352, 'i', 16), put(&m, 368, 'i', 32);
        set(&m, &vox_offset, 0, 400);
        m.size += 48;
        REQUIRE(decode(&m, NULL, &v));
        EXPECT_INT(voxel(&v, 0), 100);
        volume_free(&v);
        static const int bad[] = {0, -16, 8, 20, 48, 1 << 30};
        for (int i = 0; i < 6; i++) {
            put(&m, 368, 'i', bad[i]);
            EXPECT_FAIL(decode(&m, NULL, &v), "extension at byte 368 has ");
        }
    }
}

/* -- files ------------------------------------------------------------------
 */

TEST(nifti_pairs)
{
    char hdr[300], img[300];
    Maker m;
    Volume v;

    for (int version = 1; version <= 2; version++)
        for (int gz = 0; gz < 2; gz++) {
            snprintf(hdr, sizeof hdr, "%s/pair%d.hdr%s", test_folder(), version,
                     gz ? ".gz" : "");
            snprintf(img, sizeof img, "%s/pair%d.img%s", test_folder(), version,
                     gz ? ".gz" : "");
            make(&m, version, false);
            size_t begin = m.size - 2 * COUNT;
            EXPECT_FAIL(nifti_read(hdr, NULL, &v, NULL), "No such file");
            m.bytes[version == 1 ? 345 : 5] = 'i';
            set(&m, &vox_offset, 0, 0);
            uint8_t *head = m.bytes, *body = m.bytes + begin;
            size_t head_n = begin - 4, body_n = 2 * COUNT;
            if (gz) {
                REQUIRE(
                    gzip_deflate(m.bytes, begin - 4, NULL, 0, &head, &head_n));
                REQUIRE(gzip_deflate(m.bytes + begin, 2 * COUNT, NULL, 0, &body,
                                     &body_n));
            }
            REQUIRE(file_replace(hdr, head, head_n));
            EXPECT_FAIL(nifti_read(hdr, NULL, &v, NULL),
                        ".hdr and .img belong together: cannot open");
            REQUIRE(file_replace(img, body, body_n));
            for (int i = 0; i < 2; i++) {
                REQUIRE(nifti_read(i ? img : hdr, NULL, &v, NULL));
                EXPECT_INT(voxel(&v, 7), 107);
                volume_free(&v);
            }
            REQUIRE(file_replace(img, body, body_n - 1));
            EXPECT(!nifti_read(img, NULL, &v, NULL));
            remove(hdr);
            EXPECT_FAIL(nifti_read(img, NULL, &v, NULL), "cannot open");
            if (gz) mem_free(head), mem_free(body);
        }

    // the header of a single file, named .hdr
    make(&m, 1, false);
    snprintf(hdr, sizeof hdr, "%s/single.hdr", test_folder());
    snprintf(img, sizeof img, "%s/single.img", test_folder());
    REQUIRE(file_replace(hdr, m.bytes, m.size) &&
            file_replace(img, m.bytes, m.size));
    EXPECT_FAIL(nifti_read(hdr, NULL, &v, NULL), "single file in a pair");
}

TEST(nifti_names)
{
    Volume v;
    char path[300];
    static const char *bad[] = {"x.gz", "x.nii.bz2", "x.mgz", ".nii"};

    for (int i = 0; i < 4; i++)
        EXPECT_FAIL(nifti_read(bad[i], NULL, &v, NULL),
                    "nifti: the name does not end in .nii");
    EXPECT_FAIL(nifti_read("no/such.nii", NULL, &v, NULL),
                "no/such.nii: nifti: cannot open no/such.nii");
    snprintf(path, sizeof path, "%s/folder.nii", test_folder());
    REQUIRE(!mkdir(path, 0700));
    EXPECT_FAIL(nifti_read(path, NULL, &v, NULL), "is a folder");
    snprintf(path, sizeof path, "%s/void.nii.gz", test_folder());
    REQUIRE(file_replace(path, "", 0));
    EXPECT_FAIL(nifti_read(path, NULL, &v, NULL), "void.nii.gz: nifti: file is "
                                                  "empty");
    REQUIRE(volume_new(&v, (Dims){1, 1, 1, 1, 1}, U8));
    EXPECT_FAIL(nifti_write("x.img", &v, NULL), "must end in .nii or .nii.gz");
    EXPECT_FAIL(nifti_write("no/such/x.nii", &v, NULL), "no/such/x.nii");
    volume_free(&v);
}

TEST(nifti_stems)
{
    EXPECT_INT(nifti_stem("a/b.nii"), 3);
    EXPECT_INT(nifti_stem("b.nii.gz"), 1);
    EXPECT_INT(nifti_stem("b.hdr"), 1);
    EXPECT_INT(nifti_stem("b.hdr.gz"), 1);

    // ".img" is found by its header; other extensions are never read
    EXPECT_INT(nifti_stem("b.img"), 0);
    EXPECT_INT(nifti_stem("b.NII"), 1);
    EXPECT_INT(nifti_stem("B.NII.GZ"), 1);
    EXPECT_INT(nifti_stem("b.Nii.gz"), 1);
    EXPECT_INT(nifti_stem("b.HDR"), 1);
    EXPECT_INT(nifti_stem(".nii"), 0);
    EXPECT_INT(nifti_stem("nii"), 0);
}

TEST(nifti_names_in_capitals)
{
    static const char *const row[][2] = {
        {"A.NII", NULL}, {"a.Nii", NULL}, {"P.HDR", "P.IMG"}};

    for (size_t r = 0; r < sizeof row / sizeof *row; r++) {
        char path[2][300];
        Maker m;
        Volume v;
        make(&m, 1, false);
        for (int k = 0; k < 2 && row[r][k]; k++)
            snprintf(path[k], sizeof *path, "%s/%s", test_folder(), row[r][k]);
        if (row[r][1]) {
            REQUIRE(file_replace(path[1], m.bytes + 352, m.size - 352));
            memcpy(m.bytes + 344, "ni1", 4);
            set(&m, &vox_offset, 0, 0);
            m.size = 348;
        }
        REQUIRE(file_replace(path[0], m.bytes, m.size));
        for (int k = 0; k < 2 && row[r][k]; k++) {
            REQUIRE(nifti_read(path[k], NULL, &v, NULL));
            EXPECT_NEAR(voxel(&v, 1), 101, 0);
            volume_free(&v);
        }
    }
}

TEST(nifti_without_memory)
{
    Maker m;
    Volume v;
    uint8_t *z;
    size_t n;

    make(&m, 1, false);
    REQUIRE(gzip_deflate(m.bytes, m.size, NULL, 0, &z, &n));
    long live = mem_live();
    bool ok = false;
    int tries = 0;
    NiftiBytes file = {z, n, true};
    for (; !ok && tries < 50; tries++) {
        mem_fail_after(tries, false);
        ok = nifti_decode(&file, NULL, NULL, &v, NULL);
        if (!ok) EXPECT_INT(mem_live(), live);
    }

    mem_fail_after(-1, false);
    EXPECT(ok && tries > 4);
    volume_free(&v);
    mem_free(z);
}
