/* datacheck.h -- compares batches made on a device with those of the host.
 *
 * Samples of two images, a quantity and a mask lie on the device
 * (device_dataset.h); the same steps augment batches of them on device and
 * host. Values must agree within 1e-5 of the largest of: the range of the field
 * in the sample, its largest magnitude, and the amount that a step added to it;
 * exactly if only flips were applied. Of all labels under spatial maps one in
 * 10,000 may differ, other labels may not. */
#ifndef SEG_ENGINE_CHECK_DATACHECK_H
#define SEG_ENGINE_CHECK_DATACHECK_H
#include "engine/check/opcase.h"

/* Runs all cases and returns their number. A case that cannot run is a failure.
 * There are none for a backend without batch gather. */
int datacheck_run(OpCheck *k);
#endif
