/* dataset_distance.c -- data sets with a field of signed distances from the
 * boundaries of the classes, for losses of shapes. */
#include "data/dataset/dataset_build.h"
#include "data/distance.h"
#include <string.h>

/* The class numbers of one case from which distances are computed. */
typedef struct ClassNumbers {
    const Dataset *ds;
    int number, field;
    int grid; /* the field that gives the class numbers their grid; -1: the
               * file of the class numbers does */
} ClassNumbers;

/* A channel for each class. */
static bool distances(const Volume *classes, int count, Volume *out)
{
    Dims dim = classes->voxels.dim;
    const int64_t all = positions(dim);
    const uint8_t *at = classes->voxels.data;
    double mm[3];

    dim.c = count;
    uint8_t *set = mem_alloc((size_t)all);
    bool ok = set && volume_new(out, dim, F32);
    if (ok) memcpy(out->affine, classes->affine, sizeof out->affine);
    volume_spacing_mm(classes, mm);
    for (int k = 0; ok && k < count; k++) {
        for (int64_t i = 0; i < all; i++) set[i] = at[i] == k + 1;
        ok = distance_signed(set, classes->voxels.dim, mm,
                             (float *)out->voxels.data + k, count);
    }
    mem_free(set);
    if (!ok) volume_free(out);
    return ok;
}

/* Warnings about the class numbers are given when their own field is loaded. */
static bool load_distance(const Source *s, Volume *out, DicomNotes *notes)
{
    const ClassNumbers *of = s->what;
    Volume grid = {.unit = UNIT_NONE}, classes = {.unit = UNIT_NONE};
    (void)notes;

    memset(out, 0, sizeof *out);
    bool ok = of->grid < 0 ||
              case_load(of->ds, of->number, of->grid, NULL, &grid, NULL);
    ok = ok && case_load(of->ds, of->number, of->field,
                         of->grid < 0 ? NULL : &grid, &classes, NULL);
    volume_free(&grid);
    ok = ok && distances(&classes, of->ds->store->options.label_count, out);
    volume_free(&classes);
    return ok;
}

/* The inputs of the class numbers; those of the grid belong to the case, too.
 */
static bool distance_depends(const Source *s, Arena *mem, SourceFacts *out)
{
    const ClassNumbers *of = s->what;
    const Source *own = of->ds->cases[of->number].field[of->field].source;
    if (!own->depends(own, mem, out)) return false;
    out->asked =
        arena_printf(mem, "signed distance; %s", out->asked ? out->asked : "");
    return out->asked != NULL;
}

/* The field of distances of a case. */
static bool add_source(DatasetBuilder *b, const Dataset *ds, int number,
                       int field, struct CaseField *out)
{
    const Source *own = ds->cases[number].field[field].source;
    Source *s = builder_sources(b, 1);
    ClassNumbers *of = s ? ARENA_NEW(&b->store->mem, ClassNumbers, 1) : NULL;
    if (!of) return false;

    *of = (ClassNumbers){ds, number, field, -1};
    // another field decides the grid of the class numbers
    if (own->place == PLACE_FIRST || ds->store->options.resample_mask)
        for (int i = ds->fields - 1; i >= 0; i--)
            if (i != field && field_on_grid(ds->field[i].kind)) of->grid = i;
    *s = (Source){.load = load_distance,
                  .path = own->path,
                  .what = of,
                  .place = of->grid < 0 ? own->place : PLACE_OWN,
                  .depends = own->depends ? distance_depends : NULL};
    *out = (struct CaseField){s, 1};
    return true;
}

static bool check(const Dataset *ds, const char *of, const char *name)
{
    const int field = dataset_field(ds, of);
    if (field < 0 || ds->field[field].kind != FIELD_LABEL)
        return fail_usage("signed_distance: \"%s\" %s", of,
                          field < 0 ? "is no field of the data set"
                                    : "holds no class numbers");
    if (!*name || dataset_field(ds, name) >= 0)
        return fail_usage("signed_distance: the name \"%s\" %s", name,
                          *name ? "is that of a field already; fix: another "
                                  "name"
                                : "is empty");
    if (ds->fields == MAX_FIELDS)
        return fail_usage("signed_distance: the data set has %d fields, the "
                          "most that it can have",
                          MAX_FIELDS);
    return true;
}

bool dataset_distance(const Dataset *ds, const char *of, const char *name,
                      Dataset **out)
{
    DatasetBuilder *b;
    Dataset *base;
    *out = NULL;
    if (!check(ds, of, name) || !builder_like(ds, &b)) return false;

    // the sources refer to a view that the new store holds
    const int field = dataset_field(ds, of), fields = ds->fields;
    char *copy = arena_strdup(&b->store->mem, name);
    Dataset **part = copy ? ARENA_NEW(&b->store->mem, Dataset *, 1) : NULL;
    if (!part || !dataset_copy(ds, &base)) {
        dataset_drop(b);
        return false;
    }
    part[0] = base, b->store->part = part, b->store->parts = 1;
    b->skipped = ds->skipped;
    builder_field(b, copy, FIELD_VALUE, ds->field[field].rank);

    bool ok = true;
    for (int i = 0; ok && i < ds->count; i++) {
        Case c = ds->cases[i];
        ok = add_source(b, base, i, field, &c.field[fields]) &&
             builder_add(b, &c);
    }
    if (ok) return dataset_finish(b, out);
    dataset_drop(b);
    return false;
}
