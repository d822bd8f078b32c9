/* cropped.h -- what of the truth the steps of a case have cut off. */
#ifndef SEG_DATA_PREPROCESS_CROPPED_H
#define SEG_DATA_PREPROCESS_CROPPED_H
#include "data/preprocess/pipeline.h"

typedef enum OutsideKind {
    OUTSIDE_NOTHING, /* the prepared grid holds the whole input        */
    OUTSIDE_COUNTED,
    OUTSIDE_UNKNOWN, /* a function of the recipe changes what is true  */
} OutsideKind;

/* Of case `item`: voxels[k] = the volume of class k of field `field` (class
 * numbers) whose voxels have their centre beyond the prepared grid, in voxels
 * of that grid; 0 for k = 0. fit and crop cut it off, so that no sample has it
 * and no network can find it. Reads the file again, unless nothing is cut.
 * Fails as case_load does. */
bool outside_count(Pipeline *p, int item, int field, OutsideKind *kind,
                   double voxels[MAX_LABELS + 1]);
#endif
