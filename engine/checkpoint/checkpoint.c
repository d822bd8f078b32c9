/* checkpoint.c -- maps tensors of a file to parameters.
 *
 * Saving and loading use one list: every parameter and its moments, each with
 * its name in a file. Loading first checks that list and file agree and that
 * every byte is intact, and only then changes the session. That reads the file
 * three times, once from the disk and twice from the page cache: the price of
 * never holding a second copy of the weights, and of a session that is set
 * completely or not at all. file.c makes the write durable, safetensors.c
 * checks the content. */
#include "engine/checkpoint/checkpoint_inside.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// keys that this file writes; a caller's pairs with these keys are ignored
static const char *const own_keys[] = {"format",     "contents",
                                       "steps",      "steps_start",
                                       "loss_scale", "loss_scale_steps"};

// moment k of a parameter; m and v as in the formulas of optim.def
static const char *const state_prefix[MAX_STATES] = {"optim.m.", "optim.v."};
// averages over steps, and over epochs
static const char ema_prefix[] = "ema.", swa_prefix[] = "swa.";

/* One tensor of a file: a parameter's values, one of its moments, or its
 * average. */
typedef struct Entry {
    const char *name;
    int param; // number in params
    ParamBlock block;
    int state; // which moment
    int from;  // number in the file, -1: not there
} Entry;

typedef struct Entries {
    Entry *list;
    int count;
} Entries;

// -- the list -----------------------------------------------------------------

/* No parameter may begin with a prefix of moments, averages or batch fields. */
static bool reserved(const char *name)
{
    return starts(name, "optim.") || starts(name, ema_prefix) ||
           starts(name, swa_prefix) || starts(name, CHECKPOINT_BATCH);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const Entry *)a)->name, ((const Entry *)b)->name);
}

/* Adds one entry named `prefix` + parameter name. */
static bool entries_add(Entries *e, Arena *mem, const char *prefix,
                        const char *name, Entry entry)
{
    entry.name = *prefix ? arena_printf(mem, "%s%s", prefix, name) : name;
    entry.from = -1;
    e->list[e->count++] = entry;
    return entry.name != NULL;
}

/* Lists the tensors of a file of this session, sorted by name; with moments and
 * average if `full`. Strings and list live in `mem`. */
static bool entries_make(const SessionData *s, bool full, Arena *mem,
                         Entries *e)
{
    const Params *p = s->params;
    const char *average = s->ema ? ema_prefix : swa_prefix;
    if (full && !p->states)
        return fail_usage("a network that is not trained has no optimiser "
                          "state");
    int kinds = full ? 2 + p->states : 1;
    e->count = 0;
    e->list = ARENA_NEW(mem, Entry, (int64_t)p->count * kinds + 1);
    if (!e->list) return false;

    for (int i = 0; i < p->count; i++) {
        const char *name = p->list[i].name;
        if (reserved(name))
            return fail_usage("parameter %s: names that begin with optim., "
                              "ema., swa. or batch. are reserved; fix: rename "
                              "the scope",
                              name);
        Entry one = {.param = i, .block = PARAM_VALUE};
        if (!entries_add(e, mem, "", name, one)) return false;
        one.block = PARAM_AVERAGE;
        if (full && p->average && !entries_add(e, mem, average, name, one))
            return false;
        one.block = PARAM_STATE;
        for (; full && p->list[i].trained && one.state < p->states; one.state++)
            if (!entries_add(e, mem, state_prefix[one.state], name, one))
                return false;
    }

    qsort(e->list, (size_t)e->count, sizeof *e->list, by_name);
    return true;
}

/* Writes one entry to the session. */
static bool entry_write(const Params *p, const Entry *e, const double *user)
{
    return params_write(p, e->param, e->block, e->state, user);
}

/* Values must be finite: otherwise the fault would show much later, in a
 * prediction. A moment may overflow in a good run (v is a square). */
