/* prepare.c -- loading a case and running its VOLUME steps.
 *
 * Every step takes a volume and gives a volume whose affine says where its
 * voxels are; on failure the volume is untouched or freed by the caller,
 * never half changed in a way that matters. Fields run through the steps one
 * by one, so that one of them at a time is in memory twice, and are packed at
 * the end. */
#include "prepare.h"
#include "normalize.h"
#include <math.h>
#include <string.h>

/* ---- single steps ------------------------------------------------------- */

/* v on another grid.
 * *v is replaced only when that succeeds */
static bool move(Volume *v, FieldKind kind, const Grid *grid, Interpolation how)
{
    Volume out;
    if (!volume_resample(v, grid, kind == FIELD_LABEL ? NEAREST : how, 0, &out))
        return false;
    volume_free(v);
    *v = out;
    return true;
}

/* The smallest value of each channel of an F32 image. */
static void find_background(const Volume *v, float *fill)
{
    int64_t n = positions(v->voxels.dim), c = v->voxels.dim.c;
    const float *x = v->voxels.data;
    // the first voxel is as good a start as any
    memcpy(fill, x, (size_t)c * sizeof *x);
    for (int64_t p = 0; p < n; p++)
        for (int64_t k = 0; k < c; k++, x++)
            if (*x < fill[k]) fill[k] = *x;
}

/* Crop and pad by whole voxels, so a plain copy of rows; each channel has its
 * own background.
 * Not by volume_resample: that would give every channel the same background. */
static bool fit(Volume *v, FieldKind kind, const DataStep *s)
{
    Dims n = v->voxels.dim;
    Volume out;
    float fill[MAX_CHANNELS] = {0};
    Grid grid = volume_grid_fit(v, (int)s->fit.d, (int)s->fit.h, (int)s->fit.w);
    Dims m = {1, grid.d, grid.h, grid.w, n.c};
    CHECK(n.c <= MAX_CHANNELS);
    CHECK(v->voxels.type == (kind == FIELD_LABEL ? U8 : F32));
    if (!volume_new(&out, m, v->voxels.type)) return false;
    memcpy(out.affine, grid.affine, sizeof out.affine);
    out.unit = v->unit;
    if (kind == FIELD_IMAGE) {
        find_background(v, fill);
        float *y = out.voxels.data;
        for (int64_t p = 0; p < positions(m); p++, y += m.c)
            memcpy(y, fill, (size_t)m.c * sizeof *y);
    }
    // voxel (w,h,d) of the result is (w + w0, ...) of v, as volume_grid_fit
    int32_t d0 = (n.d - m.d) / 2, h0 = (n.h - m.h) / 2, w0 = (n.w - m.w) / 2;
    int32_t from = w0 < 0 ? -w0 : 0, to = n.w - w0 < m.w ? n.w - w0 : m.w;
    // a voxel with its channels moves as one
    size_t size = dtype_bytes(v->voxels.type) * (size_t)n.c;
    for (int32_t d = 0; d < m.d; d++)
        for (int32_t h = 0; h < m.h; h++) {
            int32_t sd = d + d0, sh = h + h0;
            if (sd < 0 || sd >= n.d || sh < 0 || sh >= n.h || from >= to)
                continue;
            int64_t at = ((int64_t)sd * n.h + sh) * n.w + from + w0;
            int64_t into = ((int64_t)d * m.h + h) * m.w + from;
            memcpy((char *)out.voxels.data + (size_t)into * size,
                   (const char *)v->voxels.data + (size_t)at * size,
                   (size_t)(to - from) * size);
        }
    volume_free(v);
    *v = out;
    return true;
}

/* Class numbers are U8, so a table of 256 answers for each. */
static void select_labels(Volume *v, const DataStep *s)
{
    uint8_t map[256] = {0}, *x = v->voxels.data;
    for (int i = 0; i < (int)s->select.labels_count; i++)
        map[(int)s->select.labels[i]] = 1;
    for (int64_t i = 0; i < numel(v->voxels.dim); i++) x[i] = map[x[i]];
}

/* values are finite here, settle_values has seen to it */
static void clamp(Volume *v, const DataStep *s)
{
    float *x = v->voxels.data;
    float lo = (float)s->clamp.range[0], hi = (float)s->clamp.range[1];
    for (int64_t i = 0; i < numel(v->voxels.dim); i++)
        x[i] = x[i] < lo ? lo : x[i] > hi ? hi : x[i];
}

/* Orientation is exact: NEAREST only moves voxels. */
static bool orient(Volume *v, FieldKind kind, int plane)
{
    static const Plane planes[] = {AXIAL, CORONAL, SAGITTAL};
    Grid grid = volume_grid_plane(v, planes[plane]);
    return move(v, kind, &grid, NEAREST);
}

/* Run one VOLUME step on one field; steps that do not act on its kind leave it
 * alone. *channel: which channel a failure is about, -1 when all. */
