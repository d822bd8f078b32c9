/* readback.h -- values copied aside on the device and read together.
 *
 * Reading a value waits for all queued work. A validation pass needs the loss
 * and counts of every batch, but only at its end. So each value is appended to
 * a block on the device, and one copy per block brings all to the host. The
 * bits are the same as with immediate reads. */
#ifndef SEG_ENGINE_SESSION_READBACK_H
#define SEG_ENGINE_SESSION_READBACK_H
#include "engine/backend/backend.h"

typedef struct Readback Readback;

/* Opens an empty readback on `dev`, which must outlive it. */
bool readback_open(const Backend *be, void *dev, Readback **out);
void readback_close(Readback *j); /* NULL is fine */

/* Appends the value of t, on the device, as the work queued before leaves it.
 * The copy is queued too. Fails if there is no memory. */
bool readback_add(Readback *j, const Tensor *t);

int readback_count(const Readback *j);

/* Copies all values to the host; waits, and reports failures of the device. */
bool readback_fetch(Readback *j);

/* Returns value i, from 0 in the order of adding, on the host; valid after a
 * fetch with no later add. */
const Tensor *readback_value(const Readback *j, int i);

/* Removes all values and keeps the memory. */
void readback_clear(Readback *j);
#endif
