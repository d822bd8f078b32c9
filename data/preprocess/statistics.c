/* statistics.c -- see statistics.h.
 *
 * A fit goes over all cases up to three times. Percentiles are found with
 * histograms of the upper, then the lower 16 bits of the numbers, so that they
 * are exact for any number of voxels; then follow mean and deviation of the
 * clipped numbers. Each case is handled by one thread. Threads only add counts,
 * and sums are merged in the order of the cases, so the result does not depend
 * on timing. */
#include "data/preprocess/statistics.h"
#include "data/parallel_for.h"
#include "data/preprocess/moments.h"
#include "data/steps/standardize.h"
#include <math.h>
#include <pthread.h>
#include <string.h>

enum {
    BINS = 1 << 16,
    RANKS = 4, /* order statistics of a channel: two per percentile        */
};

/* An order statistic to be found. */
typedef struct Rank {
    int64_t place; /* rank from 0; within its bin once the bin is known */
    int bin;       /* upper 16 bits of its key                  */
    int row;       /* of the histogram of lower bits            */
    float value;
} Rank;

/* Shared by the threads of a pass. */
typedef struct Fit {
    const Dataset *ds;
    Pipeline *p; /* of the steps before; NULL for numbers, which no earlier step
                  * changes */
    const DataStep *step;
    const atomic_bool *stop;
    int field, label, length; /* fields of ds; label, length -1: not needed */
    int32_t channels;
    int32_t *first; /* (cases + 1): number of the first sample of a case */

    /* one pass */
    bool lower;          /* histogram of the lower bits, else of the upper */
    int rows;            /* of the histogram; 0: a pass for moments     */
    int64_t *histogram;  /* (rows, BINS)                                */
    Rank (*rank)[RANKS]; /* (channels)                                 */
    int64_t count;       /* voxels or cases, per channel               */
    double low[MAX_STEP_REALS], high[MAX_STEP_REALS];
    Moments *moments; /* (cases, channels) */

    uint32_t *counts[MAX_PARALLEL]; /* (rows, BINS) of each thread, zero between
                                     * cases; allocated by its first case */
    pthread_mutex_t lock;           /* guards histogram and count    */
} Fit;

/* ---- the numbers of a case ---------------------------------------------- */

/* Numbers (n, channels) of a case, in one block. */
typedef struct Values {
    float *x;
    int64_t n;
} Values;

/* The numbers of a field of numbers. */
static bool case_numbers(const Fit *fit, int item, Values *out)
{
    Volume v;
    if (!case_load(fit->ds, item, fit->field, NULL, &v, NULL)) return false;
    const size_t bytes = (size_t)fit->channels * sizeof *out->x;
    CHECK(v.voxels.type == F32 && v.voxels.dim.c == fit->channels);
    out->x = mem_alloc(bytes);
    if (out->x) memcpy(out->x, v.voxels.data, bytes);
    out->n = 1;
    volume_free(&v);
    return out->x != NULL;
}

/* Adds the selected voxels of one sample. */
static void select_voxels(Dims n, const float *x, const float *label,
                          int32_t own, Values *out)
{
    for (int64_t i = 0; i < positions(n); i++) {
        if ((int32_t)(i % n.w) >= own || (label && label[i] == 0)) continue;
        memcpy(out->x + out->n++ * n.c, x + i * n.c, (size_t)n.c * sizeof *x);
    }
}

/* Collects the voxels of all samples of a case. */
static bool case_voxels(const Fit *fit, int item, Values *out)
{
    const int32_t from = fit->first[item], to = fit->first[item + 1];
    const Dims n = pipeline_dims_of(fit->p, from, fit->field);
    float *label = NULL, length = 0, *block[MAX_FIELDS] = {NULL};
    size_t bytes;
    bool ok = false;

    *out = (Values){NULL, 0};
    TRY(size_mul((size_t)(to - from), (size_t)numel(n) * sizeof(float),
                 &bytes));
    TRY(out->x = mem_alloc(bytes));
    TRY(block[fit->field] = mem_alloc((size_t)numel(n) * sizeof(float)));
    if (fit->label >= 0)
        TRY(block[fit->label] = label =
                mem_alloc((size_t)positions(n) * sizeof(float)));
    if (fit->length >= 0) block[fit->length] = &length;
    for (int32_t i = from; i < to; i++) {
        TRY(pipeline_sample(fit->p, i, 0, false, fit->stop, block));
        select_voxels(n, block[fit->field], label,
                      fit->length < 0 ? n.w : (int32_t)length, out);
    }

    ok = true;

done:
    mem_free(label);
    mem_free(block[fit->field]);
    if (!ok) mem_free(out->x);
    return ok;
}

