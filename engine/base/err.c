/* err.c -- stores the reason of a thread, adds context, hands it on.
 *
 * A reason lives in a fixed buffer per thread, because it must also be written
 * when there is no memory. Text that does not fit is cut at the end of the
 * buffer. The front of a reason names the place and the end names the cause, so
 * within() shortens the place. Nothing here takes a lock or allocates: every
 * function may be called from any worker. */
#include "engine/base/err.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// never cleared by success: a caller reads it after a function returned false
static _Thread_local char reason[ERR_MAX];
static _Thread_local ErrKind reason_kind;
static _Thread_local size_t reason_wanted, reason_room; // 0: not of fail_memory

/* A file name may hold control characters for a terminal, or a line break. A
 * reason is one line of text, so each such byte becomes '?'. */
static void disarm(char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text < ' ' || *text == 0x7f) *text = '?';
}

/* Replaces the reason; returns false, which callers pass on. */
static bool store(ErrKind kind, const char *fmt, va_list ap)
{
    // format aside first: an argument may be err_text() itself
    char text[ERR_MAX];
    vsnprintf(text, sizeof text, fmt, ap);
    disarm(text);
    memcpy(reason, text, sizeof text);
    reason_kind = kind;
    reason_wanted = reason_room = 0;
    return false;
}

bool fail_memory(ErrKind kind, size_t wanted, size_t room, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    store(kind, fmt, ap);
    va_end(ap);
    reason_wanted = wanted, reason_room = room;
    return false;
}

// one function per kind: the call that writes a reason then shows its kind
#define DEFINE_FAIL(name, kind)     \
    bool name(const char *fmt, ...) \
    {                               \
        va_list ap;                 \
        va_start(ap, fmt);          \
        store(kind, fmt, ap);       \
        va_end(ap);                 \
        return false;               \
    }
DEFINE_FAIL(fail, ERR_FAILURE)
DEFINE_FAIL(fail_usage, ERR_USAGE)
DEFINE_FAIL(fail_data, ERR_DATA)
DEFINE_FAIL(fail_device, ERR_DEVICE)
DEFINE_FAIL(fail_diverged, ERR_DIVERGED)

bool within(const char *fmt, ...)
{
    char where[ERR_MAX], text[ERR_MAX];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(where, sizeof where, fmt, ap);
    va_end(ap);
    disarm(where);

    // a long path must not push the reason itself out of the buffer
    size_t keep = strlen(reason) + 3; // its text, ": " and the end
    size_t room = keep < sizeof text ? sizeof text - keep : 0;
    if (room > strlen(where)) room = strlen(where);
    int n = snprintf(text, sizeof text, "%.*s: ", (int)room, where);
    snprintf(text + n, sizeof text - (size_t)n, "%s", reason);
    memcpy(reason, text, sizeof text);

    // no failure before: still a failure, or the exit code would be 0
    if (!reason_kind) reason_kind = ERR_FAILURE;
    return false;
}

const char *err_text(void)
{
    return reason;
}

ErrKind err_kind(void)
{
    return reason_kind;
}

size_t err_wanted(size_t *room)
{
    *room = reason_room;
    return reason_wanted;
}

bool err_set(ErrKind kind, const char *text)
{
    // moved, not printed: `text` may be this thread's own err_text()
    size_t n = strlen(text);
    if (n >= sizeof reason) n = sizeof reason - 1;
    memmove(reason, text, n);
    reason[n] = 0;
    reason_kind = kind;
    reason_wanted = reason_room = 0;
    return false;
}

// the only print below lua/: the program is about to end anyway
_Noreturn void check_failed(const char *expr, const char *file, int line)
{
    fprintf(stderr,
            "segengine: %s:%d: internal error: %s does not hold; "
            "please report this line\n",
            file, line, expr);
    abort();
}
