/* case_grid.h -- all fields of a case lie on the grid of its first.
 *
 * Two files of one case rarely agree on the order of axes: programs that draw
 * masks write a NIfTI of slices in DICOM with columns and rows that run the
 * other way. That is a question of order alone and is settled without asking;
 * everything that would make new values is an error until it is asked for. */
#ifndef SEG_DATA_DATASET_CASE_GRID_H
#define SEG_DATA_DATASET_CASE_GRID_H
#include "data/dataset/dataset.h"

/* *v, as it was loaded, becomes one on the grid of `like`: as it is; or its own
 * voxels moved, when they are those of `like` with axes exchanged or turned
 * round (centres agree as volume_same_grid says); by index, for PLACE_FIRST;
 * else resampled, when the options say so, labels by nearest neighbour. Else
 * ERR_DATA with both grids and the way out, and *v stays as it was. */
bool case_grid(const DatasetOptions *o, const DatasetField *field,
               SourcePlace place, const Volume *like, Volume *v);
#endif
