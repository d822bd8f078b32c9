/* stitch.c -- see stitch.h.
 *
 * `ready` counts the completed slices of the prepared case. `axis` is the axis
 * of the grid that crosses the slices (resample_reach). An index along it is
 * computed when the last slice that its voxels depend on is complete; the
 * indices come in the order of these slices, whichever way the axis runs. A
 * voxel between two slices depends on both, so one completed slice stays in the
 * slab. */
#include "data/metrics/stitch.h"
#include "data/resample/resample.h"
#include <inttypes.h>
#include <math.h>
#include <string.h>

struct Stitch {
    Pipeline *p;
    const Prepared *like;
    StitchOptions o;
    Dims n;         /* of the prepared case, with the channels of a sample */
    Grid grid;      /* of the results */
    int axis;       /* axis of the grid that crosses the slices, or -1 */
    int32_t *last;  /* (grid along axis): as from resample_reach */
    int32_t *order; /* (grid along axis): its indices in the order of
                     * computation */
    int32_t done;   /* number of indices of order that are complete */
    float *slab;    /* slices first .. first + depth - 1; NULL: a sample is the
                     * whole case */
    int32_t first, depth;
    float *slice; /* one index of the grid along axis */
    int32_t next; /* lowest sample number that may come next */
    StitchResult r;
};

void stitch_result_free(StitchResult *r)
{
    volume_free(&r->labels);
    volume_free(&r->values);
    volume_free(&r->entropy);
}

void stitch_free(Stitch *m)
{
    if (!m) return;
    stitch_result_free(&m->r);
    if (m->like) pipeline_put(m->p, m->like);
    pipeline_free(m->p);
    mem_free(m->last);
    mem_free(m->order);
    mem_free(m->slab);
    mem_free(m->slice);
    mem_free(m);
}

static size_t plane_floats(const Stitch *m)
{
    return (size_t)m->n.h * (size_t)m->n.w * (size_t)m->n.c;
}

/* Extents of the grid along w, h, d. */
static void grid_extents(const Grid *g, int32_t n[3])
{
    n[0] = g->w, n[1] = g->h, n[2] = g->d;
}

/* Returns the box of index i of the grid along the axis; for an oblique grid i
 * is along d. */
static Box box_of(const Stitch *m, int32_t i)
{
    const int a = m->axis < 0 ? 2 : m->axis;
    Box box = {{0, 0, 0}, {0, 0, 0}};
    grid_extents(&m->grid, box.n);
    box.from[a] = i, box.n[a] = 1;
    return box;
}

static size_t box_voxels(const Box *box)
{
    return (size_t)box->n[0] * (size_t)box->n[1] * (size_t)box->n[2];
}

/* ---- results of voxels ------------------------------------------------- */

static uint8_t class_of(const StitchOptions *o, const float *p)
{
    int best = 0;
    if (o->classes == 1) return (double)*p > o->threshold;
    for (int c = 1; c < o->classes; c++)
        if (p[c] > p[best]) best = c;
    return (uint8_t)best;
}

static double p_log_p(double p)
{
    return p > 0 ? p * log(p) : 0;
}

static float entropy_of(const StitchOptions *o, const float *p)
{
    double sum = 0;
    if (o->classes == 1) sum = p_log_p(1 - (double)*p);
    for (int c = 0; c < o->classes; c++) sum += p_log_p((double)p[c]);
    // writes 0, not -0
    return sum < 0 ? (float)-sum : 0;
}

/* Stores the results of the voxels of the box, which are in m->slice. */
static void store(Stitch *m, const Box *box)
{
    const float *p = m->slice;
    const int32_t c = m->n.c;

    for (int32_t d = 0; d < box->n[2]; d++)
        for (int32_t h = 0; h < box->n[1]; h++) {
            int64_t at =
                ((int64_t)(box->from[2] + d) * m->grid.h + box->from[1] + h) *
                    m->grid.w +
                box->from[0];
            for (int32_t w = 0; w < box->n[0]; w++, at++, p += c) {
                if (m->o.labels)
                    ((uint8_t *)m->r.labels.voxels.data)[at] =
                        class_of(&m->o, p);
                if (m->o.entropy)
                    ((float *)m->r.entropy.voxels.data)[at] =
                        entropy_of(&m->o, p);
                if (m->o.values)
                    memcpy((float *)m->r.values.voxels.data + at * c, p,
                           (size_t)c * sizeof *p);
            }
        }
}

