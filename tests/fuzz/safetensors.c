/* safetensors.c -- fuzz target: any bytes as a safetensors file.
 *
 * An accepted file must satisfy: sorted names, tensors inside the file,
 * readable values, and a copy written by segengine that reads back equal. The
 * copy is made for small files only, because it uses the disk. */
#include "engine/checkpoint/safetensors.h"
#include "engine/base/file.h"
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MUST(e) ((e) ? (void)0 : (puts(#e), puts(err_text()), abort()))

static void promises(const Safetensors *f, size_t size)
{
    for (int i = 0; i < f->count; i++) {
        const StTensor *t = f->tensor + i;
        MUST(f->data_at + t->at + t->bytes <= size);
        MUST(!i || strcmp(f->tensor[i - 1].name, t->name) < 0);
        MUST(safetensors_find(f, t->name) == i);
        size_t count = safetensors_count(f, i);
        double *x = mem_alloc(count * sizeof *x);
        MUST(x);
        MUST(safetensors_read_f64(f, i, x) || f->crcs);
        mem_free(x);
    }

    for (int i = 0; i < f->meta.count; i++)
        MUST(meta_get(&f->meta, f->meta.pair[i].key));
    MUST(safetensors_verify(f) || f->crcs);
}

static bool fill(void *ctx, int i, void *out)
{
    return safetensors_read(ctx, i, out);
}

static void copy(Safetensors *f)
{
    static char path[64];
    if (!*path)
        snprintf(path, sizeof path, "/tmp/fuzz-safetensors-%ld",
                 (long)getpid());
    StWrite w = {f->tensor, f->count, f->meta.pair, f->meta.count, fill, f};
    Safetensors g;

    // only damage that the checksums detect prevents a copy
    if (!safetensors_verify(f)) return;
    MUST(safetensors_save(path, &w));
    MUST(safetensors_open(path, &g));
    MUST(g.count == f->count && g.crcs);
    for (int i = 0; i < f->count; i++)
        MUST(!strcmp(f->tensor[i].name, g.tensor[i].name) &&
             f->tensor[i].bytes == g.tensor[i].bytes);
    safetensors_close(&g);
    unlink(path);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    Safetensors f;
    if (!safetensors_memory("input", data, size, &f)) {
        MUST(*err_text() && mem_live() == 0);
        return 0;
    }
    promises(&f, size);
    if (size % 8 == 0 && size < 2048) copy(&f);
    safetensors_close(&f);
    MUST(mem_live() == 0);
    return 0;
}
