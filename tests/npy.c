/* npy: every type and order, what NumPy writes and reads, and refusals. */
#include "npy.h"
#include "file.h"
#include "test.h"
#include <stdlib.h>

enum { ROOM = 1024 };

/* A file of one literal and `bytes` bytes of numbers. */
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

/* npy_decode of a copy of exactly the size. */
static bool decode(const uint8_t *file, size_t size, NpyArray *a)
{
    uint8_t *copy = mem_alloc(size);
    REQUIRE(copy);
    memcpy(copy, file, size);
    bool ok = npy_decode(copy, size, 0, a);
    mem_free(copy);
    return ok;
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
    // element (i,j,k) holds the digits i j k, stored with i fastest
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
        {"", "'{' wanted at \"\""},
        {"[1, 2]", "not the dictionary of an array: '{' wanted at \"[1, 2]\""},
        {"{'descr': '|u1'", "'}' wanted at \"\""},
        {"{'descr' '|u1'}", "':' wanted"},
        {"{'descr': '|u1', 'fortran_order': False}", "lacks the key 'shape'"},
        {"{'fortran_order': False, 'shape': (6,)}", "lacks the key 'descr'"},
        {"{'descr': '|u1', 'shape': (6,)}", "lacks the key 'fortran_order'"},
        {"{'descr': '|u1', 'descr': '|u1'}", "key 'descr' twice"},
        {"{'descr': '|u1', 'order': 'C'}", "unknown key 'order'"},
        {"{'descr': __import__('os')}", "a quoted word wanted"},
        {"{'descr': '|u1', 'fortran_order': 0}", "True or False wanted"},
        {"{'descr': '|u1', 'fortran_order': Falsehood}", "'}' wanted"},
        {"{'descr': '\\x7cu1'}", "a short quoted word wanted"},
        {"{'descr': '|u1111111111111111111111111111111111'}", "a short quoted"},
        {"{'descr': '|u1", "a short quoted word wanted"},
        {"{'descr': '|O'}", "Python objects (pickle), which could run any"},
        {"{'descr': '<U8'}", "elements are text (descr '<U8')"},
        {"{'descr': '|S3'}", "elements are text"},
        {"{'descr': '<c8'}", "elements are complex numbers"},
        {"{'descr': '<M8[ns]'}", "elements are dates"},
        {"{'descr': '|V4'}", "elements are raw bytes"},
        {"{'descr': [('x', '<f4')]}", "a structured array"},
        {"{'descr': '<f16'}", "descr '<f16' is no type that is read"},
        {"{'descr': '<f1'}", "descr '<f1' is no type"},
        {"{'descr': '<u3'}", "descr '<u3' is no type"},
        {"{'descr': 'f4'}", "descr 'f4' is no type"},
        {"{'descr': '|f4'}", "descr '|f4' is no type"},
        {"{'descr': ''}", "descr '' is no type"},
        {"{'descr': '<'}", "descr '<' is no type"},
        {"{'shape': (6)}", "',' wanted"},
        {"{'shape': 6}", "'(' wanted at \"6}\""},
        {"{'shape': (-6,)}", "an extent below 0"},
        {"{'shape': (2, -3)}", "an extent below 0"},
        {"{'shape': (2.0, 3)}", "',' wanted"},
        {"{'shape': (,)}", "an extent wanted"},
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
         "the end of the header wanted at \"x\""},
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
    // every truncation is refused
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
    // lengths that lie
    n = make(file, 1, good, "\1\2\3\4\5\6", 6);
    file[9] = 0xff;
    EXPECT_FAIL(decode(file, n, &a), "header of 65335 bytes, only 61 left in");
    n = make(file, 2, good, "\1\2\3\4\5\6", 6);
    file[11] = 0xff;
    EXPECT_FAIL(decode(file, n, &a), "header of 4278190135 bytes, limit");
    n = make(file, 1, good, "\1\2\3\4\5\6", 6);
    file[8] += 3;
    EXPECT_FAIL(decode(file, n, &a), "the end of the header wanted");
    file[8] -= 6;
    EXPECT_FAIL(decode(file, n, &a), "wanted at");
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
    snprintf(path, sizeof path, "%s/round.npy", test_folder());
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
        SKIP("python3-numpy is not installed");
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
    snprintf(path, sizeof path, "%s/numpy.npy", test_folder());
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
        // and back: NumPy must find the same numbers in what we write
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

TEST(npy_without_memory)
{
    uint8_t file[ROOM];
    NpyArray a;
    size_t n =
        make(file, 1, "{'descr': '|u1', 'fortran_order': True, 'shape': (2,3)}",
             "\1\2\3\4\5\6", 6);
    long live = mem_live();
    for (int k = 0; k < 2; k++) {
        mem_fail_after(k, false);
        EXPECT_FAIL(npy_decode(file, n, 0, &a), "no memory");
        EXPECT_INT(mem_live(), live);
    }
    mem_fail_after(-1, false);
}
