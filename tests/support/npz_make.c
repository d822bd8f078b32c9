/* Zip archives like those of numpy.savez and other writers. */
#include "tests/support/npz_make.h"
#include <zlib.h>

void zip_put(Zip *z, uint64_t value, int bytes)
{
    REQUIRE(z->size + 8 < ROOM);
    for (int i = 0; i < bytes; i++)
        z->bytes[z->size++] = (uint8_t)(value >> 8 * i);
}

void zip_bytes(Zip *z, const void *p, size_t n)
{
    REQUIRE(z->size + n < ROOM);
    if (n) memcpy(z->bytes + z->size, p, n);
    z->size += n;
}

void zip_patch(Zip *z, size_t at, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        z->bytes[at + (size_t)i] = (uint8_t)(value >> 8 * i);
}

/* A .npy of `count` bytes, each `value` + its index. */
size_t zip_npy(uint8_t out[ROOM], int value, int count)
{
    char literal[96];
    int n = snprintf(literal, sizeof literal,
                     "{'descr': '|u1', 'fortran_order': False, 'shape': "
                     "(%d,)}",
                     count);
    memcpy(out, "\x93NUMPY\1\0", 8);
    out[8] = (uint8_t)n, out[9] = 0;
    memcpy(out + 10, literal, (size_t)n);
    for (int i = 0; i < count; i++) out[10 + n + i] = (uint8_t)(value + i);
    return 10 + (size_t)n + (size_t)count;
}

size_t zip_deflate(const uint8_t *in, size_t n, uint8_t out[ROOM])
{
    z_stream s = {0};
    REQUIRE(deflateInit2(&s, 9, Z_DEFLATED, -15, 8, 0) == Z_OK);
    s.next_in = (void *)in, s.avail_in = (uInt)n;
    s.next_out = out, s.avail_out = ROOM;
    REQUIRE(deflate(&s, Z_FINISH) == Z_STREAM_END);
    n = s.total_out;
    deflateEnd(&s);
    return n;
}

/* One member with its header, and its directory entry in `entry`. */
void zip_add(Zip *z, Zip *entry, const char *name, int kind,
             const uint8_t *content, size_t size)
{
    uint8_t packed[ROOM];
    size_t n = size, length = strlen(name);
    uint32_t crc = (uint32_t)crc32(0, content, (uInt)size);
    bool wide = kind & (WIDE | ZIP64), behind = kind & BEHIND;
    int flags = behind ? 8 : 0, method = kind & DEFLATED ? 8 : 0;

    if (kind & DEFLATED)
        n = zip_deflate(content, size, packed);
    else
        memcpy(packed, content, size);
    int k = z->members++;
    z->local[k] = z->size;
    zip_bytes(z, "PK\3\4", 4);
    zip_put(z, 45, 2), zip_put(z, (uint64_t)flags, 2),
        zip_put(z, (uint64_t)method, 2);
    zip_put(z, 0, 4), zip_put(z, behind ? 0 : crc, 4);
    zip_put(z, wide ? UINT32_MAX : behind ? 0 : n, 4);
    zip_put(z, wide ? UINT32_MAX : behind ? 0 : size, 4);
    zip_put(z, length, 2), zip_put(z, wide ? 20 : 0, 2);
    zip_bytes(z, name, length);
    if (wide) {
        zip_put(z, 1, 2), zip_put(z, 16, 2);
        zip_put(z, behind ? 0 : size, 8), zip_put(z, behind ? 0 : n, 8);
    }
    z->data[k] = z->size;
    zip_bytes(z, packed, n);
    if (behind) {
        zip_bytes(z, "PK\7\10", 4);
        zip_put(z, crc, 4), zip_put(z, n, 4), zip_put(z, size, 4);
    }
    z->central[k] = entry->size;
    wide = kind & ZIP64;
    zip_bytes(entry, "PK\1\2", 4);
    zip_put(entry, 45, 2), zip_put(entry, 45, 2),
        zip_put(entry, (uint64_t)flags, 2);
    zip_put(entry, (uint64_t)method, 2), zip_put(entry, 0, 4),
        zip_put(entry, crc, 4);
    zip_put(entry, wide ? UINT32_MAX : n, 4);
    zip_put(entry, wide ? UINT32_MAX : size, 4);
    zip_put(entry, length, 2), zip_put(entry, wide ? 28 + 5 : 0, 2),
        zip_put(entry, 0, 2);
    zip_put(entry, 0, 4), zip_put(entry, 0, 4);
    zip_put(entry, wide ? UINT32_MAX : z->local[k], 4);
    zip_bytes(entry, name, length);
    if (!wide) return;

    // an unknown extra field first, which the reader must skip
    zip_put(entry, 0x7777, 2), zip_put(entry, 1, 2), zip_put(entry, 0, 1);
    zip_put(entry, 1, 2), zip_put(entry, 24, 2);
    zip_put(entry, size, 8), zip_put(entry, n, 8),
        zip_put(entry, z->local[k], 8);
}

