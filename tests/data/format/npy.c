/* npy.c -- tests of every type and order, of files written and read by NumPy,
 * and of rejected files. */
#include "data/format/npy.h"
#include "engine/base/file.h"
#include "tests/test.h"
#include <stdlib.h>
#include <unistd.h>

enum { ROOM = 1024 };

/* Makes a file of one literal and `bytes` bytes of numbers. */
static size_t make(uint8_t file[ROOM], int version, const char *literal,
                   const void *numbers, size_t bytes)
{
    size_t n = strlen(literal), wide = version == 1 ? 2 : 4, at = 8;
    memset(file, 0, ROOM);
    memcpy(file, "\x93NUMPY", 6);
    file[6] = (uint8_t)version;
    for (size_t i = 0; i < wide; i++) file[at++] = (uint8_t)(n >> 8 * i);
    memcpy(file + at, literal, n);
    memcpy(file + at + n, numbers, bytes);
    return at + n + bytes;
}

/* Runs npy_decode on a copy of exactly that size. */
static bool decode(const uint8_t *file, size_t size, NpyArray *a)
{
    uint8_t *copy = mem_alloc(size);
    REQUIRE(copy);
    memcpy(copy, file, size);
    bool ok = npy_decode(copy, size, 0, a);
    mem_free(copy);
    return ok;
}

static void scratch(char path[300], const char *name)
{
    snprintf(path, 300, "%s/%s", test_folder(), name);
}

TEST(npy_reads_every_type)
{
    static const struct {
        const char *descr;
        uint8_t bytes[16]; // two numbers
        float want[2];
    } row[] = {
        {"|b1", {0, 1}, {0, 1}},
        {"|u1", {200, 1}, {200, 1}},
        {"|i1", {200, 1}, {-56, 1}},
        {"u1", {200, 1}, {200, 1}},
        {"<u1", {200, 1}, {200, 1}},
        {"<u2", {1, 255, 2, 0}, {65281, 2}},
        {">u2", {255, 1, 0, 2}, {65281, 2}},
        {"<i2", {1, 255, 2, 0}, {-255, 2}},
        {">i2", {255, 1, 0, 2}, {-255, 2}},
        {"<u4", {0, 0, 0, 128, 1}, {2147483648.0f, 1}},
        {">u4", {128, 0, 0, 0, 0, 0, 0, 1}, {2147483648.0f, 1}},
        {"<i4", {0, 0, 0, 128, 1}, {-2147483648.0f, 1}},
        {"<u8", {0, 0, 0, 0, 0, 0, 0, 128, 1}, {9223372036854775808.0f, 1}},
        {"<i8", {0, 0, 0, 0, 0, 0, 0, 128, 1}, {-9223372036854775808.0f, 1}},
        {">i8",
         {255, 255, 255, 255, 255, 255, 255, 254, 0, 0, 0, 0, 0, 0, 0, 1},
         {-2, 1}},
        {"<f2", {0, 0x3c, 0xff, 0xfb}, {1, -65504}},
        {">f2", {0x3c, 0, 0, 1}, {1, 5.9604645e-8f}},
        {"<f4", {0, 0, 0x80, 0x3f, 0, 0, 0, 0xc0}, {1, -2}},
        {">f4", {0x3f, 0x80, 0, 0, 0xc0, 0, 0, 0}, {1, -2}},
        {"=f4", {0, 0, 0x80, 0x3f, 0, 0, 0, 0xc0}, {1, -2}},
        {"<f8",
         {0, 0, 0, 0, 0, 0, 0xf0, 0x3f, 0, 0, 0, 0, 0, 0, 0, 0xc0},
         {1, -2}},
        {">f8", {0x3f, 0xf0, 0, 0, 0, 0, 0, 0, 0xc0}, {1, -2}},
    };

    for (size_t r = 0; r < sizeof row / sizeof *row; r++)
        for (int version = 1; version <= 3; version++) {
            char literal[128];
            uint8_t file[ROOM];
            NpyArray a;
            snprintf(literal, sizeof literal,
                     "{'descr': '%s', 'fortran_order': False, 'shape': (2,), }"
                     "   \n",
                     row[r].descr);
            const char *digit = row[r].descr + strlen(row[r].descr) - 1;
            size_t n = make(file, version, literal, row[r].bytes,
                            (size_t)(*digit - '0') * 2);
            if (!decode(file, n, &a)) {
                test_failed(__FILE__, __LINE__, "%s: %s", row[r].descr,
                            err_text());
                continue;
            }
            EXPECT_INT(a.axes, 1);
            EXPECT_INT(a.count, 2);
            EXPECT(a.data[0] == row[r].want[0] && a.data[1] == row[r].want[1]);
            mem_free(a.data);
        }
}

