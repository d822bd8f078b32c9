/* npz.c -- tests of archives in the format of NumPy, of names, limits,
 * files. */
#include "engine/base/file.h"
#include "tests/support/npz_make.h"
#include <stdlib.h>
#include <zlib.h>

TEST(npz_reads_every_kind)
{
    static const int kinds[] = {STORED,
                                DEFLATED,
                                WIDE,
                                WIDE | DEFLATED,
                                BEHIND,
                                BEHIND | DEFLATED,
                                BEHIND | DEFLATED | WIDE,
                                ZIP64,
                                ZIP64 | DEFLATED};

    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (int comment = 0; comment < 3; comment++) {
            Zip zip;
            uint8_t *copy;
            Npz z;
            NpyArray a;
            NpyHeader h;
            zip_make(&zip, kinds[k]);
            // a comment at the end is no data; it may look like an end record
            if (comment) {
                zip_patch(&zip, zip.end + 20, comment == 1 ? 3 : 22, 2);
                zip_bytes(&zip, "PK\5\6 123456789012345678",
                          comment == 1 ? 3 : 22);
            }
            if (!zip_open(&zip, &copy, &z)) {
                test_failed(__FILE__, __LINE__, "kind %d: %s", kinds[k],
                            err_text());
                mem_free(copy);
                continue;
            }
            EXPECT_INT(z.entries, 2);
            EXPECT_TEXT(z.entry[0].name, "a");
            EXPECT_TEXT(z.entry[1].name, "b");
            EXPECT(npz_about(&z, 1, &h));
            EXPECT(h.axes == 1 && h.shape[0] == 40 && h.type.kind == 'u');
            REQUIRE(npz_read(&z, "b", 0, &a));
            EXPECT_INT(a.count, 40);
            for (int i = 0; i < 40; i++) EXPECT_INT(a.data[i], 50 + i);
            mem_free(a.data);
            REQUIRE(npz_read(&z, "a", 0, &a));
            EXPECT_INT(a.count, 3);
            EXPECT_INT(a.data[2], 3);
            mem_free(a.data);
            npz_close(&z);
            npz_close(&z);
            mem_free(copy);
        }
}

/* A ratio impossible for deflate is rejected before memory is allocated; the
 * maximum, 1,032, is read. */
TEST(npz_bomb)
{
    enum { N = 1 << 20, HEAD = 128 };
    static uint8_t content[HEAD + N];
    uint8_t *packed = mem_alloc(ROOM), *copy;
    Npz z;
    NpyArray a;
    NpyHeader h;
    char literal[HEAD];
    int n = snprintf(literal, sizeof literal,
                     "{'descr': '|u1', 'fortran_order': False, 'shape': "
                     "(%d,)}",
                     N);
    memset(content, ' ', HEAD);
    memset(content + HEAD, 0, N);
    memcpy(content, "\x93NUMPY\1\0v\0", 10);
    memcpy(content + 10, literal, (size_t)n);
    REQUIRE(packed);
    size_t size = zip_deflate(content, sizeof content, packed);
    Zip zip, entry = {.size = 0};
    zip_make_one(&zip, "b.npy", DEFLATED, content, 100);
    size_t end = zip.data[0] + size;
    // the same archive structure around other data
    Zip big = {.size = 0};
    zip_bytes(&big, zip.bytes, zip.data[0]);
    zip_bytes(&big, packed, size);
    zip_bytes(&entry, zip.bytes + zip.central[0], 51);
    big.members = 1, big.central[0] = 0;
    zip_finish(&big, &entry, false);
    uint32_t crc = (uint32_t)crc32(0, content, sizeof content);
    for (int part = 0; part < 2; part++) {
        size_t at = part ? end + 16 : 14;
        zip_patch(&big, at, crc, 4), zip_patch(&big, at + 4, size, 4);
        zip_patch(&big, at + 8, sizeof content, 4);
    }

    EXPECT(size < sizeof content / 900);
    REQUIRE(zip_open(&big, &copy, &z));
    REQUIRE(npz_about(&z, 0, &h));
    EXPECT_INT(h.count, N);
    EXPECT_FAIL(npz_read(&z, "b", N - 1, &a), "npz: b: npy: more than 1048575");
    REQUIRE(npz_read(&z, "b", N, &a));
    mem_free(a.data);
    npz_close(&z);
    mem_free(copy);

    // a stream with one byte more, and one less, than archive and header
    // declare
    for (int more = 0; more < 2; more++) {
        uint64_t told = sizeof content - (more ? 1 : 0);
        if (!more) told++;
        zip_patch(&big, 22, told, 4), zip_patch(&big, end + 24, told, 4);
        EXPECT_FAIL(zip_read_b(&big),
                    more ? "1048575 bytes of numbers, the header"
                         : "1048577 bytes of numbers, the head");
    }

    // deflate's limit: one byte more than 1,032 per byte is invalid
    uint64_t most = (uint64_t)size * 1032 + 1031;

    for (int k = 0; k < 2; k++) {
        zip_patch(&big, 22, most + (uint64_t)k, 4);
        zip_patch(&big, end + 24, most + (uint64_t)k, 4);
        EXPECT_FAIL(zip_read_b(&big),
                    k ? "packed ones (at most 1032 each)"
                      : "bytes of numbers, the header declares");
    }
    mem_free(packed);
}

