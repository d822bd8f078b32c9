/* watch.h -- names what takes long while threads work.
 *
 * Each thread says what it is at; a thread of the watch's own looks from time
 * to time, and tells of those that have been at one thing for `patience_s`,
 * again each time that passes. For files on a disk that does not answer. */
#ifndef SEG_DATA_WATCH_H
#define SEG_DATA_WATCH_H
#include "data/parallel_for.h"
#include <stdbool.h>

typedef struct Watch Watch;

/* Gets "waiting for case_017 for 61 s, case_020 for 60 s", in the watch's own
 * thread. */
typedef void WatchTell(void *context, const char *text);

/* NULL when there is nobody to tell or no thread to be had: all that is missed
 * then is a line. */
Watch *watch_start(double patience_s, WatchTell *tell, void *context);

/* Thread 0 .. CREW_MOST - 1 of a crew is at `name` from now on (it must stay
 * until the next call), NULL: at nothing. */
void watch_at(Watch *w, int thread, const char *name);
void watch_stop(Watch *w); /* NULL is fine, here and above */
#endif
