/* survey.c -- loads and measures every case, and records faults.
 *
 * A case is handled by one thread and writes to its own SurveyCase, so the
 * result does not depend on the number of threads. Volumes are freed as soon as
 * they are measured; only the SurveyCase, some text and one small picture
 * remain. */
#include "data/preprocess/survey.h"
#include "data/parallel_for.h"
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct Survey {
    Dataset *ds;
    Steps steps;
    const atomic_bool *stop;
    SurveyCase *cases;
    Arena mem;            /* cases, texts, numbers, pictures */
    pthread_mutex_t lock; /* guards mem                      */
};

/* Allocates memory of the survey, in any thread; NULL with a reason. */
static void *keep(Survey *s, size_t bytes)
{
    pthread_mutex_lock(&s->lock);
    void *p = arena_alloc(&s->mem, bytes ? bytes : 1);
    pthread_mutex_unlock(&s->lock);
    return p;
}

/* Records the current reason as a fault of a case. False if it is not one:
 * running out of memory is no fault of a file. */
static bool take_fault(Survey *s, const char **fault)
{
    if (err_kind() != ERR_DATA && err_kind() != ERR_USAGE) return false;
    const char *why = err_text();
    size_t bytes = strlen(why) + 1;
    char copy[ERR_MAX];
    memcpy(copy, why, bytes);
    char *text = keep(s, bytes);
    if (text) *fault = memcpy(text, copy, bytes);
    return text != NULL;
}

/* ---- measuring ---------------------------------------------------------- */

/* Two passes over the voxels, so that the sd of numbers far from 0 is
 * accurate. */
static void count_values(const Volume *v, SurveyField *out)
{
    const int64_t n = numel(v->voxels.dim);
    double sum = 0, squares = 0;
    out->lo = out->hi = volume_value(v, 0);
    for (int64_t i = 0; i < n; i++) {
        double x = volume_value(v, i);
        out->lo = fmin(out->lo, x), out->hi = fmax(out->hi, x);
        sum += x;
    }

    out->mean = sum / (double)n;
    for (int64_t i = 0; i < n; i++) {
        double off = volume_value(v, i) - out->mean;
        squares += off * off;
    }
    out->sd = sqrt(squares / (double)n);
}

static bool keep_numbers(Survey *s, const Volume *v, SurveyField *out)
{
    const int64_t n = numel(v->voxels.dim);
    out->numbers = (int)(n < SURVEY_NUMBERS ? n : SURVEY_NUMBERS);
    out->number = keep(s, (size_t)out->numbers * sizeof *out->number);
    for (int i = 0; out->number && i < out->numbers; i++)
        out->number[i] = volume_value(v, i);
    return out->number != NULL;
}

/* A slice of the first field. */
typedef struct Slice {
    uint64_t hash;
    int32_t d;
    bool flat;
} Slice;

static Slice look_at_slice(const Volume *v, int32_t d)
{
    const Dims n = v->voxels.dim;
    const int64_t area = (int64_t)n.h * n.w * n.c;
    const float *x = (const float *)v->voxels.data + d * area;
    Slice s = {.hash = 0xcbf29ce484222325u, .d = d, .flat = true};

    for (int64_t i = 0; i < area; i++) {
        uint32_t bits;
        float y = x[i] + 0.0f; // -0 is 0
        memcpy(&bits, &y, sizeof bits);
        s.hash = (s.hash ^ bits) * 0x9E3779B97F4A7C15u;
        // so that swapped voxels change the hash
        s.hash ^= s.hash >> 29;
        s.flat = s.flat && x[i] == x[0];
    }
    return s;
}

/* Sorts equal slices next to each other, in their order. */
static int slice_order(const void *a, const void *b)
{
    const Slice *s = a, *t = b;
    if (s->hash != t->hash) return s->hash < t->hash ? -1 : 1;
    return s->d < t->d ? -1 : s->d > t->d;
}