/* Computes the results of all voxels that depend only on slices below `ready`
 * and have none yet; `data` holds slices from `first` on. */
static bool settle(Stitch *m, int32_t ready, int32_t first, const float *data)
{
    const Grid *g = &m->like->grid;
    const Slices from = {*g, m->n.c, data, first};
    int32_t n[3];

    grid_extents(&m->grid, n);
    const int32_t count = n[m->axis < 0 ? 2 : m->axis];

    for (; m->done < count; m->done++) {
        const int32_t i = m->order[m->done];
        if (m->last[i] >= ready) return true;
        if (m->last[i] < 0) continue;
        const Box box = box_of(m, i);
        if (!resample_box(&from, &m->grid, &box, m->slice)) return false;
        store(m, &box);
    }
    return true;
}

/* ---- making -------------------------------------------------------------- */

/* Orders the indices by the last slice that they depend on, indices outside
 * first. The last slices rise or fall, so the order is forwards or
 * backwards. */
static bool find_order(Stitch *m)
{
    int32_t n[3], most = 0;
    Grid from = m->like->grid;
    grid_extents(&m->grid, n);
    for (int a = 0; a < 3; a++) most = n[a] > most ? n[a] : most;
    m->last = mem_alloc((size_t)most * sizeof *m->last);
    m->order = mem_alloc((size_t)most * sizeof *m->order);
    if (!m->last || !m->order ||
        !resample_reach(&from, &m->grid, &m->axis, m->last))
        return false;
    const int32_t count = n[m->axis < 0 ? 2 : m->axis];
    int32_t low = -1, high = -1; // lowest and highest index inside

    for (int32_t i = 0; i < count; i++) {
        if (m->axis < 0) m->last[i] = m->n.d - 1;
        if (m->last[i] < 0) continue;
        low = low < 0 ? i : low;
        high = i;
    }

    const bool falls = low >= 0 && m->last[low] > m->last[high];
    for (int32_t i = 0; i < count; i++) m->order[i] = falls ? count - 1 - i : i;
    return true;
}

/* Allocates the slab: the depth of a sample and the slice before it, or the
 * whole case if every voxel may depend on any slice. */
static bool make_slab(Stitch *m)
{
    const Steps *steps = pipeline_steps(m->p);
    const bool parts = steps_parts(steps) != NULL;
    const Box box = box_of(m, 0);
    size_t bytes;

    m->depth = part_dims(steps, m->n).d + 1;
    if (m->axis < 0 || m->depth > m->n.d) m->depth = m->n.d;

    if (parts) {
        if (!size_mul(plane_floats(m), (size_t)m->depth, &bytes) ||
            !size_mul(bytes, sizeof(float), &bytes))
            return false;
        m->slab = mem_alloc(bytes);
    }

    if (!size_mul(box_voxels(&box), (size_t)m->n.c * sizeof(float), &bytes))
        return false;
    m->slice = mem_alloc(bytes);
    return m->slice && (m->slab || !parts);
}

static bool make_result(const Stitch *m, bool wanted, int32_t channels,
                        Dtype type, Unit unit, Volume *v)
{
    const Grid *g = &m->grid;
    if (!wanted) return true;
    if (!volume_new(v, (Dims){1, g->d, g->h, g->w, channels}, type))
        return false;
    memcpy(v->affine, g->affine, sizeof v->affine);
    v->unit = unit;
    return true;
}

bool stitch_new(Pipeline *p, int item, const StitchOptions *o, Stitch **out)
{
    CHECK(o->classes >= 0 && o->classes <= o->channels &&
          (!o->labels || (o->classes >= 1 && o->classes <= 256)));
    *out = NULL;
    if (part_drawn(pipeline_steps(p)))
        return fail_usage("patches drawn at random do not cover a case; fix: "
                          "patches with at = \"grid\"");
    Stitch *m = mem_alloc(sizeof *m);
    if (!m) return false;
    if (!pipeline_get(p, item, &m->like)) {
        mem_free(m);
        return false;
    }
    pipeline_hold(p);
    m->p = p;
    m->o = *o;
    const Grid *g = &m->like->grid;
    m->n = (Dims){1, g->d, g->h, g->w, o->channels};
    m->grid = o->prepared ? *g : m->like->input;

    if (!find_order(m) || !make_slab(m) ||
        !make_result(m, o->labels, 1, U8, UNIT_LABEL, &m->r.labels) ||
        !make_result(m, o->values, o->channels, F32, UNIT_NONE, &m->r.values) ||
        !make_result(m, o->entropy, 1, F32, UNIT_NONE, &m->r.entropy)) {
        stitch_free(m);
        return false;
    }

    *out = m;
    return true;
}

