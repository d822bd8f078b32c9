/* unpack.h -- deflate in memory, bounded by what the caller expects.
 *
 * The bare stream (RFC 1951) that archives hold, or the one with a zlib frame
 * (RFC 1950) that .mat files hold; gzip.h has the third kind. It is read piece
 * by piece and nothing is inflated that was not asked for, so a bomb costs
 * nothing. */
#ifndef SEG_DATA_FORMAT_UNPACK_H
#define SEG_DATA_FORMAT_UNPACK_H
#include "engine/base/mem.h"

typedef struct Unpack Unpack;
typedef enum UnpackForm { UNPACK_RAW, UNPACK_ZLIB } UnpackForm;

/* Begin; `bytes` must outlive *u. */
bool unpack_open(const void *bytes, size_t count, UnpackForm form, Unpack **u);
/* Inflate up to `want` bytes into `out`; *got < want only at the end of the
 * stream, whose checksum, when it has one, was then right. Damage and a stream
 * that ends early are an ERR_DATA. */
bool unpack_read(Unpack *u, void *out, size_t want, size_t *got);
/* Exactly `bytes` bytes and then the end of the stream and of its input. */
bool unpack_all(Unpack *u, void *out, size_t bytes);
void unpack_close(Unpack *u); /* NULL is fine */
#endif
