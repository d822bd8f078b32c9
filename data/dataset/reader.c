/* reader.c -- the table of readers, and arrays as volumes. */
#include "data/dataset/reader.h"
#include "data/dataset/dataset_build.h"
#include "data/datasets/beams.h"
#include "data/datasets/openkbp.h"
#include "data/format/npy.h"
#include <stdio.h>
#include <string.h>

static bool load_nifti(const Source *s, Volume *out, DicomNotes *notes)
{
    const ReaderHow *how = s->how;
    NiftiOptions o = how->options->nifti;
    o.label = how->kind == FIELD_LABEL;
    return source_read_nifti(s->path, &o, out, notes);
}

static bool nifti_depends(const Source *s, Arena *mem, SourceFacts *out)
{
    const ReaderHow *how = s->how;
    return source_nifti(s, &how->options->nifti, mem, out);
}

/* Finds the axes of an array: for d, h, w, c the axis of the file, or -1. */
static bool find_axes(const ReaderHow *how, const NpyArray *a, int at[4])
{
    static const char letter[] = "dhwc";
    // by rank, without and with channels
    static const char *const usual[4][2] = {
        {"", "c"}, {"w", "wc"}, {"hw", "hwc"}, {"dhw", "dhwc"}};
    const char *axes = how->options->axes;

    if (!*axes && (a->axes == how->rank || a->axes == how->rank + 1))
        axes = usual[how->rank][a->axes - how->rank];

    if ((int)strlen(axes) != a->axes)
        return fail_data("npy: %d axes, want %s", a->axes,
                         *axes            ? axes
                         : how->rank == 3 ? "dhw or dhwc"
                         : how->rank == 2 ? "hw or hwc"
                                          : "w or wc");

    for (int k = 0; k < 4; k++) {
        const char *found = strchr(axes, letter[k]);
        at[k] = found ? (int)(found - axes) : -1;
    }
    return true;
}

/* Copies the numbers to the order (d, h, w, c). */
static bool arrange(const ReaderHow *how, const NpyArray *a, Volume *out)
{
    int at[4];
    int64_t n[4], step[4], stride = 1, of[NPY_AXES];
    if (!find_axes(how, a, at)) return false;
    for (int k = a->axes - 1; k >= 0; k--)
        of[k] = stride, stride *= a->shape[k];

    for (int k = 0; k < 4; k++) {
        n[k] = at[k] < 0 ? 1 : a->shape[at[k]];
        step[k] = at[k] < 0 ? 0 : of[at[k]];
        if (n[k] > INT32_MAX)
            return fail_data("npy: an axis of %lld", (long long)n[k]);
    }

    const Dims dim = {1, (int32_t)n[0], (int32_t)n[1], (int32_t)n[2],
                      (int32_t)n[3]};
    if (!volume_new(out, dim, F32)) return false;
    float *y = out->voxels.data;

    for (int64_t d = 0; d < n[0]; d++)
        for (int64_t h = 0; h < n[1]; h++)
            for (int64_t w = 0; w < n[2]; w++)
                for (int64_t c = 0; c < n[3]; c++)
                    *y++ = a->data[d * step[0] + h * step[1] + w * step[2] +
                                   c * step[3]];
    return true;
}

static bool load_npy(const Source *s, Volume *out, DicomNotes *notes)
{
    NpyArray a;
    (void)notes;
    if (!npy_read(s->path, &a)) return false;
    bool ok = arrange(s->how, &a, out) || within("%s", s->path);
    mem_free(a.data);
    return ok;
}

static bool npy_depends(const Source *s, Arena *mem, SourceFacts *out)
{
    const ReaderHow *how = s->how;
    return source_file(
        s, arena_printf(mem, "npy %s %d", how->options->axes, s->place), mem,
        out);
}

/* A photograph of 8 bits has a unit that keeps its values whole. */
static bool load_image(const Source *s, Volume *out, DicomNotes *notes)
{
    const ReaderHow *how = s->how;
    ImageOptions o = how->options->image;
    (void)notes;
    o.label = how->kind == FIELD_LABEL;
    if (!image_read(s->path, &o, out)) return false;
    if (!o.label && out->voxels.type == U8) out->unit = UNIT_PIXEL;
    return true;
}

