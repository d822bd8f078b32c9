/* npz.c -- reads the directory of a zip archive, and single members.
 *
 * A zip file is read from its end: the end record has the position of the
 * central directory, which lists the members and their positions. A file can
 * thus describe a member twice, and readers differ in the description that they
 * use. Here both must agree, and every byte before the directory must belong to
 * one member. */
#include "data/format/npz.h"
#include "data/format/gzip.h"
#include "data/format/unpack.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

/* Bytes of the fixed parts, APPNOTE 4.3.7, 4.3.12 and 4.3.14 to 4.3.16. */
enum {
    LOCAL = 30,
    CENTRAL = 46,
    END = 22,
    LOCATOR = 20,
    END64 = 56,
    DESCRIPTOR = 24, /* maximum: after a member written to a pipe */
    LONGEST_COMMENT = 65535,
};
enum { MOST_ENTRIES = 65536, SHOWN_NAMES = 10 };
static const uint64_t most_bytes = (uint64_t)1 << 37; /* twice 2^33 doubles */

/* Flags that are supported: deflate options, sizes stored after the data, a
 * name in UTF-8. */
enum { FLAG_ENCRYPTED = 1, FLAG_BEHIND = 8, FLAGS_KNOWN = 2 | 4 | 8 | 0x800 };
/* Two more flags of encryption: of the data, and of the directory. */
enum { FLAGS_SECRET = FLAG_ENCRYPTED | 0x40 | 0x2000 };
enum { METHOD_STORED = 0, METHOD_DEFLATED = 8, EXTRA_ZIP64 = 1 };

static uint16_t le16(const uint8_t *p)
{
    return number_u16(p, false);
}

static uint32_t le32(const uint8_t *p)
{
    return number_u32(p, false);
}

static uint64_t le64(const uint8_t *p)
{
    return le32(p) | (uint64_t)le32(p + 4) << 32;
}

static bool mark_is(const uint8_t *p, char a, char b)
{
    return p[0] == 'P' && p[1] == 'K' && p[2] == a && p[3] == b;
}

/* Position of the central directory. */
typedef struct Directory {
    uint64_t at, bytes, entries;
} Directory;

/* Reads the zip64 end record of archives beyond 4 GiB, which has its locator
 * before the end record; its values replace the values 0xffff... of the end
 * record. Sets *end to its beginning. */
static bool read_end64(const Npz *z, Directory *d, size_t *end)
{
    const uint8_t *loc = z->bytes + *end - LOCATOR;
    uint64_t at = le64(loc + 8), room = *end - LOCATOR;
    if (at > room || room - at < END64 || !mark_is(z->bytes + at, 6, 6))
        return fail_data("no zip64 end record at byte %llu, where its locator "
                         "says",
                         (unsigned long long)at);
    const uint8_t *p = z->bytes + at;

    // its size field does not count the first twelve bytes
    if (le64(p + 4) != room - at - 12)
        return fail_data("zip64 end record of %llu bytes, need %llu",
                         (unsigned long long)le64(p + 4),
                         (unsigned long long)(room - at - 12));
    if (le32(loc + 4) || le32(loc + 16) > 1 || le32(p + 16) || le32(p + 20) ||
        le64(p + 24) != le64(p + 32))
        return fail_data("archive in several parts; fix: numpy.savez again");
    Directory wide = {le64(p + 48), le64(p + 40), le64(p + 32)};
    if ((d->at != UINT32_MAX && d->at != wide.at) ||
        (d->bytes != UINT32_MAX && d->bytes != wide.bytes) ||
        (d->entries != UINT16_MAX && d->entries != wide.entries))
        return fail_data("end record and zip64 end record disagree");
    *d = wide;
    *end = (size_t)at;
    return true;
}

/* Finds the end record: at the end of the file, followed only by a comment,
 * which must fill the rest exactly. */