TEST(npz_many_names)
{
    uint8_t content[ROOM];
    Zip zip, entry = {.size = 0};
    char name[128];
    uint8_t *copy;
    Npz z;
    NpyArray a;
    size_t n = zip_npy(content, 1, 3);

    zip = entry;
    for (int i = 0; i < 12; i++) {
        snprintf(name, sizeof name, "array_%02d.npy", i);
        zip.members = 0; // positions are not needed here
        zip_add(&zip, &entry, name, STORED, content, n);
    }

    zip.members = 12;
    size_t at = zip.size;
    zip_bytes(&zip, entry.bytes, entry.size);
    zip_bytes(&zip, "PK\5\6\0\0\0\0\14\0\14\0", 12);
    zip_put(&zip, entry.size, 4), zip_put(&zip, at, 4), zip_put(&zip, 0, 2);
    REQUIRE(zip_open(&zip, &copy, &z));
    EXPECT_FAIL(npz_read(&z, "array_12", 0, &a),
                "npz: no array \"array_12\"; there are: array_00, array_01, "
                "array_02, array_03, array_04, array_05, array_06, array_07, "
                "array_08, array_09, ...");
    EXPECT(!strstr(err_text(), "..., ..."));
    npz_close(&z);
    mem_free(copy);
}

TEST(npz_files)
{
    char path[300];
    Zip zip;
    Npz z;
    NpyArray a;
    NpyHeader h;
    long live = mem_live();

    snprintf(path, sizeof path, "%s/x.npz", test_folder());
    zip_make(&zip, DEFLATED);
    EXPECT_FAIL(npz_open("no/such.npz", &z), "no/such.npz: npz: cannot open");
    REQUIRE(file_replace(path, zip.bytes, zip.size));
    REQUIRE(npz_open(path, &z));
    REQUIRE(npz_read(&z, "b", 0, &a));
    EXPECT_INT(a.data[39], 89);
    mem_free(a.data);
    EXPECT_FAIL(npz_read(&z, "c", 0, &a),
                "x.npz: npz: no array \"c\"; there are: a, b");
    zip.bytes[zip.data[1]] = 0xff;
    npz_close(&z);
    REQUIRE(file_replace(path, zip.bytes, zip.size));
    REQUIRE(npz_open(path, &z));
    EXPECT_FAIL(npz_read(&z, "b", 0, &a), "x.npz: npz: b: packed data is dam");
    EXPECT_FAIL(npz_about(&z, 1, &h), "x.npz: npz: b: packed data is damaged");
    FILE *f = fopen(path, "w");
    REQUIRE(f);
    fclose(f);
    EXPECT_FAIL(npz_read(&z, "b", 0, &a), "x.npz: npz: b: file was cut to 0");
    npz_close(&z);
    EXPECT_FAIL(npz_open(path, &z), "x.npz: npz: file is empty");

    // every allocation fails once; some are made by zlib
    zip_make(&zip, DEFLATED);
    REQUIRE(file_replace(path, zip.bytes, zip.size));
    int failures = 0, zlib = 0;

    for (int k = 0; k < 40; k++) {
        mem_fail_after(k, false);
        bool ok = npz_open(path, &z) && npz_read(&z, "b", 0, &a);
        mem_fail_after(-1, false);
        zlib += !ok && strstr(err_text(), "no memory to unpack") != NULL;
        if (ok)
            mem_free(a.data);
        else
            failures++;
        npz_close(&z);
        EXPECT_INT(mem_live(), live);
    }
    EXPECT(failures > 8 && failures < 40 && zlib > 1);
}