/* Counts pairs of equal slices; constant slices may be equal and do not
 * count. */
static void count_duplicates(Slice *slice, int32_t n, SurveyCase *out)
{
    qsort(slice, (size_t)n, sizeof *slice, slice_order);
    for (int32_t i = 1; i < n; i++) {
        const Slice *a = &slice[i - 1], *b = &slice[i];
        if (b->flat || a->hash != b->hash) continue;
        if (!out->twice++ || a->d < out->pair[0])
            out->pair[0] = a->d, out->pair[1] = b->d;
    }
}

static bool count_slices(const Volume *v, SurveyCase *out)
{
    const Dims n = v->voxels.dim;
    // the first and the last slice with contrast
    int32_t first = n.d, last = -1;
    Slice *slice = mem_alloc((size_t)n.d * sizeof *slice);

    if (!slice) return false;
    out->hash = ((uint64_t)n.w << 40) ^ ((uint64_t)n.h << 20) ^ (uint64_t)n.c;

    for (int32_t d = 0; d < n.d; d++) {
        slice[d] = look_at_slice(v, d);
        out->hash = (out->hash ^ slice[d].hash) * 0x9E3779B97F4A7C15u;
        out->hash ^= out->hash >> 29;
        if (slice[d].flat) continue;
        first = d < first ? d : first;
        last = d;
    }

    for (int32_t d = 0; d < n.d; d++) {
        out->constant += slice[d].flat;
        out->gaps += slice[d].flat && d > first && d < last;
    }
    count_duplicates(slice, n.d, out);
    mem_free(slice);
    return true;
}

/* Counts classes, and foreground where the image has its lowest value, the
 * value that scanners and tools write where they measured nothing. image: NULL
 * if there is none, or it could not be loaded. */
static void count_classes(const Volume *mask, const Volume *image,
                          SurveyCase *out)
{
    const Dims n = mask->voxels.dim;
    const int64_t area = (int64_t)n.h * n.w;
    const uint8_t *y = mask->voxels.data;
    const float *x = image ? image->voxels.data : NULL;
    const int32_t c = image ? image->voxels.dim.c : 0;
    const float lowest = x ? numbers_lowest(x, area * n.d, c) : 0;

    for (int32_t d = 0; d < n.d; d++) {
        const int64_t before = out->foreground;
        for (int64_t i = d * area; i < (d + 1) * area; i++) {
            out->voxels[y[i]]++;
            out->foreground += y[i] != 0;
            out->outside += y[i] != 0 && x && x[i * c] == lowest;
        }
        out->marked += out->foreground > before;
    }
}

/* ---- a case ------------------------------------------------------------- */

/* Measures every field, each alone if the first could not be loaded; voxels
 * stay NULL for a field that failed. Returns true also with faults, but then
 * *whole is false. */
static bool survey_fields(Survey *s, int item, DicomNotes *notes,
                          Volume field[MAX_FIELDS], bool *whole)
{
    const Dataset *ds = s->ds;
    SurveyCase *c = &s->cases[item];
    const int label = dataset_label(ds);

    c->left = -1;
    const Volume *first = &field[0];
    bool ok = true;

    for (int f = 0; ok && f < ds->fields; f++) {
        const FieldKind kind = ds->field[f].kind;
        if (kind == FIELD_LENGTH) continue;
        const Volume *like = f && first->voxels.data ? first : NULL;
        Volume *v = &field[f];
        if (!case_load(ds, item, f, like, v, notes)) {
            *whole = false;
            ok = take_fault(s, &c->field[f].fault);
            continue;
        }
        count_values(v, &c->field[f]);
        if (kind == FIELD_NUMBER) ok = keep_numbers(s, v, &c->field[f]);
        // without a loaded image, a mask on another grid is still counted
        if (f == label) count_classes(v, like, c);
        if (f) continue;
        c->grid = volume_grid(v);
        if (kind != FIELD_LABEL) ok = count_slices(v, c);
    }
    return ok;
}

