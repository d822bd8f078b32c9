/* dataset_list.c -- see dataset_list.h. Each field's ReaderHow lives in the
 * store, and the sources of all cases point to it. */
#include "data/dataset/dataset_list.h"
#include "data/dataset/dataset_build.h"
#include "data/resample/crop.h"
#include <math.h>
#include <string.h>

/* Shared by the sources of one field. */
typedef struct FieldHow {
    ReaderHow how; // first member: Source.how of files points to it
    ReaderOptions options;
    int numbers;
} FieldHow;

/* Source.what points to the numbers of a case. */
static bool load_numbers(const Source *s, Volume *out, DicomNotes *notes)
{
    const FieldHow *f = s->how;
    (void)notes;
    if (!volume_new(out, (Dims){1, 1, 1, 1, f->numbers}, F32)) return false;
    memcpy(out->voxels.data, s->what, (size_t)f->numbers * sizeof(float));
    return true;
}

/* Loads a picture and crops it to the box at Source.what. */
static bool load_boxed(const Source *s, Volume *out, DicomNotes *notes)
{
    const FieldHow *f = s->how;
    Volume all;
    if (!f->how.reader->load(s, &all, notes)) return false;
    bool ok = volume_cut(&all, s->what, false, out) || within("%s", s->path);
    volume_free(&all);
    return ok;
}

static bool boxed_depends(const Source *s, Arena *mem, SourceFacts *out)
{
    const FieldHow *f = s->how;
    if (!f->how.reader->depends(s, mem, out)) return false;
    out->data = s->what;
    out->bytes = sizeof(Box);
    return true;
}

static bool numbers_depend(const Source *s, Arena *mem, SourceFacts *out)
{
    const FieldHow *f = s->how;
    (void)mem;
    out->data = s->what;
    out->bytes = (size_t)f->numbers * sizeof(float);
    return true;
}

/* Checks a field before any file is opened. */
static bool check_field(const ListField *f, const Reader *reader)
{
    if (f->kind == FIELD_LENGTH) return true;
    if (f->kind == FIELD_NUMBER)
        return (f->numbers >= 1 && f->numbers <= MAX_FEATURES) ||
               fail_usage("%s: %d numbers, wanted 1 to %d", f->name, f->numbers,
                          MAX_FEATURES);
    if (f->rank < 1 || f->rank > 3)
        return fail_usage("%s: rank %d, wanted 1 to 3", f->name, f->rank);
    if (reader->rank >= 0 && reader->rank != f->rank)
        return fail_usage("%s: rank %d, %s gives %d", f->name, f->rank,
                          reader->name, reader->rank);
    if (f->options.same_grid && !reader->placeless)
        return fail_usage("%s: same_grid is for files without a position; "
                          "files of %s have one",
                          f->name, reader->name);
    return reader_axes(f->options.axes, f->rank) || within("%s", f->name);
}

/* Sets the options of a DICOM field: the labels of the whole data set, the
 * names of segments (copied to the store), and for a mask the options of its
 * image. */
static bool settle_dicom(DatasetBuilder *b, FieldHow *how)
{
    DatasetOptions *all = &b->store->options;
    DicomRead *r = &how->options.dicom;
    const FieldHow *image = b->fields ? b->list[0] : how;
    const int segments = r->mask.segment_count;
    const char **name = ARENA_NEW(&b->store->mem, const char *, segments);

    if (!name) return false;
    for (int i = 0; i < segments; i++)
        if (!(name[i] = arena_strdup(&b->store->mem, r->mask.segments[i])))
            return false;
    r->mask.segments = segments ? name : NULL;
    r->mask.image = image->options.dicom.files;
    r->mask.image.assume_implicit_le |= r->files.assume_implicit_le;
    r->mask.resample_mask = all->resample_mask;
    if (b->has_labels)
        r->mask.labels = all->labels, r->mask.label_count = all->label_count;

    // segments selected by name become 1, 2, ...
    for (int i = b->has_labels ? segments : 0; i < segments; i++) {
        all->labels[i] = i + 1;
        if (i >= all->label_count) all->label_count = i + 1;
    }
    return true;
}

static bool add_field(DatasetBuilder *b, const ListField *f)
{
    Arena *mem = &b->store->mem;
    FieldHow *how = ARENA_NEW(mem, FieldHow, 1);
    char *name = how ? arena_strdup(mem, f->name) : NULL;

    if (!name) return false;
    *how = (FieldHow){.options = f->options, .numbers = f->numbers};
    how->how = (ReaderHow){NULL, &how->options, f->kind, f->rank};
    if (field_on_grid(f->kind) && !(how->how.reader = reader_find(f->reader)))
        return within("%s", f->name);
    if (!check_field(f, how->how.reader)) return false;
    if (how->how.reader && how->how.reader->find && !settle_dicom(b, how))
        return false;
    b->list[b->fields] = how;
    builder_field(b, name, f->kind, field_on_grid(f->kind) ? f->rank : 0);
    return true;
}