TEST(npy_half_values)
{
    static const struct {
        uint16_t bits;
        double want;
    } row[] = {
        {0x0000, 0},        {0x8000, -0.0},      {0x3555, 0.333251953125},
        {0x0400, 0x1p-14},  {0x03ff, 0x3ffp-24}, {0x7bff, 65504},
        {0x7c00, INFINITY}, {0xfc00, -INFINITY},
    };

    for (size_t r = 0; r < sizeof row / sizeof *row; r++) {
        uint8_t file[ROOM];
        NpyArray a;
        size_t n =
            make(file, 1, "{'descr':'<f2','fortran_order':False,'shape':()}\n",
                 &row[r].bits, 2);
        REQUIRE(decode(file, n, &a));
        EXPECT_INT(a.axes, 0);
        EXPECT_INT(a.count, 1);
        EXPECT((double)a.data[0] == row[r].want);
        EXPECT(!signbit(a.data[0]) == !signbit(row[r].want));
        mem_free(a.data);
    }
}

TEST(npy_fortran_order)
{
    // element (i,j,k) has the digits i j k, stored with i fastest
    uint8_t stored[2 * 3 * 4], file[ROOM];
    NpyArray a;

    for (int k = 0, at = 0; k < 4; k++)
        for (int j = 0; j < 3; j++)
            for (int i = 0; i < 2; i++)
                stored[at++] = (uint8_t)(i * 100 + j * 10 + k);
    size_t n = make(file, 2,
                    "{\"shape\": (2, 3, 4), \"fortran_order\": True, "
                    "\"descr\": \"|u1\"}",
                    stored, sizeof stored);
    REQUIRE(decode(file, n, &a));
    EXPECT_INT(a.axes, 3);
    for (int i = 0, at = 0; i < 2; i++)
        for (int j = 0; j < 3; j++)
            for (int k = 0; k < 4; k++)
                EXPECT_INT(a.data[at++], i * 100 + j * 10 + k);
    mem_free(a.data);
}

