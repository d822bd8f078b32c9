/* prepare.c -- loads a case and runs its VOLUME steps.
 *
 * Every step turns a volume into a volume with an affine that gives the
 * positions of its voxels; on failure the volume is unchanged or freed by the
 * caller. A step runs on all fields before the next step, because it may crop
 * all fields to a box found in one; only one field at a time is in memory
 * twice. At the end the fields are packed. */
#include "data/preprocess/prepare.h"
#include "data/parallel_for.h"
#include "data/preprocess/normalize.h"
#include "data/resample/crop.h"
#include "data/resample/scale.h"
#include "data/steps/standardize.h"
#include <math.h>
#include <string.h>

/* ---- single steps ------------------------------------------------------- */

/* Resamples v onto another grid; *v is replaced only on success. */
static bool move(Volume *v, FieldKind kind, const Grid *grid, Interpolation how)
{
    Volume out;
    if (!volume_resample(v, grid, kind == FIELD_LABEL ? NEAREST : how, 0, &out))
        return false;
    volume_free(v);
    *v = out;
    return true;
}

/* The values of a picture are whole numbers in every type of voxels. */
static void round_pixels(Volume *v)
{
    float *x = v->voxels.data;
    for (int64_t i = 0; i < numel(v->voxels.dim); i++)
        x[i] = x[i] > 255 ? 255 : x[i] > 0 ? floorf(x[i] + 0.5f) : 0;
}

/* Resamples v to another spacing or size, by the method of the step. */
static bool resize(Volume *v, FieldKind kind, const Grid *grid, int method)
{
    Volume out;
    if (kind == FIELD_LABEL || method == METHOD_LINEAR) {
        if (!move(v, kind, grid, LINEAR)) return false;
    } else {
        if (!volume_scale(v, grid,
                          method == METHOD_CUBIC ? SCALE_CUBIC : SCALE_TRIANGLE,
                          &out))
            return false;
        volume_free(v);
        *v = out;
    }

    if (v->unit == UNIT_PIXEL) round_pixels(v);
    return true;
}

/* Crops and pads by whole voxels: each channel has its own background value,
 * which volume_resample does not support. */
static bool cut(Volume *v, FieldKind kind, const Box *box)
{
    Volume out;
    CHECK(v->voxels.type == (kind == FIELD_LABEL ? U8 : F32));
    if (!volume_cut(v, box, kind == FIELD_IMAGE, &out)) return false;
    volume_free(v);
    *v = out;
    return true;
}

/* Class numbers are U8, so a table of 256 entries maps them. */
static void select_labels(Volume *v, const DataStep *s)
{
    uint8_t map[256] = {0}, *x = v->voxels.data;
    for (int i = 0; i < (int)s->select.labels_count; i++)
        map[(int)s->select.labels[i]] = 1;
    for (int64_t i = 0; i < numel(v->voxels.dim); i++) x[i] = map[x[i]];
}

/* values are finite here: settle_values has checked them */
static void clamp(Volume *v, const DataStep *s)
{
    float *x = v->voxels.data;
    float lo = (float)s->clamp.range[0], hi = (float)s->clamp.range[1];
    for (int64_t i = 0; i < numel(v->voxels.dim); i++)
        x[i] = x[i] < lo ? lo : x[i] > hi ? hi : x[i];
}

/* Uses the same two ranges for every image. */
static bool scale(Volume *v, const DataStep *s)
{
    const double *from = s->scale.from, *to = s->scale.to;
    const double by = (to[1] - to[0]) / (from[1] - from[0]);
    float *x = v->voxels.data;
    for (int64_t i = 0; i < numel(v->voxels.dim); i++) {
        const double y = to[0] + ((double)x[i] - from[0]) * by;
        if (!isfinite((float)y))
            return fail_data("%g becomes %g: the ranges are too far apart",
                             (double)x[i], y);
        x[i] = (float)y;
    }
    return true;
}

/* Reorientation is exact: NEAREST only reorders voxels. */
static bool orient(Volume *v, FieldKind kind, int plane)
{
    static const Plane planes[] = {AXIAL, CORONAL, SAGITTAL};
    Grid grid = volume_grid_plane(v, planes[plane]);
    return move(v, kind, &grid, NEAREST);
}

/* Runs one VOLUME step on one field; a step that does not act on this kind of
 * field changes nothing. box: for a crop step. *channel: the channel that a
 * failure concerns, -1 for all. */
