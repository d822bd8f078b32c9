/* protobuf.c -- fields appended to a growing block.
 *
 * The length of a message is known only at its end, and takes one to ten bytes.
 * So a message is written directly after its key and moved at the end by the
 * size of its length. Messages with large contents are not built here but
 * announced with proto_head. */
#include "engine/onnx/protobuf.h"
#include <string.h>

// wire types, from the description of the encoding
enum { VARINT = 0, LENGTH = 2, FIXED32 = 5 };
enum { VARINT_MOST = 10 }; // bytes of a 64-bit number, seven bits in each

void proto_free(Proto *p)
{
    mem_free(p->at);
    *p = (Proto){NULL, 0, 0, false};
}

void proto_clear(Proto *p)
{
    p->used = 0;
}

/* Ensures room for `bytes` more; false after a failure. */
static bool reserve(Proto *p, size_t bytes)
{
    size_t want;
    if (p->failed) return false;
    if (size_add(p->used, bytes, &want) && want <= p->room) return true;
    char *grown = NULL;
    if (size_add(want, want / 2 + 256, &want)) grown = mem_realloc(p->at, want);
    p->failed = !grown;
    if (!grown) return false;
    p->at = grown;
    p->room = want;
    return true;
}

void proto_raw(Proto *p, const void *data, size_t bytes)
{
    if (!bytes || !reserve(p, bytes)) return;
    memcpy(p->at + p->used, data, bytes);
    p->used += bytes;
}

/* Encodes v in groups of seven bits, low ones first, the high bit of a byte set
 * if more follow; returns the number of bytes. */
static size_t varint(uint64_t v, unsigned char out[VARINT_MOST])
{
    size_t n = 0;
    for (; v > 127; v >>= 7) out[n++] = (unsigned char)(v | 128);
    out[n++] = (unsigned char)v;
    return n;
}

static void put_varint(Proto *p, uint64_t v)
{
    unsigned char bytes[VARINT_MOST];
    proto_raw(p, bytes, varint(v, bytes));
}

static void put_key(Proto *p, int field, int kind)
{
    put_varint(p, (uint64_t)field << 3 | (unsigned)kind);
}

void proto_int(Proto *p, int field, int64_t v)
{
    put_key(p, field, VARINT);
    put_varint(p, (uint64_t)v); // a negative number takes all ten bytes
}

void proto_float(Proto *p, int field, float v)
{
    put_key(p, field, FIXED32);
    proto_raw(p, &v, sizeof v);
}

void proto_head(Proto *p, int field, uint64_t bytes)
{
    put_key(p, field, LENGTH);
    put_varint(p, bytes);
}

void proto_bytes(Proto *p, int field, const void *data, size_t bytes)
{
    proto_head(p, field, bytes);
    proto_raw(p, data, bytes);
}

void proto_text(Proto *p, int field, const char *text)
{
    proto_bytes(p, field, text, strlen(text));
}

size_t proto_begin(Proto *p, int field)
{
    put_key(p, field, LENGTH);
    return p->used;
}

void proto_end(Proto *p, size_t mark)
{
    unsigned char bytes[VARINT_MOST];
    // after a failure the mark may be beyond the end
    if (p->failed) return;
    size_t length = p->used - mark, n = varint(length, bytes);
    if (!reserve(p, n)) return;
    memmove(p->at + mark + n, p->at + mark, length);
    memcpy(p->at + mark, bytes, n);
    p->used += n;
}
