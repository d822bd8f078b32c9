/* parallel_for.h -- several threads that take the cases of a set, one after the
 * other.
 */
#ifndef SEG_DATA_PARALLEL_FOR_H
#define SEG_DATA_PARALLEL_FOR_H
#include <stdatomic.h>
#include <stdbool.h>

enum { CREW_MOST = 64 }; /* threads, the caller among them */

/* Item `item`, in thread 0 .. CREW_MOST - 1; false with a reason. */
typedef bool ParallelForWork(void *context, int thread, int item);

/* Calls `work` for items 0 .. count - 1, begun in their order, in up to
 * `threads` threads. The caller is one of them, so that none is a must. Once an
 * item has failed none behind it begins, and the reason is that of the first of
 * them in order: the same whichever thread met its own first. `stop` raised (it
 * may be NULL): an item that was to begin fails with "stopped". */
bool parallel_for(int count, int threads, const atomic_bool *stop,
                  ParallelForWork *work, void *context);

/* Is *stop raised? Then work in several parts ends between two of them, and the
 * reason of its failure, "stopped", is set. stop may be NULL. */
bool parallel_for_stopped(const atomic_bool *stop);
#endif
