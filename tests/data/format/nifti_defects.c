/* nifti_defects.c -- tests of rejected NIfTI files and their messages. */
#include "data/format/gzip.h"
#include "engine/base/file.h"
#include "tests/support/nifti_make.h"
#include "tests/test.h"

static const Place cut = {{0, 0}, {0, 0}}; // the file size becomes `value`
static const Place magic = {{344, 0}, {'b', 'b'}};
static const Place size_of = {{0, 0}, {'i', 'i'}};

static const struct Defect {
    const char *name;
    const Place *place;
    int index;
    double value;
    const char *reason;
} defects[] = {
    {"empty", &cut, 0, 0, "nifti: file is empty"},
    {"short header", &cut, 0, 347, "file ends inside the header: 347 bytes"},
    {"size of header", &size_of, 0, 349, "not NIfTI: sizeof_hdr is "},
    {"magic", &magic, 0, 'x', "not NIfTI: magic is 78 2b 31 00"},
    {"magic of a pair", &magic, 1, 'i', "header of a pair in a single file"},
    {"no axes", &dim, 0, 0, "dim[0] is 0, need 1 to 7 axes"},
    {"eight axes", &dim, 0, 8, "dim[0] is 8, need 1 to 7 axes"},
    {"axes below zero", &dim, 0, -1, "dim[0] is -1, need 1 to 7"},
    {"extent 0", &dim, 2, 0, "dim[2] is 0, need 1 to"},
    {"extent below zero", &dim, 3, -2, "dim[3] is -2, need 1 to"},
    {"more than the file", &dim, 3, 4, "header declares 160 bytes of voxels"},
    {"less than the file", &dim, 3, 2, "more bytes than the header declares"},
    {"much more", &dim, 3, 32767, "the file cannot hold them"},
    {"datatype", &datatype, 0, 5, "datatype 5 is not known"},
    {"datatype 0", &datatype, 0, 0, "datatype 0 is not known"},
    {"bits", &bitpix, 0, 32, "datatype int16 has 16 bits, bitpix says 32"},
    {"binary", &datatype, 0, 1, "voxels are binary, need integers"},
    {"complex", &datatype, 0, 32, "voxels are complex64, need integers"},
    {"complex128", &datatype, 0, 1792, "voxels are complex128, need"},
    {"colours", &datatype, 0, 128, "voxels are RGB24, need integers"},
    {"RGBA", &datatype, 0, 2304, "voxels are RGBA32, need integers"},
    {"float128", &datatype, 0, 1536, "voxels are float128, need integers"},
    {"voxels in header", &vox_offset, 0, 351, "vox_offset is 351, need a who"},
    {"voxels at 0", &vox_offset, 0, 0, "vox_offset is 0, need a whole number"},
    {"voxels before 0", &vox_offset, 0, -352, "vox_offset is -352, need"},
    {"half an offset", &vox_offset, 0, 352.5, "vox_offset is 352.5, need"},
    {"no offset", &vox_offset, 0, NAN, "nan, need a whole number"},
    {"beyond file", &vox_offset, 0, 1e6, "vox_offset 1000000 lies beyond"},
    {"far beyond", &vox_offset, 0, 1e30, "need a whole number from 352"},
    {"NaN spacing", &pixdim, 2, NAN, "pixdim[2] is "},
    {"infinite spacing", &pixdim, 3, INFINITY, "pixdim[3] is inf"},
    {"NaN handedness", &pixdim, 0, NAN, "pixdim[0] is "},
    {"no spacing", &pixdim, 1, 0, "pixdim[1] is 0, need a spacing above 0"},
    {"spacing below 0", &pixdim, 1, -1, "pixdim[1] is -1, need a spacing"},
    {"NaN slope", &slope, 0, NAN, NULL},               // accepted: no scaling
    {"infinite intercept", &inter, 0, INFINITY, NULL}, // accepted too
    {"volumes", &dim, 0, 4, NULL},                     // accepted: dim[4] is 1
    {"unit", &units, 0, 5, "xyzt_units is 5: 5 is not a unit of length"},
    {"no rotation", &quatern, 0, 0.9, "is not a rotation"},
    {"NaN rotation", &quatern, 1, NAN, "is not a rotation"},
    {"NaN offset", &offset, 1, NAN, "is not a rotation"},
    {"NaN row", &srow, 1, NAN, "sform: the voxel axes are not three"},
    {"NaN end of row", &srow, 3, NAN, "sform has the offset"},
    {"flat sform", &srow, 10, 0, "sform: the voxel axes are not three"},
    {"forms differ", &srow, 3, 11, "sform and qform differ by 2 voxels"},
    {"vector", &intent, 0, 1007, "intent code 1007, voxels are a vector;"},
    {"displacement", &intent, 0, 1006, "voxels are a displacement vector"},
    {"RGB intent", &intent, 0, 2003, "voxels are a RGB vector"},
    {"truncated voxels", &cut, 0, 352 + 119, "declares 120 bytes of voxels"},
    {"one byte more", &cut, 0, 352 + 121, "more bytes than the header decl"},
};

