/* beams.h -- where the beams of a plan pass: a first guess of its dose from the
 * targets alone.
 *
 * The plans of OpenKBP have nine coplanar beams at gantry angles of 0, 40, ...
 * 320 degrees (Babier and others, Medical Physics 48 (2021) 5549), each open
 * where it sees a target. A voxel gets, of each beam, the highest dose that is
 * prescribed to a target on the ray through it, in its axial slice; its value
 * is their mean, in Gy. Rays are parallel, and weakened by nothing on their
 * way.
 */
#ifndef SEG_DATA_DATASETS_BEAMS_H
#define SEG_DATA_DATASETS_BEAMS_H
#include "data/datasets/openkbp.h"

enum { BEAMS = 9 };

/* The targets of p (OPENKBP_TARGET and on) must have been read; one that
 * is missing is prescribed nothing. One channel, F32, UNIT_GY, with the
 * geometry of openkbp_volume. Fails without memory. */
bool openkbp_beams(const OpenkbpPatient *p, Volume *v);
#endif