/* The directory and the end record. */
void zip_finish(Zip *z, const Zip *entry, bool huge)
{
    size_t at = z->size;
    for (int k = 0; k < z->members; k++) z->central[k] += at;
    zip_bytes(z, entry->bytes, entry->size);

    if (huge) {
        size_t end64 = z->size;
        zip_bytes(z, "PK\6\6", 4);
        zip_put(z, 44, 8), zip_put(z, 45, 2), zip_put(z, 45, 2),
            zip_put(z, 0, 8);
        zip_put(z, (uint64_t)z->members, 8),
            zip_put(z, (uint64_t)z->members, 8);
        zip_put(z, entry->size, 8), zip_put(z, at, 8);
        zip_bytes(z, "PK\6\7", 4);
        zip_put(z, 0, 4), zip_put(z, end64, 8), zip_put(z, 1, 4);
    }

    z->end = z->size;
    zip_bytes(z, "PK\5\6", 4);
    zip_put(z, 0, 4);
    zip_put(z, huge ? UINT16_MAX : (uint64_t)z->members, 2);
    zip_put(z, huge ? UINT16_MAX : (uint64_t)z->members, 2);
    zip_put(z, huge ? UINT32_MAX : entry->size, 4);
    zip_put(z, huge ? UINT32_MAX : at, 4), zip_put(z, 0, 2);
}

/* Arrays "a" (3 numbers from 1 on) and "b" (40 from 50 on). */
void zip_make(Zip *z, int kind)
{
    uint8_t content[ROOM];
    Zip entry = {.size = 0};
    *z = (Zip){.size = 0};
    zip_add(z, &entry, "a.npy", kind, content, zip_npy(content, 1, 3));
    zip_add(z, &entry, "b.npy", kind, content, zip_npy(content, 50, 40));
    zip_finish(z, &entry, kind & ZIP64);
}

/* One member with any name and content. */
void zip_make_one(Zip *z, const char *name, int kind, const uint8_t *content,
                  size_t size)
{
    Zip entry = {.size = 0};
    *z = (Zip){.size = 0};
    zip_add(z, &entry, name, kind, content, size);
    zip_finish(z, &entry, false);
}

/* npz_open_bytes of a copy of exactly the size, which stays with the Npz. */
bool zip_open(const Zip *zip, uint8_t **copy, Npz *z)
{
    *copy = mem_alloc(zip->size);
    REQUIRE(*copy);
    memcpy(*copy, zip->bytes, zip->size);
    return npz_open_bytes(*copy, zip->size, z);
}

/* Opens it and reads "b"; false with the reason of the first failure. */
bool zip_read_b(const Zip *zip)
{
    uint8_t *copy;
    Npz z;
    NpyArray a = {0};
    long live = mem_live();
    bool ok = zip_open(zip, &copy, &z);

    if (!ok) EXPECT(!z.entries && !z.entry);
    ok = ok && npz_read(&z, "b", 0, &a);
    if (!ok) EXPECT(!a.data && err_kind() == ERR_DATA);
    mem_free(a.data);
    npz_close(&z);
    mem_free(copy);
    EXPECT_INT(mem_live(), live);
    return ok;
}