/* Counts the foreground that remains after the steps; select may remove all of
 * it. */
static bool count_left(const Pack *label, int64_t *out)
{
    const int64_t area = (int64_t)label->dim.h * label->dim.w;
    float *x = mem_alloc((size_t)area * sizeof *x);
    if (!x) return false;
    *out = 0;
    for (int32_t d = 0; d < label->dim.d; d++) {
        pack_read(label, d, 1, x);
        for (int64_t i = 0; i < area; i++) *out += x[i] != 0;
    }
    mem_free(x);
    return true;
}

/* The middle one of the slices with foreground; else the middle slice. */
static int32_t choose_slice(const Pack *label, int32_t d, float *plane)
{
    const int64_t area = (int64_t)label->dim.h * label->dim.w;
    int32_t marked = 0, seen = 0;

    for (int pass = 0; pass < 2; pass++)
        for (int32_t k = 0; k < d; k++) {
            bool any = false;
            pack_read(label, k, 1, plane);
            for (int64_t i = 0; !any && i < area; i++) any = plane[i] != 0;
            if (!any) continue;
            if (pass && seen++ == marked / 2) return k;
            marked += !pass;
        }
    return d / 2;
}

/* Keeps the slice at the resolution of a report page, each pixel the voxel in
 * its middle; the grey window clips the extremes. */
static bool keep_slice(Survey *s, const Prepared *p, int label, SurveyCase *c)
{
    const Dims n = p->field[0].dim;
    const int64_t area = (int64_t)n.h * n.w;
    const int32_t longer = n.h > n.w ? n.h : n.w;
    const double step = longer > SURVEY_SIDE ? (double)longer / SURVEY_SIDE : 1;
    double lo, hi;
    size_t bytes = (size_t)area * (size_t)n.c * sizeof(float);
    float *x = mem_alloc(bytes), *y = mem_alloc(bytes);
    bool ok = x && y;

    if (!ok) goto done;
    int32_t d = n.d / 2;
    if (label >= 0) d = choose_slice(&p->field[label], n.d, y);
    pack_read(&p->field[0], d, 1, x);

    // only the first channel
    for (int64_t i = 0; n.c > 1 && i < area; i++) x[i] = x[i * n.c];
    if (label >= 0) pack_read(&p->field[label], d, 1, y);
    TRY(ok = picture_window(x, area, 0.01, 0.995, &lo, &hi));
    c->w = (int32_t)fmax(1, n.w / step), c->h = (int32_t)fmax(1, n.h / step);
    const size_t pixels = (size_t)c->w * (size_t)c->h;
    uint8_t *gray = keep(s, pixels), *outline = keep(s, pixels);
    TRY(ok = gray && outline);

    for (int32_t j = 0; j < c->h; j++)
        for (int32_t i = 0; i < c->w; i++) {
            const int64_t at =
                (int64_t)((j + 0.5) * step) * n.w + (int64_t)((i + 0.5) * step);
            const double v = ((double)x[at] - lo) / (hi - lo);
            gray[j * c->w + i] = (uint8_t)(255 * fmin(fmax(v, 0), 1) + 0.5);
            outline[j * c->w + i] = label >= 0 && y[at] != 0;
        }

    c->gray = gray, c->label = outline;

done:
    mem_free(x);
    mem_free(y);
    return ok;
}

/* Runs the steps as training does; frees the fields. */
static bool survey_steps(Survey *s, int item, Volume field[MAX_FIELDS])
{
    Prepared p;
    SurveyCase *c = &s->cases[item];
    if (!prepare_loaded(s->ds, item, &s->steps, NULL, s->stop, field, &p))
        return take_fault(s, &c->fault);

    for (int f = 0; f < p.fields; f++) {
        const DatasetField *field_of = &s->ds->field[f];
        const Dims n = p.field[f].dim;
        c->field[f].dim =
            field_on_grid(field_of->kind) ? part_dims(&s->steps, n) : n;
        c->field[f].rank = part_rank(&s->steps, field_of->rank);
    }

    const int label = dataset_label(s->ds);
    bool ok = label < 0 || count_left(&p.field[label], &c->left);

    // a sequence is not a picture
    if (ok && s->ds->field[0].rank >= 2) ok = keep_slice(s, &p, label, c);
    prepared_free(&p);
    return ok;
}

