#include "err.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Thread_local char reason[ERR_MAX];
static _Thread_local ErrKind reason_kind;

static bool store(ErrKind kind, const char *fmt, va_list ap)
{
    // format aside first: an argument may be err_text() itself
    char text[ERR_MAX];
    vsnprintf(text, sizeof text, fmt, ap);
    memcpy(reason, text, sizeof text);
    reason_kind = kind;
    return false;
}

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

bool within(const char *fmt, ...)
{
    char where[ERR_MAX], text[ERR_MAX];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(where, sizeof where, fmt, ap);
    va_end(ap);
    // a long path must not push the reason itself out of the buffer
    size_t keep = strlen(reason) + 3;
    size_t room = keep < sizeof text ? sizeof text - keep : 0;
    if (room > strlen(where)) room = strlen(where);
    int n = snprintf(text, sizeof text, "%.*s: ", (int)room, where);
    snprintf(text + n, sizeof text - (size_t)n, "%s", reason);
    memcpy(reason, text, sizeof text);
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

bool err_set(ErrKind kind, const char *text)
{
    snprintf(reason, sizeof reason, "%s", text);
    reason_kind = kind;
    return false;
}

_Noreturn void check_failed(const char *expr, const char *file, int line)
{
    fprintf(stderr,
            "segengine: %s:%d: internal error: %s does not hold; "
            "please report this line\n",
            file, line, expr);
    abort();
}
