/* siphash.c -- SipHash-2-4: two rounds per word, four at the end. Variables
 * have the names of the paper: v the state, m a word of the message, k0 and k1
 * the key. Words are assembled from bytes, so that a name has the same hash on
 * every machine. */
#include "engine/base/siphash.h"

/* `bits` from 1 to 63, else the shift is undefined. */
static uint64_t rotate(uint64_t v, int bits)
{
    return v << bits | v >> (64 - bits);
}

/* Eight bytes, the first one lowest, whatever the machine's order. */
static uint64_t word(const uint8_t *p, size_t bytes)
{
    uint64_t v = 0;
    for (size_t i = 0; i < bytes; i++) v |= (uint64_t)p[i] << 8 * i;
    return v;
}

/* SipRound, n times. */
static void rounds(uint64_t v[4], int n)
{
    while (n-- > 0) {
        v[0] += v[1], v[2] += v[3];
        v[1] = rotate(v[1], 13) ^ v[0], v[3] = rotate(v[3], 16) ^ v[2];
        v[0] = rotate(v[0], 32);
        v[2] += v[1], v[0] += v[3];
        v[1] = rotate(v[1], 17) ^ v[2], v[3] = rotate(v[3], 21) ^ v[0];
        v[2] = rotate(v[2], 32);
    }
}

uint64_t siphash(const uint8_t key[16], const void *data, size_t bytes)
{
    uint64_t k0 = word(key, 8), k1 = word(key + 8, 8);
    // the constants are "somepseudorandomlygeneratedbytes" in ASCII
    uint64_t v[4] = {k0 ^ 0x736f6d6570736575u, k1 ^ 0x646f72616e646f6du,
                     k0 ^ 0x6c7967656e657261u, k1 ^ 0x7465646279746573u};
    const uint8_t *p = data;

    for (size_t left = bytes;; left -= 8, p += 8) {
        // the last word holds the remaining bytes and the length
        uint64_t m =
            left >= 8 ? word(p, 8) : word(p, left) | (uint64_t)bytes << 56;
        v[3] ^= m;
        rounds(v, 2);
        v[0] ^= m;
        if (left < 8) break;
    }

    v[2] ^= 0xff; // separates the end from one more word
    rounds(v, 4);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}