static bool run_step(Volume *v, FieldKind kind, const DataStep *s,
                     const Box *box, int *channel)
{
    StepActs acts = step_info[s->id].acts;
    Grid grid;
    if (!field_on_grid(kind)) return true;
    if (acts == ACTS_IMAGE && kind != FIELD_IMAGE) return true;
    if (acts == ACTS_LABEL && kind != FIELD_LABEL) return true;

    switch (s->id) {
    case STEP_orient:
        return orient(v, kind, (int)s->orient.plane);
    case STEP_resample:
        grid = volume_grid_at(v, s->resample.spacing_mm);
        return resize(v, kind, &grid, (int)s->resample.method);
    case STEP_resize:
        grid = volume_grid_resize(v, (int)s->resize.d, (int)s->resize.h,
                                  (int)s->resize.w);
        return resize(v, kind, &grid, (int)s->resize.method);
    case STEP_fit:
    case STEP_crop:
        return cut(v, kind, box);
    case STEP_select:
        select_labels(v, s);
        return true;
    case STEP_clamp:
        clamp(v, s);
        v->unit = v->unit == UNIT_PIXEL ? UNIT_NONE : v->unit;
        return true;
    case STEP_scale:
        v->unit = v->unit == UNIT_PIXEL ? UNIT_NONE : v->unit;
        return scale(v, s);
    case STEP_normalize:
        v->unit = v->unit == UNIT_PIXEL ? UNIT_NONE : v->unit;
        return normalize_volume(s, v, channel);
    default: // other phases
        return true;
    }
}

/* ---- a case ------------------------------------------------------------- */

/* Adds a word to a hash: xor, multiplication and shift, so that swapped voxels
 * change the hash. */
static inline uint64_t hash_mix(uint64_t h, uint64_t bits)
{
    h = (h ^ bits) * 0x9E3779B97F4A7C15u;
    return h ^ h >> 29;
}

/* Hash of extents and voxels of an F32 volume. Words of two voxels go into
 * three hashes in turn: each step depends on the step before it, and three
 * independent chains overlap. */
static uint64_t volume_hash(const Volume *v)
{
    const Dims n = v->voxels.dim;
    // extents too: the same voxels in another shape are another volume
    const uint64_t head[] = {(uint64_t)n.d, (uint64_t)n.h, (uint64_t)n.w,
                             (uint64_t)n.c};
    uint64_t a = 0xcbf29ce484222325u, b = 1, c = 2, word[3];
    const float *x = v->voxels.data, *end = x + numel(n);

    for (int i = 0; i < 4; i++) a = hash_mix(a, head[i]);
    for (; end - x >= 6; x += 6) {
        memcpy(word, x, sizeof word);
        a = hash_mix(a, word[0]);
        b = hash_mix(b, word[1]);
        c = hash_mix(c, word[2]);
    }

    for (; x < end; x++) {
        *word = 0;
        memcpy(word, x, sizeof *x);
        a = hash_mix(a, *word);
    }
    return hash_mix(hash_mix(a, b), c);
}

/* Loads all fields of a case onto the grid of the first field. Other fields
 * must be on this grid (or are resampled to it). The caller owns the loaded
 * volumes, also after a failure. */
static bool load_fields(const Dataset *ds, int item, DicomNotes *notes,
                        const atomic_bool *stop, Volume field[MAX_FIELDS])
{
    for (int f = 0; f < ds->fields; f++) {
        if (parallel_for_stopped(stop)) return false;
        if (ds->field[f].kind == FIELD_LENGTH) continue;
        // the grid of the first field, once loaded
        const Volume *like = f ? &field[0] : NULL;
        if (!case_load(ds, item, f, like, &field[f], notes)) return false;
    }
    return true;
}

void fields_free(Volume field[MAX_FIELDS])
{
    for (int f = 0; f < MAX_FIELDS; f++) volume_free(&field[f]);
}

/* The file to name when a step fails: the file of the channel if each channel
 * is a file, else the first. */
static const char *source_path(const struct CaseField *field, const Volume *v,
                               int channel)
{
    bool each = channel >= 0 && field->channels == v->voxels.dim.c;
    return field->source[each ? channel : 0].path;
}

/* A case while its steps run. */
typedef struct PreparedCase {
    const Dataset *ds;
    int item;
    const Steps *steps;
    const Patients *patients; /* NULL: the only case of its patient        */
    const atomic_bool *stop;
    Volume *field; /* one volume per field of ds */
} PreparedCase;

