/* beams.h -- a first estimate of the dose of a plan from the targets alone, by
 * the geometry of the beams.
 *
 * The plans of OpenKBP have nine coplanar beams at gantry angles of 0, 40, ...
 * 320 degrees (Babier and others, Medical Physics 48 (2021) 5549), each open
 * where it sees a target. From each beam a voxel gets the highest dose that is
 * prescribed to a target on the ray through the voxel, in its axial slice; its
 * value is the mean over the beams, in Gy. Rays are parallel and not
 * attenuated. */
#ifndef SEG_DATA_DATASETS_BEAMS_H
#define SEG_DATA_DATASETS_BEAMS_H
#include "data/datasets/openkbp.h"

enum { BEAMS = 9 };

/* The targets of p (OPENKBP_TARGET and following) must have been read; a
 * missing target has no prescribed dose. v: one channel, F32, UNIT_GY, with the
 * geometry of openkbp_volume. Fails only when memory runs out. */
bool openkbp_beams(const OpenkbpPatient *p, Volume *v);
#endif
