/* gzip.h -- gzip in memory, limited to the size that the caller expects.
 *
 * Inflating is a stream that is read in pieces: only requested bytes are
 * inflated, so a zip bomb costs nothing. Several consecutive gzip members are
 * one stream, zeros after the last are padding; anything else there is damage.
 * Deflating is deterministic: no name, no time. */
#ifndef SEG_DATA_FORMAT_GZIP_H
#define SEG_DATA_FORMAT_GZIP_H
#include "engine/base/mem.h"

typedef struct Gunzip Gunzip;

/* Returns true when the bytes begin with the magic of gzip. */
bool gzip_is(const void *bytes, size_t count);

/* One byte of deflate expands to at most this many bytes. */
enum { GZIP_MOST = 1032 };

/* Opens a stream; `bytes` must outlive *g. */
bool gunzip_open(const void *bytes, size_t count, Gunzip **g);
/* Inflates up to `want` bytes into `out`; *got < want only at the end of the
 * stream, once its length and CRC have been verified. Damage is an ERR_DATA. */
bool gunzip_read(Gunzip *g, void *out, size_t want, size_t *got);
void gunzip_close(Gunzip *g); /* g may be NULL */

/* zalloc and zfree of a z_stream: memory of zlib is counted like all other. */
void *gzip_alloc(void *unused, unsigned items, unsigned size);
void gzip_free(void *unused, void *p);

/* Inflates into out[*got .. want) from the input of z and the *left bytes after
 * it; advances *got. Returns Z_OK when `want` bytes are there, Z_BUF_ERROR when
 * the input ends before the stream, else the result of inflate(). */
struct z_stream_s;
int gzip_inflate(struct z_stream_s *z, size_t *left, void *out, size_t want,
                 size_t *got);

/* Writes one gzip member from two consecutive buffers; *out from mem_alloc. */
bool gzip_deflate(const void *first, size_t first_bytes, const void *second,
                  size_t second_bytes, uint8_t **out, size_t *bytes);

/* Deflates one buffer without gzip's header and checksum, as in zip. */
bool gzip_raw(const void *data, size_t count, uint8_t **out, size_t *bytes);
#endif
