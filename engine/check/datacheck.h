/* datacheck.h -- does a device make the batches that the host makes?
 *
 * Samples of two images, a quantity and a mask lie on the device
 * (device_dataset.h); batches of them are changed there and here by the same
 * steps. Values of the two agree within 1e-5 of the largest of: the range of
 * the field in the sample, its largest magnitude, and what a step added to it;
 * exactly where nothing happened but flips. Of all labels under maps one in
 * 10,000 may differ, others may not. */
#ifndef SEG_ENGINE_CHECK_DATACHECK_H
#define SEG_ENGINE_CHECK_DATACHECK_H
#include "engine/check/opcase.h"

/* Run all cases; how many. A case that cannot run is a failure. On a backend
 * that keeps no data there are none. */
int datacheck_run(OpCheck *k);
#endif