TEST(nifti_defects)
{
    enum { ROWS = sizeof defects / sizeof *defects };
    for (int r = 0; r < ROWS; r++)
        for (int big = 0; big < 2; big++) {
            const struct Defect *d = &defects[r];
            Maker m;
            Volume v;
            make(&m, 1, big);
            if (d->place == &cut)
                m.size = (size_t)d->value;
            else
                set(&m, d->place, d->index, d->value);
            long live = mem_live();
            if (!d->reason) {
                EXPECT(decode(&m, NULL, &v));
                volume_free(&v);
                continue;
            }
            EXPECT_FAIL(decode(&m, NULL, &v), d->reason);
            EXPECT_FAIL(decode(&m, NULL, &v), "nifti: ");
            EXPECT(err_kind() == ERR_DATA);
            EXPECT(!v.voxels.data);
            EXPECT_INT(mem_live(), live);
        }
}

TEST(nifti_second_version_defects)
{
    static const struct Defect row[] = {
        {"short header", &cut, 0, 539, "file ends inside the header: 539"},
        {"offset in header", &vox_offset, 0, 543, "vox_offset is 543, need a "},
        {"offset beyond", &vox_offset, 0, 9e15, "vox_offset is 9e+15, need a"},
        {"extent", &dim, 1, 5e9, "dim[1] is 5000000000, need 1 to 2147483647"},
        {"extent beyond", &dim, 1, 9.2e18, "dim[1] is 92233720368547"},
        {"volumes", &dim, 4, 20, NULL},
        {"cut", &cut, 0, 544 + 2, "header declares 120 bytes of voxels"},
    };

    for (size_t r = 0; r < sizeof row / sizeof *row; r++) {
        Maker m;
        Volume v;
        make(&m, 2, r % 2);
        if (row[r].place == &cut)
            m.size = (size_t)row[r].value;
        else
            set(&m, row[r].place, row[r].index, row[r].value);
        if (row[r].reason) {
            EXPECT_FAIL(decode(&m, NULL, &v), row[r].reason);
            continue;
        }
        EXPECT(decode(&m, NULL, &v)); // dim[4] is used only from dim[0] = 4 on
        volume_free(&v);
        set(&m, &dim, 0, 4);
        EXPECT_FAIL(decode(&m, NULL, &v), "dim[4] is 20: several volumes");
    }

    Maker m;
    Volume v;
    make(&m, 2, false);
    m.bytes[8] = '\n'; // a copy that changed line ends
    EXPECT_FAIL(decode(&m, NULL, &v), "not NIfTI: magic");
    make(&m, 1, false);
    memset(m.bytes + 344, 0, 4);
    EXPECT_FAIL(decode(&m, NULL, &v), "an Analyze 7.5 header");

    // farther away than any patient
    make(&m, 2, false);
    set(&m, &sform, 0, 0), set(&m, &offset, 1, 1e307), set(&m, &units, 0, 1);
    EXPECT_FAIL(decode(&m, NULL, &v), "voxels are inf mm apart or away");
    set(&m, &offset, 1, -1.5e6);
    EXPECT_FAIL(decode(&m, NULL, &v), "voxels are 1.5e+09 mm apart or away");

    // product of extents beyond 64 bits
    make(&m, 2, false);
    for (int i = 1; i < 4; i++) set(&m, &dim, i, 2147483647);
    EXPECT_FAIL(decode(&m, NULL, &v), "2147483647 x 2147483647 x 2147483647 "
                                      "voxels, limit 8589934592");
}

