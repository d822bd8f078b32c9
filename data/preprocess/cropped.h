/* cropped.h -- the ground truth that the steps of a case have cropped away. */
#ifndef SEG_DATA_PREPROCESS_CROPPED_H
#define SEG_DATA_PREPROCESS_CROPPED_H
#include "data/preprocess/pipeline.h"

typedef enum CroppedKind {
    CROPPED_NOTHING, /* the prepared grid contains the whole input     */
    CROPPED_COUNTED,
    CROPPED_UNKNOWN, /* a function of the recipe changes the labels    */
} CroppedKind;

/* For case `item`: voxels[k] = the volume of class k of field `field` (class
 * numbers) with voxel centres outside the prepared grid, in voxels of that
 * grid; 0 for k = 0. fit and crop remove it, so no sample contains it and no
 * network can predict it. Reads the file again unless nothing was cropped.
 * Fails as case_load does. */
bool cropped_count(Pipeline *p, int item, int field, CroppedKind *kind,
                   double voxels[MAX_LABELS + 1]);
#endif
