/* split_leakage.c -- the same images on two sides of a split (pipeline.h). */
#include "data/dataset/split.h"
#include "data/preprocess/pipeline.h"
#include <stdlib.h>
#include <string.h>

/* A case by the hash of its voxels. */
typedef struct Hashed {
    uint64_t hash;
    int item;
} Hashed;

static int hashed_order(const void *a, const void *b)
{
    const Hashed *x = a, *y = b;
    if (x->hash != y->hash) return x->hash < y->hash ? -1 : 1;
    return x->item < y->item ? -1 : x->item > y->item;
}

/* Compares cases of a and b by the hash of the loaded voxels: finds a file that
 * was copied under another name, which a comparison of names would miss. */
static bool same_voxels(const Pipeline *p, const Pipeline *q)
{
    const Dataset *a = pipeline_dataset(p), *b = pipeline_dataset(q);
    Hashed *list = mem_alloc((size_t)b->count * sizeof *list);
    bool ok = list != NULL;

    for (int k = 0; ok && k < b->count; k++)
        list[k] = (Hashed){pipeline_facts(q, k)->hash, k};
    if (ok) qsort(list, (size_t)b->count, sizeof *list, hashed_order);

    for (int i = 0; ok && i < a->count; i++) {
        const Case *c = &a->cases[i];
        const uint64_t hash = pipeline_facts(p, i)->hash;
        int k = 0, end = b->count; // the first that is not less
        while (k < end) {
            int half = k + (end - k) / 2;
            if (list[half].hash < hash)
                k = half + 1;
            else
                end = half;
        }
        for (; ok && k < b->count && list[k].hash == hash; k++) {
            const Case *d = &b->cases[list[k].item];
            // the same key on both sides is checked by dataset_leaks
            if (strcmp(c->key, d->key) != 0 || !c->slabs)
                ok = fail_data("%s and %s hold the same voxels on two sides "
                               "of the split; fix: remove one",
                               c->key, d->key);
        }
    }

    mem_free(list);
    return ok;
}

bool pipeline_check_leakage(const Pipeline *const *sides, int count)
{
    // names first, which is quick, then voxels
    const Dataset *ds[PIPELINE_SIDES] = {NULL};
    CHECK(count <= PIPELINE_SIDES);
    for (int i = 0; i < count; i++)
        if (sides[i]) ds[i] = pipeline_dataset(sides[i]);
    if (!dataset_leaks(ds, count)) return false;
    for (int i = 0; i < count; i++)
        for (int k = i + 1; k < count; k++)
            if (sides[i] && sides[k] && !same_voxels(sides[i], sides[k]))
                return false;
    return true;
}
