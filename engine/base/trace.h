/* trace.h -- what was done when, and by whom: for a picture of time.
 *
 * Whoever is given a Trace notes spans of time in it, each in a row (a thread,
 * a device), and counters, each a number that changes. Spans of a row nest or
 * lie apart. What is written is the Trace Event Format, which chrome://tracing
 * and ui.perfetto.dev draw; its times count from the trace's beginning.
 *
 * Any thread may note. A trace keeps TRACE_MOST events, and counts what comes
 * later without keeping it, so that one of a long run is bounded. A NULL trace
 * takes nothing down and costs a comparison. */
#ifndef SEG_ENGINE_BASE_TRACE_H
#define SEG_ENGINE_BASE_TRACE_H
#include <stdbool.h>
#include <stdint.h>

enum { TRACE_MOST = 1 << 18 };

typedef struct Trace Trace;

/* A new one, held once. The last trace_drop frees it. */
bool trace_open(Trace **out);
Trace *trace_hold(Trace *t); /* NULL is fine; -> t */
void trace_drop(Trace *t);   /* NULL is fine       */

/* clock_s(), or 0 for NULL: what `from` of a span is. */
double trace_now(const Trace *t);
/* From `from` to now, or to `to`, of clock_s(). `kind` groups names; `number`,
 * when it is not negative, is shown beside it. No text of a patient belongs in
 * a name: traces are shown to others. */
void trace_span(Trace *t, const char *row, const char *name, const char *kind,
                int64_t number, double from);
void trace_put(Trace *t, const char *row, const char *name, const char *kind,
               int64_t number, double from, double to);
/* From now, or `at`, on the counter `name` is `value`. */
void trace_count(Trace *t, const char *name, int64_t value, double at);

/* Everything noted so far as a file. */
bool trace_write(Trace *t, const char *path);
/* Events that it has, and that there was no room for. */
void trace_events(Trace *t, int64_t *kept, int64_t *lost);
#endif
