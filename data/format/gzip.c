/* gzip.c -- zlib with bounded reads; its memory is counted by mem.h.
 *
 * zlib counts input and output in 32 bits, so both are passed in pieces. bgzip
 * and pigz write several consecutive members; they are read as one stream. Only
 * the requested number of bytes is inflated, so the caller's limit is the only
 * one needed. */
#include "data/format/gzip.h"
#include <limits.h>
#include <string.h>
#include <zlib.h>

/* windowBits of zlib: the largest window, with a gzip header or without. */
enum { GZIP_WINDOW = 15 + 16, RAW_WINDOW = -15, LEVEL = 6, MEMORY = 8 };

struct Gunzip {
    z_stream z;
    size_t left; /* input not yet passed to zlib */
    size_t size; /* of the whole input                  */
    bool ended;  /* the last member is complete         */
};

/* the product items * size of zlib may overflow: checked */
void *gzip_alloc(void *unused, unsigned items, unsigned size)
{
    size_t bytes;
    (void)unused;
    return size_mul(items, size, &bytes) ? mem_alloc(bytes) : NULL;
}

void gzip_free(void *unused, void *p)
{
    (void)unused;
    mem_free(p);
}

/* the two magic bytes of RFC 1952 */
bool gzip_is(const void *bytes, size_t count)
{
    return count >= 2 && !memcmp(bytes, "\x1f\x8b", 2);
}

bool gunzip_open(const void *bytes, size_t count, Gunzip **out)
{
    *out = NULL;
    Gunzip *g = mem_alloc(sizeof *g);
    if (!g) return false;
    g->z.zalloc = gzip_alloc;
    g->z.zfree = gzip_free;

    // zlib only reads through next_in, although it is not const
    g->z.next_in = (void *)bytes;
    g->size = g->left = count;
    if (inflateInit2(&g->z, GZIP_WINDOW) != Z_OK) {
        mem_free(g);
        return fail("no memory to read gzip");
    }
    *out = g;
    return true;
}

void gunzip_close(Gunzip *g)
{
    if (g) inflateEnd(&g->z);
    mem_free(g);
}

/* Returns at most the number of bytes that one call of zlib takes. */
static uInt piece(size_t bytes)
{
    return bytes > INT_MAX ? INT_MAX : (uInt)bytes;
}

/* zlib counts in 32 bits, so input and output are passed in pieces. Z_BUF_ERROR
 * of zlib means that no progress is possible with the current buffers. */
int gzip_inflate(z_stream *z, size_t *left, void *out, size_t want, size_t *got)
{
    int r = Z_OK;
    while (*got < want && r == Z_OK) {
        size_t room = want - *got;
        if (!z->avail_in) {
            z->avail_in = piece(*left);
            *left -= z->avail_in;
        }
        z->next_out = (uint8_t *)out + *got;
        z->avail_out = piece(room);
        uInt before = z->avail_out;
        r = inflate(z, Z_NO_FLUSH);
        *got += before - z->avail_out;
        if (r == Z_OK && !z->avail_in && !*left && z->avail_out)
            r = Z_BUF_ERROR;
    }
    return r;
}

/* Handles the end of a member: another one, padding, or foreign bytes
 * follow. */
static bool member_end(Gunzip *g)
{
    const uint8_t *p = g->z.next_in;
    size_t rest = g->z.avail_in + g->left, zeros = 0;
    if (gzip_is(p, rest)) return inflateReset(&g->z) == Z_OK;
    while (zeros < rest && !p[zeros]) zeros++;
    if (zeros < rest)
        return fail_data("%zu bytes after the end of the gzip data at byte %zu",
                         rest, g->size - rest);
    g->ended = true;
    return true;
}

bool gunzip_read(Gunzip *g, void *out, size_t want, size_t *got)
{
    *got = 0;
    while (*got < want && !g->ended) {
        int r = gzip_inflate(&g->z, &g->left, out, want, got);
        size_t at = g->size - g->left - g->z.avail_in;
        if (r == Z_STREAM_END) {
            if (!member_end(g)) return false;
        } else if (r == Z_BUF_ERROR) {
            return fail_data("gzip data ends early, at byte %zu", at);
        } else if (r == Z_MEM_ERROR) {
            return fail("no memory to read gzip");
        } else if (r != Z_OK) {
            return fail_data("gzip data is damaged at byte %zu: %s", at,
                             g->z.msg ? g->z.msg : "preset dictionary");
        }
    }
    return true;
}

/* Deflates the bytes into the rest of the output, which is large enough. */
static void deflate_all(z_stream *z, const uint8_t *p, size_t bytes, bool last,
                        const uint8_t *end)
{
    int r = Z_OK;
    if (!bytes && !last) return; // zlib treats a call without work as an error

    do {
        z->next_in = (void *)p; // zlib does not write it
        z->avail_in = piece(bytes);
        p += z->avail_in, bytes -= z->avail_in;
        do {
            z->avail_out = piece((size_t)(end - z->next_out));
            r = deflate(z, last && !bytes ? Z_FINISH : Z_NO_FLUSH);
        } while (r == Z_OK && !z->avail_out && z->next_out < end);
    } while (r == Z_OK && bytes);
    CHECK(r == (last ? Z_STREAM_END : Z_OK));
}

/* Deflates two buffers into one stream with this windowBits. */
static bool pack(int window, const void *first, size_t first_bytes,
                 const void *second, size_t second_bytes, uint8_t **out,
                 size_t *bytes)
{
    z_stream z = {.zalloc = gzip_alloc, .zfree = gzip_free};
    bool ok = false;
    size_t room;

    *out = NULL;

    // the header of zlib is then ten fixed bytes: no name, no time
    if (deflateInit2(&z, LEVEL, Z_DEFLATED, window, MEMORY,
                     Z_DEFAULT_STRATEGY) != Z_OK)
        return fail("no memory to deflate");
    TRY(size_add(first_bytes, second_bytes, &room));

    // the bound is for one call; a flush between the buffers adds a few bytes
    TRY(size_add(deflateBound(&z, room), 64, &room));
    TRY(*out = mem_alloc(room));
    z.next_out = *out;
    deflate_all(&z, first, first_bytes, false, *out + room);
    deflate_all(&z, second, second_bytes, true, *out + room);
    ok = true;
    *bytes = (size_t)(z.next_out - *out);

done:
    deflateEnd(&z);
    if (!ok) mem_free(*out), *out = NULL;
    return ok;
}

/* Two buffers, because header and voxels lie in different blocks and a copy of
 * the voxels would double the memory. */
bool gzip_deflate(const void *first, size_t first_bytes, const void *second,
                  size_t second_bytes, uint8_t **out, size_t *bytes)
{
    return pack(GZIP_WINDOW, first, first_bytes, second, second_bytes, out,
                bytes);
}

bool gzip_raw(const void *data, size_t count, uint8_t **out, size_t *bytes)
{
    return pack(RAW_WINDOW, NULL, 0, data, count, out, bytes);
}
