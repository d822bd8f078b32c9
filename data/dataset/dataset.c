/* dataset.c -- cases in memory, loading them, and checks.
 *
 * Three parts: views and their store (ownership), the builder that collects
 * cases from any source and checks their keys, and case_load, which every
 * pipeline and every prediction uses: it loads a field, converts images to
 * finite F32 and labels to class numbers, and brings all onto one grid
 * (case_grid.h) or fails with the reason. Files are found by dataset_dicom.c
 * and dataset_nifti.c; loaded fields are processed by prepare.c. */
#include "data/dataset/case_grid.h"
#include "data/dataset/dataset_build.h"
#include "data/label.h"
#include "engine/base/utf8.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAMES_SHOWN = 10 };

/* ---- views and builders ------------------------------------------------- */

/* A view does not own the strings of its cases: they live in the store, which
 * is reference-counted and freed with the last view. */
bool dataset_view(DatasetStore *store, const Dataset *like, int count,
                  Dataset **out)
{
    size_t bytes;
    *out = NULL;
    if (!size_mul((size_t)count, sizeof(Case), &bytes)) return false;
    Dataset *ds = mem_alloc(sizeof *ds);
    Case *cases = ds ? mem_alloc(bytes) : NULL;
    if (!cases) {
        mem_free(ds);
        return false;
    }

    // copies fields and the count of skipped cases; store and cases are
    // replaced
    if (like) *ds = *like;
    ds->store = store;
    ds->cases = cases;
    ds->count = count;
    atomic_fetch_add(&store->views, 1);
    *out = ds;
    return true;
}

static void store_free(DatasetStore *store)
{
    for (int i = 0; i < store->parts; i++) dataset_free(store->part[i]);
    arena_release(&store->mem);
    mem_free(store);
}

/* Views that share a store may be freed in different threads, hence the atomic
 * count; each view owns its array of cases. */
void dataset_free(Dataset *ds)
{
    if (!ds) return;
    DatasetStore *store = ds->store;
    mem_free((void *)ds->cases);
    mem_free(ds);
    // other views still use the store
    if (atomic_fetch_sub(&store->views, 1) == 1) store_free(store);
}

bool dataset_copy(const Dataset *ds, Dataset **out)
{
    if (!dataset_view(ds->store, ds, ds->count, out)) return false;
    memcpy((void *)(*out)->cases, ds->cases,
           (size_t)ds->count * sizeof *ds->cases);
    return true;
}

const DicomLeftOut *dataset_left_out(const Dataset *ds, int *count)
{
    *count = ds->store->left_outs;
    return ds->store->left_out;
}

int dataset_field(const Dataset *ds, const char *name)
{
    for (int i = 0; i < ds->fields; i++)
        if (!strcmp(ds->field[i].name, name)) return i;
    return -1;
}

int dataset_label(const Dataset *ds)
{
    for (int i = 0; i < ds->fields; i++)
        if (ds->field[i].kind == FIELD_LABEL) return i;
    return -1;
}

int dataset_labels(const Dataset *ds, int32_t label[MAX_LABELS])
{
    const DatasetOptions *o = &ds->store->options;
    memcpy(label, o->labels, (size_t)o->label_count * sizeof *label);
    return o->label_count;
}

/* Checks that the label values differ and none is 0. */
static bool options_check(const DatasetOptions *o)
{
    if (o->nonzero && o->label_count)
        return fail_usage("labels: a list, or every value but 0, not both");
    if (o->label_count < 0 || o->label_count > MAX_LABELS)
        return fail_usage("labels: %d values, wanted at most %d",
                          o->label_count, MAX_LABELS);

    for (int i = 0; i < o->label_count; i++) {
        if (o->labels[i] == 0)
            return fail_usage("labels: 0 is the background and not listed");
        for (int k = 0; k < i; k++)
            if (o->labels[i] == o->labels[k])
                return fail_usage("labels: %d is listed twice", o->labels[i]);
    }
    return true;
}

/* Options are copied; an empty list of labels becomes {1}, so that later code
 * always has a list. */
bool dataset_begin(const DatasetOptions *options, DatasetBuilder **out)
{
    *out = NULL;
    if (options && !options_check(options)) return false;
    DatasetBuilder *b = mem_alloc(sizeof *b);
    DatasetStore *store = b ? mem_alloc(sizeof *store) : NULL;
    if (!store) {
        mem_free(b);
        return false;
    }
    if (options) store->options = *options;

    // a mask of 0 and 1 needs no list
    if (!store->options.label_count)
        store->options.labels[0] = 1, store->options.label_count = 1;
    b->store = store;
    *out = b;
    return true;
}

