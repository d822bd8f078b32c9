/* cache_key.c -- see cache_key.h. Two SipHashes of the same data make 128 bits,
 * enough to exclude equal keys of two cases by chance. */
#include "data/preprocess/cache_key.h"
#include "data/dataset/dataset_build.h"
#include "engine/base/crc32c.h"
#include "engine/base/file.h"
#include "engine/base/siphash.h"
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { EDGE = 1 << 16 }; // bytes at either end of a file

/* Increase with every change of readers, steps or packs that prepares other
 * volumes from the same files and steps. */
enum { FORMAT = 1 };

/* Chains both hashes: each piece is hashed with the hash so far as its key. */
void cache_key_add(CacheKey *s, const void *data, size_t bytes)
{
    for (int i = 0; i < 2; i++) {
        uint64_t key[2] = {s->word[i], (uint64_t)i};
        uint8_t raw[16];
        memcpy(raw, key, sizeof raw);
        s->word[i] = siphash(raw, data, bytes);
    }
}

static void add_text(CacheKey *s, const char *text)
{
    cache_key_add(s, text, strlen(text) + 1);
}

static bool add_file(CacheKey *s, const char *path)
{
    uint8_t edge[EDGE];
    uint64_t bytes;
    struct stat st;
    int fd;

    if (!file_open(path, &fd, &bytes)) return false;
    size_t n = bytes < EDGE ? (size_t)bytes : EDGE;
    bool ok = !fstat(fd, &st) && file_read_at(fd, path, 0, edge, n);
    uint64_t word[5] = {bytes, 0, 0, crc32c(0, edge, n), 0};

    if (ok && bytes > EDGE) {
        // of a file shorter than two edges, only the part after the first edge
        n = bytes < 2 * EDGE ? (size_t)bytes - EDGE : EDGE;
        ok = file_read_at(fd, path, bytes - n, edge, n);
        word[4] = crc32c(0, edge, n);
    }

    close(fd);
    if (!ok) return false;
    word[1] = (uint64_t)st.st_mtim.tv_sec;
    word[2] = (uint64_t)st.st_mtim.tv_nsec;
    cache_key_add(s, word, sizeof word);
    return true;
}

static bool add_source(CacheKey *s, const Source *from, Arena *mem)
{
    SourceFacts facts = {.files = 0};
    if (!from->depends || !from->depends(from, mem, &facts)) return false;
    add_text(s, facts.asked ? facts.asked : "");
    cache_key_add(s, facts.data, facts.bytes);
    for (int i = 0; i < facts.files; i++)
        if (!add_file(s, facts.file[i])) return false;
    return true;
}

bool cache_key_begin(const Dataset *ds, const Steps *steps, CacheKey *out)
{
    const DatasetOptions *o = &ds->store->options;
    const int32_t head[] = {FORMAT,     ds->fields,       o->label_count,
                            o->nonzero, o->resample_mask, o->resample,
                            MAX_FIELDS};
    Arena mem = {NULL};
    Steps prepare = steps_without_augment(steps);
    char *text = steps_print(&prepare, &mem);

    *out = (CacheKey){{0, 0}};
    if (!text) return false;
    cache_key_add(out, head, sizeof head);
    cache_key_add(out, o->labels, (size_t)o->label_count * sizeof *o->labels);
    add_text(out, text);
    arena_release(&mem);
    for (int f = 0; f < ds->fields; f++) {
        const int32_t field[] = {(int32_t)ds->field[f].kind, ds->field[f].rank};
        add_text(out, ds->field[f].name);
        cache_key_add(out, field, sizeof field);
    }
    return true;
}

bool cache_key_case(const CacheKey *common, const Dataset *ds, int item,
                    CacheKey *out)
{
    Arena mem = {NULL};
    bool ok = true;
    *out = *common;

    for (int f = 0; ok && f < ds->fields; f++) {
        const struct CaseField *from = &ds->cases[item].field[f];
        const int32_t channels = from->channels;
        cache_key_add(out, &channels, sizeof channels);
        for (int k = 0; ok && k < from->channels; k++)
            ok = add_source(out, &from->source[k], &mem);
    }

    arena_release(&mem);
    return ok;
}

static bool add_place(CacheKey *s, const char *path)
{
    struct stat st;
    if (stat(path, &st)) return false;
    // no device number: containers and network disks change it
    const uint64_t word[] = {(uint64_t)st.st_ino, (uint64_t)st.st_ctim.tv_sec,
                             (uint64_t)st.st_ctim.tv_nsec};
    cache_key_add(s, word, sizeof word);
    return true;
}

static bool add_bytes(CacheKey *s, const char *path)
{
    enum { BLOCK = 1 << 20 };
    uint64_t bytes;
    int fd;
    uint8_t *block = mem_alloc(BLOCK);
    if (!block || !file_open(path, &fd, &bytes)) {
        mem_free(block);
        return false;
    }
    bool ok = true;

    for (uint64_t at = 0; ok && at < bytes; at += BLOCK) {
        const size_t n = bytes - at < BLOCK ? (size_t)(bytes - at) : BLOCK;
        ok = file_read_at(fd, path, at, block, n);
        const uint64_t word[] = {n, ok ? crc32c(0, block, n) : 0};
        cache_key_add(s, word, sizeof word);
    }

    close(fd);
    mem_free(block);
    return ok;
}

/* Adds `add` of each file of a case. */
static bool add_files(const Dataset *ds, int item,
                      bool (*add)(CacheKey *s, const char *path), CacheKey *out)
{
    Arena mem = {NULL};
    bool ok = true;
    *out = (CacheKey){{0, 0}};

    for (int f = 0; ok && f < ds->fields; f++) {
        const struct CaseField *from = &ds->cases[item].field[f];
        for (int k = 0; ok && k < from->channels; k++) {
            const Source *source = &from->source[k];
            SourceFacts facts = {.files = 0};
            ok = source->depends && source->depends(source, &mem, &facts);
            for (int i = 0; ok && i < facts.files; i++)
                ok = add(out, facts.file[i]);
        }
    }

    arena_release(&mem);
    return ok;
}

bool cache_key_place(const Dataset *ds, int item, CacheKey *out)
{
    return add_files(ds, item, add_place, out);
}

bool cache_key_bytes(const Dataset *ds, int item, CacheKey *out)
{
    return add_files(ds, item, add_bytes, out);
}

int cache_key_order(const CacheKey *a, const CacheKey *b)
{
    for (int i = 0; i < 2; i++)
        if (a->word[i] != b->word[i]) return a->word[i] < b->word[i] ? -1 : 1;
    return 0;
}
