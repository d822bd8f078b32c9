/* restore.c -- a prediction on its prepared grid, brought back to the grid of
 * the input (the end of pipeline.h).
 *
 * Every step that changes the grid keeps the affine right, so however many
 * there were, one resampling from the prepared grid to the input's undoes
 * them all; where the two grids share voxel centres it only moves values. */
#include "pipeline.h"
#include <inttypes.h>
#include <math.h>
#include <string.h>

/* the affine comes along, so that the volume knows where it is */
bool prediction_new(const Prepared *like, int channels, Volume *out)
{
    const Grid *g = &like->grid;
    const Dims n = {1, g->d, g->h, g->w, channels};
    if (!volume_new(out, n, F32)) return false;
    memcpy(out->affine, g->affine, sizeof out->affine);
    return true;
}

bool prepared_volume(const Prepared *p, int field, Volume *out)
{
    const Grid *g = &p->grid;
    const Dims n = p->field[field].dim;
    if (n.d != g->d || n.h != g->h || n.w != g->w)
        return fail_usage("numbers of a case lie on no grid");
    if (!volume_new(out, n, F32)) return false;
    memcpy(out->affine, g->affine, sizeof out->affine);
    const Box all = {{0, 0, 0}, {n.w, n.h, n.d}};
    prepared_sample(p, field, &all, out->voxels.data);
    return true;
}

/* Is all of a sample finite? NaN is above no threshold and below none: as
 * labels it would look like a network that found nothing. */
static bool check_finite(const Pipeline *p, SampleId id, const float *x,
                         int64_t n)
{
    int64_t bad = 0;
    for (int64_t i = 0; i < n; i++) bad += !isfinite(x[i]);
    return !bad ||
           fail_diverged("%s: %" PRId64 " of %" PRId64
                         " values of the prediction are not finite; look at "
                         "the image, and at how the weights were trained",
                         pipeline_dataset(p)->cases[id.item].key, bad, n);
}

bool prediction_put(Volume *prediction, const Pipeline *p, int32_t number,
                    const float *sample)
{
    const Steps *steps = pipeline_steps(p);
    const DataStep *parts = steps_parts(steps);
    const SampleId id = pipeline_id(p, number);
    const Dims n = prediction->voxels.dim;
    CHECK(prediction->voxels.type == F32);
    if (part_drawn(steps))
        return fail_usage("patches drawn at random do not cover a case; fix: "
                          "patches with at = \"grid\"");
    Dims given = pipeline_dims_of(p, number, 0);
    given.c = n.c;
    if (!check_finite(p, id, sample, numel(given))) return false;
    if (parts && parts->id == STEP_patches)
        return part_blend(steps, id.part, sample, &prediction->voxels);
    // slices and whole volumes are whole planes
    const Box box = part_box(steps, n, id.part);
    const int64_t plane = (int64_t)n.h * n.w * n.c;
    memcpy((float *)prediction->voxels.data + box.from[2] * plane, sample,
           (size_t)(box.n[2] * plane) * sizeof *sample);
    return true;
}

/* Labels are told by their type: a value between two classes would be a
 * third. */
bool prediction_restore(const Volume *prediction, const Prepared *like,
                        Volume *out)
{
    bool labels = prediction->voxels.type != F32;
    return volume_resample(prediction, &like->input, labels ? NEAREST : LINEAR,
                           0, out);
}

/* The narrowest type that holds all of the labels; false: none does. */
static bool label_type(const int32_t *label, int count, Dtype *type)
{
    *type = U8;
    for (int i = 0; i < count; i++) {
        int32_t v = label[i];
        if (v > 1 << 24 || v < -(1 << 24))
            return fail_data("label %d: a value beyond 2^24 cannot be written",
                             (int)v);
        if (v < INT16_MIN || v > INT16_MAX)
            *type = F32;
        else if ((v < 0 || v > UINT8_MAX) && *type == U8)
            *type = I16;
    }
    return true;
}

bool prediction_relabel(const Volume *classes, const int32_t *label, int count,
                        Volume *out)
{
    Dtype type;
    CHECK(classes->voxels.type == U8);
    if (!label_type(label, count, &type)) return false;
    if (!volume_new(out, classes->voxels.dim, type)) return false;
    memcpy(out->affine, classes->affine, sizeof out->affine);
    out->unit = classes->unit;
    const uint8_t *x = classes->voxels.data;
    for (int64_t i = 0, n = numel(classes->voxels.dim); i < n; i++) {
        int32_t v = x[i] && x[i] <= count ? label[x[i] - 1] : x[i];
        if (type == U8)
            ((uint8_t *)out->voxels.data)[i] = (uint8_t)v;
        else if (type == I16)
            ((int16_t *)out->voxels.data)[i] = (int16_t)v;
        else
            ((float *)out->voxels.data)[i] = (float)v;
    }
    return true;
}