StitchBytes stitch_bytes(const Stitch *m)
{
    const Box box = box_of(m, 0);
    StitchBytes b = {.voxels = (int64_t)m->grid.d * m->grid.h * m->grid.w,
                     .slab = box_voxels(&box) * (size_t)m->n.c * sizeof(float)};
    const Volume *const results[] = {&m->r.labels, &m->r.values, &m->r.entropy};
    if (m->slab) b.slab += plane_floats(m) * (size_t)m->depth * sizeof(float);
    for (size_t i = 0; i < sizeof results / sizeof *results; i++)
        if (results[i]->voxels.data)
            b.results += tensor_bytes(&results[i]->voxels);
    return b;
}

/* ---- samples ------------------------------------------------------------- */

/* Are all values of a sample finite? NaN is neither above nor below a
 * threshold: as labels it would look like a network that found nothing. */
static bool check_finite(const Stitch *m, const float *x, int64_t n)
{
    int64_t bad = 0;
    for (int64_t i = 0; i < n; i++) bad += !isfinite(x[i]);
    return !bad ||
           fail_diverged("%s: %" PRId64 " of %" PRId64
                         " values of the prediction are not finite; look at "
                         "the image, and at how the weights were trained",
                         pipeline_dataset(m->p)->cases[m->like->item].key, bad,
                         n);
}

/* Slices below `to`, which are in the slab, are complete: computes the results
 * that depend on them, and moves the slab so that it begins with the last of
 * these slices. */
static bool move_slab(Stitch *m, int32_t to)
{
    const size_t plane = plane_floats(m);
    if (!settle(m, to, m->first, m->slab)) return false;
    const int32_t by = to - 1 - m->first;
    if (m->depth == m->n.d || by <= 0) return true;
    const size_t stay = by < m->depth ? (size_t)(m->depth - by) : 0;
    const size_t gone = (size_t)m->depth - stay;
    memmove(m->slab, m->slab + gone * plane, stay * plane * sizeof(float));
    memset(m->slab + stay * plane, 0, gone * plane * sizeof(float));
    m->first = to - 1;
    return true;
}

/* Slices below `ready` are complete, also slices without a sample. */
static bool advance(Stitch *m, int32_t ready)
{
    while (m->first + m->depth < ready)
        if (!move_slab(m, m->first + m->depth)) return false;
    return move_slab(m, ready);
}

bool stitch_put(Stitch *m, int32_t number, const float *sample)
{
    const Steps *steps = pipeline_steps(m->p);
    const DataStep *parts = steps_parts(steps);
    const SampleId id = pipeline_id(m->p, number);
    const Box box = part_box(steps, m->n, id.part);

    CHECK(id.item == m->like->item && id.part >= m->next);
    m->next = id.part + 1;
    const int64_t count = (int64_t)box.n[0] * box.n[1] * box.n[2] * m->n.c;
    if (!check_finite(m, sample, count)) return false;
    if (!parts) return settle(m, m->n.d, 0, sample);
    if (!advance(m, box.from[2])) return false;
    if (parts->id == STEP_patches)
        return part_blend(steps, m->n, id.part, sample, m->first, m->slab);

    // slices are whole planes
    memcpy(m->slab + (size_t)(box.from[2] - m->first) * plane_floats(m), sample,
           (size_t)count * sizeof *sample);
    return true;
}

/* A slice without a sample is 0 in the slab, and so are its results. */
bool stitch_finish(Stitch *m, StitchResult *out)
{
    memset(out, 0, sizeof *out);
    if (m->slab && !advance(m, m->n.d)) return false;
    *out = m->r;
    memset(&m->r, 0, sizeof m->r);
    return true;
}
