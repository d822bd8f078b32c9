/* readback.h -- values put aside on a device, to be read together.
 *
 * Reading a value waits for all that is queued. A pass over a validation set
 * wants the loss and the counts of every batch, but only at its end: each is
 * copied behind the others on the device, and one copy a block brings all of
 * them here. The bits are those that reading at once would give. */
#ifndef SEG_ENGINE_SESSION_READBACK_H
#define SEG_ENGINE_SESSION_READBACK_H
#include "engine/backend/backend.h"

typedef struct Readback Readback;

/* An empty one on `dev`, which must outlive it. */
bool readback_open(const Backend *be, void *dev, Readback **out);
void readback_close(Readback *j); /* NULL is fine */

/* Append the value of t, on the device, as it is when what was queued before
 * has run. Queued itself. Fails when there is no memory. */
bool readback_add(Readback *j, const Tensor *t);

int readback_count(const Readback *j);

/* Bring all of them here; waits, and reports what failed on the device. */
bool readback_fetch(Readback *j);

/* Value i, from 0 in the order of adding, on the host; fetched and not added to
 * since. */
const Tensor *readback_value(const Readback *j, int i);

/* Forget the values, keep the memory. */
void readback_clear(Readback *j);
#endif
