/* snapshot.c -- see snapshot.h.
 *
 * The copy has the form of parameters on the host, in the memory order of the
 * session, so the code that saves a session saves a snapshot too. Thread and
 * caller share no data between snapshot_write and snapshot_wait, except
 * `done`. */
#include "engine/checkpoint/snapshot.h"
#include "engine/base/thread.h"
#include "engine/checkpoint/checkpoint_inside.h"
#include <stdatomic.h>
#include <stdio.h>

struct Snapshot {
    Params params; // with own names, in `names`; be is NULL before the first
    Arena names;
    Arena content; // of `write`
    StWrite write; // fill is NULL in an empty snapshot
    Arena paths;   // of `path`
    const char **path;
    int count;
    pthread_t thread;
    bool under_way; // between snapshot_write and snapshot_wait
    bool threaded;  // `thread` is to be joined
    atomic_bool done;
    bool ok; // the result of the write, and its reason
    ErrKind kind;
    char why[ERR_MAX];
};

size_t snapshot_bytes(const Params *p)
{
    const int64_t blocks =
        p->total * (p->average ? 2 : 1) + p->trained * p->states;
    return (size_t)blocks * dtype_bytes(p->be->real);
}

Snapshot *snapshot_new(void)
{
    return mem_alloc(sizeof(Snapshot));
}

// -- the copy -----------------------------------------------------------------

/* Does the copy have the layout of these parameters? */
static bool same_layout(const Params *copy, const Params *p)
{
    bool same = copy->be && copy->be->real == p->be->real &&
                copy->count == p->count && copy->total == p->total &&
                copy->trained == p->trained && copy->states == p->states &&
                (p->average || !copy->average);
    for (int i = 0; same && i < p->count; i++) {
        const Param *a = &copy->list[i], *b = &p->list[i];
        same = a->at == b->at && a->trained == b->trained &&
               a->rank == b->rank && !memcmp(&a->dim, &b->dim, sizeof a->dim) &&
               !strcmp(a->name, b->name);
    }
    return same;
}

/* Makes the list of parameters, without blocks. */
static bool layout_copy(Snapshot *k, const Params *p)
{
    Params *copy = &k->params;
    params_free(copy);
    arena_release(&k->names);
    copy->list = mem_alloc(((size_t)p->count + 1) * sizeof *copy->list);
    if (!copy->list) return false;
    // both are on the host; without a device they run in the calling thread
    copy->be = p->be->real == F64 ? &backend_ref : &backend_cpu;
    copy->total = p->total;
    copy->trained = p->trained;
    copy->states = p->states;
    copy->copied = F64;
    for (int i = 0; i < p->count; i++) {
        Param *q = &copy->list[copy->count++];
        *q = p->list[i];
        q->name = arena_strdup(&k->names, q->name);
        if (!q->name) return false;
    }
    return true;
}

/* Copies one block of `elements` reals, allocated at its first use. */
static bool block_copy(const Params *copy, void **block, const Params *p,
                       const void *from, int64_t elements)
{
    const size_t bytes = (size_t)elements * dtype_bytes(p->be->real);
    return (*block || copy->be->alloc(NULL, bytes, block)) &&
           p->be->download(p->dev, *block, from, bytes);
}

static bool blocks_copy(Params *copy, const Params *p, bool full)
{
    bool ok = block_copy(copy, &copy->value, p, p->value, p->total);
    for (int i = 0; ok && full && i < p->states; i++)
        ok = block_copy(copy, &copy->state[i], p, p->state[i], p->trained);
    if (ok && full && p->average)
        ok = block_copy(copy, &copy->average, p, p->average, p->total);
    return ok || within("snapshot of the checkpoint");
}

static bool meta_copy(const Meta *m, Arena *mem, Meta *copy)
{
    *copy = (Meta){.count = m ? m->count : 0};
    copy->pair = ARENA_NEW(mem, MetaPair, copy->count + 1);
    for (int i = 0; copy->pair && i < copy->count; i++) {
        copy->pair[i].key = arena_strdup(mem, m->pair[i].key);
        copy->pair[i].value = arena_strdup(mem, m->pair[i].value);
        if (!copy->pair[i].key || !copy->pair[i].value) return false;
    }
    return copy->pair;
}

bool snapshot_take(Snapshot *k, Session *s, bool full, const Meta *m)
{
    SessionData d;
    Meta meta;
    CHECK(!k->under_way);
    arena_release(&k->content);
    k->write.fill = NULL;

    if (!session_data(s, &d)) return false;
    const Params *p = d.params;
    if (!same_layout(&k->params, p) && !layout_copy(k, p)) return false;
    d.params = &k->params;
    StWrite w;
    if (!blocks_copy(&k->params, p, full) ||
        !meta_copy(m, &k->content, &meta) ||
        !saving_make(&d, full, &meta, NULL, 0, &k->content, &w))
        return false;
    k->write = w;
    return true;
}

// -- the thread ---------------------------------------------------------------

static void *work(void *context)
{
    Snapshot *k = context;
    k->ok = safetensors_save_as(k->path, k->count, &k->write);
    if (!k->ok) {
        k->kind = err_kind();
        snprintf(k->why, sizeof k->why, "%s", err_text());
    }
    atomic_store(&k->done, true);
    return NULL;
}

bool snapshot_write(Snapshot *k, const char *const *path, int paths)
{
    CHECK(!k->under_way && k->write.fill && paths > 0);
    arena_release(&k->paths);
    k->count = paths;
    k->path = ARENA_NEW(&k->paths, const char *, paths);
    for (int i = 0; k->path && i < paths; i++)
        if (!(k->path[i] = arena_strdup(&k->paths, path[i]))) return false;
    if (!k->path) return false;

    atomic_store(&k->done, false);
    k->under_way = true;
    k->threaded = !thread_start(&k->thread, work, k);
    if (!k->threaded) work(k);
    return true;
}

bool snapshot_done(const Snapshot *k)
{
    return !k->under_way || atomic_load(&k->done);
}

bool snapshot_wait(Snapshot *k)
{
    CHECK(k->under_way);
    if (k->threaded) pthread_join(k->thread, NULL);
    k->under_way = false;
    return k->ok || err_set(k->kind, k->why);
}

void snapshot_free(Snapshot *k)
{
    if (!k) return;
    if (k->under_way) (void)snapshot_wait(k);
    params_free(&k->params);
    arena_release(&k->names);
    arena_release(&k->content);
    arena_release(&k->paths);
    mem_free(k);
}