TEST(nifti_values_beyond_float)
{
    Maker m;
    Volume v;
    make(&m, 1, false);
    set(&m, &datatype, 0, 64), set(&m, &bitpix, 0, 64);
    m.size = 352 + 8 * COUNT;
    memset(m.bytes + 352, 0, 8 * COUNT);
    put(&m, 352 + 8 * 33, 'd', -1e39); // 33 = (1 * H + 2) * W + 3
    EXPECT_FAIL(decode(&m, NULL, &v), "voxel (3,2,1) does not fit a float");
    make(&m, 1, false);
    set(&m, &slope, 0, 3e38);
    EXPECT_FAIL(decode(&m, NULL, &v), "voxel (0,0,0) does not fit a float");
}

TEST(nifti_limits)
{
    Maker m;
    Volume v;
    make(&m, 1, false);

    for (int extra = -1; extra <= 1; extra++) {
        NiftiOptions o = {.max_voxels = COUNT + extra};
        if (extra < 0) {
            EXPECT_FAIL(decode(&m, &o, &v), "5 x 4 x 3 voxels, limit 59");
        } else {
            EXPECT(decode(&m, &o, &v));
            volume_free(&v);
        }
    }

    char path[300];
    snprintf(path, sizeof path, "%s/limit.nii", test_folder());
    REQUIRE(file_replace(path, m.bytes, m.size));

    for (int extra = -1; extra <= 1; extra++) {
        NiftiOptions o = {.max_bytes = (int64_t)m.size + extra};
        if (extra < 0) {
            EXPECT_FAIL(nifti_read(path, &o, &v, NULL), "limit 471");
        } else {
            EXPECT(nifti_read(path, &o, &v, NULL));
            volume_free(&v);
        }
    }
}

/* -- gzip -------------------------------------------------------------------
 */

