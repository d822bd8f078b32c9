/* zip.c -- writes members one by one, each a header and its bytes, followed by
 * the directory, which repeats the headers. One member is in memory at a
 * time. */
#include "data/format/zip.h"
#include "data/format/gzip.h"
#include "engine/base/file.h"
#include <string.h>
#include <zlib.h>

enum {
    VERSION = 20,      /* version of zip with deflate: 2.0 */
    UNIX = 3 << 8,     /* system of the permissions in the directory */
    UTF8 = 1 << 11,    /* flag: the name is in UTF-8 */
    DEFLATED = 8,      /* method; stored is 0                               */
    DATE = 1 << 5 | 1, /* 1 January; years count from 1980 */
    LOCAL = 30,        /* bytes of a local header */
    CENTRAL = 46,      /* bytes of a directory entry, without its name */
    END = 22
};
static const uint32_t file_mode = 0100644; // regular, readable by all

/* An archive during writing. */
typedef struct Zip {
    const char *path;
    Draft draft;
    uint64_t at;        /* bytes written so far */
    uint8_t *directory; /* from mem */
    size_t rows;        /* bytes of directory so far */
    Arena mem;
} Zip;

static uint8_t *put(uint8_t *to, int bytes, uint64_t value)
{
    for (int i = 0; i < bytes; i++) *to++ = (uint8_t)(value >> 8 * i);
    return to;
}

static bool is_ascii(const char *name)
{
    for (; *name; name++)
        if ((unsigned char)*name > 127) return false;
    return true;
}

/* Writes the fields that header and directory share, from `version needed` to
 * the lengths of the name and of the extra field (0). */
static uint8_t *put_facts(uint8_t *to, const char *name, bool deflated,
                          uint32_t crc, size_t packed, size_t size)
{
    to = put(to, 2, VERSION);
    to = put(to, 2, is_ascii(name) ? 0 : UTF8);
    to = put(to, 2, deflated ? DEFLATED : 0);
    to = put(to, 4, (uint64_t)DATE << 16);
    to = put(to, 4, crc);
    to = put(to, 4, packed);
    to = put(to, 4, size);
    return put(to, 4, strlen(name));
}

static bool append(Zip *z, const void *data, size_t bytes)
{
    if (z->at + bytes > UINT32_MAX)
        return fail_data("%s: zip: more than 4 GiB; fix: fewer files in one "
                         "archive",
                         z->path);
    if (!draft_write(&z->draft, z->at, data, bytes)) return false;
    z->at += bytes;
    return true;
}

/* Writes one member and appends its directory entry. */
static bool add(Zip *z, const ZipMember *m)
{
    const ArenaMark mark = arena_mark(&z->mem);
    char *data;
    uint8_t *packed = NULL, head[LOCAL], *p, *row = z->directory + z->rows;
    size_t size, less;
    bool ok = false;
    const uint64_t begin = z->at;
    const size_t name = strlen(m->name);

    TRY(file_read(m->path, UINT32_MAX, &z->mem, &data, &size));
    TRY(gzip_raw(data, size, &packed, &less));
    const bool deflated = less < size;
    const uint32_t crc = (uint32_t)crc32_z(0, (const Bytef *)data, size);
    if (!deflated) less = size;
    p = put(head, 4, 0x04034b50);
    put_facts(p, m->name, deflated, crc, less, size);
    TRY(append(z, head, LOCAL) && append(z, m->name, name) &&
        append(z, deflated ? (void *)packed : data, less));
    memset(row, 0, CENTRAL);
    p = put(put(row, 4, 0x02014b50), 2, UNIX | VERSION);
    put_facts(p, m->name, deflated, crc, less, size);
    put(row + 38, 4, (uint64_t)file_mode << 16);
    put(row + 42, 4, begin);
    memcpy(row + CENTRAL, m->name, name);
    z->rows += CENTRAL + name;
    ok = true;

done:
    mem_free(packed);
    arena_rewind(&z->mem, mark);
    return ok;
}

/* Allocates the whole directory. */
static bool make_directory(Zip *z, const ZipMember *member, int members)
{
    size_t bytes = 0;
    if (members > UINT16_MAX)
        return fail_data("%s: zip: %d files, an archive holds at most %d; fix: "
                         "several archives",
                         z->path, members, UINT16_MAX);

    for (int i = 0; i < members; i++) {
        const size_t name = strlen(member[i].name);
        if (name > UINT16_MAX)
            return fail_data("%s: zip: a name of %zu bytes, at most %d",
                             z->path, name, UINT16_MAX);
        if (!size_add(bytes, CENTRAL + name, &bytes)) return false;
    }

    z->directory = arena_alloc(&z->mem, bytes ? bytes : 1);
    return z->directory != NULL;
}

bool zip_write(const char *path, const ZipMember *member, int members)
{
    Zip z = {.path = path};
    uint8_t end[END] = {0}, *p = put(end, 4, 0x06054b50) + 4;
    bool ok =
        make_directory(&z, member, members) && draft_open(&z.draft, path, 0);

    for (int i = 0; ok && i < members; i++) ok = add(&z, &member[i]);
    p = put(put(p, 2, (uint64_t)members), 2, (uint64_t)members);
    put(put(p, 4, z.rows), 4, z.at);
    ok = ok && append(&z, z.directory, z.rows) && append(&z, end, END);
    if (ok)
        ok = draft_commit(&z.draft, NULL, NULL);
    else
        draft_discard(&z.draft);
    arena_release(&z.mem);
    return ok;
}
