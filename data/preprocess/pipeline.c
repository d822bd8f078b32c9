/* pipeline.c -- opens a pipeline, lists its samples and makes one sample.
 *
 * Opening goes through all cases once, in threads, by way of the cache: volumes
 * that fit stay there. The properties of each case (extents, slices with
 * foreground, classes, a hash) are kept as its CaseFacts permanently, so the
 * list of samples never changes although volumes are evicted and made again.
 * The hash detects files that change during training.
 *
 * A failure is always that of the first case in order, whichever thread met it
 * first: the same data gives the same message. */
#include "data/preprocess/pipeline.h"
#include "data/parallel_for.h"
#include "data/preprocess/cache.h"
#include "data/preprocess/store.h"
#include "data/stall_monitor.h"
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* Constant once opened, except the cache, which has its own lock: samples may
 * be requested in any number of threads. */
struct Pipeline {
    atomic_int holders;
    Dataset *ds;
    Steps steps;
    Patients *patients; /* NULL: no step is per patient     */
    uint64_t seed;
    Cache *cache;
    Store *store;                   /* NULL: none                       */
    CacheKey common;                /* common part of the keys          */
    CacheKey *cache_key;            /* one per case                     */
    bool *stamped;                  /* one per case: its key is known   */
    char *store_why;                /* why the store is not used, or NULL   */
    int stored;                     /* cases found in the store         */
    CaseFacts *facts;               /* one per case                     */
    uint8_t **used;                 /* per case: is slice d a sample?    */
    PatchClassCounts *class_counts; /* per case; NULL: not needed           */
    SampleId *samples;
    int32_t count;
    const char **why; /* one per case while opening: why it is left out, or
                       * NULL; NULL without skip_bad */
    BadCase *bad;     /* (bads) */
    int bads;
    Arena mem;            /* facts, used, samples, notes */
    pthread_mutex_t lock; /* guards mem while cases are opened */
};

/* ---- opening ------------------------------------------------------------ */

/* Gets the case from the store if it is there. */
static bool stored(const Pipeline *p, int item, Prepared *out,
                   const char **notes)
{
    bool found = false;
    if (p->store && p->stamped[item])
        store_get(p->store, &p->cache_key[item], out, notes, &found);
    out->item = item;
    return found;
}

/* Makes a volume for the cache. After opening, the files must still be the
 * counted ones. */
static bool make(void *context, int item, const atomic_bool *stop,
                 Prepared *out)
{
    Pipeline *p = context;
    const char *notes;
    if (stored(p, item, out, &notes)) return true;
    if (!prepare_case(p->ds, item, &p->steps, p->patients, NULL, stop, out))
        return false;
    if (p->facts[item].hash == out->hash) return true;
    prepared_free(out);
    return fail_data("%s: the files have changed since the run began",
                     p->ds->cases[item].key);
}

/* First slice at or after this fraction of n; the tolerance keeps 0.1 * 10 at
 * 1. */
static int32_t slice_at(double fraction, int32_t n)
{
    return (int32_t)floor(fraction * n + 1e-9);
}

/* is slice d of n inside the range? Half-open, so that adjacent ranges share no
 * slice and leave none out */
static bool slice_in(const double range[2], int32_t d, int32_t n)
{
    return d >= slice_at(range[0], n) && d < slice_at(range[1], n);
}

/* Marks the slices of a case that are samples and counts their classes. A slice
 * is a sample if the case's slabs, the step's range and `keep` all include it.
 * Classes are counted in such slices only: training uses no others. */