TEST(npy_literals)
{
    static const struct {
        const char *literal, *reason; // NULL: 6 numbers of one byte
    } row[] = {
        {"{'descr': '|u1', 'fortran_order': False, 'shape': (2, 3), }\n", 0},
        {"{'shape':(2L,3L),'fortran_order':False,'descr':'|u1'}", 0},
        {" { 'descr' : '|u1' , 'fortran_order' : False , 'shape' : ( 6 , ) } ",
         0},
        {"{'descr':'|u1','fortran_order':True,'shape':(1,1,1,6,1,1,1,1)}", 0},
        {"", "expected '{' at \"\""},
        {"[1, 2]",
         "not the dictionary of an array: expected '{' at \"[1, 2]\""},
        {"{'descr': '|u1'", "expected '}' at \"\""},
        {"{'descr' '|u1'}", "expected ':'"},
        {"{'descr': '|u1', 'fortran_order': False}", "lacks the key 'shape'"},
        {"{'fortran_order': False, 'shape': (6,)}", "lacks the key 'descr'"},
        {"{'descr': '|u1', 'shape': (6,)}", "lacks the key 'fortran_order'"},
        {"{'descr': '|u1', 'descr': '|u1'}", "key 'descr' twice"},
        {"{'descr': '|u1', 'order': 'C'}", "unknown key 'order'"},
        {"{'descr': __import__('os')}", "expected a quoted word"},
        {"{'descr': '|u1', 'fortran_order': 0}", "expected True or False"},
        {"{'descr': '|u1', 'fortran_order': Falsehood}", "expected '}'"},
        {"{'descr': '\\x7cu1'}", "expected a short quoted word"},
        {"{'descr': '|u1111111111111111111111111111111111'}", "a short quoted"},
        {"{'descr': '|u1", "expected a short quoted word"},
        {"{'descr': '|O'}", "Python objects (pickle), which could run any"},
        {"{'descr': '<U8'}", "elements are text (descr '<U8')"},
        {"{'descr': '|S3'}", "elements are text"},
        {"{'descr': '<c8'}", "elements are complex numbers"},
        {"{'descr': '<M8[ns]'}", "elements are dates"},
        {"{'descr': '|V4'}", "elements are raw bytes"},
        {"{'descr': [('x', '<f4')]}", "a structured array"},
        {"{'descr': '<f16'}", "descr '<f16' is not a supported type"},
        {"{'descr': '<f1'}", "descr '<f1' is not a supported type"},
        {"{'descr': '<u3'}", "descr '<u3' is not a supported type"},
        {"{'descr': 'f4'}", "descr 'f4' is not a supported type"},
        {"{'descr': '|f4'}", "descr '|f4' is not a supported type"},
        {"{'descr': ''}", "descr '' is not a supported type"},
        {"{'descr': '<'}", "descr '<' is not a supported type"},
        {"{'shape': (6)}", "expected ','"},
        {"{'shape': 6}", "expected '(' at \"6}\""},
        {"{'shape': (-6,)}", "an extent below 0"},
        {"{'shape': (2, -3)}", "an extent below 0"},
        {"{'shape': (2.0, 3)}", "expected ','"},
        {"{'shape': (,)}", "expected an extent"},
        {"{'shape': (99999999999999999999,)}", "beyond 64 bits"},
        {"{'shape': (1,1,1,1,1,1,1,1,1)}", "more than 8 axes"},
        {"{'descr': '|u1', 'fortran_order': False, 'shape': (0, 3)}",
         "an empty array: axis 0 has extent 0"},
        {"{'descr': '|u1', 'fortran_order': False, 'shape': (7,)}",
         "6 bytes of numbers, the header declares 7"},
        {"{'descr': '|u1', 'fortran_order': False, 'shape': (5,)}",
         "6 bytes of numbers, the header declares 5"},
        {"{'descr': '|u1', 'fortran_order': False, 'shape': ()}",
         "6 bytes of numbers, the header declares 1"},
        {"{'descr': '<u4', 'fortran_order': False, 'shape': (4294967296, "
         "4294967296)}",
         "more than 8589934592 elements"},
        {"{'descr': '<f8', 'fortran_order': False, 'shape': (8589934592,)}",
         "the header declares 68719476736"},
        {"{'descr': '|u1', 'fortran_order': False, 'shape': (6,)} x",
         "expected the end of the header at \"x\""},
    };

    for (size_t r = 0; r < sizeof row / sizeof *row; r++) {
        uint8_t file[ROOM];
        NpyArray a;
        size_t n = make(file, 1, row[r].literal, "\1\2\3\4\5\6", 6);
        long live = mem_live();
        if (row[r].reason) {
            EXPECT_FAIL(decode(file, n, &a), row[r].reason);
            EXPECT_FAIL(decode(file, n, &a), "npy: ");
            EXPECT(err_kind() == ERR_DATA);
            EXPECT(!a.data);
            EXPECT_INT(mem_live(), live);
            continue;
        }
        REQUIRE(decode(file, n, &a));
        EXPECT_INT(a.count, 6);
        for (int i = 0; i < 6; i++) EXPECT_INT(a.data[i], i + 1);
        mem_free(a.data);
    }
}

