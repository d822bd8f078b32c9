/* crc32c.c -- the published vectors, and both implementations compared. */
#include "engine/base/crc32c.h"
#include "tests/test.h"

TEST(crc32c_vectors)
{
    // RFC 3720 appendix B.4, and the check value of every CRC catalogue
    unsigned char block[32];
    static const unsigned char scsi_read[48] = {
        0x01, 0xc0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,    0, 0, 0, 0,
        0x14, 0,    0, 0, 0, 0, 4, 0, 0, 0, 0, 0x14, 0, 0, 0, 0x18,
        0x28, 0,    0, 0, 0, 0, 0, 0, 2, 0, 0, 0,    0, 0, 0, 0,
    };
    uint32_t (*const ways[])(uint32_t, const void *, size_t) = {crc32c,
                                                                crc32c_plain};

    for (int w = 0; w < 2; w++) {
        memset(block, 0, 32);
        EXPECT_INT(ways[w](0, block, 32), 0x8a9136aa);
        memset(block, 0xff, 32);
        EXPECT_INT(ways[w](0, block, 32), 0x62a8ab43);
        for (int i = 0; i < 32; i++) block[i] = (unsigned char)i;
        EXPECT_INT(ways[w](0, block, 32), 0x46dd794e);
        for (int i = 0; i < 32; i++) block[i] = (unsigned char)(31 - i);
        EXPECT_INT(ways[w](0, block, 32), 0x113fdb5c);
        EXPECT_INT(ways[w](0, scsi_read, 48), 0xd9963a56);
        EXPECT_INT(ways[w](0, "123456789", 9), 0xe3069283);
        EXPECT_INT(ways[w](0, "", 0), 0);
    }
}

TEST(crc32c_both_ways)
{
    // lengths around the three streams, at every alignment, whole and in two
    enum { ROOM = 50000 };
    static unsigned char data[ROOM + 16];
    uint32_t state = 1;
    for (int i = 0; i < ROOM + 16; i++) {
        state = state * 1664525u + 1013904223u;
        data[i] = (unsigned char)(state >> 24);
    }
    static const size_t lengths[] = {0,     1,     7,     8,     9,
                                     63,    4095,  4096,  12287, 12288,
                                     12289, 24576, 24583, 36864, 49999};

    for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++)
        for (int at = 0; at < 9; at++) {
            size_t n = lengths[l];
            uint32_t want = crc32c_plain(0, data + at, n);
            EXPECT_INT(crc32c(0, data + at, n), want);
            size_t cut = n / 3;
            uint32_t half = crc32c(0, data + at, cut);
            EXPECT_INT(crc32c(half, data + at + cut, n - cut), want);
        }
}