/* Also called at the end of dataset_finish, which has taken the store out of
 * the builder if it succeeded. */
void dataset_drop(DatasetBuilder *b)
{
    if (!b) return;
    if (b->store) store_free(b->store);
    mem_free(b->cases);
    mem_free(b);
}

void builder_field(DatasetBuilder *b, const char *name, FieldKind kind,
                   int rank)
{
    CHECK(b->count == 0 && b->fields < MAX_FIELDS);
    b->field[b->fields++] = (DatasetField){name, kind, rank};
}

Source *builder_sources(DatasetBuilder *b, int count)
{
    return ARENA_NEW(&b->store->mem, Source, count);
}

bool source_file(const Source *s, char *asked, Arena *mem, SourceFacts *out)
{
    const char **name = ARENA_NEW(mem, const char *, 1);
    if (!name || !asked) return false;
    name[0] = s->path;
    *out = (SourceFacts){.file = name, .files = 1, .asked = asked};
    return true;
}

bool source_nifti(const Source *s, const NiftiOptions *how, Arena *mem,
                  SourceFacts *out)
{
    const char **name = ARENA_NEW(mem, const char *, 2);
    char *asked = nifti_asked(how, mem);
    int files = name ? nifti_files(s->path, mem, name) : 0;
    *out = (SourceFacts){.file = name, .files = files, .asked = asked};
    return files && asked;
}

/* grows by doubling; strings and sources are already in the store */
bool builder_add(DatasetBuilder *b, const Case *c)
{
    if (b->count == b->room) {
        int room = b->room ? 2 * b->room : 64;
        Case *more = mem_realloc(b->cases, (size_t)room * sizeof *more);
        if (!more) return false;
        b->cases = more;
        b->room = room;
    }
    b->cases[b->count++] = *c;
    return true;
}

int case_order(const void *a, const void *b)
{
    return strcmp(((const Case *)a)->key, ((const Case *)b)->key);
}

void names_add(Names *n, const char *name)
{
    size_t used = strlen(n->text);
    if (n->count < NAMES_SHOWN)
        snprintf(n->text + used, sizeof n->text - used, "%s%.80s",
                 n->count ? ", " : "", name);
    else if (n->count == NAMES_SHOWN)
        snprintf(n->text + used, sizeof n->text - used, ", ...");
    // snprintf cuts at a byte: remove half a character
    utf8_mend(n->text + used);
    n->count++;
}

/* Keys name cases in messages, splits and caches, so they must be unique. */
bool dataset_finish(DatasetBuilder *b, Dataset **out)
{
    Names twice = {.count = 0};
    *out = NULL;
    if (!b->count) {
        dataset_drop(b);
        return fail_data("the data set has no cases");
    }
    qsort(b->cases, (size_t)b->count, sizeof *b->cases, case_order);

    for (int i = 1; i < b->count; i++) {
        // a key that occurs three times is named once
        bool again = i > 1 && !strcmp(b->cases[i].key, b->cases[i - 2].key);
        if (!strcmp(b->cases[i].key, b->cases[i - 1].key) && !again)
            names_add(&twice, b->cases[i].key);
    }

    bool ok =
        twice.count
            ? fail_data("%d name%s for more than one case: %s", twice.count,
                        twice.count == 1 ? " stands" : "s stand", twice.text)
            : dataset_view(b->store, NULL, b->count, out);

    if (ok) {
        Dataset *ds = *out;
        memcpy(ds->field, b->field, sizeof b->field);
        memcpy((void *)ds->cases, b->cases,
               (size_t)b->count * sizeof *b->cases);
        ds->fields = b->fields;
        ds->skipped = b->skipped;
        b->store = NULL; // owned by the dataset from here on
    }

    dataset_drop(b);
    return ok;
}

/* ---- from memory -------------------------------------------------------- */

/* a copy with its own voxels */
static bool volume_copy(const Volume *v, Volume *out)
{
    if (!volume_new(out, v->voxels.dim, v->voxels.type)) return false;
    memcpy(out->voxels.data, v->voxels.data, tensor_bytes(&v->voxels));
    memcpy(out->affine, v->affine, sizeof v->affine);
    out->unit = v->unit;
    return true;
}

/* The caller may change a loaded volume, so the stored one is copied. */
static bool load_memory(const Source *s, Volume *out, DicomNotes *notes)
{
    (void)notes;
    return volume_copy(s->what, out);
}