/* ---- one case in a pass -------------------------------------------------- */

/* A key with the order of x: the sign bit of floats sorts the wrong way. */
static uint32_t key_of(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u >> 31 ? ~u : u | 0x80000000u;
}

static float key_value(uint32_t key)
{
    const uint32_t u = key >> 31 ? key & 0x7fffffffu : ~key;
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

/* Adds the values of a case to the histograms `counts` (rows, BINS). First
 * pass: the upper 16 bits of the keys, one row for each channel. Second pass
 * (fit->lower): the lower bits of the keys in the bin of a rank, one row for
 * each such bin. */
static void count_case(const Fit *fit, const Values *v, uint32_t *counts)
{
    for (int64_t i = 0; i < v->n * fit->channels; i++) {
        const int32_t c = (int32_t)(i % fit->channels);
        const uint32_t key = key_of(v->x[i]);
        if (!fit->lower) {
            counts[(size_t)c * BINS + (key >> 16)]++;
            continue;
        }
        for (int k = 0, row = -1; k < RANKS; k++) {
            const Rank *r = &fit->rank[c][k];
            // ranks in the same bin share a row
            if (r->bin != (int)(key >> 16) || r->row == row) continue;
            row = r->row;
            counts[(size_t)row * BINS + (key & (BINS - 1))]++;
        }
    }
}

static bool walk_case(void *context, int thread, int item)
{
    Fit *fit = context;
    const size_t n = (size_t)fit->rows * BINS;
    uint32_t **counts = &fit->counts[thread];
    Values v = {NULL, 0};

    if (fit->first && fit->first[item] == fit->first[item + 1]) return true;
    if (n && !*counts && !(*counts = mem_alloc(n * sizeof **counts)))
        return false;
    if (!(fit->p ? case_voxels(fit, item, &v) : case_numbers(fit, item, &v)))
        return false;

    if (!n) {
        for (int32_t c = 0; c < fit->channels; c++)
            fit->moments[item * fit->channels + c] = moments_of(
                v.x + c, v.n, fit->channels, fit->low[c], fit->high[c]);
    } else {
        count_case(fit, &v, *counts);
        pthread_mutex_lock(&fit->lock);
        for (size_t i = 0; i < n; i++) fit->histogram[i] += (*counts)[i];
        if (!fit->lower) fit->count += v.n;
        pthread_mutex_unlock(&fit->lock);
        memset(*counts, 0, n * sizeof **counts);
    }

    mem_free(v.x);
    return true;
}

/* Runs a pass over all cases in up to `threads` threads. */
static bool walk(Fit *fit, int threads)
{
    pthread_mutex_init(&fit->lock, NULL);
    const bool ok =
        parallel_for(fit->ds->count, threads, fit->stop, walk_case, fit);
    for (int i = 0; i < MAX_PARALLEL; i++) {
        mem_free(fit->counts[i]);
        fit->counts[i] = NULL;
    }
    pthread_mutex_destroy(&fit->lock);
    return ok;
}

/* ---- percentiles -------------------------------------------------------- */

/* Returns the bin of rank r in a histogram; r->place becomes its rank within
 * the bin. */
static int find_bin(const int64_t *row, Rank *r)
{
    int bin = 0;
    while (r->place >= row[bin]) r->place -= row[bin++];
    return bin;
}

static bool histogram_walk(Fit *fit, int rows, bool lower, int threads)
{
    size_t bytes;
    mem_free(fit->histogram);
    fit->histogram = NULL;
    if (!size_mul((size_t)rows, BINS * sizeof *fit->histogram, &bytes))
        return false;
    fit->histogram = mem_alloc(bytes);
    fit->rows = rows;
    fit->lower = lower;
    const bool ok = fit->histogram && walk(fit, threads);
    fit->rows = 0;
    return ok;
}

static bool nothing_selected(const Fit *fit)
{
    return fail_data("standardize: %s of the training set has %s",
                     fit->ds->field[fit->field].name,
                     fit->label < 0 ? "no voxels"
                                    : "no voxel with a label (of = "
                                      "\"foreground\")");
}

/* Finds low and high of all channels from the percentiles of the step. */
static bool find_bounds(Fit *fit, int threads)
{
    const double *clip = fit->step->standardize.clip;
    double part[2];
    int rows = 0;

    if (!histogram_walk(fit, fit->channels, false, threads)) return false;
    if (!fit->count) return nothing_selected(fit);

    for (int32_t c = 0; c < fit->channels; c++) {
        for (int k = 0; k < RANKS; k++) {
            Rank *r = &fit->rank[c][k];
            const double at = clip[k / 2] / 100 * (double)(fit->count - 1);
            r->place = (int64_t)at + k % 2;
            if (r->place > fit->count - 1) r->place = fit->count - 1;
            part[k / 2] = at - floor(at);
            r->bin = find_bin(fit->histogram + (size_t)c * BINS, r);
            // ranks ascend, so equal bins are adjacent
            r->row = k && r[-1].bin == r->bin ? r[-1].row : rows++;
        }
    }

    if (!histogram_walk(fit, rows, true, threads)) return false;
    for (int32_t c = 0; c < fit->channels; c++) {
        for (int k = 0; k < RANKS; k++) {
            Rank *r = &fit->rank[c][k];
            const int low = find_bin(fit->histogram + (size_t)r->row * BINS, r);
            r->value = key_value((uint32_t)r->bin << 16 | (uint32_t)low);
        }
        const Rank *r = fit->rank[c];
        fit->low[c] =
            r[0].value + part[0] * ((double)r[1].value - (double)r[0].value);
        fit->high[c] =
            r[2].value + part[1] * ((double)r[3].value - (double)r[2].value);
    }
    return true;
}

/* ---- a step ------------------------------------------------------------- */

/* Merges the moments of all cases, in order. */
static Moments merge(const Fit *fit, int32_t c)
{
    Moments all = {0};
    for (int i = 0; i < fit->ds->count; i++)
        moments_merge(&all, &fit->moments[i * fit->channels + c]);
    return all;
}

/* Stores the numbers of all channels in the step. */
static bool find_numbers(Fit *fit, DataStep *s, int threads)
{
    const char *name = fit->ds->field[fit->field].name;
    const bool cut = s->standardize.clip[0] > 0 || s->standardize.clip[1] < 100;
    for (int32_t c = 0; c < fit->channels; c++)
        fit->low[c] = -INFINITY, fit->high[c] = INFINITY;
    if ((cut && !find_bounds(fit, threads)) || !walk(fit, threads))
        return false;
    s->standardize.mean_count = s->standardize.sd_count = fit->channels;
    s->standardize.low_count = cut ? fit->channels : 0;
    s->standardize.high_count = s->standardize.low_count;

    for (int32_t c = 0; c < fit->channels; c++) {
        const Moments m = merge(fit, c);
        if (m.n == 0) return nothing_selected(fit);
        const double sd = moments_sd(&m);
        fit->count = (int64_t)m.n;
        if (!(sd > 0))
            return fail_data("standardize: %s %d of %s is %g in all of the "
                             "training set%s, there is nothing to standardize",
                             fit->p ? "channel" : "number", c + 1, name, m.mean,
                             cut ? " once it is cut by clip" : "");
        s->standardize.mean[c] = m.mean;
        s->standardize.sd[c] = sd;
        if (cut) s->standardize.low[c] = fit->low[c];
        if (cut) s->standardize.high[c] = fit->high[c];
    }
    return true;
}

/* Opens a pipeline for the cases, and counts channels. */
static bool open_cases(Fit *fit, const Steps *steps, int at,
                       const PipelineOptions *options)
{
    const Dataset *ds = fit->ds;
    const size_t cases = (size_t)ds->count;
    Steps before;

    if (ds->field[fit->field].kind == FIELD_NUMBER) {
        Volume v;
        if (!case_load(ds, 0, fit->field, NULL, &v, NULL)) return false;
        fit->channels = v.voxels.dim.c;
        volume_free(&v);
    } else {
        if (!steps_before(steps, at, &before) ||
            !pipeline_open(ds, &before, options, &fit->p) ||
            !(fit->first = mem_alloc((cases + 1) * sizeof *fit->first)))
            return false;
        ds = fit->ds = pipeline_dataset(fit->p); // without bad cases
        const int32_t samples = pipeline_samples(fit->p);
        for (int32_t i = 0, item = 0; item <= ds->count; item++) {
            while (i < samples && pipeline_id(fit->p, i).item < item) i++;
            fit->first[item] = i;
        }
        fit->channels = pipeline_facts(fit->p, 0)->channels[fit->field];
        for (int i = 0; i < ds->count; i++) {
            const int c = pipeline_facts(fit->p, i)->channels[fit->field];
            if (c != fit->channels)
                return fail_data("standardize: %s of %s has %d channels, of %s "
                                 "%d",
                                 ds->field[fit->field].name, ds->cases[0].key,
                                 fit->channels, ds->cases[i].key, c);
        }
    }

    if (fit->channels > MAX_STEP_REALS)
        return fail_usage("standardize: %s has %d channels, at most %d are "
                          "standardized; fix: normalize",
                          ds->field[fit->field].name, fit->channels,
                          MAX_STEP_REALS);

    const size_t n = (size_t)fit->channels;
    fit->rank = mem_alloc(n * sizeof *fit->rank);
    fit->moments = mem_alloc(cases * n * sizeof *fit->moments);
    return fit->rank && fit->moments;
}

/* Appends "standardize image: 12 cases, 3145728 voxels: mean 512, sd 120 in 3
 * .. 1801; ..." to *said. */
static bool say(const Fit *fit, const DataStep *s, Arena *mem,
                const char **said)
{
    enum { SHOWN = 8 };
    char *line = arena_printf(mem, "%sstandardize %s: %d cases", *said,
                              fit->ds->field[fit->field].name, fit->ds->count);
    if (line && fit->p)
        line =
            arena_printf(mem, "%s, %lld voxels%s", line, (long long)fit->count,
                         fit->label < 0 ? "" : " with a label");

    for (int32_t c = 0; line && c < fit->channels && c < SHOWN; c++) {
        line = arena_printf(mem, "%s%s mean %.7g, sd %.7g", line, c ? ";" : ":",
                            s->standardize.mean[c], s->standardize.sd[c]);
        if (line && s->standardize.low_count > 0)
            line = arena_printf(mem, "%s in %.7g .. %.7g", line,
                                s->standardize.low[c], s->standardize.high[c]);
    }

    if (line)
        line = arena_printf(mem, "%s%s\n", line,
                            fit->channels > SHOWN ? "; ..." : "");
    if (line) *said = line;
    return line != NULL;
}

/* Finds the field of a step and checks its kind. */
static bool find_field(const Dataset *ds, DataStep *s, int *field)
{
    char what[STEP_NAME];
    *field = standardize_field(s, ds);
    if (*field < 0)
        return fail_usage("standardize: the training set has no field \"%s\"",
                          standardize_what(s, what));
    const FieldKind kind = ds->field[*field].kind;
    if (kind != FIELD_IMAGE && kind != FIELD_NUMBER)
        return fail_usage("standardize: %s is neither an image nor numbers",
                          ds->field[*field].name);
    if (kind == FIELD_NUMBER && (int)s->standardize.of == OF_FOREGROUND)
        return fail_usage("standardize: %s has no foreground",
                          ds->field[*field].name);
    s->standardize.kind =
        kind == FIELD_IMAGE ? STANDARDIZE_IMAGE : STANDARDIZE_NUMBERS;
    return true;
}

/* Finds the numbers of step number `at`. */
static bool fit_step(const Dataset *ds, Steps *steps, int at,
                     const PipelineOptions *options, Arena *mem,
                     const char **said)
{
    DataStep *s = &steps->step[at];
    Fit fit = {
        .ds = ds, .step = s, .stop = options->stop, .label = -1, .length = -1};
    bool ok = false;

    TRY(find_field(ds, s, &fit.field));
    if (s->standardize.mean_count > 0) return true; // given in the recipe
    if ((int)s->standardize.of == OF_FOREGROUND &&
        (fit.label = dataset_label(ds)) < 0)
        return fail_usage("standardize: of = \"foreground\", but the training "
                          "set has no labels");
    for (int f = 0; f < ds->fields; f++)
        if (ds->field[f].kind == FIELD_LENGTH) fit.length = f;
    TRY(open_cases(&fit, steps, at, options));
    TRY(find_numbers(&fit, s, options->threads));
    TRY(say(&fit, s, mem, said));
    ok = true;

done:
    pipeline_free(fit.p);
    mem_free(fit.first);
    mem_free(fit.histogram);
    mem_free(fit.rank);
    mem_free(fit.moments);
    return ok;
}

bool statistics_fit(const Dataset *ds, Steps *steps,
                    const PipelineOptions *options, Arena *mem,
                    const char **said)
{
    Steps found = *steps;
    *said = "";
    if (!ds->count) return fail_data("the data set has no cases");
    for (int i = 0; i < found.count; i++)
        if (found.step[i].id == STEP_standardize &&
            !fit_step(ds, &found, i, options, mem, said))
            return false;
    *steps = found;
    return true;
}
