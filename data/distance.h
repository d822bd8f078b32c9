/* distance.h -- Euclidean distance transform, and signed distances. */
#ifndef SEG_DATA_DISTANCE_H
#define SEG_DATA_DISTANCE_H
#include "engine/graph/tensor.h"

/* Sets out[i] to the square of the Euclidean distance, in mm^2, from the centre
 * of voxel i to the nearest voxel centre where set is not 0; 0 inside the set,
 * INFINITY everywhere when the set is empty. Both have n.d * n.h * n.w
 * elements, w fastest; mm: edges of a voxel along w, h, d, at right angles.
 *
 * Exact up to the rounding of doubles, and linear in the number of voxels: the
 * lower envelope of parabolas along one axis after the other (Felzenszwalb and
 * Huttenlocher, Distance Transforms of Sampled Functions, 2012). Fails without
 * memory. */
bool distance_squared(const uint8_t *set, Dims n, const double mm[3],
                      double *out);

/* Sets out[i * step] to the distance in mm from the centre of voxel i to the
 * nearest voxel centre on the other side of the boundary of the set: positive
 * outside, negative inside. 0 everywhere without a boundary (no voxel of the
 * set, or nothing else). Fails without memory. */
bool distance_signed(const uint8_t *set, Dims n, const double mm[3], float *out,
                     int64_t step);
#endif
