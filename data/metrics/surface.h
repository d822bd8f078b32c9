/* surface.h -- distances between the surfaces of two masks, in mm. */
#ifndef SEG_DATA_METRICS_SURFACE_H
#define SEG_DATA_METRICS_SURFACE_H
#include "engine/graph/tensor.h"

/* A voxel is on the surface when it is in the mask and one of its face
 * neighbours is not, or would lie beyond the grid; along an axis of one voxel
 * (pictures) there are no neighbours. Distances are between centres of voxels:
 * d(a, B) from a voxel a of surface A to the nearest voxel of surface B. */
typedef struct Surface {
    int64_t voxels[2]; /* of the masks A and B: if one is 0, the distances below
                        * are NaN */
    double hd;         /* largest of all d(a, B) and d(b, A): Hausdorff
                        * distance */
    /* The larger of the 95th percentile of d(a, B) and that of d(b, A)
     * (Maier-Hein and others, Metrics Reloaded, 2024); and the 95th percentile
     * of all distances together, as some programs define it. Linear between two
     * ranks. */
    double hd95, hd95_union;
    double asd[2]; /* mean of d(a, B), of d(b, A)              */
    double assd;   /* mean of all d(a, B) and d(b, A) */
    double within; /* fraction of both surfaces within `tolerance_mm` of the
                    * other: the normalised surface Dice */
} Surface;

/* a, b: (d, h, w), not 0 in the mask; mm: edges of a voxel along w, h, d, at
 * right angles. Fails without memory. */
bool surface_compare(const uint8_t *a, const uint8_t *b, Dims n,
                     const double mm[3], double tolerance_mm, Surface *out);
#endif