TEST(nifti_gzip_defects)
{
    Maker m;
    Volume v;
    uint8_t *z, bytes[ROOM];
    size_t n, k;

    for (int version = 1; version <= 2; version++) {
        make(&m, version, false);
        REQUIRE(gzip_deflate(m.bytes, m.size, NULL, 0, &z, &n));
        REQUIRE(decode_gz(z, n, &v));
        EXPECT_INT(voxel(&v, COUNT - 1), 100 + COUNT - 1);
        volume_free(&v);
        mem_free(z);
    }

    make(&m, 1, false);
    REQUIRE(gzip_deflate(m.bytes, m.size, NULL, 0, &z, &n));

    // every truncation, and a change of every byte of the checksum
    for (k = 1; k < n; k++) {
        EXPECT(!decode_gz(z, k, &v));
        EXPECT(err_kind() == ERR_DATA && !v.voxels.data);
    }
    EXPECT_FAIL(decode_gz(z, n - 1, &v), "gzip data ends early, at byte");
    for (k = n - 8; k < n; k++) {
        z[k] ^= 1;
        EXPECT_FAIL(decode_gz(z, n, &v), "gzip data is damaged at byte");
        z[k] ^= 1;
    }

    // zeros after the stream are padding, other bytes are not
    memcpy(bytes, z, n);
    memset(bytes + n, 0, 8);
    REQUIRE(decode_gz(bytes, n + 8, &v));
    volume_free(&v);
    bytes[n + 7] = 'x';
    EXPECT_FAIL(decode_gz(bytes, n + 8, &v), "8 bytes after the end of the gz");
    mem_free(z);

    // in two members, split anywhere
    uint8_t *a, *b;
    size_t an, bn;
    static const size_t splits[] = {0, 3, 200, 348, 352, 400};

    for (int i = 0; i < 6; i++) {
        REQUIRE(gzip_deflate(m.bytes, splits[i], NULL, 0, &a, &an));
        REQUIRE(gzip_deflate(m.bytes + splits[i], m.size - splits[i], NULL, 0,
                             &b, &bn));
        memcpy(bytes, a, an);
        memcpy(bytes + an, b, bn);
        EXPECT(decode_gz(bytes, an + bn, &v));
        volume_free(&v);
        mem_free(a), mem_free(b);
    }

    // content that ends before the voxels begin
    set(&m, &vox_offset, 0, 600);
    REQUIRE(gzip_deflate(m.bytes, m.size, NULL, 0, &z, &n));
    EXPECT_FAIL(decode_gz(z, n, &v), "file ends at byte 472, before the voxels "
                                     "at vox_offset 600");
    mem_free(z);
    set(&m, &vox_offset, 0, 352);

    // content shorter or longer than the header declares
    for (int more = -1; more <= 1; more += 2) {
        REQUIRE(gzip_deflate(m.bytes, m.size + (size_t)more, NULL, 0, &z, &n));
        EXPECT_FAIL(decode_gz(z, n, &v),
                    more < 0 ? "voxels end after 119 bytes, need 120"
                             : "more bytes than the header declares");
        mem_free(z);
    }

    EXPECT_FAIL(decode_gz(m.bytes, m.size, &v), "named .gz but not gzip data; "
                                                "fix: rename it without .gz");

    // an error page of a server, as saved by curl
    static const char page[] = "<html>404 not found</html>";
    EXPECT_FAIL(decode_gz((const uint8_t *)page, sizeof page - 1, &v),
                "named .gz but neither gzip data nor NIfTI: 26 bytes, the "
                "first are 3c 68 74 6d; fix: look at what it is");
    EXPECT_FAIL(decode_gz((const uint8_t *)page, 2, &v),
                "2 bytes, the first are 3c 68 00 00");
    REQUIRE(gzip_deflate(m.bytes, m.size, NULL, 0, &z, &n));
    memcpy(m.bytes, z, n);
    m.size = n;
    EXPECT_FAIL(decode(&m, NULL, &v), "gzip data in a file not named .gz");
    mem_free(z);
}

TEST(nifti_gzip_bomb_costs_nothing)
{
    // 200 bytes that declare 12 GB of voxels: rejected before allocation
    Maker m;
    Volume v;
    uint8_t *z;
    size_t n;

    make(&m, 1, false);
    set(&m, &dim, 1, 32767), set(&m, &dim, 2, 32767), set(&m, &dim, 3, 6);
    REQUIRE(gzip_deflate(m.bytes, m.size, NULL, 0, &z, &n));
    EXPECT_FAIL(decode_gz(z, n, &v), "the file cannot hold them");
    mem_free(z);

    // 16 MB of zeros after a small volume are not inflated
    uint8_t *zeros = mem_alloc(1 << 24);
    REQUIRE(zeros);
    make(&m, 1, false);
    REQUIRE(gzip_deflate(m.bytes, m.size, zeros, 1 << 24, &z, &n));
    EXPECT_FAIL(decode_gz(z, n, &v), "more bytes than the header declares");
    mem_free(z);
    mem_free(zeros);
}

TEST(nifti_gzip_of_nothing_but_zeros)
{
    // the maximum ratio of deflate must be accepted
    Maker m;
    Volume v;
    uint8_t *z, *zeros = mem_alloc(256 * 256 * 64);
    size_t n;

    make(&m, 1, false);
    set(&m, &datatype, 0, 2), set(&m, &bitpix, 0, 8);
    set(&m, &dim, 1, 256), set(&m, &dim, 2, 256), set(&m, &dim, 3, 64);
    REQUIRE(zeros && gzip_deflate(m.bytes, 352, zeros, 256 * 256 * 64, &z, &n));
    EXPECT(decode_gz(z, n, &v));
    volume_free(&v);
    mem_free(z);
    mem_free(zeros);
}