TEST(npy_frame_defects)
{
    static const char *good =
        "{'descr': '|u1', 'fortran_order': False, 'shape': (6,)}";
    uint8_t file[ROOM];
    NpyArray a;
    size_t n = make(file, 1, good, "\1\2\3\4\5\6", 6);

    EXPECT_FAIL(decode(file, 0, &a), "npy: file is empty");
    EXPECT_FAIL(decode(file, 7, &a), "not .npy: the first bytes are not");
    EXPECT_FAIL(decode(file, 9, &a), "file ends inside the header, at byte 9");

    // every truncation is rejected
    for (size_t k = 0; k < n; k++) EXPECT(!decode(file, k, &a));
    file[0] = 'N';
    EXPECT_FAIL(decode(file, n, &a), "not .npy: the first bytes are not");
    memcpy(file, "PK\3\4", 4);
    EXPECT_FAIL(decode(file, n, &a), "a .npz archive, need one .npy array");
    static const uint8_t versions[][2] = {{0, 0}, {4, 0}, {1, 1}};
    for (int i = 0; i < 3; i++) {
        make(file, 1, good, "", 0);
        memcpy(file + 6, versions[i], 2);
        EXPECT_FAIL(decode(file, n, &a), "need 1.0, 2.0 or 3.0");
    }

    // wrong lengths
    n = make(file, 1, good, "\1\2\3\4\5\6", 6);
    file[9] = 0xff;
    EXPECT_FAIL(decode(file, n, &a), "header of 65335 bytes, only 61 left in");
    n = make(file, 2, good, "\1\2\3\4\5\6", 6);
    file[11] = 0xff;
    EXPECT_FAIL(decode(file, n, &a), "header of 4278190135 bytes, limit");
    n = make(file, 1, good, "\1\2\3\4\5\6", 6);
    file[8] += 3;
    EXPECT_FAIL(decode(file, n, &a), "expected the end of the header");
    file[8] -= 6;
    EXPECT_FAIL(decode(file, n, &a), ": expected ");
}

TEST(npy_limits)
{
    uint8_t file[ROOM];
    NpyArray a;
    size_t n = make(file, 1,
                    "{'descr': '|u1', 'fortran_order': False, 'shape': (2,3)}",
                    "\1\2\3\4\5\6", 6);

    EXPECT_FAIL(npy_decode(file, n, 5, &a), "more than 5 elements");
    for (int limit = 6; limit <= 7; limit++) {
        REQUIRE(npy_decode(file, n, limit, &a));
        mem_free(a.data);
    }

    // doubles beyond float
    double x[2] = {1, 1e300};
    n = make(file, 1, "{'descr': '<f8', 'fortran_order': False, 'shape': (2,)}",
             x, sizeof x);
    EXPECT_FAIL(npy_decode(file, n, 0, &a), "element 1 does not fit a float");
    x[1] = -INFINITY;
    n = make(file, 1, "{'descr': '<f8', 'fortran_order': False, 'shape': (2,)}",
             x, sizeof x);
    REQUIRE(npy_decode(file, n, 0, &a));
    EXPECT(a.data[1] == -INFINITY);
    mem_free(a.data);
}

TEST(npy_round_trip)
{
    static const int64_t shapes[][NPY_AXES] = {
        {24}, {4, 6}, {1, 24}, {2, 3, 4}, {2, 1, 3, 1, 4, 1, 1, 1}};
    static const int axes[] = {1, 2, 2, 3, 8};
    char path[300];
    float data[24];

    for (int i = 0; i < 24; i++) data[i] = (float)(i - 7) / 3;
    data[3] = -0.0f, data[4] = INFINITY;
    scratch(path, "round.npy");

    for (int s = 0; s < 5; s++) {
        NpyArray a;
        Arena mem = {0};
        char *file = NULL;
        size_t n;
        REQUIRE(npy_write(path, axes[s], shapes[s], data));
        REQUIRE(npy_read(path, &a));
        EXPECT_INT(a.axes, axes[s]);
        for (int k = 0; k < axes[s]; k++) EXPECT_INT(a.shape[k], shapes[s][k]);
        EXPECT(!memcmp(a.data, data, sizeof data));
        mem_free(a.data);
        REQUIRE(file_read(path, 1 << 20, &mem, &file, &n));
        EXPECT_INT((n - sizeof data) % 64, 0);
        EXPECT_INT(file[n - sizeof data - 1], '\n');
        arena_release(&mem);
    }

    NpyArray a;
    REQUIRE(npy_write(path, 0, NULL, data + 1));
    REQUIRE(npy_read(path, &a));
    EXPECT(a.axes == 0 && a.count == 1 && a.data[0] == data[1]);
    mem_free(a.data);
    EXPECT_FAIL(npy_read("no/such.npy", &a), "no/such.npy: npy: cannot open");
    EXPECT_FAIL(npy_write("no/such.npy", 1, shapes[0], data), "no/such.npy");
}

