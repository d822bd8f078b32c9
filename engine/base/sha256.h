/* sha256.h -- SHA-256: what tells whether two files are the same.
 *
 * Of recipes, programs and sets of images in a run's manifest, as `sha256sum`
 * prints it, so that anybody can check one without this program. Not for
 * names of patients, which could be guessed: those get siphash.h. Source:
 * NIST FIPS 180-4; checked against its examples. */
#ifndef SEG_ENGINE_BASE_SHA256_H
#define SEG_ENGINE_BASE_SHA256_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct Sha256 {
    uint32_t k[64], h[8]; /* constants of the rounds; the state */
    uint64_t bytes;       /* so far                             */
    uint8_t block[64];    /* the bytes since the last block     */
} Sha256;

enum { SHA256_TEXT = 65 }; /* 64 hex digits and a zero */

void sha256_begin(Sha256 *s);
void sha256_add(Sha256 *s, const void *data, size_t bytes);
/* The digits of everything that was added; *s is to be begun again. */
void sha256_end(Sha256 *s, char text[SHA256_TEXT]);

/* Of a whole file, read piece by piece; false with a reason. */
bool sha256_file(const char *path, char text[SHA256_TEXT]);
#endif
