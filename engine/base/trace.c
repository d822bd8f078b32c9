/* trace.c -- a growing list of events under one lock, and its JSON.
 *
 * Names repeat thousands of times, so each is stored once: an event refers to
 * its names by number. Text is formatted when the file is written, not while
 * time is measured. */
#include "engine/base/trace.h"
#include "engine/base/clock.h"
#include "engine/base/file.h"
#include "engine/base/rng.h"
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    NAMES = 4096, /* slots of the hash table of names; at most half are used */
    SHOWN = 128,  /* bytes of a name                                         */
    LINE = 2048   /* one event as text, with two fully escaped names         */
};

typedef struct Event {
    int64_t from, length; /* ns since the beginning; length < 0: a counter */
    int64_t number;       /* for a counter its value                       */
    uint16_t row, name, kind;
} Event;

struct Trace {
    pthread_mutex_t lock; /* guards all below */
    int held;
    double begin; /* by clock_s() */
    Event *event;
    int64_t events, room, lost;
    const char *text[NAMES]; /* hash table, open addressing; memory of mem */
    int texts;
    uint16_t row[NAMES / 2]; /* names that are rows, in order of first use */
    int rows;
    Arena mem;
};

bool trace_open(Trace **out)
{
    *out = mem_alloc(sizeof **out);
    if (!*out) return false;
    pthread_mutex_init(&(*out)->lock, NULL);
    (*out)->held = 1;
    (*out)->begin = clock_s();
    return true;
}

Trace *trace_hold(Trace *t)
{
    if (!t) return NULL;
    pthread_mutex_lock(&t->lock);
    t->held++;
    pthread_mutex_unlock(&t->lock);
    return t;
}

void trace_drop(Trace *t)
{
    if (!t) return;
    pthread_mutex_lock(&t->lock);
    const bool last = --t->held == 0;
    pthread_mutex_unlock(&t->lock);
    if (!last) return;
    pthread_mutex_destroy(&t->lock);
    arena_release(&t->mem);
    mem_free(t->event);
    mem_free(t);
}

double trace_now(const Trace *t)
{
    return t ? clock_s() : 0;
}

/* Returns the number of a name; -1 if there are too many or no memory. */
static int number_of(Trace *t, const char *name)
{
    for (uint32_t i = rng_hash(name) % NAMES;; i = (i + 1) % NAMES) {
        if (t->text[i] && !strcmp(t->text[i], name)) return (int)i;
        if (t->text[i]) continue;
        if (t->texts == NAMES / 2) return -1;
        t->text[i] = arena_strdup(&t->mem, name);
        if (!t->text[i]) return -1;
        t->texts++;
        return (int)i;
    }
}

/* Is there room for one more event, after growing if needed? */
static bool grow(Trace *t)
{
    if (t->events < t->room) return true;
    if (t->room == TRACE_MOST) return false;
    const int64_t room = t->room ? 2 * t->room : 1024;
    Event *grown = mem_realloc(t->event, (size_t)room * sizeof *grown);
    if (!grown) return false;
    t->event = grown;
    t->room = room;
    return true;
}

/* Adds one event; the caller holds the lock. An event without room is only
 * counted: a trace must not end a run. */
static void add(Trace *t, const char *row, const char *name, const char *kind,
                Event e)
{
    const int r = number_of(t, row), n = number_of(t, name),
              k = number_of(t, kind);
    if (r < 0 || n < 0 || k < 0 || !grow(t)) {
        t->lost++;
        return;
    }
    int i = 0;
    while (i < t->rows && t->row[i] != r) i++;

    // a counter has no row
    if (i == t->rows && e.length >= 0) t->row[t->rows++] = (uint16_t)r;
    e.row = (uint16_t)i, e.name = (uint16_t)n, e.kind = (uint16_t)k;
    t->event[t->events++] = e;
}

static int64_t ns(const Trace *t, double at)
{
    return llround(1e9 * (at - t->begin));
}

void trace_put(Trace *t, const char *row, const char *name, const char *kind,
               int64_t number, double from, double to)
{
    if (!t) return;
    pthread_mutex_lock(&t->lock);
    // both ends are rounded, so nested spans stay nested in the file
    const int64_t begin = ns(t, from), end = ns(t, to);
    add(t, row, name, kind,
        (Event){.from = begin,
                .length = end > begin ? end - begin : 0,
                .number = number});
    pthread_mutex_unlock(&t->lock);
}

void trace_span(Trace *t, const char *row, const char *name, const char *kind,
                int64_t number, double from)
{
    if (t) trace_put(t, row, name, kind, number, from, clock_s());
}

