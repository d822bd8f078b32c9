/* cropped.c -- see cropped.h. */
#include "data/preprocess/cropped.h"
#include <math.h>
#include <string.h>

/* The position of voxel (w, h, d) of a grid in another one: to = other^-1
 * grid. */
static void place_of(double to[4][4], const double at[3], double out[3])
{
    for (int a = 0; a < 3; a++)
        out[a] =
            to[a][0] * at[0] + to[a][1] * at[1] + to[a][2] * at[2] + to[a][3];
}

/* Is the position inside the grid? The tolerance allows for rounding of
 * affines. */
static bool reaches(const Grid *g, const double at[3])
{
    const int32_t n[3] = {g->w, g->h, g->d};
    for (int a = 0; a < 3; a++)
        if (at[a] < -0.5 - 1e-5 || at[a] >= n[a] - 0.5 + 1e-5) return false;
    return true;
}

/* A grid is a box, so it contains another grid if it contains its corners. */
static bool holds(const Grid *g, const Grid *other, double to[4][4])
{
    for (int corner = 0; corner < 8; corner++) {
        const double at[3] = {corner & 1 ? other->w - 1 : 0,
                              corner & 2 ? other->h - 1 : 0,
                              corner & 4 ? other->d - 1 : 0};
        double there[3];
        place_of(to, at, there);
        if (!reaches(g, there)) return false;
    }
    return true;
}

/* Volume of a voxel: |det| of the three edges. */
static double voxel_volume(const Grid *g)
{
    double mm[3];
    grid_spacing_mm(g, mm);
    return mm[0] * mm[1] * mm[2];
}

/* Applies the select steps to the class numbers of a file; false if a function
 * of the recipe changes labels. */
static bool classes_after(const Steps *steps, uint8_t of[MAX_LABELS + 1])
{
    for (int k = 0; k <= MAX_LABELS; k++) of[k] = (uint8_t)k;
    for (int i = 0; i < steps->count; i++) {
        const DataStep *s = &steps->step[i];
        if (s->id == STEP_change) return false;
        for (int k = 0; s->id == STEP_select && k <= MAX_LABELS; k++) {
            bool listed = false;
            for (int j = 0; j < (int)s->select.labels_count; j++)
                listed |= (int)s->select.labels[j] == of[k];
            of[k] = listed;
        }
    }
    return true;
}

bool cropped_count(Pipeline *p, int item, int field, CroppedKind *kind,
                   double voxels[MAX_LABELS + 1])
{
    const Dataset *ds = pipeline_dataset(p);
    const Prepared *one;
    Grid now, input;
    Volume truth = {.voxels = {.data = NULL}};
    double to[4][4];
    uint8_t of[MAX_LABELS + 1];

    CHECK(ds->field[field].kind == FIELD_LABEL);
    memset(voxels, 0, (MAX_LABELS + 1) * sizeof *voxels);
    *kind = CROPPED_NOTHING;
    if (!pipeline_get(p, item, &one)) return false;
    now = one->grid, input = one->input;
    pipeline_put(p, one);
    if (!affine_invert(now.affine, to)) return false;
    affine_multiply(to, input.affine, to);
    if (holds(&now, &input, to)) return true;
    *kind = CROPPED_UNKNOWN;
    if (!classes_after(pipeline_steps(p), of)) return true;
    *kind = CROPPED_COUNTED;
    const Volume like = volume_of_grid(&input);
    if (!case_load(ds, item, field, &like, &truth, NULL)) return false;
    const uint8_t *x = truth.voxels.data;

    for (int32_t d = 0; d < input.d; d++)
        for (int32_t h = 0; h < input.h; h++)
            for (int32_t w = 0; w < input.w; w++, x++) {
                const double at[3] = {w, h, d};
                double there[3];
                if (!of[*x]) continue;
                place_of(to, at, there);
                if (!reaches(&now, there)) voxels[of[*x]]++;
            }

    for (int k = 1; k <= MAX_LABELS; k++)
        voxels[k] *= voxel_volume(&input) / voxel_volume(&now);
    volume_free(&truth);
    return true;
}