static bool scan_slices(const Pipeline *p, const Prepared *v, uint8_t *used,
                        CaseFacts *facts)
{
    const DataStep *s = steps_slices(&p->steps);
    const Case *c = &p->ds->cases[v->item];
    int label = dataset_label(p->ds);
    int32_t n = facts->dim.d;
    int64_t area = (int64_t)facts->dim.h * facts->dim.w;
    // no label field: no foreground
    float *x = label < 0 ? NULL : mem_alloc((size_t)area * sizeof *x);

    if (label >= 0 && !x) return false;
    for (int32_t d = 0; d < n; d++) {
        bool in = c->slabs == 0, foreground = false;
        for (int i = 0; i < c->slabs; i++)
            in = in || slice_in(c->slab[i], d, n);
        if (s) in = in && slice_in(s->slices.range, d, n);
        if (x && in) pack_read(&v->field[label], d, 1, x);
        for (int64_t i = 0; x && in && !foreground && i < area; i++)
            foreground = x[i] != 0;
        if (s && x && (int)s->slices.keep == KEEP_FOREGROUND)
            in = in && foreground;
        used[d] = in;
        if (!in) continue;
        facts->slices++;
        facts->foreground_slices += foreground;
        for (int64_t i = 0; x && i < area; i++) facts->voxels[(int)x[i]]++;
    }

    mem_free(x);
    return true;
}

/* Copies the notes of a reader as lines into the pipeline's arena. */
static const char *keep_notes(Pipeline *p, const DicomNotes *notes)
{
    // room for each text, "warning: " and a newline
    size_t bytes = 1;
    for (const DicomNote *n = notes->first; n; n = n->next)
        bytes += strlen(n->text) + 12;
    pthread_mutex_lock(&p->lock);
    char *text = arena_alloc(&p->mem, bytes), *at = text;
    pthread_mutex_unlock(&p->lock);
    for (const DicomNote *n = notes->first; text && n; n = n->next)
        at += sprintf(at, "%s%s\n", n->warning ? "warning: " : "", n->text);
    return text;
}

/* Records the facts of a case; found: in the store. */
static bool take_facts(Pipeline *p, int item, const Prepared *v, bool found)
{
    CaseFacts *facts = &p->facts[item];
    facts->dim = v->field[0].dim;
    facts->input = v->input;
    facts->hash = v->hash;
    facts->intensities = v->intensities;
    memcpy(facts->intensity, v->intensity, sizeof facts->intensity);

    for (int f = 0; f < v->fields; f++) {
        facts->channels[f] = v->field[f].dim.c;
        facts->bytes += (int64_t)v->field[f].bytes;
        if (p->ds->field[f].kind != FIELD_LENGTH) continue;
        float length;
        pack_read(&v->field[f], 0, 1, &length);
        facts->length = (int32_t)length;
    }

    pthread_mutex_lock(&p->lock);
    p->stored += found;
    p->used[item] = arena_alloc(&p->mem, (size_t)facts->dim.d);

    // 2 KB per case: not for a hundred thousand photographs without a mask
    const bool labels = dataset_label(p->ds) >= 0;
    if (labels) facts->voxels = ARENA_NEW(&p->mem, int64_t, MAX_LABELS + 1);
    pthread_mutex_unlock(&p->lock);
    return p->used[item] && (!labels || facts->voxels) &&
           scan_slices(p, v, p->used[item], facts) &&
           (!p->class_counts ||
            patch_class_counts(&v->field[dataset_label(p->ds)],
                               &p->class_counts[item]));
}

/* May the store's case with this key be used? Its files must be the ones it was
 * made from, or files at another place (now->place) with the same bytes. */
static bool same_files(Pipeline *p, int item, Origin *now)
{
    Origin was;
    const CacheKey *cache_key = &p->cache_key[item];
    if (!store_origin(p->store, cache_key, &was) ||
        !cache_key_order(&was.place, &now->place))
        return true;
    if (!cache_key_bytes(p->ds, item, &now->bytes) ||
        cache_key_order(&was.bytes, &now->bytes))
        return false;
    store_moved(p->store, cache_key, &now->place);
    return true;
}