/* Makes a source in the store with its own copy of `v`. */
static bool memory_source(DatasetBuilder *b, const Volume *v,
                          struct CaseField *out)
{
    Arena *mem = &b->store->mem;
    Source *s = builder_sources(b, 1);
    Volume *copy = s ? ARENA_NEW(mem, Volume, 1) : NULL;
    void *data = copy ? arena_alloc(mem, tensor_bytes(&v->voxels)) : NULL;
    if (!data) return false;
    *copy = *v;
    copy->voxels.data = memcpy(data, v->voxels.data, tensor_bytes(&v->voxels));
    *s = (Source){.load = load_memory, .path = "memory", .what = copy};
    *out = (struct CaseField){s, 1};
    return true;
}

/* The first case decides the fields. */
bool dataset_add(DatasetBuilder *b, const char *key, const char *patient,
                 const Volume *image, const Volume *mask)
{
    // no slabs: all slices
    Case c = {.slabs = 0};
    if (!*key || !*patient)
        return fail_data("a case needs a name and a patient, got \"%s\" and "
                         "\"%s\"",
                         key, patient);
    if (!b->fields) {
        builder_field(b, "image", FIELD_IMAGE, 3);
        if (mask) builder_field(b, "mask", FIELD_LABEL, 3);
    }

    // if only some cases had masks, the others would train on arbitrary labels
    if ((b->fields > 1) != (mask != NULL))
        return fail_data("%s: %s a mask, unlike the cases before it", key,
                         mask ? "has" : "lacks");
    c.key = arena_strdup(&b->store->mem, key);
    c.patient = arena_strdup(&b->store->mem, patient);
    return c.key && c.patient && memory_source(b, image, &c.field[0]) &&
           (!mask || memory_source(b, mask, &c.field[1])) && builder_add(b, &c);
}

const char *const *dataset_ignored_files(const Dataset *ds, int *count)
{
    *count = ds->store->ignored_count;
    return ds->store->ignored;
}

/* ---- loading ------------------------------------------------------------ */

/* Converts v to F32 with finite values. Integers are always finite; a float
 * volume is searched, so that a NaN is reported here and not as a diverged
 * loss. */
static bool settle_values(Volume *v)
{
    if (v->voxels.type != F32) {
        Volume f32;
        if (!volume_to_f32(v, &f32)) return false;
        volume_free(v);
        *v = f32;
        return true;
    }

    const float *x = v->voxels.data;
    int64_t n = numel(v->voxels.dim), bad = 0, first = -1;
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(x[i])) {
            if (!bad++) first = i;
        }
    if (!bad) return true;

    // position of the first one, in file order
    Dims s = v->voxels.dim;
    int64_t p = first / s.c;
    return fail_data("%lld of %lld voxels are not finite numbers, the first "
                     "(%g) in column %lld, row %lld, slice %lld; fix: write a "
                     "number there, 0 where it is outside the field of view "
                     "(as nibabel and numpy.nan_to_num do)",
                     (long long)bad, (long long)n, (double)x[first],
                     (long long)(p % s.w), (long long)(p / s.w % s.h),
                     (long long)(p / s.w / s.h));
}

/* out = channels of a, then of b; both F32 on one grid; b is freed. Channels
 * are the fastest axis, so the two volumes are interleaved voxel by voxel. If
 * memory runs out, `a` is unchanged. */
static bool join_channels(Volume *a, Volume *b)
{
    Volume out;
    Dims dim = a->voxels.dim;
    int ca = a->voxels.dim.c, cb = b->voxels.dim.c;

    dim.c = ca + cb;
    bool ok = volume_new(&out, dim, F32);

    if (ok) {
        memcpy(out.affine, a->affine, sizeof out.affine);
        out.unit = a->unit == b->unit ? a->unit : UNIT_NONE;
        const float *xa = a->voxels.data, *xb = b->voxels.data;
        float *y = out.voxels.data;
        for (int64_t p = 0; p < positions(dim); p++) {
            for (int k = 0; k < ca; k++) *y++ = *xa++;
            for (int k = 0; k < cb; k++) *y++ = *xb++;
        }
        volume_free(a);
        *a = out;
    }

    volume_free(b);
    return ok;
}

/* Adds a question to the reason why a mask was refused, if its image has as few
 * values as a mask: the two may be swapped. */
static void suspect_swap(const Volume *image)
{
    int count = values_count(image->voxels.data, numel(image->voxels.dim));
    if (err_kind() == ERR_DATA && count > 1 && count <= FEW_VALUES)
        fail_data("%s; the image has %d values: are image and mask swapped?",
                  err_text(), count);
}

