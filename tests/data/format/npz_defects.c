/* npz_defects.c -- tests of contradictory archives and their messages. */
#include "tests/support/npz_make.h"
#include <zlib.h>

/* One number is changed in the archive of zip_make(). */
static const struct Defect {
    char part; /* l, c: of b, in its local header, in the directory; e: the end
                * record; 6: the zip64 end record; L: its locator; d: data of
                * b */
    int at, bytes;
    uint64_t value;
    int kind;
    const char *reason;
} defects[] = {
    {'e', 0, 1, 'X', 0, "npz: no end record: the file was cut, or other byte"},
    {'e', 20, 2, 1, 0, "npz: no end record: the file was cut"},
    {'e', 4, 2, 1, 0, "npz: archive in several parts; fix: numpy.savez ag"},
    {'e', 6, 2, 1, 0, "npz: archive in several parts"},
    {'e', 8, 2, 1, 0, "npz: archive in several parts"},
    {'e', 8, 4, 0, 0, "npz: the archive holds no array"},
    {'e', 8, 4, 0x30003, 0, "npz: 3 members in a central directory of 102 byt"},
    {'e', 8, 4, 0x10001, 0, "npz: 51 bytes after the last entry of the centra"},
    {'e', 8, 4, 0x1000100, 0, "npz: 256 members in a central directory of 102"},
    {'e', 12, 4, 101, 0, "npz: central directory of 101 bytes at byte "},
    {'e', 12, 4, 99999, 0, "npz: central directory of 99999 bytes at byte "},
    {'e', 16, 4, 7, 0, "npz: central directory of 102 bytes at byte 7, but"},
    {'e', 16, 4, UINT32_MAX, 0, "bytes at byte 4294967295, but the end reco"},
    {'c', 0, 1, 'X', 0, "npz: no entry at byte 51 of the central directory, "},
    {'c', 8, 2, 1, 0, "npz: b: encrypted; fix: numpy.savez without a pass"},
    {'c', 8, 2, 0x40, 0, "npz: b: encrypted"},
    {'c', 8, 2, 0x2000, 0, "npz: b: encrypted"},
    {'c', 8, 2, 0x20, 0, "npz: b: flags 0x0020 are not known"},
    {'c', 10, 2, 12, 0, "npz: b: compression method 12 (bzip2), need stored "},
    {'c', 10, 2, 14, 0, "npz: b: compression method 14 (LZMA), need stored"},
    {'c', 10, 2, 93, 0, "npz: b: compression method 93 (Zstandard), need"},
    {'c', 10, 2, 77, 0, "npz: b: compression method 77 (unknown), need"},
    {'c', 10, 2, 0, DEFLATED, "npz: b: stored, but "},
    {'c', 10, 2, 8, 0, "npz: b: its own header at byte 10"},
    {'c', 16, 4, 1, 0, "has other sizes or another checksum"},
    {'c', 20, 4, 1, 0, "npz: b: stored, but 1 bytes are declared as 10"},
    {'c', 24, 4, 1, 0, "bytes are declared as 1"},
    {'c', 24, 4, 9999, DEFLATED, "has other sizes or another checksum"},
    {'c', 24, 4, 0xffffff, DEFLATED, "bytes cannot come from "},
    {'c', 24, 4, UINT32_MAX, 0, "npz: b: zip64 extra field is missing"},
    {'c', 28, 2, 99, 0, "npz: central directory ends inside entry 2"},
    {'c', 28, 2, 0, 0, "npz: name of a member is empty"},
    {'c', 30, 2, 1, 0, "npz: central directory ends inside entry 2"},
    {'c', 34, 2, 1, 0, "npz: b: lies in another part of the archive"},
    {'c', 42, 4, 1, 0, "npz: b: no header at byte 1, where the directory"},
    {'c', 42, 4, 4000000, 0, "npz: b: no header at byte 4000000, where"},
    {'c', 42, 4, 0, 0, "npz: b: its own header at byte 0 has another name"},
    {'c', 46, 1, '/', 0, "npz: name of a member \"/.npy\" begins at the root"},
    {'c', 46, 1, '\n', 0, "npz: name of a member has a control character"},
    {'c', 46, 1, 'x', 0, "has another name"},
    {'l', 0, 1, 'X', 0, "npz: b: no header at byte "},
    {'l', 6, 2, 1, 0, "has another method"},
    {'l', 8, 2, 8, 0, "has another method"},
    {'l', 14, 4, 1, 0, "has other sizes or another checksum"},
    {'l', 18, 4, 1, 0, "has other sizes or another checksum"},
    {'l', 22, 4, 1, 0, "has other sizes or another checksum"},
    {'l', 22, 4, 1, WIDE, "has other sizes or another checksum"},
    {'l', 26, 2, 4, 0, "has another name"},
    {'l', 28, 2, 9999, 0, "npz: b: data of 1"},
    {'l', 28, 2, 3, 0, "reaches beyond byte"},
    {'l', 35, 2, 2, WIDE, "npz: b: zip64 extra field is missing"},
    {'l', 37, 2, 7, WIDE, "npz: b: zip64 extra field of 7 bytes is too short"},
    {'l', 37, 2, 15, WIDE, "npz: b: zip64 extra field of 15 bytes is too "},
    {'l', 37, 2, 17, WIDE, "npz: b: extra field ends inside a record"},
    {'l', 39, 8, 1, WIDE, "has other sizes or another checksum"},
    {'d', 10, 1, ' ', 0, "npz: b: npy: header is not the dictionary of an ar"},
    {'d', 99, 1, 0, 0, "npz: b: checksum "},
    {'d', 0, 1, 0xff, DEFLATED, "npz: b: packed data is damaged at its byte "},
    {'d', 0, 1, 0x4b, DEFLATED, "npz: b: "},
    {'c', 16, 4, 1, BEHIND, "npz: b: checksum "},
    {'c', 16, 4, 1, BEHIND | DEFLATED, "npz: b: checksum "},
    {'c', 24, 4, 200, BEHIND | DEFLATED, "bytes of numbers, the header decl"},
    {'6', 0, 1, 'X', ZIP64, "npz: no zip64 end record at byte "},
    {'6', 4, 8, 45, ZIP64, "npz: zip64 end record of 45 bytes, need 44"},
    {'6', 16, 4, 1, ZIP64, "npz: archive in several parts"},
    {'6', 24, 8, 1, ZIP64, "npz: archive in several parts"},
    {'6', 40, 8, 1, ZIP64, "npz: central directory of 1 bytes at byte "},
    {'6', 48, 8, UINT64_MAX, ZIP64, "at byte 18446744073709551615, but the"},
    {'L', 8, 8, 0, ZIP64, "npz: no zip64 end record at byte 0, where its lo"},
    {'L', 8, 8, UINT64_MAX, ZIP64, "npz: no zip64 end record at byte 18446744"},
    {'L', 0, 1, 'X', ZIP64, "npz: central directory of 4294967295 byt"},
    {'e', 10, 2, 3, ZIP64, "npz: end record and zip64 end record disagree"},
    {'e', 12, 4, 3, ZIP64, "npz: end record and zip64 end record disagree"},
    {'e', 16, 4, 3, ZIP64, "npz: end record and zip64 end record disagree"},
    {'c', 46 + 5 + 2, 2, 99, ZIP64, "npz: b: extra field ends inside a rec"},
    {'c', 46 + 5 + 5, 2, 0x7777, ZIP64, "npz: b: zip64 extra field is missing"},
    {'c', 46 + 5, 2, 1, ZIP64, "npz: b: zip64 extra field of 1 bytes is too"},
    {'c', 46 + 5 + 9, 8, UINT64_MAX, ZIP64, "npz: b: stored, but"},
    {'c', 46 + 5 + 9, 8, (uint64_t)1 << 40, ZIP64 | DEFLATED, "cannot come"},
    {'c', 46 + 5 + 25, 8, UINT64_MAX, ZIP64, "npz: b: no header at byte 1844"},
};

