/* mat_defects.c -- tests of rejected .mat files and their messages. */
#include "tests/support/mat_make.h"

/* Storage types that do not fit a class. */
TEST(mat_stored_types_that_do_not_fit)
{
    static const struct {
        int mx, mi, width;
        const char *reason;
    } row[] = {
        {7, 9, 8, "mat: x: is single stored as type 9 (miDOUBLE)"},
        {7, 12, 8, "mat: x: is single stored as type 12 (miINT64)"},
        {8, 2, 1, "mat: x: is int8 stored as type 2 (miUINT8)"},
        {8, 3, 2, "mat: x: is int8 stored as type 3 (miINT16)"},
        {9, 1, 1, "mat: x: is uint8 stored as type 1 (miINT8)"},
        {13, 3, 2, "mat: x: is uint32 stored as type 3 (miINT16)"},
        {12, 7, 4, "mat: x: is int32 stored as type 7 (miSINGLE)"},
        {15, 9, 8, "mat: x: is uint64 stored as type 9 (miDOUBLE)"},
        {6, 14, 1, "mat: x: is double stored as type 14 (miMATRIX)"},
        {6, 8, 1, "mat: x: is double stored as type 8 (unknown)"},
        {6, 99, 1, "mat: x: is double stored as type 99 (unknown)"},
    };
    for (size_t r = 0; r < sizeof row / sizeof *row; r++) {
        MatMaker m;
        mat_make(&m, r & 1, row[r].mx, row[r].mi, row[r].width);
        EXPECT_FAIL(mat_read_x(&m), row[r].reason);
    }
}

/* One number is changed in the file of mat_make(). Its matrix has its tag at
 * 128, flags at 136, extents at 152, name at 168, numbers at 176 (tag) and
 * 184. */
static const struct Defect {
    int at, bytes;
    uint64_t value;
    const char *reason;
} defects[] = {
    {126, 2, 'X' << 8 | 'Y', "mat: not MATLAB 5: endian mark is "},
    {124, 2, 0x0200, "mat: version 0x0200, need 0x0100; fix: save(..., '-v7"},
    {128, 4, 9, "mat: variable 1 at byte 128: type 9 (miDOUBLE), need a mat"},
    {128, 4, 0x80001, "mat: variable 1 at byte 128: type 524289 (unknown)"},
    {132, 4, 105, "mat: tag at byte 128 says 105 bytes, only 96 left"},
    {132, 4, UINT32_MAX, "mat: tag at byte 128 says 4294967295 bytes, only 96"},
    {132, 4, 95, "mat: file ends inside a tag, at byte 232"},
    {132, 4, 20, "mat: variable 1 at byte 128: ends inside the tag of its ext"},
    {132, 4, 0, "mat: variable 1 at byte 128: ends inside the tag of its fl"},
    {136, 4, 5, "its flags are of type 5 (miINT32), need miUINT32"},
    {140, 4, 4, "mat: variable 1 at byte 128: its flags have 4 bytes, need 8"},
    {140, 4, 999, "tag of its flags says 999 bytes, only 88 left"},
    {136, 4, 0x40006, "mat: variable 1 at byte 128: its flags have 4 bytes"},
    {136, 4, 0x50006, "small element of 5 bytes for its flags, need at most 4"},
    {144, 4, 18, "mat: variable 1 at byte 128: class 18 is not known"},
    {144, 4, 0, "mat: variable 1 at byte 128: class 0 is not known"},
    {152, 4, 9, "its extents are of type 9 (miDOUBLE), need miINT32"},
    {156, 4, 4, "its extents have 4 bytes, need 4 for each of 2 to 32 axes"},
    {156, 4, 7, "its extents have 7 bytes, need 4 for each of 2 to 32 axes"},
    {156, 4, 80, "tag of its extents says 80 bytes, only 72 left"},
    {160, 4, UINT32_MAX, "mat: variable 1 at byte 128: extent 1 is below 0"},
    {164, 4, 0x80000000, "mat: variable 1 at byte 128: extent 2 is below 0"},
    {160, 4, 0, "mat: x: is empty: axis 1 has extent 0"},
    {160, 4, 3, "mat: x: has 48 bytes of miDOUBLE, its extents need 72"},
    {160, 4, 1, "mat: x: has 48 bytes of miDOUBLE, its extents need 24"},
    {160, 4, 0x7fffffff, "mat: x: has 6442450941 elements in 96 bytes"},
    {168, 4, 0x10009,
     "its letters of the name are of type 9 (miDOUBLE), need miINT8"},
    {168, 4, 0x10010, NULL}, // miUTF8, as some programs write it
    {152, 4, 6, NULL},       // miUINT32
    {172, 1, 7, "its name has the character 0x07"},
    {172, 1, 0xe4, "its name has the character 0xe4"},
    {168, 4, 0x00001, "mat: variable 1 at byte 128: tag of its name says "},
    {180, 4, 40, "mat: x: has 40 bytes of miDOUBLE, its extents need 48"},
    {180, 4, 56, "mat: x: tag of its numbers says 56 bytes, only 48 left"},
    {144, 4, 0x206, "mat: x: element 1 of a logical array is 3, need 0 or 1"},
};