static bool run_step(Volume *v, FieldKind kind, const DataStep *s, int *channel)
{
    StepActs acts = step_info[s->id].acts;
    Grid grid;
    if (acts == ACTS_IMAGE && kind != FIELD_IMAGE) return true;
    if (acts == ACTS_LABEL && kind != FIELD_LABEL) return true;
    switch (s->id) {
    case STEP_orient:
        return orient(v, kind, (int)s->orient.plane);
    case STEP_resample:
        grid = volume_grid_at(v, s->resample.spacing_mm);
        return move(v, kind, &grid, LINEAR);
    case STEP_resize:
        grid = volume_grid_resize(v, (int)s->resize.d, (int)s->resize.h,
                                  (int)s->resize.w);
        return move(v, kind, &grid, LINEAR);
    case STEP_fit:
        return fit(v, kind, s);
    case STEP_select:
        select_labels(v, s);
        return true;
    case STEP_clamp:
        clamp(v, s);
        return true;
    case STEP_normalize:
        return normalize_volume(s, v, channel);
    default: // of another phase
        return true;
    }
}

/* ---- a case ------------------------------------------------------------- */

/* Extents and voxels of an F32 volume as one number. A mixing step per voxel
 * with a rotation, so that swapped voxels give another number. */
static uint64_t volume_hash(const Volume *v)
{
    Dims n = v->voxels.dim;
    // extents too: the same voxels in another shape are another volume
    const uint64_t head[] = {(uint64_t)n.d, (uint64_t)n.h, (uint64_t)n.w,
                             (uint64_t)n.c};
    uint64_t h = 0xcbf29ce484222325u;
    for (int i = 0; i < 4; i++) h = (h ^ head[i]) * 0x9E3779B97F4A7C15u;
    const float *x = v->voxels.data;
    for (int64_t i = 0; i < numel(n); i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        h = (h ^ bits) * 0x9E3779B97F4A7C15u;
        h ^= h >> 29;
    }
    return h;
}

/* *stop raised: false is to be returned, with the reason set here */
static bool stopped(const atomic_bool *stop)
{
    if (!stop || !atomic_load(stop)) return false;
    fail("stopped");
    return true;
}

/* Load all fields of a case onto the grid of the first.
 * Fields after the first must lie on its grid (or are brought there).
 * What was loaded is the caller's, also after a failure. */
static bool load_fields(const Dataset *ds, int item, DicomNotes *notes,
                        const atomic_bool *stop, Volume field[MAX_FIELDS])
{
    for (int f = 0; f < ds->fields; f++) {
        if (stopped(stop)) return false;
        // the grid of the first field, once it is there
        const Volume *like = f ? &field[0] : NULL;
        if (!case_load(ds, item, f, like, &field[f], notes)) return false;
    }
    return true;
}

/* The file to name when a step fails: that of the channel, where each channel
 * is a file of its own, else the first. */
static const char *source_path(const struct CaseField *field, const Volume *v,
                               int channel)
{
    bool each = channel >= 0 && field->channels == v->voxels.dim.c;
    return field->source[each ? channel : 0].path;
}

/* All VOLUME steps on one field. Axes are turned first, so that h and w mean
 * the same in all steps. */
static bool run_steps(const Dataset *ds, int item, int f, const Steps *steps,
                      const atomic_bool *stop, Volume *v)
{
    const DataStep *slices = steps_slices(steps);
    const FieldKind kind = ds->field[f].kind;
    if (slices && slices->slices.axis != AXIS_STORED &&
        !orient(v, kind, (int)slices->slices.axis))
        return false;
    for (int i = 0; i < steps->count; i++) {
        const DataStep *s = &steps->step[i];
        if (stopped(stop)) return false;
        int channel = -1;
        if (!run_step(v, kind, s, &channel))
            return within("%s: %s: %s: %s", ds->cases[item].key,
                          ds->field[f].name,
                          source_path(&ds->cases[item].field[f], v, channel),
                          step_info[s->id].name);
    }
    return true;
}

/* The grid of the input is taken before any step: a prediction goes back
 * there. */
bool prepare_case(const Dataset *ds, int item, const Steps *steps,
                  DicomNotes *notes, const atomic_bool *stop, Prepared *out)
{
    Volume field[MAX_FIELDS] = {{.unit = UNIT_NONE}};
    bool ok = false;
    memset(out, 0, sizeof *out);
    TRY(load_fields(ds, item, notes, stop, field));
    out->item = item;
    out->sliced = steps_slices(steps) != NULL;
    out->input = volume_grid(&field[0]);
    out->input_unit = field[0].unit;
    out->hash = volume_hash(&field[0]);
    for (int f = 0; f < ds->fields; f++) {
        TRY(run_steps(ds, item, f, steps, stop, &field[f]));
        if (f == 0) out->grid = volume_grid(&field[0]);
        TRY(pack_make(&field[f].voxels, &out->field[f]));
        out->fields = f + 1;
        out->bytes += out->field[f].bytes;
        volume_free(&field[f]);
    }
    ok = true;
done:
    for (int f = 0; f < ds->fields; f++)
        if (field[f].voxels.data) volume_free(&field[f]);
    if (!ok) prepared_free(out);
    return ok;
}

void prepared_free(Prepared *p)
{
    for (int f = 0; f < p->fields; f++) pack_free(&p->field[f]);
    memset(p, 0, sizeof *p);
}

/* ---- samples ------------------------------------------------------------ */

Dims prepared_dims(const Prepared *p, int field)
{
    CHECK(field >= 0 && field < p->fields);
    Dims n = p->field[field].dim;
    // a slice has depth 1
    if (p->sliced) n.d = 1;
    return n;
}

void prepared_sample(const Prepared *p, int field, int32_t slice, float *out)
{
    const Pack *x = &p->field[field];
    if (slice < 0)
        pack_read(x, 0, x->dim.d, out);
    else
        pack_read(x, slice, 1, out);
}