/* Prepares case `item`, or gets it from the store, for the first time. */
static bool open_case(Pipeline *p, int item, const atomic_bool *stop,
                      Prepared *v)
{
    CaseFacts *facts = &p->facts[item];
    DicomNotes notes = {.count = 0};
    Origin origin;
    CacheKey after;
    bool keeps = p->store &&
                 cache_key_case(&p->common, p->ds, item, &p->cache_key[item]) &&
                 cache_key_place(p->ds, item, &origin.place);

    if (p->patients && p->store)
        patients_cache_key(p->patients, p->ds->cases[item].patient,
                           &p->cache_key[item]);

    // an entry for a file that has changed must not be used later
    if (p->store) p->stamped[item] = keeps && same_files(p, item, &origin);
    bool found = stored(p, item, v, &facts->notes);
    bool ok = found || prepare_case(p->ds, item, &p->steps, p->patients, &notes,
                                    stop, v);
    if (ok && !found) facts->notes = keep_notes(p, &notes);
    dicom_notes_free(&notes);
    if (!ok) return false;

    // false: out of memory
    ok = facts->notes && take_facts(p, item, v, found);

    // the files are hashed after they were read: they must not have changed
    if (ok && !found && keeps && cache_key_bytes(p->ds, item, &origin.bytes) &&
        cache_key_place(p->ds, item, &after) &&
        !cache_key_order(&origin.place, &after))
        store_add(p->store, &p->cache_key[item], &origin, v, facts->notes);
    if (!ok) prepared_free(v);
    return ok;
}

/* Shared by the threads that open cases. */
typedef struct Opening {
    Pipeline *p;
    const PipelineOptions *options;
    StallMonitor *stall_monitor;
    pthread_mutex_t lock; /* of progress    */
    int done;             /* cases finished */
} Opening;

/* The function with which the cache prepares a case while the pipeline opens:
 * the first preparation of a case also records its facts. */
static bool open_make(void *context, int item, const atomic_bool *stop,
                      Prepared *out)
{
    return open_case(context, item, stop, out);
}

/* With skip_bad, keeps the reason if the case itself is at fault. */
static bool may_skip(Pipeline *p, int item)
{
    if (!p->why || err_kind() != ERR_DATA) return false;
    pthread_mutex_lock(&p->lock);
    p->why[item] = arena_strdup(&p->mem, err_text());
    pthread_mutex_unlock(&p->lock);
    return p->why[item] != NULL;
}

/* Removes the cases that have a reason in p->why: the data of the others moves
 * up, as if the pipeline had been opened without the bad cases. */
static bool leave_out(Pipeline *p)
{
    const int count = p->ds->count;
    int good = 0, first = -1;
    Dataset *rest = NULL;
    int *item = mem_alloc((size_t)count * sizeof *item);

    p->bad = ARENA_NEW(&p->mem, BadCase, count);
    bool ok = item && p->bad;

    for (int i = 0; ok && i < count; i++) {
        const Case *c = &p->ds->cases[i];
        if (p->why[i]) {
            if (first < 0) first = i;
            p->bad[p->bads++] = (BadCase){c->key, c->patient, p->why[i]};
            continue;
        }
        p->facts[good] = p->facts[i], p->used[good] = p->used[i];
        if (p->class_counts) p->class_counts[good] = p->class_counts[i];
        if (p->cache_key) p->cache_key[good] = p->cache_key[i];
        if (p->stamped) p->stamped[good] = p->stamped[i];
        item[good++] = i;
    }

    // the tail only holds copies of entries that moved up
    for (int i = good; ok && p->class_counts && i < count; i++)
        p->class_counts[i] = (PatchClassCounts){0};
    if (ok && 2 * p->bads > count)
        ok = fail_data("skip_bad: %d of %d cases cannot be read, more than "
                       "half; the first: %s",
                       p->bads, count, p->why[first]);

    if (ok && p->bads) {
        ok = dataset_pick(p->ds, item, good, &rest);
        if (ok) cache_pick(p->cache, item, good);
        if (ok) dataset_free(p->ds);
        if (ok) p->ds = rest;
    }

    mem_free(item);
    return ok;
}

