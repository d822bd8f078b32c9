/* patch.c -- see patch.h.
 *
 * The places of a grid of patches are a product of places along each axis, so
 * the sum of the weights at a voxel is also a product over the axes, and no
 * volume of weights is needed. */
#include "data/preprocess/patch.h"
#include <math.h>
#include <string.h>

/* Extents of a patch of a volume of extents n, along w, h, d. */
static void patch_extents(const DataStep *s, Dims n, int32_t out[3])
{
    const double want[3] = {s->patches.w, s->patches.h, s->patches.d};
    const int32_t all[3] = {n.w, n.h, n.d};
    for (int a = 0; a < 3; a++)
        out[a] = want[a] > 0 ? (int32_t)want[a] : all[a];
}

/* Number of places of a grid along an axis of n voxels. */
static int32_t places(const DataStep *s, int32_t n, int32_t patch)
{
    double step = patch * (1 - s->patches.overlap);
    // no place twice
    if (step < 1) step = 1;
    // the tolerance keeps 64 / (128 * 0.5) at 1
    return 1 + (int32_t)ceil((n - patch) / step - 1e-9);
}

/* The first voxel of place i of `count`. */
static int32_t place(int32_t n, int32_t patch, int32_t count, int32_t i)
{
    if (count == 1) return 0;
    return (int32_t)floor((double)(n - patch) * i / (count - 1) + 0.5);
}

Dims part_dims(const Steps *steps, Dims n)
{
    const DataStep *s = steps_parts(steps);
    int32_t patch[3];
    if (!s) return n;
    if (s->id == STEP_slices) {
        n.d = 1;
        return n;
    }
    patch_extents(s, n, patch);
    return (Dims){n.n, patch[2], patch[1], patch[0], n.c};
}

int part_rank(const Steps *steps, int rank)
{
    const DataStep *s = steps_parts(steps);
    const bool flat = s && (s->id == STEP_slices || s->patches.d == 1);
    return rank == 3 && flat ? 2 : rank;
}

bool part_drawn(const Steps *steps)
{
    const DataStep *s = steps_parts(steps);
    return s && s->id == STEP_patches && (int)s->patches.at == PATCHES_RANDOM;
}

bool patch_wants_class_counts(const Steps *steps)
{
    return part_drawn(steps) && steps_parts(steps)->patches.foreground > 0;
}

/* Number of places along w, h, d. */
static void grid_places(const DataStep *s, Dims n, int32_t count[3])
{
    const int32_t all[3] = {n.w, n.h, n.d};
    int32_t patch[3];
    patch_extents(s, n, patch);
    for (int a = 0; a < 3; a++) count[a] = places(s, all[a], patch[a]);
}

int32_t part_count(const Steps *steps, Dims n)
{
    const DataStep *s = steps_parts(steps);
    int32_t count[3];
    if (!s) return 1;
    if (s->id == STEP_slices) return n.d;
    if (part_drawn(steps)) return (int32_t)s->patches.count;
    grid_places(s, n, count);
    // at most one place per voxel, and pack_check allows 2^40 voxels
    int64_t all = (int64_t)count[0] * count[1] * count[2];
    return all < INT32_MAX ? (int32_t)all : INT32_MAX;
}

Box part_box(const Steps *steps, Dims n, int32_t part)
{
    const DataStep *s = steps_parts(steps);
    const int32_t all[3] = {n.w, n.h, n.d};
    Box box = {{0, 0, 0}, {n.w, n.h, n.d}};
    int32_t count[3];

    CHECK(!part_drawn(steps) && part >= 0 && part < part_count(steps, n));
    if (s && s->id == STEP_slices) {
        box.from[2] = part, box.n[2] = 1;
    } else if (s) {
        grid_places(s, n, count);
        patch_extents(s, n, box.n);
        for (int a = 0; a < 3; a++) {
            box.from[a] = place(all[a], box.n[a], count[a], part % count[a]);
            part /= count[a];
        }
    }
    return box;
}

/* ---- random patches ------------------------------------------------------ */

bool patch_class_counts(const Pack *label, PatchClassCounts *out)
{
    const Dims n = label->dim;
    const int64_t area = (int64_t)n.h * n.w;
    float *x = mem_alloc((size_t)area * sizeof *x);

    // counts of all possible classes; absent classes are removed below
    uint32_t(*all)[256] = mem_alloc((size_t)n.d * sizeof *all);
    bool seen[256] = {false}, ok = x && all;
    PatchClassCounts c = {.classes = 0};
    CHECK(n.c == 1);
    for (int32_t d = 0; ok && d < n.d; d++) {
        pack_read(label, d, 1, x);
        for (int64_t i = 0; i < area; i++) all[d][(int)x[i]]++;
        for (int k = 1; k < 256; k++) seen[k] = seen[k] || all[d][k];
    }

    for (int k = 1; k < 256; k++) c.classes += seen[k];
    if (ok && c.classes) {
        c.label = mem_alloc((size_t)c.classes);
        c.count = mem_alloc((size_t)c.classes * (size_t)n.d * sizeof *c.count);
        ok = c.label && c.count;
    }

    for (int k = 1, i = 0; ok && k < 256; k++) {
        if (!seen[k]) continue;
        c.label[i] = (uint8_t)k;
        for (int32_t d = 0; d < n.d; d++) c.count[i * n.d + d] = all[d][k];
        i++;
    }

    mem_free(x);
    mem_free(all);
    if (!ok) patch_class_counts_free(&c);
    *out = c;
    return ok;
}

