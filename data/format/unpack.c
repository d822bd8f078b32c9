/* unpack.c -- zlib's inflate for streams without the gzip frame.
 *
 * The size that an archive declares limits the bytes to inflate; a request for
 * one more byte at the end reveals a wrong size. */
#include "data/format/unpack.h"
#include "data/format/gzip.h"
#include <zlib.h>

struct Unpack {
    z_stream z;
    size_t left; /* input not yet passed to zlib */
    size_t size; /* of the whole input                  */
    bool ended;  /* the stream is complete              */
};

bool unpack_open(const void *bytes, size_t count, UnpackForm form, Unpack **out)
{
    *out = NULL;
    Unpack *u = mem_alloc(sizeof *u);
    if (!u) return false;
    u->z.zalloc = gzip_alloc;
    u->z.zfree = gzip_free;

    // zlib only reads through next_in, although it is not const
    u->z.next_in = (void *)bytes;
    u->size = u->left = count;

    // a negative window: no frame
    if (inflateInit2(&u->z, form == UNPACK_RAW ? -MAX_WBITS : MAX_WBITS) !=
        Z_OK) {
        mem_free(u);
        return fail("no memory to unpack");
    }

    *out = u;
    return true;
}

void unpack_close(Unpack *u)
{
    if (u) inflateEnd(&u->z);
    mem_free(u);
}

bool unpack_read(Unpack *u, void *out, size_t want, size_t *got)
{
    *got = 0;
    if (u->ended) return true;
    int r = gzip_inflate(&u->z, &u->left, out, want, got);
    size_t at = u->size - u->left - u->z.avail_in;
    u->ended = r == Z_STREAM_END;
    if (r == Z_OK || u->ended) return true;
    if (r == Z_BUF_ERROR)
        return fail_data("packed data ends early, at its byte %zu", at);
    if (r == Z_MEM_ERROR) return fail("no memory to unpack");
    return fail_data("packed data is damaged at its byte %zu: %s", at,
                     u->z.msg ? u->z.msg : "preset dictionary");
}

bool unpack_all(Unpack *u, void *out, size_t bytes)
{
    char more;
    size_t got, behind;
    if (!unpack_read(u, out, bytes, &got)) return false;
    if (got < bytes)
        return fail_data("%zu bytes unpacked, %zu declared", got, bytes);

    // reading one byte more also reads the end mark and the checksum
    if (!unpack_read(u, &more, 1, &got)) return false;
    if (got)
        return fail_data("more than the declared %zu bytes unpacked", bytes);
    behind = u->left + u->z.avail_in;
    if (behind)
        return fail_data("%zu bytes after the end of the packed data", behind);
    return true;
}