/* Finds the box of a fit or crop step, the same for all fields. */
static bool find_box(const PreparedCase *m, const DataStep *s, Box *out)
{
    const Volume *v = &m->field[0];
    if (s->id == STEP_fit) {
        *out = volume_box_fit(v, (int)s->fit.d, (int)s->fit.h, (int)s->fit.w,
                              (int)s->fit.at == FIT_START);
        return true;
    }

    const int32_t margin = (int32_t)s->crop.margin;
    const int label = dataset_label(m->ds);

    if ((int)s->crop.to == CROP_IMAGE) {
        const float *x = v->voxels.data;
        const int64_t count = numel(v->voxels.dim);
        float level = numbers_lowest(x, count, 1);
        if (s->crop.within > 0) {
            float most = level;
            for (int64_t i = 0; i < count; i++)
                if (x[i] > most) most = x[i];
            // the smallest value is background, even if the largest is close
            if (most - (float)s->crop.within > level)
                level = most - (float)s->crop.within;
        }
        return volume_box_above(v, level, margin, out);
    }

    if (label < 0)
        return fail_usage("to = \"label\", but the data set has no labels");
    return volume_box_above(&m->field[label], 0, margin, out);
}

/* Runs a standardize step on its field. When predicting, a field of numbers may
 * be absent: it is ground truth, and no image depends on it. */
static bool run_standardize(PreparedCase *m, const DataStep *s)
{
    const int f = standardize_field(s, m->ds);
    const char *key = m->ds->cases[m->item].key;
    char what[STEP_NAME];
    if (f < 0)
        return (int)s->standardize.kind == STANDARDIZE_NUMBERS ||
               fail_usage("%s: standardize: the data set has no field \"%s\"",
                          key, standardize_what(s, what));
    return standardize_volume(s, &m->field[f]) ||
           within("%s: %s: standardize", key, m->ds->field[f].name);
}

/* Runs a normalize step per patient on the images. */
static bool run_patient(PreparedCase *m, const DataStep *s)
{
    const Case *c = &m->ds->cases[m->item];
    for (int f = 0; f < m->ds->fields; f++) {
        const DatasetField *field = &m->ds->field[f];
        if (field->kind == FIELD_IMAGE &&
            !patients_normalize(m->patients, s, c->patient, f, &m->field[f]))
            return within("%s: %s: normalize", c->key, field->name);
    }
    return true;
}

/* Runs one step on all fields. */
static bool run_fields(PreparedCase *m, const DataStep *s)
{
    if (s->id == STEP_standardize) return run_standardize(m, s);
    if (m->patients && s->id == STEP_normalize &&
        (int)s->normalize.per == PER_PATIENT)
        return run_patient(m, s);
    Box box = {{0}, {0}};
    const char *key = m->ds->cases[m->item].key, *step = step_info[s->id].name;
    if (s->id == STEP_change)
        return user_step_volume(m->steps, s, m->ds, m->stop, m->field) ||
               within("%s: %s", key, step);
    if ((s->id == STEP_fit || s->id == STEP_crop) && !find_box(m, s, &box))
        return within("%s: %s", key, step);

    for (int f = 0; f < m->ds->fields; f++) {
        const DatasetField *field = &m->ds->field[f];
        Volume *v = &m->field[f];
        int channel = -1;
        if (parallel_for_stopped(m->stop)) return false;
        if (!run_step(v, field->kind, s, &box, &channel))
            return within(
                "%s: %s: %s: %s", key, field->name,
                source_path(&m->ds->cases[m->item].field[f], v, channel), step);
    }
    return true;
}

/* Pads a volume that is smaller than a patch. */
static bool pad_to_patch(PreparedCase *m, const Steps *steps)
{
    const Dims n = m->field[0].voxels.dim, patch = part_dims(steps, n);
    DataStep fit = step_default(STEP_fit);
    if (patch.d <= n.d && patch.h <= n.h && patch.w <= n.w) return true;
    fit.fit.d = patch.d > n.d ? patch.d : n.d;
    fit.fit.h = patch.h > n.h ? patch.h : n.h;
    fit.fit.w = patch.w > n.w ? patch.w : n.w;
    return run_fields(m, &fit);
}

/* Reorients first, so that h and w mean the same in all steps. */
static bool run_steps(PreparedCase *m)
{
    const Steps *steps = m->steps;
    const DataStep *slices = steps_slices(steps);
    bool turn = slices && slices->slices.axis != AXIS_STORED;

    for (int f = 0; turn && f < m->ds->fields; f++)
        if (field_on_grid(m->ds->field[f].kind) &&
            !orient(&m->field[f], m->ds->field[f].kind,
                    (int)slices->slices.axis))
            return false;

    for (int i = 0; i < steps->count; i++)
        if (step_info[steps->step[i].id].phase == STEP_VOLUME &&
            !run_fields(m, &steps->step[i]))
            return false;
    return pad_to_patch(m, steps);
}