TEST(mat_defects)
{
    for (size_t r = 0; r < sizeof defects / sizeof *defects; r++)
        for (int big = 0; big < 2; big++) {
            const struct Defect *d = &defects[r];
            MatMaker m;
            mat_make(&m, big, 6, 9, 8);
            mat_patch(&m, (size_t)d->at, d->value, d->bytes);
            if (d->reason) {
                EXPECT_FAIL(mat_read_x(&m), d->reason);
                EXPECT_FAIL(mat_read_x(&m), "mat: ");
            } else {
                EXPECT(mat_read_x(&m));
            }
        }
}

TEST(mat_every_truncation_is_refused)
{
    for (int packed = 0; packed < 2; packed++) {
        MatMaker m;
        size_t at = mat_make(&m, packed, 6, 9, 8);
        if (packed) mat_compress(&m, at);
        EXPECT(mat_read_x(&m));
        while (m.size--) EXPECT(!mat_read_x(&m));
        m.size = 0;
        EXPECT_FAIL(mat_read_x(&m), "mat: file is empty");
        m.size = 100;
        EXPECT_FAIL(mat_read_x(&m),
                    "mat: not MATLAB 5: 100 bytes, need a header");
        m.size = 128;
        EXPECT_FAIL(mat_read_x(&m), "mat: the file holds no variable");
        m.size = 131;
        EXPECT_FAIL(mat_read_x(&m), "mat: file ends inside a tag, at byte 131");
    }
}

TEST(mat_other_versions)
{
    MatMaker m;
    for (int big = 0; big < 2; big++) {
        // a 1 x 1 double called x, in version 4
        m = (MatMaker){.big = big};
        mat_put(&m, big ? 1000 : 0, 4), mat_put(&m, 1, 4), mat_put(&m, 1, 4);
        mat_put(&m, 0, 4), mat_put(&m, 2, 4), mat_put(&m, 0, 8),
            mat_put(&m, 0, 2);
        EXPECT_FAIL(mat_read_x(&m),
                    "mat: MATLAB 4 file, which is not read; fix: ");
    }

    mat_make(&m, false, 6, 9, 8);
    memcpy(m.bytes, "\x89HDF\r\n\x1a\n", 8);
    EXPECT_FAIL(mat_read_x(&m),
                "mat: MATLAB 7.3 file (HDF5), which is not read; ");
    mat_begin(&m, false);
    mat_patch(&m, 124, 0x0200, 2);
    memset(m.bytes + 128, 0, 512 - 128);
    memcpy(m.bytes + 512, "\x89HDF\r\n\x1a\n", 8);
    m.size = 600;
    EXPECT_FAIL(mat_read_x(&m),
                "mat: MATLAB 7.3 file (HDF5), which is not read; "
                "fix: save(..., '-v7')");
    memset(m.bytes, 'x', 600);
    EXPECT_FAIL(mat_read_x(&m),
                "mat: not MATLAB 5: endian mark is 78 78, need IM");
    memset(m.bytes, 0, 600);
    EXPECT_FAIL(mat_read_x(&m), "mat: not MATLAB 5: endian mark is 00 00");
}