static bool entry_finite(const Entry *e, Dtype type, const void *user,
                         int64_t count)
{
    const float *floats = user;
    const double *doubles = user;
    if (e->block == PARAM_STATE) return true;
    for (int64_t i = 0; i < count; i++) {
        const double v = type == F64 ? doubles[i] : (double)floats[i];
        if (!isfinite(v))
            return fail_data("%s is not finite (%g at element %lld)", e->name,
                             v, (long long)i);
    }
    return true;
}

/* Returns the number of elements of the largest parameter. */
static int64_t params_most(const Params *p)
{
    int64_t most = 0;
    for (int i = 0; i < p->count; i++)
        if (numel(p->list[i].dim) > most) most = numel(p->list[i].dim);
    return most;
}

// -- saving -------------------------------------------------------------------

/* Context of `fill`. */
typedef struct Source {
    const Params *params;
    const Entries *entries;
    const Extra *extra; // after the entries
} Source;

/* Supplies tensor i to the writer, in the backend's real type. */
static bool fill(void *ctx, int i, void *out)
{
    const Source *s = ctx;
    if (i >= s->entries->count) {
        const Extra *x = s->extra + i - s->entries->count;
        size_t n = sizeof(float);
        for (int k = 0; k < x->axes; k++) n *= (size_t)x->shape[k];
        memcpy(out, x->data, n);
        return true;
    }

    const Entry *e = s->entries->list + i;
    int64_t count = numel(s->params->list[e->param].dim);
    const Dtype real = s->params->be->real;
    if (!params_read_real(s->params, e->param, e->block, e->state, out))
        return false;

    if (!entry_finite(e, real, out, count)) {
        // values in a session are not input data: training made them
        char why[ERR_MAX];
        snprintf(why, sizeof why, "%s", err_text());
        return fail_diverged("not saved: %s; fix: a lower learning rate, or "
                             "weaker changes of the data",
                             why);
    }
    return true;
}

/* Is this key always written here, regardless of the caller's pairs? */
static bool own_key(const char *key)
{
    for (size_t i = 0; i < sizeof own_keys / sizeof *own_keys; i++)
        if (!strcmp(key, own_keys[i])) return true;
    return false;
}

/* Collects the caller's pairs and the own ones in w->pair (in `mem`); the
 * writer sorts them. */
static bool pairs_make(const Meta *m, bool full, const SessionData *s,
                       Arena *mem, StWrite *w)
{
    int given = m ? m->count : 0;
    const StepState state = s->state;
    const struct {
        const char *key;
        int64_t value;
        bool there;
    } number[] = {{"steps", state.count, true},
                  {"steps_start", state.start, full && state.start},
                  {"loss_scale", (int64_t)state.scale.by, full && s->scaled},
                  {"loss_scale_steps", state.scale.good, full && s->scaled}};

    enum { NUMBERS = sizeof number / sizeof *number };
    MetaPair *pair = ARENA_NEW(mem, MetaPair, given + 2 + NUMBERS);
    if (!pair) return false;
    pair[w->pairs++] = (MetaPair){"format", CHECKPOINT_FORMAT};
    pair[w->pairs++] = (MetaPair){"contents", full ? "full" : "weights"};

    for (int i = 0; i < NUMBERS; i++) {
        if (!number[i].there) continue;
        char *text = arena_printf(mem, "%lld", (long long)number[i].value);
        if (!text) return false;
        pair[w->pairs++] = (MetaPair){number[i].key, text};
    }

    for (int i = 0; i < given; i++) {
        const char *key = m->pair[i].key;
        if (own_key(key)) continue;
        if (strspn(key, "abcdefghijklmnopqrstuvwxyz0123456789_.") !=
            strlen(key))
            return fail("metadata key \"%s\" (only a-z 0-9 _ . are allowed)",
                        key);
        pair[w->pairs++] = m->pair[i];
    }

    w->pair = pair;
    return true;
}

bool session_data(Session *s, SessionData *d)
{
    // the count is of collected steps, the weights are of queued ones
    if (session_under_way(s))
        return fail_usage("%d step%s under way: collect them before saving",
                          session_under_way(s),
                          session_under_way(s) == 1 ? " is" : "s are");
    *d = (SessionData){.params = session_params(s),
                       .ema = session_has_ema(s),
                       .scaled = session_scaled(s),
                       .state = session_state(s)};
    return true;
}

