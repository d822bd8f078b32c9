/* polygon.h -- closed polygons into voxels of a plane.
 *
 * A voxel belongs to a shape when an odd number of its boundaries lies to the
 * left of the voxel's centre (even-odd rule), so a hole is a polygon inside
 * another, or one polygon with a channel of no width to its hole (keyhole).
 * Centres are at whole numbers. One exactly on a boundary belongs to the shape
 * to its right and below it, so that shapes that share an edge neither overlap
 * nor leave a gap. */
#ifndef SEG_DATA_DICOM_POLYGON_H
#define SEG_DATA_DICOM_POLYGON_H
#include <stddef.h>
#include <stdint.h>

/* Crossings of one polygon added to toggle[h][w] (zero before the first):
 * points (u, v) = uv[2 i], uv[2 i + 1] in columns and rows, finite, closed from
 * the last to the first. What lies outside the plane is cut off. The direction
 * of a polygon and the order of polygons change nothing, bit for bit. */
void contour_add(uint8_t *toggle, int32_t h, int32_t w, const double *uv,
                 size_t points);

/* toggle becomes 1 inside, 0 outside. */
void contour_fill(uint8_t *toggle, int32_t h, int32_t w);
#endif