TEST(npy_agrees_with_numpy)
{
    if (system("/usr/bin/python3 -c 'import numpy' 2> /dev/null"))
        SKIP("python3-numpy is not installed (sh vendor/fetch test)");
    static const struct {
        const char *expression;
        int axes;
        int64_t shape[3];
    } row[] = {
        {"i.astype('f4').reshape(2,3,4)", 3, {2, 3, 4}},
        {"i.astype('>f8').reshape(4,6)", 2, {4, 6}},
        {"numpy.asfortranarray(i.astype('i2').reshape(2,3,4))", 3, {2, 3, 4}},
        {"numpy.asfortranarray(i.astype('>f2').reshape(6,4))", 2, {6, 4}},
        {"i.astype('u1')", 1, {24}},
        {"i.astype('i8').reshape(24,1)", 2, {24, 1}},
    };
    char path[300], command[700];
    scratch(path, "numpy.npy");

    for (size_t r = 0; r < sizeof row / sizeof *row; r++) {
        NpyArray a;
        snprintf(command, sizeof command,
                 "/usr/bin/python3 -c \"import numpy\ni = numpy.arange(24)\n"
                 "numpy.save('%s', %s)\"",
                 path, row[r].expression);
        REQUIRE(!system(command));
        REQUIRE(npy_read(path, &a));
        EXPECT_INT(a.axes, row[r].axes);
        for (int k = 0; k < a.axes; k++)
            EXPECT_INT(a.shape[k], row[r].shape[k]);
        for (int i = 0; i < 24; i++) EXPECT_INT(a.data[i], i);
        // and back: NumPy must read the same numbers from our file
        REQUIRE(npy_write(path, a.axes, a.shape, a.data));
        snprintf(command, sizeof command,
                 "/usr/bin/python3 -c \"import numpy\ni = numpy.arange(24)\n"
                 "a = numpy.load('%s')\nb = %s\n"
                 "assert a.dtype == 'f4' and a.shape == b.shape\n"
                 "assert (a == b).all()\"",
                 path, row[r].expression);
        EXPECT(!system(command));
        mem_free(a.data);
    }
}

/* Writes a file of 2 x 3 x 4 numbers of two bytes, in C order 0, 1, 2, ... */
static void make_range(const char *path, bool fortran)
{
    static const char *literal[] = {
        "{'descr': '>i2', 'fortran_order': False, 'shape': (2,3,4)}",
        "{'descr': '>i2', 'fortran_order': True, 'shape': (2,3,4)}"};
    uint8_t numbers[48] = {0}, file[ROOM];
    for (int i = 0; i < 24; i++)
        numbers[2 * (fortran ? i / 12 + 2 * (i / 4 % 3) + 6 * (i % 4) : i) +
                1] = (uint8_t)i;
    size_t n = make(file, 1, literal[fortran], numbers, sizeof numbers);
    REQUIRE(file_replace(path, file, n));
}

TEST(npy_ranges)
{
    char path[300];
    scratch(path, "range.npy");

    for (int fortran = 0; fortran < 2; fortran++) {
        NpyFile f;
        long live = mem_live();
        make_range(path, fortran);
        REQUIRE(npy_open(path, &f));
        EXPECT_INT(f.header.axes, 3);
        EXPECT_INT(f.header.count, 24);
        EXPECT_INT(f.header.shape[1], 3);
        EXPECT(f.header.fortran == (fortran == 1));
        EXPECT_TEXT(npy_type_name(&f.header), "int16");
        for (int first = 0; first <= 24; first++)
            for (int count = 0; count <= 24 - first; count++) {
                float x[25];
                x[count] = -1;
                REQUIRE(npy_read_range(&f, first, count, x));
                for (int i = 0; i < count; i++) EXPECT_INT(x[i], first + i);
                EXPECT_INT(x[count], -1);
            }
        float x[25];
        EXPECT_FAIL(
            npy_read_range(&f, 20, 5, x),
            "range.npy: npy: 5 elements from 20 on requested, the array "
            "has 24");
        EXPECT_FAIL(npy_read_range(&f, -1, 5, x), "5 elements from -1 on");
        EXPECT_FAIL(npy_read_range(&f, 1, -5, x), "-5 elements from 1 on");
        EXPECT_FAIL(npy_read_range(&f, INT64_MAX, 1, x),
                    "requested, the array");
        EXPECT_FAIL(npy_read_range(&f, 1, INT64_MAX, x),
                    "requested, the array");
        npy_close(&f);
        npy_close(&f);
        EXPECT_INT(mem_live(), live);
    }
}