static bool find_directory(const Npz *z, Directory *d)
{
    const uint8_t *p = NULL;
    size_t end = 0;

    for (size_t behind = 0; behind <= LONGEST_COMMENT; behind++) {
        if (z->size < END + behind) break;
        end = z->size - END - behind;
        p = z->bytes + end;
        if (mark_is(p, 5, 6) && le16(p + 20) == behind) break;
        p = NULL;
    }

    if (!p)
        return fail_data("no end record: the file was cut, or other bytes "
                         "follow the archive");
    *d = (Directory){le32(p + 16), le32(p + 12), le16(p + 10)};
    if (end >= LOCATOR && mark_is(p - LOCATOR, 6, 7)) {
        if (!read_end64(z, d, &end)) return false;
    } else if (le16(p + 4) || le16(p + 6) || le16(p + 8) != le16(p + 10)) {
        return fail_data("archive in several parts; fix: numpy.savez again");
    }

    // it ends where the end record begins: no bytes before the archive and none
    // between the two
    if (d->bytes > end || d->at != end - d->bytes)
        return fail_data("central directory of %llu bytes at byte %llu, but "
                         "the end record is at %zu",
                         (unsigned long long)d->bytes,
                         (unsigned long long)d->at, end);

    if (d->entries > MOST_ENTRIES)
        return fail_data("%llu members, limit %d",
                         (unsigned long long)d->entries, MOST_ENTRIES);
    if (d->entries > d->bytes / CENTRAL)
        return fail_data("%llu members in a central directory of %llu bytes",
                         (unsigned long long)d->entries,
                         (unsigned long long)d->bytes);
    if (!d->entries) return fail_data("the archive holds no array");
    return true;
}

/* Checks a name, which becomes part of messages and in some cases of paths:
 * control characters and paths out of a folder are rejected. */
static bool check_name(const char *name, size_t length)
{
    const char *why = length ? NULL : "is empty";
    for (size_t i = 0; i < length && !why; i++)
        if ((unsigned char)name[i] < ' ' || name[i] == 127)
            why = "has a control character";
    if (why) return fail_data("name of a member %s", why);

    // each component between slashes; the last ends with the name
    for (size_t i = 0, begin = 0; i <= length && !why; i++) {
        if (i < length && name[i] == '\\') why = "has a backslash";
        if (i < length && name[i] == ':') why = "names a drive";
        if (i < length && name[i] != '/') continue;
        size_t n = i - begin;
        if (!n)
            why = begin ? "has a part without a name" : "begins at the root";
        else if (name[begin] == '.' &&
                 (n == 1 || (n == 2 && name[i - 1] == '.')))
            why = "leaves its folder";
        begin = i + 1;
    }

    return !why ||
           fail_data("name of a member \"%.*s\" %s", (int)length, name, why);
}

/* Reads numbers that do not fit 32 bits from an extra field, which contains
 * only these numbers, in this order. Each value[k] that is 2^32 - 1 is set to
 * the next eight bytes; other extra fields (times, owners) are skipped. */
static bool read_zip64(const uint8_t *p, size_t length, uint64_t *value[],
                       int count)
{
    bool found = false;
    for (size_t left = length; left;) {
        size_t n = left < 4 ? 0 : le16(p + 2);
        if (left < 4 || n > left - 4)
            return fail_data("extra field ends inside a record");
        if (le16(p) == EXTRA_ZIP64) {
            const uint8_t *q = p + 4;
            if (found) return fail_data("two zip64 extra fields");
            found = true;
            for (int k = 0; k < count; k++) {
                if (*value[k] != UINT32_MAX) continue;
                if (p + 4 + n - q < 8)
                    return fail_data("zip64 extra field of %zu bytes is too "
                                     "short",
                                     n);
                *value[k] = le64(q);
                q += 8;
            }
        }
        p += 4 + n, left -= 4 + n;
    }

    for (int k = 0; k < count && !found; k++)
        if (*value[k] == UINT32_MAX)
            return fail_data("zip64 extra field is missing");
    return true;
}

/* Fails with the name of an unsupported method. */
static bool check_method(int method)
{
    static const struct {
        int method;
        const char *name;
    } names[] = {{1, "Shrink"}, {6, "Implode"}, {9, "Deflate64"},
                 {12, "bzip2"}, {14, "LZMA"},   {93, "Zstandard"},
                 {95, "XZ"},    {98, "PPMd"},   {99, "AES"}};
    const char *name = "unknown";
    if (method == METHOD_STORED || method == METHOD_DEFLATED) return true;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (names[i].method == method) name = names[i].name;
    return fail_data("compression method %d (%s), need stored or deflate; fix: "
                     "numpy.savez_compressed",
                     method, name);
}