TEST(npz_defects)
{
    for (size_t r = 0; r < sizeof defects / sizeof *defects; r++) {
        const struct Defect *d = &defects[r];
        Zip zip;
        zip_make(&zip, d->kind);
        size_t at = d->part == 'l'   ? zip.local[1]
                    : d->part == 'c' ? zip.central[1]
                    : d->part == 'd' ? zip.data[1]
                    : d->part == '6' ? zip.end - 76
                    : d->part == 'L' ? zip.end - 20
                                     : zip.end;
        zip_patch(&zip, at + (size_t)d->at, d->value, d->bytes);
        EXPECT_FAIL(zip_read_b(&zip), d->reason);
        EXPECT_FAIL(zip_read_b(&zip), "npz: ");
    }
}

TEST(npz_every_truncation_is_refused)
{
    static const int kinds[] = {STORED, DEFLATED, ZIP64, BEHIND};
    for (int k = 0; k < 4; k++) {
        Zip zip;
        zip_make(&zip, kinds[k]);
        EXPECT(zip_read_b(&zip));
        for (size_t n = zip.size; zip.size--;) {
            EXPECT(!zip_read_b(&zip));
            // truncated inside, with an intact end
            Zip inner;
            zip_make(&inner, kinds[k]);
            memmove(inner.bytes + zip.size, inner.bytes + zip.size + 1,
                    n - zip.size - 1);
            inner.size--;
            EXPECT(!zip_read_b(&inner));
        }
        EXPECT_FAIL(zip_read_b(&(Zip){.size = 0}), "npz: file is empty");
    }
}