/* More elements than the gather buffer holds, in every order of three axes. */
TEST(npy_long_range_of_columns)
{
    enum { A = 7, B = 33, C = 19, N = A * B * C };
    static uint8_t file[128 + 4 * N];
    static float x[N];
    NpyFile f;
    size_t n = make(file, 1,
                    "{'descr': '<u4', 'fortran_order': True, "
                    "'shape': (7, 33, 19)}",
                    "", 0);

    for (int i = 0; i < A; i++)
        for (int j = 0; j < B; j++)
            for (int k = 0; k < C; k++) {
                uint32_t v = (uint32_t)((i * B + j) * C + k);
                memcpy(file + n + 4 * (i + A * (j + B * k)), &v, 4);
            }

    REQUIRE(npy_open_bytes(file, n + 4 * N, 0, &f));
    for (int first = 0; first < N; first += 611) {
        REQUIRE(npy_read_range(&f, first, N - first, x));
        for (int i = first; i < N; i++) EXPECT_INT(x[i - first], i);
    }
    npy_close(&f);
}

TEST(npy_file_that_is_cut_while_open)
{
    char path[300];
    NpyFile f;
    float x[24];

    scratch(path, "cut.npy");
    make_range(path, false);
    REQUIRE(npy_open(path, &f));

    // replaced by renaming: the open file is still the old one
    make_range(path, true);
    REQUIRE(npy_read_range(&f, 0, 24, x));
    EXPECT_INT(x[23], 23);
    npy_close(&f);
    REQUIRE(npy_open(path, &f));
    REQUIRE(!truncate(path, 90));
    EXPECT_FAIL(npy_read_range(&f, 0, 1, x),
                "cut.npy: npy: file was cut to 90 bytes while it was in use, "
                "had ");

    // a disk that does not answer, simulated by a closed descriptor
    close(f.map.fd);
    EXPECT_FAIL(npy_read_range(&f, 0, 1, x), "cut.npy: npy: cannot read: ");
    f.map.open = false;
    npy_close(&f);
}

/* A regular file with bytes that the kernel generates when they are read. */
TEST(npy_file_that_cannot_be_mapped)
{
    static const char path[] = "/sys/kernel/mm/transparent_hugepage/enabled";
    NpyFile f;
    long live = mem_live();
    if (access(path, R_OK)) SKIP("no sysfs");
    EXPECT_FAIL(npy_open(path, &f), "npy: cannot map /sys/kernel/mm/");
    EXPECT_INT(mem_live(), live);
}

TEST(npy_files_that_do_not_open)
{
    char path[300];
    NpyFile f;
    NpyArray a;
    long live = mem_live();

    scratch(path, "odd.npy");
    EXPECT_FAIL(npy_open("no/such.npy", &f), "no/such.npy: npy: cannot open");
    EXPECT_FAIL(npy_open(test_folder(), &f), "is a folder, not a file");
    EXPECT_FAIL(npy_open("/dev/zero", &f), "is not a regular file");
    REQUIRE(file_replace(path, "", 0));
    EXPECT_FAIL(npy_open(path, &f), "odd.npy: npy: file is empty");

    // a file beyond the limit: sparse, so no bytes are written
    make_range(path, false);
    REQUIRE(!truncate(path, ((off_t)16 << 30) + 1));
    EXPECT_FAIL(npy_read(path, &a), "has 17179869185 bytes, limit 17179869184");
    EXPECT_FAIL(npy_open(path, &f), "bytes of numbers, the header declares 48");
    REQUIRE(!truncate(path, (off_t)16 << 30));
    EXPECT_FAIL(npy_read(path, &a), "the header declares 48");
    EXPECT_INT(mem_live(), live);
}

