/* patients.c -- see patients.h. */
#include "data/preprocess/patients.h"
#include "data/parallel_for.h"
#include "data/preprocess/moments.h"
#include "data/preprocess/pipeline.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The numbers of a patient, by image: one per channel, or one for all
 * channels. */
struct Patients {
    char **name; /* (count), sorted */
    int count;
    int32_t first[MAX_FIELDS + 1]; /* index of the numbers of a field    */
    Moments *moments;              /* (count, first[MAX_FIELDS])       */
};

/* ---- the table ---------------------------------------------------------- */

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The numbers of a patient; NULL if the name is unknown. */
static Moments *row_of(const Patients *p, const char *patient)
{
    char **at =
        bsearch(&patient, p->name, (size_t)p->count, sizeof *p->name, by_name);
    return at ? p->moments + (at - p->name) * p->first[MAX_FIELDS] : NULL;
}

/* Collects the names of all patients of ds, each once. */
static bool take_names(Patients *p, const Dataset *ds)
{
    int count = 0;
    p->name = mem_alloc((size_t)ds->count * sizeof *p->name);
    if (!p->name) return false;
    for (; p->count < ds->count; p->count++)
        if (!(p->name[p->count] = mem_strdup(ds->cases[p->count].patient)))
            return false;
    qsort(p->name, (size_t)p->count, sizeof *p->name, by_name);

    for (int i = 0; i < p->count; i++) {
        if (count && !strcmp(p->name[count - 1], p->name[i]))
            mem_free(p->name[i]);
        else
            p->name[count++] = p->name[i];
    }

    p->count = count;
    return true;
}

/* ---- computing ---------------------------------------------------------- */

/* Shared by the threads that go through the cases. */
typedef struct Finding {
    Pipeline *p; /* of the steps before */
    const Patients *found;
    bool together;
    Moments *part; /* (cases, found->first[MAX_FIELDS]) */
} Finding;

/* Moments of one image of a case, v (d,h,w,c); the first `own` of w are no
 * padding. */
static void field_moments(const Volume *v, int32_t own, bool together,
                          Moments *out)
{
    const Dims n = v->voxels.dim;
    const float *x = v->voxels.data;
    const int32_t slots = together ? 1 : n.c;
    // row by row, so that padding between rows is skipped
    for (int64_t row = 0; row < (int64_t)n.d * n.h; row++)
        for (int32_t c = 0; c < slots; c++) {
            const Moments part = moments_of(x + row * n.w * n.c + c,
                                            (int64_t)own * (n.c / slots), slots,
                                            -INFINITY, INFINITY);
            moments_merge(&out[c], &part);
        }
}

static bool walk_case(void *context, int thread, int item)
{
    Finding *f = context;
    const Patients *to = f->found;
    const CaseFacts *facts = pipeline_facts(f->p, item);
    const Prepared *one;
    bool ok = true;

    (void)thread;
    if (!pipeline_get(f->p, item, &one)) return false;

    for (int k = 0; ok && k < one->fields; k++) {
        Volume v;
        if (to->first[k] == to->first[k + 1]) continue;
        if (!(ok = prepared_volume(one, k, &v))) break;
        field_moments(
            &v, facts->length ? facts->length : v.voxels.dim.w, f->together,
            f->part + (int64_t)item * to->first[MAX_FIELDS] + to->first[k]);
        volume_free(&v);
    }

    pipeline_put(f->p, one);
    return ok;
}

/* Sets the index of the numbers of each image; all cases must have the same
 * channels. */
static bool take_channels(Patients *to, const Pipeline *p, bool together)
{
    const Dataset *ds = pipeline_dataset(p);
    const int32_t *first = pipeline_facts(p, 0)->channels;

    for (int f = 0; f < MAX_FIELDS; f++) {
        const bool image = f < ds->fields && ds->field[f].kind == FIELD_IMAGE;
        to->first[f + 1] = to->first[f] + (image ? together ? 1 : first[f] : 0);
        for (int i = 1; image && i < ds->count; i++) {
            const int32_t c = pipeline_facts(p, i)->channels[f];
            if (c != first[f])
                return fail_data("normalize: %s of %s has %d channels, of %s "
                                 "%d; fix: the same number in all",
                                 ds->field[f].name, ds->cases[0].key, first[f],
                                 ds->cases[i].key, c);
        }
    }
    return true;
}

