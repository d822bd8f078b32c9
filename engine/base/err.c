/* err.c -- the reason of a thread: stored, put in context, handed on.
 *
 * A reason lives in a fixed buffer per thread, because the one moment when it
 * must not fail to be written is when there is no memory. What does not fit
 * is cut at the end of the buffer: the front of a reason says where, so
 * within() takes care that the other half, what, is what stays. Nothing here
 * takes a lock or allocates, so all of it may be called from any worker. */
#include "engine/base/err.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// never cleared by success: who asks for it has just seen a false
static _Thread_local char reason[ERR_MAX];
static _Thread_local ErrKind reason_kind;
static _Thread_local size_t reason_wanted, reason_room; // 0: not of memory

/* A name of a file may hold what a terminal obeys, or a line break: a reason is
 * one line of text, so it stands there as '?'. */
static void disarm(char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text < ' ' || *text == 0x7f) *text = '?';
}

/* Replace the reason; false, so that callers can return it. */
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

// one function a kind: the kind is then seen where the reason is written
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
    // nobody failed before: still a failure, or the exit code would be 0
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

// the one place below lua/ that prints: the program is about to end anyway
_Noreturn void check_failed(const char *expr, const char *file, int line)
{
    fprintf(stderr,
            "segengine: %s:%d: internal error: %s does not hold; "
            "please report this line\n",
            file, line, expr);
    abort();
}