/* Larger than the memory of most machines, and at the size limit. */
TEST(npy_range_of_a_huge_file)
{
    char path[300];
    uint8_t file[ROOM];
    NpyFile f;
    float x[3] = {1, 1, 1};
    size_t n = make(file, 1,
                    "{'descr': '<f8', 'fortran_order': False, 'shape': "
                    "(65536,131072)}",
                    "", 0);

    scratch(path, "huge.npy");
    REQUIRE(file_replace(path, file, n));
    REQUIRE(!truncate(path, (off_t)n + ((off_t)64 << 30)));
    REQUIRE(npy_open(path, &f));
    EXPECT(f.header.count == (int64_t)1 << 33);
    REQUIRE(npy_read_range(&f, f.header.count - 3, 3, x));
    EXPECT(x[0] == 0 && x[1] == 0 && x[2] == 0);
    npy_close(&f);

    // one element above the limit
    n = make(file, 1,
             "{'descr': '|u1', 'fortran_order': False, 'shape': (8589934593,)}",
             "", 0);
    REQUIRE(file_replace(path, file, n));
    REQUIRE(!truncate(path, (off_t)n + ((off_t)8 << 30) + 1));
    EXPECT_FAIL(npy_open(path, &f), "more than 8589934592 elements");
    REQUIRE(!unlink(path));
}

TEST(npy_type_names)
{
    static const char *const row[][2] = {
        {"|b1", "bool"},    {"|i1", "int8"},    {"<i2", "int16"},
        {">i4", "int32"},   {"<i8", "int64"},   {"|u1", "uint8"},
        {">u2", "uint16"},  {"<u4", "uint32"},  {"<u8", "uint64"},
        {"<f2", "float16"}, {">f4", "float32"}, {"<f8", "float64"}};

    for (size_t r = 0; r < sizeof row / sizeof *row; r++) {
        char literal[80];
        uint8_t file[ROOM];
        NpyHeader h;
        snprintf(literal, sizeof literal,
                 "{'descr':'%s','fortran_order':False,'shape':()}", row[r][0]);
        size_t n = make(file, 1, literal, "\0\0\0\0\0\0\0\0",
                        (size_t)(row[r][0][2] - '0'));
        REQUIRE(npy_about(file, npy_header_end(file, NPY_PREFIX), n, 0, &h));
        EXPECT_TEXT(npy_type_name(&h), row[r][1]);
        EXPECT_INT(h.begin, npy_header_end(file, NPY_PREFIX));
    }
}

TEST(npy_bool_is_0_or_1)
{
    uint8_t file[ROOM];
    NpyArray a;
    size_t n =
        make(file, 1, "{'descr': '|b1', 'fortran_order': False, 'shape': (3,)}",
             "\1\0\2", 3);
    EXPECT_FAIL(decode(file, n, &a),
                "npy: element 2 is 2, need False (0) or True (1)");
    EXPECT(!a.data);
}

TEST(npy_without_memory)
{
    uint8_t file[ROOM];
    NpyArray a;
    size_t n =
        make(file, 1, "{'descr': '|u1', 'fortran_order': True, 'shape': (2,3)}",
             "\1\2\3\4\5\6", 6);
    long live = mem_live();

    mem_fail_after(0, false);
    EXPECT_FAIL(npy_decode(file, n, 0, &a), "no memory");
    EXPECT_INT(mem_live(), live);
    mem_fail_after(-1, false);

    // for a file, the name and the numbers
    char path[300];
    NpyFile f;
    scratch(path, "memory.npy");
    REQUIRE(file_replace(path, file, n));
    for (int k = 0; k < 2; k++) {
        mem_fail_after(k, false);
        EXPECT_FAIL(npy_read(path, &a), "memory.npy: npy: no memory");
        EXPECT_INT(mem_live(), live);
    }

    mem_fail_after(0, false);
    EXPECT_FAIL(npy_open(path, &f), "memory.npy: npy: no memory");
    mem_fail_after(-1, false);
    EXPECT_INT(mem_live(), live);
}
