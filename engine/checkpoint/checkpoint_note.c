/* checkpoint_note.c -- adds facts to a file after the weights were saved.
 *
 * The tensors are copied from the old file to the new one unchanged, even types
 * and names that this program would not have written, so a note loses
 * nothing. */
#include "engine/checkpoint/checkpoint.h"
#include <string.h>

static bool copy_tensor(void *ctx, int i, void *out)
{
    return safetensors_read(ctx, i, out);
}

/* Does the writer replace this pair, or given in *m? */
static bool replaced(const Meta *m, const char *key)
{
    return !strncmp(key, "crc32c.", strlen("crc32c.")) || meta_get(m, key);
}

bool checkpoint_note(const char *path, const Meta *m)
{
    Safetensors f = {0};
    Arena mem = {0};
    bool ok = false;

    TRY(safetensors_open(path, &f) && safetensors_verify(&f));
    MetaPair *pair = ARENA_NEW(&mem, MetaPair, f.meta.count + m->count);
    TRY(pair);
    int pairs = 0;
    for (int i = 0; i < f.meta.count; i++)
        if (!replaced(m, f.meta.pair[i].key)) pair[pairs++] = f.meta.pair[i];
    for (int i = 0; i < m->count; i++) pair[pairs++] = m->pair[i];
    const StWrite w = {.tensor = f.tensor,
                       .count = f.count,
                       .pair = pair,
                       .pairs = pairs,
                       .fill = copy_tensor,
                       .ctx = &f};
    ok = safetensors_save(path, &w);

done:
    safetensors_close(&f);
    arena_release(&mem);
    return ok;
}
