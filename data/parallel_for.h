/* parallel_for.h -- runs independent items, such as the cases of a data set, in
 * several threads. */
#ifndef SEG_DATA_PARALLEL_FOR_H
#define SEG_DATA_PARALLEL_FOR_H
#include <stdatomic.h>
#include <stdbool.h>

enum { MAX_PARALLEL = 64 }; /* threads, including the caller */

/* Processes item `item` in thread 0 .. MAX_PARALLEL - 1; false with a reason.
 */
typedef bool ParallelForWork(void *context, int thread, int item);

/* Calls `work` for items 0 .. count - 1, started in this order, in up to
 * `threads` threads. The caller is one of the threads, so the loop finishes
 * even if no other thread can be started. Once an item has failed, no later
 * item starts; the reason returned is that of the first failed item in order,
 * whichever thread failed first. If `stop` (may be NULL) is set, the next item
 * to start fails with "stopped". */
bool parallel_for(int count, int threads, const atomic_bool *stop,
                  ParallelForWork *work, void *context);

/* Returns true, with the reason "stopped", if *stop is set: work of several
 * stages then ends between two stages. stop may be NULL. */
bool parallel_for_stopped(const atomic_bool *stop);
#endif