TEST(npz_other_files)
{
    Zip zip = {.size = 0};
    zip_bytes(&zip, "\x93NUMPY\1", 7);
    EXPECT_FAIL(zip_read_b(&zip),
                "npz: a .npy array, need a .npz archive; fix: "
                "name it .npy");
    memset(zip.bytes, 'x', 100);
    zip.size = 100;
    EXPECT_FAIL(zip_read_b(&zip),
                "npz: not .npz: the first bytes are not those");
    zip.size = 3;
    EXPECT_FAIL(zip_read_b(&zip),
                "npz: not .npz: the first bytes are not those");
    Zip entry = {.size = 0};
    zip = entry;
    zip_finish(&zip, &entry, false);
    EXPECT_FAIL(zip_read_b(&zip), "npz: the archive holds no array");

    // bytes before, after and between members
    zip_make(&zip, STORED);
    memmove(zip.bytes + 4, zip.bytes, zip.size);
    zip.size += 4;
    EXPECT_FAIL(zip_read_b(&zip),
                "npz: central directory of 102 bytes at byte");
    zip_make(&zip, STORED);
    zip_put(&zip, 0, 1);
    EXPECT_FAIL(zip_read_b(&zip), "npz: no end record");
}

TEST(npz_members_side_by_side)
{
    uint8_t content[ROOM];
    Zip zip, entry = {.size = 0};
    size_t n = zip_npy(content, 1, 40);

    // the directory lists the same member twice: two names, one position
    zip = entry;
    zip_add(&zip, &entry, "a.npy", STORED, content, n);
    zip.members = 0;
    Zip second = {.size = 0};
    zip_add(&second, &entry, "b.npy", STORED, content, n);
    zip.members = 2;
    zip_bytes(&zip, second.bytes, second.size);
    zip_finish(&zip, &entry, false);
    zip.central[1] = zip.central[0] + 51;
    EXPECT_FAIL(zip_read_b(&zip),
                "npz: b: its own header at byte 0 has another");
    zip_patch(&zip, zip.central[1] + 42, second.size, 4);
    EXPECT(zip_read_b(&zip));

    // the data of one member reach into the next, also by its local header
    for (int part = 0; part < 2; part++) {
        size_t at = part ? zip.central[0] + 20 : 18;
        zip_patch(&zip, at, n + 40, 4), zip_patch(&zip, at + 4, n + 40, 4);
    }
    EXPECT_FAIL(zip_read_b(&zip), "npz: a and b overlap at byte ");

    // bytes that belong to no member: in front, between, before the directory
    for (int where = 0; where < 3; where++) {
        zip = entry = (Zip){.size = 0};
        if (where == 0) zip_bytes(&zip, "PK\3\4", 4);
        zip_add(&zip, &entry, "a.npy", STORED, content, n);
        if (where == 1) zip_put(&zip, 0, 1);
        zip_add(&zip, &entry, "b.npy", BEHIND, content, n);
        if (where == 2) zip_put(&zip, 0, 8), zip_put(&zip, 0, 1);
        zip_finish(&zip, &entry, false);
        EXPECT_FAIL(zip_read_b(&zip), where == 0
                                          ? "npz: 4 bytes at byte 0 belong"
                                      : where == 1 ? "npz: 1 bytes at byte "
                                                   : "npz: 25 bytes at byte ");
        EXPECT_FAIL(zip_read_b(&zip), "belong to no member");
    }

    // the same name twice, and as member and array
    for (int k = 0; k < 2; k++) {
        zip = entry = (Zip){.size = 0};
        zip_add(&zip, &entry, "b.npy", STORED, content, n);
        zip_add(&zip, &entry, k ? "b" : "b.npy", STORED, content, n);
        zip_finish(&zip, &entry, false);
        EXPECT_FAIL(zip_read_b(&zip), "npz: two arrays are called \"b\"");
    }
}