/* *out = the number of voxels along w of a prepared grid with their centre
 * inside the input. They must come first. */
static bool find_length(Grid input, Grid now, float *out)
{
    double to[4][4];
    int32_t own = 0;
    if (!affine_invert(input.affine, to)) return false;
    affine_multiply(to, now.affine, to);

    for (int32_t w = 0; w < now.w; w++) {
        double x = to[0][0] * w + to[0][3];
        // a tolerance for rounding of the affines
        if (!(x > -0.5 - 1e-5 && x < input.w - 0.5 - 1e-5)) continue;
        if (own != w)
            return fail_usage("the length is not known: padding comes before "
                              "the samples; fix: fit with at = \"start\"");
        own++;
    }

    *out = (float)own;
    return true;
}

/* The grid of the input is saved before any step: a prediction is resampled to
 * it. */
bool prepare_loaded(const Dataset *ds, int item, const Steps *steps,
                    const Patients *patients, const atomic_bool *stop,
                    Volume field[MAX_FIELDS], Prepared *out)
{
    PreparedCase m = {.ds = ds,
                      .item = item,
                      .steps = steps,
                      .patients = patients,
                      .stop = stop,
                      .field = field};
    bool ok = false;
    memset(out, 0, sizeof *out);
    for (int f = 0; f < ds->fields; f++) // set after the steps
        if (ds->field[f].kind == FIELD_LENGTH)
            TRY(volume_new(&field[f], (Dims){1, 1, 1, 1, 1}, F32));
    out->item = item;
    out->input = volume_grid(&m.field[0]);
    out->input_unit = m.field[0].unit;
    out->hash = volume_hash(&m.field[0]);
    if (ds->field[0].kind == FIELD_IMAGE)
        out->intensities = intensity_find(&m.field[0], out->intensity);
    TRY(run_steps(&m));
    out->grid = volume_grid(&m.field[0]);

    for (int f = 0; f < ds->fields; f++) {
        Tensor *x = &m.field[f].voxels;
        if (ds->field[f].kind == FIELD_LENGTH &&
            !find_length(out->input, out->grid, x->data)) {
            within("%s: %s", ds->cases[item].key, ds->field[f].name);
            goto done;
        }
        TRY(pack_make(x, &out->field[f]));
        out->fields = f + 1;
        out->bytes += out->field[f].bytes;
        volume_free(&m.field[f]);
    }

    ok = true;

done:
    fields_free(field);
    if (!ok) prepared_free(out);
    return ok;
}

bool prepare_case(const Dataset *ds, int item, const Steps *steps,
                  const Patients *patients, DicomNotes *notes,
                  const atomic_bool *stop, Prepared *out)
{
    Volume field[MAX_FIELDS] = {{.voxels = {.data = NULL}}};
    memset(out, 0, sizeof *out);
    if (load_fields(ds, item, notes, stop, field))
        return prepare_loaded(ds, item, steps, patients, stop, field, out);
    fields_free(field);
    return false;
}

void prepared_free(Prepared *p)
{
    for (int f = 0; f < p->fields; f++) pack_free(&p->field[f]);
    memset(p, 0, sizeof *p);
}

/* ---- samples ------------------------------------------------------------ */

void prepared_sample(const Prepared *p, int field, const Box *box, float *out)
{
    const Pack *x = &p->field[field];
    const Grid *g = &p->grid;
    CHECK(field >= 0 && field < p->fields);
    // a field without a grid: the numbers of the case apply to every sample
    if (x->dim.d == g->d && x->dim.h == g->h && x->dim.w == g->w)
        pack_read_box(x, box, out);
    else
        pack_read(x, 0, x->dim.d, out);
}

bool prepared_volume(const Prepared *p, int field, Volume *out)
{
    const Grid *g = &p->grid;
    const Dims n = p->field[field].dim;
    if (n.d != g->d || n.h != g->h || n.w != g->w)
        return fail_usage("numbers of a case have no grid");
    if (!volume_new(out, n, F32)) return false;
    memcpy(out->affine, g->affine, sizeof out->affine);
    const Box all = {{0, 0, 0}, {n.w, n.h, n.d}};
    prepared_sample(p, field, &all, out->voxels.data);
    return true;
}