/* Loads one source, checked and on the grid of `like`. Labels are checked
 * before they are resampled, so that the count in a message is that of the
 * file. */
static bool load_source(const DatasetOptions *o, const Source *s,
                        const DatasetField *field, const Volume *like,
                        Volume *out, DicomNotes *notes)
{
    FieldKind kind = field->kind;
    // loaders name the path themselves
    bool image_known = kind == FIELD_LABEL && like && like->voxels.type == F32;

    if (!s->load(s, out, notes)) {
        memset(out, 0, sizeof *out);
        if (image_known) suspect_swap(like);
        return false;
    }

    // only DICOM masks have the series of their image
    bool dicom = s->image != NULL;
    bool ok = kind == FIELD_LABEL ? labels_settle(o, s->labels_ready, dicom,
                                                  s->path, out, notes)
                                  : settle_values(out);
    if (!ok && image_known) suspect_swap(like);
    if (ok && like) ok = case_grid(o, field, s->place, like, out);
    if (!ok) {
        volume_free(out);
        return within("%s", s->path);
    }
    return true;
}

bool case_load(const Dataset *ds, int number, int field, const Volume *like,
               Volume *out, DicomNotes *notes)
{
    CHECK(number >= 0 && number < ds->count);
    CHECK(field >= 0 && field < ds->fields);
    const Case *c = &ds->cases[number];
    const struct CaseField *f = &c->field[field];
    FieldKind kind = ds->field[field].kind;
    CHECK(kind != FIELD_LENGTH);

    // the options of the whole set apply to all cases
    const DatasetOptions *o = &ds->store->options;
    memset(out, 0, sizeof *out);

    // numbers have no grid
    if (!field_on_grid(kind)) like = NULL;

    for (int i = 0; i < f->channels; i++) {
        Volume part;
        // without a given grid, the first channel sets it
        const Volume *grid = like ? like : i ? out : NULL;
        bool ok = load_source(o, &f->source[i], &ds->field[field], grid, &part,
                              notes);
        if (ok && i == 0)
            *out = part;
        else if (ok)
            ok = join_channels(out, &part);
        if (ok && out->voxels.dim.c > MAX_FEATURES)
            ok = fail_data("%d channels, wanted at most %d", out->voxels.dim.c,
                           MAX_FEATURES);
        if (!ok) {
            volume_free(out);
            return within("%s: %s", c->key, ds->field[field].name);
        }
    }
    return true;
}

/* ---- text --------------------------------------------------------------- */

/* qsort comparison of two strings */
static int text_order(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

int dataset_patients(const Dataset *ds)
{
    const char **name = mem_alloc((size_t)ds->count * sizeof *name);
    if (!name) return 0;
    for (int i = 0; i < ds->count; i++) name[i] = ds->cases[i].patient;
    qsort(name, (size_t)ds->count, sizeof *name, text_order);
    int n = 0;
    for (int i = 0; i < ds->count; i++)
        n += i == 0 || strcmp(name[i], name[i - 1]) != 0;
    mem_free(name);
    return n;
}

/* labels as the user wrote them: `ready` false */
char *dataset_report(const Dataset *ds, Arena *mem)
{
    char fields[512] = "", labels[256];
    labels_text(&ds->store->options, false, labels, sizeof labels);

    for (int i = 0; i < ds->fields; i++) {
        size_t at = strlen(fields);
        if (ds->field[i].kind == FIELD_LABEL)
            snprintf(fields + at, sizeof fields - at, "%s%s (labels %s)",
                     i ? ", " : "", ds->field[i].name, labels);
        else if (!field_on_grid(ds->field[i].kind))
            snprintf(fields + at, sizeof fields - at, "%s%s", i ? ", " : "",
                     ds->field[i].name);
        else
            snprintf(fields + at, sizeof fields - at, "%s%s (%d file%s a case)",
                     i ? ", " : "", ds->field[i].name,
                     ds->cases[0].field[i].channels,
                     ds->cases[0].field[i].channels > 1 ? "s" : "");
    }

    char left[64] = "";
    if (ds->skipped)
        snprintf(left, sizeof left, "; %d left out without a partner",
                 ds->skipped);
    int patients = dataset_patients(ds);
    if (!patients && ds->count) return NULL;
    return arena_printf(mem, "%d case%s of %d patient%s; %s%s", ds->count,
                        ds->count == 1 ? "" : "s", patients,
                        patients == 1 ? "" : "s", fields, left);
}
