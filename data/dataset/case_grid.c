/* case_grid.c -- see case_grid.h. */
#include "data/dataset/case_grid.h"
#include <string.h>

/* Some programs write a NIfTI of DICOM slices with another order of axes: if
 * the voxels of v lie on those of `like`, *v is reordered to the axes of
 * `like`, without interpolation. Else *same is false and v is unchanged. */
static bool settle_order(const Volume *like, Volume *v, bool *same)
{
    const Grid grid = volume_grid_along(v, like);
    const Volume turned = volume_of_grid(&grid);
    Volume moved;
    *same = volume_same_grid(like, &turned);
    if (!*same) return true;
    if (!volume_resample(v, &grid, NEAREST, 0, &moved)) return false;
    volume_free(v);
    *v = moved;
    return true;
}

static bool same_extents(const Volume *a, const Volume *b)
{
    const Dims n = a->voxels.dim, m = b->voxels.dim;
    return n.d == m.d && n.h == m.h && n.w == m.w;
}

/* Gives a volume without a position the grid of `like`, by index. */
static bool settle_place(const Volume *like, Volume *v)
{
    const Dims n = v->voxels.dim, m = like->voxels.dim;
    memcpy(v->affine, like->affine, sizeof v->affine);
    return same_extents(like, v) ||
           fail_data("%d x %d x %d voxels (d, h, w), and the first field has "
                     "%d x %d x %d",
                     n.d, n.h, n.w, m.d, m.h, m.w);
}

/* Do two fields of view overlap too little to show the same region? *share: how
 * much they overlap. */
static bool lie_apart(const Volume *like, const Volume *v, double *share)
{
    const Grid a = volume_grid(like), b = volume_grid(v);
    return grid_share(&a, &b, share) && *share < GRID_LEAST_SHARE;
}

/* Fails with two different grids and the fix. A mask that belongs to another
 * image must be found, not resampled. */
static bool grid_refused(const DatasetField *field, SourcePlace place,
                         const Volume *like, const Volume *v)
{
    const bool index = place == PLACE_NONE && same_extents(like, v);
    const bool mask = field->kind == FIELD_LABEL;
    double share;
    const bool apart =
        mask && !index && field->rank == 3 && lie_apart(like, v, &share);

    // the reason of volume_same_grid names both grids as in the files
    if (volume_same_grid(like, v)) return true;
    if (apart)
        return fail_data("%s; they lie apart (%.0f %% of the smaller one is in "
                         "the other); fix: the mask of this image, or the "
                         "header of the file that is wrong",
                         err_text(), 100 * share);

    return fail_data(
        "%s; fix: %s", err_text(),
        field->rank < 3
            ? "files of one size: these have no position relative to each other"
        : index ? "same_grid = true in its field when its voxels "
                  "are those of the first field, one by one"
        : mask  ? "check that the mask belongs to this image; if it does, "
                  "resample_mask = true"
                : "resample = true");
}

bool case_grid(const DatasetOptions *o, const DatasetField *field,
               SourcePlace place, const Volume *like, Volume *v)
{
    const bool mask = field->kind == FIELD_LABEL;
    Volume moved;
    bool same;

    if (place == PLACE_FIRST) return settle_place(like, v);
    if (volume_same_grid(like, v)) return true;
    if (!settle_order(like, v, &same)) return false;
    if (same) return true;

    // a picture has no position from which to resample
    if (field->rank < 3 || !(mask ? o->resample_mask : o->resample))
        return grid_refused(field, place, like, v);

    // outside its own field of view a mask is background, a channel 0
    Grid grid = volume_grid(like);
    if (!volume_resample(v, &grid, mask ? NEAREST : LINEAR, 0, &moved))
        return false;
    volume_free(v);
    *v = moved;
    return true;
}
