/* sha256.h -- SHA-256: identifies the content of files.
 *
 * A run's manifest holds the hashes of recipe, program and images, in the
 * format of `sha256sum`, so that they can be checked without this program. Not
 * for names of patients, which could be guessed: they use siphash.h. Source:
 * NIST FIPS 180-4; checked against its examples. */
#ifndef SEG_ENGINE_BASE_SHA256_H
#define SEG_ENGINE_BASE_SHA256_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct Sha256 {
    uint32_t k[64], h[8]; /* round constants; the state      */
    uint64_t bytes;       /* number of bytes so far          */
    uint8_t block[64];    /* bytes after the last full block */
} Sha256;

enum { SHA256_TEXT = 65 }; /* 64 hex digits and a zero */

void sha256_begin(Sha256 *s);
void sha256_add(Sha256 *s, const void *data, size_t bytes);
/* Writes the digits of all data added; *s needs sha256_begin before reuse. */
void sha256_end(Sha256 *s, char text[SHA256_TEXT]);

/* Hashes a whole file, read in pieces; false with a reason. */
bool sha256_file(const char *path, char text[SHA256_TEXT]);
#endif
