/* readback.h -- values put aside on a device, to be read together.
 *
 * Reading a value waits for all that is queued. A pass over a validation set
 * wants the loss and the counts of every batch, but only at its end: each is
 * copied behind the others on the device, and one copy a block brings all of
 * them here. The bits are those that reading at once would give. */
#ifndef SEG_ENGINE_SESSION_READBACK_H
#define SEG_ENGINE_SESSION_READBACK_H
#include "engine/backend/backend.h"

typedef struct Journal Journal;

/* An empty one on `dev`, which must outlive it. */
bool journal_open(const Backend *be, void *dev, Journal **out);
void journal_close(Journal *j); /* NULL is fine */

/* Append the value of t, on the device, as it is when what was queued before
 * has run. Queued itself. Fails when there is no memory. */
bool journal_add(Journal *j, const Tensor *t);

int journal_count(const Journal *j);

/* Bring all of them here; waits, and reports what failed on the device. */
bool journal_fetch(Journal *j);

/* Value i, from 0 in the order of adding, on the host; fetched and not added to
 * since. */
const Tensor *journal_value(const Journal *j, int i);

/* Forget the values, keep the memory. */
void journal_clear(Journal *j);
#endif