bool saving_make(const SessionData *s, bool full, const Meta *m,
                 const Extra *extra, int extras, Arena *mem, StWrite *w)
{
    Entries *e = ARENA_NEW(mem, Entries, 1);
    Source *source = ARENA_NEW(mem, Source, 1);
    if (!e || !source) return false;
    const Params *params = s->params;
    *source = (Source){.params = params, .entries = e, .extra = extra};
    *w = (StWrite){.fill = fill, .ctx = source};
    if (!entries_make(s, full, mem, e) || !pairs_make(m, full, s, mem, w))
        return false;

    // the writer sets the offset of each tensor and the checksums
    StTensor *tensor = ARENA_NEW(mem, StTensor, (int64_t)e->count + extras + 1);
    if (!tensor) return false;

    for (int i = 0; i < e->count; i++) {
        const Param *p = params->list + e->list[i].param;
        tensor[i].name = e->list[i].name;
        tensor[i].type = params->be->real == F64 ? ST_F64 : ST_F32;
        tensor[i].axes = dims_to_user(p->dim, p->rank, tensor[i].shape);
    }

    for (int i = 0; i < extras; i++) {
        StTensor *t = tensor + e->count + i;
        CHECK(starts(extra[i].name, CHECKPOINT_BATCH));
        t->name = extra[i].name;
        t->type = ST_F32;
        t->axes = extra[i].axes;
        memcpy(t->shape, extra[i].shape, sizeof t->shape);
    }

    w->tensor = tensor;
    w->count = e->count + extras;
    return true;
}

bool checkpoint_save(const char *path, Session *s, bool full, const Meta *m)
{
    return checkpoint_save_as(&path, 1, s, full, m, NULL, 0);
}

bool checkpoint_save_as(const char *const *path, int paths, Session *s,
                        bool full, const Meta *m, const Extra *extra,
                        int extras)
{
    Arena mem = {0};
    SessionData data;
    StWrite w;
    // a failure in writing names the path itself
    bool ok = session_data(s, &data) &&
                      saving_make(&data, full, m, extra, extras, &mem, &w)
                  ? safetensors_save_as(path, paths, &w)
                  : within("%s", path[0]);
    arena_release(&mem);
    return ok;
}

// -- adding metadata ----------------------------------------------------------

// Tensors are copied unchanged, even types and names that this program would
// not have written.

static bool copy_tensor(void *ctx, int i, void *out)
{
    return safetensors_read(ctx, i, out);
}

/* Is a pair with this key not copied: a checksum, which the writer computes
 * again, or a key of *m? */