TEST(npz_names)
{
    static const struct {
        const char *name, *reason; // NULL: accepted
    } row[] = {
        {"b", NULL},
        {"b.npy", NULL},
        {"folder/b.npy", "no array \"b\"; there are: folder/b"},
        {"..b.npy", "there are: ..b"},
        {"b..npy", "there are: b."},
        {".npy", "there are: .npy"},
        {"\xc3\xa4.npy", "there are: \xc3\xa4"},
        {"../b.npy", "name of a member \"../b.npy\" leaves its folder"},
        {"x/../b.npy", "\"x/../b.npy\" leaves its folder"},
        {"./b.npy", "leaves its folder"},
        {"x/..", "leaves its folder"},
        {"/b.npy", "begins at the root"},
        {"//b.npy", "begins at the root"},
        {"x//b.npy", "has a part without a name"},
        {"x/", "has a part without a name"},
        {"C:b.npy", "names a drive"},
        {"..\\b.npy", "has a backslash"},
        {"b\n.npy", "name of a member has a control character"},
        {"b\x7f.npy", "name of a member has a control character"},
        {"\x1b[31m.npy", "name of a member has a control character"},
    };
    uint8_t content[ROOM];
    size_t n = zip_npy(content, 1, 40);

    for (size_t r = 0; r < sizeof row / sizeof *row; r++) {
        Zip zip;
        zip_make_one(&zip, row[r].name, STORED, content, n);
        if (row[r].reason)
            EXPECT_FAIL(zip_read_b(&zip), row[r].reason);
        else
            EXPECT(zip_read_b(&zip));
    }
}

/* The header is correct, but the stream has another length. */
TEST(npz_length_lies)
{
    uint8_t content[ROOM], longer[ROOM], packed[ROOM];
    size_t n = zip_npy(content, 1, 40);
    Zip zip;
    uint32_t crc = (uint32_t)crc32(0, content, (uInt)n);

    for (int lie = -1; lie <= 1; lie++) {
        // a stream of n + lie bytes in an archive that declares n
        memcpy(longer, content, n + 1);
        size_t size = zip_deflate(longer, n + (size_t)(lie + 1) - 1, packed);
        zip_make_one(&zip, "b.npy", DEFLATED, longer,
                     n + (size_t)(lie + 1) - 1);
        EXPECT_INT(zip.central[0] - zip.data[0], size);
        for (int part = 0; part < 2; part++) {
            size_t at = part ? zip.central[0] + 16 : 14;
            zip_patch(&zip, at, crc, 4), zip_patch(&zip, at + 8, n, 4);
        }
        if (lie)
            EXPECT_FAIL(zip_read_b(&zip),
                        lie < 0 ? "npz: b: 105 bytes unpacked, 106 declared"
                                : "npz: b: more than the declared 106 bytes");
        else
            EXPECT(zip_read_b(&zip));
    }

    // a stream that ends before the header of the array
    zip_make_one(&zip, "b.npy", DEFLATED, content, 5);
    zip_patch(&zip, 22, 100, 4), zip_patch(&zip, zip.central[0] + 24, 100, 4);
    EXPECT_FAIL(zip_read_b(&zip), "npz: b: 5 bytes unpacked, 100 declared");

    // bytes after the stream, inside the member
    zip_make_one(&zip, "b.npy", DEFLATED, content, n);
    size_t end = zip.central[0];
    memmove(zip.bytes + end + 2, zip.bytes + end, zip.size - end);
    zip.size += 2;
    for (int part = 0; part < 2; part++)
        zip_patch(&zip, part ? end + 2 + 20 : 18, end - zip.data[0] + 2, 4);
    zip_patch(&zip, zip.end + 2 + 16, end + 2, 4);
    EXPECT_FAIL(zip_read_b(&zip),
                "npz: b: 2 bytes after the end of the packed");

    // a truncated stream: the member is smaller than its stream
    zip_make_one(&zip, "b.npy", DEFLATED, content, n);
    memmove(zip.bytes + end - 3, zip.bytes + end, zip.size - end);
    zip.size -= 3;
    for (int part = 0; part < 2; part++)
        zip_patch(&zip, part ? end - 3 + 20 : 18, end - zip.data[0] - 3, 4);
    zip_patch(&zip, zip.end - 3 + 16, end - 3, 4);
    EXPECT_FAIL(zip_read_b(&zip),
                "npz: b: packed data ends early, at its byte ");
}