bool dataset_list_begin(const ListField *field, int fields,
                        const DatasetOptions *options, DatasetBuilder **out)
{
    *out = NULL;
    if (fields < 1 || fields > MAX_FIELDS)
        return fail_usage("%d fields, wanted 1 to %d", fields, MAX_FIELDS);
    if (!field_on_grid(field[0].kind))
        return fail_usage(
            "%s: the first field must be read from files, not numbers",
            field[0].name);
    for (int i = 0; i < fields; i++)
        for (int k = 0; k < i; k++)
            if (!strcmp(field[i].name, field[k].name))
                return fail_usage("two fields are called \"%s\"",
                                  field[i].name);

    if (!dataset_begin(options, out)) return false;
    (*out)->has_labels = options && options->label_count > 0;

    for (int i = 0; i < fields; i++)
        if (!add_field(*out, &field[i])) {
            dataset_drop(*out);
            *out = NULL;
            return false;
        }
    return true;
}

/* Makes one source of the numbers of a case. */
static bool number_source(DatasetBuilder *b, const FieldHow *f,
                          const double *number, struct CaseField *out)
{
    Source *s = builder_sources(b, 1);
    float *copy = s ? ARENA_NEW(&b->store->mem, float, f->numbers) : NULL;
    if (!copy) return false;

    for (int i = 0; i < f->numbers; i++) {
        // as a float it would be infinite
        if (!isfinite((float)number[i]))
            return fail_data("number %d is %g", i + 1, number[i]);
        copy[i] = (float)number[i];
    }

    *s = (Source){.load = load_numbers,
                  .depends = numbers_depend,
                  .path = "its numbers",
                  .what = copy,
                  .how = f};
    *out = (struct CaseField){s, 1};
    return true;
}

/* Keeps a box in pixels in the store; NULL with a reason. */
static Box *keep_box(DatasetBuilder *b, const double box[4])
{
    enum { MOST = 65535 };
    Box *out = ARENA_NEW(&b->store->mem, Box, 1);
    if (!out) return NULL;
    *out = (Box){{0, 0, 0}, {1, 1, 1}};

    for (int i = 0; i < 4; i++) {
        const double v = round(box[i]);
        // written so that NaN is refused
        if (!(v >= (i < 2 ? -MOST : 1) && v <= MOST)) {
            fail_data("box {%g, %g, %g, %g}: wanted x, y, width and height in "
                      "pixels",
                      box[0], box[1], box[2], box[3]);
            return NULL;
        }
        (i < 2 ? out->from : out->n)[i % 2] = (int32_t)v;
    }
    return out;
}

/* `first` is the first source of the case; NULL: it is this one. */
static bool file_sources(DatasetBuilder *b, const FieldHow *f,
                         const Source *first, const char *const *path,
                         int paths, const double *box, struct CaseField *out)
{
    const Reader *reader = f->how.reader;
    const Box *part = NULL;
    if (box && f->how.rank != 2)
        return fail_usage(
            "a box needs a picture of rank 2, the field has rank %d",
            f->how.rank);
    if (box && !(part = keep_box(b, box))) return false;
    Source *s = paths ? builder_sources(b, paths) : NULL;
    if (!paths) return fail_data("no file");

    for (int i = 0; s && i < paths; i++) {
        if (reader->find) {
            if (!reader->find(path[i], f->how.kind, first, &f->options.dicom,
                              &b->store->mem, &s[i]))
                return false;
            continue;
        }
        char *copy = arena_strdup(&b->store->mem, path[i]);
        if (!copy) return false;
        s[i] = (Source){.load = box ? load_boxed : reader->load,
                        .depends = box ? boxed_depends : reader->depends,
                        .what = part,
                        .path = copy,
                        .how = &f->how,
                        .place = !reader->placeless     ? PLACE_OWN
                                 : f->options.same_grid ? PLACE_FIRST
                                                        : PLACE_NONE};
    }

    *out = (struct CaseField){s, paths};
    return s != NULL;
}

bool dataset_list_add(DatasetBuilder *b, const ListCase *c)
{
    Case add = {.slabs = 0};
    if (!*c->key || !*c->patient)
        return fail_data("a case needs a name and a patient, got \"%s\" and "
                         "\"%s\"",
                         c->key, c->patient);
    add.key = arena_strdup(&b->store->mem, c->key);
    add.patient = arena_strdup(&b->store->mem, c->patient);
    if (!add.key || !add.patient) return false;

    for (int i = 0; i < b->fields; i++) {
        const FieldHow *f = b->list[i];
        bool ok = f->how.kind == FIELD_LENGTH ||
                  (f->how.kind == FIELD_NUMBER
                       ? number_source(b, f, c->field[i].number, &add.field[i])
                       : file_sources(b, f, add.field[0].source,
                                      c->field[i].path, c->field[i].paths,
                                      c->field[i].box, &add.field[i]));
        if (!ok) return within("%s: %s", c->key, b->field[i].name);
    }
    return builder_add(b, &add);
}
