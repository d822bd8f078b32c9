/* surface.h -- how far the surfaces of two things are from each other, in mm.
 */
#ifndef SEG_DATA_METRICS_SURFACE_H
#define SEG_DATA_METRICS_SURFACE_H
#include "engine/graph/tensor.h"

/* A voxel is of the surface when it is in the mask and one of its neighbours
 * across a face is not, or would lie beyond the grid; along an axis of one
 * voxel (pictures) there are no neighbours. Distances are between centres of
 * voxels: d(a, B) from a voxel a of surface A to the nearest of surface B. */
typedef struct Surface {
    int64_t voxels[2]; /* of A and B, the masks: one may be 0, and then the
                        * distances below are NaN */
    double hd;         /* largest of all d(a, B) and d(b, A): Hausdorff's */
    /* The 95th percentile of d(a, B) and that of d(b, A), the larger of them
     * (Maier-Hein and others, Metrics Reloaded, 2024); and that of all of them
     * together, as some programs have it. Linear between two ranks. */
    double hd95, hd95_union;
    double asd[2]; /* mean of d(a, B), of d(b, A)              */
    double assd;   /* mean of all of them together            */
    double within; /* share of both surfaces within `tolerance` of the other:
                    * the normalised surface Dice */
} Surface;

/* a, b: (d, h, w), not 0 in the mask; mm: edges of a voxel along w, h, d, which
 * are at right angles. Fails without memory. */
bool surface_compare(const uint8_t *a, const uint8_t *b, Dims n,
                     const double mm[3], double tolerance_mm, Surface *out);
#endif
