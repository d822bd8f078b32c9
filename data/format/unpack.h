/* unpack.h -- deflate in memory, limited to the size that the caller expects.
 *
 * The bare stream (RFC 1951) of archives, or the stream in a zlib frame (RFC
 * 1950) of .mat files; gzip.h has the third kind. It is read in pieces and only
 * requested bytes are inflated, so a zip bomb costs nothing. */
#ifndef SEG_DATA_FORMAT_UNPACK_H
#define SEG_DATA_FORMAT_UNPACK_H
#include "engine/base/mem.h"

typedef struct Unpack Unpack;
typedef enum UnpackForm { UNPACK_RAW, UNPACK_ZLIB } UnpackForm;

/* Opens a stream; `bytes` must outlive *u. */
bool unpack_open(const void *bytes, size_t count, UnpackForm form, Unpack **u);
/* Inflates up to `want` bytes into `out`; *got < want only at the end of the
 * stream, once its checksum, if it has one, has been verified. Damage and a
 * stream that ends early are an ERR_DATA. */
bool unpack_read(Unpack *u, void *out, size_t want, size_t *got);
/* Reads exactly `bytes` bytes, followed by the end of the stream and of its
 * input. */
bool unpack_all(Unpack *u, void *out, size_t bytes);
void unpack_close(Unpack *u); /* u may be NULL */
#endif
