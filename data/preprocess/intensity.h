/* intensity.h -- how large the voxels of an image are, before any step.
 *
 * Of the cases of training only ranges over all of them are kept in a
 * checkpoint, so that predict can say which new image is unlike them. */
#ifndef SEG_DATA_PREPROCESS_INTENSITY_H
#define SEG_DATA_PREPROCESS_INTENSITY_H
#include "data/volume.h"

enum { INTENSITY_CHANNELS = 4 }; /* the first channels, the others unseen */

/* Smallest, largest, mean and standard deviation (of the population) of the
 * voxels of one channel, in the unit of the file. */
typedef struct Intensity {
    float lo, hi, mean, sd;
} Intensity;

/* Of the first channels of a volume of F32; returns how many. Sums are in
 * double, in the order of voxels: the same on every machine. */
int intensity_find(const Volume *v, Intensity out[INTENSITY_CHANNELS]);
#endif
