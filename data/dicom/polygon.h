/* polygon.h -- fills closed polygons into the voxels of a plane.
 *
 * A voxel belongs to a shape if an odd number of its boundaries lies to the
 * left of the voxel's centre (even-odd rule), so a hole is a polygon inside
 * another, or one polygon with a channel of zero width to its hole (keyhole).
 * Centres are at whole numbers. A centre exactly on a boundary belongs to the
 * shape to its right and below it, so that shapes with a common edge neither
 * overlap nor leave a gap. */
#ifndef SEG_DATA_DICOM_POLYGON_H
#define SEG_DATA_DICOM_POLYGON_H
#include <stddef.h>
#include <stdint.h>

/* Adds the crossings of one polygon to toggle[h][w] (zero before the first):
 * points (u, v) = uv[2 i], uv[2 i + 1] in columns and rows, finite, closed from
 * the last to the first. Parts outside the plane are clipped. The result does
 * not depend, bit for bit, on the direction of a polygon or the order of
 * polygons. */
void contour_add(uint8_t *toggle, int32_t h, int32_t w, const double *uv,
                 size_t points);

/* Turns toggle into 1 inside and 0 outside. */
void contour_fill(uint8_t *toggle, int32_t h, int32_t w);
#endif