/* A constant patient has a standard deviation of 0, which cannot be divided
 * by. */
static bool check_contrast(const Patients *p, const Dataset *ds)
{
    const int32_t slots = p->first[MAX_FIELDS];
    for (int i = 0; i < p->count; i++)
        for (int f = 0; f < ds->fields; f++)
            for (int32_t c = p->first[f]; c < p->first[f + 1]; c++) {
                const Moments *m = &p->moments[(int64_t)i * slots + c];
                if (!(moments_sd(m) > 0))
                    return fail_data(
                        "normalize: channel %d of %s is %g in all cases of "
                        "patient %s, there is nothing to normalize; fix: look "
                        "at the files; leave the patient out",
                        c - p->first[f] + 1, ds->field[f].name, m->mean,
                        p->name[i]);
            }
    return true;
}

/* Computes all numbers from an open pipeline of the steps before. */
static bool find(Patients *to, Pipeline *p, bool together,
                 const PipelineOptions *options)
{
    const Dataset *ds = pipeline_dataset(p); // without bad cases
    Finding f = {.p = p, .found = to, .together = together};
    bool ok = false;

    if (!take_names(to, ds) || !take_channels(to, p, together)) return false;
    const size_t slots = (size_t)to->first[MAX_FIELDS];

    // one more: a set without images needs none
    to->moments =
        mem_alloc(((size_t)to->count * slots + 1) * sizeof *to->moments);
    f.part = mem_alloc(((size_t)ds->count * slots + 1) * sizeof *f.part);
    TRY(to->moments && f.part);
    TRY(parallel_for(ds->count, options->threads, options->stop, walk_case,
                     &f));
    for (int i = 0; i < ds->count; i++) {
        Moments *row = row_of(to, ds->cases[i].patient);
        for (size_t c = 0; c < slots; c++)
            moments_merge(&row[c], &f.part[(size_t)i * slots + c]);
    }

    ok = check_contrast(to, ds);

done:
    mem_free(f.part);
    return ok;
}

bool patients_find(const Dataset *ds, const Steps *steps,
                   const struct PipelineOptions *options, Patients **out)
{
    const int at = steps_per_patient(steps);
    Steps before;
    Pipeline *p;

    *out = NULL;
    if (at < 0) return true;
    if (!steps_before(steps, at, &before) ||
        !pipeline_open(ds, &before, options, &p))
        return false;
    *out = mem_alloc(sizeof **out);
    bool ok = *out != NULL &&
              find(*out, p, steps->step[at].normalize.together != 0, options);
    pipeline_free(p);
    if (!ok) {
        patients_free(*out);
        *out = NULL;
    }
    return ok;
}

void patients_free(Patients *p)
{
    if (!p) return;
    for (int i = 0; i < p->count; i++) mem_free(p->name[i]);
    mem_free(p->name);
    mem_free(p->moments);
    mem_free(p);
}

/* ---- normalising -------------------------------------------------------- */

bool patients_normalize(const Patients *p, const DataStep *s,
                        const char *patient, int field, Volume *v)
{
    const Dims n = v->voxels.dim;
    const Moments *row = row_of(p, patient);
    const int32_t slots = s->normalize.together ? 1 : n.c;
    float *x = v->voxels.data;

    CHECK(v->voxels.type == F32);
    if (!row || p->first[field + 1] - p->first[field] != slots)
        return fail_data("the files have changed since the run began");

    for (int32_t c = 0; c < slots; c++) {
        const Moments *m = &row[p->first[field] + c];
        const double scale = 1 / moments_sd(m);
        for (int64_t i = c; i < numel(n); i += slots)
            x[i] = (float)(((double)x[i] - m->mean) * scale);
    }

    v->unit = UNIT_NONE;
    return true;
}

void patients_cache_key(const Patients *p, const char *patient, CacheKey *s)
{
    const Moments *row = row_of(p, patient);
    if (row) cache_key_add(s, row, (size_t)p->first[MAX_FIELDS] * sizeof *row);
}
