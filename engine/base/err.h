/* err.h -- failure is a bool; the reason is one line of text per thread.
 *
 * A function that can fail calls fail(), or a function that does, and returns
 * false. Each caller may add context with within(), so a reason reads from the
 * outside in: "case_017: slice 3: dicom: no pixel data". The text is bounded,
 * thread-local and never allocated. A violated invariant inside the program is
 * not a failure but a CHECK. */
#ifndef SEG_ENGINE_BASE_ERR_H
#define SEG_ENGINE_BASE_ERR_H
#include <stdbool.h>
#include <stddef.h>

#if defined(__GNUC__)
#define ERR_FORMAT(a, b) __attribute__((format(printf, a, b)))
#else
#define ERR_FORMAT(a, b)
#endif

/* The kind of a failure; its value is the exit code of the program. */
typedef enum ErrKind {
    ERR_NONE = 0,
    ERR_FAILURE = 1,  /* any other: disk full, no memory, ...          */
    ERR_USAGE = 2,    /* command line or recipe                        */
    ERR_DATA = 3,     /* a file that is damaged, missing or unsuitable */
    ERR_DEVICE = 4,   /* a device that is absent or failed             */
    ERR_DIVERGED = 5, /* loss, gradient or prediction is not finite    */
} ErrKind;

/* Stores the reason and its kind; returns false. */
bool fail(const char *fmt, ...) ERR_FORMAT(1, 2);        /* ERR_FAILURE */
bool fail_usage(const char *fmt, ...) ERR_FORMAT(1, 2);  /* ERR_USAGE   */
bool fail_data(const char *fmt, ...) ERR_FORMAT(1, 2);   /* ERR_DATA    */
bool fail_device(const char *fmt, ...) ERR_FORMAT(1, 2); /* ERR_DEVICE  */
bool fail_diverged(const char *fmt, ...) ERR_FORMAT(1, 2);

/* The same for a lack of memory, of kind ERR_FAILURE (host) or ERR_DEVICE
 * (GPU). Also stores the bytes requested (> 0) and available (0: unknown). */
bool fail_memory(ErrKind kind, size_t wanted, size_t room, const char *fmt, ...)
    ERR_FORMAT(4, 5);

/* Prepends "text: " to the reason and keeps its kind; returns false. If both do
 * not fit, `text` is truncated, not the reason. */
bool within(const char *fmt, ...) ERR_FORMAT(1, 2);

/* Return this thread's last reason ("" if none) and its kind. Both stay until
 * the next failure; success does not clear the reason, so only a return value
 * of false says that it is current. */
const char *err_text(void);
ErrKind err_kind(void);
/* Returns the bytes requested, and in *room the bytes available, if the last
 * reason came from fail_memory(); else 0. */
size_t err_wanted(size_t *room);

/* Hands a reason from a worker to the thread that reports it: that thread
 * passes the worker's copy of err_text(). Returns false. */
bool err_set(ErrKind kind, const char *text);

/* For functions that release resources: jumps to their `done:` label. Every
 * variable that is freed there must be initialised before the first TRY. */
#define TRY(e)               \
    do {                     \
        if (!(e)) goto done; \
    } while (0)

/* A violated invariant inside the program: aborts with file:line. */
#define CHECK(e) ((e) ? (void)0 : check_failed(#e, __FILE__, __LINE__))
#ifdef __cplusplus
[[noreturn]]
#else
_Noreturn
#endif
void check_failed(const char *expr, const char *file, int line);

enum { ERR_MAX = 2048 }; /* size of a reason, with its final zero */
#endif
