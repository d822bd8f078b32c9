/* crc32c.c -- CRC32C by instruction or by table.
 *
 * The instruction takes 8 bytes in 3 cycles but can start one every cycle, so
 * long blocks are read as three streams side by side. The CRC of the first
 * stream is then moved over the bytes of the other two: appending n zero
 * bytes multiplies it by x^(8n), which one carry-less multiplication does.
 * Measured on one core of an EPYC with AVX-512: 96 MiB in 7 ms (15 GB/s) by
 * instruction, in 37 ms by table. */
#include "engine/base/crc32c.h"
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

// A table is linear: entry i is the xor of the entries of i's bits. So each is
// written as its eight one-bit entries and expanded by the compiler. Table k
// holds the effect of a byte that is followed by k others.
#define BIT(i, b, e) (((i) >> (b)&1u) * (e))
#define ONE(i, a, b, c, d, e, f, g, h)                                         \
    BIT(i, 0, a) ^ BIT(i, 1, b) ^ BIT(i, 2, c) ^ BIT(i, 3, d) ^ BIT(i, 4, e) ^ \
        BIT(i, 5, f) ^ BIT(i, 6, g) ^ BIT(i, 7, h)
#define FOUR(i, ...)                                   \
    ONE((i), __VA_ARGS__), ONE((i) + 1u, __VA_ARGS__), \
        ONE((i) + 2u, __VA_ARGS__), ONE((i) + 3u, __VA_ARGS__)
#define SIXTEEN(i, ...)                                  \
    FOUR((i), __VA_ARGS__), FOUR((i) + 4u, __VA_ARGS__), \
        FOUR((i) + 8u, __VA_ARGS__), FOUR((i) + 12u, __VA_ARGS__)
#define SIXTYFOUR(i, ...)                                       \
    SIXTEEN((i), __VA_ARGS__), SIXTEEN((i) + 16u, __VA_ARGS__), \
        SIXTEEN((i) + 32u, __VA_ARGS__), SIXTEEN((i) + 48u, __VA_ARGS__)
#define TABLE(...)                                                     \
    {                                                                  \
        SIXTYFOUR(0u, __VA_ARGS__), SIXTYFOUR(64u, __VA_ARGS__),       \
            SIXTYFOUR(128u, __VA_ARGS__), SIXTYFOUR(192u, __VA_ARGS__) \
    }

// clang-format off
static const uint32_t table[8][256] = {
    TABLE(0xf26b8303, 0xe13b70f7, 0xc79a971f, 0x8ad958cf, 0x105ec76f, 0x20bd8ede, 0x417b1dbc, 0x82f63b78),
    TABLE(0x13a29877, 0x274530ee, 0x4e8a61dc, 0x9d14c3b8, 0x3fc5f181, 0x7f8be302, 0xff17c604, 0xfbc3faf9),
    TABLE(0xa541927e, 0x4f6f520d, 0x9edea41a, 0x38513ec5, 0x70a27d8a, 0xe144fb14, 0xc76580d9, 0x8b277743),
    TABLE(0xdd45aab8, 0xbf672381, 0x7b2231f3, 0xf64463e6, 0xe964b13d, 0xd725148b, 0xaba65fe7, 0x52a0c93f),
    TABLE(0x38116fac, 0x7022df58, 0xe045beb0, 0xc5670b91, 0x8f2261d3, 0x1ba8b557, 0x37516aae, 0x6ea2d55c),
    TABLE(0xef306b19, 0xdb8ca0c3, 0xb2f53777, 0x6006181f, 0xc00c303e, 0x85f4168d, 0x0e045beb, 0x1c08b7d6),
    TABLE(0x68032cc8, 0xd0065990, 0xa5e0c5d1, 0x4e2dfd53, 0x9c5bfaa6, 0x3d5b83bd, 0x7ab7077a, 0xf56e0ef4),
    TABLE(0x493c7d27, 0x9278fa4e, 0x211d826d, 0x423b04da, 0x847609b4, 0x0d006599, 0x1a00cb32, 0x34019664),
};
// clang-format on

uint32_t crc32c_plain(uint32_t crc, const void *data, size_t bytes)
{
    const unsigned char *p = data;
    crc = ~crc;
    // eight bytes a turn; written so that the byte order does not matter
    for (; bytes >= 8; bytes -= 8, p += 8)
        crc = table[7][(crc ^ p[0]) & 255] ^ table[6][(crc >> 8 ^ p[1]) & 255] ^
              table[5][(crc >> 16 ^ p[2]) & 255] ^ table[4][crc >> 24 ^ p[3]] ^
              table[3][p[4]] ^ table[2][p[5]] ^ table[1][p[6]] ^ table[0][p[7]];
    while (bytes--) crc = crc >> 8 ^ table[0][(crc ^ *p++) & 255];
    return ~crc;
}

#if defined(__x86_64__)

enum { STREAM = 4096 }; // bytes of each of three streams

// x^(8n-33) modulo the polynomial, for n = one and two streams; 33 because
// the multiplication of reflected numbers is one bit off and the instruction
// that reduces its 64-bit product multiplies by x^32
static const uint32_t over_one = 0x82f89c77, over_two = 0x54a86326;

#define HARDWARE __attribute__((target("sse4.2,pclmul")))

/* Returns `crc` after appending zero bytes; `power` encodes their number. */
HARDWARE static uint64_t moved(uint32_t crc, uint32_t power)
{
    __m128i product = _mm_clmulepi64_si128(_mm_cvtsi32_si128((int)crc),
                                           _mm_cvtsi32_si128((int)power), 0);
    return _mm_crc32_u64(0, (uint64_t)_mm_cvtsi128_si64(product));
}

/* Adds eight bytes, which need not be aligned. */
HARDWARE static uint64_t step(uint64_t crc, const unsigned char *p)
{
    uint64_t word;
    memcpy(&word, p, sizeof word);
    return _mm_crc32_u64(crc, word);
}

HARDWARE static uint32_t by_instruction(uint32_t start, const void *data,
                                        size_t bytes)
{
    const unsigned char *p = data;
    uint64_t crc = (uint32_t)~start;

    // 12 KiB per iteration stay in the L1 cache; the remainder, at most 12 KiB,
    // is handled by the slower loop below
    for (; bytes >= 3 * STREAM; bytes -= 3 * STREAM, p += 3 * STREAM) {
        uint64_t second = 0, third = 0;
        for (int i = 0; i < STREAM; i += 8) {
            crc = step(crc, p + i);
            second = step(second, p + STREAM + i);
            third = step(third, p + 2 * STREAM + i);
        }
        crc = moved((uint32_t)crc, over_two) ^
              moved((uint32_t)second, over_one) ^ third;
    }

    for (; bytes >= 8; bytes -= 8, p += 8) crc = step(crc, p);
    uint32_t rest = (uint32_t)crc;
    while (bytes--) rest = _mm_crc32_u8(rest, *p++);
    return ~rest;
}

uint32_t crc32c(uint32_t crc, const void *data, size_t bytes)
{
    if (__builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul"))
        return by_instruction(crc, data, bytes);
    return crc32c_plain(crc, data, bytes);
}

#else

uint32_t crc32c(uint32_t crc, const void *data, size_t bytes)
{
    return crc32c_plain(crc, data, bytes);
}

#endif