static bool is_replaced(const Meta *m, const char *key)
{
    return starts(key, "crc32c.") || meta_get(m, key);
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
        if (!is_replaced(m, f.meta.pair[i].key)) pair[pairs++] = f.meta.pair[i];
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

// -- opening ------------------------------------------------------------------

/* Opens a file with a known format; *f is closed on failure. A file of this
 * program without checksums has lost them: it is damaged, not foreign. */
static bool checkpoint_open(const char *path, Safetensors *f)
{
    if (!safetensors_open(path, f)) return false;
    const char *format = meta_get(&f->meta, "format");
    // PyTorch writes "pt" here, most other programs nothing
    bool ours = format && starts(format, "segengine ");
    if (!ours || (!strcmp(format, CHECKPOINT_FORMAT) && f->crcs)) return true;

    if (strcmp(format, CHECKPOINT_FORMAT))
        fail_data("%s: checkpoint: its format is \"%.32s\", this program reads "
                  "\"" CHECKPOINT_FORMAT
                  "\"; fix: use the version of segengine "
                  "that wrote it, or a later one",
                  path, format);
    else
        fail_data("%s: checkpoint: damaged: its checksums are missing", path);

    safetensors_close(f);
    return false;
}

/* Copies the metadata without checksums into `mem`, so that it outlives f. */
static bool meta_copy(const Safetensors *f, Arena *mem, Meta *m)
{
    *m = (Meta){.note = f->meta.note}; // a constant string, not part of f
    m->pair = ARENA_NEW(mem, MetaPair, f->meta.count + 1);
    if (!m->pair) return false;

    for (int i = 0; i < f->meta.count; i++) {
        const MetaPair *from = f->meta.pair + i;
        if (starts(from->key, "crc32c.")) continue;
        MetaPair *to = m->pair + m->count++;
        to->key = arena_strdup(mem, from->key);
        to->value = arena_strdup(mem, from->value);
        if (!to->key || !to->value) return false;
    }
    return true;
}

bool is_full(const Meta *m)
{
    const char *contents = meta_get(m, "contents");
    return contents && !strcmp(contents, "full");
}

/* Returns a number in the metadata; -1 if there is none of this name. At most
 * 18 digits: more than training can reach, and safe to add to. */
static int64_t number_of(const Meta *m, const char *key)
{
    const char *text = meta_get(m, key);
    size_t n = text ? strlen(text) : 0;
    bool number = n && n < 19 && strspn(text, "0123456789") == n;
    return number ? (int64_t)strtoll(text, NULL, 10) : -1;
}

int64_t steps_of(const Meta *m)
{
    return number_of(m, "steps");
}

/* Reads the training state of a full checkpoint. A scale that loss_scale.h
 * cannot produce means damage; 0 if there is none. */
static bool state_of(const Meta *m, const char *path, StepState *out)
{
    int64_t by = number_of(m, "loss_scale");
    int64_t good = number_of(m, "loss_scale_steps");
    int64_t start = number_of(m, "steps_start");

    *out = (StepState){.count = steps_of(m), .start = start < 0 ? 0 : start};
    if (out->start > out->count && out->count >= 0)
        return fail_data("%s: checkpoint: its moments begin at step %lld, "
                         "after its %lld steps; fix: load its weights instead",
                         path, (long long)start, (long long)out->count);
    if (!meta_get(m, "loss_scale")) return true;

    if (by < 1 || by > LOSS_SCALE_MOST || by & (by - 1) || good < 0 ||
        good >= LOSS_SCALE_GROWTH)
        return fail_data("%s: checkpoint: its loss scale is %lld after %lld "
                         "steps, want a power of two up to %d and less than %d "
                         "steps; fix: load its weights instead",
                         path, (long long)by, (long long)good, LOSS_SCALE_MOST,
                         LOSS_SCALE_GROWTH);

    out->scale = (LossScale){(double)by, good};
    return true;
}

bool checkpoint_meta(const char *path, Arena *mem, Meta *m)
{
    Safetensors f;
    if (!checkpoint_open(path, &f)) return false;
    bool ok = meta_copy(&f, mem, m);
    safetensors_close(&f);
    return ok;
}

bool checkpoint_verify(const char *path)
{
    Safetensors f;
    if (!checkpoint_open(path, &f)) return false;
    bool ok = safetensors_verify(&f);
    safetensors_close(&f);
    return ok;
}

// -- reasons ------------------------------------------------------------------

// A file that does not fit a network may differ in thousands of tensors; a
// reason lists the first few of each kind and counts the others.
enum { LISTED = 3 }; /* names of each kind that a reason lists */

/* A string that grows piece by piece; text beyond its size is cut. */
typedef struct Words {
    char text[ERR_MAX];
    size_t used;
    int count; /* number of listed names */
} Words;

/* Appends text; the part beyond the size is cut. */
static void words_add(Words *w, const char *text)
{
    size_t n = strlen(text), left = sizeof w->text - 1 - w->used;
    if (n > left) n = left;
    memcpy(w->text + w->used, text, n);
    w->used += n;
    w->text[w->used] = 0;
}

/* Appends "name" or, after the first, ", name"; after LISTED names one ", ..."
 * and then nothing, while `count` goes on. */
static void words_list(Words *w, const char *name)
{
    if (w->count && w->count < LISTED) words_add(w, ", ");
    if (w->count == LISTED) words_add(w, ", ...");
    if (w->count++ < LISTED) words_add(w, name);
}

/* "(3,2,3,3)", as PyTorch prints a shape. */
static void words_shape(Words *w, const int64_t *shape, int axes)
{
    char number[32];
    words_add(w, "(");
    for (int i = 0; i < axes; i++) {
        snprintf(number, sizeof number, "%s%lld", i ? "," : "",
                 (long long)shape[i]);
        words_add(w, number);
    }
    words_add(w, ")");
}

// -- loading ------------------------------------------------------------------

/* Is this parameter not in the file's own network, which computes the outputs?
 * Then only the loss needed it, such as the coarse outputs of deep supervision.
 * `name` is the file's, of weights or of their average. */
static bool for_training(const Safetensors *f, const char *name)
{
    char line[ST_NAME + 16];
    const char *network = meta_get(&f->meta, "graph");
    if (!network || starts(name, "optim.")) return false;
    if (starts(name, "ema.")) name += strlen("ema.");
    snprintf(line, sizeof line, "\nparam %s ", name);
    return !strstr(network, line);
}

/* Options of a load. */
typedef struct Wanted {
    bool full, partial; // with moments; missing tensors are no error
    RenameFn *rename;   // NULL: names are the same
    void *ctx;
} Wanted;

/* A load in progress; on the heap, as its strings are large. */
typedef struct Loading {
    Wanted wanted;
    const char *path;
    Safetensors file;
    const Params *params;
    Entries entries;
    double *user;
    bool ema;                       // use the file's averages as weights
    Words missing, unknown, shapes; // by kind of mismatch
} Loading;

/* Is this tensor of the file not needed by this load? */
static bool left_out(const Loading *l, const char *name)
{
    bool average = starts(name, ema_prefix) || starts(name, swa_prefix);
    if (starts(name, CHECKPOINT_BATCH)) return true;
    return (average && !(l->wanted.full && l->params->average)) ||
           (starts(name, "optim.") && !l->wanted.full);
}

/* Does the file have averages over steps? A load of weights alone takes them,
 * since the run measured them, and ignores the prefix in their names. */
static bool has_ema(const Safetensors *f)
{
    for (int i = 0; i < f->count; i++)
        if (starts(f->tensor[i].name, ema_prefix)) return true;
    return false;
}

/* Returns the name in the network for a tensor of the file; NULL: skipped.
 * PyTorch counts the batches of each batch norm; no operator here uses that. */
static const char *wanted_name(const Loading *l, const char *in_file)
{
    if (ends(in_file, ".num_batches_tracked")) return NULL;
    if (l->wanted.rename) return l->wanted.rename(l->wanted.ctx, in_file);
    if (l->ema)
        return starts(in_file, ema_prefix) ? in_file + strlen(ema_prefix)
                                           : NULL;
    return left_out(l, in_file) ? NULL : in_file;
}

/* Assigns to each entry its tensor of the file, and lists tensors without
 * entry. False only if two names become equal; other mismatches are reported
 * together with the shapes. */
static bool match_names(Loading *l)
{
    for (int i = 0; i < l->file.count; i++) {
        const char *in_file = l->file.tensor[i].name;
        const char *name = wanted_name(l, in_file);
        if (!name) continue;
        // entries_make has sorted the list
        Entry *e = bsearch(&(Entry){.name = name}, l->entries.list,
                           (size_t)l->entries.count, sizeof *e, by_name);
        if (!e && for_training(&l->file, in_file)) continue;
        if (!e)
            words_list(&l->unknown, name);
        else if (e->from >= 0)
            return fail_data("%s: checkpoint: %s and %s are both renamed to %s",
                             l->path, l->file.tensor[e->from].name, in_file,
                             name);
        else
            e->from = i;
    }
    return true;
}

/* Checks that every entry has a tensor of its shape; else the reason lists the
 * mismatches. */
static bool match_shapes(Loading *l)
{
    for (int i = 0; i < l->entries.count; i++) {
        const Entry *e = l->entries.list + i;
        const Param *p = l->params->list + e->param;
        if (e->from < 0) {
            if (!l->wanted.partial) words_list(&l->missing, e->name);
            continue;
        }
        const StTensor *t = l->file.tensor + e->from;
        int64_t shape[2 + RANK_MAX];
        int axes = dims_to_user(p->dim, p->rank, shape);
        if (axes == t->axes &&
            !memcmp(shape, t->shape, (size_t)axes * sizeof *shape))
            continue;
        words_list(&l->shapes, e->name);
        if (l->shapes.count > LISTED) continue;
        words_add(&l->shapes, " ");
        words_shape(&l->shapes, t->shape, t->axes);
        words_add(&l->shapes, " instead of ");
        words_shape(&l->shapes, shape, axes);
    }

    const Words *part[] = {&l->missing, &l->unknown, &l->shapes};
    static const char *const what[] = {"missing", "unknown",
                                       "of another shape"};
    Words all = {.used = 0};
    char number[32];

    for (int i = 0; i < 3; i++) {
        if (!part[i]->count) continue;
        snprintf(number, sizeof number, "%d ", part[i]->count);
        words_add(&all, all.used ? "; " : "");
        words_add(&all, number);
        words_add(&all, what[i]);
        words_add(&all, ": ");
        words_add(&all, part[i]->text);
    }

    return !all.used || fail_data("%s: checkpoint: does not fit this network: "
                                  "%s",
                                  l->path, all.text);
}

/* Reads every tensor that has an entry, and writes it to the session if `set`.
 * Each read compares the checksum, so even a file that changes between the two
 * passes cannot bring in a damaged tensor. */
static bool walk(const Loading *l, bool set)
{
    for (int i = 0; i < l->entries.count; i++) {
        const Entry *e = l->entries.list + i;
        int64_t count = numel(l->params->list[e->param].dim);
        if (e->from < 0) continue; // of a partial load
        if (!safetensors_read_f64(&l->file, e->from, l->user)) return false;
        if (!entry_finite(e, F64, l->user, count))
            return within("%s: checkpoint", l->path);
        if (set && !entry_write(l->params, e, l->user)) return false;
    }
    return true;
}

static bool load(const char *path, Session *s, Wanted wanted, Arena *mem,
                 Meta *m)
{
    bool ok = false, full = wanted.full;
    Arena own = {0}; // `mem` is the caller's and gets only the metadata
    Loading *l = mem_alloc(sizeof *l);

    if (!l) return false;

    // zeroed memory: `file` counts as closed if a step below fails
    l->wanted = wanted;
    l->path = path;
    l->params = session_params(s);
    const SessionData data = {.params = l->params, .ema = session_has_ema(s)};
    TRY(entries_make(&data, full, &own, &l->entries));
    TRY(checkpoint_open(path, &l->file));
    l->ema = !full && has_ema(&l->file);
    TRY(meta_copy(&l->file, mem, m));
    StepState state;
    TRY(!full || state_of(m, path, &state));

    if (full && (!is_full(m) || state.count < 0)) {
        fail_data("%s: checkpoint: it has weights but no optimiser state, so "
                  "no run can continue from it; fix: load its weights instead",
                  path);
        goto done;
    }

    TRY(match_names(l));
    TRY(match_shapes(l));
    TRY(l->user = ARENA_NEW(&own, double, params_most(l->params)));

    // all checks are done before the first parameter changes
    TRY(safetensors_verify(&l->file));
    TRY(walk(l, false));
    TRY(walk(l, true));
    TRY(!full || session_set_state(s, &state));
    ok = true;

done:
    safetensors_close(&l->file);
    mem_free(l);
    arena_release(&own);
    return ok;
}

bool checkpoint_load(const char *path, Session *s, bool full, Arena *mem,
                     Meta *m)
{
    return load(path, s, (Wanted){.full = full}, mem, m);
}

bool checkpoint_import(const char *path, Session *s, RenameFn *rename,
                       void *ctx, bool partial, Arena *mem, Meta *m)
{
    Wanted wanted = {.partial = partial, .rename = rename, .ctx = ctx};
    return load(path, s, wanted, mem, m);
}