/* Opens one case by way of the cache. */
static bool open_one(void *context, int thread, int item)
{
    Opening *o = context;
    const PipelineOptions *how = o->options;
    const Prepared *v;

    stall_monitor_at(o->stall_monitor, thread, o->p->ds->cases[item].key);
    bool ok = cache_get(o->p->cache, item, how->stop, &v);
    if (ok) cache_put(o->p->cache, v);
    stall_monitor_at(o->stall_monitor, thread, NULL);
    if (!ok) ok = may_skip(o->p, item);
    pthread_mutex_lock(&o->lock);
    o->done++;
    if (ok && how->progress)
        how->progress(how->context, o->done, o->p->ds->count);
    pthread_mutex_unlock(&o->lock);
    return ok;
}

/* Opens all cases once. Volumes go through the cache, so that those that fit
 * are there when training begins. */
static bool open_cases(Pipeline *p, const PipelineOptions *options)
{
    const double patience = options->patience_s > 0 ? options->patience_s : 60;
    Opening o = {.p = p, .options = options};
    pthread_mutex_init(&o.lock, NULL);
    o.stall_monitor =
        stall_monitor_start(patience, options->waiting, options->context);
    const bool ok = parallel_for(p->ds->count, options->threads, options->stop,
                                 open_one, &o);
    stall_monitor_stop(o.stall_monitor);
    pthread_mutex_destroy(&o.lock);
    return ok;
}

/* Lists the samples marked by open_case. */
static bool list_samples(Pipeline *p)
{
    bool sliced = steps_slices(&p->steps) != NULL;
    // 64 bits: all parts of all cases may exceed 2^31
    int64_t count = 0;

    for (int i = 0; i < p->ds->count; i++)
        count += sliced ? p->facts[i].slices
                        : part_count(&p->steps, p->facts[i].dim);
    if (!count)
        return fail_data("no samples: the slices step leaves nothing of %d "
                         "cases",
                         p->ds->count);
    if (count > INT32_MAX) return fail_data("more than 2^31 samples");
    p->samples = ARENA_NEW(&p->mem, SampleId, count);
    if (!p->samples) return false;

    for (int32_t i = 0; i < p->ds->count; i++) {
        const int32_t parts = part_count(&p->steps, p->facts[i].dim);
        for (int32_t k = 0; k < parts; k++) {
            if (sliced && !p->used[i][k]) continue;
            p->samples[p->count] = (SampleId){p->count, i, k};
            p->count++;
        }
    }
    return true;
}

/* Keeps the reason why the store is not used; the pipeline does not fail. */
static void store_refused(Pipeline *p)
{
    p->store_why = arena_strdup(&p->mem, err_text());
}

/* Opens the store, if requested, and allocates a key for each case. */
static bool open_store(Pipeline *p, const PipelineOptions *options)
{
    if (!options->store) return true;
    p->cache_key = ARENA_NEW(&p->mem, CacheKey, p->ds->count);
    p->stamped = ARENA_NEW(&p->mem, bool, p->ds->count);
    if (!p->cache_key || !p->stamped ||
        !cache_key_begin(p->ds, &p->steps, &p->common))
        return false;
    if (!store_open(options->store, &p->store)) store_refused(p);
    return true;
}

/* checks that need no file */
static bool open_check(const Dataset *ds, const Steps *steps)
{
    if (!ds->count) return fail_data("the data set has no cases");
    for (int i = 0; i < ds->count; i++)
        if (ds->cases[i].slabs && !steps_slices(steps))
            return fail_usage("a split by slabs needs a slices step");
    if (patch_wants_class_counts(steps) && dataset_label(ds) < 0)
        return fail_usage("patches: foreground is %g, but the data set has no "
                          "labels; fix: foreground = 0",
                          steps_parts(steps)->patches.foreground);
    for (int f = 0; f < ds->fields; f++)
        if (ds->field[f].kind == FIELD_LENGTH && part_drawn(steps))
            return fail_usage("patches: the data set has a field of lengths, "
                              "which does not fit a patch of a sequence");
    return true;
}

