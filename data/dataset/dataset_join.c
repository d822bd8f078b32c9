/* dataset_join.c -- data sets made of others: a selection of cases, the cases
 * of several data sets, or the same cases under other names.
 *
 * Cases are copied, sources are not: the new store holds a view of each data
 * set that it was made of, and frees the views with its own last view. */
#include "data/dataset/dataset_build.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool dataset_pick(const Dataset *ds, const int *item, int count, Dataset **out)
{
    *out = NULL;
    if (!count) return fail_data("the data set has no cases");
    if (!dataset_view(ds->store, ds, count, out)) return false;
    Case *cases = (Case *)(*out)->cases;
    for (int i = 0; i < count; i++) {
        CHECK(item[i] >= 0 && item[i] < ds->count);
        CHECK(i == 0 || item[i] > item[i - 1]);
        cases[i] = ds->cases[item[i]];
    }
    return true;
}

/* Sorted and checked by the builder, like cases of files. */
static bool join(DatasetBuilder *b, const Dataset *const *ds, int count,
                 Dataset **out)
{
    DatasetStore *store = b->store;
    Dataset **part = ARENA_NEW(&store->mem, Dataset *, count);
    if (!part) {
        dataset_drop(b);
        return false;
    }
    bool ok = true;
    for (int i = 0; ok && i < count; i++) {
        ok = dataset_copy(ds[i], &part[i]);
        b->skipped += ds[i]->skipped;
    }
    store->part = part, store->parts = count;
    if (ok) return dataset_finish(b, out);
    dataset_drop(b);
    return false;
}

bool builder_like(const Dataset *ds, DatasetBuilder **out)
{
    if (!dataset_begin(&ds->store->options, out)) return false;
    DatasetBuilder *b = *out;
    for (int i = 0; i < ds->fields; i++) {
        char *name = arena_strdup(&b->store->mem, ds->field[i].name);
        if (!name) {
            dataset_drop(b);
            return false;
        }
        builder_field(b, name, ds->field[i].kind, ds->field[i].rank);
    }
    return true;
}

/* "{1, 2}", as in a recipe; a list longer than the room is cut. */
static void list_text(const DatasetOptions *o, char *text, size_t room)
{
    int at = snprintf(text, room, o->nonzero ? "\"nonzero\"" : "{");
    for (int i = 0; !o->nonzero && i < o->label_count; i++)
        if ((size_t)at + 16 < room)
            at += snprintf(text + at, room - (size_t)at, "%s%d", i ? ", " : "",
                           o->labels[i]);
    if (!o->nonzero) snprintf(text + at, room - (size_t)at, "}");
}

/* Options apply to a whole data set, so the data sets joined must have the
 * same. */
static bool options_alike(const DatasetOptions *a, const DatasetOptions *b)
{
    char left[256], right[256];
    const struct {
        const char *name;
        bool a, b;
    } flag[] = {{"resample", a->resample, b->resample},
                {"resample_mask", a->resample_mask, b->resample_mask},
                {"skip_unmatched", a->skip_unmatched, b->skip_unmatched}};

    if (a->nonzero != b->nonzero || a->label_count != b->label_count ||
        memcmp(a->labels, b->labels,
               (size_t)a->label_count * sizeof *a->labels)) {
        list_text(a, left, sizeof left);
        list_text(b, right, sizeof right);
        return fail_usage("concat: labels are %s in one data set and %s in "
                          "another; the class numbers would differ",
                          left, right);
    }

    for (size_t i = 0; i < sizeof flag / sizeof *flag; i++)
        if (flag[i].a != flag[i].b)
            return fail_usage("concat: %s is %s in one data set and %s in "
                              "another",
                              flag[i].name, flag[i].a ? "true" : "false",
                              flag[i].b ? "true" : "false");
    return true;
}

/* Can cases of a and b be in one data set? */
static bool alike(const Dataset *a, const Dataset *b)
{
    if (a->fields != b->fields)
        return fail_usage("one data set has %d fields, another %d", a->fields,
                          b->fields);

    for (int i = 0; i < a->fields; i++) {
        const DatasetField *f = &a->field[i], *g = &b->field[i];
        if (strcmp(f->name, g->name) != 0)
            return fail_usage("field %d is \"%s\" in one data set and \"%s\" "
                              "in another",
                              i + 1, f->name, g->name);
        if (f->kind != g->kind || f->rank != g->rank)
            return fail_usage("\"%s\" is of another kind or rank in another "
                              "data set",
                              f->name);
    }
    return options_alike(&a->store->options, &b->store->options);
}

bool dataset_concat(const Dataset *const *ds, int count, Dataset **out)
{
    DatasetBuilder *b;
    *out = NULL;
    CHECK(count > 0);
    for (int i = 1; i < count; i++)
        if (!alike(ds[0], ds[i])) return false;
    if (!builder_like(ds[0], &b)) return false;

    for (int i = 0; i < count; i++)
        for (int k = 0; k < ds[i]->count; k++)
            if (!builder_add(b, &ds[i]->cases[k])) {
                dataset_drop(b);
                return false;
            }
    return join(b, ds, count, out);
}

bool dataset_rename(const Dataset *ds, const char *const *key,
                    const char *const *patient, Dataset **out)
{
    DatasetBuilder *b;
    *out = NULL;
    if (!builder_like(ds, &b)) return false;
    bool ok = true;

    for (int i = 0; ok && i < ds->count; i++) {
        Case c = ds->cases[i];
        ok = (*key[i] && *patient[i]) ||
             fail_data("%s: a case needs a name and a patient, got \"%s\" and "
                       "\"%s\"",
                       c.key, key[i], patient[i]);
        c.key = ok ? arena_strdup(&b->store->mem, key[i]) : NULL;
        c.patient = c.key ? arena_strdup(&b->store->mem, patient[i]) : NULL;
        ok = c.patient && builder_add(b, &c);
    }

    if (ok) return join(b, &ds, 1, out);
    dataset_drop(b);
    return false;
}