TEST(npz_about_what_is_no_array)
{
    uint8_t content[ROOM] = {0};
    for (int kind = 0; kind <= DEFLATED; kind++) {
        static const int sizes[] = {1, 5, 11, 12, 300};
        for (int s = 0; s < 5; s++) {
            Zip zip;
            uint8_t *copy;
            Npz z;
            NpyHeader h;
            zip_make_one(&zip, "readme.txt", kind, content, (size_t)sizes[s]);
            REQUIRE(zip_open(&zip, &copy, &z));
            EXPECT_TEXT(z.entry[0].name, "readme.txt");
            EXPECT_FAIL(npz_about(&z, 0, &h),
                        "npz: readme.txt: npy: not .npy: the first bytes");
            npz_close(&z);
            mem_free(copy);
        }
        // a header that would continue after the member
        Zip zip;
        size_t n = zip_npy(content, 1, 40);
        content[9] = 1;
        zip_make_one(&zip, "b.npy", kind, content, n);
        EXPECT_FAIL(zip_read_b(&zip),
                    "npz: b: npy: header of 312 bytes, only 96");
        memset(content, 0, sizeof content);
    }
}

/* Defects that need two changes. */
TEST(npz_zip64_defects)
{
    Zip zip;

    // a size beyond every limit, in both places
    zip_make(&zip, ZIP64);
    zip_patch(&zip, zip.central[1] + 46 + 5 + 9, (uint64_t)1 << 38, 8);
    zip_patch(&zip, zip.central[1] + 46 + 5 + 17, (uint64_t)1 << 38, 8);
    EXPECT_FAIL(zip_read_b(&zip),
                "npz: b: 274877906944 bytes, limit 137438953472");

    // only the position is 64 bits wide, and the rest of its field is a second
    // one
    zip_make(&zip, ZIP64);
    size_t at = zip.central[1], extra = at + 46 + 5 + 5;
    zip_patch(&zip, at + 20, 106, 4), zip_patch(&zip, at + 24, 106, 4);
    zip_patch(&zip, extra + 2, 8, 2),
        zip_patch(&zip, extra + 4, zip.local[1], 8);
    zip_patch(&zip, extra + 12, 0x7777, 2), zip_patch(&zip, extra + 14, 12, 2);
    EXPECT(zip_read_b(&zip));
    zip_patch(&zip, extra + 12, 1, 2);
    EXPECT_FAIL(zip_read_b(&zip), "two zip64 extra fields");
}

/* The maximum number of members, and one more. The directory is counted; all
 * entries use the same array. */
TEST(npz_number_of_members)
{
    enum { MOST = 65536, EACH = 30 + 5 + 4 };
    size_t room = (MOST + 1) * (size_t)(EACH + 46 + 5) + 200;
    uint8_t *file = mem_alloc(room);
    REQUIRE(file);

    for (int more = -1; more <= 1; more++) {
        Npz z;
        Zip part, end = {.size = 0};
        size_t n = MOST + more, at = 0, size, begin = 0;
        for (int directory = 0; directory < 2; directory++) {
            if (directory) begin = at;
            for (size_t i = 0; i < n; i++) {
                char name[8];
                Zip entry = {.size = 0};
                snprintf(name, sizeof name, "%05zx", i);
                part = entry;
                zip_add(&part, &entry, name, STORED, (uint8_t *)name, 4);
                Zip *from = directory ? &entry : &part;
                if (directory) zip_patch(from, 42, i * EACH, 4);
                memcpy(file + at, from->bytes, from->size);
                at += from->size;
            }
        }
        size = at - begin;
        zip_bytes(&end, "PK\6\6", 4);
        zip_put(&end, 44, 8), zip_put(&end, 0, 8), zip_put(&end, 0, 4);
        zip_put(&end, n, 8), zip_put(&end, n, 8);
        zip_put(&end, size, 8), zip_put(&end, begin, 8);
        zip_bytes(&end, "PK\6\7", 4);
        zip_put(&end, 0, 4), zip_put(&end, at, 8), zip_put(&end, 1, 4);
        zip_bytes(&end, "PK\5\6", 4);
        zip_put(&end, 0, 4), zip_put(&end, UINT32_MAX, 4);
        zip_put(&end, UINT64_MAX, 8), zip_put(&end, 0, 2);
        memcpy(file + at, end.bytes, end.size);
        bool ok = npz_open_bytes(file, at + end.size, &z);
        if (more > 0) {
            EXPECT_FAIL(ok, "npz: 65537 members, limit 65536");
        } else {
            EXPECT(ok);
            EXPECT_INT(z.entries, n);
        }
        npz_close(&z);
    }
    mem_free(file);
}