/* On any failure pipeline_free undoes everything: it accepts a pipeline that is
 * only half built. */
bool pipeline_open(const Dataset *ds, const Steps *steps,
                   const PipelineOptions *options, Pipeline **out)
{
    *out = NULL;
    if (!open_check(ds, steps)) return false;
    Pipeline *p = mem_alloc(sizeof *p);
    if (!p) return false;
    pthread_mutex_init(&p->lock, NULL);
    p->holders = 1;
    p->steps = *steps;
    if (p->steps.user_step) p->steps.user_step->hold(p->steps.user_step);
    p->seed = options->seed;
    TRY(patients_find(ds, steps, options, &p->patients));
    TRY(dataset_copy(ds, &p->ds));
    TRY(p->facts = ARENA_NEW(&p->mem, CaseFacts, ds->count));
    TRY(p->used = ARENA_NEW(&p->mem, uint8_t *, ds->count));
    if (patch_wants_class_counts(steps))
        TRY(p->class_counts = ARENA_NEW(&p->mem, PatchClassCounts, ds->count));
    TRY(open_store(p, options));
    if (options->skip_bad)
        TRY(p->why = ARENA_NEW(&p->mem, const char *, ds->count));
    TRY(cache_new(ds->count, options->cache_bytes, open_make, p, &p->cache));
    bool opened = open_cases(p, options);
    // also if one case is bad, so that the others need not be prepared again
    ErrKind kind = err_kind();
    char why[ERR_MAX];
    snprintf(why, sizeof why, "%s", err_text());
    if (p->store && !store_commit(p->store)) store_refused(p);
    if (!opened) {
        err_set(kind, why);
        goto done;
    }
    if (p->why) TRY(leave_out(p));

    // from this point a file that has changed is an error
    cache_set_make(p->cache, make);
    TRY(list_samples(p));
    *out = p;

done:
    if (!*out) pipeline_free(p);
    return *out != NULL;
}

void pipeline_hold(Pipeline *p)
{
    atomic_fetch_add(&p->holders, 1);
}

void pipeline_free(Pipeline *p)
{
    if (!p || atomic_fetch_sub(&p->holders, 1) > 1) return;
    for (int i = 0; p->class_counts && i < p->ds->count; i++)
        patch_class_counts_free(&p->class_counts[i]);
    cache_free(p->cache);
    patients_free(p->patients);
    store_close(p->store); // after the volumes that point into it
    if (p->steps.user_step) p->steps.user_step->drop(p->steps.user_step);
    dataset_free(p->ds);
    arena_release(&p->mem);
    pthread_mutex_destroy(&p->lock);
    mem_free(p);
}

/* ---- samples ------------------------------------------------------------ */

const Dataset *pipeline_dataset(const Pipeline *p)
{
    return p->ds;
}

const Steps *pipeline_steps(const Pipeline *p)
{
    return &p->steps;
}

int32_t pipeline_samples(const Pipeline *p)
{
    return p->count;
}

SampleId pipeline_id(const Pipeline *p, int32_t number)
{
    CHECK(number >= 0 && number < p->count);
    return p->samples[number];
}

int pipeline_rank(const Pipeline *p, int field)
{
    return part_rank(&p->steps, p->ds->field[field].rank);
}

const CaseFacts *pipeline_facts(const Pipeline *p, int item)
{
    CHECK(item >= 0 && item < p->ds->count);
    return &p->facts[item];
}

int pipeline_bad(const Pipeline *p, const BadCase **list)
{
    *list = p->bad;
    return p->bads;
}

/* extents of a sample of this case */
static Dims case_dims(const Pipeline *p, int item, int field)
{
    Dims n = p->facts[item].dim;
    CHECK(field >= 0 && field < p->ds->fields);
    n = field_on_grid(p->ds->field[field].kind) ? part_dims(&p->steps, n)
                                                : (Dims){1, 1, 1, 1, 1};
    n.c = p->facts[item].channels[field];
    return n;
}