/* Keeps warnings of the readers as lines; notes of usual conversions are
 * dropped. */
static bool keep_warnings(Survey *s, const DicomNotes *notes, SurveyCase *c)
{
    size_t bytes = 1, at = 0;
    for (const DicomNote *n = notes->first; n; n = n->next)
        bytes += n->warning ? strlen(n->text) + 1 : 0;
    char *text = keep(s, bytes);
    if (!text) return false;

    for (const DicomNote *n = notes->first; n; n = n->next) {
        if (!n->warning) continue;
        size_t length = strlen(n->text);
        memcpy(text + at, n->text, length);
        text[at + length] = '\n';
        at += length + 1;
    }

    text[at] = 0;
    c->notes = text;
    return true;
}

/* False only if memory ran out or the survey was stopped, not for faults of a
 * file. */
static bool survey_one(void *context, int thread, int item)
{
    Survey *s = context;
    (void)thread;
    DicomNotes notes = {.count = 0};
    Volume field[MAX_FIELDS] = {{.voxels = {.data = NULL}}};
    bool whole = true;
    bool ok = survey_fields(s, item, &notes, field, &whole) &&
              keep_warnings(s, &notes, &s->cases[item]);
    dicom_notes_free(&notes);

    // otherwise the steps would only repeat the faults
    if (ok && whole) return survey_steps(s, item, field);
    fields_free(field);
    return ok;
}

/* ---- all cases ---------------------------------------------------------- */

bool survey_open(const Dataset *ds, const Steps *steps,
                 const SurveyOptions *options, Survey **out)
{
    *out = NULL;
    Survey *s = mem_alloc(sizeof *s);
    if (!s) return false;
    pthread_mutex_init(&s->lock, NULL);
    s->steps = steps_without_augment(steps);
    s->stop = options->stop;
    const bool ok =
        dataset_copy(ds, &s->ds) &&
        (s->cases = ARENA_NEW(&s->mem, SurveyCase, ds->count)) &&
        parallel_for(ds->count, options->threads, s->stop, survey_one, s);
    if (ok)
        *out = s;
    else
        survey_free(s);
    return ok;
}

void survey_free(Survey *s)
{
    if (!s) return;
    dataset_free(s->ds);
    arena_release(&s->mem);
    pthread_mutex_destroy(&s->lock);
    mem_free(s);
}

const SurveyCase *survey_case(const Survey *s, int item)
{
    CHECK(item >= 0 && item < s->ds->count);
    return &s->cases[item];
}

const Dataset *survey_dataset(const Survey *s)
{
    return s->ds;
}

bool survey_picture(const Survey *s, int item, Picture *out)
{
    const SurveyCase *c = survey_case(s, item);
    if (!c->gray) return false;
    const int32_t longer = c->w > c->h ? c->w : c->h;
    const int zoom = longer < SURVEY_SIDE ? SURVEY_SIDE / longer : 1;
    const size_t pixels = (size_t)c->w * (size_t)c->h;
    float *plane = mem_alloc(pixels * sizeof *plane);
    bool ok = plane && picture_new(out, c->w * zoom, c->h * zoom, 0);

    if (ok) {
        for (size_t i = 0; i < pixels; i++) plane[i] = c->gray[i];
        picture_gray(out, 0, 0, zoom, plane, c->w, c->h, 0, 255);
        for (size_t i = 0; i < pixels; i++) plane[i] = c->label[i];
        picture_contour(out, 0, 0, zoom, plane, c->w, c->h, 0.5, 1.2, 0xff4b3e);
    }

    mem_free(plane);
    return ok;
}
