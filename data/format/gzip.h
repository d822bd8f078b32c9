/* gzip.h -- gzip in memory, bounded by what the caller expects.
 *
 * Inflating is a stream that is read piece by piece: nothing is ever inflated
 * that was not asked for, so a bomb costs nothing. Several gzip members in a
 * row are one stream, zeros behind the last are padding; anything else there
 * is damage. Deflating is deterministic: no name, no time. */
#ifndef SEG_DATA_FORMAT_GZIP_H
#define SEG_DATA_FORMAT_GZIP_H
#include "engine/base/mem.h"

typedef struct Gunzip Gunzip;

/* True when the bytes begin as gzip does. */
bool gzip_is(const void *bytes, size_t count);

/* No byte of deflate stands for more than this many bytes. */
enum { GZIP_MOST = 1032 };

/* Begin; `bytes` must outlive *g. */
bool gunzip_open(const void *bytes, size_t count, Gunzip **g);
/* Inflate up to `want` bytes into `out`; *got < want only at the end of the
 * stream, whose length and CRC were then right. Damage is an ERR_DATA. */
bool gunzip_read(Gunzip *g, void *out, size_t want, size_t *got);
void gunzip_close(Gunzip *g); /* NULL is fine */

/* zalloc and zfree of a z_stream: zlib's memory is counted like all other. */
void *gzip_alloc(void *unused, unsigned items, unsigned size);
void gzip_free(void *unused, void *p);

/* Inflate into out[*got .. want) from what z was given and the *left bytes
 * behind that, with *got moved on. Z_OK when `want` bytes are there,
 * Z_BUF_ERROR when the input is at its end before the stream is, else what
 * inflate() says. */
struct z_stream_s;
int gzip_inflate(struct z_stream_s *z, size_t *left, void *out, size_t want,
                 size_t *got);

/* One gzip member of two pieces in a row; *out by mem_free. */
bool gzip_deflate(const void *first, size_t first_bytes, const void *second,
                  size_t second_bytes, uint8_t **out, size_t *bytes);

/* The same of one piece without header and checksum, as zip has it. */
bool gzip_raw(const void *data, size_t count, uint8_t **out, size_t *bytes);
#endif
