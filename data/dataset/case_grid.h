/* case_grid.h -- brings all fields of a case onto the grid of its first field.
 *
 * Two files of one case often differ in the order of axes: some programs write
 * a mask of DICOM slices as NIfTI with columns and rows reversed. Such a
 * difference only reorders voxels and is resolved without an option. A
 * difference that would need interpolation is an error until the user selects
 * resampling. */
#ifndef SEG_DATA_DATASET_CASE_GRID_H
#define SEG_DATA_DATASET_CASE_GRID_H
#include "data/dataset/dataset.h"

/* Brings *v, as loaded, onto the grid of `like`. *v is unchanged if it is on
 * that grid; its voxels are reordered if the two grids differ only in the order
 * or direction of axes (centres agree as in volume_same_grid); PLACE_FIRST
 * takes the grid of `like` by index; else *v is resampled if the options allow
 * it, labels by nearest neighbour. Otherwise fails with ERR_DATA, both grids
 * and the fix, and *v is unchanged. */
bool case_grid(const DatasetOptions *o, const DatasetField *field,
               SourcePlace place, const Volume *like, Volume *v);
#endif
