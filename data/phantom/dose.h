/* dose.h -- made-up patients of head-and-neck radiotherapy, with their plans.
 *
 * Necks as OpenKBP has them: CT, contours of organs and targets, where there
 * may be dose, and the dose of a plan: nine beams around the patient, each open
 * where it sees a target, weakened by what is before it, with the targets
 * evened out and organs spared as an optimiser would. Like real ones they
 * differ in size, in the side of the tumour, and in what was contoured. */
#ifndef SEG_DATA_PHANTOM_DOSE_H
#define SEG_DATA_PHANTOM_DOSE_H
#include "data/datasets/openkbp.h"
#include "data/phantom/phantom.h"

/* All grids of a patient, dense, in the order of openkbp.h; those that are not
 * there (`has` false) are 0. */
typedef struct RadioPlan {
    float *grid[OPENKBP_GRIDS]; /* OPENKBP_VOXELS each, in one block */
    bool has[OPENKBP_GRIDS];
    double spacing_mm[3]; /* of d, h, w: to posterior, left, inferior */
} RadioPlan;

/* Patient 0 .. patients - 1; freed by dose_free. */
bool dose_make(const Phantom *how, int patient, RadioPlan *p);
void dose_free(RadioPlan *p);

/* The folder pt_N, N from 1, with the challenge's files. */
bool dose_write(const char *folder, const Phantom *how, int patient);
#endif
