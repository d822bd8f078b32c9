/* trace.h -- a timeline: which thread or device did which work at which time.
 *
 * Functions that get a Trace record spans of time in it, each in a row (a
 * thread, a device), and counters with changing values. Spans of a row nest or
 * are disjoint. The file is in Trace Event Format, which chrome://tracing and
 * ui.perfetto.dev draw; its times count from the beginning of the trace.
 *
 * Any thread may record. A trace keeps TRACE_MOST events and only counts later
 * ones, which bounds the trace of a long run. A NULL trace records nothing and
 * costs a comparison. */
#ifndef SEG_ENGINE_BASE_TRACE_H
#define SEG_ENGINE_BASE_TRACE_H
#include <stdbool.h>
#include <stdint.h>

enum { TRACE_MOST = 1 << 18 };

typedef struct Trace Trace;

/* Makes a trace with one reference. The last trace_drop frees it. */
bool trace_open(Trace **out);
Trace *trace_hold(Trace *t); /* NULL is fine; -> t */
void trace_drop(Trace *t);   /* NULL is fine       */

/* Returns clock_s(), or 0 for NULL: the `from` of a later span. */
double trace_now(const Trace *t);
/* Record a span from `from` to now, or to `to`, in seconds of clock_s(). `kind`
 * groups names; a viewer shows `number` with the span if it is not negative.
 * Names must not contain text about a patient: traces are shared. */
void trace_span(Trace *t, const char *row, const char *name, const char *kind,
                int64_t number, double from);
void trace_put(Trace *t, const char *row, const char *name, const char *kind,
               int64_t number, double from, double to);
/* Sets counter `name` to `value` from time `at` on. */
void trace_count(Trace *t, const char *name, int64_t value, double at);

/* Writes all events so far to a file. */
bool trace_write(Trace *t, const char *path);
/* Returns the number of events kept, and dropped for lack of room. */
void trace_events(Trace *t, int64_t *kept, int64_t *lost);
#endif
