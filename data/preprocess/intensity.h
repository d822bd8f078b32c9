/* intensity.h -- statistics of the intensities of an image, before any step.
 *
 * Checkpoints keep only the ranges of these statistics over all training cases,
 * so that predict can warn of a new image outside them. */
#ifndef SEG_DATA_PREPROCESS_INTENSITY_H
#define SEG_DATA_PREPROCESS_INTENSITY_H
#include "data/volume.h"

enum { INTENSITY_CHANNELS = 4 }; /* only the first channels are measured  */

/* Smallest, largest, mean and (population) standard deviation of the voxels of
 * one channel, in the unit of the file. */
typedef struct Intensity {
    float lo, hi, mean, sd;
} Intensity;

/* Measures the first channels of a volume of F32; returns how many. Sums are in
 * double, in the order of voxels: the same on every machine. */
int intensity_find(const Volume *v, Intensity out[INTENSITY_CHANNELS]);
#endif
