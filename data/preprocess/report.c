/* report.c -- describes an open pipeline as text (pipeline_report of
 * pipeline.h), and checks that all samples have one size. */
#include "data/preprocess/pipeline.h"
#include <stdio.h>
#include <string.h>

/* "256" or "192..256". */
static void range_text(double lo, double hi, char *text, size_t room)
{
    char high[20];
    snprintf(text, room, "%.4g", lo);
    snprintf(high, sizeof high, "%.4g", hi);
    size_t used = strlen(text);
    // the range is omitted if both ends agree in the printed digits
    if (strcmp(text, high)) snprintf(text + used, room - used, "..%s", high);
}

/* Ranges of the six numbers of the input grids, as text. */
static void grid_ranges(const Pipeline *p, char text[6][40])
{
    double lo[6], hi[6];
    for (int i = 0; i < pipeline_dataset(p)->count; i++) {
        const Grid *g = &pipeline_facts(p, i)->input;
        // extents, then spacings
        double at[6] = {g->w, g->h, g->d, 0, 0, 0};
        grid_spacing_mm(g, at + 3);
        for (int k = 0; k < 6; k++) {
            lo[k] = i && lo[k] < at[k] ? lo[k] : at[k];
            hi[k] = i && hi[k] > at[k] ? hi[k] : at[k];
        }
    }
    for (int k = 0; k < 6; k++) range_text(lo[k], hi[k], text[k], 40);
}

/* Size of the text of the extents of all cases. */
enum { INPUT_TEXT = 300, MIB = 1 << 20 };

/* The noun for an image of this rank. */
static const char *const noun[] = {"case", "sequence", "picture", "volume"};

/* Extents of the input, and for volumes the voxel size: elements of a sequence
 * and pixels have no size in a patient. */
static void input_text(const Pipeline *p, int rank, char text[INPUT_TEXT])
{
    char grid[6][40];
    grid_ranges(p, grid);
    if (rank == 1)
        snprintf(text, INPUT_TEXT, "%s steps", grid[0]);
    else if (rank == 2)
        snprintf(text, INPUT_TEXT, "%s x %s pixels", grid[0], grid[1]);
    else
        snprintf(text, INPUT_TEXT, "%s x %s x %s voxels of %s x %s x %s mm",
                 grid[0], grid[1], grid[2], grid[3], grid[4], grid[5]);
}

char *pipeline_report(Pipeline *p, Arena *mem)
{
    const Dataset *ds = pipeline_dataset(p);
    const int rank = ds->field[0].rank;
    char input[INPUT_TEXT], share[256] = "", dims[DIMS_TEXT];
    int64_t voxels[MAX_LABELS + 1] = {0}, all = 0, slices = 0, marked = 0;
    int64_t bytes = 0;

    for (int i = 0; i < ds->count; i++) {
        const CaseFacts *f = pipeline_facts(p, i);
        slices += f->slices, marked += f->foreground_slices;
        bytes += f->bytes;
        for (int k = 0; f->voxels && k <= MAX_LABELS; k++)
            voxels[k] += f->voxels[k], all += f->voxels[k];
    }

    for (int k = 1; k <= MAX_LABELS && all; k++) {
        size_t at = strlen(share);
        if (voxels[k])
            snprintf(share + at, sizeof share - at, "; class %d %.3g %%", k,
                     100.0 * (double)voxels[k] / (double)all);
    }

    if (dataset_label(ds) >= 0) {
        size_t at = strlen(share);
        snprintf(share + at, sizeof share - at,
                 "; %lld of %lld slices with foreground", (long long)marked,
                 (long long)slices);
    }

    input_text(p, rank, input);
    CacheStats c = pipeline_cache(p);
    const BadCase *bad;
    char *cases = dataset_report(ds, mem), left[64] = "";
    if (!cases) return NULL;
    if (pipeline_bad(p, &bad))
        snprintf(left, sizeof left, "; %d left out, as %s cannot be read",
                 pipeline_bad(p, &bad),
                 pipeline_bad(p, &bad) == 1 ? "it" : "they");
    int samples = pipeline_samples(p);
    char *text = arena_printf(
        mem,
        "%s%s\ninput %s%s\n"
        "%d sample%s, %s %s; %d of %d %s%s ",
        cases, left, input, share, samples, samples == 1 ? "" : "s",
        samples == 1 ? "of" : "the first",
        dims_text(pipeline_dims_of(p, 0, 0), pipeline_rank(p, 0), dims), c.kept,
        c.count, noun[rank], c.count == 1 ? "" : "s");
    if (!text) return NULL;

    // volumes mapped from the store do not count in the cache
    if (c.kept && !c.bytes)
        return arena_printf(mem, "%smapped from the file of prepared cases",
                            text);
    return arena_printf(
        mem, "%skept in %.1f MiB (all: %.1f MiB, budget %.1f MiB)", text,
        (double)c.bytes / MIB, (double)bytes / MIB, (double)c.budget / MIB);
}

/* The name of a number of channels, for pictures. */
static const char *colors_of(int rank, int c)
{
    if (rank != 2) return "";
    return c == 1 ? " (grey)" : c == 3 ? " (RGB)" : "";
}

/* Fails: cases a and b differ in their number of channels, which no step
 * changes. */
static bool other_channels(const Pipeline *p, int field, int a, int b)
{
    const Dataset *ds = pipeline_dataset(p);
    const DatasetField *f = &ds->field[field];
    const int left = pipeline_facts(p, a)->channels[field];
    const int right = pipeline_facts(p, b)->channels[field];
    return fail_data("samples differ in channels: %s of %s has %d%s, of %s "
                     "%d%s (%s, %s); fix: save all files in one way",
                     f->name, ds->cases[a].key, left, colors_of(f->rank, left),
                     ds->cases[b].key, right, colors_of(f->rank, right),
                     ds->cases[a].field[field].source->path,
                     ds->cases[b].field[field].source->path);
}

/* Compares with the first sample; extents differ between cases, not between
 * slices of a case. any_w: they may differ in w, and *out has the largest. */
static bool common_dims(const Pipeline *p, int field, bool any_w, Dims *out)
{
    const Dataset *ds = pipeline_dataset(p);
    const int rank = pipeline_rank(p, field);
    const Dims want = *out = pipeline_dims_of(p, 0, field);
    const int first = pipeline_id(p, 0).item;

    for (int32_t i = 1; i < pipeline_samples(p); i++) {
        const int item = pipeline_id(p, i).item;
        Dims n = pipeline_dims_of(p, i, field), like = want;
        if (any_w) like.w = n.w;
        if (n.w > out->w) out->w = n.w;
        if (dims_equal(n, like)) continue;
        char a[DIMS_TEXT], b[DIMS_TEXT];
        if (n.c != want.c) return other_channels(p, field, first, item);
        like.w = n.w;
        return fail_data(
            "samples differ in size: %s of %s is %s, of %s %s; fix: a fit or "
            "resize step%s%s",
            ds->field[field].name, ds->cases[first].key,
            dims_text(want, rank, a), ds->cases[item].key,
            dims_text(n, rank, b), any_w ? "" : ", or batches of 1",
            !any_w && dims_equal(n, like)
                ? ", or batches { bucket = \"length\" }, as only w differs"
                : "");
    }
    return true;
}

bool pipeline_dims(const Pipeline *p, int field, Dims *out)
{
    return common_dims(p, field, false, out);
}

bool pipeline_dims_but_w(const Pipeline *p, int field, Dims *out)
{
    return common_dims(p, field, true, out);
}
