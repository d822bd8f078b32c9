/* standardize.c -- see standardize.h. */
#include "data/steps/standardize.h"
#include <math.h>
#include <string.h>

/* Means and deviations are given together, and bounds too if values are
 * clipped; without any, they are still to be found. */
bool standardize_settle(const DataStep *s)
{
    const int n = (int)s->standardize.mean_count;
    const bool cut = s->standardize.clip[0] > 0 || s->standardize.clip[1] < 100;
    if (s->standardize.clip[0] == s->standardize.clip[1])
        return fail_usage("standardize: clip leaves nothing between %g and %g "
                          "per cent",
                          s->standardize.clip[0], s->standardize.clip[1]);
    if ((int)s->standardize.sd_count != n)
        return fail_usage("standardize: %d numbers in mean, %d in sd", n,
                          (int)s->standardize.sd_count);

    if ((int)s->standardize.low_count != (cut ? n : 0) ||
        (int)s->standardize.high_count != (cut ? n : 0))
        return fail_usage("standardize: %d numbers in mean, %d in low, %d in "
                          "high; wanted %s",
                          n, (int)s->standardize.low_count,
                          (int)s->standardize.high_count,
                          cut ? "as many, for clip" : "none without clip");

    for (int i = 0; i < n; i++) {
        if (!(s->standardize.sd[i] > 0))
            return fail_usage("standardize: sd is 0, wanted more");
        if (cut && s->standardize.low[i] > s->standardize.high[i])
            return fail_usage("standardize: low is %g, high %g",
                              s->standardize.low[i], s->standardize.high[i]);
    }
    return true;
}

const char *standardize_what(const DataStep *s, char text[STEP_NAME])
{
    return *step_name(s->standardize.field, text) ? text : "the first field";
}

int standardize_field(const DataStep *s, const Dataset *ds)
{
    char name[STEP_NAME];
    return *step_name(s->standardize.field, name) ? dataset_field(ds, name) : 0;
}

bool standardize_volume(const DataStep *s, Volume *v)
{
    const int n = (int)s->standardize.mean_count;
    const Dims dim = v->voxels.dim;
    float *x = v->voxels.data;

    CHECK(v->voxels.type == F32);
    if (!n)
        return fail_usage(
            "its mean and sd are not known yet: they come from the training "
            "set; fix: train with the recipe, or in a script set = "
            "set:fitted(), and other:fitted_as(set)");

    if (n != dim.c)
        return fail_usage(
            "its mean and sd have %d channel%s, this field has %d", n,
            n == 1 ? "" : "s", dim.c);
    const bool cut = s->standardize.low_count > 0;

    for (int32_t c = 0; c < n; c++) {
        const double mean = s->standardize.mean[c];
        const double scale = 1 / s->standardize.sd[c];
        const double low = cut ? s->standardize.low[c] : -INFINITY;
        const double high = cut ? s->standardize.high[c] : INFINITY;
        for (int64_t i = c; i < numel(dim); i += n) {
            const double at = fmin(fmax((double)x[i], low), high);
            const double y = (at - mean) * scale;
            if (!isfinite((float)y))
                return fail_data("%g becomes %g: mean is %g and sd %g", at, y,
                                 mean, s->standardize.sd[c]);
            x[i] = (float)y;
        }
    }

    v->unit = UNIT_NONE;
    return true;
}

const float *standardize_zero(const Steps *steps, const Dataset *ds,
                              float *zero)
{
    int field = 0;
    bool moved = false;
    while (field < ds->fields && ds->field[field].kind != FIELD_NUMBER) field++;
    memset(zero, 0, MAX_STEP_REALS * sizeof *zero);

    for (int i = 0; i < steps->count && field < ds->fields; i++) {
        const DataStep *s = &steps->step[i];
        if (s->id != STEP_standardize || standardize_field(s, ds) != field)
            continue;
        moved = true;
        for (int c = 0; c < (int)s->standardize.mean_count; c++)
            zero[c] = (float)(((double)zero[c] - s->standardize.mean[c]) /
                              s->standardize.sd[c]);
    }
    return moved ? zero : NULL;
}

bool steps_fitted(const DataStep *s)
{
    return s->id != STEP_standardize || s->standardize.mean_count > 0;
}

/* Compares the part of a standardize step that a recipe describes; numbers and
 * kind are found. */
static bool same_description(const DataStep *a, const DataStep *b)
{
    return !memcmp(a->standardize.field, b->standardize.field,
                   sizeof a->standardize.field) &&
           (int)a->standardize.of == (int)b->standardize.of &&
           !memcmp(a->standardize.clip, b->standardize.clip,
                   sizeof a->standardize.clip);
}

/* step_settle has made the lists equally long, and they are zero after their
 * ends. */
static bool same_numbers(const DataStep *a, const DataStep *b)
{
    return a->standardize.mean_count == b->standardize.mean_count &&
           !memcmp(a->standardize.mean, b->standardize.mean,
                   sizeof a->standardize.mean) &&
           !memcmp(a->standardize.sd, b->standardize.sd,
                   sizeof a->standardize.sd) &&
           !memcmp(a->standardize.low, b->standardize.low,
                   sizeof a->standardize.low) &&
           !memcmp(a->standardize.high, b->standardize.high,
                   sizeof a->standardize.high);
}

bool steps_take(const Steps *from, Steps *to)
{
    int at = 0;
    for (int i = 0; i < to->count; i++) {
        if (to->step[i].id != STEP_standardize) continue;
        while (at < from->count && from->step[at].id != STEP_standardize) at++;
        if (at == from->count)
            return fail_usage("standardize: its mean and sd are not known: the "
                              "data set they come from has fewer such steps");
        const DataStep *s = &from->step[at++];
        if (s->standardize.mean_count == 0)
            return fail_usage("standardize: its mean and sd are not known yet");
        if (!same_description(s, &to->step[i]))
            return fail_usage(
                "standardize: its mean and sd were computed with other "
                "options; give it the same field, of and clip");
        if (steps_fitted(&to->step[i]) && !same_numbers(s, &to->step[i]))
            return fail_usage(
                "standardize: its mean and sd differ from the training set; "
                "leave mean and sd out, or give all sets the same");
        to->step[i] = *s;
    }
    return true;
}