/* Rejects contradictory sizes before memory is allocated for them. */
static bool check_sizes(const NpzEntry *e)
{
    unsigned long long size = e->size, packed = e->packed;
    if (!e->deflated && e->size != e->packed)
        return fail_data("stored, but %llu bytes are declared as %llu", packed,
                         size);
    if (e->size / GZIP_MOST > e->packed)
        return fail_data("%llu bytes cannot come from %llu packed ones (at "
                         "most %d each)",
                         size, packed, GZIP_MOST);
    if (e->size > most_bytes)
        return fail_data("%llu bytes, limit %llu", size,
                         (unsigned long long)most_bytes);
    return true;
}

/* The local header must agree with the directory. If the writer could not seek,
 * the sizes follow the data, and the local header has 0. */
static bool check_local(const Npz *z, NpzEntry *e, const char *name,
                        size_t length, const uint8_t *central, uint64_t limit)
{
    if (e->begin > limit || limit - e->begin < LOCAL ||
        !mark_is(z->bytes + e->begin, 3, 4))
        return fail_data("no header at byte %llu, where the directory says",
                         (unsigned long long)e->begin);
    const uint8_t *p = z->bytes + e->begin;
    size_t n = le16(p + 26), extra = le16(p + 28);
    uint64_t packed = le32(p + 18), size = le32(p + 22);
    uint64_t *wide[] = {&size, &packed};
    e->at = e->begin + LOCAL + n + extra;
    if (e->at > limit || e->packed > limit - e->at)
        return fail_data("data of %llu bytes at byte %llu reaches beyond byte "
                         "%llu, where the directory begins",
                         (unsigned long long)e->packed,
                         (unsigned long long)e->at, (unsigned long long)limit);

    if (n != length || memcmp(p + LOCAL, name, n))
        return fail_data("its own header at byte %llu has another name",
                         (unsigned long long)e->begin);
    if (le16(p + 6) != le16(central + 8) || le16(p + 8) != le16(central + 10))
        return fail_data("its own header at byte %llu has another method",
                         (unsigned long long)e->begin);
    if (!read_zip64(p + LOCAL + n, extra, wide, 2)) return false;
    if (le16(p + 6) & FLAG_BEHIND) return true;
    if (size != e->size || packed != e->packed || le32(p + 14) != e->crc)
        return fail_data("its own header at byte %llu has other sizes or "
                         "another checksum",
                         (unsigned long long)e->begin);
    return true;
}

/* Reads one entry of the directory at p, with a name of `length` bytes; `limit`
 * is the offset of the directory. */
static bool read_entry(Npz *z, const uint8_t *p, size_t length, uint64_t limit,
                       NpzEntry *e)
{
    const char *name = (const char *)p + CENTRAL;
    unsigned flags = le16(p + 8);
    e->crc = le32(p + 16);
    e->packed = le32(p + 20);
    e->size = le32(p + 24);
    e->begin = le32(p + 42);
    uint64_t disk = le16(p + 34) == UINT16_MAX ? UINT32_MAX : le16(p + 34);
    uint64_t *wide[] = {&e->size, &e->packed, &e->begin};
    if (flags & FLAGS_SECRET)
        return fail_data("encrypted; fix: numpy.savez without a password");
    if (flags & ~(unsigned)FLAGS_KNOWN)
        return fail_data("flags 0x%04x are not known", flags);
    if (!check_method(le16(p + 10))) return false;
    if (disk) return fail_data("lies in another part of the archive");
    e->deflated = le16(p + 10) == METHOD_DEFLATED;
    return read_zip64(p + CENTRAL + length, le16(p + 30), wide, 3) &&
           check_sizes(e) && check_local(z, e, name, length, p, limit);
}

