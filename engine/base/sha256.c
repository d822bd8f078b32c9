/* sha256.c -- SHA-256; variables have the names of FIPS 180-4.
 *
 * The constants are computed: the standard defines them as the first 32 bits of
 * the fractional parts of roots of the first primes, which integer arithmetic
 * finds exactly. */
#include "engine/base/sha256.h"
#include "engine/base/file.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { BLOCK = 64, ROUNDS = 64, PIECE = 1 << 16 };

static uint32_t rotr(uint32_t x, int n)
{
    return x >> n | x << (32 - n);
}

/* Returns the first 32 fractional bits of the square root (power 2) or cube
 * root (power 3) of p: the largest r with r^power <= p * 2^(32 * power),
 * without its integer part. Roots of the primes up to 311 are below 2^5, so r
 * has at most 37 bits and its cube 111. */
static uint32_t root_bits(unsigned p, int power)
{
    __extension__ typedef unsigned __int128 Wide;
    Wide goal = (Wide)p << (32 * power);
    uint64_t r = 0;
    for (int bit = 36; bit >= 0; bit--) {
        uint64_t next = r | (uint64_t)1 << bit;
        Wide v = (Wide)next * next;
        if (power == 3) v *= next;
        if (v <= goal) r = next;
    }
    return (uint32_t)r;
}

/* Computes the first `count` constants for that power. */
static void constants(uint32_t *out, int count, int power)
{
    for (unsigned p = 2; count > 0; p++) {
        bool prime = true;
        for (unsigned d = 2; prime && d * d <= p; d++) prime = p % d != 0;
        if (prime) *out++ = root_bits(p, power), count--;
    }
}

/* Adds one block to the state. */
static void compress(uint32_t h[8], const uint32_t *k, const uint8_t *m)
{
    uint32_t w[ROUNDS], v[8];
    for (int t = 0; t < 16; t++, m += 4)
        w[t] = (uint32_t)m[0] << 24 | (uint32_t)m[1] << 16 |
               (uint32_t)m[2] << 8 | m[3];

    for (int t = 16; t < ROUNDS; t++) {
        uint32_t a = w[t - 15], b = w[t - 2];
        uint32_t s0 = rotr(a, 7) ^ rotr(a, 18) ^ a >> 3;
        uint32_t s1 = rotr(b, 17) ^ rotr(b, 19) ^ b >> 10;
        w[t] = w[t - 16] + s0 + w[t - 7] + s1;
    }

    memcpy(v, h, sizeof v);

    // after eight rounds each variable is in its place again: here the names
    // rotate, variable n of round i is v[(n - i) % 8]; unrolled, nothing is
    // copied
    for (int t = 0; t < ROUNDS; t += 8)
#pragma GCC unroll 8
        for (int i = 0; i < 8; i++) {
            const uint32_t a = v[-i & 7], e = v[(4 - i) & 7];
            const uint32_t b = v[(1 - i) & 7], c = v[(2 - i) & 7];
            const uint32_t f = v[(5 - i) & 7], g = v[(6 - i) & 7];
            const uint32_t s1 = rotr(e, 6) ^ rotr(e, 11) ^ rotr(e, 25);
            const uint32_t ch = (e & f) ^ (~e & g);
            const uint32_t s0 = rotr(a, 2) ^ rotr(a, 13) ^ rotr(a, 22);
            const uint32_t maj = (a & b) ^ (a & c) ^ (b & c);
            uint32_t *last = &v[(7 - i) & 7];
            const uint32_t t1 = *last + s1 + ch + k[t + i] + w[t + i];
            v[(3 - i) & 7] += t1;
            *last = t1 + s0 + maj;
        }
    for (int i = 0; i < 8; i++) h[i] += v[i];
}

void sha256_begin(Sha256 *s)
{
    *s = (Sha256){0};
    constants(s->h, 8, 2);
    constants(s->k, ROUNDS, 3);
}

void sha256_add(Sha256 *s, const void *data, size_t bytes)
{
    const uint8_t *p = data;
    size_t used = s->bytes % BLOCK;
    s->bytes += bytes;
    while (bytes) {
        size_t n = BLOCK - used < bytes ? BLOCK - used : bytes;
        memcpy(s->block + used, p, n);
        p += n, bytes -= n, used += n;
        if (used < BLOCK) return;
        compress(s->h, s->k, s->block);
        used = 0;
    }
}

void sha256_end(Sha256 *s, char text[SHA256_TEXT])
{
    static const uint8_t one = 0x80, zero = 0;
    uint64_t bits = 8 * s->bytes;
    uint8_t length[8];
    for (int i = 0; i < 8; i++) length[i] = (uint8_t)(bits >> (56 - 8 * i));
    sha256_add(s, &one, 1);
    while (s->bytes % BLOCK != BLOCK - sizeof length) sha256_add(s, &zero, 1);
    sha256_add(s, length, sizeof length);
    for (int i = 0; i < 8; i++) snprintf(text + 8 * i, 9, "%08x", s->h[i]);
}

bool sha256_file(const char *path, char text[SHA256_TEXT])
{
    int fd;
    uint64_t bytes;
    Sha256 s;

    if (!file_open(path, &fd, &bytes)) return false;
    uint8_t *piece = mem_alloc(PIECE);
    bool ok = piece;
    sha256_begin(&s);
    for (uint64_t at = 0; ok && at < bytes; at += PIECE) {
        size_t n = bytes - at < PIECE ? (size_t)(bytes - at) : PIECE;
        ok = file_read_at(fd, path, at, piece, n);
        if (ok) sha256_add(&s, piece, n);
    }

    if (ok) sha256_end(&s, text);
    mem_free(piece);
    close(fd);
    return ok;
}
