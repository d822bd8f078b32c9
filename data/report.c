/* report.c -- what was opened, as text (pipeline_report of pipeline.h). */
#include "pipeline.h"
#include <stdio.h>
#include <string.h>

/* "256" or "192..256". */
static void range_text(double lo, double hi, char *text, size_t room)
{
    char high[20];
    snprintf(text, room, "%.4g", lo);
    snprintf(high, sizeof high, "%.4g", hi);
    size_t used = strlen(text);
    // what differs beyond these digits is said once
    if (strcmp(text, high)) snprintf(text + used, room - used, "..%s", high);
}

/* Smallest and largest of the six numbers of the input grids. */
static void grid_ranges(const Pipeline *p, char text[6][40])
{
    double lo[6], hi[6];
    for (int i = 0; i < pipeline_dataset(p)->count; i++) {
        const Grid *g = &pipeline_facts(p, i)->input;
        Volume v = {.voxels.dim = {1, g->d, g->h, g->w, 1}};
        // extents, then spacings
        double at[6] = {g->w, g->h, g->d, 0, 0, 0};
        memcpy(v.affine, g->affine, sizeof v.affine);
        volume_spacing_mm(&v, at + 3);
        for (int k = 0; k < 6; k++) {
            lo[k] = i && lo[k] < at[k] ? lo[k] : at[k];
            hi[k] = i && hi[k] > at[k] ? hi[k] : at[k];
        }
    }
    for (int k = 0; k < 6; k++) range_text(lo[k], hi[k], text[k], 40);
}

char *pipeline_report(Pipeline *p, Arena *mem)
{
    const Dataset *ds = pipeline_dataset(p);
    char grid[6][40], share[256] = "", dims[DIMS_TEXT];
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
    grid_ranges(p, grid);
    CacheStats c = pipeline_cache(p);
    char *cases = dataset_report(ds, mem);
    if (!cases) return NULL;
    int samples = pipeline_samples(p);
    char *text = arena_printf(
        mem,
        "%s\ninput %s x %s x %s voxels of %s x %s x %s mm%s\n"
        "%d sample%s, %s %s; %d of %d volume%s ",
        cases, grid[0], grid[1], grid[2], grid[3], grid[4], grid[5], share,
        samples, samples == 1 ? "" : "s", samples == 1 ? "of" : "the first",
        dims_text(pipeline_dims_of(p, 0, 0), pipeline_rank(p, 0), dims), c.kept,
        c.count, c.count == 1 ? "" : "s");
    if (!text) return NULL;
    // what lies in the file of prepared cases takes no memory of its own
    if (c.kept && !c.bytes)
        return arena_printf(mem, "%smapped from the file of prepared cases",
                            text);
    return arena_printf(mem, "%skept in %.1f MB (all: %.1f MB, budget %.1f MB)",
                        text, (double)c.bytes / 1e6, (double)bytes / 1e6,
                        (double)c.budget / 1e6);
}