/* Reads all entries; `name` becomes the name of the array in numpy. */
static bool read_directory(Npz *z, const Directory *d)
{
    const uint8_t *p = z->bytes + d->at, *end = p + d->bytes;
    z->entry = ARENA_NEW(&z->mem, NpzEntry, d->entries);
    if (!z->entry) return false;

    for (; z->entries < (int)d->entries; z->entries++) {
        NpzEntry *e = &z->entry[z->entries];
        size_t left = (size_t)(end - p), length, whole;
        if (left < CENTRAL || !mark_is(p, 1, 2))
            return fail_data("no entry at byte %zu of the central directory, "
                             "%d of %d read",
                             (size_t)(p - z->bytes) - (size_t)d->at, z->entries,
                             (int)d->entries);
        length = le16(p + 28);
        whole = CENTRAL + length + le16(p + 30) + le16(p + 32);
        if (whole > left)
            return fail_data("central directory ends inside entry %d",
                             z->entries + 1);
        const char *name = (const char *)p + CENTRAL;
        if (!check_name(name, length)) return false;
        bool npy = length > 4 && !memcmp(name + length - 4, ".npy", 4);
        e->name =
            arena_printf(&z->mem, "%.*s", (int)length - (npy ? 4 : 0), name);
        if (!e->name) return false;
        if (!read_entry(z, p, length, d->at, e)) return within("%s", e->name);
        p += whole;
    }

    if (p != end)
        return fail_data("%zu bytes after the last entry of the central "
                         "directory",
                         (size_t)(end - p));
    return true;
}