static bool image_depends(const Source *s, Arena *mem, SourceFacts *out)
{
    const ReaderHow *how = s->how;
    const ImageOptions *o = &how->options->image;
    return source_file(s,
                       arena_printf(mem, "image %d %d %d %d %d", o->drop_alpha,
                                    o->trailing, (int)o->exif, o->page,
                                    s->place),
                       mem, out);
}

/* The grids of a patient's folder that each OpenKBP reader loads: one channel
 * per grid, or with `beams` one channel computed from all of them. */
static const struct {
    int first, grids;
    bool beams;
} parts[] = {
    {OPENKBP_CT, 1, false},
    {OPENKBP_DOSE, 1, false},
    {OPENKBP_POSSIBLE, 1, false},
    {OPENKBP_STRUCTURE, OPENKBP_STRUCTURES, false},
    {OPENKBP_TARGET, OPENKBP_TARGETS, true},
};

static unsigned grids_of(int part)
{
    return ((1u << parts[part].grids) - 1) << parts[part].first;
}

static bool load_openkbp(const Source *s, Volume *out, DicomNotes *notes)
{
    const ReaderHow *how = s->how;
    const int part = how->reader->part, first = parts[part].first;
    const SparseGrid *grid[OPENKBP_STRUCTURES];
    OpenkbpPatient p;

    (void)notes;
    if (!openkbp_read(s->path, grids_of(part), first == OPENKBP_DOSE, &p))
        return false;
    for (int k = 0; k < parts[part].grids; k++) grid[k] = &p.grid[first + k];
    bool ok = (parts[part].beams
                   ? openkbp_beams(&p, out)
                   : openkbp_volume(&p, grid, parts[part].grids, out)) ||
              within("%s", s->path);
    if (ok && first == OPENKBP_DOSE) out->unit = UNIT_GY;
    openkbp_free(&p);
    return ok;
}

static bool openkbp_depends(const Source *s, Arena *mem, SourceFacts *out)
{
    const ReaderHow *how = s->how;
    out->asked = how->reader->name;
    out->files =
        openkbp_files(s->path, grids_of(how->reader->part), mem, &out->file);
    return out->files >= 0;
}

static const Reader readers[] = {
    {"nifti", 3, load_nifti, nifti_depends, 0, false, NULL},
    {"dicom", 3, NULL, NULL, 0, false, dicom_source_find},
    {"npy", -1, load_npy, npy_depends, 0, true, NULL},
    {"image", 2, load_image, image_depends, 0, true, NULL},
    {"openkbp_ct", 3, load_openkbp, openkbp_depends, 0, false, NULL},
    {"openkbp_dose", 3, load_openkbp, openkbp_depends, 1, false, NULL},
    {"openkbp_possible", 3, load_openkbp, openkbp_depends, 2, false, NULL},
    {"openkbp_structures", 3, load_openkbp, openkbp_depends, 3, false, NULL},
    {"openkbp_beams", 3, load_openkbp, openkbp_depends, 4, false, NULL},
};
enum { READERS = sizeof readers / sizeof *readers };

const Reader *reader_find(const char *name)
{
    char known[128] = "";
    for (int i = 0; i < READERS; i++) {
        if (!strcmp(readers[i].name, name)) return &readers[i];
        size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "",
                 readers[i].name);
    }
    fail_usage("there is no reader \"%s\"; there are %s", name, known);
    return NULL;
}

bool reader_axes(const char *axes, int rank)
{
    // the last `rank` of d, h, w, and c
    const char *known = &"dhwc"[3 - rank];
    int spatial = 0;
    for (const char *p = axes; *p; p++) {
        if (!strchr(known, *p) || strchr(p + 1, *p))
            return fail_usage("axes \"%s\": letters out of %s, each once", axes,
                              known);
        spatial += *p != 'c';
    }
    return !*axes || spatial == rank ||
           fail_usage("axes \"%s\": %.*s are needed", axes, rank, known);
}
