/* dose.h -- synthetic patients of head-and-neck radiotherapy, with their plans.
 *
 * Necks in the format of OpenKBP: CT, contours of organs and targets, the
 * possible dose mask, and the dose of a plan. Nine beams around the patient are
 * each open where they meet a target and attenuated by the tissue before it;
 * the dose is homogenised in the targets and reduced in organs, as by an
 * optimiser. As in real data, patients differ in size, in the side of the
 * tumour, and in the contoured structures. */
#ifndef SEG_DATA_PHANTOM_DOSE_H
#define SEG_DATA_PHANTOM_DOSE_H
#include "data/datasets/openkbp.h"
#include "data/phantom/phantom.h"

/* All grids of a patient, dense, in the order of openkbp.h; absent grids (`has`
 * false) are 0. */
typedef struct RadioPlan {
    float *grid[OPENKBP_GRIDS]; /* OPENKBP_VOXELS each, in one block */
    bool has[OPENKBP_GRIDS];
    double spacing_mm[3]; /* of d, h, w: to posterior, left, inferior */
} RadioPlan;

/* Makes patient 0 .. patients - 1; freed by dose_free. */
bool dose_make(const Phantom *how, int patient, RadioPlan *p);
void dose_free(RadioPlan *p);

/* Writes the folder pt_N, N from 1, with the files of the challenge. */
bool dose_write(const char *folder, const Phantom *how, int patient);
#endif