void patch_class_counts_free(PatchClassCounts *c)
{
    mem_free(c->label);
    mem_free(c->count);
    *c = (PatchClassCounts){.classes = 0};
}

/* Voxel number `which` of class k, in memory order: at = w, h, d. */
static bool find_voxel(const Pack *label, const PatchClassCounts *class_counts,
                       int32_t k, uint64_t which, int32_t at[3])
{
    const Dims n = label->dim;
    const uint32_t *count = class_counts->count + (int64_t)k * n.d;
    int32_t d = 0;

    while (which >= count[d]) which -= count[d++];
    float *x = mem_alloc((size_t)n.h * (size_t)n.w * sizeof *x);
    if (!x) return false;
    pack_read(label, d, 1, x);
    int64_t i = 0;
    for (;; i++)
        if (x[i] == class_counts->label[k] && which-- == 0) break;
    mem_free(x);
    at[0] = (int32_t)(i % n.w), at[1] = (int32_t)(i / n.w), at[2] = d;
    return true;
}

/* A foreground voxel: a class, all equally likely, then one of its voxels. */
static bool draw_voxel(const Pack *label, const PatchClassCounts *class_counts,
                       const Rng *draw, int32_t at[3])
{
    const int32_t d = label->dim.d;
    const int32_t k =
        (int32_t)rng_below(draw, 1, (uint32_t)class_counts->classes);
    uint64_t all = 0;
    for (int32_t i = 0; i < d; i++)
        all += class_counts->count[(int64_t)k * d + i];
    // a volume of more voxels would not fit into memory as floats
    uint32_t most = all < UINT32_MAX ? (uint32_t)all : UINT32_MAX;
    return find_voxel(label, class_counts, k, rng_below(draw, 2, most), at);
}

bool part_draw(const Steps *steps, Dims n, const PatchClassCounts *class_counts,
               const Pack *label, const Rng *draw, Box *out)
{
    const DataStep *s = steps_parts(steps);
    const int32_t all[3] = {n.w, n.h, n.d};
    CHECK(part_drawn(steps));
    patch_extents(s, n, out->n);

    if (class_counts && class_counts->classes &&
        rng_uniform(draw, 0) < (float)s->patches.foreground) {
        if (!draw_voxel(label, class_counts, draw, out->from)) return false;
        for (int a = 0; a < 3; a++) {
            int32_t from = out->from[a] - out->n[a] / 2;
            if (from > all[a] - out->n[a]) from = all[a] - out->n[a];
            out->from[a] = from < 0 ? 0 : from;
        }
        return true;
    }

    for (int a = 0; a < 3; a++)
        out->from[a] = (int32_t)rng_below(draw, 2 + (uint32_t)a,
                                          (uint32_t)(all[a] - out->n[a] + 1));
    return true;
}

/* ---- stitching ---------------------------------------------------------- */

/* g of patch.h for voxel x of a patch. */
static double weight(int32_t x, int32_t patch)
{
    const double z = (x - (patch - 1) / 2.0) / (patch / 8.0);
    return exp(-0.5 * z * z);
}

/* out = the weights of the voxels of the place that begins at `from`, divided
 * by the sum of the weights of all places at each voxel. */
static void axis_weights(const DataStep *s, int32_t n, int32_t patch,
                         int32_t from, float *out)
{
    const int32_t count = places(s, n, patch);
    for (int32_t x = 0; x < patch; x++) {
        double sum = 0;
        for (int32_t i = 0; i < count; i++) {
            const int32_t at = from + x - place(n, patch, count, i);
            if (at >= 0 && at < patch) sum += weight(at, patch);
        }
        out[x] = (float)(weight(x, patch) / sum);
    }
}

bool part_blend(const Steps *steps, Dims n, int32_t part, const float *sample,
                int32_t first, float *planes)
{
    const DataStep *s = steps_parts(steps);
    const int32_t all[3] = {n.w, n.h, n.d};
    const Box box = part_box(steps, n, part);

    CHECK(s && s->id == STEP_patches && box.from[2] >= first);
    size_t room = 0;
    for (int a = 0; a < 3; a++) room += (size_t)box.n[a];
    float *w = mem_alloc(room * sizeof *w);
    if (!w) return false;
    float *axis[3] = {w, w + box.n[0], w + box.n[0] + box.n[1]};
    for (int a = 0; a < 3; a++)
        axis_weights(s, all[a], box.n[a], box.from[a], axis[a]);

    for (int32_t d = 0; d < box.n[2]; d++)
        for (int32_t h = 0; h < box.n[1]; h++) {
            const float dh = axis[2][d] * axis[1][h];
            const int64_t row =
                ((int64_t)(box.from[2] - first + d) * n.h + box.from[1] + h) *
                n.w;
            float *y = planes + (row + box.from[0]) * n.c;
            for (int32_t x = 0; x < box.n[0]; x++)
                for (int32_t c = 0; c < n.c; c++)
                    *y++ += dh * axis[0][x] * *sample++;
        }

    mem_free(w);
    return true;
}
