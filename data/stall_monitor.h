/* stall_monitor.h -- reports threads that wait long for one file.
 *
 * Each thread registers its current item. A thread of the monitor wakes up
 * every `patience_s` seconds and reports each item that has taken longer than
 * that, again after each further period. For files on a disk that does not
 * answer. */
#ifndef SEG_DATA_STALL_MONITOR_H
#define SEG_DATA_STALL_MONITOR_H
#include "data/parallel_for.h"
#include <stdbool.h>

typedef struct StallMonitor StallMonitor;

/* Receives "waiting for case_017 for 61 s, case_020 for 60 s" in the thread of
 * the monitor. */
typedef void StallReport(void *context, const char *text);

/* Starts a monitor; NULL without `tell` or when no thread can be started: then
 * only the report is missing. */
StallMonitor *stall_monitor_start(double patience_s, StallReport *tell,
                                  void *context);

/* Sets the current item of thread 0 .. MAX_PARALLEL - 1 to `name`, which must
 * stay valid until the next call; NULL: the thread is idle. */
void stall_monitor_at(StallMonitor *w, int thread, const char *name);
void stall_monitor_stop(StallMonitor *w); /* w may be NULL here and above */
#endif
