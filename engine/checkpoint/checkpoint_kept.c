/* checkpoint_kept.c -- a checkpoint in memory that waits for room on the disk.
 *
 * The best weights of a run exist for one epoch only. If the disk is full then,
 * they are copied here and written when there is room. */
#include "engine/checkpoint/checkpoint_inside.h"

struct KeptCheckpoint {
    Arena mem;     // of all below
    StWrite write; // with its own copies of strings
    void **value;  // of each tensor, in the format of the file
};

static bool kept_fill(void *ctx, int i, void *out)
{
    const KeptCheckpoint *k = ctx;
    const StTensor *t = k->write.tensor + i;
    size_t bytes = t->type == ST_F64 ? sizeof(double) : sizeof(float);
    for (int a = 0; a < t->axes; a++) bytes *= (size_t)t->shape[a];
    memcpy(out, k->value[i], bytes);
    return true;
}

/* Copies tensor i of the session from `w`, and its name. */
static bool keep_tensor(KeptCheckpoint *k, const StWrite *w, int i, StTensor *t)
{
    int64_t count = 1;
    *t = w->tensor[i];
    for (int a = 0; a < t->axes; a++) count *= t->shape[a];
    t->name = arena_strdup(&k->mem, w->tensor[i].name);
    k->value[i] = t->type == ST_F64 ? (void *)ARENA_NEW(&k->mem, double, count)
                                    : (void *)ARENA_NEW(&k->mem, float, count);
    return t->name && k->value[i] && w->fill(w->ctx, i, k->value[i]);
}

static bool keep_pair(Arena *mem, const MetaPair *from, MetaPair *to)
{
    to->key = arena_strdup(mem, from->key);
    to->value = arena_strdup(mem, from->value);
    return to->key && to->value;
}

KeptCheckpoint *checkpoint_keep(Session *s, bool full, const Meta *m)
{
    bool ok = false;
    Arena on_the_way = {0};
    StWrite w;
    KeptCheckpoint *k = mem_alloc(sizeof *k);

    if (!k) return NULL;
    TRY(saving_make(s, full, m, NULL, 0, &on_the_way, &w));
    StTensor *tensor = ARENA_NEW(&k->mem, StTensor, w.count + 1);
    MetaPair *pair = ARENA_NEW(&k->mem, MetaPair, w.pairs + 1);
    k->value = ARENA_NEW(&k->mem, void *, w.count + 1);
    TRY(tensor && pair && k->value);
    for (int i = 0; i < w.count; i++) TRY(keep_tensor(k, &w, i, tensor + i));
    for (int i = 0; i < w.pairs; i++)
        TRY(keep_pair(&k->mem, w.pair + i, pair + i));
    k->write = (StWrite){.tensor = tensor,
                         .count = w.count,
                         .pair = pair,
                         .pairs = w.pairs,
                         .fill = kept_fill,
                         .ctx = k};
    ok = true;

done:
    arena_release(&on_the_way);
    if (ok) return k;
    checkpoint_drop(k);
    return NULL;
}

bool checkpoint_save_kept(const char *path, const KeptCheckpoint *k)
{
    return safetensors_save(path, &k->write);
}

void checkpoint_drop(KeptCheckpoint *k)
{
    if (!k) return;
    arena_release(&k->mem);
    mem_free(k);
}