void trace_count(Trace *t, const char *name, int64_t value, double at)
{
    if (!t) return;
    pthread_mutex_lock(&t->lock);
    add(t, name, name, "counter",
        (Event){.from = ns(t, at), .length = -1, .number = value});
    pthread_mutex_unlock(&t->lock);
}

void trace_events(Trace *t, int64_t *kept, int64_t *lost)
{
    pthread_mutex_lock(&t->lock);
    *kept = t->events, *lost = t->lost;
    pthread_mutex_unlock(&t->lock);
}

/* Writes `text` as a JSON string. Bytes outside ASCII are escaped one by one,
 * as a name that was cut inside a character would be invalid UTF-8. */
static char *put_text(char *to, const char *text)
{
    *to++ = '"';
    for (int i = 0; text[i] && i < SHOWN; i++) {
        const unsigned char c = (unsigned char)text[i];
        if (c < 32 || c > 126 || c == '"' || c == '\\')
            to += sprintf(to, "\\u%04x", c);
        else
            *to++ = (char)c;
    }
    *to++ = '"';
    *to = 0;
    return to;
}

/* Writes nanoseconds as microseconds, the unit of the format. */
static char *put_us(char *to, const char *key, int64_t count)
{
    const char *sign = count < 0 ? "-" : "";
    if (count < 0) count = -count;
    return to + sprintf(to, ",\"%s\":%s%" PRId64 ".%03d", key, sign,
                        count / 1000, (int)(count % 1000));
}

static int put_event(const Trace *t, const Event *e, char *line)
{
    char *to = line + sprintf(line, ",\n{\"pid\":1,\"name\":");
    to = put_text(to, t->text[e->name]);
    to = put_us(to, "ts", e->from);
    if (e->length < 0) {
        to += sprintf(to, ",\"ph\":\"C\",\"args\":{\"bytes\":%" PRId64 "}}",
                      e->number);
        return (int)(to - line);
    }

    to = put_us(to, "dur", e->length);
    to += sprintf(to, ",\"ph\":\"X\",\"tid\":%d,\"cat\":", e->row + 1);
    to = put_text(to, t->text[e->kind]);
    if (e->number >= 0)
        to += sprintf(to, ",\"args\":{\"number\":%" PRId64 "}", e->number);
    to += sprintf(to, "}");
    return (int)(to - line);
}

/* Writes the name of row i, which the format calls a thread name. */
static int put_row(const Trace *t, int i, char *line)
{
    char *to = line + sprintf(line,
                              ",\n{\"pid\":1,\"ph\":\"M\",\"tid\":%d,"
                              "\"name\":\"thread_name\",\"args\":{\"name\":",
                              i + 1);
    to = put_text(to, t->text[t->row[i]]);
    to += sprintf(to, "}}");
    return (int)(to - line);
}

/* Orders by begin, enclosing spans first: viewers draw in this order. */
static int by_time(const void *a, const void *b)
{
    const Event *x = a, *y = b;
    if (x->from != y->from) return x->from < y->from ? -1 : 1;
    return (x->length < y->length) - (x->length > y->length);
}

bool trace_write(Trace *t, const char *path)
{
    static const char head[] =
        "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n"
        "{\"pid\":1,\"ph\":\"M\",\"name\":\"process_name\","
        "\"args\":{\"name\":\"segengine\"}}";
    static const char tail[] = "\n]}\n";
    enum { PIECE = 1 << 16 };
    Draft d = {0};
    uint64_t at = 0;
    size_t n = sizeof head - 1;
    char *text = mem_alloc(PIECE + LINE);
    pthread_mutex_lock(&t->lock);
    bool ok = text && draft_open(&d, path, 0);
    if (ok) memcpy(text, head, n);
    if (t->events)
        qsort(t->event, (size_t)t->events, sizeof *t->event, by_time);

    for (int64_t i = 0; ok && i < t->rows + t->events; i++) {
        n += (size_t)(i < t->rows
                          ? put_row(t, (int)i, text + n)
                          : put_event(t, &t->event[i - t->rows], text + n));
        if (n < PIECE) continue;
        ok = draft_write(&d, at, text, n);
        at += n, n = 0;
    }

    pthread_mutex_unlock(&t->lock);
    if (ok) memcpy(text + n, tail, sizeof tail - 1);
    ok = ok && draft_write(&d, at, text, n + sizeof tail - 1) &&
         draft_commit(&d, NULL, NULL);
    if (!ok) draft_discard(&d);
    mem_free(text);
    return ok;
}
