/* zip.c -- tests of archives that Python and npz.h read. */
#include "data/format/zip.h"
#include "data/format/npz.h"
#include "engine/base/file.h"
#include "tests/test.h"

static void place(char path[300], const char *name, const void *data,
                  size_t bytes)
{
    snprintf(path, 300, "%s/%s", test_folder(), name);
    if (data) REQUIRE(file_replace(path, data, bytes));
}

static size_t contents(const char *path, Arena *mem, char **data)
{
    size_t bytes = 0;
    EXPECT(file_read(path, 1 << 20, mem, data, &bytes));
    return bytes;
}

/* A .npy file that deflate makes shorter, and one of random bytes that it
 * cannot shorten. */
TEST(zip_is_read_by_another_reader)
{
    static const char head[] = "\x93NUMPY\x01\0\x46\0{'descr': '|u1', "
                               "'fortran_order': False, 'shape': (512,), }";
    uint8_t npy[2][80 + 512];
    char path[3][300], *one, *two;
    Npz z;
    NpyArray a;
    Arena mem = {0};

    memset(npy, ' ', sizeof npy);
    for (int k = 0; k < 2; k++) {
        memcpy(npy[k], head, sizeof head - 1);
        npy[k][79] = '\n';
        uint32_t noise = 1;
        for (int i = 0; i < 512; i++) {
            noise = noise * 1664525u + 1013904223u;
            npy[k][80 + i] = k ? (uint8_t)(noise >> 24) : 7;
        }
    }

    place(path[0], "a.npy", npy[0], sizeof npy[0]);
    place(path[1], "b.npy", npy[1], sizeof npy[1]);
    place(path[2], "ab.zip", NULL, 0);
    const ZipMember member[2] = {{"a.npy", path[0]}, {"b.npy", path[1]}};
    REQUIRE(zip_write(path[2], member, 2));
    REQUIRE(npz_open(path[2], &z));
    EXPECT_INT(z.entries, 2);
    EXPECT(z.entry[0].deflated && z.entry[0].packed < 120);
    EXPECT(!z.entry[1].deflated && z.entry[1].packed == sizeof npy[1]);

    for (int k = 0; k < 2; k++) {
        REQUIRE(npz_read(&z, k ? "b" : "a", 0, &a));
        EXPECT_INT(a.count, 512);
        for (int i = 0; i < 512; i++)
            EXPECT_INT((uint8_t)a.data[i], npy[k][80 + i]);
        mem_free(a.data);
    }

    npz_close(&z);

    // the same bytes when written again
    const size_t bytes = contents(path[2], &mem, &one);
    REQUIRE(zip_write(path[2], member, 2));
    EXPECT_INT(contents(path[2], &mem, &two), bytes);
    EXPECT(!memcmp(one, two, bytes));
    arena_release(&mem);
}

TEST(zip_that_cannot_be_leaves_the_old_one)
{
    char path[2][300], *data;
    Arena mem = {0};
    place(path[0], "kept.zip", "old", 3);
    snprintf(path[1], 300, "%s/nothing", test_folder());
    const ZipMember member = {"nothing", path[1]};
    EXPECT_FAIL(zip_write(path[0], &member, 1), "/nothing");
    EXPECT_INT(contents(path[0], &mem, &data), 3);
    // an empty archive consists of the end record
    REQUIRE(zip_write(path[0], NULL, 0));
    EXPECT_INT(contents(path[0], &mem, &data), 22);
    arena_release(&mem);
}
