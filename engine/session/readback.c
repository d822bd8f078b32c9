/* readback.c -- blocks of device memory that fill one after the other. A full
 * block is never moved, as copies into it may still be queued. */
#include "engine/session/readback.h"

enum { BLOCK_BYTES = 1 << 16, ALIGNED = 64 };

typedef struct Block {
    void *there; /* on the device                                     */
    char *here;  /* its copy on the host; NULL before the first fetch */
    size_t used, room;
} Block;

/* Position of a value; a fetch sets the data of its tensor. */
typedef struct Entry {
    int block;
    size_t at;
    Tensor value;
} Entry;

struct Readback {
    const Backend *be;
    void *dev;
    Block *block; /* owned, from mem_realloc, like entry */
    int blocks, filling;
    Entry *entry;
    int entries, room;
    bool fetched;
};

bool readback_open(const Backend *be, void *dev, Readback **out)
{
    Readback *j = mem_alloc(sizeof *j);
    if (!j) return false;
    j->be = be, j->dev = dev;
    *out = j;
    return true;
}

void readback_close(Readback *j)
{
    if (!j) return;
    for (int i = 0; i < j->blocks; i++) {
        j->be->release(j->dev, j->block[i].there);
        mem_free(j->block[i].here);
    }
    mem_free(j->block);
    mem_free(j->entry);
    mem_free(j);
}

/* Adds a block of BLOCK_BYTES, or of the size of one larger value. */
static bool add_block(Readback *j, size_t bytes)
{
    Block b = {.room = bytes > BLOCK_BYTES ? bytes : BLOCK_BYTES};
    Block *all =
        mem_realloc(j->block, ((size_t)j->blocks + 1) * sizeof *j->block);
    if (!all) return false;
    j->block = all;
    if (!j->be->alloc(j->dev, b.room, &b.there)) return false;
    j->block[j->blocks++] = b;
    return true;
}

/* Returns a block with room for `bytes`; NULL with a reason. A block with too
 * little room is skipped until readback_clear. */
static Block *block_for(Readback *j, size_t bytes)
{
    for (; j->filling < j->blocks; j->filling++) {
        Block *b = &j->block[j->filling];
        if (b->room - b->used >= bytes) return b;
    }
    return add_block(j, bytes) ? &j->block[j->filling] : NULL;
}

bool readback_add(Readback *j, const Tensor *t)
{
    size_t bytes = (tensor_bytes(t) + ALIGNED - 1) / ALIGNED * ALIGNED;
    if (j->entries == j->room) {
        int room = j->room ? 2 * j->room : 64;
        Entry *all = mem_realloc(j->entry, (size_t)room * sizeof *all);
        if (!all) return false;
        j->entry = all, j->room = room;
    }

    Block *b = block_for(j, bytes);
    if (!b || !j->be->copy(j->dev, (char *)b->there + b->used, t->data,
                           tensor_bytes(t)))
        return false;
    Entry *e = &j->entry[j->entries++];
    *e = (Entry){.block = j->filling, .at = b->used, .value = *t};
    e->value.data = NULL;
    b->used += bytes;
    j->fetched = false;
    return true;
}

int readback_count(const Readback *j)
{
    return j->entries;
}

bool readback_fetch(Readback *j)
{
    for (int i = 0; i < j->blocks; i++) {
        Block *b = &j->block[i];
        if (!b->used) continue;
        if (!b->here) b->here = mem_alloc(b->room);
        if (!b->here || !j->be->download(j->dev, b->here, b->there, b->used))
            return false;
    }

    for (int i = 0; i < j->entries; i++) {
        Entry *e = &j->entry[i];
        e->value.data = j->block[e->block].here + e->at;
    }
    j->fetched = true;
    return true;
}

const Tensor *readback_value(const Readback *j, int i)
{
    CHECK(j->fetched && i >= 0 && i < j->entries);
    return &j->entry[i].value;
}

void readback_clear(Readback *j)
{
    for (int i = 0; i < j->blocks; i++) j->block[i].used = 0;
    j->entries = j->filling = 0;
}
