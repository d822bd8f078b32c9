#include "engine/base/siphash.h"
#include "tests/test.h"

/* The vector of the paper's appendix A: key 00..0f, data 00..0e. */
TEST(siphash_paper)
{
    uint8_t key[16], data[15];
    for (int i = 0; i < 16; i++) key[i] = (uint8_t)i;
    for (int i = 0; i < 15; i++) data[i] = (uint8_t)i;
    EXPECT(siphash(key, data, 15) == 0xa129ca6149be45e5u);
    // reference output for the empty message and this key
    EXPECT(siphash(key, data, 0) == 0x726fdb47dd0e0e31u);
    key[3] ^= 1;
    EXPECT(siphash(key, data, 15) != 0xa129ca6149be45e5u);
}