TEST(mat_compressed_defects)
{
    MatMaker m;
    size_t at = mat_make(&m, false, 6, 9, 8), packed;
    mat_compress(&m, at);
    packed = m.size - at - 8;

    // the checksum, which is verified only after inflating everything
    m.bytes[m.size - 1] ^= 1;
    EXPECT_FAIL(mat_read_x(&m), "packed data is damaged at its byte ");
    EXPECT_FAIL(mat_read_x(&m), "incorrect data check");
    m.bytes[m.size - 1] ^= 1;
    m.bytes[at + 8] ^= 1;
    EXPECT_FAIL(mat_read_x(&m),
                "mat: variable 1 at byte 128: packed data is dama");
    m.bytes[at + 8] ^= 1;

    // the last bytes missing, and bytes after the stream
    mat_patch(&m, at + 4, packed - 1, 4);
    m.size--;
    EXPECT_FAIL(mat_read_x(&m), "packed data ends early, at its byte ");
    m.size += 3;
    mat_patch(&m, at + 4, packed + 2, 4);
    m.bytes[m.size - 1] = m.bytes[m.size - 2] = 0;
    EXPECT_FAIL(mat_read_x(&m),
                "mat: x: 2 bytes after the end of the packed data");

    // contents of the stream: no matrix, a wrong tag, hardly any bytes
    static const struct {
        int at;
        uint32_t value;
        const char *reason;
    } row[] = {
        {0, 9, "type 9 (miDOUBLE) in a compressed element, need miMATRIX"},
        {0, 15, "type 15 (miCOMPRESSED) in a compressed element, need miMA"},
        {4, 105, "mat: variable 1 at byte 128: 96 bytes unpacked, 105 decl"},
        {4, 95, "mat: x: more than the declared 103 bytes unpacked"},
        {4, 1 << 30, "bytes cannot come from "},
        {4, UINT32_MAX, "bytes cannot come from "},
        {16, 18, "mat: variable 1 at byte 128: class 18 is not known"},
    };

    for (size_t r = 0; r < sizeof row / sizeof *row; r++) {
        at = mat_make(&m, false, 6, 9, 8);
        mat_patch(&m, at + (size_t)row[r].at, row[r].value, 4);
        mat_compress(&m, at);
        EXPECT_FAIL(mat_read_x(&m), row[r].reason);
    }

    mat_begin(&m, false);
    mat_put(&m, 14, 4);
    mat_compress(&m, 128);
    EXPECT_FAIL(mat_read_x(&m),
                "mat: variable 1 at byte 128: 4 bytes unpacked, n");
}

/* The maximum number of variables, and one more. */
TEST(mat_number_of_variables)
{
    enum { MOST = 65536, EACH = 64 };
    static const int one[] = {1, 1};
    uint8_t *file = mem_alloc(128 + (MOST + 1) * (size_t)EACH);
    MatMaker m;
    REQUIRE(file);
    mat_begin(&m, false);
    memcpy(file, m.bytes, 128);

    for (int i = 0; i <= MOST; i++) {
        char name[8];
        snprintf(name, sizeof name, "v%05x", i);
        m.size = 0;
        size_t at = mat_matrix(&m, 0, 9, one, 2, name);
        mat_numbers(&m, 2, 1, one, 1, true);
        mat_end(&m, at);
        REQUIRE(m.size == EACH);
        memcpy(file + 128 + (size_t)i * EACH, m.bytes, EACH);
    }

    for (int more = -1; more <= 1; more++) {
        Mat mat;
        bool ok =
            mat_open_bytes(file, 128 + (size_t)(MOST + more) * EACH, &mat);
        if (more > 0) {
            EXPECT_FAIL(ok, "mat: more than 65536 variables");
        } else {
            EXPECT(ok);
            EXPECT_INT(mat.variables, MOST + more);
        }
        mat_close(&mat);
    }
    mem_free(file);
}