Dims pipeline_dims_of(const Pipeline *p, int32_t number, int field)
{
    return case_dims(p, pipeline_id(p, number).item, field);
}

bool pipeline_drawn(const Pipeline *p)
{
    return part_drawn(&p->steps);
}

/* The box of a sample in its case v. */
static bool sample_box(const Pipeline *p, SampleId id, uint32_t epoch,
                       const Prepared *v, Box *out)
{
    const Dims n = p->facts[id.item].dim;
    const PatchClassCounts *class_counts =
        p->class_counts ? &p->class_counts[id.item] : NULL;
    const Rng draw = {.seed = p->seed,
                      .stream = RNG_PATCH,
                      .epoch = epoch,
                      .sample = (uint32_t)id.number};

    if (part_drawn(&p->steps))
        return part_draw(&p->steps, n, class_counts,
                         class_counts ? &v->field[dataset_label(p->ds)] : NULL,
                         &draw, out);
    *out = part_box(&p->steps, n, id.part);
    return true;
}

/* The volume is held only while it is copied: augmentation works on the copy,
 * so the cached volume does not change. */
bool pipeline_sample(Pipeline *p, int32_t number, uint32_t epoch, bool augment,
                     const atomic_bool *stop, float *const out[MAX_FIELDS])
{
    SampleId id = pipeline_id(p, number);
    Sample sample = {.fields = p->ds->fields,
                     .ds = p->ds,
                     .user_step = p->steps.user_step,
                     .stop = stop};
    const Prepared *v;
    Box box;

    // may prepare the case again if it was evicted
    if (!cache_get(p->cache, id.item, stop, &v)) return false;
    bool ok = sample_box(p, id, epoch, v, &box);

    for (int f = 0; ok && f < sample.fields; f++) {
        sample.data[f] = out[f];
        sample.dim[f] = case_dims(p, id.item, f);
        sample.kind[f] = p->ds->field[f].kind;
        sample.rank[f] = pipeline_rank(p, f);
        // in the order of the fields, each into its own memory
        if (out[f]) prepared_sample(v, f, &box, out[f]);
        if (sample.kind[f] != FIELD_LENGTH) continue;
        // also if the caller does not request the length
        float length;
        prepared_sample(v, f, &box, &length);
        sample.length = (int32_t)length;
    }

    cache_put(p->cache, v);
    if (!ok) return false;
    if (!augment ||
        augment_sample(&p->steps, p->seed, epoch, (uint32_t)number, &sample))
        return true;
    if (steps_parts(&p->steps))
        within("%s %d", steps_slices(&p->steps) ? "slice" : "patch",
               id.part + 1);
    return within("%s", p->ds->cases[id.item].key);
}

int pipeline_changes(const Pipeline *p, int32_t number, uint32_t epoch,
                     Change out[MAX_STEPS])
{
    return augment_decide(&p->steps, p->seed, epoch, (uint32_t)number,
                          pipeline_dims_of(p, number, 0), out);
}

bool pipeline_get(Pipeline *p, int item, const Prepared **out)
{
    return cache_get(p->cache, item, NULL, out);
}

void pipeline_put(Pipeline *p, const Prepared *one)
{
    cache_put(p->cache, one);
}

void pipeline_wake(Pipeline *p)
{
    cache_wake(p->cache);
}

char *pipeline_store(const Pipeline *p, Arena *mem)
{
    if (p->store_why)
        return arena_printf(mem, "prepared cases are not kept: %s",
                            p->store_why);
    if (!p->store) return NULL;
    StoreStats s = store_stats(p->store);
    return arena_printf(mem,
                        "prepared cases: %d found, %lld added%s, %.1f MiB "
                        "in all",
                        p->stored, (long long)s.added,
                        s.damaged ? " (some were damaged)" : "",
                        (double)s.bytes / (1 << 20));
}

CacheStats pipeline_cache(Pipeline *p)
{
    return cache_stats(p->cache);
}