static int by_name(const void *a, const void *b)
{
    const NpzEntry *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

static int by_place(const void *a, const void *b)
{
    const NpzEntry *const *x = a, *const *y = b;
    return ((*x)->begin > (*y)->begin) - ((*x)->begin < (*y)->begin);
}

/* Checks that names differ, and that members are contiguous from the first byte
 * to the directory. Bytes between members would be read by no program, and
 * overlapping members make a zip bomb. */
static bool check_together(Npz *z, uint64_t directory)
{
    int n = z->entries;
    NpzEntry **sorted = ARENA_NEW(&z->mem, NpzEntry *, n);
    uint64_t behind = 0; // end of the data of the previous member

    if (!sorted) return false;
    for (int i = 0; i < n; i++) sorted[i] = &z->entry[i];
    qsort(sorted, (size_t)n, sizeof *sorted, by_name);
    for (int i = 1; i < n; i++)
        if (!strcmp(sorted[i - 1]->name, sorted[i]->name))
            return fail_data("two arrays are called \"%s\"", sorted[i]->name);
    qsort(sorted, (size_t)n, sizeof *sorted, by_place);

    for (int i = 0; i <= n; i++) {
        uint64_t next = i < n ? sorted[i]->begin : directory;
        unsigned flags =
            i ? le16(z->bytes + sorted[i - 1]->begin + 6) : (unsigned)0;
        if (next < behind)
            return fail_data("%s and %s overlap at byte %llu",
                             sorted[i - 1]->name, sorted[i]->name,
                             (unsigned long long)next);
        if (next - behind > (flags & FLAG_BEHIND ? DESCRIPTOR : 0))
            return fail_data("%llu bytes at byte %llu belong to no member",
                             (unsigned long long)(next - behind),
                             (unsigned long long)behind);
        if (i < n) behind = sorted[i]->at + sorted[i]->packed;
    }
    return true;
}

/* reasons without "npz" */
static bool open_bytes(Npz *z)
{
    Directory d = {0};
    if (!z->size) return fail_data("file is empty");
    if (z->size >= 6 && !memcmp(z->bytes, "\x93NUMPY", 6))
        return fail_data("a .npy array, need a .npz archive; fix: name it "
                         ".npy");
    if (z->size < END || (!mark_is(z->bytes, 3, 4) && !mark_is(z->bytes, 5, 6)))
        return fail_data("not .npz: the first bytes are not those of a zip "
                         "archive");
    return find_directory(z, &d) && read_directory(z, &d) &&
           check_together(z, d.at);
}

bool npz_open_bytes(const uint8_t *bytes, size_t size, Npz *z)
{
    *z = (Npz){.bytes = bytes, .size = size};
    if (open_bytes(z)) return true;
    npz_close(z);
    return within("npz");
}

bool npz_open(const char *path, Npz *z)
{
    Map map;
    *z = (Npz){0};
    if (!map_open(path, 0, &map)) return within("%s: npz", path);
    if (!npz_open_bytes(map.bytes, map.size, z)) {
        map_close(&map);
        return within("%s", path);
    }
    z->map = map;
    return true;
}

void npz_close(Npz *z)
{
    map_close(&z->map);
    arena_release(&z->mem);
    *z = (Npz){0};
}

/* Prefixes a reason about array e with "PATH: npz: NAME". */
static bool within_array(const Npz *z, const NpzEntry *e)
{
    within("npz: %s", e->name);
    return map_within(&z->map);
}

/* Inflates the first `want` bytes of a deflated member. */
static bool unpack_start(const Npz *z, const NpzEntry *e, void *out,
                         size_t want)
{
    Unpack *u;
    size_t got;
    if (!unpack_open(z->bytes + e->at, (size_t)e->packed, UNPACK_RAW, &u))
        return false;
    bool ok = unpack_read(u, out, want, &got);
    unpack_close(u);
    if (ok && got < want)
        return fail_data("%zu bytes unpacked, %llu declared", got,
                         (unsigned long long)e->size);
    return ok;
}

/* In two steps, because the first bytes contain the length of the header. */
static bool about(const Npz *z, const NpzEntry *e, int64_t limit, NpyHeader *h)
{
    uint8_t first[NPY_PREFIX], *bytes = NULL;
    size_t size = (size_t)e->size;
    size_t have = size < NPY_PREFIX ? size : NPY_PREFIX, end;

    if (!map_check(&z->map)) return false;
    if (!e->deflated) return npy_about(z->bytes + e->at, size, size, limit, h);
    if (!unpack_start(z, e, first, have)) return false;
    end = npy_header_end(first, have);
    if (end > size) end = size;
    bytes = mem_alloc(end);
    bool ok = bytes && unpack_start(z, e, bytes, end) &&
              npy_about(bytes, end, size, limit, h);
    mem_free(bytes);
    return ok;
}

bool npz_about(const Npz *z, int i, NpyHeader *h)
{
    CHECK(i >= 0 && i < z->entries);
    *h = (NpyHeader){0};
    return about(z, &z->entry[i], 0, h) || within_array(z, &z->entry[i]);
}

/* Inflates a member and verifies its checksum; *own is memory to be freed, NULL
 * for a stored member, which is used in place. */
static bool member(const Npz *z, const NpzEntry *e, const uint8_t **bytes,
                   uint8_t **own)
{
    Unpack *u = NULL;
    bool ok = false;
    size_t size = (size_t)e->size;

    *bytes = z->bytes + e->at;
    *own = NULL;

    if (e->deflated) {
        TRY(*own = mem_alloc(size));
        *bytes = *own;
        TRY(unpack_open(z->bytes + e->at, (size_t)e->packed, UNPACK_RAW, &u));
        TRY(unpack_all(u, *own, size));
    }

    uint32_t crc = (uint32_t)crc32_z(0, *bytes, size);
    ok = crc == e->crc || fail_data("checksum %08x, the archive says %08x: "
                                    "damaged",
                                    crc, e->crc);

done:
    unpack_close(u);
    return ok;
}

/* Reads the header first: it must agree with the archive before memory is
 * allocated. */
static bool read_member(const Npz *z, const NpzEntry *e, int64_t limit,
                        NpyArray *out)
{
    NpyHeader h;
    const uint8_t *bytes;
    uint8_t *own;
    if (!about(z, e, limit, &h)) return false;
    bool ok = member(z, e, &bytes, &own) &&
              npy_decode(bytes, (size_t)e->size, limit, out);
    mem_free(own);
    return ok;
}

bool npz_read(const Npz *z, const char *name, int64_t max_elements,
              NpyArray *out)
{
    char names[256] = "";
    size_t used = 0;
    *out = (NpyArray){0};
    for (int i = 0; i < z->entries; i++)
        if (!strcmp(z->entry[i].name, name))
            return read_member(z, &z->entry[i], max_elements, out) ||
                   within_array(z, &z->entry[i]);

    // the first names, up to the size of the buffer
    for (int i = 0; i < z->entries && i <= SHOWN_NAMES && used < sizeof names;
         i++)
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%s",
                                 i ? ", " : "",
                                 i < SHOWN_NAMES ? z->entry[i].name : "...");

    fail_data("npz: no array \"%s\"; there are: %s", name, names);
    return map_within(&z->map);
}
